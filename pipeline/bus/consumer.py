"""Reading from Kafka: group members, group-less tails, and whole compacted topics."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.heartbeat import Heartbeat

from pipeline.bus.client import MAX_RECORD_BYTES, common, translated
from pipeline.bus.interface import MIN_POLL_MS, Listener, Slot
from pipeline.bus.topics import administrator, partitions_of, spec_of
from pipeline.clock import Clock, SystemClock
from pipeline.errors import BusUnavailable, ConfigError, Crash
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.topics import Topic

Isolation = Literal["read_committed", "read_uncommitted"]

_OUT_OF_GROUP = (
    kafka_errors.CommitFailedError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.UnknownMemberIdError,
)


def _configuration(settings: Settings, role: str, isolation: Isolation) -> dict[str, Any]:
    return common(settings, role) | {
        "isolation_level": isolation,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
        "max_partition_fetch_bytes": 2 * MAX_RECORD_BYTES,
        "check_crcs": True,
    }


class _Names:
    """Logical to physical names and back."""

    def __init__(self, settings: Settings, topics: Sequence[Topic]) -> None:
        self._physical = {str(topic): topic.physical(settings.namespace) for topic in topics}
        self._logical = {name: topic for topic, name in self._physical.items()}

    def all(self) -> list[str]:
        return list(self._physical.values())

    def to(self, slot: Slot) -> TopicPartition:
        return TopicPartition(self._physical[slot.topic], slot.partition)

    def of(self, tp: TopicPartition) -> Slot:
        return Slot(self._logical[tp.topic], tp.partition)

    def record(self, raw: Any) -> Record:
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


class _LeaseHeartbeat(Heartbeat):  # type: ignore[misc]
    """Notes when the newest confirmed heartbeat was sent, on a clock that counts suspension.

    The client sends one heartbeat at a time, so the answer that arrives belongs to the last one sent.
    """

    def __init__(self, clock: Clock, **configuration: Any) -> None:
        super().__init__(**configuration)
        self._lease_clock = clock
        self._sent: float | None = None
        self.confirmed: float | None = None

    def sent_heartbeat(self) -> None:
        self._sent = self._lease_clock.elapsed()
        super().sent_heartbeat()

    def received_heartbeat(self) -> None:
        self.confirm(self._sent)
        super().received_heartbeat()

    def confirm(self, sent: float | None) -> None:
        """A request sent at ``sent`` proved the membership."""
        if sent is not None and (self.confirmed is None or sent > self.confirmed):
            self.confirmed = sent

    def forget(self) -> None:
        """The membership ended; what was confirmed of it counts no more."""
        self._sent = None
        self.confirmed = None


class _Bridge(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Runs our listener in a thread while the client's event loop (and with it the heartbeats) goes on."""

    def __init__(self, reader: KafkaReader) -> None:
        self._reader = reader

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._reader._in_thread(lambda: self._reader._revoked(revoked, lost=False))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._reader._in_thread(lambda: self._reader._assigned(assigned))

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        await self._reader._in_thread(lambda: self._reader._revoked(lost, lost=True))


