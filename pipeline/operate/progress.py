"""How far a generation's consumers are, by partition: what is applied, what was there at the start, rate and rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pipeline.bus.interface import Slot
from pipeline.clock import Clock, SystemClock
from pipeline.settings import Settings
from schemas.receipts import Progress
from schemas.topics import Topic

TOPICS = (Topic.CONTENT, Topic.ACCESS, Topic.MAINTENANCE)
WINDOW_S = 30.0


@dataclass(frozen=True)
class PartitionProgress:
    """One partition of a topic, in offsets: ``first`` still on the log, ``applied`` next to be applied, ``target`` the
    end that is to be reached, ``end`` as it is now. ``rate`` in offsets a second, None before there are two looks."""

    topic: str
    partition: int
    first: int
    applied: int
    target: int
    end: int
    rate: float | None = None

    @property
    def left(self) -> int:
        """Offsets up to the target. Compaction and transactions leave gaps: there are as many records or fewer."""
        return max(0, self.target - max(self.applied, self.first))

    @property
    def behind(self) -> int:
        """Offsets up to the end as it is now."""
        return max(0, self.end - max(self.applied, self.first))


@dataclass(frozen=True)
class BuildProgress:
    """All partitions of a generation at one moment (µs)."""

    generation: str
    at: int
    partitions: tuple[PartitionProgress, ...]

    @property
    def total(self) -> int:
        """Offsets from the log's beginning to the target."""
        return sum(p.target - p.first for p in self.partitions)

    @property
    def left(self) -> int:
        """Offsets up to the target."""
        return sum(p.left for p in self.partitions)

    @property
    def applied(self) -> int:
        """Offsets of the total that are done."""
        return self.total - self.left

    @property
    def behind(self) -> int:
        """Offsets up to the end as it is now."""
        return sum(p.behind for p in self.partitions)

    @property
    def reached(self) -> bool:
        """Whether every partition has applied what was there at the start."""
        return self.left == 0

    @property
    def rate(self) -> float | None:
        """Offsets a second, over all partitions; None before there are two looks."""
        rates = [p.rate for p in self.partitions if p.rate is not None]
        return sum(rates) if rates else None

    @property
    def eta_s(self) -> float | None:
        """Seconds until the target at this rate; None where that cannot be said."""
        if self.reached:
            return 0.0
        rate = self.rate
        return self.left / rate if rate else None


class _Store(Protocol):
    """The part of ``pipeline.ports.IndexStore`` that says how far a lane is."""

    def read_progress(self, lane: str, generation: str, topic: str) -> dict[int, Progress]: ...


class _Log(Protocol):
    """The part of ``pipeline.bus.tail.KafkaTail`` that knows beginnings and ends."""

    def positions(self) -> dict[Slot, int]: ...
    def ends(self) -> dict[Slot, int]: ...


class ProgressWatch:
    """Looks again and again. ``log`` stands at the beginning and is never polled; the target is its end at the start
    where none is given."""

    def __init__(
        self,
        generation: str,
        store: _Store,
        log: _Log,
        *,
        targets: Mapping[Slot, int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._generation = generation
        self._store = store
        self._log = log
        self._clock = clock if clock is not None else SystemClock()
        self._first = log.positions()
        self.targets = dict(targets) if targets is not None else log.ends()
        self._seen: deque[tuple[float, dict[Slot, int]]] = deque()

    def look(self) -> BuildProgress:
        """The progress now. Raises StoreUnavailable, BusUnavailable."""
        stored = {str(t): self._store.read_progress("index", self._generation, str(t)) for t in TOPICS}
        ends, now = self._log.ends(), self._clock.elapsed()
        applied = {s: stored[s.topic][s.partition].offset if s.partition in stored[s.topic] else 0 for s in ends}
        self._seen.append((now, applied))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        then, before = self._seen[0]
        partitions = [
            PartitionProgress(
                topic=slot.topic,
                partition=slot.partition,
                first=min(self._first.get(slot, 0), self.targets.get(slot, 0)),
                applied=applied[slot],
                target=self.targets.get(slot, 0),
                end=end,
                rate=max(0, applied[slot] - before[slot]) / (now - then) if now > then else None,
            )
            for slot, end in sorted(ends.items())
        ]
        return BuildProgress(self._generation, self._clock.now(), tuple(partitions))


def progress(settings: Settings, generation: str) -> BuildProgress:
    """How far the generation is behind the log's end of now. Raises StoreUnavailable, BusUnavailable."""
    from contextlib import closing

    from pipeline.bus.tail import KafkaTail
    from pipeline.index.store import WeaviateStore

    with (
        closing(WeaviateStore(settings)) as store,
        closing(KafkaTail(settings, TOPICS, since="beginning")) as log,
    ):
        return ProgressWatch(generation, store, log).look()
