"""Topics that another program fills, on Headwater's Kafka or another: read without a group, from given offsets.

Names are those of the other program; no namespace is added. Nothing is committed: whoever reads keeps the offsets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import NewTopic

from pipeline.bus.client import common, translated
from pipeline.bus.interface import MIN_POLL_MS
from pipeline.bus.reading import asking, configuration
from pipeline.bus.topics import administrator
from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.ports import Record
from pipeline.settings import Settings

GROWTH_S = 30.0
"""How often topics and partitions that are new are looked for."""
ANSWER_MS = 3000
"""How long a question about offsets waits."""

Offsets = dict[str, dict[int, int]]


class ForeignRecords:
    """All partitions of some topics. Connects when it is started; used by one thread."""

    def __init__(
        self, settings: Settings, topics: Sequence[str], clock: Clock, *, role: str, bootstrap: str | None = None
    ) -> None:
        """``role`` names the client. Raises ConfigError where ``bootstrap`` names no broker."""
        self._topics, self._clock = list(topics), clock
        self._config = configuration(settings, role, "read_committed") | {"max_poll_records": 500}
        if bootstrap is not None:
            servers = [s.strip() for s in bootstrap.split(",") if s.strip()]
            if not servers:
                raise ConfigError("sources.bootstrap", "is empty", "Name at least one broker as host:port.")
            self._config["bootstrap_servers"] = servers
        self._where = ", ".join(self._config["bootstrap_servers"])
        self._consumer: Any = None
        self._assigned: set[TopicPartition] = set()
        self._look_again = 0.0

    def start(self, positions: Offsets, back: int) -> tuple[Offsets, list[str], list[str]]:
        """Read on from these offsets, ``back`` records earlier; from the beginning where there is none.

        Gives the offsets from which records count; problems: topics that are not there (they are read when they are);
        alarms: records that are gone without having been read. Raises BusUnavailable.
        """
        self.close()
        present = self.partitions()
        self._assigned = {TopicPartition(topic, p) for topic, count in present.items() for p in count}
        self._look_again = self._clock.elapsed() + GROWTH_S
        alarms: list[str] = []
        counted: Offsets = {}
        with asking("finding where to begin"):
            self._consumer.assign(list(self._assigned))
            if self._assigned:
                first = self._consumer.beginning_offsets(list(self._assigned), timeout_ms=ANSWER_MS)
                last = self._consumer.end_offsets(list(self._assigned), timeout_ms=ANSWER_MS)
                for tp in self._assigned:
                    wanted = positions.get(tp.topic, {}).get(tp.partition)
                    begin, gap = _begin(tp, wanted, int(first[tp]), int(last[tp]))
                    counted.setdefault(tp.topic, {})[tp.partition] = begin
                    self._consumer.seek(tp, max(int(first[tp]), begin - back))
                    alarms += gap
        lacking = [topic for topic in self._topics if not present[topic]]
        problems = [f"topic {topic} is not on {self._where}: it is read when it is there" for topic in lacking]
        return counted, problems, alarms

    def poll(self, timeout_s: float) -> list[Record]:
        """New records, in order per partition; waits at most ``timeout_s``. Raises BusUnavailable."""
        self._grow()
        with asking("reading"):
            batches = self._consumer.poll(timeout_ms=max(MIN_POLL_MS, int(timeout_s * 1000)))
        return [_record(raw) for batch in batches.values() for raw in batch]

    def positions(self) -> Offsets:
        """Next offset to be polled of each partition."""
        assignment = self._consumer._subscription.assignment
        return _by_topic({tp: int(state.position.offset) for tp, state in assignment.items() if state.position})

    def ends(self) -> Offsets:
        """Offset after the last readable record of each partition, now. Raises BusUnavailable."""
        if not self._assigned:
            return {}
        with asking("reading end offsets"):
            return _by_topic(self._consumer.end_offsets(list(self._assigned), timeout_ms=ANSWER_MS))

    def partitions(self) -> dict[str, list[int]]:
        """Partitions of each topic, none where it is not there. Raises BusUnavailable."""
        if self._consumer is None:
            try:
                self._consumer = KafkaConsumer(**self._config)
            except kafka_errors.KafkaError as error:
                raise translated(error, f"no broker answers at {self._where}") from error
        with asking("listing topics"):
            there = self._consumer.topics()
            return {t: sorted(self._consumer.partitions_for_topic(t)) if t in there else [] for t in self._topics}

    def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        self._assigned = set()
        if consumer is not None:
            with contextlib.suppress(kafka_errors.KafkaError):
                consumer.close(autocommit=False, timeout_ms=2000)

    def _grow(self) -> None:
        """Read what is new from its beginning."""
        if self._clock.elapsed() < self._look_again:
            return
        self._look_again = self._clock.elapsed() + GROWTH_S
        now = {TopicPartition(topic, p) for topic, count in self.partitions().items() for p in count}
        if added := now - self._assigned:
            with asking("taking up new partitions"):
                self._consumer.assign(list(self._assigned | added))
                for tp, start in self._consumer.beginning_offsets(list(added), timeout_ms=ANSWER_MS).items():
                    self._consumer.seek(tp, start)
            self._assigned |= added


def _begin(tp: TopicPartition, wanted: int | None, first: int, last: int) -> tuple[int, list[str]]:
    """From which offset records of a partition count, and what is lost by that."""
    if wanted is None:
        return first, []
    where = f"{tp.topic}[{tp.partition}]"
    if wanted < first:
        return first, [
            f"{where}: records {wanted} to {first - 1} are gone unread; send the rows again (a new snapshot)"
        ]
    if wanted > last:
        return first, [
            f"{where} ends at {last} and was read to {wanted}: it was made anew and is read from its beginning"
        ]
    return wanted, []


def _by_topic(offsets: Mapping[TopicPartition, int]) -> Offsets:
    found: Offsets = {}
    for tp, offset in offsets.items():
        found.setdefault(tp.topic, {})[tp.partition] = int(offset)
    return found


def _record(raw: Any) -> Record:
    key: str | None = None
    if raw.key is not None:
        with contextlib.suppress(UnicodeDecodeError):
            key = raw.key.decode("utf-8")
    return Record(
        topic=raw.topic,
        partition=raw.partition,
        offset=raw.offset,
        timestamp=max(0, raw.timestamp) * 1000,
        key=key,
        value=raw.value,
        headers=tuple((name, value or b"") for name, value in raw.headers or ()),
    )


class ForeignWriter:
    """Makes another program's topic and writes to it as that program would, in rehearsals. Raises BusUnavailable."""

    def __init__(self, settings: Settings, topic: str, partitions: int) -> None:
        self._topic = topic
        with administrator(settings) as client:
            client.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
        self._producer = KafkaProducer(**common(settings, "rehearsal"), acks="all")

    def send(self, key: bytes, value: bytes | None) -> None:
        """One record, acknowledged."""
        try:
            self._producer.send(self._topic, key=key, value=value).get(timeout=30)
        except kafka_errors.KafkaError as error:
            raise translated(error, f"writing to {self._topic}") from error

    def close(self) -> None:
        """Disconnect."""
        self._producer.close(timeout=5)
