"""``Reranking`` for the retrieval pipeline: one reranker, loaded in the background, under the request's time.

    passages ▸ the first ones wanted ▸ cut to pairs ▸ as many as fit at the measured rate ▸ lane ▸ scores
                                                      │ none: reason                  │ late: fused order

Work whose time is over, or whose request went away, is dropped before its turn.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.settings_query import InferenceSettings, RerankSettings
from query_service.inference.lane import Busy, Lane, Late
from query_service.rerank.interface import Logits, Reranked, Reranker, RerankerUnavailable
from query_service.rerank.pairs import Pair, PairReranker, as_pairs
from query_service.rerank.rate import Rate

log = logging.getLogger("headwater.query.rerank")

Mode = Literal["fast", "full"]
LoadReranker = Callable[[], Reranker]

RELOAD_S = 30.0
PROBE_S = 5.0  # a rate at which nothing fits is measured anew after this time
SAFETY = 0.85  # of the time is planned with: the rate is an average
CALL_MS = 100.0  # of a shared call: nobody can be dropped from it, and urgent ones wait for its end
MOST = 50
URGENCY: dict[Mode, int] = {"fast": 0, "full": 1}
PROBING = 2
CROWDED = "too many requests wait for the reranker"
SILENT = "the reranker does not answer"
BROKEN = "the reranker failed"
FITTED = "passages fit in the time that is left"
# What the rate is first measured with: one short pair, then several of a usual size.
_QUERY = "how is the pump reset"
_TEXT = "To reset the pump, hold its button for seven seconds and wait until the lamp is green. "

Part = tuple[Pair, ...]


@dataclass(frozen=True)
class _Loaded:
    model: PairReranker
    lane: Lane[Part, Logits]
    rate: Rate

    def close(self) -> None:
        self.lane.close()
        self.model.close()


class TimedReranking:
    """See ``interface.Reranking``. ``load`` runs in a thread of its own, again after failures."""

    def __init__(
        self,
        load: LoadReranker,
        settings: RerankSettings,
        inference: InferenceSettings,
        metrics: Metrics,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._settings = settings
        self._inference = inference
        self._metrics = metrics
        self._now = now
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="rerank")
        self._lock = threading.Lock()
        self._loading: Future[None] | None = None
        self._loaded: _Loaded | None = None
        self._problem = "still loading"
        self._failed_at = float("-inf")
        self._probed_at = float("-inf")
        self._closed = False

    def start(self) -> None:
        """Begin to load, unless that was begun; returns at once."""
        with self._lock:
            under_way = self._loading is not None and not self._loading.done()
            due = self._now() - self._failed_at >= RELOAD_S
            if not (self._closed or under_way or self._loaded is not None) and due:
                self._loading = self._threads.submit(self._bring)

    async def loaded(self) -> bool:
        """Wait until loading, if it was begun, has ended. Whether there is a reranker."""
        if self._loading is not None:
            await asyncio.wrap_future(self._loading)
        return self._loaded is not None

    def close(self) -> None:
        """End the threads and release the reranker."""
        with self._lock:
            self._closed = True
            loaded, self._loaded = self._loaded, None
        self._threads.shutdown(wait=False, cancel_futures=True)
        if loaded is not None:
            loaded.close()

    async def rank(
        self, query: str, passages: Sequence[str], mode: Mode, *, wanted: int | None, deadline: float
    ) -> Reranked:
        """See ``interface.Reranking``."""
        began = self._now()
        limit = min(
            MOST, self._settings.fast_candidates if mode == "fast" else wanted or self._settings.full_candidates
        )
        limit = min(limit, len(passages))
        loaded = self._loaded
        if loaded is None:
            self.start()
            found = Reranked((), 0.0, reason=self._problem)
        else:
            budget = self._settings.fast_ms if mode == "fast" else self._settings.full_ms
            until = min(deadline, began + budget / 1000)
            found = await self._safely(loaded, query, passages[:limit], mode, until)
        took = self._now() - began
        outcome = "late" if found.late else _outcome(loaded is not None, found, limit)
        self._metrics.count("headwater_rerank_total", mode=mode, outcome=outcome)
        self._metrics.observe("headwater_rerank_seconds", took, mode=mode)
        self._metrics.count("headwater_rerank_pairs_total", len(found.scores))
        return Reranked(found.scores, took * 1000, loaded.model.name if loaded else None, found.late, found.reason)

    # ------------------------------------------------------------ one request

    async def _safely(self, loaded: _Loaded, query: str, passages: Sequence[str], mode: Mode, until: float) -> Reranked:
        try:
            return await self._ranked(loaded, query, passages, mode, until)
        except (Late, TimeoutError):
            return Reranked((), 0.0, late=True, reason="its time was over")
        except Busy:
            return Reranked((), 0.0, reason=CROWDED)
        except RerankerUnavailable as error:
            log.warning("reranking failed", extra={"fields": {"problem": str(error)}})
            return Reranked((), 0.0, reason=SILENT)
        except Exception as error:  # the fused order stands whatever a model does; the error may hold passages
            log.error("reranking failed", extra={"fields": {"error": type(error).__name__}})
            return Reranked((), 0.0, reason=BROKEN)

    async def _ranked(self, loaded: _Loaded, query: str, passages: Sequence[str], mode: Mode, until: float) -> Reranked:
        if not passages:
            return Reranked((), 0.0)
        if until <= self._now():
            raise Late
        count = len(passages)
        if not self._fitting(loaded, [1], mode, until):  # not even a word: no work for making pairs
            return self._none(loaded, 0, count)
        pairs = await self._in_time(self._threads.submit(loaded.model.pairs, query, passages), until)
        fits = self._fitting(loaded, [pair.tokens for pair in pairs], mode, until)
        if fits == 0 or fits == 1 < count:  # one alone orders nothing
            return self._none(loaded, fits, count)
        shape, urgency = loaded.model.shape, URGENCY[mode]
        parts = [tuple(pairs[i : min(i + shape.part, fits)]) for i in range(0, fits, shape.part)]
        costs = [float(sum(pair.tokens for pair in part)) for part in parts]
        logits = await self._scored(loaded.lane.submit_all(parts, costs, urgency=urgency, deadline=until), until)
        reason = None if fits == count else _fit(fits, count)
        return Reranked(tuple(float(score) for part in logits for score in part), 0.0, reason=reason)

    def _fitting(self, loaded: _Loaded, tokens: Sequence[int], mode: Mode, until: float) -> int:
        shape = loaded.model.shape
        return loaded.rate.fitting(
            tokens,
            (until - self._now()) * 1000 * SAFETY,
            calls_of=shape.part * shape.batch,
            workers=shape.workers,
            ahead=loaded.lane.backlog(URGENCY[mode]),
        )

    def _none(self, loaded: _Loaded, fits: int, count: int) -> Reranked:
        self._probe(loaded)
        return Reranked((), 0.0, reason=_fit(fits, count))

    async def _in_time(self, future: Future[list[Pair]], until: float) -> list[Pair]:
        return await asyncio.wait_for(asyncio.wrap_future(future), max(0.0, until - self._now()))

    async def _scored(self, futures: Sequence[Future[Logits]], until: float) -> list[Logits]:
        """All of them or an error; what has not begun when this ends is dropped."""
        waiting = [asyncio.wrap_future(future) for future in futures]
        try:
            left = max(0.0, until - self._now())
            done, pending = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            failed = [error for one in done if (error := one.exception()) is not None]
            if failed:
                raise failed[0]
            if pending:
                raise Late
            return [one.result() for one in waiting]
        finally:
            for one in waiting:
                one.cancel()

    # ------------------------------------------------------------ the model

    def _bring(self) -> None:
        try:
            made = self._made(as_pairs(self._load()))
        except Exception as error:  # whatever libraries raise: searches go on without it, and it is tried again
            told = str(error) if isinstance(error, ConfigError | RerankerUnavailable) else type(error).__name__
            log.warning("the reranker could not be loaded", extra={"fields": {"error": told}})
            self._problem = "the reranker could not be loaded"
            self._failed_at = self._now()
            return
        with self._lock:
            if not self._closed:
                self._loaded = made
                return
        made.close()

    def _made(self, model: PairReranker) -> _Loaded:
        """Raises RerankerUnavailable."""
        rate, shape = Rate(self._now), model.shape
        try:
            model.score(_QUERY, [_TEXT])  # the first call compiles kernels, or opens a connection
            for pairs in (model.pairs(_QUERY, [_TEXT]), model.pairs(_QUERY, [9 * _TEXT] * (shape.part * shape.batch))):
                _timed(model, pairs[:8], rate, self._now)
        except Exception:
            model.close()
            raise

        def run(parts: Sequence[Part]) -> Sequence[Logits | Exception]:
            found = _timed(model, [pair for part in parts for pair in part], rate, self._now)
            ends = np.cumsum([len(part) for part in parts])
            return [found[end - len(part) : end] for part, end in zip(parts, ends, strict=True)]

        lane: Lane[Part, Logits] = Lane(
            "reranker",
            run,
            self._metrics,
            batch=shape.batch,
            queue=self._inference.queue,
            window_s=self._inference.window_ms / 1000,
            workers=shape.workers,
            now=self._now,
            most_cost=CALL_MS / slope if (slope := rate.line()[1]) > 0 else float("inf"),
        )
        return _Loaded(model, lane, rate)

    def _probe(self, loaded: _Loaded) -> None:
        """Where nothing fits nothing would ever be measured again, so one pair of our own is."""
        now = self._now()
        if loaded.rate.age_s < PROBE_S or now - self._probed_at < PROBE_S:
            return
        self._probed_at = now
        pairs = tuple(loaded.model.pairs(_QUERY, [9 * _TEXT]))
        try:
            loaded.lane.submit(
                pairs, cost=pairs[0].tokens, urgency=PROBING, deadline=now + self._settings.full_ms / 1000
            )
        except Busy:
            return


def _timed(model: PairReranker, pairs: Sequence[Pair], rate: Rate, now: Callable[[], float]) -> Logits:
    began = now()
    found = model.score_pairs(pairs)
    if found.shape != (len(pairs),) or not np.isfinite(found).all():
        raise RerankerUnavailable(f"{len(pairs)} pairs were sent, no finite score came for each")
    rate.observe(sum(pair.tokens for pair in pairs), (now() - began) * 1000)
    return found


def _fit(fits: int, count: int) -> str:
    return f"{fits} of {count} {FITTED}"


def _outcome(loaded: bool, found: Reranked, limit: int) -> str:
    if not loaded:
        return "loading"
    if found.reason in (CROWDED, SILENT, BROKEN):
        return "failed"
    return "done" if len(found.scores) == limit else "less" if found.scores else "none"
