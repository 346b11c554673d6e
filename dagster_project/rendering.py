"""Tables and pictures for run metadata. Pictures are SVG inside Markdown: they need no server and no library."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from dagster import MarkdownMetadataValue, MetadataValue, TableColumn, TableMetadataValue, TableRecord, TableSchema

Cell = str | int | float | bool | None

WIDTH = 720
ROW = 22
LABEL = 150
INK, DONE, REST, LINES = "#1f2937", "#2563eb", "#e5e7eb", ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed")


def table(columns: Mapping[str, str], rows: Sequence[Sequence[Cell]]) -> TableMetadataValue:
    """A table. ``columns`` maps names to Dagster's types: "string", "int", "float" or "bool"."""
    names = list(columns)
    schema = TableSchema([TableColumn(name, kind) for name, kind in columns.items()])
    records = [TableRecord(dict(zip(names, row, strict=True))) for row in rows]
    return MetadataValue.table(records, schema)


def bars(title: str, rows: Sequence[tuple[str, float, float, str]]) -> MarkdownMetadataValue:
    """Horizontal bars: label, done, total, and a text that stands at the right."""
    height = 40 + ROW * max(1, len(rows))
    width = WIDTH - LABEL - 190
    parts = [_text(8, 20, title, weight="600")]
    for number, (label, done, total, said) in enumerate(rows):
        top = 32 + ROW * number
        share = min(1.0, done / total) if total > 0 else 1.0
        parts += [
            _text(8, top + 13, label),
            f'<rect x="{LABEL}" y="{top + 2}" width="{width}" height="14" rx="2" fill="{REST}"/>',
            f'<rect x="{LABEL}" y="{top + 2}" width="{width * share:.1f}" height="14" rx="2" fill="{DONE}"/>',
            _text(LABEL + width + 8, top + 13, said),
        ]
    return picture(title, height, parts)


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> MarkdownMetadataValue:
    """Lines over time: each series is (seconds, value) in order of time; ``unit`` is that of the values."""
    left, right, top, bottom = 64, 150, 34, 30
    height = max(240, top + bottom + 18 * len(series))
    points = [point for values in series.values() for point in values]
    end = max((at for at, _ in points), default=1.0) or 1.0
    most = max((value for _, value in points), default=1.0) or 1.0
    across, down = WIDTH - left - right, height - top - bottom
    parts = [_text(8, 20, f"{title}, {unit}", weight="600")]
    for share in (0.0, 0.5, 1.0):
        y = top + down * (1 - share)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + across}" y2="{y:.1f}" stroke="{REST}"/>')
        parts.append(_text(left - 8, y + 4, f"{most * share:.4g}", anchor="end"))
    for number, (name, values) in enumerate(series.items()):
        colour = LINES[number % len(LINES)]
        path = " ".join(f"{left + across * at / end:.1f},{top + down * (1 - value / most):.1f}" for at, value in values)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = top + 14 + 18 * number
        parts.append(f'<rect x="{left + across + 10}" y="{y - 8}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(left + across + 26, y + 1, name))
    parts.append(_text(left, height - 10, "0 s"))
    parts.append(_text(left + across, height - 10, f"{end:.0f} s", anchor="end"))
    return picture(title, height, parts)


def picture(alt: str, height: int, parts: Sequence[str]) -> MarkdownMetadataValue:
    """An SVG of the one width that the interface shows well."""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>{"".join(parts)}</svg>'
    )
    return embedded(alt, svg.encode(), "svg+xml")


def chart(alt: str, svg: str, css: str) -> MarkdownMetadataValue:
    """An SVG that was made for a page with this style sheet, in its light colours whatever the reader's are."""
    light = css.partition("}")[0] + "}"
    start = svg.index(">") + 1
    head = svg[:start].replace("<svg ", f'<svg width="{WIDTH}" ', 1)
    back = '<rect width="100%" height="100%" style="fill:white"/>'
    return embedded(alt, f"{head}<style>{css}{light}</style>{back}{svg[start:]}".encode(), "svg+xml")


def embedded(alt: str, content: bytes, kind: str) -> MarkdownMetadataValue:
    """A picture by its bytes and the part of its media type after ``image/``."""
    label = alt.replace("[", "(").replace("]", ")")
    return MetadataValue.md(f"![{label}](data:image/{kind};base64,{base64.b64encode(content).decode()})")


def _text(x: float, y: float, text: str, *, weight: str = "400", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" font-size="12" font-weight="{weight}"'
        f' text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'
    )
