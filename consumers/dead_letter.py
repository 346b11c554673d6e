"""Dead letters: coordinates of what could not be processed, never a body. Written before the offset is covered."""

from __future__ import annotations

from pipeline.clock import Clock
from pipeline.errors import Reject
from pipeline.observe import Metrics, metrics
from pipeline.ports import Outgoing, Publisher, Record
from schemas.base import Version
from schemas.keys import DocumentRef
from schemas.receipts import Coordinates, DeadLetter, Lane
from schemas.topics import Topic


def coordinates_of(record: Record) -> Coordinates:
    """Where the record lies."""
    return Coordinates(topic=record.topic, partition=record.partition, offset=record.offset)


class DeadLetters:
    """Writes the dead letters of one lane."""

    def __init__(
        self,
        publisher: Publisher,
        lane: Lane,
        clock: Clock,
        *,
        generation: str | None = None,
        observed: Metrics | None = None,
    ) -> None:
        self._publisher = publisher
        self._lane: Lane = lane
        self._clock = clock
        self._generation = generation
        self._metrics = observed if observed is not None else metrics()

    def bury(
        self,
        record: Record,
        error: Reject,
        *,
        attempts: int = 1,
        document: DocumentRef | None = None,
        version: Version | None = None,
        parked: bool = False,
        at: Coordinates | None = None,
    ) -> DeadLetter:
        """Append the dead letter and wait for its acknowledgement. Raises BusUnavailable.

        ``at`` names what failed where the record only asked for it (a replay).
        """
        letter = DeadLetter(
            coordinates=at if at is not None else coordinates_of(record),
            lane=self._lane,
            generation=self._generation,
            key=record.key,
            document=document if document is not None else _document_of(record.key),
            version=version,
            stage=error.stage,
            error_kind=error.kind,
            reason=error.reason[:2000],
            attempts=attempts,
            parked=parked,
            failed_at=self._clock.now(),
        )
        self._publisher.publish([self._outgoing(record, letter)])
        self._metrics.count("headwater_dead_letters_total", lane=self._lane, stage=error.stage, kind=error.kind)
        return letter

    @staticmethod
    def _outgoing(record: Record, letter: DeadLetter) -> Outgoing:
        where = letter.coordinates
        key = record.key if record.key is not None else f"{where.topic}/{where.partition}/{where.offset}"
        # Next to the document's other records, so that one reader meets all of a document.
        partition_key = letter.document.key if letter.document is not None else key
        value = letter.model_dump_json().encode("utf-8")
        return Outgoing(str(Topic.DEAD_LETTER), key, value, partition_key=partition_key)


def _document_of(key: str | None) -> DocumentRef | None:
    if key is None:
        return None
    try:
        return DocumentRef.from_key(key)
    except ValueError:
        return None
