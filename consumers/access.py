"""The access consumer: access and membership events into the two record collections that every query checks.

A revocation is one write here (invariant 4), so nothing slow stands before it: no model, no extraction, live keys
before bulk keys, many keys a write. It reads uncommitted (an aborted access event was still truly read by the fenced
owner). What it cannot read closes the document or ends the principal (invariant 12).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from consumers.access_records import AccessStore, DocumentSide, Event, PrincipalSide, Scan, Side, Wanted
from consumers.assignment import Assignment
from consumers.dead_letter import DeadLetters, coordinates_of
from consumers.lanes import LaneSpec, LaneTopic
from consumers.lease import PRINCIPALS, Rechecks
from consumers.runtime import Hooks
from pipeline.bus.codec import Undecodable, decode, decode_access, decode_membership, encode
from pipeline.bus.folding import EMPTY
from pipeline.clock import Clock
from pipeline.errors import Reject
from pipeline.observe import Metrics, metrics
from pipeline.ports import Outgoing, Publisher, Record
from pipeline.settings import Settings
from schemas.events import ACCESS_ONLY, HoldChanged, MaintenanceCommand
from schemas.keys import DocumentRef, membership_key, partition_of
from schemas.receipts import Lane, Outcome, Receipt, StageTimes
from schemas.topics import Topic

log = logging.getLogger("headwater.access")

GROUP = "access"
BATCH = 100
WINDOW = 5_000  # small records; read far ahead, so that a live event is seen behind bulk ones

T = TypeVar("T")
K = TypeVar("K")


@dataclass(eq=False)
class Item:
    """One record on its way. ``outcome`` is set once its effect is durable (or where it has none)."""

    assignment: Assignment
    record: Record
    queue: str  # items of one queue keep their order
    live: bool = True
    document: DocumentRef | None = None
    principal: tuple[str, str] | None = None
    event: Any = None  # Event, MaintenanceCommand, or None where it does not concern this lane
    received_at: int = 0
    outcome: Outcome | None = None
    visible_at: int | None = None
    buried: bool = False

    @property
    def lane(self) -> Lane:
        """Lane of its receipt and metrics."""
        return "membership" if self.principal is not None else "access"

    @property
    def tenant(self) -> str | None:
        """Tenant, as far as it is known."""
        if self.document is not None:
            return self.document.tenant
        return self.principal[0] if self.principal is not None else None


def spec_of_access(settings: Settings) -> LaneSpec:
    """How the access lane consumes."""
    return LaneSpec(
        name="access",
        topics=(
            LaneTopic(Topic.ACCESS, progress="access"),
            LaneTopic(Topic.MEMBERSHIP, progress="membership"),
            LaneTopic(Topic.MAINTENANCE),
        ),
        session_s=settings.kafka.access_session_s,
        timeout_s=settings.weaviate.timeout_s,
        safety_window=settings.kafka.safety_window,
        window_records=WINDOW,
        backoff_max_s=1.0,
    )


class AccessLane:
    """``consumers.runtime.Lane`` of the access consumer."""

    def __init__(
        self,
        spec: LaneSpec,
        *,
        store: AccessStore,
        publisher: Publisher,
        rechecks: Rechecks,
        dead_letters: DeadLetters,
        scan: Scan,
        clock: Clock,
        partitions: int,
        observed: Metrics | None = None,
    ) -> None:
        self.spec = spec
        self._publisher = publisher
        self._dead_letters = dead_letters
        self._clock = clock
        self._partitions = partitions
        self._metrics = observed if observed is not None else metrics()
        self._documents = DocumentSide(store, rechecks, scan, clock)
        self._principals = PrincipalSide(store, rechecks, scan, clock)
        self._queues: dict[str, list[Item]] = {}
        self._live: OrderedDict[str, None] = OrderedDict()
        self._bulk: OrderedDict[str, None] = OrderedDict()
        self._batch: list[Item] = []

    # ------------------------------------------------------------ lane

    def opened(self, assignment: Assignment) -> None:
        """See ``Lane.opened``."""
        self._documents.opened(assignment)
        self._principals.opened(assignment)

    def closed(self, assignment: Assignment) -> None:
        """See ``Lane.closed``."""
        self._documents.closed(assignment)
        self._principals.closed(assignment)
        self._batch = [item for item in self._batch if item.assignment is not assignment]
        for queue in list(self._queues):
            kept = [item for item in self._queues[queue] if item.assignment is not assignment]
            if kept:
                self._queues[queue] = kept
            else:
                del self._queues[queue]
                self._live.pop(queue, None)
                self._bulk.pop(queue, None)

    def drain(self, assignments: Sequence[Assignment], seconds: float) -> bool:
        """See ``Lane.drain``: all work happens in ``work``, so nothing is ever in flight here."""
        return True

    def accept(self, assignment: Assignment, record: Record) -> None:
        """See ``Lane.accept``."""
        item = self._read(assignment, record)
        item.received_at = self._clock.now()
        self._queues.setdefault(item.queue, []).append(item)
        if item.live:
            self._bulk.pop(item.queue, None)
            self._live[item.queue] = None
        elif item.queue not in self._live:
            self._bulk[item.queue] = None

    def work(self) -> float | None:
        """See ``Lane.work``: one batch, live keys first. A failed batch stays and is done again."""
        if not self._batch:
            self._batch = self._take()
        if not self._batch:
            return None
        self._settle(self._batch)
        for item in self._batch:
            item.assignment.done(item.record)
        self._batch = []
        return 0 if self._queues else None

    def _take(self) -> list[Item]:
        batch: list[Item] = []
        for queues in (self._live, self._bulk):
            while queues and len(batch) < BATCH:
                queue, _ = queues.popitem(last=False)
                batch.extend(self._queues.pop(queue))
        return batch

    # ------------------------------------------------------------ reading

    def _read(self, assignment: Assignment, record: Record) -> Item:
        if record.topic == Topic.ACCESS:
            return self._read_access(assignment, record)
        if record.topic == Topic.MEMBERSHIP:
            return self._read_membership(assignment, record)
        return self._read_maintenance(assignment, record)

    def _read_access(self, assignment: Assignment, record: Record) -> Item:
        event = decode_access(record)
        document = event.document
        if document is None or not self._ours(document.key, record):
            return self._unplaceable(assignment, record, event)
        bulk = not isinstance(event, (Undecodable, HoldChanged)) and event.priority == "bulk"
        return Item(assignment, record, f"d{document.key}", live=not bulk, document=document, event=event)

    def _read_membership(self, assignment: Assignment, record: Record) -> Item:
        event = decode_membership(record)
        principal = event.principal if isinstance(event, Undecodable) else (event.tenant, event.principal)
        if principal is None or not self._ours(membership_key(*principal), record):
            return self._unplaceable(assignment, record, event)
        return Item(assignment, record, f"p{membership_key(*principal)}", principal=principal, event=event)

    def _read_maintenance(self, assignment: Assignment, record: Record) -> Item:
        nothing = Item(assignment, record, "ignored", live=False, outcome="done")
        try:
            command = decode(record, MaintenanceCommand)
        except Reject:
            return nothing  # the index consumers write its dead letter
        if command.type != "recheck" or command.generation not in (None, ACCESS_ONLY):
            return nothing
        document = command.document
        if document.source == PRINCIPALS:
            principal = (document.tenant, document.id)
            key = membership_key(*principal)
            item = Item(assignment, record, f"p{key}", principal=principal, event=command)
        else:
            key = document.key
            item = Item(assignment, record, f"d{key}", document=document, event=command)
        return item if self._ours(key, record) else nothing

    def _ours(self, key: str, record: Record) -> bool:
        """Records on a foreign partition are not ours to write (invariant 1)."""
        return partition_of(key, self._partitions) == record.partition

    def _unplaceable(self, assignment: Assignment, record: Record, event: Event) -> Item:
        """Nothing that could be closed: an alarm and a dead letter."""
        if not isinstance(event, Undecodable):
            event = Undecodable(record, "wrong_partition", "the record lies on another partition than its key's")
        self._metrics.count("headwater_unhandled_undecodable_total", lane=self.spec.name, kind=event.kind)
        fields = _where(record) | {"kind": event.kind}
        log.error("record names nothing that could be closed", extra={"fields": fields})
        return Item(assignment, record, f"x{record.topic}", event=event)

    # ------------------------------------------------------------ doing

    def _settle(self, batch: list[Item]) -> None:
        self._bury(batch)
        self._recheck([i for i in batch if i.outcome is None and isinstance(i.event, MaintenanceCommand)])
        documents = [i for i in batch if i.outcome is None and i.document is not None]
        principals = [i for i in batch if i.outcome is None and i.principal is not None]
        self._apply(self._documents, documents, lambda item: item.document)
        self._apply(self._principals, principals, lambda item: item.principal)
        self._bury([item for item in batch if item.outcome == "closed"])
        self._publish(batch)

    def _bury(self, batch: list[Item]) -> None:
        for item in batch:
            if not isinstance(item.event, Undecodable) or item.buried:
                continue
            if item.event.kind == EMPTY and item.tenant is not None and item.outcome is None:
                continue  # the end of a key: nothing is wrong where what it named has ended
            event = item.event
            self._dead_letters.bury(item.record, event.reject(), document=event.document, version=event.version)
            item.buried = True
            if item.document is None and item.principal is None:
                item.outcome = "dead_letter"

    def _apply(self, side: Side[Any, Any], items: list[Item], target: Callable[[Item], Any]) -> None:
        for _, of_tenant in _by(items, lambda item: item.tenant):
            events = [(i.assignment, target(i), i.event, i.record.offset) for i in of_tenant]
            effects = side.apply(events)
            now = self._clock.now()
            for item, effect in zip(of_tenant, effects, strict=True):
                item.outcome = effect
                item.visible_at = now
                self._note(item, now)

    def _note(self, item: Item, now: int) -> None:
        if isinstance(item.event, Undecodable):
            if item.event.kind == EMPTY and item.outcome == "unchanged":
                return
            self._metrics.count("headwater_closed_total", lane=item.lane, kind=item.event.kind)
            fields = _where(item.record) | {"kind": item.event.kind, "reason": item.event.reason}
            log.error("not understood, hence nobody", extra={"fields": fields})
        elif item.outcome == "applied":
            priority = "live" if item.live else "bulk"
            lag = (now - item.record.timestamp) / 1_000_000
            self._metrics.observe("headwater_event_lag_seconds", lag, lane=item.lane, priority=priority)
            updated = getattr(item.event, "source_updated_at", None)
            if updated is not None and item.document is not None:
                self._metrics.observe(
                    "headwater_source_lag_seconds",
                    (now - updated) / 1_000_000,
                    lane=item.lane,
                    source=item.document.source,
                )

    def _recheck(self, items: list[Item]) -> None:
        for assignment, of_assignment in _by(items, lambda item: item.assignment):
            documents = list(dict.fromkeys(i.document for i in of_assignment if i.document is not None))
            principals = list(dict.fromkeys(i.principal for i in of_assignment if i.principal is not None))
            self._documents.recheck(assignment, documents)
            self._principals.recheck(assignment, principals)
            for item in of_assignment:
                item.outcome = "rechecked"
                item.visible_at = self._clock.now()
            count = len(documents) + len(principals)
            self._metrics.count("headwater_rechecks_total", count, lane=self.spec.name)

    # ------------------------------------------------------------ receipts

    def _publish(self, batch: list[Item]) -> None:
        receipts = [receipt for item in batch if (receipt := self._receipt(item)) is not None]
        if not receipts:
            return
        self._publisher.publish([_outgoing(receipt) for receipt in receipts])
        for receipt in receipts:
            self._metrics.count("headwater_outcomes_total", lane=receipt.lane, outcome=receipt.outcome)

    def _receipt(self, item: Item) -> Receipt | None:
        if item.tenant is None or item.outcome is None:
            return None
        event = item.event
        version = getattr(event, "version", None)
        return Receipt(
            lane=item.lane,
            tenant=item.tenant,
            source=item.document.source if item.document else getattr(event, "source", None),
            document=item.document,
            document_uid=item.document.uid if item.document else None,
            principal=item.principal[1] if item.principal else None,
            event_type=str(getattr(event, "type", "unreadable")),
            version=version if version is not None else 0,
            outcome=item.outcome,
            priority="live" if item.live else "bulk",
            times=StageTimes(
                source_updated_at=getattr(event, "source_updated_at", None),
                observed_at=getattr(event, "observed_at", None),
                appended_at=item.record.timestamp,
                received_at=item.received_at,
                visible_at=item.visible_at,
            ),
            reason=event.reason if isinstance(event, Undecodable) else None,
            coordinates=coordinates_of(item.record),
        )


def _outgoing(receipt: Receipt) -> Outgoing:
    if receipt.document is not None:
        key = receipt.document.key
    else:
        key = membership_key(receipt.tenant, receipt.principal or "")
    return Outgoing(str(Topic.RECEIPTS), key, encode(receipt), partition_key=key)


def _where(record: Record) -> dict[str, object]:
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}


def _by(items: Iterable[T], key: Callable[[T], K]) -> Iterator[tuple[K, list[T]]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    yield from groups.items()


# ---------------------------------------------------------------- process


def log_scan(settings: Settings) -> Scan:
    """Reads the wanted keys of a partition from Kafka, aborted events included as the lane reads them."""

    def scan(topic: Topic, partition: int, wanted: Wanted) -> Iterable[Record]:
        from pipeline.bus.consumer import read_compacted

        return read_compacted(settings, topic, partitions=[partition], wanted=wanted, isolation="read_uncommitted")

    return scan


def main(arguments: Sequence[str]) -> int:
    """``python -m consumers access [--member NAME]``."""
    from consumers.process import parse
    from pipeline.settings import load

    options = parse("access", arguments, "Applies access and membership events to the store.")
    return serve(load(), options.member)


def serve(settings: Settings, member: str | None = None, *, hooks: Hooks | None = None) -> int:
    """Run until a signal comes; the exit status. ``hooks`` is where fault tests stop it."""
    from consumers.connected import connected
    from consumers.process import Stopped, Stopping, run
    from consumers.runtime import Runtime
    from pipeline.bus.consumer import KafkaReader
    from pipeline.bus.interface import Listener, Reader
    from pipeline.clock import SystemClock

    stopping = Stopping()
    clock = SystemClock()
    spec = spec_of_access(settings)

    def reader(listener: Listener) -> Reader:
        return KafkaReader(
            settings,
            GROUP,
            [topic.topic for topic in spec.topics],
            listener,
            session_s=spec.session_s,
            isolation="read_uncommitted",
            member=member,
            clock=clock,
        )

    try:
        with connected(settings, "access", stopping) as (publisher, store):
            rechecks = Rechecks(publisher, clock, ACCESS_ONLY)
            lane = AccessLane(
                spec,
                store=store,
                publisher=publisher,
                rechecks=rechecks,
                dead_letters=DeadLetters(publisher, "access", clock),
                scan=log_scan(settings),
                clock=clock,
                partitions=settings.kafka.partitions,
            )
            runtime = Runtime(lane, reader=reader, store=store, rechecks=rechecks, clock=clock, hooks=hooks)
            return run(runtime, stopping)
    except Stopped:
        return 0
