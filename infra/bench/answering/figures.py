"""Lines of ``context`` as a table for people and as one picture for the documentation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console

from infra.commands.output import table

Line = Mapping[str, Any]
_CURVES = (  # key, colour, name
    ("context_recall", "#7b8790", "context recall"),
    ("complete", "#0b6e8a", "complete answers"),
    ("faithfulness_by_words", "#2f7d4f", "faithful by words"),
    ("context_precision", "#8a2d3c", "context precision"),
)
_INK, _FAINT, _BAR, _COST = "#1d2730", "#d5dce1", "#9cc9d3", "#c9803a"
_WIDTH, _HEIGHT = 1240, 470
_TOP, _BOTTOM = 96, 390


def sizes(lines: Sequence[Line]) -> list[Line]:
    """Lines by number of passages."""
    return [line for line in lines if line.get("bench") == "context" and "k" in line]


def positions(lines: Sequence[Line]) -> list[Line]:
    """Lines by position of the labelled passage."""
    return [line for line in lines if line.get("bench") == "context_position"]


def show(out: Console, lines: Sequence[Line]) -> None:
    """Print sizes, then positions with the lowest and highest of each size."""
    found = sizes(lines)
    if found:
        out.print(f"[bold]Passages to answer from[/], {found[0]['questions']} questions, {found[0]['style']}")
        made = table(
            "passages", "complete", "answered", "context precision", "recall", "relevance", "faithful by words",
            "answer itself", "words", "tokens", "p50 ms", "p95 ms",
        )  # fmt: skip
        for line in found:
            made.add_row(
                str(line["k"]), _three(line["complete"]), str(line["answered"]), _three(line["context_precision"]),
                _three(line["context_recall"]), _three(line["context_relevance"]),
                _three(line["faithfulness_by_words"]), _three(line["relevance_by_answer_itself"]),
                _whole(line["words"]), _whole(line["tokens"]), _whole(line["p50_ms"]), _whole(line["p95_ms"]),
            )  # fmt: skip
        out.print(made)
    placed = positions(lines)
    if placed:
        out.print(f"\n[bold]The labelled passage at each position[/], {placed[0]['questions']} questions")
        made = table("passages", "first", "lowest", "highest", "same sentences as at the first")
        for k in dict.fromkeys(line["k"] for line in placed):
            of = [line for line in placed if line["k"] == k]
            made.add_row(
                str(k), _three(of[0]["complete"]), _three(min(line["complete"] for line in of)),
                _three(max(line["complete"] for line in of)),
                _three(min(line["same_sentences_as_first"] for line in of)),
            )  # fmt: skip
        out.print(made)


def picture(lines: Sequence[Line]) -> str:
    """An SVG: quality by number of passages, what it costs, and the labelled passage at each position."""
    found, placed = sizes(lines), positions(lines)
    body = "\n".join([*_quality(found), *_cost(found), *_placed(placed)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="14" role="img" aria-label="Answers by number of passages supplied">\n'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _quality(found: Sequence[Line]) -> Iterator[str]:
    left, right = 60, 400
    yield _text(24, 34, "Quality by number of passages", size=18, bold=True)
    if not found:
        return
    yield _text(24, 56, f"{found[0]['questions']} questions, {found[0]['style']} answers")
    yield from _grid(left, right)
    xs = _columns(found, left, right)
    for line, x in zip(found, xs, strict=True):
        yield _text(x, _BOTTOM + 20, str(line["k"]), anchor="middle", size=12)
    for n, (key, colour, name) in enumerate(_CURVES):
        points = [(x, _y(line[key])) for line, x in zip(found, xs, strict=True) if line[key] is not None]
        yield _line(points, colour)
        x, y = left + (n % 2) * 180, _BOTTOM + 34 + (n // 2) * 22
        yield f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}"/>'
        yield _text(x + 20, y + 12, name, size=12)


def _cost(found: Sequence[Line]) -> Iterator[str]:
    left, right = 480, 780
    yield _text(left - 20, 34, "What it costs", size=18, bold=True)
    if not found:
        return
    yield _text(left - 20, 56, "tokens supplied (bars); median ms (dots)")
    most = max(line["tokens"] for line in found) or 1.0
    slowest = max(line["p50_ms"] or 0.0 for line in found) or 1.0
    room = _BOTTOM - _TOP - 24
    points = []
    for line, x in zip(found, _columns(found, left, right), strict=True):
        high = line["tokens"] / most * room
        yield f'<rect x="{x - 20:.1f}" y="{_BOTTOM - high:.1f}" width="40" height="{high:.1f}" fill="{_BAR}"/>'
        yield _text(x, _BOTTOM - high - 6, _whole(line["tokens"]), anchor="middle", size=12)
        yield _text(x, _BOTTOM + 20, str(line["k"]), anchor="middle", size=12)
        y = _BOTTOM - (line["p50_ms"] or 0.0) / slowest * room * 0.8
        points.append((x, y))
    yield _line(points, _COST)
    for line, (x, y) in zip(found, points, strict=True):  # above the bars
        yield _text(x, y - 12, f"{_whole(line['p50_ms'])} ms", anchor="middle", size=12, colour=_INK)
    yield f'<line x1="{left - 20}" x2="{right + 20}" y1="{_BOTTOM}" y2="{_BOTTOM}" stroke="{_INK}"/>'


def _placed(placed: Sequence[Line]) -> Iterator[str]:
    left, right = 880, 1180
    yield _text(left - 20, 34, "Labelled passage at each position", size=18, bold=True)
    if not placed:
        yield _text(left - 20, 56, "not measured")
        return
    yield _text(left - 20, 56, f"{placed[0]['questions']} questions; complete answers")
    yield from _grid(left, right)
    furthest = max(line["position"] for line in placed)
    shades = ("#9cc9d3", "#5aa3b5", "#0b6e8a", "#083f50")
    for n, k in enumerate(dict.fromkeys(line["k"] for line in placed)):
        of = [line for line in placed if line["k"] == k]
        points = [
            (left + 10 + (line["position"] - 1) / max(1, furthest - 1) * (right - left - 20), _y(line["complete"]))
            for line in of
        ]
        yield _line(points, shades[n % len(shades)])
        yield f'<rect x="{left + n * 76}" y="{_BOTTOM + 34}" width="14" height="14" fill="{shades[n % len(shades)]}"/>'
        yield _text(left + 20 + n * 76, _BOTTOM + 46, f"of {k}", size=12)
    for position in (1, furthest):
        x = left + 10 + (position - 1) / max(1, furthest - 1) * (right - left - 20)
        yield _text(x, _BOTTOM + 20, str(position), anchor="middle", size=12)


def _grid(left: float, right: float) -> Iterator[str]:
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(tick)
        yield f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_FAINT if tick else _INK}"/>'
        yield _text(left - 8, y + 4, f"{tick:g}", anchor="end", size=12)


def _y(share: float) -> float:
    return _BOTTOM - share * (_BOTTOM - _TOP)


def _columns(found: Sequence[Line], left: float, right: float) -> list[float]:
    wide = (right - left) / len(found)
    return [left + wide * (n + 0.5) for n in range(len(found))]


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 14, bold: bool = False, colour: str = _INK
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
