"""Which document is worked on next: live before bulk, access before content, a fair share between sources (I13).

Pure bookkeeping under one lock, no threads and no I/O of its own. All queued work of a document forms one job, so
order per document is kept and a newer event in the window makes an older one unnecessary; a document is in at most
one job at a time.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from pipeline.clock import Clock
from pipeline.errors import Reject
from pipeline.ports import Record
from schemas.events import (
    AccessSet,
    AccessTombstone,
    ContentDeleted,
    ContentUpserted,
    HoldChanged,
    MaintenanceCommand,
)
from schemas.keys import DocumentRef

WorkKind = Literal["access", "content", "maintenance", "tail"]


class Priority(IntEnum):
    """Smaller goes first."""

    ACCESS = 0
    LIVE = 1
    TAIL = 2
    BULK = 3


@dataclass(eq=False)
class Work:
    """One record to process, or a removal that has come due (``tail``, without a record)."""

    kind: WorkKind
    document: DocumentRef
    partition: int
    priority: Priority
    record: Record | None = None
    event: AccessSet | AccessTombstone | HoldChanged | ContentUpserted | ContentDeleted | MaintenanceCommand | None = (
        None
    )
    received_at: int = 0
    ambiguous: bool = False
    fault: Reject | None = None  # not understood: becomes a dead letter
    nameless: bool = False  # the record names no document

    @property
    def size(self) -> int:
        """Bytes held in the window."""
        return len(self.record.value or b"") if self.record is not None else 0


@dataclass(eq=False)
class Job:
    """All work of one document that was queued when the job was taken."""

    document: DocumentRef
    partition: int
    works: list[Work]
    priority: Priority
    attempts: int = 0
    infra_attempts: int = 0
    started_at: int = 0
    dropped: bool = False


@dataclass
class _Queue:
    works: list[Work] = field(default_factory=list)
    busy: bool = False
    attempts: int = 0
    infra_attempts: int = 0
    ready_at: float = 0.0
    aside: bool = False
    listed: Priority | None = None


class DocumentScheduler:
    """Thread-safe queues by document."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._documents: dict[str, _Queue] = {}
        self._ready: dict[Priority, OrderedDict[tuple[str, str], deque[str]]] = {p: OrderedDict() for p in Priority}
        self._delayed: list[tuple[float, int, str]] = []
        self._timed: list[tuple[float, int, Work]] = []
        self._sequence = 0
        self._records: dict[tuple[str, int], int] = {}
        self._bytes: dict[tuple[str, int], int] = {}
        self._busy: dict[str, Job] = {}

    # ------------------------------------------------------------------ adding

    def add(self, work: Work) -> None:
        """Queue one piece of work. A document that waits after a failure goes on waiting; one that was set aside is
        worked on again, for the new work may make the old unnecessary."""
        with self._changed:
            queue = self._documents.setdefault(work.document.uid, _Queue())
            queue.works.append(work)
            queue.aside = False
            self._count(work, 1)
            self._list(work.document.uid, queue)
            self._changed.notify_all()

    def add_later(self, work: Work, seconds: float) -> None:
        """Queue a ``tail`` when it has come due, without holding back what comes for its document meanwhile."""
        with self._changed:
            self._sequence += 1
            heapq.heappush(self._timed, (self._clock.elapsed() + seconds, self._sequence, work))

    def _list(self, uid: str, queue: _Queue) -> None:
        if queue.busy or queue.aside or not queue.works:
            return
        if queue.ready_at > self._clock.elapsed():
            self._sequence += 1
            heapq.heappush(self._delayed, (queue.ready_at, self._sequence, uid))
            return
        priority = min(w.priority for w in queue.works)
        if queue.listed is not None and queue.listed <= priority:
            return
        queue.listed = priority
        document = queue.works[0].document
        groups = self._ready[priority]
        groups.setdefault((document.tenant, document.source), deque()).append(uid)

    # ------------------------------------------------------------------ taking

    def wake(self) -> None:
        """Wake whoever waits."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, allowed: Sequence[Priority], seconds: float) -> None:
        """Sleep until a job of the allowed priorities may be taken or something changes, at most ``seconds``."""
        with self._changed:
            self._release_delayed()
            if all(self._head(priority) is None for priority in allowed):
                for due in self._delayed[:1] + self._timed[:1]:
                    seconds = min(seconds, max(0.001, due[0] - self._clock.elapsed()))
                self._changed.wait(seconds)

    def take(self, allowed: Sequence[Priority] = tuple(Priority)) -> Job | None:
        """The next job of the allowed priorities, or None. Sources of equal priority take turns."""
        with self._lock:
            self._release_delayed()
            for priority in allowed:
                uid = self._head(priority)
                if uid is None:
                    continue
                groups = self._ready[priority]
                group, waiting = next(iter(groups.items()))
                waiting.popleft()
                groups.move_to_end(group)
                if not waiting:
                    del groups[group]
                queue = self._documents[uid]
                queue.busy, queue.listed = True, None
                job = Job(
                    document=queue.works[0].document, partition=queue.works[0].partition, works=queue.works,
                    priority=priority, attempts=queue.attempts, infra_attempts=queue.infra_attempts,
                    started_at=self._clock.now(),
                )  # fmt: skip
                queue.works = []
                self._busy[uid] = job
                return job
            return None

    def _head(self, priority: Priority) -> str | None:
        """First listed document of a priority whose listing is still true; stale listings are dropped."""
        groups = self._ready[priority]
        while groups:
            group, waiting = next(iter(groups.items()))
            while waiting:
                queue = self._documents.get(waiting[0])
                if queue is not None and not queue.busy and queue.listed == priority and queue.works:
                    return waiting[0]
                waiting.popleft()
            del groups[group]
        return None

    def _release_delayed(self) -> None:
        now = self._clock.elapsed()
        while self._timed and self._timed[0][0] <= now:
            self.add(heapq.heappop(self._timed)[2])
        while self._delayed and self._delayed[0][0] <= now:
            _, _, uid = heapq.heappop(self._delayed)
            queue = self._documents.get(uid)
            if queue is not None and queue.ready_at <= now:
                self._list(uid, queue)

    # ------------------------------------------------------------------ finishing

    def finish(self, job: Job) -> None:
        """The job's work is done (or given up): free the document for what was queued meanwhile."""
        with self._changed:
            self._busy.pop(job.document.uid, None)
            for work in job.works:
                self._count(work, -1)
            queue = self._documents[job.document.uid]
            queue.busy, queue.attempts, queue.infra_attempts, queue.ready_at = False, 0, 0, 0.0
            if queue.works:
                self._list(job.document.uid, queue)
            else:
                del self._documents[job.document.uid]
            self._changed.notify_all()

    def put_back(self, job: Job, *, delay: float, infrastructure: bool) -> None:
        """Try the job again after ``delay`` seconds, before whatever was queued meanwhile."""
        with self._changed:
            queue = self._documents[job.document.uid]
            queue.attempts = job.attempts + (0 if infrastructure else 1)
            queue.infra_attempts = job.infra_attempts + (1 if infrastructure else 0)
            queue.ready_at = self._clock.elapsed() + delay
            self._return(job, queue)

    def set_aside(self, job: Job) -> None:
        """Put the job back, without counting an attempt, until ``resume`` or new work of its document."""
        with self._changed:
            queue = self._documents[job.document.uid]
            queue.attempts, queue.infra_attempts, queue.ready_at = job.attempts, job.infra_attempts, 0.0
            queue.aside = not queue.works
            self._return(job, queue)

    def resume(self, document: DocumentRef) -> None:
        """What a job of the document was set aside for has come; nothing to do where it was taken up meanwhile."""
        with self._changed:
            queue = self._documents.get(document.uid)
            if queue is not None and queue.aside:
                queue.aside = False
                self._list(document.uid, queue)
                self._changed.notify_all()

    def _return(self, job: Job, queue: _Queue) -> None:
        self._busy.pop(job.document.uid, None)
        if job.dropped:
            for work in job.works:
                self._count(work, -1)
            job.works = []
        queue.works = job.works + queue.works
        queue.busy = False
        if queue.works:
            self._list(job.document.uid, queue)
        else:
            del self._documents[job.document.uid]
        self._changed.notify_all()

    # ------------------------------------------------------------------ partitions

    def held(self, topic: str, partition: int) -> tuple[int, int]:
        """Records and bytes of a topic's partition that are queued or in work."""
        with self._lock:
            return self._records.get((topic, partition), 0), self._bytes.get((topic, partition), 0)

    def total(self) -> int:
        """Records queued or in work."""
        with self._lock:
            return sum(self._records.values())

    def drop(self, partitions: Iterable[int], *, running: bool = True) -> None:
        """Forget queued work of revoked partitions; with ``running`` jobs in work are marked dropped as well."""
        gone = set(partitions)
        with self._changed:
            self._timed = [t for t in self._timed if t[2].partition not in gone]
            heapq.heapify(self._timed)
            for uid, queue in list(self._documents.items()):
                for work in [w for w in queue.works if w.partition in gone]:
                    self._count(work, -1)
                queue.works = [w for w in queue.works if w.partition not in gone]
                if not queue.works and not queue.busy:
                    del self._documents[uid]
            for job in self._busy.values():
                if running and job.partition in gone:
                    job.dropped = True
            self._changed.notify_all()

    def drain(self, partitions: Iterable[int], seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait until no job of the partitions is in work; false when ``seconds`` ran out."""
        gone = set(partitions)
        end = self._clock.elapsed() + seconds
        with self._changed:
            while any(j.partition in gone for j in self._busy.values()):
                left = end - self._clock.elapsed()
                if left <= 0 or until():
                    return False
                self._changed.wait(min(left, 0.05))
            return True

    def _count(self, work: Work, sign: int) -> None:
        if work.record is None:
            return
        place = (work.record.topic, work.partition)
        self._records[place] = self._records.get(place, 0) + sign
        self._bytes[place] = self._bytes.get(place, 0) + sign * work.size
