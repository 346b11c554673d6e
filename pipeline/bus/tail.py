"""Reading from Kafka without a group: tails, single records, whole compacted topics, first offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import errors as kafka_errors

from pipeline.bus.client import translated
from pipeline.bus.interface import MIN_POLL_MS, Slot
from pipeline.bus.reading import Isolation, Names, asking, configuration
from pipeline.bus.topics import partitions_of, spec_of
from pipeline.clock import Clock, SystemClock
from pipeline.errors import BusUnavailable, ConfigError
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.topics import Topic

METADATA_MS = 2_000
"""How old what is known of topics may be: so soon a tail notices that one was made anew."""


class KafkaTail:
    """``pipeline.bus.interface.Tail`` on Kafka.

    ``since``: "end" (only what comes), "beginning", or seconds into the past by append time. A slot of ``offsets``
    starts there instead, and one of ``not_after`` there at the latest, as far as the log still reaches.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[Topic],
        *,
        since: float | Literal["end", "beginning"] = "end",
        offsets: Mapping[Slot, int] | None = None,
        not_after: Mapping[Slot, int] | None = None,
        isolation: Isolation = "read_committed",
        clock: Clock | None = None,
        max_records: int = 1000,
    ) -> None:
        self._names, self._topics = Names(settings, topics), tuple(topics)
        self._clock = clock if clock is not None else SystemClock()
        try:
            self._consumer = KafkaConsumer(
                **configuration(settings, "tail", isolation) | {"metadata_max_age_ms": METADATA_MS},
                max_poll_records=max_records,
            )
        except kafka_errors.KafkaError as error:
            raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
        self._slots = [
            Slot(str(topic), number)
            for topic in topics
            for number in range(partitions_of(spec_of(str(topic)), settings))
        ]
        try:
            self._consumer.assign([self._names.to(slot) for slot in self._slots])
            self._target = self._seek(since, offsets or {}, not_after or {})
        except BaseException:
            self.close()
            raise

    def _seek(
        self,
        since: float | Literal["end", "beginning"],
        offsets: Mapping[Slot, int],
        not_after: Mapping[Slot, int],
    ) -> dict[Slot, int]:
        """Seek all slots; the ends at this moment."""
        ends = self._ends()
        first: dict[Slot, int] = {}
        if since == "end":
            starts = ends
        elif since == "beginning":
            starts = first = self._beginnings()
        else:
            at_ms = max(0, self._clock.now() // 1000 - int(since * 1000))
            with asking("looking up offsets by time"):
                times = self._consumer.offsets_for_times({self._names.to(s): at_ms for s in self._slots})
            starts = {self._names.of(tp): int(o.offset) for tp, o in times.items() if o is not None}
        if (offsets or not_after) and not first:
            first = self._beginnings()
        for slot in self._slots:
            start = min(offsets.get(slot, starts.get(slot, ends[slot])), ends[slot])
            start = max(min(start, not_after.get(slot, start)), first.get(slot, 0))
            self._consumer.seek(self._names.to(slot), start)
        return ends

    def _beginnings(self) -> dict[Slot, int]:
        with asking("reading beginning offsets"):
            found = self._consumer.beginning_offsets([self._names.to(s) for s in self._slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def _ends(self) -> dict[Slot, int]:
        with asking("reading end offsets"):
            found = self._consumer.end_offsets([self._names.to(s) for s in self._slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """See ``Tail.poll``."""
        with asking("reading"):
            batches = self._consumer.poll(timeout_ms=max(MIN_POLL_MS, timeout_ms))
        return [self._names.record(raw) for batch in batches.values() for raw in batch]

    def positions(self) -> dict[Slot, int]:
        """Next offset to be polled of each slot."""
        assignment = self._consumer._subscription.assignment
        states = {slot: assignment.get(self._names.to(slot)) for slot in self._slots}
        return {
            slot: int(state.position.offset) if state is not None and state.position is not None else 0
            for slot, state in states.items()
        }

    def ends(self) -> dict[Slot, int]:
        """Offset after the last readable record of each slot, now."""
        return self._ends()

    def ids(self) -> dict[str, str]:
        """The broker's id of each topic by the newest metadata, where it tells one: a topic made anew has another."""
        cluster = self._consumer._client.cluster
        found = {str(topic): cluster.topic_id(self._names.physical(topic)) for topic in self._topics}
        return {topic: str(known) for topic, known in found.items() if known is not None}

    def caught_up(self) -> bool:
        """Whether everything that was on the log when this tail started was polled."""
        positions = self.positions()
        return all(positions[slot] >= end for slot, end in self._target.items())

    def behind(self) -> int:
        """Offsets between the positions and the ends of now."""
        positions = self.positions()
        return sum(max(0, end - positions[slot]) for slot, end in self._ends().items())

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close(autocommit=False, timeout_ms=2000)


def read_compacted(
    settings: Settings,
    topic: Topic,
    *,
    partitions: Sequence[int] | None = None,
    wanted: Callable[[str | None], bool] | None = None,
    isolation: Isolation = "read_committed",
    timeout_s: float = 300.0,
) -> Iterator[Record]:
    """Records from the beginning to the end at the moment of the call, filtered by key, in order per partition.

    Several records of one key may come: the log is compacted only in the background, the last one counts. Raises
    BusUnavailable when the end is not reached in ``timeout_s``.
    """
    names = Names(settings, [topic])
    count = partitions_of(spec_of(str(topic)), settings)
    numbers = list(partitions) if partitions is not None else list(range(count))
    if any(not 0 <= number < count for number in numbers):
        raise ConfigError("kafka.partitions", f"{numbers} lie outside 0..{count - 1}", "Check the settings.")
    try:
        consumer = KafkaConsumer(**configuration(settings, "scan", isolation), max_poll_records=2000)
    except kafka_errors.KafkaError as error:
        raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
    try:
        with asking(f"reading topic {topic}"):
            yield from _scan(consumer, names, [Slot(str(topic), n) for n in numbers], wanted, timeout_s)
    finally:
        consumer.close(autocommit=False, timeout_ms=2000)


def _scan(
    consumer: KafkaConsumer,
    names: Names,
    slots: list[Slot],
    wanted: Callable[[str | None], bool] | None,
    timeout_s: float,
) -> Iterator[Record]:
    partitions = [names.to(slot) for slot in slots]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    for tp, start in consumer.beginning_offsets(partitions).items():
        consumer.seek(tp, start)
    deadline = time.monotonic() + timeout_s
    while any(consumer.position(tp) < ends[tp] for tp in partitions):
        if time.monotonic() > deadline:
            raise BusUnavailable(f"the end of {slots[0].topic} was not reached within {timeout_s:.0f} s")
        for tp, batch in consumer.poll(timeout_ms=200).items():
            for raw in batch:
                if raw.offset >= ends[tp]:
                    continue
                record = names.record(raw)
                if wanted is None or wanted(record.key):
                    yield record


def commit_first_offsets(
    settings: Settings,
    group: str,
    topics: Sequence[Topic],
    *,
    ends: Sequence[Topic] = (),
    timeout_s: float = 15.0,
) -> dict[Slot, int]:
    """Commit the first offsets of an empty group explicitly: the beginning, or the end for topics in ``ends``.

    Slots that have a committed offset keep it. The offsets committed now. Raises BusUnavailable, also when the group
    has members already (Kafka refuses stand-alone commits into a live group).
    """
    names = Names(settings, topics)
    config = configuration(settings, group, "read_committed") | {"group_id": f"{settings.namespace}.{group}"}
    try:
        consumer = KafkaConsumer(**config)
    except kafka_errors.KafkaError as error:
        raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
    slots = [Slot(str(t), number) for t in topics for number in range(partitions_of(spec_of(str(t)), settings))]
    partitions = [names.to(slot) for slot in slots]
    try:
        with asking(f"committing first offsets of group {group}"):
            consumer.assign(partitions)
            ask_ms = int(timeout_s * 1000)
            have = consumer._coordinator.fetch_committed_offsets(partitions, timeout_ms=ask_ms)
            lacking = [tp for tp in partitions if tp not in have or have[tp].offset < 0]
            first = consumer.beginning_offsets(lacking) if lacking else {}
            last = consumer.end_offsets(lacking) if lacking else {}
            late = {str(t) for t in ends}
            starts = {tp: (last if names.of(tp).topic in late else first)[tp] for tp in lacking}
            if starts:
                consumer.commit({tp: OffsetAndMetadata(o, "", -1) for tp, o in starts.items()}, timeout_ms=ask_ms)
    finally:
        consumer.close(autocommit=False, timeout_ms=2000)
    return {names.of(tp): int(offset) for tp, offset in starts.items()}
