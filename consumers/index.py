"""The index consumer of one generation: content, access and maintenance in, committed manifests out.

Polling, membership, leases, progress and offsets are the runtime's (``consumers.runtime``); order, priorities and
threads are ``consumers.scheduler`` and ``consumers.index_worker``; what happens to a document is ``pipeline.flow``.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from consumers.assignment import Assignment
from consumers.dead_letter import DeadLetters
from consumers.index_worker import IndexWorkers
from consumers.lanes import LaneSpec, LaneTopic
from consumers.lease import NotSent, Rechecks
from consumers.parking import Parking, ParkingPolicy
from consumers.runtime import Hooks
from consumers.scheduler import DocumentScheduler, Priority, Work
from pipeline.bus.codec import Undecodable, decode, decode_access, decode_content
from pipeline.clock import Clock
from pipeline.errors import ConfigError, Crash, Reject, Retry
from pipeline.flow import DocumentFlow
from pipeline.observe import Metrics
from pipeline.ports import Deadline, Embedder, Outgoing, Publisher, Record
from pipeline.settings import Settings
from schemas.access import AccessRule
from schemas.events import (
    AccessSet,
    AccessTombstone,
    ContentDeleted,
    ContentUpserted,
    HoldChanged,
    MaintenanceCommand,
)
from schemas.generation import EncoderSpec, Generation
from schemas.keys import DocumentRef
from schemas.receipts import Coordinates, Receipt
from schemas.topics import Topic

log = logging.getLogger(__name__)

Fetch = Callable[[int, int], Record | None]


def lane_spec(settings: Settings, generation: str) -> LaneSpec:
    """How the index lane consumes: access before content is the scheduler's affair, not the subscription's."""
    return LaneSpec(
        name="index",
        topics=(
            LaneTopic(Topic.CONTENT, "index"),
            LaneTopic(Topic.ACCESS, "index"),
            LaneTopic(Topic.MAINTENANCE, "index", first="end"),
        ),
        session_s=settings.kafka.index_session_s,
        generation=generation,
        timeout_s=settings.weaviate.timeout_s,
        safety_window=settings.kafka.safety_window,
        window_records=settings.index.window_records,
        window_bytes=settings.index.window_bytes,
        drain_s=min(5.0, settings.kafka.index_session_s / 2),
    )


class IndexLane:
    """Implements ``runtime.Lane`` for the runtime and ``index_worker.Surroundings`` for the workers."""

    def __init__(
        self,
        *,
        settings: Settings,
        flow: DocumentFlow,
        embedder: Embedder,
        publisher: Publisher,
        rechecks: Rechecks,
        fetch: Fetch,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        generation = flow.generation.name
        if embedder.spec != flow.generation.encoder:
            raise ConfigError(
                "encoder",
                f"it is {_shown(embedder.spec)}, generation {generation} is written with "
                f"{_shown(flow.generation.encoder)}",
                "Build a generation of its own for another encoder: two in one index do not mix.",
            )
        self.spec = lane_spec(settings, generation)
        self.scheduler = DocumentScheduler(clock)
        self._clock = clock
        self._metrics = metrics
        self._publisher = publisher
        self._rechecks = rechecks
        self._fetch = fetch
        self._letters = DeadLetters(publisher, "index", clock, generation=generation, observed=metrics)
        self._parking = Parking(ParkingPolicy.of(settings.index))
        self._parking_lock = threading.Lock()
        self._assignments: dict[int, Assignment] = {}
        self._error: BaseException | None = None
        self.workers = IndexWorkers(
            flow=flow,
            embedder=embedder,
            scheduler=self.scheduler,
            around=self,
            clock=clock,
            metrics=metrics,
            attempts=settings.index.attempts,
            slice_ms=settings.index.slice_ms,
            slice_chunks=settings.index.slice_chunks,
        )

    # ------------------------------------------------------------------ runtime.Lane

    def opened(self, assignment: Assignment) -> None:
        """A partition begins."""
        self._assignments[assignment.partition] = assignment

    def accept(self, assignment: Assignment, record: Record) -> None:
        """Decode and queue one record."""
        work = self._work_of(record)
        if work is None:
            assignment.done(record)
            return
        work.ambiguous = assignment.ambiguous(record)
        self.scheduler.add(work)

    def work(self) -> float | None:
        """The threads work by themselves; what stopped one of them stops the lane."""
        if self._error is not None:
            raise self._error
        return 0.1

    def drain(self, assignments: Sequence[Assignment], seconds: float) -> bool:
        """Finish the jobs in work and forget the queued ones; they are read again by the next owner."""
        partitions = [a.partition for a in assignments]
        self.scheduler.drop(partitions, running=False)
        return self.scheduler.drain(partitions, seconds, until=lambda: self._error is not None)

    def closed(self, assignment: Assignment) -> None:
        """A partition is given up."""
        self.scheduler.drop([assignment.partition])
        if self._assignments.get(assignment.partition) is assignment:
            del self._assignments[assignment.partition]
        # another owner may write these documents from now on
        self.workers.flow.manifests.forget()

    # ------------------------------------------------------------------ decoding

    def _work_of(self, record: Record) -> Work | None:
        now = self._clock.now()
        if record.topic == Topic.ACCESS:
            return self._access_work(record, now)
        if record.topic == Topic.CONTENT:
            return self._content_work(record, now)
        try:
            command = decode(record, MaintenanceCommand)
        except Reject as error:
            return _faulty("maintenance", record, None, error, now)
        priority = Priority.LIVE if command.priority == "live" else Priority.BULK
        return Work("maintenance", command.document, record.partition, priority, record, command, now)

    def _access_work(self, record: Record, now: int) -> Work | None:
        event = decode_access(record)
        if isinstance(event, HoldChanged) or record.value is None:
            return None  # admission alone looks at holds; the end of a key closes in the access lane
        if isinstance(event, Undecodable):
            if event.document is None:
                return None  # the access lane raises the alarm
            event = _closed(event, record)
        priority = Priority.BULK if event.priority == "bulk" else Priority.ACCESS
        return Work("access", event.document, record.partition, priority, record, event, now)

    def _content_work(self, record: Record, now: int) -> Work | None:
        event = decode_content(record)
        if not isinstance(event, Undecodable):
            priority = Priority.BULK if event.priority == "bulk" else Priority.LIVE
            return Work("content", event.document, record.partition, priority, record, event, now)
        if record.value is None:
            return None  # the log's own end of a deleted document, long after the deletion was processed
        faulty = _faulty("content", record, event.document, event.reject(), now)
        if event.deletion and event.document is not None:
            # the document is gone even though the event is not understood: hidden and removed regardless
            version = event.version if event.version is not None else record.timestamp
            faulty.event = ContentDeleted(
                document=event.document, version=version, access_version=0, observed_at=record.timestamp,
                reason="unreadable deletion",
            )  # fmt: skip
        return faulty

    # ------------------------------------------------------------------ index_worker.Surroundings

    def deadline(self, partition: int) -> Deadline:
        """The partition's lease."""
        assignment = self._assignments.get(partition)
        if assignment is None or assignment.closed:
            raise NotSent(f"partition {partition} is not ours any more; nothing was written")
        return assignment.lease

    def finished(self, works: Sequence[Work]) -> None:
        """Mark records as done."""
        for work in works:
            assignment = self._assignments.get(work.partition)
            if assignment is not None and work.record is not None and assignment.active:
                assignment.done(work.record)

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """Publish receipts next to their documents and count them."""
        self._publisher.publish(
            [
                Outgoing(
                    topic=str(Topic.RECEIPTS),
                    key=r.document.key if r.document is not None else r.tenant,
                    value=r.model_dump_json(exclude_none=True).encode("utf-8"),
                )
                for r in receipts
            ]
        )
        for receipt in receipts:
            self._metrics.count("headwater_outcomes_total", lane="index", outcome=receipt.outcome)
            times = receipt.times
            if times.visible_at is not None and times.appended_at is not None:
                lag = (times.visible_at - times.appended_at) / 1_000_000
                self._metrics.observe("headwater_event_lag_seconds", lag, lane="index", priority=receipt.priority)

    def dead_letter(self, work: Work, error: Reject, attempts: int, *, parked: bool) -> None:
        """Write the coordinates."""
        if work.record is not None:
            version = getattr(work.event, "version", None)
            document = None if work.nameless else work.document
            self._letters.bury(
                work.record, error, attempts=attempts, document=document, version=version, parked=parked,
                at=_asked_for(work),
            )  # fmt: skip

    def parked(self, document: DocumentRef) -> bool:
        """Whether the document's source is parked (and this record is not its probe)."""
        with self._parking_lock:
            return not self._parking.try_it(document.tenant, document.source)

    def outcome(self, document: DocumentRef, error: Reject | None) -> None:
        """Count for parking; several sources that fail alike stop the process."""
        with self._parking_lock:
            if error is None:
                self._parking.succeeded(document.tenant, document.source)
            elif self._parking.failed(document.tenant, document.source, error.kind):
                log.error("source parked: most of its content fails", extra={"fields": {"source": document.source}})
            self._metrics.set("headwater_parked_sources", len(self._parking.parked()), lane="index")
            kind = self._parking.common_kind()
        if kind is not None:
            raise Crash(f"several sources are parked with the same error ({kind}): the fault is here, not at them")

    def fetch(self, partition: int, offset: int) -> Record | None:
        """The content record at an offset."""
        return self._fetch(partition, offset)

    def decode_content(self, record: Record) -> ContentUpserted | ContentDeleted:
        """A content event, or Reject."""
        event = decode_content(record)
        if isinstance(event, Undecodable):
            raise event.reject()
        return event

    def ask_recheck(self, documents: Sequence[DocumentRef]) -> None:
        """The runtime publishes what is owed before anything else is done."""
        self._rechecks.owe(documents)

    def crash(self, error: BaseException) -> None:
        """Stop the lane; the first error counts."""
        if self._error is None:
            self._error = error