class KafkaReader:
    """``pipeline.bus.interface.Reader`` on Kafka: a member of group ``<namespace>.<group>``.

    ``member`` makes it a static member under that name: after a crash its successor of the same name takes over at
    once instead of after the session. Offsets are never reset silently: the owner seeks every slot.
    """

    def __init__(
        self,
        settings: Settings,
        group: str,
        topics: Sequence[Topic],
        listener: Listener,
        *,
        session_s: float,
        isolation: Isolation = "read_committed",
        member: str | None = None,
        clock: Clock | None = None,
        max_records: int = 500,
        max_poll_interval_s: float = 60.0,
    ) -> None:
        self._settings = settings
        self._group = f"{settings.namespace}.{group}"
        self._topics = tuple(topics)
        self._names = _Names(settings, topics)
        self._listener = listener
        self._member = member
        self._clock = clock if clock is not None else SystemClock()
        self._failure: BaseException | None = None
        self._closed = False
        configuration = _configuration(settings, group, isolation) | {
            "group_id": self._group,
            "group_instance_id": f"{self._group}.{member}" if member is not None else None,
            "session_timeout_ms": int(session_s * 1000),
            "heartbeat_interval_ms": int(min(settings.kafka.heartbeat_s, session_s / 3) * 1000),
            "max_poll_interval_ms": int(max(max_poll_interval_s, session_s) * 1000),
            "max_poll_records": max_records,
            # Equal partition counts make this co-partitioned: one member owns the same number of every topic.
            "partition_assignment_strategy": (RangePartitionAssignor,),
        }
        try:
            self._consumer = KafkaConsumer(**configuration)
        except kafka_errors.KafkaError as error:
            raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
        coordinator = self._consumer._coordinator
        self._heartbeat = _LeaseHeartbeat(self._clock, **coordinator.heartbeat.config)
        coordinator.heartbeat = self._heartbeat
        self._consumer.subscribe(self._names.all(), listener=_Bridge(self))

    # -- rebalances

    async def _in_thread(self, call: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guarded, args=(call,), name="kafka-rebalance", daemon=True)
        thread.start()
        while thread.is_alive():
            await self._consumer._net.sleep(0.002)

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # raised again by the next poll, in the owner's thread
            self._failure = self._failure if self._failure is not None else error

    def _assigned(self, partitions: set[TopicPartition]) -> None:
        slots = frozenset(self._names.of(tp) for tp in partitions)
        self._check_copartitioned(slots)
        for tp in partitions:
            # Paused until the owner has sought; the position is a placeholder that is never fetched from.
            self._consumer.pause(tp)
            self._consumer.seek(tp, 0)
        self._listener.on_assigned(slots)

    def _check_copartitioned(self, slots: frozenset[Slot]) -> None:
        numbers = {
            str(topic): frozenset(slot.partition for slot in slots if slot.topic == str(topic))
            for topic in self._topics
            if spec_of(str(topic)).partitioned
        }
        if len(set(numbers.values())) > 1:
            raise Crash(
                f"group {self._group}: the partition numbers differ between topics: "
                f"{ {t: sorted(n) for t, n in numbers.items()} }; their partition counts must be equal"
            )

    def _revoked(self, partitions: set[TopicPartition], *, lost: bool) -> None:
        slots = frozenset(self._names.of(tp) for tp in partitions)
        try:
            if slots:
                self._listener.on_revoked(slots, lost=lost)
        finally:
            if lost:
                self._heartbeat.forget()

    # -- reading

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """See ``Reader.poll``."""
        try:
            batches = self._consumer.poll(timeout_ms=max(MIN_POLL_MS, timeout_ms))
        except kafka_errors.FencedInstanceIdError as error:
            raise Crash(f"another process took the member name {self._member} of {self._group}") from error
        except (kafka_errors.OffsetOutOfRangeError, kafka_errors.LogTruncationError) as error:
            raise Crash(f"the log no longer holds what was to be read next ({error}); start again") from error
        except kafka_errors.AuthorizationError as error:
            raise Crash(f"Kafka refuses group {self._group}: {error}") from error
        except kafka_errors.KafkaError as error:
            self._raise_failure()
            raise translated(error, "reading") from error
        self._raise_failure()
        return [self._names.record(raw) for batch in batches.values() for raw in batch]

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def assignment(self) -> frozenset[Slot]:
        """Slots assigned now."""
        return frozenset(self._names.of(tp) for tp in self._consumer.assignment())

    def pause(self, slots: Sequence[Slot]) -> None:
        """Fetch nothing from these slots until resumed."""
        self._consumer.pause(*(tp for tp in self._owned(slots)))

    def resume(self, slots: Sequence[Slot]) -> None:
        """Fetch from these slots again."""
        self._consumer.resume(*(tp for tp in self._owned(slots)))

    def _owned(self, slots: Sequence[Slot]) -> list[TopicPartition]:
        assigned = self._consumer.assignment()
        return [tp for tp in map(self._names.to, slots) if tp in assigned]

    def seek(self, slot: Slot, offset: int) -> None:
        """Read from ``offset`` next."""
        self._consumer.seek(self._names.to(slot), offset)

    def position(self, slot: Slot) -> int:
        """See ``Reader.position``."""
        state = self._consumer._subscription.assignment.get(self._names.to(slot))
        if state is None or state.position is None:
            return 0
        return int(state.position.offset)

    def highwater(self, slot: Slot) -> int | None:
        """See ``Reader.highwater``."""
        state = self._consumer._subscription.assignment.get(self._names.to(slot))
        return None if state is None or state.highwater is None else int(state.highwater)

    def confirmed(self) -> float | None:
        """See ``Reader.confirmed``."""
        return self._heartbeat.confirmed

    # -- offsets

    def committed(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """See ``Reader.committed``."""
        wanted = [self._names.to(slot) for slot in slots]
        with _asking("reading committed offsets"):
            found = self._consumer._coordinator.fetch_committed_offsets(wanted, timeout_ms=self._request_ms)
        return {self._names.of(tp): int(o.offset) for tp, o in found.items() if o.offset >= 0}

    def commit(self, offsets: Mapping[Slot, int]) -> bool:
        """See ``Reader.commit``. A commit that the broker accepts proves the membership, as a heartbeat does."""
        if not offsets:
            return True
        commits = {self._names.to(slot): OffsetAndMetadata(o, "", -1) for slot, o in offsets.items()}
        sent = self._clock.elapsed()
        try:
            self._consumer.commit(commits, timeout_ms=self._request_ms)
        except _OUT_OF_GROUP:
            return False
        except kafka_errors.FencedInstanceIdError as error:
            raise Crash(f"another process took the member name {self._member} of {self._group}") from error
        except kafka_errors.KafkaError as error:
            raise translated(error, "committing offsets") from error
        self._heartbeat.confirm(sent)
        return True

    @property
    def _request_ms(self) -> int:
        return int(self._settings.kafka.request_timeout_s * 1000)

    def beginning_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """First offset that the log still holds of each slot."""
        with _asking("reading beginning offsets"):
            found = self._consumer.beginning_offsets([self._names.to(s) for s in slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def end_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Offset after the last readable record of each slot."""
        with _asking("reading end offsets"):
            found = self._consumer.end_offsets([self._names.to(s) for s in slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def close(self) -> None:
        """Leave in order. A static member is removed from the group too: nobody waits for its session to end."""
        if self._closed:
            return
        self._closed = True
        member_id = self._consumer.group_metadata().member_id
        try:
            with _asking("leaving the group"):
                self._consumer.close(autocommit=False, timeout_ms=5000)
            if self._member is not None and member_id:
                self._remove_static(member_id)
        finally:
            self._heartbeat.forget()
        self._raise_failure()

    def _remove_static(self, member_id: str) -> None:
        """The client never sends LeaveGroup for a static member. The member id spares a successor of the same name."""
        member = MemberToRemove(
            member_id=member_id, group_instance_id=f"{self._group}.{self._member}", reason="left in order"
        )
        with administrator(self._settings) as admin, contextlib.suppress(*_ABSENT):
            admin.remove_group_members(self._group, [member])


_ABSENT = (kafka_errors.UnknownMemberIdError, kafka_errors.GroupIdNotFoundError)


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise translated(error, what) from error


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
        self._names = _Names(settings, topics)
        self._clock = clock if clock is not None else SystemClock()
        try:
            self._consumer = KafkaConsumer(
                **_configuration(settings, "tail", isolation), max_poll_records=max_records
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
            with _asking("looking up offsets by time"):
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
        with _asking("reading beginning offsets"):
            found = self._consumer.beginning_offsets([self._names.to(s) for s in self._slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def _ends(self) -> dict[Slot, int]:
        with _asking("reading end offsets"):
            found = self._consumer.end_offsets([self._names.to(s) for s in self._slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """See ``Tail.poll``."""
        with _asking("reading"):
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
    names = _Names(settings, [topic])
    count = partitions_of(spec_of(str(topic)), settings)
    numbers = list(partitions) if partitions is not None else list(range(count))
    if any(not 0 <= number < count for number in numbers):
        raise ConfigError("kafka.partitions", f"{numbers} lie outside 0..{count - 1}", "Check the settings.")
    try:
        consumer = KafkaConsumer(**_configuration(settings, "scan", isolation), max_poll_records=2000)
    except kafka_errors.KafkaError as error:
        raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
    try:
        with _asking(f"reading topic {topic}"):
            yield from _scan(consumer, names, [Slot(str(topic), n) for n in numbers], wanted, timeout_s)
    finally:
        consumer.close(autocommit=False, timeout_ms=2000)


def _scan(
    consumer: KafkaConsumer,
    names: _Names,
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
    names = _Names(settings, topics)
    config = _configuration(settings, group, "read_committed") | {"group_id": f"{settings.namespace}.{group}"}
    try:
        consumer = KafkaConsumer(**config)
    except kafka_errors.KafkaError as error:
        raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
    slots = [
        Slot(str(t), number) for t in topics for number in range(partitions_of(spec_of(str(t)), settings))
    ]
    partitions = [names.to(slot) for slot in slots]
    try:
        with _asking(f"committing first offsets of group {group}"):
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
