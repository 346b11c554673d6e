"""A failing server is left alone, asked by one call, and used again when that went well."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.observe import Metrics
from query_service.inference.breaker import Breaker, CircuitOpen


class Refused(Exception):
    pass


class Time:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def breaker(time: Time, metrics: Metrics) -> Breaker:
    return Breaker("reranker", 3, 10.0, metrics, spared=(Refused,), now=time)


def fail(breaker: Breaker, error: BaseException | None = None) -> None:
    error = error or OSError("down")
    with pytest.raises(type(error)), breaker.call():
        raise error


def well(breaker: Breaker) -> None:
    with breaker.call():
        pass


@pytest.mark.requirement("B12")
def test_failures_in_a_row_open_it_and_a_success_between_starts_the_count_anew(breaker: Breaker) -> None:
    fail(breaker)
    fail(breaker)
    well(breaker)
    fail(breaker)
    fail(breaker)
    assert not breaker.open
    fail(breaker)
    assert breaker.open
    asked = False
    with pytest.raises(CircuitOpen) as caught, breaker.call():
        asked = True
    assert not asked and 0 < caught.value.seconds <= 10


@pytest.mark.requirement("B12")
def test_after_the_pause_one_call_alone_asks(breaker: Breaker, time: Time, metrics: Metrics) -> None:
    for _ in range(3):
        fail(breaker)
    assert metrics.value("headwater_circuit_open", server="reranker") == 1
    time.at += 10.0
    with breaker.call(), pytest.raises(CircuitOpen), breaker.call():
        raise AssertionError("a second call went through beside the probe")
    assert not breaker.open and metrics.value("headwater_circuit_open", server="reranker") == 0
    well(breaker)


@pytest.mark.requirement("B12")
def test_a_failed_probe_opens_it_for_another_pause(breaker: Breaker, time: Time) -> None:
    for _ in range(3):
        fail(breaker)
    time.at += 10.0
    fail(breaker)
    time.at += 9.9
    with pytest.raises(CircuitOpen):
        well(breaker)
    time.at += 0.2
    well(breaker)
    assert not breaker.open


@pytest.mark.requirement("B12")
def test_input_that_the_server_refuses_opens_nothing(breaker: Breaker) -> None:
    for _ in range(10):
        fail(breaker, Refused())
    assert not breaker.open


@pytest.mark.requirement("B12")
def test_a_cancelled_probe_lets_the_next_one_ask(breaker: Breaker, time: Time) -> None:
    for _ in range(3):
        fail(breaker)
    time.at += 10.0
    fail(breaker, asyncio.CancelledError())
    assert not breaker.open
    well(breaker)
