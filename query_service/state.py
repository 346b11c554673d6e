"""What the service knows of the index now: the active generation, the lanes' progress, and whether it may serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.clock import Clock
from pipeline.errors import HeadwaterError
from pipeline.observe import Metrics
from pipeline.ports import IndexReader
from query_service.encoders import Encoders
from query_service.flights import Flights
from query_service.freshness import Freshness
from query_service.tail import ACCESS_TOPICS, AccessTail
from schemas.generation import Generation
from schemas.receipts import Progress

log = logging.getLogger("headwater.query.state")

REFRESH_S = 1.0
MAX_AGE_S = 2.0
RELOAD_S = 10.0  # an encoder that did not load is tried again after this time
_ORDER = ("active", "ready", "standby", "building", "retired")


class NotReady(Exception):
    """Nothing can be answered now. ``reasons`` are safe to show."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True)
class Snapshot:
    """One look at the store. ``at`` is ``Clock.elapsed``, ``generation`` the active one."""

    at: float
    generation: Generation | None
    progress: tuple[Progress, ...]
    generations: Mapping[str, Generation] = field(default_factory=dict)


class ServiceState:
    """Refreshed about once a second; requests between two looks use the last one."""

    def __init__(
        self,
        reader: IndexReader,
        tail: AccessTail,
        freshness: Freshness,
        encoders: Encoders,
        flights: Flights,
        clock: Clock,
        metrics: Metrics,
        ready_age_s: float,
    ) -> None:
        self._reader = reader
        self._tail = tail
        self._freshness = freshness
        self._encoders = encoders
        self._flights = flights
        self._clock = clock
        self._metrics = metrics
        self._ready_age = ready_age_s
        self._snapshot: Snapshot | None = None
        self._tail_started = False
        self._loading: asyncio.Task[None] | None = None
        self._failed: dict[str, float] = {}  # generation -> Clock.elapsed of its last failed load
        self._listeners: list[Callable[[], None]] = []

    async def refresh(self) -> None:
        """Look at the store once and start what waited for it. Raises StoreUnavailable."""
        at = self._clock.elapsed()
        active = await self._reader.active_generation()
        generations = await self._reader.generations()
        progress = await self._reader.progress()
        if self._snapshot is not None and self._snapshot.at > at:
            return  # another look began later and is there already: who has switched does not go back
        before = self._snapshot
        generation = generations.get(active) if active is not None else None
        self._snapshot = Snapshot(at, generation, tuple(progress), generations)
        if before is None or before.generation != generation:
            self._changed()
        self._tail.note_progress(progress)
        self._freshness.use_generation(self._snapshot.generation.name if self._snapshot.generation else None)
        if not self._tail_started:
            self._tail_started = True
            self._tail.start()

    async def tick(self) -> None:
        """One round of the background loop; failures are kept for readiness, never raised."""
        try:
            await self.refresh()
            self._tend_encoders()
        except HeadwaterError as error:
            log.warning("the state could not be refreshed", extra={"fields": {"error": type(error).__name__}})
        except Exception:
            log.exception("the state could not be refreshed")
        self.publish()

    # ------------------------------------------------------------ generations

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener()`` in the event loop when another generation is active or an encoder was loaded."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    @property
    def active(self) -> str | None:
        """The generation that new requests begin on."""
        snapshot = self._snapshot
        return snapshot.generation.name if snapshot is not None and snapshot.generation is not None else None

    def generation(self) -> Generation | None:
        """The same with all that is known of it."""
        return self._snapshot.generation if self._snapshot is not None else None

    def warm(self) -> tuple[str, ...]:
        """Generations, not retired ones, that could serve without waiting for their encoder."""
        return tuple(sorted(g.name for g in self._living() if self._encoders.warm(g)))

    def _living(self) -> list[Generation]:
        """Generations that serve or may come to serve, the active one first."""
        snapshot = self._snapshot
        if snapshot is None:
            return []
        found = [g for g in snapshot.generations.values() if g.state != "retired"]
        return sorted(found, key=lambda g: (g.name != self.active, _ORDER.index(g.state), g.created_at))

    def _tend_encoders(self) -> None:
        """Release what no request can ask for any more; load what is missing, one at a time, the active one first."""
        snapshot = self._snapshot
        if snapshot is None:
            return
        living, busy = self._living(), self._flights.counts()
        self._encoders.keep([*living, *(g for g in snapshot.generations.values() if busy.get(g.name))])
        for generation in snapshot.generations.values():
            if generation.dropped_at is not None:
                self._reader.forget(generation.name)
        if self._loading is not None and not self._loading.done():
            return
        now = self._clock.elapsed()
        missing = [g for g in living if not self._encoders.warm(g)]
        due = [g for g in missing if now - self._failed.get(g.name, -RELOAD_S) >= RELOAD_S]
        if due:
            self._loading = asyncio.create_task(self._load(due[0]))

    async def _load(self, generation: Generation) -> None:
        try:
            await self._encoders.prepare(generation)
        except Exception as error:  # whatever the encoder's libraries raise: others serve on, and it is tried again
            self._failed[generation.name] = self._clock.elapsed()
            fields = {"generation": generation.name, "error": f"{type(error).__name__}: {error}"}
            log.warning("an encoder could not be loaded", extra={"fields": fields})
        else:
            self._failed.pop(generation.name, None)
            self._changed()

    async def close(self) -> None:
        """End what is under way."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

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

    def standing(self, name: str) -> Generation | None:
        """A generation that answers searches or did so before and is still kept up; None where it is gone."""
        found = self._snapshot.generations.get(name) if self._snapshot is not None else None
        return found if found is not None and found.state in ("active", "standby") else None

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
