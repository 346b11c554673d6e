"""Appends an owner's changes in small transactions and does what follows once each is on the log.

Order of safety: the body is in its store, then the transaction commits, then dead letters for refused bodies, then the
bodies of deleted documents go. A failure anywhere leaves the ledger in doubt: the owner starts again from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.ports import Appended, Appender, Outgoing, Publisher
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Change, Limits, Refusal, Transaction, transactions
from pipeline.sources.ledger import Ledger
from schemas.events import ContentDeleted, SourceCursor
from schemas.receipts import Coordinates, DeadLetter, Receipt, StageTimes
from schemas.topics import Topic

log = logging.getLogger("headwater.owner")


class OwnerWriter:
    """Used by the one thread that owns the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        appender: Appender,
        publisher: Publisher,
        bodies: BodyPlacer,
        clock: Clock,
        observed: Metrics,
        limits: Limits,
    ) -> None:
        self._ledger, self._appender, self._publisher = ledger, appender, publisher
        self._bodies, self._clock, self._metrics, self._limits = bodies, clock, observed, limits
        self.content_ends: dict[int, int] = {}  # by partition: the offset after our last content event
        self.replaced_ends: dict[int, int] = {}  # the same of those content events that replace an older text
        self.content_records = 0  # content events written since the start

    def write(
        self,
        changes: Sequence[Change],
        cursor: Callable[[], SourceCursor],
        last: Callable[[], SourceCursor] | None = None,
    ) -> list[tuple[Transaction, list[Appended]]]:
        """Append; the transactions with where their records stand. Raises BusUnavailable, or Crash when fenced."""
        written = []
        for transaction in transactions(changes, cursor, self._limits, last):
            appended = self._appender.append(transaction.records)
            self._note(transaction, appended)
            written.append((transaction, appended))
        return written

    def append(self, records: Sequence[Outgoing]) -> None:
        """Append records that belong to no change (a cursor, forgotten states)."""
        for start in range(0, len(records), self._limits.events):
            self._appender.append(records[start : start + self._limits.events])

    def _note(self, transaction: Transaction, appended: Sequence[Appended]) -> None:
        source = self._ledger.source
        for place in appended:
            if place.topic == Topic.CONTENT:
                ends = self.content_ends
                ends[place.partition] = max(ends.get(place.partition, 0), place.offset + 1)
                self.content_records += 1
            if place.topic != Topic.CURSORS:
                self._metrics.count("headwater_appended_total", source=source, topic=str(place.topic))
        replacing = {event.version for change in transaction.changes if change.replaces for event in change.content}
        for version, place in zip(transaction.versions(), appended, strict=True):
            if version in replacing:
                ends = self.replaced_ends
                ends[place.partition] = max(ends.get(place.partition, 0), place.offset + 1)
        refused = [c.refusal for c in transaction.changes if c.refusal is not None]
        if refused:
            self._publisher.publish(list(self._dead_letters(refused, transaction, appended)))
        for change in transaction.changes:
            if change.document is not None and any(isinstance(e, ContentDeleted) for e in change.content):
                self._bodies.remove(change.document, change.drop_body)

    def _dead_letters(
        self, refused: Iterable[Refusal], transaction: Transaction, appended: Sequence[Appended]
    ) -> Iterable[Outgoing]:
        """Coordinates are those of the owner's state record: there is no content event that could be named."""
        places = {r.key: a for r, a in zip(transaction.records, appended, strict=True) if r.topic == Topic.CURSORS}
        for refusal in refused:
            document, now = refusal.document, self._clock.now()
            place = places[document.state_key()]
            where = Coordinates(topic=str(place.topic), partition=place.partition, offset=place.offset)
            log.warning(
                "refused %s: %s", document.key, refusal.reason, extra={"fields": {"document_uid": document.uid}}
            )
            self._metrics.count("headwater_dead_letters_total", lane="index", stage="source", kind=refusal.kind)
            letter = DeadLetter(
                coordinates=where,
                lane="index",
                key=document.key,
                document=document,
                version=refusal.version,
                stage="source",
                error_kind=refusal.kind,
                reason=refusal.reason,
                attempts=1,
                failed_at=now,
            )
            receipt = Receipt(
                lane="index",
                tenant=document.tenant,
                source=document.source,
                document=document,
                document_uid=document.uid,
                event_type="upserted",
                version=refusal.version,
                outcome="refused",
                times=StageTimes(observed_at=now, appended_at=place.timestamp),
                reason=refusal.reason,
                coordinates=where,
            )
            yield Outgoing(Topic.DEAD_LETTER, document.key, letter.model_dump_json().encode())
            yield Outgoing(Topic.RECEIPTS, document.key, receipt.model_dump_json().encode())
