"""What the service knows of the index now: the active generation, the lanes' progress, and whether it may serve."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.errors import HeadwaterError
from pipeline.observe import Metrics
from pipeline.ports import IndexReader
from query_service.encoders import Encoders
from query_service.freshness import Freshness
from query_service.tail import ACCESS_TOPICS, AccessTail
from schemas.generation import Generation
from schemas.receipts import Progress

log = logging.getLogger("headwater.query.state")

REFRESH_S = 1.0
MAX_AGE_S = 2.0


class NotReady(Exception):
    """Nothing can be answered now. ``reasons`` are safe to show."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True)
class Snapshot:
    """One look at the store. ``at`` is ``Clock.elapsed``."""

    at: float
    generation: Generation | None
    progress: tuple[Progress, ...]


class ServiceState:
    """Refreshed about once a second; requests between two looks use the last one."""

    def __init__(
        self,
        reader: IndexReader,
        tail: AccessTail,
        freshness: Freshness,
        encoders: Encoders,
        clock: Clock,
        metrics: Metrics,
        ready_age_s: float,
    ) -> None:
        self._reader = reader
        self._tail = tail
        self._freshness = freshness
        self._encoders = encoders
        self._clock = clock
        self._metrics = metrics
        self._ready_age = ready_age_s
        self._snapshot: Snapshot | None = None
        self._tail_started = False

    async def refresh(self) -> None:
        """Look at the store once and start what waited for it. Raises StoreUnavailable."""
        at = self._clock.elapsed()
        active = await self._reader.active_generation()
        generations = await self._reader.generations() if active is not None else {}
        progress = await self._reader.progress()
        self._snapshot = Snapshot(at, generations.get(active) if active is not None else None, tuple(progress))
        self._tail.note_progress(progress)
        self._freshness.use_generation(self._snapshot.generation.name if self._snapshot.generation else None)
        if not self._tail_started:
            self._tail_started = True
            self._tail.start()

    async def tick(self) -> None:
        """One round of the background loop; failures are kept for readiness, never raised."""
        try:
            await self.refresh()
            generation = self._snapshot.generation if self._snapshot is not None else None
            if generation is not None:
                await self._encoders.prepare(generation)
        except HeadwaterError as error:
            log.warning("the state could not be refreshed", extra={"fields": {"error": type(error).__name__}})
        except Exception:
            log.exception("the state could not be refreshed")
        self.publish()

    def publish(self) -> None:
        """Set the gauges of readiness."""
        self._metrics.set("headwater_ready", 0.0 if self.reasons() else 1.0)
        age = self._tail.age_s()
        if age is not None:
            for topic in ACCESS_TOPICS:
                self._metrics.set("headwater_tail_age_seconds", age, topic=topic)

    async def current(self) -> Generation:
        """The active generation, resolved once by each request. Raises NotReady or StoreUnavailable."""
        if self._stale():
            await self.refresh()
        snapshot = self._snapshot
        if snapshot is None or snapshot.generation is None:
            raise NotReady("no index generation is active yet")
        unsafe = [r for r in self._lanes(snapshot) if r.blocking]
        if unsafe:
            raise NotReady(*(r.text for r in unsafe))
        return snapshot.generation

    def reasons(self) -> tuple[str, ...]:
        """Why the service is not ready; empty when it is (invariant 11)."""
        snapshot = self._snapshot
        if snapshot is None or self._clock.elapsed() - snapshot.at > max(MAX_AGE_S, self._ready_age):
            return ("the store has not answered lately",)
        found = [r.text for r in self._lanes(snapshot)]
        if not self._tail.alive():
            found.append("the access tail is not at the log's end")
        if snapshot.generation is None:
            found.append("no index generation is active yet")
        elif not self._encoders.warm(snapshot.generation):
            found.append("the encoder is not loaded yet")
        return tuple(found)

    def _stale(self) -> bool:
        return self._snapshot is None or self._clock.elapsed() - self._snapshot.at > MAX_AGE_S

    # ------------------------------------------------------------ lanes

    def _lanes(self, snapshot: Snapshot) -> list[_Lag]:
        """Partitions of the access lane that are neither at the log's end nor written lately."""
        known = {(p.topic, p.partition): p for p in _access_progress(snapshot.progress)}
        slots = sorted({*known, *self._tail.partitions()})
        found: list[_Lag] = []
        if not slots:
            found.append(_Lag("the access lane has not reported any progress", True))
        for topic, partition in slots:
            progress = known.get((topic, partition))
            offset = progress.offset if progress is not None else 0
            if self._tail.lane_at_end(topic, partition, offset) or self._young(progress):
                continue
            covered = self._tail.covers(topic, partition, offset)
            found.append(_Lag(f"the {topic} lane is behind in partition {partition}", not covered))
        return found

    def _young(self, progress: Progress | None) -> bool:
        return progress is not None and self._clock.now() - progress.written_at <= self._ready_age * 1_000_000


@dataclass(frozen=True)
class _Lag:
    """``blocking``: the tail does not cover the gap either, so a revocation might be unknown here."""

    text: str
    blocking: bool


def _access_progress(progress: Sequence[Progress]) -> list[Progress]:
    return [p for p in progress if p.topic in ACCESS_TOPICS and not p.generation]
