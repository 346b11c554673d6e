"""Requests share a model's calls: batches, order, deadlines, refusals, errors of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.observe import Metrics
from query_service.inference.lane import Busy, Lane, Late

BOUND_S = 5.0


class Model:
    """Doubles numbers; every call waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def run(self, values: Sequence[int]) -> list[int | Exception]:
        self.calls.append(list(values))
        self.started.release()
        assert self.go.acquire(timeout=BOUND_S)
        return [ValueError("seven") if value == 7 else 2 * value for value in values]

    def begun(self) -> None:
        assert self.started.acquire(timeout=BOUND_S)


class Time:
    at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def lane(model: Model, metrics: Metrics, time: Time) -> Iterator[Lane[int, int]]:
    made: Lane[int, int] = Lane("test", model.run, metrics, batch=3, queue=4, now=time)
    yield made
    for _ in range(20):
        model.go.release()
    made.close()


def results(futures: Sequence[Future[int]]) -> list[int]:
    return [future.result(BOUND_S) for future in futures]


@pytest.mark.requirement("D1")
def test_the_first_call_starts_at_once_and_what_arrives_meanwhile_shares_the_next(
    lane: Lane[int, int], model: Model
) -> None:
    first = lane.submit(1)
    model.begun()
    rest = [lane.submit(n) for n in (2, 3, 4, 5)]
    for _ in range(3):
        model.go.release()
    assert results([first, *rest]) == [2, 4, 6, 8, 10]
    assert model.calls == [[1], [2, 3, 4], [5]]


def test_urgent_items_overtake_waiting_ones(lane: Lane[int, int], model: Model) -> None:
    futures = [lane.submit(1)]
    model.begun()
    futures += lane.submit_all([10, 11, 12], [1, 1, 1], urgency=1)
    futures.append(lane.submit(2))
    for _ in range(3):
        model.go.release()
    wait(futures, BOUND_S)
    assert model.calls == [[1], [2, 10, 11], [12]]


def test_a_batch_holds_no_more_than_its_cost(model: Model, metrics: Metrics) -> None:
    lane: Lane[int, int] = Lane("test", model.run, metrics, batch=8, queue=8, most_cost=10)
    futures = [lane.submit(1, cost=50)]
    model.begun()
    futures += lane.submit_all([2, 3, 4], [6, 4, 1])
    for _ in range(3):
        model.go.release()
    wait(futures, BOUND_S)
    lane.close()
    assert model.calls == [[1], [2, 3], [4]]


def test_an_error_is_of_its_item_alone(lane: Lane[int, int], model: Model) -> None:
    first = lane.submit(1)
    model.begun()
    bad, good = lane.submit(7), lane.submit(8)
    model.go.release()
    model.go.release()
    assert first.result(BOUND_S) == 2 and good.result(BOUND_S) == 16
    with pytest.raises(ValueError, match="seven"):
        bad.result(BOUND_S)


def test_what_the_model_raises_is_everyones_error_and_the_lane_goes_on(metrics: Metrics) -> None:
    broken = [True]

    def run(values: Sequence[int]) -> list[int | Exception]:
        if broken:
            broken.pop()
            raise OSError("gone")
        return list(values)

    lane: Lane[int, int] = Lane("test", run, metrics, batch=4, queue=8)
    with pytest.raises(OSError, match="gone"):
        lane.submit(1).result(BOUND_S)
    assert lane.submit(1).result(BOUND_S) == 1
    lane.close()


def test_too_few_results_are_an_error_not_a_shift(metrics: Metrics) -> None:
    lane: Lane[int, int] = Lane("test", lambda values: [], metrics, batch=4, queue=8)
    with pytest.raises(RuntimeError, match="1 items were run, 0 results"):
        lane.submit(1).result(BOUND_S)
    lane.close()


@pytest.mark.requirement("D1")
def test_a_full_queue_refuses_all_or_none(lane: Lane[int, int], model: Model, metrics: Metrics) -> None:
    running = lane.submit(1)
    model.begun()
    waiting = lane.submit_all([2, 3, 4], [1, 1, 1])
    with pytest.raises(Busy, match="3 calls wait already"):
        lane.submit_all([5, 6], [1, 1])
    assert lane.backlog() == 4
    assert metrics.value("headwater_inference_refused_total", lane="test", reason="full") == 2
    waiting.append(lane.submit(5))
    for _ in range(3):
        model.go.release()
    assert results([running, *waiting]) == [2, 4, 6, 8, 10]


