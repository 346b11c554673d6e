"""What every reader of Kafka shares: configuration, names, records, translated errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from kafka import TopicPartition
from kafka import errors as kafka_errors

from pipeline.bus.client import MAX_RECORD_BYTES, common, translated
from pipeline.bus.interface import Slot
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.topics import Topic

Isolation = Literal["read_committed", "read_uncommitted"]


def configuration(settings: Settings, role: str, isolation: Isolation) -> dict[str, Any]:
    """Settings of a consumer: nothing is committed or reset by itself."""
    return common(settings, role) | {
        "isolation_level": isolation,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
        "max_partition_fetch_bytes": 2 * MAX_RECORD_BYTES,
        "check_crcs": True,
    }


class Names:
    """Logical to physical names and back."""

    def __init__(self, settings: Settings, topics: Sequence[Topic]) -> None:
        self._physical = {str(topic): topic.physical(settings.namespace) for topic in topics}
        self._logical = {name: topic for topic, name in self._physical.items()}

    def all(self) -> list[str]:
        """Physical names."""
        return list(self._physical.values())

    def physical(self, topic: Topic) -> str:
        """Physical name."""
        return self._physical[str(topic)]

    def to(self, slot: Slot) -> TopicPartition:
        """Physical partition."""
        return TopicPartition(self._physical[slot.topic], slot.partition)

    def of(self, tp: TopicPartition) -> Slot:
        """Logical slot."""
        return Slot(self._logical[tp.topic], tp.partition)

    def record(self, raw: Any) -> Record:
        """A client's record as ours."""
        key: str | None = None
        if raw.key is not None:
            with contextlib.suppress(UnicodeDecodeError):
                key = raw.key.decode("utf-8")
        return Record(
            topic=self._logical[raw.topic],
            partition=raw.partition,
            offset=raw.offset,
            timestamp=raw.timestamp * 1000,
            key=key,
            value=raw.value,
            headers=tuple(raw.headers or ()),
        )


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Raises the client's errors as BusUnavailable."""
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise translated(error, what) from error
