"""What a request gets of a reranker: as much as fits, scores of its own, or the reason why not; never an error."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.settings_query import InferenceSettings, RerankSettings
from query_service.rerank.interface import Logits, RerankerUnavailable
from query_service.rerank.pairs import Shape
from query_service.rerank.service import PROBE_S, RELOAD_S, TimedReranking
from tests.unit.rerank.conftest import Clock, Model

pytestmark = pytest.mark.anyio

FAR = 1e9
PASSAGES = ["a" * 10, "b" * 30, "c" * 20, "d" * 40, "e" * 25]
SETTINGS = RerankSettings(fast_ms=100.0, fast_candidates=4, full_ms=1000.0, full_candidates=5)


class Service:
    """A running service and what it counted."""

    def __init__(self, service: TimedReranking, model: Model, metrics: Metrics) -> None:
        self.rank = service.rank
        self.service, self.model, self.metrics = service, model, metrics

    def outcome(self, mode: str, outcome: str) -> float:
        return self.metrics.value("headwater_rerank_total", mode=mode, outcome=outcome)


@asynccontextmanager
async def running(
    model: Model, clock: Clock, settings: RerankSettings = SETTINGS, queue: int = 256
) -> AsyncIterator[Service]:
    metrics = Metrics()
    service = TimedReranking(lambda: model, settings, InferenceSettings(queue=queue), metrics, now=clock)
    service.start()
    assert await service.loaded()
    model.calls.clear()
    try:
        yield Service(service, model, metrics)
    finally:
        if model.gate is not None:
            model.gate.set()
        await asyncio.to_thread(service.close)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.mark.requirement("B4")
async def test_full_scores_the_wanted_ones_in_the_order_of_the_passages(clock: Clock) -> None:
    async with running(Model(clock), clock) as run:
        found = await run.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)
        assert found.scores == (10, 30, 20, 40, 25)
        assert (found.model, found.late, found.reason) == ("length", False, None)
        assert found.ms == pytest.approx(125)
        found = await run.rank("q", PASSAGES, "full", wanted=2, deadline=FAR)
        assert found.scores == (10, 30)
        assert run.outcome("full", "done") == 2
        assert run.metrics.value("headwater_rerank_pairs_total") == 7


@pytest.mark.requirement("B4", "D1")
@pytest.mark.parametrize(("token_ms", "scored"), [(0.1, 4), (1.0, 3), (2.0, 2)])
async def test_fast_scores_as_many_of_the_first_as_fit_at_the_measured_rate(
    clock: Clock, token_ms: float, scored: int
) -> None:
    async with running(Model(clock, token_ms=token_ms), clock) as run:
        found = await run.rank("q", PASSAGES, "fast", wanted=None, deadline=FAR)
        assert found.scores == (10, 30, 20, 40)[:scored]
        assert found.ms <= SETTINGS.fast_ms and not found.late
        assert (found.reason is None) == (scored == 4)
        assert run.model.seen() == PASSAGES[:scored]


@pytest.mark.requirement("D1", "D2")
async def test_fast_leaves_out_what_does_not_fit_and_says_so(clock: Clock) -> None:
    async with running(Model(clock, token_ms=20.0), clock) as run:
        found = await run.rank("q", PASSAGES, "fast", wanted=None, deadline=FAR)
        assert found.scores == () and not found.late and found.ms == 0
        assert found.reason == "0 of 4 passages fit in the time that is left"
        assert run.model.calls == [] and run.outcome("fast", "none") == 1


@pytest.mark.requirement("D1")
async def test_one_passage_that_alone_fits_orders_nothing_and_is_not_scored(clock: Clock) -> None:
    async with running(Model(clock, token_ms=4.0), clock) as run:
        found = await run.rank("q", PASSAGES, "fast", wanted=None, deadline=FAR)
        assert found.scores == () and found.reason == "1 of 4 passages fit in the time that is left"
        assert (await run.rank("q", PASSAGES[:1], "fast", wanted=None, deadline=FAR)).scores == (10,)


@pytest.mark.requirement("D1")
async def test_a_slow_rate_is_measured_again_when_the_machine_is_free(clock: Clock) -> None:
    """Nothing fits, so no request measures anything; a pair of our own does."""
    model = Model(clock, token_ms=20.0)
    async with running(model, clock) as run:
        assert not (await run.rank("q", PASSAGES, "fast", wanted=None, deadline=FAR)).scores
        model.token_ms = 0.01
        for _ in range(100):
            clock.pass_by(PROBE_S + 1)
            model.calls.clear()
            if (await run.rank("q", PASSAGES, "fast", wanted=None, deadline=FAR)).scores:
                return
            await until(lambda: bool(model.calls) and run.service._loaded.lane.backlog(9) == 0)  # type: ignore[union-attr]
        raise AssertionError("the rate never recovered")


@pytest.mark.requirement("B4", "D1")
async def test_past_the_deadline_there_are_no_scores(clock: Clock) -> None:
    async with running(Model(clock), clock) as run:
        found = await run.rank("q", PASSAGES, "full", wanted=None, deadline=clock() - 1)
        assert found.scores == () and found.late and found.reason == "its time was over"
        assert run.model.calls == [] and run.outcome("full", "late") == 1


@pytest.mark.requirement("B4", "D1")
async def test_a_model_that_is_slower_than_thought_is_late_and_the_rest_is_dropped(clock: Clock) -> None:
    model = Model(clock)
    async with running(model, clock) as run:
        model.token_ms = 200.0
        found = await run.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)
        assert found.scores == () and found.late
        assert model.calls == [PASSAGES[:1]], "the others were dropped before their turn"


@pytest.mark.requirement("D1")
async def test_a_request_that_goes_away_frees_its_place(clock: Clock) -> None:
    model = Model(clock)
    async with running(model, clock, queue=4) as run:
        model.gate = threading.Event()
        model.entered.clear()
        first = asyncio.create_task(run.rank("q", PASSAGES[:4], "full", wanted=None, deadline=FAR))
        await asyncio.to_thread(model.entered.wait, 5.0)
        refused = await run.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)
        assert refused.scores == () and refused.reason == "too many requests wait for the reranker"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(run.rank("q", ["x" * 5, "y" * 6], "full", wanted=None, deadline=FAR))
        await asyncio.sleep(0)
        model.gate.set()
        assert (await second).scores == (5, 6)
        assert model.seen() == [PASSAGES[0], "x" * 5, "y" * 6]


@pytest.mark.requirement("D1")
async def test_fast_requests_overtake_full_ones_pair_by_pair(clock: Clock) -> None:
    model = Model(clock, token_ms=0.1)
    async with running(model, clock) as run:
        model.gate = threading.Event()
        model.entered.clear()
        full = asyncio.create_task(run.rank("q", PASSAGES, "full", wanted=None, deadline=FAR))
        await asyncio.to_thread(model.entered.wait, 5.0)
        fast = asyncio.create_task(run.rank("q", ["x" * 5, "y" * 6], "fast", wanted=None, deadline=FAR))
        lane = run.service._loaded.lane  # type: ignore[union-attr]
        await until(lambda: lane.backlog(0) == 10 + 11)  # the pair that runs, and the two of 'fast'
        model.gate.set()
        assert (await fast).scores == (5, 6)
        assert (await full).scores == (10, 30, 20, 40, 25)
        assert model.seen()[:3] == [PASSAGES[0], "x" * 5, "y" * 6]


@pytest.mark.requirement("D1")
async def test_many_requests_at_once_get_scores_of_their_own(clock: Clock) -> None:
    model = Model(clock, token_ms=0.001, shape=Shape(batch=8, workers=2))
    async with running(model, clock, queue=1000) as run:
        asked = [[chr(97 + n % 26) * (1 + (7 * n + i) % 50) for i in range(5)] for n in range(50)]
        found = await asyncio.gather(*(run.rank("q", one, "full", wanted=None, deadline=FAR) for one in asked))
        assert [one.scores for one in found] == [tuple(map(len, one)) for one in asked]
        assert max(map(len, model.calls)) <= 8


@pytest.mark.requirement("B12")
async def test_parts_of_one_query_go_together_where_a_server_wants_that(clock: Clock) -> None:
    model = Model(clock, token_ms=0.01, shape=Shape(part=3, workers=4))
    async with running(model, clock) as run:
        found = await run.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)
        assert found.scores == (10, 30, 20, 40, 25)
        assert sorted(model.calls) == sorted([PASSAGES[:3], PASSAGES[3:]])


@pytest.mark.requirement("B12")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RerankerUnavailable("no answer"), "the reranker does not answer"),
        (ValueError("the secret passage"), "the reranker failed"),
        (TimeoutError(), "its time was over"),
    ],
)
async def test_failures_leave_the_fused_order_and_say_so_without_details(
    clock: Clock, error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = Model(clock)
    async with running(model, clock) as run:
        model.error = error
        found = await run.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)
        assert found.scores == () and found.reason == reason
        assert run.outcome("full", "late" if found.late else "failed") == 1
        assert "secret" not in caplog.text and "secret" not in str([vars(r) for r in caplog.records])
        model.error = None
        assert len((await run.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)).scores) == 5


@pytest.mark.requirement("B12")
@pytest.mark.parametrize("answer", [[1.0, 2.0], [math.nan], [math.inf], []])
async def test_scores_that_are_not_one_finite_number_a_passage_are_none(clock: Clock, answer: list[float]) -> None:
    model = Model(clock)
    async with running(model, clock) as run:
        model.answer = np.asarray(answer, dtype=np.float32)
        found = await run.rank("q", PASSAGES[:1], "full", wanted=None, deadline=FAR)
        assert found.scores == () and found.reason == "the reranker does not answer"


async def test_nothing_to_rank_is_no_work(clock: Clock) -> None:
    async with running(Model(clock), clock) as run:
        found = await run.rank("q", [], "fast", wanted=None, deadline=FAR)
        assert found.scores == () and found.reason is None and run.model.calls == []


@pytest.mark.requirement("B4")
async def test_until_it_is_loaded_the_fused_order_stands(clock: Clock) -> None:
    go = threading.Event()

    def load() -> Model:
        assert go.wait(5.0)
        return Model(clock)

    service = TimedReranking(load, SETTINGS, InferenceSettings(), Metrics(), now=clock)
    service.start()
    found = await service.rank("q", PASSAGES, "fast", wanted=None, deadline=FAR)
    assert found.scores == () and found.model is None and found.reason == "still loading" and not found.late
    go.set()
    assert await service.loaded()
    assert (await service.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)).scores
    service.close()


@pytest.mark.requirement("B12")
async def test_loading_is_tried_again_after_a_while(clock: Clock) -> None:
    made: list[Model] = []

    def load() -> Model:
        made.append(Model(clock))
        if len(made) == 1:
            raise ConfigError("rerank.url", "wrong", "Correct it.")
        return made[-1]

    service = TimedReranking(load, SETTINGS, InferenceSettings(), Metrics(), now=clock)
    service.start()
    assert not await service.loaded()
    found = await service.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)
    assert found.reason == "the reranker could not be loaded" and len(made) == 1
    clock.pass_by(RELOAD_S)
    await service.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)
    assert await service.loaded() and len(made) == 2
    service.close()
    assert made[1].closed


async def test_a_model_that_fails_at_first_use_is_not_kept(clock: Clock) -> None:
    model = Model(clock)
    model.error = RerankerUnavailable("down")
    service = TimedReranking(lambda: model, SETTINGS, InferenceSettings(), Metrics(), now=clock)
    service.start()
    assert not await service.loaded() and model.closed
    service.close()


async def test_a_plain_reranker_is_asked_once_a_request(clock: Clock) -> None:
    class Plain:
        name = "plain"
        asked: list[Sequence[str]]

        def __init__(self) -> None:
            self.asked = []

        def score(self, query: str, passages: Sequence[str]) -> Logits:
            self.asked.append(list(passages))
            return np.asarray([len(passage) for passage in passages], dtype=np.float32)

        def close(self) -> None: ...

    plain = Plain()
    service = TimedReranking(lambda: plain, SETTINGS, InferenceSettings(), Metrics())
    service.start()
    assert await service.loaded()
    plain.asked.clear()
    assert (await service.rank("q", PASSAGES, "full", wanted=None, deadline=FAR)).scores == (10, 30, 20, 40, 25)
    assert plain.asked == [PASSAGES]
    service.close()
