"""The index consumer's threads: two workers (live, bulk), the encoder, and the finisher.

    scheduler ─take─▶ worker: prepare ──▶ encoder lane ──▶ worker: (stage) commit ──▶ finisher: receipt ▸ done
                         └─ nothing to embed ─────────────────▶ commit

The live worker takes access events and live edits, the bulk worker everything else, so that neither the preparation
of a large document nor a store call for bulk stands before a live edit (invariant 13). Failures follow the four verbs
of ``pipeline.errors`` (invariant 8).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from consumers.encoder_lane import EmbedTask, EncoderLane
from consumers.lease import EndedLate
from consumers.scheduler import DocumentScheduler, Job, Priority, Work
from pipeline.clock import Clock
from pipeline.errors import BodyGone, Crash, DocumentError, Hold, Reject, Retry, StillExtracting, StoreUnavailable
from pipeline.flow import Change, DocumentFlow, Prepared
from pipeline.observe import Metrics
from pipeline.ports import Deadline, Embedder, Record
from pipeline.upkeep import Committed
from schemas.documents import Chunk
from schemas.events import AccessSet, AccessTombstone, ContentDeleted, ContentUpserted, MaintenanceCommand
from schemas.keys import DocumentRef
from schemas.receipts import Coordinates, Outcome, Receipt, StageTimes

log = logging.getLogger(__name__)

LIVE = (Priority.ACCESS, Priority.LIVE)
BULK = (Priority.TAIL, Priority.BULK)
# A content event and the access event that it demands are committed together; their markers reach the partitions
# one after the other.
ACCESS_WAIT_S = 0.01
ACCESS_WAITS = 300
STAGE_CHUNKS = 100


class Surroundings(Protocol):
    """What the workers ask of the consumer around them."""

    def deadline(self, partition: int) -> Deadline:
        """The partition's lease. Raises LeaseLost when it is not ours."""
        ...

    def finished(self, works: Sequence[Work]) -> None:
        """These records need not be read again."""
        ...

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """Publish and wait for the acknowledgement. Raises BusUnavailable."""
        ...

    def dead_letter(self, work: Work, error: Reject, attempts: int, *, parked: bool) -> None:
        """Record the coordinates. Raises BusUnavailable."""
        ...

    def parked(self, document: DocumentRef) -> bool:
        """Whether the document's source is parked."""
        ...

    def outcome(self, document: DocumentRef, error: Reject | None) -> None:
        """Content of a source succeeded or failed: the parking policy counts it. May raise Crash."""
        ...

    def fetch(self, partition: int, offset: int) -> Record | None:
        """The content record at an offset, None when it is gone from the log."""
        ...

    def decode_content(self, record: Record) -> ContentUpserted | ContentDeleted:
        """Raises Reject."""
        ...

    def ask_recheck(self, documents: Sequence[DocumentRef]) -> None:
        """A write of ours ended after the lease: its documents are to be rechecked before anything else is done."""
        ...

    def crash(self, error: BaseException) -> None:
        """Stop the process without committing."""
        ...


@dataclass(eq=False)
class _Running:
    """A job between prepare and commit."""

    job: Job
    prepared: Prepared
    task: EmbedTask | None = None
    staged: set[str] = field(default_factory=set)
    extra: list[Receipt] = field(default_factory=list)


class NewestContent:
    """Version and offset of the newest content event read of each document, bounded: what a recheck restores."""

    def __init__(self, limit: int = 100_000) -> None:
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._limit = limit
        self._lock = threading.Lock()

    def note(self, uid: str, version: int, offset: int) -> None:
        """Remember the event unless a newer one is known."""
        with self._lock:
            if self._known.get(uid, (-1, -1))[0] <= version:
                self._known[uid] = (version, offset)
                self._known.move_to_end(uid)
            while len(self._known) > self._limit:
                self._known.popitem(last=False)

    def get(self, uid: str) -> tuple[int, int] | None:
        """Version and offset, or None."""
        with self._lock:
            return self._known.get(uid)


