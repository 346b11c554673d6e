"""The service's own tail of ``access`` and ``membership``: a thread that keeps the overlay up to the log's end.

It also knows whether the store's access lane is at the log's end, which decides readiness (invariant 11).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pipeline.bus.interface import Slot
from pipeline.clock import Clock
from pipeline.errors import HeadwaterError
from pipeline.observe import Metrics
from pipeline.ports import Record
from query_service.overlay import Overlay
from schemas.receipts import Progress
from schemas.topics import Topic

log = logging.getLogger("headwater.query.tail")

ACCESS_TOPICS = (Topic.ACCESS.value, Topic.MEMBERSHIP.value)
POLL_MS = 200
MEASURE_S = 1.0
PRUNE_S = 30.0
MAX_AGE_S = 5.0
PAUSE_S = 0.5


class LogTail(Protocol):
    """Reads all partitions of some topics without a group; used by one thread."""

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """New records, in order per partition. Raises BusUnavailable."""
        ...

    def behind(self) -> int:
        """Records between the positions and the log's end of now. Raises BusUnavailable."""
        ...

    def positions(self) -> Mapping[Slot, int]:
        """Next offset per (topic, partition)."""
        ...

    def ends(self) -> Mapping[Slot, int]:
        """The log's end of now per (topic, partition). Raises BusUnavailable."""
        ...

    def ids(self) -> Mapping[str, str]:
        """The broker's id of each topic, where it tells one: a topic that was made anew has another."""
        ...

    def close(self) -> None: ...


class MadeAnew(HeadwaterError):
    """Another log stands in the place of the one that was read."""


class Start(NamedTuple):
    """Where a tail begins in each partition: at its offset, else at the moment ``since`` (µs), else at the beginning.

    A partition of ``not_after`` begins there at the latest.
    """

    since: int | None = None
    offsets: Mapping[tuple[str, int], int] = {}
    not_after: Mapping[tuple[str, int], int] = {}


TailFactory = Callable[[Sequence[str], Start], LogTail]


