"""Small SVG charts without a library: they live in the page itself and need no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 46


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows, and from where to where."""

    label: str
    low: float
    high: float
    ticks: int = 5
    form: str = "{:g}"

    def at(self, value: float, start: float, end: float) -> float:
        """Pixel of a value between two pixels."""
        span = self.high - self.low or 1.0
        return start + (min(max(value, self.low), self.high) - self.low) / span * (end - start)

    def values(self) -> list[float]:
        """Where ticks are drawn."""
        return [self.low + (self.high - self.low) * i / self.ticks for i in range(self.ticks + 1)]


def _x(axis: Axis, value: float) -> float:
    return axis.at(value, LEFT, WIDTH - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return axis.at(value, HEIGHT - BOTTOM, TOP)


def _frame(x: Axis, y: Axis, inside: str, title: str) -> str:
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    ]
    for value in y.values():
        at = _y(y, value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y.form.format(value)}</text>'
        )
    for value in x.values():
        parts.append(_text(_x(x, value), HEIGHT - BOTTOM + 17, x.form.format(value)))
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(_text(middle_x, HEIGHT - 8, escape(x.label), css="axis"))
    turned = f"translate(14 {middle_y}) rotate(-90)"
    parts.append(f'<text class="axis" transform="{turned}" text-anchor="middle">{escape(y.label)}</text>')
    parts.append(inside)
    parts.append(f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    return "".join(parts) + "</svg>"


def _text(x: float, y: float, words: str, *, anchor: str = "middle", css: str = "tick") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def histogram(values: Sequence[float], label: str, title: str, bins: int = 10) -> str:
    """Counts of values between 0 and 1; the last bin holds 1 itself."""
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(value * bins + 1e-9))] += 1
    top = 4 * -(-int(_rounded(max(counts, default=1))) // 4)  # four ticks, all whole numbers
    x, y = Axis(label, 0, 1, bins // 2), Axis("queries", 0, top, 4)
    bars = []
    for number, count in enumerate(counts):
        left, right, up = _x(x, number / bins) + 1, _x(x, (number + 1) / bins) - 1, _y(y, count)
        tip = f"{number / bins:.1f} to {(number + 1) / bins:.1f}: {count} queries"
        bars.append(
            f'<rect class="here" x="{left:.1f}" y="{up:.1f}" width="{right - left:.1f}" '
            f'height="{HEIGHT - BOTTOM - up:.1f}"><title>{tip}</title></rect>'
        )
        if count:
            bars.append(_text((left + right) / 2, up - 4, str(count)))
    return _frame(x, y, "".join(bars), title)


def pairs(points: Sequence[tuple[float, float, str]], across: str, up: str, title: str) -> str:
    """One dot a query, (there, here); dots on the diagonal are equal in both. Equal dots grow."""
    x, y = Axis(across, 0, 1, form="{:.1f}"), Axis(up, 0, 1, form="{:.1f}")
    places: dict[tuple[float, float], list[str]] = {}
    for there, here, name in points:
        places.setdefault((round(there, 3), round(here, 3)), []).append(name)
    drawn = [
        f'<line class="diagonal" x1="{_x(x, 0)}" y1="{_y(y, 0)}" x2="{_x(x, 1)}" y2="{_y(y, 1)}"/>',
    ]
    for (there, here), names in sorted(places.items()):
        kind = "better" if here > there else "worse" if here < there else "equal"
        size = 3.5 + min(9.0, 1.2 * (len(names) - 1) ** 0.5)
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        drawn.append(
            f'<circle class="{kind}" cx="{_x(x, there):.1f}" cy="{_y(y, here):.1f}" r="{size:.1f}">'
            f"<title>{len(names)} queries, {there:.2f} before and {here:.2f} now: {escape(listed)}</title></circle>"
        )
    return _frame(x, y, "".join(drawn), title)


def cumulative(series: Sequence[tuple[str, str, Sequence[float]]], label: str, title: str) -> str:
    """Shares of queries at most so slow: (name, class, milliseconds) each."""
    longest = max((max(values) for _, _, values in series if values), default=1.0)
    x, y = Axis(label, 0, _rounded(longest), 5, "{:.0f}"), Axis("share of queries", 0, 1, 4, "{:.0%}")
    drawn = []
    for _, css, values in series:
        if not values:
            continue
        ordered = sorted(values)
        path = [f"M{_x(x, 0):.1f},{_y(y, 0):.1f}"]
        for number, value in enumerate(ordered, start=1):
            path.append(f"H{_x(x, value):.1f}V{_y(y, number / len(ordered)):.1f}")
        path.append(f"H{_x(x, x.high):.1f}")
        drawn.append(f'<path class="line {css}" d="{"".join(path)}"/>')
    at = _y(y, 0.95)
    drawn.append(f'<line class="diagonal" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
    drawn.append(_text(WIDTH - RIGHT - 2, at + 13, "95 %", anchor="end"))
    return _frame(x, y, "".join(drawn), title)


def bar(parts: Sequence[tuple[str, int, str]], whole: int) -> str:
    """One horizontal bar of (class, count, what) parts; the smallest that is not 0 stays visible."""
    drawn, at, width = [], 0.0, 420.0
    total = max(1, whole, sum(count for _, count, _ in parts))
    for css, count, what in parts:
        if not count:
            continue
        wide = max(3.0, count / total * width)
        wide = min(wide, width - at)
        tip = f"<title>{count} {escape(what)}</title>"
        drawn.append(f'<rect class="{css}" x="{at:.1f}" y="0" width="{wide:.1f}" height="16">{tip}</rect>')
        at += wide
    return (
        f'<svg class="bar" viewBox="0 0 {width:.0f} 16" preserveAspectRatio="none" role="img" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'
    )


def _rounded(value: float) -> float:
    """The next number that makes a good end of an axis."""
    if value <= 0:
        return 1.0
    for step in (1, 2, 4, 5, 8, 10):
        scale = 10.0 ** (len(str(int(value))) - 1)
        if value <= step * scale:
            return step * scale
    return value