class IndexWorkers:
    """Owns the threads. ``start`` and ``stop`` once each."""

    def __init__(
        self,
        *,
        flow: DocumentFlow,
        embedder: Embedder,
        scheduler: DocumentScheduler,
        around: Surroundings,
        clock: Clock,
        metrics: Metrics,
        attempts: int,
        slice_ms: int,
        slice_chunks: int,
    ) -> None:
        self.flow = flow
        self.scheduler = scheduler
        self.around = around
        self.clock = clock
        self.metrics = metrics
        self.newest = NewestContent()
        self._attempts = attempts
        self._stopping = threading.Event()
        self._finisher: queue.SimpleQueue[tuple[Job, list[Receipt]] | None] = queue.SimpleQueue()
        self._lanes = (_Lane(self, "live", LIVE), _Lane(self, "bulk", BULK))
        self.encoder = EncoderLane(embedder, self._embedded, clock, slice_ms=slice_ms, first=slice_chunks)
        self._running: dict[int, tuple[_Lane, _Running]] = {}
        self._threads = [
            threading.Thread(target=lane.run, name=f"index-{lane.name}", daemon=True) for lane in self._lanes
        ]
        self._threads.append(threading.Thread(target=self._finish, name="index-finisher", daemon=True))

    def start(self) -> None:
        """Start the threads."""
        self.encoder.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let running jobs end, then end the threads; queued work stays unread."""
        self._stopping.set()
        self.scheduler.wake()
        for thread in self._threads[:-1]:
            thread.join(timeout=30)
        self.encoder.stop()
        self._finisher.put(None)
        self._threads[-1].join(timeout=30)

    @property
    def stopping(self) -> bool:
        """Whether the threads are to end."""
        return self._stopping.is_set()

    # ------------------------------------------------------------------ one job

    def prepare(self, job: Job) -> _Running | None:
        """Read and diff; None when the job needs no commit (finished, put back or rejected on the way)."""
        change, maintenance, extra = self._merge(job)
        for work in job.works:
            if work.fault is not None:
                self.around.dead_letter(work, work.fault, 1, parked=False)
                extra.append(self._receipt(job, work, "dead_letter", reason=work.fault.reason))
        for work, command in maintenance:
            extra.append(self._maintain(job, work, command, change))
        if any(w.kind == "tail" for w in job.works):
            due = self.flow.remove_due(job.document, self.around.deadline(job.partition))
            self._schedule_tail(job, due)
        if change.access is None and change.content is None:
            self._complete(job, extra)
            return None
        self._demand_access(job, change)
        return _Running(job, self.flow.prepare(change), extra=extra)

    def _merge(self, job: Job) -> tuple[Change, list[tuple[Work, MaintenanceCommand]], list[Receipt]]:
        """The newest access and content event of the job; what they replace gets its receipt here."""
        change = Change(document=job.document, ambiguous=any(w.ambiguous for w in job.works))
        maintenance: list[tuple[Work, MaintenanceCommand]] = []
        newest: dict[str, Work] = {}
        replaced: list[Work] = []
        for work in job.works:
            if isinstance(work.event, MaintenanceCommand):
                maintenance.append((work, work.event))
            elif work.kind in ("access", "content") and work.event is not None:
                before = newest.get(work.kind)
                if before is not None and _version(before) > _version(work):
                    replaced.append(work)
                else:
                    newest[work.kind] = work
                    replaced.extend([before] if before is not None else [])
        reason = "a newer event of the document was read with it"
        extra = [self._receipt(job, w, "superseded", reason=reason) for w in replaced]
        for work in newest.values():
            if isinstance(work.event, AccessSet | AccessTombstone):
                change.access = work.event
            elif isinstance(work.event, ContentUpserted | ContentDeleted) and work.record is not None:
                if isinstance(work.event, ContentUpserted) and self.around.parked(job.document):
                    extra.append(self._park(job, work))
                    continue
                change.content = work.event
                change.content_offset = work.record.offset
                self.newest.note(job.document.uid, work.event.version, work.record.offset)
        return change, maintenance, extra

    def _park(self, job: Job, work: Work) -> Receipt:
        error = Reject("the source is parked: most of its content failed", stage="park", kind="parked")
        self.around.dead_letter(work, error, 1, parked=True)
        return self._receipt(job, work, "parked", reason=error.reason)

    def _demand_access(self, job: Job, change: Change) -> None:
        """A content event waits for the access event that it demands, within reason."""
        content = change.content
        if content is None or (change.access is not None and change.access.version >= content.access_version):
            return
        manifest = self.flow.manifests.get(change.document)
        seen = manifest.seen_access_version if manifest is not None else 0
        committed = manifest.content_version if manifest is not None else 0
        if seen < content.access_version and content.version > committed and job.infra_attempts < ACCESS_WAITS:
            raise Hold("the access event that the content demands has not been read yet", seconds=ACCESS_WAIT_S)

    def commit(self, running: _Running) -> None:
        """Write, then hand the receipts to the finisher."""
        job, prepared = running.job, running.prepared
        deadline = self.around.deadline(job.partition)
        done = self.flow.commit(prepared, deadline, staged=frozenset(running.staged))
        deadline.check_ended()
        if isinstance(prepared.change.content, ContentUpserted):
            self.around.outcome(job.document, None)
        self._count(done)
        self._schedule_tail(job, done.remove_due)
        receipts = [
            self._receipt(job, w, done.outcome, done=done, prepared=prepared)
            for w in job.works
            if w.event is not None and any(w.event is e for e in (prepared.change.content, prepared.change.access))
        ]
        self._complete(job, running.extra + receipts)

    def _schedule_tail(self, job: Job, due: int | None) -> None:
        if due is not None:
            wait = max(0.0, (due - self.clock.now()) / 1_000_000) + 0.01
            self.scheduler.add_later(Work("tail", job.document, job.partition, Priority.TAIL), wait)

    def _count(self, done: Committed) -> None:
        name = self.flow.generation.name
        self.metrics.count("headwater_chunks_embedded_total", done.chunks_embedded, generation=name)
        self.metrics.count("headwater_chunks_written_total", done.chunks_written, generation=name)
        self.metrics.count(
            "headwater_chunks_reused_total", max(0, done.chunks_written - done.chunks_embedded), generation=name
        )
        self.metrics.count("headwater_chunks_removed_total", done.chunks_removed, generation=name)

    # ------------------------------------------------------------------ maintenance

    def _elsewhere(self, work: Work) -> bool:
        """Whether a command is for another generation: what becomes of its document here says nothing of it."""
        command = work.event
        return isinstance(command, MaintenanceCommand) and command.generation not in (None, self.flow.generation.name)

    def _maintain(self, job: Job, work: Work, command: MaintenanceCommand, change: Change) -> Receipt:
        if self._elsewhere(work):
            return self._receipt(job, work, "done", reason="for another generation")
        deadline = self.around.deadline(job.partition)
        if command.type == "move" and command.tier is not None:
            moved = self.flow.move(job.document, command.tier, deadline)
            self._schedule_tail(job, moved.remove_due)
            return self._receipt(job, work, moved.outcome, done=moved)
        if command.type == "reprocess" and command.offset is not None:
            self._follow(change, self.flow.unseen_access(job.document, self.flow.manifests.get(job.document)))
            return self._again(job, work, change, command.offset, "done")
        if command.type == "recheck":
            return self._recheck(job, work, command, change, deadline)
        return self._receipt(job, work, "refused", reason="the command lacks its tier or offset")

    def _recheck(
        self, job: Job, work: Work, command: MaintenanceCommand, change: Change, deadline: Deadline
    ) -> Receipt:  # fmt: skip
        found = self.flow.recheck(
            job.document, deadline, chunks=command.chunk_ids, sections=command.section_ids
        )  # fmt: skip
        self._schedule_tail(job, found.remove_due)
        self._follow(change, found.access)
        manifest, known = found.manifest, self.newest.get(job.document.uid)
        self.metrics.count("headwater_rechecks_total", lane="index")
        if known is not None and (manifest is None or manifest.content_version < known[0]):
            return self._again(job, work, change, known[1], "rechecked")
        if not found.whole and manifest is not None and manifest.content_offset >= 0:
            whole = change.force  # asked for as well
            receipt = self._again(job, work, change, manifest.content_offset, "rechecked")
            if change.force and not whole and not found.damaged:
                change.repair = found.broken
            return receipt
        return self._receipt(job, work, "rechecked", removed=found.removed)

    def _follow(self, change: Change, access: AccessSet | AccessTombstone | None) -> None:
        """Take what Access says where it is newer: the event may have been read before the manifest was lost."""
        if access is not None and (change.access is None or change.access.version < access.version):
            change.access = access

    def _again(self, job: Job, work: Work, change: Change, offset: int, outcome: Outcome) -> Receipt:
        """Fold the content event at ``offset`` into the change, unless a newer one is there already."""
        record = self.around.fetch(job.partition, offset)
        if record is None:
            told: Outcome = "refused" if outcome == "done" else outcome
            return self._receipt(job, work, told, reason=f"content offset {offset} is no longer on the log")
        event = self.around.decode_content(record)
        if event.document != job.document:
            return self._receipt(job, work, "refused", reason=f"content offset {offset} holds another document")
        if change.content is None or change.content.version <= event.version:
            change.content, change.content_offset, change.force = event, offset, True
        return self._receipt(job, work, outcome)

    # ------------------------------------------------------------------ ends of a job

    def _complete(self, job: Job, receipts: list[Receipt]) -> None:
        self._finisher.put((job, receipts))

    def failed(self, job: Job, error: Exception) -> None:
        """Apply the verb that the error stands for."""
        if isinstance(error, StillExtracting):
            # Others go on meanwhile: a scan of many pages takes minutes.
            self.scheduler.set_aside(job)
            error.when_done(lambda: self.scheduler.resume(job.document))
        elif isinstance(error, Hold):
            self.scheduler.put_back(job, delay=error.seconds, infrastructure=True)
        elif isinstance(error, Retry):
            self._retry(job, error)
        elif isinstance(error, BodyGone):
            self._body_gone(job, str(error))
        elif isinstance(error, Reject):
            self._reject(job, error)
        elif isinstance(error, Crash):
            self.around.crash(error)
        else:
            log.exception("unexpected error in a document", exc_info=error)
            self._reject(job, DocumentError(f"{type(error).__name__}: {error}"[:300], stage="flow", kind="unexpected"))

    def _retry(self, job: Job, error: Retry) -> None:
        if isinstance(error, StoreUnavailable):
            self.flow.manifests.forget()  # what comes back may be an older copy
        else:
            self.flow.manifests.forget_document(job.document)
        for work in job.works:
            work.ambiguous = True
        self.metrics.count("headwater_retries_total", lane="index", kind=type(error).__name__)
        if isinstance(error, EndedLate):
            self.metrics.count("headwater_late_writes_total", lane="index")
            self.around.ask_recheck([job.document])
        if not job.dropped:
            log.warning("held: %s", error, extra={"fields": {"attempt": job.infra_attempts + 1}})
        delay = min(5.0, 0.05 * 2 ** min(job.infra_attempts, 8))
        self.scheduler.put_back(job, delay=delay, infrastructure=True)

    def _body_gone(self, job: Job, reason: str) -> None:
        asked = ("content", "maintenance")
        receipts = [self._receipt(job, w, "body_gone", reason=reason) for w in job.works if w.kind in asked]
        self._without_content(job, receipts)

    def _reject(self, job: Job, error: Reject) -> None:
        self.flow.manifests.forget_document(job.document)
        if job.attempts + 1 < self._attempts and not error.final:
            self.scheduler.put_back(job, delay=0.02 * (job.attempts + 1), infrastructure=False)
            return
        receipts = []
        try:
            for work in job.works:
                if work.record is not None and work.kind != "access" and not self._elsewhere(work):
                    self.around.dead_letter(work, error, job.attempts + 1, parked=False)
                    receipts.append(self._receipt(job, work, "dead_letter", reason=error.reason))
            self.around.outcome(job.document, error)
        except Retry as infra:
            self._retry(job, infra)
            return
        self._without_content(job, receipts)

    def _without_content(self, job: Job, receipts: list[Receipt]) -> None:
        """The content cannot be processed; an access event beside it still counts."""
        change = Change(document=job.document, ambiguous=True)
        for work in job.works:
            event = work.event
            if isinstance(event, AccessSet | AccessTombstone) and event.version >= (
                change.access.version if change.access is not None else 0
            ):
                change.access = event
        if change.access is None:
            self._complete(job, receipts)
            return
        try:
            self.commit(_Running(job, self.flow.prepare(change), extra=receipts))
        except Retry as error:
            self._retry(job, error)

    def _finish(self) -> None:
        """Publish receipts in batches, then tell that the records need not be read again (invariant 2)."""
        while True:
            item = self._finisher.get()
            if item is None:
                return
            batch = [item]
            while len(batch) < 200:
                try:
                    more = self._finisher.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._finisher.put(None)
                    break
                batch.append(more)
            self._publish(batch)

    def _publish(self, batch: list[tuple[Job, list[Receipt]]]) -> None:
        receipts = [r for _, rs in batch for r in rs]
        attempt = 0
        while receipts:
            try:
                self.around.receipts(receipts)
                break
            except Retry as error:
                attempt += 1
                log.warning("receipts held: %s", error)
                if self._stopping.wait(min(5.0, 0.1 * 2 ** min(attempt, 6))):
                    return  # not acknowledged: the records are read again by the next owner
        for job, _ in batch:
            if not job.dropped:
                self.around.finished([w for w in job.works if w.record is not None])
            self.scheduler.finish(job)

    # ------------------------------------------------------------------ encoder

    def embed(self, lane: _Lane, running: _Running) -> None:
        """Hand the missing texts to the encoder."""
        task = EmbedTask(running.prepared, live=lane.name == "live")
        running.task = task
        self._running[id(task)] = (lane, running)
        self.encoder.submit(task)

    def _embedded(self, task: EmbedTask) -> None:
        lane, running = self._running[id(task)]
        huge = len(running.prepared.add) > self.flow.staged_above
        ready: list[Chunk] = []
        if huge and task.error is None and (len(task.done) >= STAGE_CHUNKS or task.finished):
            ready, task.done = task.done, []
        if task.finished:
            del self._running[id(task)]
        if task.finished or ready:
            lane.ready.append((running, ready, task.finished))
            self.scheduler.wake()

    # ------------------------------------------------------------------ receipts

    def _receipt(
        self, job: Job, work: Work, outcome: Outcome, *, done: Committed | None = None,
        prepared: Prepared | None = None, reason: str | None = None, removed: int = 0,
    ) -> Receipt:  # fmt: skip
        event, record = work.event, work.record
        facts = getattr(event, "source_facts", None)
        updated = facts.updated_at if facts is not None else getattr(event, "source_updated_at", None)
        content = work.kind == "content"
        times = StageTimes(
            source_updated_at=updated, observed_at=getattr(event, "observed_at", None),
            appended_at=record.timestamp if record is not None else None, received_at=work.received_at or None,
            started_at=job.started_at, extracted_at=prepared.extracted_at if prepared is not None and content else None,
            embedded_at=prepared.embedded_at if prepared is not None and content else None,
            visible_at=done.visible_at if done is not None else self.clock.now(),
        )  # fmt: skip
        return Receipt(
            lane="index", generation=self.flow.generation.name, tenant=job.document.tenant, source=job.document.source,
            document=job.document, document_uid=job.document.uid,
            event_type=f"{work.kind}.{getattr(event, 'type', '')}", version=_version(work), outcome=outcome,
            priority="live" if work.priority in LIVE else "bulk", times=times,
            chunks_total=done.chunks_total if done else 0,
            chunks_embedded=done.chunks_embedded if done and content else 0,
            chunks_written=done.chunks_written if done else 0, chunks_removed=done.chunks_removed if done else removed,
            tokens=done.tokens if done and content else 0, reason=reason or (done.reason if done else None),
            coordinates=Coordinates(topic=record.topic, partition=record.partition, offset=record.offset)
            if record is not None
            else None,
        )  # fmt: skip


class _Lane:
    """One worker thread: commits what is ready, then takes the next job of its priorities."""

    def __init__(self, workers: IndexWorkers, name: str, allowed: tuple[Priority, ...]) -> None:
        self.workers = workers
        self.name = name
        self.allowed = allowed
        self.ready: deque[tuple[_Running, list[Chunk], bool]] = deque()

    def run(self) -> None:
        """Until stopped; an unexpected error of the loop itself stops the process."""
        try:
            while not self.workers.stopping:
                if self.ready:
                    self._advance(*self.ready.popleft())
                elif not self._start_one():
                    self.workers.scheduler.wait_for(self.allowed if self._room() else (), 0.1)
        except BaseException as error:
            log.error("a worker stopped", exc_info=True)
            self.workers.around.crash(error)

    def _room(self) -> bool:
        # enough prepared that the encoder never waits, little enough that memory stays bounded
        return self.name == "live" or self.workers.encoder.backlog() < 96

    def _start_one(self) -> bool:
        workers = self.workers
        if not self._room():
            return False
        job = workers.scheduler.take(self.allowed)
        if job is None:
            return False
        try:
            running = workers.prepare(job)
            if running is None:
                return True
            if running.prepared.missing():
                workers.embed(self, running)
            else:
                workers.commit(running)
        except Exception as error:
            workers.failed(job, error)
        return True

    def _advance(self, running: _Running, chunks: list[Chunk], finished: bool) -> None:
        workers, job = self.workers, running.job
        assert running.task is not None
        try:
            if running.task.error is not None:
                raise running.task.error
            if chunks:
                deadline = workers.around.deadline(job.partition)
                listed = {c.embed_hash for c in chunks}
                group = [c for c in running.prepared.add if c.embed_hash in listed and c.chunk_id not in running.staged]
                workers.flow.stage(running.prepared, group, deadline)
                running.staged.update(c.chunk_id for c in group)
            if finished:
                workers.commit(running)
        except Exception as error:
            if finished:
                workers.failed(job, error)
            else:
                running.task.error = error


def _version(work: Work) -> int:
    version = getattr(work.event, "version", None)
    if isinstance(version, int):
        return version
    return getattr(work.event, "requested_at", 0)
