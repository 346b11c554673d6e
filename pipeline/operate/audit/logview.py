"""The log as checks look at it: ends, whole topics, recent receipts, and the last event of each key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.bus.interface import Slot
from pipeline.operate.maintenance import receipt_of
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.receipts import Receipt
from schemas.topics import Topic


class LogView(Protocol):
    """What checks read of Kafka. Raises BusUnavailable."""

    def ends(self, topics: Sequence[Topic]) -> dict[Slot, int]:
        """Next offset of each slot."""
        ...

    def records(self, topic: Topic) -> Iterable[Record]:
        """Every record from the beginning to the end of now, in order per partition."""
        ...

    def receipts(self, seconds: float) -> Iterable[Receipt]:
        """Receipts appended in the last ``seconds``."""
        ...


class KafkaLog:
    """``LogView`` on Kafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def ends(self, topics: Sequence[Topic]) -> dict[Slot, int]:
        """See the protocol."""
        from pipeline.bus.groups import log_ends

        return log_ends(self._settings, topics)[1]

    def records(self, topic: Topic) -> Iterator[Record]:
        """See the protocol."""
        from pipeline.bus.tail import read_compacted

        return read_compacted(self._settings, topic)

    def receipts(self, seconds: float) -> Iterator[Receipt]:
        """See the protocol."""
        from contextlib import closing

        from pipeline.bus.tail import KafkaTail

        with closing(KafkaTail(self._settings, [Topic.RECEIPTS], since=seconds)) as tail:
            while not tail.caught_up():
                for record in tail.poll(200):
                    receipt = receipt_of(record)
                    if receipt is not None:
                        yield receipt


@dataclass(slots=True)
class Last:
    """The last appended event of a key, and the newest version among those that still lie on the log."""

    partition: int
    offset: int
    version: int
    type: str
    newest: int
    newest_offset: int

    @property
    def superseded(self) -> bool:
        """Whether compaction would keep an older version than it removes."""
        return self.version < self.newest


def last_events(records: Iterable[Record]) -> dict[str, Last]:
    """By key. Records that cannot be read, or have no version, are passed by: their lanes close or bury them."""
    found: dict[str, Last] = {}
    for record in records:
        head = _head(record.value)
        if record.key is None or head is None:
            continue
        version, type_ = head
        before = found.get(record.key)
        newest, at = (version, record.offset) if before is None else (before.newest, before.newest_offset)
        if version >= newest:
            newest, at = version, record.offset
        found[record.key] = Last(record.partition, record.offset, version, type_, newest, at)
    return found


def _head(value: bytes | None) -> tuple[int, str] | None:
    """Version and type of an event, without checking the rest of it."""
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("version"), int):
        return None
    return event["version"], str(event.get("type"))
