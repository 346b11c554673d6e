"""Percentiles, verdicts and lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.bench.report import (
    QUIET_LOAD,
    Result,
    at_least,
    at_most,
    failed,
    growth_exponent,
    lag_verdict,
    percentile,
    quotient,
    skipped,
    spread,
)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0), (0.001, 1.0)]
)
def test_percentiles_are_nearest_ranks(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], share) == expected


def test_nothing_measured_has_no_percentile() -> None:
    assert percentile([], 0.5) is None
    assert spread([]) == {"p50": None, "p95": None, "p99": None, "n": 0}


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_spread_may_be_named() -> None:
    assert spread([1.23456, 2.0], "outside_") == {
        "outside_p50": 1.235, "outside_p95": 2.0, "outside_p99": 2.0, "outside_n": 2,
    }  # fmt: skip


@pytest.mark.parametrize(("part", "whole", "expected"), [(1, 2, 0.5), (None, 2, None), (1, None, None), (1, 0, None)])
def test_a_quotient_without_a_measurement_is_none(part: float | None, whole: float | None, expected: object) -> None:
    assert quotient(part, whole) == expected


def test_what_was_not_measured_passes_nothing() -> None:
    assert not at_most(None, 1)
    assert not at_least(None, 0)
    assert at_most(1, 1)
    assert at_least(1, 1)
    assert not at_most(1.001, 1)
    assert not at_least(0.999, 1)


@pytest.mark.requirement("D4")
@pytest.mark.parametrize(
    ("lags", "encode", "ok"),
    [
        ([90.0] * 99 + [190.0], 10.0, True),  # in time, however fast the encoder is
        ([90.0] * 97 + [210.0] * 3, 10.0, False),  # p99 misses, nine encodes are no excuse
        ([240.0] * 100, 100.0, True),  # a busy machine: 2.4 encodes
        ([260.0] * 100, 100.0, False),
        ([240.0] * 100, None, False),
        ([], 100.0, False),
    ],
)
def test_lag_passes_by_the_clock_or_by_the_factor(lags: list[float], encode: float | None, ok: bool) -> None:
    ratio, passes = lag_verdict(lags, encode, p95=100, p99=200, factor=2.5)
    assert passes is ok
    assert ratio == (None if encode is None or not lags else lags[94] / encode)


@pytest.mark.requirement("D7")
def test_growth_exponent() -> None:
    assert growth_exponent(1_000, 2, 100_000, 200) == pytest.approx(1.0)
    assert growth_exponent(10, 1, 100, 100) == pytest.approx(2.0)
    assert growth_exponent(10, 0, 100, 5) is None
    assert growth_exponent(10, 1, 10, 5) is None


def test_a_line_has_all_keys_and_what_the_benchmark_adds() -> None:
    line = Result("x", 1.23456, "ms", 2.0, 0.61728, True, {"n": 3, "vectors": "synthetic"}).line(0.456)
    assert list(line)[:7] == ["bench", "value", "unit", "ratio", "target", "ok", "load1"]
    assert line == {
        "bench": "x", "value": 1.235, "unit": "ms", "ratio": 0.617, "target": 2.0, "ok": True, "load1": 0.46, "n": 3,
        "vectors": "synthetic",
    }  # fmt: skip
    assert json.loads(json.dumps(line)) == line


def test_a_missed_target_on_a_busy_machine_says_so() -> None:
    missed = Result("x", 9, "ms", 2, 4.5, False)
    assert "load" in str(missed.line(QUIET_LOAD + 0.1)["note"])
    assert "note" not in missed.line(QUIET_LOAD)
    assert "note" not in Result("x", 1, "ms", 2, 0.5, True).line(9)
    assert Result("x", 9, "ms", 2, 4.5, False, {"note": "own"}).line(9)["note"] == "own"


def test_skipped_is_neither_passed_nor_failed() -> None:
    assert skipped("x", "no data").line(0)["ok"] is None
    broken = failed("x", "broke").line(9)
    assert broken["ok"] is False
    assert "note" not in broken
