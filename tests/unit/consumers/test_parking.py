"""Which failures are a document's, which a source's, and which ours."""

from __future__ import annotations

import pytest

from consumers.parking import Parking, ParkingPolicy
from pipeline.settings import IndexSettings


def parking(**options: int | float) -> Parking:
    return Parking(ParkingPolicy(**options))  # type: ignore[arg-type]


def fail(state: Parking, source: str, count: int, kind: str = "too_large") -> list[bool]:
    return [state.failed("acme", source, kind) for _ in range(count)]


@pytest.mark.requirement("I8", "F20")
def test_a_few_bad_documents_never_park_a_source() -> None:
    state = parking()
    assert not any(fail(state, "wiki", 19)), "below the minimum of 20"
    for _ in range(81):
        state.succeeded("acme", "wiki")
    assert not any(fail(state, "wiki", 30)) and state.parked() == []


@pytest.mark.requirement("I8")
def test_more_than_half_of_the_last_hundred_park_it_and_only_it() -> None:
    state = parking()
    for _ in range(100):
        state.succeeded("acme", "wiki")
    results = fail(state, "wiki", 51)
    assert results.index(True) == 50 and state.parked() == [("acme", "wiki")]
    assert state.try_it("acme", "tickets") and state.try_it("other", "wiki")


@pytest.mark.requirement("I8")
def test_exactly_half_is_not_most() -> None:
    state = parking(minimum=20)
    for _ in range(10):
        state.succeeded("acme", "wiki")
    assert not any(fail(state, "wiki", 10))
    assert fail(state, "wiki", 1) == [True]


@pytest.mark.requirement("I8")
def test_a_parked_source_is_probed_and_taken_up_when_a_probe_succeeds() -> None:
    state = parking(probe_every=10)
    fail(state, "wiki", 20)
    tries = [state.try_it("acme", "wiki") for _ in range(30)]
    assert [i for i, tried in enumerate(tries, 1) if tried] == [10, 20, 30]
    assert not state.failed("acme", "wiki", "too_large"), "parked once, not again"
    state.succeeded("acme", "wiki")
    assert state.parked() == [] and state.try_it("acme", "wiki")
    assert not any(fail(state, "wiki", 9)), "the old failures are forgotten"


@pytest.mark.requirement("I8")
def test_only_several_sources_that_fail_alike_point_at_us() -> None:
    state = parking(stop_sources=3)
    fail(state, "a", 20, "timeout")
    fail(state, "b", 20, "too_large")
    fail(state, "c", 20, "encoding")
    assert state.common_kind() is None, "three sources, three reasons"
    fail(state, "d", 20, "timeout")
    assert state.common_kind() is None
    fail(state, "e", 20, "timeout")
    assert state.common_kind() == "timeout"


def test_the_policy_comes_from_the_settings() -> None:
    policy = ParkingPolicy.of(IndexSettings(park_window=50, park_minimum=5, park_share=0.8, stop_sources=4))
    assert (policy.window, policy.minimum, policy.share, policy.stop_sources) == (50, 5, 0.8, 4)