class AccessTail:
    """Owns the thread. Started once the store's progress is known, so that nothing unapplied is skipped."""

    def __init__(
        self,
        open_tail: TailFactory,
        overlay: Overlay,
        clock: Clock,
        metrics: Metrics,
        minutes: int,
        partitions: int,
    ) -> None:
        self._open = open_tail
        self._overlay = overlay
        self._clock = clock
        self._metrics = metrics
        self._partitions = partitions
        self._window = minutes * 60 * 1_000_000
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._caught_up_at: float | None = None
        self._last_data: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._reached: dict[tuple[str, int], int] = {}
        self._applied: dict[tuple[str, int], int] = {}
        self._ids: dict[str, str] = {}
        self._anew = False
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener()`` after each batch of records, from the tail's thread."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin to follow the log."""
        self._thread = threading.Thread(target=self._run, name="access-tail", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits a few seconds for it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def alive(self) -> bool:
        """Whether the tail was at the log's end within the last seconds, so that the overlay can be relied on."""
        at = self._caught_up_at
        return at is not None and self._clock.elapsed() - at <= MAX_AGE_S

    def age_s(self) -> float | None:
        """Seconds since the tail was last at the log's end; None before the first time."""
        at = self._caught_up_at
        return None if at is None else max(0.0, self._clock.elapsed() - at)

    def note_progress(self, progress: Sequence[Progress]) -> None:
        """Take what the store says of its access lane; bounds what may be forgotten."""
        self._applied = {
            (p.topic, p.partition): p.offset for p in progress if p.topic in ACCESS_TOPICS and not p.generation
        }

    def lane_at_end(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a lane whose next offset is ``offset`` has nothing left, transaction markers aside.

        Certain only where the tail itself began at or before that offset.
        """
        return self.covers(topic, partition, offset) and self._last_data.get((topic, partition), -1) < offset

    def covers(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the overlay holds everything on the log from ``offset`` on (what a lane has not applied stays)."""
        first = self._first.get((topic, partition))
        return first is not None and first <= offset and self.alive()

    def partitions(self) -> dict[tuple[str, int], int]:
        """Next offset per followed (topic, partition)."""
        return dict(self._reached)

    # ------------------------------------------------------------ thread

    def _run(self) -> None:
        tail: LogTail | None = None
        while not self._stop.is_set():
            try:
                tail = self._opened()
                self._follow(tail)
            except MadeAnew:
                self._forget()
            except HeadwaterError as error:
                log.warning("the access tail lost the log", extra={"fields": {"error": type(error).__name__}})
            except Exception:
                log.exception("the access tail failed; it starts again from where it stood")
            if tail is not None:
                close(tail, "the access tail")
                tail = None
            self._stop.wait(PAUSE_S)
        if tail is not None:
            close(tail, "the access tail")

    def _alarm(self, record: Record) -> None:
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        log.error("an access record could not be understood; what it names is closed", extra={"fields": where})
        self._metrics.count("headwater_closed_total", lane="query", kind=record.topic)

    def _opened(self) -> LogTail:
        """A tail from where we stood; of a log that was made anew since then, from its beginning."""
        tail = self._open(ACCESS_TOPICS, self._beginning())
        try:
            if another(self._ids, tail.ids()) or beyond(self._reached or self._applied, tail.ends()):
                self._forget()
                close(tail, "the access tail")
                tail = self._open(ACCESS_TOPICS, Start())
            self._ids |= tail.ids()
            for slot, offset in tail.positions().items():
                self._first.setdefault((slot[0], slot[1]), offset)
        except BaseException:
            close(tail, "the access tail")
            raise
        return tail

    def _forget(self) -> None:
        """Positions mean nothing in another log. What was read stays: a rule is replaced by a newer version alone."""
        log.warning("the log of access and membership was made anew: it is read from its beginning")
        self._reached, self._first, self._last_data, self._ids = {}, {}, {}, {}
        self._applied, self._caught_up_at, self._anew = {}, None, True

    def _beginning(self) -> Start:
        """Where we stood; at first the window's beginning, or where the store's lane stands if that is earlier."""
        if self._reached:
            return Start(offsets=dict(self._reached))
        if self._anew:
            return Start()
        slots = [(topic, p) for topic in ACCESS_TOPICS for p in range(self._partitions)]
        return Start(
            since=self._clock.now() - self._window, not_after={slot: self._applied.get(slot, 0) for slot in slots}
        )

    def _follow(self, tail: LogTail) -> None:
        measured, pruned = -MEASURE_S, self._clock.elapsed()
        while not self._stop.is_set():
            records = tail.poll(POLL_MS)
            for record in records:
                if not self._overlay.apply(record):
                    self._alarm(record)
                self._last_data[(record.topic, record.partition)] = record.offset
            self._reached = {(t, p): o for (t, p), o in tail.positions().items()}
            if records:
                for listener in self._listeners:
                    listener()
            now = self._clock.elapsed()
            if another(self._ids, tail.ids()):
                raise MadeAnew("a topic has another id")
            if records or now - measured >= MEASURE_S:
                if tail.behind() <= 0:
                    self._caught_up_at = self._clock.elapsed()
                measured = now
            if now - pruned >= PRUNE_S:
                here = {slot: o for slot, o in self._applied.items() if o <= self._reached.get(slot, 0)}
                self._overlay.prune(self._clock.now() - self._window, here)
                pruned = now


def close(tail: LogTail, what: str) -> None:
    """Disconnect; a connection that does not end in order is logged as ``what`` and left alone."""
    try:
        tail.close()
    except Exception:
        log.warning("%s did not close in order", what)


def another(known: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a topic has another id than the one that was read."""
    return any(now.get(topic, id_) != id_ for topic, id_ in known.items())


def shorter(tail: LogTail, remembered: Mapping[tuple[str, int], int]) -> bool:
    """``beyond`` for a tail that was just opened at the remembered positions."""
    return beyond(remembered, tail.positions())


def beyond(remembered: Mapping[tuple[str, int], int], ends: Mapping[Slot, int]) -> bool:
    """Whether a remembered position lies beyond the log's end: then the log was made anew, or lost its end."""
    now = {(slot[0], slot[1]): end for slot, end in ends.items()}
    return any(now.get(slot, offset) < offset for slot, offset in remembered.items())
