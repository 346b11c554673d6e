"""What was measured, as tables for people and as one picture for the documentation. Pure: made of the JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console

from infra.commands.output import table

Line = Mapping[str, Any]
STAGES: Mapping[str, tuple[str, ...]] = {
    "search": ("turn", "closure", "search"),
    "admit, repair": ("admit", "repair"),
    "fuse": ("fuse",),
    "texts, vectors": ("text",),
    "diversity": ("diversify",),
    "rerank": ("rerank",),
    "check, extras": ("check", "extras"),
}
_COLOURS = ("#0b6e8a", "#5aa3b5", "#9cc9d3", "#c9803a", "#e3b684", "#8a2d3c", "#7b8790")
_INK, _FAINT, _GOOD, _BAD = "#1d2730", "#d5dce1", "#2f7d4f", "#8a2d3c"
_WIDTH, _ROW, _TOP = 1240, 27, 96


def variants(lines: Sequence[Line]) -> list[Line]:
    """Lines of the ablation."""
    return [line for line in lines if line.get("variant")]


def cells(lines: Sequence[Line]) -> list[Line]:
    """Lines of stages."""
    return [line for line in lines if line.get("stages")]


def show(out: Console, lines: Sequence[Line]) -> None:
    """Print the ablation, the times, and every verdict."""
    rows = variants(lines)
    if rows:
        out.print("[bold]Ranking by part[/]: differences are paired by question, with 95 % intervals", highlight=False)
        made = table("part", "variant", "nDCG@10", "recall@10", "MRR", "difference", "golden", "articles", "scored")
        for row in rows:
            sets = row["sets"]
            made.add_row(
                row["group"], row["variant"], _three(row["ndcg"]), _three(row["recall"]), _three(row["mrr"]),
                interval(row["difference"]), *(interval(sets[of]["difference"]) for of in ("golden", "articles")),
                f"{row['scored']:.1f}",
            )  # fmt: skip
        out.print(made)
    found = cells(lines)
    if found:
        out.print(f"\n[bold]Milliseconds[/] over {found[0]['chunks']} chunks, p50 / p95, by stage", highlight=False)
        made = table("chunks", "rerank", "clients", "principals", "scored", "(embed)", *STAGES, "service", "whole")
        for one in found:
            stages = [_both(*of_stages(one, names)) for names in STAGES.values()]
            whole = _both(one["p50"], one["p95"])
            made.add_row(
                str(one["chunks"]), one["rerank"], str(one["clients"]), str(one["principals"]), f"{one['scored']:.1f}",
                _both(*of_stages(one, ("embed",))), *stages, _both(*one["stages"]["total"]), whole,
            )  # fmt: skip
        out.print(made)
    for line in lines:
        if line.get("verdict"):
            out.print(verdict(line), highlight=False, markup=False)
        elif line.get("error") or line.get("skipped"):
            out.print(f"{line['bench']}: {line.get('error') or line['skipped']}", highlight=False, markup=False)


def verdict(line: Line) -> str:
    """One line in words."""
    said = "ok" if line["ok"] else "MISSED"
    if line["unit"].startswith("difference"):
        return f"{said:<7}{line['verdict']}: {line['must_be']}, {interval(line['difference'])}"
    clients = line.get("clients", 1)
    people = f"{clients} client{'s' if clients > 1 else ''}"
    what = f"{line['verdict']}, rerank {line['rerank']}, {people}, {line['chunks']} chunks"
    if "errors" in line:
        return (
            f"{said:<7}{what}, under {line['under']}: {line['answers']} answers, {line['errors']} errors, "
            f"{line['refused_429']} told to wait, p95 {line['value']} ms, {line['per_s']} a second"
        )
    if "under" in line:
        return f"{said:<7}{what}, under a {line['under']}: p95 {line['value']} ms, {line['ratio']} × the calm one"
    return f"{said:<7}{what}: p95 {line['value']} ms, at most {line['target']}"


def of_stages(cell: Line, names: Sequence[str]) -> tuple[float, float]:
    """p50 and p95 of stages that follow each other; sums of percentiles, so about right."""
    found = [cell["stages"][name] for name in names if name in cell["stages"]]
    return sum(low for low, _ in found), sum(high for _, high in found)


def interval(found: Sequence[float] | None) -> str:
    """``+0.012 (+0.003 to +0.021)``."""
    return "–" if found is None else f"{found[0]:+.3f} ({found[1]:+.3f} to {found[2]:+.3f})"


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _both(low: float, high: float) -> str:
    return f"{low:.0f} / {high:.0f}"


# -- picture -----------------------------------------------------------------------------------------------------------


def picture(lines: Sequence[Line]) -> str:
    """An SVG: on the left each variant's difference to the fused order, on the right the time of each stage."""
    rows = [row for row in variants(lines) if row["difference"] and row["variant"] != row["against"]]
    chosen = [one for one in cells(lines) if one["principals"] in (10, 1_000)]
    height = round(_TOP + 40 + max(_ROW * len(rows), 1.5 * _ROW * len(chosen) + 40))
    body = "\n".join([*_differences(rows), *_times(chosen)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="14" role="img" aria-label="Ranking: quality by part and time by stage">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


def _differences(rows: Sequence[Line]) -> Iterator[str]:
    left, right = 190, 560
    yield _text(24, 34, "nDCG@10 against the fused order", size=18, bold=True)
    asked = max((row["questions"] for row in rows), default=0)
    yield _text(24, 56, f"{asked} questions, paired, with 95 % intervals")
    low = min((row["difference"][1] for row in rows), default=-0.05)
    high = max((row["difference"][2] for row in rows), default=0.05)
    step = 0.05
    low, high = step * (low // step), step * -(-high // step)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    bottom = _TOP + _ROW * len(rows)
    for tick in range(round(low / step), round(high / step) + 1):
        at = x(tick * step)
        colour = _INK if tick == 0 else _FAINT
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 16}" y2="{bottom}" stroke="{colour}"/>'
        yield _text(at, bottom + 18, f"{tick * step:+.2f}" if tick else "0", anchor="middle", size=12)
    for n, row in enumerate(rows):
        y = _TOP + n * _ROW
        mean, least, most = row["difference"]
        colour = _GOOD if least > 0 else _BAD if most < 0 else _INK
        yield _text(left - 14, y + 5, row["variant"], anchor="end")
        yield (
            f'<line x1="{x(least):.1f}" x2="{x(most):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3" '
            f'opacity="0.45"/><circle cx="{x(mean):.1f}" cy="{y}" r="5" fill="{colour}"/>'
        )


def _times(chosen: Sequence[Line]) -> Iterator[str]:
    left, right = 790, 1160
    if not chosen:
        return
    yield _text(630, 34, "Milliseconds inside a search, median", size=18, bold=True)
    loads = [one["load1"] for one in chosen]
    load = f"load average {min(loads):.0f} to {max(loads):.0f}"
    yield _text(630, 56, f"{chosen[0]['chunks']:,} chunks, synthetic vectors, {load}; rerank, clients, principals")
    longest = max(sum(of_stages(one, names)[0] for names in STAGES.values()) for one in chosen) or 1.0
    for n, one in enumerate(chosen):
        y = _TOP - 12 + n * 1.5 * _ROW
        clients = f"{one['clients']} client{'s' if one['clients'] > 1 else ''}"
        yield _text(left - 14, y + 14, f"{one['rerank']}, {clients}, {one['principals']}", anchor="end")
        at = float(left)
        for colour, names in zip(_COLOURS, STAGES.values(), strict=True):
            wide = of_stages(one, names)[0] / longest * (right - left)
            yield f'<rect x="{at:.1f}" y="{y}" width="{wide:.1f}" height="20" fill="{colour}"/>'
            at += wide
        yield _text(at + 6, y + 15, f"{of_stages(one, ('total',))[0]:.0f}", size=12)
    y = _TOP + len(chosen) * 1.5 * _ROW + 12
    for n, (colour, name) in enumerate(zip(_COLOURS, STAGES, strict=True)):
        row, column = divmod(n, 4)
        yield f'<rect x="{630 + column * 145}" y="{y + row * 24}" width="14" height="14" fill="{colour}"/>'
        yield _text(650 + column * 145, y + row * 24 + 12, name, size=12)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 14, bold: bool = False, colour: str = _INK
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )
