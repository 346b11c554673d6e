"""What a benchmark says: one JSON line, from percentiles and verdicts. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

QUIET_LOAD = 1.5
"""Load average up to which absolute figures hold; ratios taken in one run hold above it too."""


@dataclass(frozen=True)
class Result:
    """One line. ``ok`` is None where nothing was measured; ``ratio`` is what ``target`` is compared with, if given."""

    bench: str
    value: float | None
    unit: str
    target: float | None = None
    ratio: float | None = None
    ok: bool | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    whole: Mapping[str, object] | None = None  # the line, of a benchmark whose line has a form of its own

    def line(self, load1: float) -> dict[str, object]:
        """The line as it is printed; ``load1`` is the load average when the benchmark began."""
        if self.whole is not None:
            return dict(self.whole)
        said: dict[str, object] = {
            "bench": self.bench,
            "value": rounded(self.value),
            "unit": self.unit,
            "ratio": rounded(self.ratio),
            "target": self.target,
            "ok": self.ok,
            "load1": round(load1, 2),
            **self.extra,
        }
        if load1 > QUIET_LOAD and self.ok is False and self.value is not None and "note" not in said:
            said["note"] = f"load above {QUIET_LOAD} when it began: absolute figures do not count, ratios do"
        return said


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Three digits after the point, None stays."""
    return None if value is None else round(value, digits)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest rank: the smallest value that at least ``share`` of all values do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float], prefix: str = "") -> dict[str, object]:
    """p50, p95, p99 and the count, under names that may carry a prefix."""
    shown: dict[str, object] = {
        f"{prefix}{name}": rounded(percentile(values, share))
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }
    return shown | {f"{prefix}n": len(values)}


def quotient(part: float | None, whole: float | None) -> float | None:
    """``part / whole``; None where either is missing or nothing was measured."""
    return None if part is None or not whole else part / whole


def at_most(value: float | None, target: float) -> bool:
    """Whether something was measured and stays within the target."""
    return value is not None and value <= target


def at_least(value: float | None, target: float) -> bool:
    """Whether something was measured and reaches the target."""
    return value is not None and value >= target


def lag_verdict(
    lags: Sequence[float], encode_p95: float | None, *, p95: float, p99: float, factor: float
) -> tuple[float | None, bool]:
    """Ratio of the lag's p95 to one encode's, and whether the lag passes.

    It passes by the absolute bounds (ms), or by the factor where the machine is too busy for them.
    """
    ratio = quotient(percentile(lags, 0.95), encode_p95)
    absolute = at_most(percentile(lags, 0.95), p95) and at_most(percentile(lags, 0.99), p99)
    return ratio, absolute or at_most(ratio, factor)


def growth_exponent(small: float, small_time: float, large: float, large_time: float) -> float | None:
    """b of time = a · size^b through two points; None where a time was too short to be measured."""
    if small_time <= 0 or large_time <= 0 or large <= small:
        return None
    return math.log(large_time / small_time) / math.log(large / small)


def skipped(bench: str, reason: str) -> Result:
    """A benchmark that cannot be measured here, and why."""
    return Result(bench, None, "", extra={"skipped": reason})


def failed(bench: str, error: str) -> Result:
    """A benchmark that broke."""
    return Result(bench, None, "", ok=False, extra={"error": error})
