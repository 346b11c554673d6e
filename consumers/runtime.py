"""The loop that every lane shares.

Two threads: the calling thread polls Kafka (so membership, rebalances and read-ahead never wait for work), the work
thread runs the lane. In between lies a bounded window per slot.

    poll ─▶ window ─▶ Lane.accept ─▶ Lane.work ─▶ Assignment.done ─▶ progress record (store) ─▶ offset (Kafka)

A lane raises the verbs of ``pipeline.errors``: Retry and Hold keep everything and call ``work`` again later, with the
partitions held and the membership alive; Crash (and any other exception) stops the process without committing.
Reject is the lane's own affair: it writes the dead letter and goes on.

Taking over a partition: wait one lease unless the last owner left in order, start at the smaller of both offsets
(rewound after an unclean stop), write a progress record in the own name, read. Giving up: finish the piece of work at
hand, write progress marked clean, commit, end the lease.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from consumers.assignment import Assignment
from consumers.backoff import Backoff
from consumers.lanes import Lane, ProgressStore
from consumers.lease import EndedLate, Lease, Rechecks
from consumers.positions import Start, must_wait, start_of
from consumers.progress import PROGRESS_S, ProgressKeeper
from pipeline.bus.interface import Reader, ReaderFactory, Slot
from pipeline.clock import Clock, SystemClock
from pipeline.errors import HeadwaterError, Hold, Retry
from pipeline.observe import Metrics, metrics
from pipeline.ports import Record
from schemas.receipts import Progress

log = logging.getLogger("headwater.consumer")

COMMIT_S = 1.0


@dataclass
class Hooks:
    """Where fault tests stop a process; all do nothing by default."""

    before_write: Callable[[], None] | None = None  # between a lease's check and the sending of the write
    before_work: Callable[[], None] | None = None


@dataclass
class _State:
    """Shared by both threads, guarded by ``Runtime._inbox_changed``."""

    inbox: deque[tuple[Assignment, Record | None]] = field(default_factory=deque)  # None opens the assignment
    overdue: list[Assignment] = field(default_factory=list)  # given up during a piece of work, to be closed after it
    stopping: bool = False
    error: BaseException | None = None
    holding: str | None = None


class Runtime:
    """Runs one lane in this process until ``stop``. See the module for the whole picture."""

    def __init__(
        self,
        lane: Lane,
        *,
        reader: ReaderFactory,
        store: ProgressStore,
        rechecks: Rechecks,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
        observed: Metrics | None = None,
        poll_ms: int = 200,
    ) -> None:
        self.lane = lane
        self.spec = lane.spec
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self._clock = clock if clock is not None else SystemClock()
        self._rechecks = rechecks
        self._hooks = hooks if hooks is not None else Hooks()
        self._metrics = observed if observed is not None else metrics()
        self._poll_ms = poll_ms
        self._make_reader = reader
        self._reader: Reader | None = None
        self._assignments: dict[int, Assignment] = {}
        self._progress = ProgressKeeper(
            self.spec, store, self.owner, self._clock, self._metrics, lambda slot: self._highwater(slot)
        )
        self._forgotten: list[Assignment] = []  # the store was restored below them
        self._paused: set[Slot] = set()
        self._state = _State()
        self._inbox_changed = threading.Condition()
        self._work_lock = threading.Lock()
        self._backoff = Backoff(most=self.spec.backoff_max_s)
        self._takeover = Backoff(first=0.05, most=1.0)
        self._takeover_due = 0.0
        self._commit_due = 0.0
        self._first_of = {str(t.topic): t.first for t in self.spec.topics}

    # ------------------------------------------------------------ life

    def run(self) -> None:
        """Consume until ``stop`` is called; leaves the group in order. Raises what stopped the lane."""
        reader = self.connect()
        worker = threading.Thread(target=self._work_loop, name=f"work-{self.spec.name}", daemon=True)
        worker.start()
        try:
            while not self._state.stopping:
                self._poll_once(reader)
        except BaseException as error:
            self.fail(error)
        finally:
            self._leave(reader, worker)
        if self._state.error is not None:
            raise self._state.error

    def connect(self) -> Reader:
        """Become a member of the group (``run`` does it)."""
        self._reader = self._make_reader(self)
        return self._reader

    def stop(self) -> None:
        """Ask the loop to end: the piece of work at hand is finished, progress written, the group left."""
        with self._inbox_changed:
            self._state.stopping = True
            self._inbox_changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Stop the process without committing; ``run`` raises the error. For a lane's own threads."""
        with self._inbox_changed:
            if self._state.error is None:
                self._state.error = error
            self._state.stopping = True
            self._inbox_changed.notify_all()

    def _leave(self, reader: Reader, worker: threading.Thread) -> None:
        worker.join(self.spec.drain_s)
        try:
            reader.close()
        except HeadwaterError:
            log.warning("could not leave the group in order", exc_info=True)
        # A store call that was not awaited ends by its own time limit; if it ended late, that must still be told.
        worker.join(self.spec.timeout_s + 1)
        self._settle_rechecks()
        if self._rechecks.owed():
            log.error("rechecks are owed and could not be asked for: %s", self._rechecks.owed())

    def _settle_rechecks(self) -> None:
        try:
            self._rechecks.settle()
        except Retry as error:
            self._count_retry(error)

    # ------------------------------------------------------------ poll thread

    def _poll_once(self, reader: Reader) -> None:
        try:
            records = reader.poll(self._poll_ms)
        except Retry as error:
            self._count_retry(error)
            self._pause_poll(0.2)
            return
        if records:
            self._hand_over(records)
        self._note_positions(reader)
        self._reopen_forgotten(reader)
        self._open_pending(reader)
        self._apply_window(reader)
        self._commit(reader)

    def _pause_poll(self, seconds: float) -> None:
        with self._inbox_changed:
            self._inbox_changed.wait_for(lambda: self._state.stopping, timeout=seconds)

    def _hand_over(self, records: list[Record]) -> None:
        with self._inbox_changed:
            for record in records:
                assignment = self._assignments.get(record.partition)
                if assignment is None or not assignment.active:
                    continue
                assignment.read(record)
                self._state.inbox.append((assignment, record))
                self._metrics.count("headwater_records_total", lane=self.spec.name, topic=record.topic)
            self._inbox_changed.notify_all()

    def _note_positions(self, reader: Reader) -> None:
        """Aborted and control records end at no record of ours; the position still moves past them."""
        for assignment in list(self._assignments.values()):
            if assignment.active:
                for slot in assignment.slots():
                    assignment.advance(slot.topic, reader.position(slot))

    def _apply_window(self, reader: Reader) -> None:
        for assignment in list(self._assignments.values()):
            if not assignment.active:
                continue
            for slot in assignment.slots():
                records, size = assignment.open(slot.topic)
                full = records >= self.spec.window_records or size >= self.spec.window_bytes
                empty = records <= self.spec.window_records // 2 and size <= self.spec.window_bytes // 2
                if full and slot not in self._paused:
                    reader.pause([slot])
                    self._paused.add(slot)
                elif empty and slot in self._paused:
                    reader.resume([slot])
                    self._paused.discard(slot)

    def _commit(self, reader: Reader) -> None:
        now = self._clock.elapsed()
        if now < self._commit_due:
            return
        self._commit_due = now + COMMIT_S
        offsets = self._committable()
        if not offsets:
            return
        try:
            if reader.commit(offsets):
                for slot, offset in offsets.items():
                    self._progress.of(slot).committed = offset
        except Retry as error:
            self._count_retry(error)

    def _committable(self) -> dict[Slot, int]:
        """Offsets that the store's progress covers (or, without a progress lane, the watermark) and that moved."""
        offsets = {}
        for assignment in list(self._assignments.values()):
            if not assignment.active:
                continue
            for slot in assignment.slots():
                written = self._progress.of(slot)
                tracked = self._progress.tracked(slot.topic)
                offset = written.offset if tracked else assignment.watermark(slot.topic)
                if offset > written.committed:
                    offsets[slot] = offset
        return offsets

    # ------------------------------------------------------------ taking over

    def on_assigned(self, slots: frozenset[Slot]) -> None:
        """Listener: note the partitions; they are opened by the poll loop once their previous owner's lease is over."""
        reader = self._reader
        assert reader is not None or not slots
        for partition in sorted({slot.partition for slot in slots}):
            self._assignments[partition] = self._assignment(partition, self._clock.elapsed())
        self._takeover_due = 0.0
        self._metrics.set("headwater_partitions_owned", len(self._assignments), lane=self.spec.name)

    def _assignment(self, partition: int, since: float) -> Assignment:
        lease = Lease(
            self._confirmed,
            clock=self._clock,
            session_s=self.spec.session_s,
            timeout_s=self.spec.timeout_s,
            partition=partition,
            before_write=self._hooks.before_write,
        )
        return Assignment(partition, [str(t.topic) for t in self.spec.topics], lease, since)

    def _confirmed(self) -> float | None:
        return self._reader.confirmed() if self._reader is not None else None

    def _open_pending(self, reader: Reader) -> None:
        pending = [a for a in self._assignments.values() if not a.active and not a.closed]
        if not pending or self._clock.elapsed() < self._takeover_due:
            return
        try:
            progress = self._progress.read()
            for assignment in pending:
                self._open(reader, assignment, progress)
            self._takeover.reset()
        except Retry as error:
            self._count_retry(error)
            self._takeover_due = self._clock.elapsed() + self._takeover.next()

    def _open(self, reader: Reader, assignment: Assignment, progress: dict[Slot, Progress]) -> None:
        slots = assignment.slots()
        known = [progress[slot] for slot in slots if slot in progress]
        waited = self._clock.elapsed() - assignment.since
        if must_wait(known, self.owner) and waited < self.spec.session_s:
            return
        starts = self._starts(reader, slots, progress)
        offsets = {slot: starts[slot.topic].offset for slot in slots}
        if not reader.commit(offsets):
            return  # rebalancing: there will be another assignment
        self._progress.begin(assignment, offsets)
        assignment.begin(starts)
        for slot in slots:
            reader.seek(slot, offsets[slot])
        with self._inbox_changed:
            self._state.inbox.append((assignment, None))
            self._inbox_changed.notify_all()
        self._paused.difference_update(slots)
        reader.resume(slots)
        log.info(
            "partition %d opened",
            assignment.partition,
            extra={"fields": {t: {"offset": s.offset, "why": s.why} for t, s in starts.items()}},
        )

    def _starts(self, reader: Reader, slots: list[Slot], progress: dict[Slot, Progress]) -> dict[str, Start]:
        committed = reader.committed(slots)
        beginning = reader.beginning_offsets(slots)
        end = reader.end_offsets(slots)
        return {
            slot.topic: start_of(
                committed=committed.get(slot),
                progress=progress.get(slot),
                tracked=self._progress.tracked(slot.topic),
                beginning=beginning[slot],
                end=end[slot],
                safety_window=self.spec.safety_window,
                window_records=self.spec.window_records,
                first=self._first_of[slot.topic],
            )
            for slot in slots
        }

    # ------------------------------------------------------------ giving up

    def on_revoked(self, slots: frozenset[Slot], *, lost: bool) -> None:
        """Listener: finish the piece of work at hand, write progress marked clean, commit, end the leases."""
        partitions = {slot.partition for slot in slots}
        given = [self._assignments[p] for p in sorted(partitions) if p in self._assignments]
        if lost:
            for assignment in given:
                assignment.lease.give_up()
        drained = locked = self._work_lock.acquire(timeout=self.spec.drain_s)
        try:
            if locked:
                drained = self.lane.drain(given, self.spec.drain_s)
            clean = drained and not lost and self._state.error is None and not self._rechecks.owed()
            if clean:
                self._leave_in_order([a for a in given if a.active])
            for assignment in given:
                assignment.lease.give_up()
                assignment.closed = True
                self._assignments.pop(assignment.partition, None)
                for slot in assignment.slots():
                    self._paused.discard(slot)
                self._progress.forget(assignment.slots())
                if locked:
                    self.lane.closed(assignment)
        finally:
            if locked:
                self._work_lock.release()
        self._purge(given, closed=locked)
        how = "lost" if lost else "in_order" if drained else "undrained"
        self._metrics.count("headwater_rebalances_total", len(given), lane=self.spec.name, how=how)
        self._metrics.set("headwater_partitions_owned", len(self._assignments), lane=self.spec.name)

    def _leave_in_order(self, given: list[Assignment]) -> None:
        reader = self._reader
        if reader is None:
            return
        offsets: dict[Slot, int] = {}
        try:
            for assignment in given:
                own = {slot: assignment.watermark(slot.topic) for slot in assignment.slots()}
                self._progress.write(assignment, own, clean=True)
                offsets |= own
            if offsets:
                reader.commit(offsets)
        except Retry as error:
            # The next owner waits one lease and rewinds: nothing is lost.
            self._count_retry(error)

    def _purge(self, given: list[Assignment], *, closed: bool) -> None:
        """Drop entries of closed partitions; where work could not be awaited, the work thread closes them after it."""
        with self._inbox_changed:
            self._state.inbox = deque(entry for entry in self._state.inbox if entry[0] not in given)
            if not closed:
                self._state.overdue.extend(given)

    # ------------------------------------------------------------ work thread

    def _work_loop(self) -> None:
        pause = 0.0
        try:
            while self._await_work(pause):
                pause = self._work_once()
        except BaseException as error:
            log.error("the lane stopped", exc_info=True)
            self.fail(error)

    def _await_work(self, pause: float) -> bool:
        """Wait until records arrive or ``pause`` is over (negative: only the time counts); false when stopping."""
        with self._inbox_changed:
            if pause < 0:
                self._inbox_changed.wait_for(lambda: self._state.stopping, timeout=-pause)
            elif pause > 0:
                self._inbox_changed.wait_for(
                    lambda: self._state.stopping or bool(self._state.inbox), timeout=min(pause, PROGRESS_S)
                )
            return not self._state.stopping

    def _work_once(self) -> float:
        """One piece of work and the bookkeeping after it; the pause before the next, negative after a failure."""
        with self._work_lock:
            self._take_inbox()
            pause = self._attempt()
            self._checkpoint()
        return pause

    def _take_inbox(self) -> None:
        with self._inbox_changed:
            entries = list(self._state.inbox)
            self._state.inbox.clear()
            overdue = list(self._state.overdue)
            self._state.overdue.clear()
        for assignment in overdue:
            self.lane.closed(assignment)
        for assignment, record in entries:
            if assignment.closed:
                continue
            if record is None:
                self.lane.opened(assignment)
            else:
                self.lane.accept(assignment, record)

    def _attempt(self) -> float:
        try:
            self._rechecks.settle()
            if self._hooks.before_work is not None:
                self._hooks.before_work()
            wanted = self.lane.work()
        except Hold as hold:
            return hold.seconds
        except Retry as error:
            self._progress.distrust()
            self._count_retry(error)
            if isinstance(error, EndedLate):
                self._metrics.count("headwater_late_writes_total", lane=self.spec.name)
                self._settle_rechecks()
            self._holding(f"{type(error).__name__}: {error}")
            return -self._backoff.next()
        self._backoff.reset()
        self._holding(None)
        return PROGRESS_S if wanted is None else wanted

    def _holding(self, why: str | None) -> None:
        if (why is None) != (self._state.holding is None):
            self._metrics.set("headwater_holding", 0 if why is None else 1, lane=self.spec.name)
            if why is not None:
                log.warning("holding: %s", why)
            else:
                log.info("going on after holding")
        self._state.holding = why

    def _count_retry(self, error: Retry) -> None:
        self._metrics.count("headwater_retries_total", lane=self.spec.name, kind=type(error).__name__)

    # ------------------------------------------------------------ progress

    def _checkpoint(self) -> None:
        try:
            forgotten = self._progress.checkpoint(list(self._assignments.values()))
        except Retry as error:
            self._progress.distrust()
            self._count_retry(error)
            return
        if forgotten:
            with self._inbox_changed:
                self._forgotten = forgotten

    def _reopen_forgotten(self, reader: Reader) -> None:
        """Read partitions again that a restored store has forgotten: as after an unclean stop, but still ours."""
        with self._inbox_changed:
            forgotten, self._forgotten = self._forgotten, []
        for old in forgotten:
            if self._assignments.get(old.partition) is not old:
                continue
            reader.pause(old.slots())
            with self._work_lock:
                self.lane.drain([old], self.spec.drain_s)
                old.lease.give_up()
                old.closed = True
                self.lane.closed(old)
                self._progress.forget(old.slots())
            self._purge([old], closed=True)
            # nobody else owned it meanwhile: there is no lease to wait for
            since = self._clock.elapsed() - self.spec.session_s
            self._assignments[old.partition] = self._assignment(old.partition, since)
            self._paused.difference_update(old.slots())
        if forgotten:
            self._takeover_due = 0.0

    def _highwater(self, slot: Slot) -> int | None:
        return self._reader.highwater(slot) if self._reader is not None else None

    # ------------------------------------------------------------ health

    def health(self) -> dict[str, object]:
        """What /healthz answers: state (waiting, running, holding, stopping), partitions, offsets, lease."""
        assignments = sorted(self._assignments.items())
        active = [a for _, a in assignments if a.active]
        if self._state.stopping:
            state = "stopping"
        elif self._state.holding is not None:
            state = "holding"
        else:
            state = "running" if active and len(active) == len(assignments) else "waiting"
        return {
            "lane": self.spec.name,
            "generation": self.spec.generation,
            "owner": self.owner,
            "state": state,
            "holding": self._state.holding,
            "lease_s": round(min((a.lease.left() for a in active), default=0.0), 3),
            "partitions": {str(number): self._partition_health(assignment) for number, assignment in assignments},
        }

    def _partition_health(self, assignment: Assignment) -> dict[str, object]:
        if not assignment.active:
            return {"state": "taking over"}
        topics: dict[str, object] = {}
        for slot in assignment.slots():
            offset = assignment.watermark(slot.topic)
            topics[slot.topic] = {
                "offset": offset,
                "end": max(offset, self._progress.end_of(slot)),
                "open": assignment.open(slot.topic)[0],
                "start": assignment.starts[slot.topic].why,
            }
        return {"state": "open", "topics": topics}
