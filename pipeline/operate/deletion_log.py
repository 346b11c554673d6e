"""What the log still holds of a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.events import ContentUpserted, InlineBody
from schemas.keys import DocumentRef, partition_of
from schemas.receipts import DeadLetter
from schemas.topics import Topic


@dataclass(frozen=True)
class Copy:
    """A record of ``content`` that still carries the document: its own text where that is inline."""

    at: int  # append time, µs
    offset: int
    title: str
    text: str | None


@dataclass(frozen=True)
class OnLog:
    """What the log holds of a document. Times in microseconds."""

    copies: tuple[Copy, ...] = ()
    ended_at: int | None = None  # append time of the newest record of its key
    letters: tuple[int, ...] = ()  # when each of its dead letters was written


class Log(Protocol):
    """The log as a proof reads it."""

    def of(self, document: DocumentRef) -> OnLog:
        """Raises BusUnavailable."""
        ...

    def configuration(self) -> Mapping[Topic, Mapping[str, str]]:
        """Settings of topics as the broker has them. Raises BusUnavailable."""
        ...


class KafkaLog:
    """``Log`` on Kafka: reads the document's partition from end to end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def of(self, document: DocumentRef) -> OnLog:
        """See ``Log.of``."""
        from pipeline.bus.codec import Undecodable, decode_content
        from pipeline.bus.tail import read_compacted

        place = [partition_of(document.key, self._settings.kafka.partitions)]
        copies: list[Copy] = []
        ended = None

        def mine(key: str | None) -> bool:
            return key == document.key

        for record in read_compacted(self._settings, Topic.CONTENT, partitions=place, wanted=mine):
            ended = record.timestamp
            event = decode_content(record)
            if isinstance(event, ContentUpserted):
                text = event.body.text if isinstance(event.body, InlineBody) else None
                copies.append(Copy(record.timestamp, record.offset, event.title, text))
            elif isinstance(event, Undecodable) and record.value is not None:
                copies.append(Copy(record.timestamp, record.offset, "", None))
        letters = [
            record.timestamp
            for record in read_compacted(self._settings, Topic.DEAD_LETTER, partitions=place)
            if _names(record, document)
        ]
        return OnLog(tuple(copies), ended, tuple(letters))

    def configuration(self) -> Mapping[Topic, Mapping[str, str]]:
        """See ``Log.configuration``."""
        from pipeline.bus.topics import describe_topics

        return {found.topic: found.configuration for found in describe_topics(self._settings)}


def _names(record: Record, document: DocumentRef) -> bool:
    """Whether a dead letter is of the document."""
    try:
        return DeadLetter.model_validate_json(record.value or b"").document == document
    except ValidationError:
        return record.key == document.key