@pytest.mark.requirement("D1")
def test_cancelled_and_late_items_free_their_place_and_reach_no_model(
    lane: Lane[int, int], model: Model, time: Time, metrics: Metrics
) -> None:
    running = lane.submit(1)
    model.begun()
    cancelled = lane.submit_all([2, 3], [1, 1])
    late = lane.submit(4, deadline=5.0)
    kept = lane.submit(5, deadline=50.0)
    for future in cancelled:
        future.cancel()
    time.at = 6.0
    more = lane.submit_all([6, 8, 9], [1, 1, 1])  # the queue held four
    for _ in range(4):
        model.go.release()
    assert results([running, kept, *more]) == [2, 10, 12, 16, 18]
    with pytest.raises(Late):
        late.result(BOUND_S)
    with pytest.raises(CancelledError):
        cancelled[0].result(BOUND_S)
    assert model.calls == [[1], [5, 6, 8], [9]]
    assert metrics.value("headwater_inference_refused_total", lane="test", reason="late") == 1
    assert metrics.value("headwater_inference_refused_total", lane="test", reason="cancelled") == 2


def test_an_item_that_became_late_while_it_waited_is_not_run(lane: Lane[int, int], model: Model, time: Time) -> None:
    running = lane.submit(1)
    model.begun()
    late, cancelled = lane.submit(2, deadline=5.0), lane.submit(3)
    cancelled.cancel()
    time.at = 5.0
    model.go.release()
    with pytest.raises(Late):
        late.result(BOUND_S)
    assert running.result(BOUND_S) == 2 and model.calls == [[1]]


def test_after_a_batch_the_lane_waits_for_those_who_come_together(metrics: Metrics) -> None:
    model = Model()
    lane: Lane[int, int] = Lane("test", model.run, metrics, batch=2, queue=8, window_s=60.0)
    first = lane.submit(1)
    model.begun()
    second = lane.submit(2)
    model.go.release()
    assert first.result(BOUND_S) == 2
    third = lane.submit(3)  # fills the batch, which ends the waiting
    model.go.release()
    assert results([second, third]) == [4, 6]
    assert model.calls == [[1], [2, 3]]
    lane.close()


def test_workers_run_side_by_side(metrics: Metrics) -> None:
    together = threading.Barrier(2, timeout=BOUND_S)

    def run(values: Sequence[int]) -> list[int | Exception]:
        together.wait()
        return list(values)

    lane: Lane[int, int] = Lane("test", run, metrics, batch=1, queue=8, workers=2)
    assert results(lane.submit_all([1, 2], [1, 1])) == [1, 2]
    lane.close()


def test_closing_refuses_what_waits(model: Model, metrics: Metrics) -> None:
    lane: Lane[int, int] = Lane("test", model.run, metrics, batch=1, queue=8)
    running = lane.submit(1)
    model.begun()
    waiting = lane.submit(2)
    closing = threading.Thread(target=lane.close)
    closing.start()
    with pytest.raises(Busy, match="closed"):
        waiting.result(BOUND_S)
    model.go.release()
    closing.join(BOUND_S)
    assert running.result(BOUND_S) == 2
    with pytest.raises(Busy, match="closed"):
        lane.submit(3)


@pytest.mark.requirement("D1")
@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=6), st.integers(1, 4))
def test_everyone_gets_the_results_of_their_own(calls: list[list[int]], batch: int) -> None:
    sizes: list[int] = []

    def run(values: Sequence[int]) -> list[int | Exception]:
        sizes.append(len(values))
        return [value + 1 for value in values]

    lane: Lane[int, int] = Lane("test", run, Metrics(), batch=batch, queue=1000, workers=2)
    futures = [lane.submit_all(call, [1.0] * len(call)) for call in calls]
    assert [results(one) for one in futures] == [[value + 1 for value in call] for call in calls]
    lane.close()
    assert sum(sizes) == sum(map(len, calls)) and max(sizes) <= batch


@pytest.mark.requirement("B12")
def test_closing_waits_for_all_busy_threads_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("query_service.inference.lane.JOIN_S", 0.2)
    release = threading.Event()

    def hangs(values: Sequence[int]) -> Sequence[int | Exception]:
        release.wait(10)
        return values

    lane: Lane[int, int] = Lane("hung", hangs, Metrics(), batch=1, queue=50, workers=10)
    running = [lane.submit(number) for number in range(20)]
    began = monotonic()
    lane.close()
    assert monotonic() - began < 1.0
    assert isinstance(running[-1].exception(0), Busy)
    release.set()
