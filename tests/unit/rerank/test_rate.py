"""The time of a call, learnt from calls: a part of its own and a part for each token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_service.rerank.rate import Rate


def fits(rate: Rate, tokens: list[int], ms: float, *, calls_of: int = 1, workers: int = 1, ahead: float = 0.0) -> int:
    return rate.fitting(tokens, ms, calls_of=calls_of, workers=workers, ahead=ahead)


@pytest.mark.requirement("D1")
@given(st.floats(0.0, 50.0), st.floats(0.001, 5.0), st.lists(st.integers(1, 500), min_size=2, max_size=30, unique=True))
def test_both_parts_are_found(fixed: float, slope: float, sizes: list[int]) -> None:
    rate = Rate()
    for size in (1, 1000, *sizes):
        rate.observe(size, fixed + slope * size)
    found = rate.line()
    assert found[0] == pytest.approx(fixed, abs=0.02 * fixed + 0.05) and found[1] == pytest.approx(slope, rel=0.02)


@pytest.mark.requirement("D1")
def test_a_round_trip_is_not_counted_for_every_passage() -> None:
    rate = Rate()
    rate.observe(50, 21.0)
    rate.observe(1600, 52.0)
    assert fits(rate, [180] * 50, 120.0, calls_of=32) > 10
    for _ in range(200):  # the same small requests for a long time
        rate.observe(50, 21.0)
    assert fits(rate, [180] * 50, 120.0, calls_of=32) >= 1


@pytest.mark.requirement("D1")
def test_new_calls_count_more_than_old_ones() -> None:
    rate = Rate()
    for _ in range(50):
        rate.observe(100, 100.0)
        rate.observe(200, 200.0)
    assert fits(rate, [100] * 10, 350.0) == 3
    for _ in range(50):
        rate.observe(100, 20.0)
        rate.observe(200, 40.0)
    assert fits(rate, [100] * 10, 350.0) == 10


@pytest.mark.requirement("D1")
def test_workers_share_and_what_waits_stands_before() -> None:
    rate = Rate()
    rate.observe(100, 100.0)
    rate.observe(200, 200.0)
    assert fits(rate, [100] * 10, 320.0, workers=2) == 6
    assert fits(rate, [100] * 10, 320.0, ahead=200.0) == 1
    assert fits(rate, [100] * 10, 90.0) == 0


def test_before_the_first_observation_everything_fits_and_nonsense_is_harmless() -> None:
    rate = Rate()
    assert fits(rate, [100] * 3, 1.0) == 3
    rate.observe(100, 50.0)
    rate.observe(200, 10.0)  # less for more
    fixed, slope = rate.line()
    assert fixed >= 0 and slope >= 0


@given(
    st.lists(st.tuples(st.integers(1, 9000), st.floats(0, 5000)), max_size=40),
    st.lists(st.integers(1, 512), max_size=50), st.floats(0, 5000), st.integers(1, 40), st.integers(1, 8),
)  # fmt: skip
def test_more_time_never_fits_less(
    seen: list[tuple[int, float]], tokens: list[int], ms: float, calls_of: int, workers: int
) -> None:
    rate = Rate()
    for size, took in seen:
        rate.observe(size, took)
    fixed, slope = rate.line()
    assert fixed >= 0 and slope >= 0
    few = fits(rate, tokens, ms, calls_of=calls_of, workers=workers)
    assert 0 <= few <= fits(rate, tokens, ms * 2, calls_of=calls_of, workers=workers) <= len(tokens)