def _shown(encoder: EncoderSpec) -> str:
    return f"{encoder.model} at {encoder.revision[:12]}, dimension {encoder.dimension}, pooling {encoder.pooling}"


def _asked_for(work: Work) -> Coordinates | None:
    """The content record that a replay reads again: when it fails, that is what failed once more."""
    command = work.event
    if not isinstance(command, MaintenanceCommand) or command.type != "reprocess" or command.offset is None:
        return None
    return Coordinates(topic=str(Topic.CONTENT), partition=work.partition, offset=command.offset)


def _closed(event: Undecodable, record: Record) -> AccessSet | AccessTombstone:
    """What an access record that is not understood means: nobody (invariant 12)."""
    assert event.document is not None
    version = event.version if event.version is not None else record.timestamp
    if event.deletion:
        return AccessTombstone(
            document=event.document, version=version, not_before=version, observed_at=record.timestamp
        )
    rule = AccessRule.nobody(f"unreadable access record: {event.reason}")
    return AccessSet(
        document=event.document, version=version, content_version=0, rule=rule, observed_at=record.timestamp
    )


def _faulty(kind: str, record: Record, document: DocumentRef | None, error: Reject, now: int) -> Work:
    """Work that is rejected as soon as it is taken; a record that names no document gets a place of its own."""
    known = document or DocumentRef(
        tenant="unknown", source="unknown", kind="record", id=f"{record.topic}/{record.partition}/{record.offset}"
    )
    assert kind in ("content", "maintenance")
    return Work(
        "content" if kind == "content" else "maintenance", known, record.partition, Priority.LIVE, record,
        received_at=now, fault=error, nameless=document is None,
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """``python -m consumers index [--generation NAME] [--member NAME] [--bulk]``: consumes for one generation."""
    from consumers.process import parser_of
    from pipeline.settings import load

    parser = parser_of("index", "Extracts, chunks, embeds and writes documents of one generation.")
    parser.add_argument("--generation", help="the generation that is written; else the one that the settings name")
    parser.add_argument("--bulk", action="store_true", help="work at low priority and embed when the machine is idle")
    parser.add_argument("--parent", type=int, help="leave in order when this process, which started it, is gone")
    options = parser.parse_args(list(arguments))
    settings = load()
    return serve(
        settings, options.member, generation=options.generation, bulk=options.bulk, parent=options.parent
    )  # fmt: skip


def serve(
    settings: Settings,
    member: str | None = None,
    *,
    generation: str | None = None,
    bulk: bool = False,
    parent: int | None = None,
    hooks: Hooks | None = None,
    crash_point: Callable[[str], None] | None = None,
) -> int:
    """Run until a signal comes or the generation is retired; the exit status.

    ``generation`` None takes the one that the settings name. ``hooks`` and ``crash_point`` are where fault tests stop
    it.
    """
    from consumers.priority import lowered, native_idle
    from consumers.process import Stopped, Stopping, run
    from consumers.runtime import Runtime
    from consumers.watch import GenerationWatch, follow_parent
    from pipeline.bootstrap import build_encoder, build_extractor, build_flow
    from pipeline.bus.consumer import KafkaReader
    from pipeline.bus.fetch import RecordFetcher
    from pipeline.bus.interface import Listener, Reader
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.topics import ensure_topics
    from pipeline.clock import SystemClock
    from pipeline.index.store import WeaviateStore
    from pipeline.observe import metrics

    stopping = Stopping()
    if parent is not None:
        follow_parent(parent, stopping)
    clock = SystemClock()
    # the live worker must not wait five milliseconds for every switch from a thread that prepares bulk
    sys.setswitchinterval(0.0005)
    name = generation if generation is not None else settings.generation
    try:
        stopping.retry("Kafka", lambda: ensure_topics(settings))
        publisher = stopping.retry("Kafka", lambda: KafkaPublisher(settings, "index"))
        store = stopping.retry("Weaviate", lambda: WeaviateStore(settings))
        stopping.retry("Weaviate", store.ensure_base)
        record = stopping.retry(f"generation {name}", lambda: declared(store.read_generations(), name))
        stopping.retry("Weaviate", lambda: store.ensure_generation(record))
    except Stopped:
        return 0
    fetch = RecordFetcher(settings, Topic.CONTENT)
    rechecks = Rechecks(publisher, clock, record.name)

    def load() -> Embedder:
        return stopping.retry("the encoder", lambda: build_encoder(settings, record))

    extractor = build_extractor(settings, partial(_extracted, metrics()))
    if bulk:
        lowered(extractor.warm)  # its children are as low
    else:
        extractor.warm()
    try:
        embedder = native_idle(load) if bulk else load()
    except Stopped:
        extractor.close()
        return 0
    flow = build_flow(settings, record, store, clock, extractor, similarity=embedder.embed_documents)
    if crash_point is not None:
        flow.crash_point = crash_point
    lane = IndexLane(
        settings=settings, flow=flow, embedder=embedder, publisher=publisher, rechecks=rechecks, fetch=fetch,
        clock=clock, metrics=metrics(),
    )  # fmt: skip

    def reader(listener: Listener) -> Reader:
        return KafkaReader(
            settings, group_of(record.name), [t.topic for t in lane.spec.topics], listener,
            session_s=lane.spec.session_s, member=member, clock=clock,
        )  # fmt: skip

    runtime = Runtime(lane, reader=reader, store=store, rechecks=rechecks, clock=clock, hooks=hooks)
    GenerationWatch(record, store.read_generations, stopping, runtime.fail).start()
    if bulk:
        lowered(lane.workers.start)  # this thread, which keeps the membership by polling, stays as it is
    else:
        lane.workers.start()
    try:
        return run(runtime, stopping)
    finally:
        lane.workers.stop()
        extractor.close()
        fetch.close()
        publisher.close()
        store.close()


def _extracted(metrics: Metrics, media: str, seconds: float, outcome: str) -> None:
    metrics.count("headwater_extracted_total", media=media, outcome=outcome)
    metrics.observe("headwater_extract_seconds", seconds, media=media)


def group_of(generation: str) -> str:
    """Consumer group of a generation, without the namespace."""
    return f"index.{generation}"


def declared(known: Mapping[str, Generation], name: str) -> Generation:
    """The generation's record. Raises Retry while the control consumer has not created it."""
    generation = known.get(name)
    if generation is None:
        raise Retry("the control consumer has not created it yet")
    if generation.state == "retired":
        raise ConfigError("generation", f"{name} is retired", "Name a generation that is not.")
    return generation
