"""Reading from Kafka as a member of a group. What reads without one is in ``tail``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.heartbeat import Heartbeat

from pipeline.bus.client import translated
from pipeline.bus.interface import MIN_POLL_MS, Listener, Slot
from pipeline.bus.reading import Isolation, Names, asking, configuration
from pipeline.bus.tail import KafkaTail, commit_first_offsets, read_compacted
from pipeline.bus.topics import administrator, partitions_of, spec_of
from pipeline.clock import Clock, SystemClock
from pipeline.errors import ConfigError, Crash
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.topics import Topic

__all__ = ["KafkaReader", "KafkaTail", "commit_first_offsets", "read_compacted"]

_OUT_OF_GROUP = (
    kafka_errors.CommitFailedError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.UnknownMemberIdError,
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
        self._names = Names(settings, topics)
        self._listener = listener
        self._member = member
        self._clock = clock if clock is not None else SystemClock()
        self._failure: BaseException | None = None
        self._closed = False
        self._fenced = False
        self._heart_stopped = False
        options = configuration(settings, group, isolation) | {
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
            self._consumer = KafkaConsumer(**options)
        except kafka_errors.KafkaError as error:
            raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
        coordinator = self._consumer._coordinator
        self._heartbeat = _LeaseHeartbeat(self._clock, **coordinator.heartbeat.config)
        coordinator.heartbeat = self._heartbeat
        try:
            self._consumer.subscribe(self._names.all(), listener=_Bridge(self))
            self._check_topics()
        except BaseException:
            self._consumer.close(autocommit=False, timeout_ms=1000)
            raise

    def _check_topics(self) -> None:
        """The topics exist with the configured counts.

        Asking for the metadata now, before the group is joined, spares the group a second rebalance for them.
        """
        with asking("looking up topics"):
            self._consumer.topics()
        for topic, name in zip(self._topics, self._names.all(), strict=True):
            found = len(self._consumer.partitions_for_topic(name))
            wanted = partitions_of(spec_of(str(topic)), self._settings)
            if found != wanted:
                raise ConfigError(
                    "kafka.partitions",
                    f"topic {name} has {found} partitions, the settings say {wanted}",
                    "Create the topics first (headwater topics), with the count that the log has.",
                )

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
        if slots:
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
                self._listener.on_revoked(slots, lost=lost or self._fenced)
        finally:
            if lost:
                self._heartbeat.forget()

    # -- reading

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """See ``Reader.poll``."""
        try:
            batches = self._consumer.poll(timeout_ms=max(MIN_POLL_MS, timeout_ms))
        except kafka_errors.FencedInstanceIdError as error:
            raise self._fence() from error
        except (kafka_errors.OffsetOutOfRangeError, kafka_errors.LogTruncationError) as error:
            raise Crash(f"the log no longer holds what was to be read next ({error}); start again") from error
        except kafka_errors.AuthorizationError as error:
            raise Crash(f"Kafka refuses group {self._group}: {error}") from error
        except kafka_errors.KafkaError as error:
            self._raise_failure()
            raise translated(error, "reading") from error
        self._raise_failure()
        self._check_heart()
        return [self._names.record(raw) for batch in batches.values() for raw in batch]

    def _check_heart(self) -> None:
        """When its static name was taken the client only stops its heartbeat, and goes on reading as a ghost."""
        coordinator = self._consumer._coordinator
        stopped = coordinator.stable() and not coordinator._heartbeat_enabled
        if stopped and self._heart_stopped:
            raise self._fence()
        self._heart_stopped = stopped

    def _fence(self) -> Crash:
        self._fenced = True
        self._heartbeat.forget()
        return Crash(f"another process took the member name {self._member} of {self._group}")

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
        with asking("reading committed offsets"):
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
            if self._fenced:
                return False
            raise self._fence() from error
        except kafka_errors.KafkaError as error:
            raise translated(error, "committing offsets") from error
        self._heartbeat.confirm(sent)
        return True

    @property
    def _request_ms(self) -> int:
        return int(self._settings.kafka.request_timeout_s * 1000)

    def beginning_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """First offset that the log still holds of each slot."""
        with asking("reading beginning offsets"):
            found = self._consumer.beginning_offsets([self._names.to(s) for s in slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def end_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Offset after the last readable record of each slot."""
        with asking("reading end offsets"):
            found = self._consumer.end_offsets([self._names.to(s) for s in slots])
        return {self._names.of(tp): int(offset) for tp, offset in found.items()}

    def close(self) -> None:
        """Leave in order. A static member is removed from the group too: nobody waits for its session to end."""
        if self._closed:
            return
        self._closed = True
        member_id = self._consumer.group_metadata().member_id
        try:
            with asking("leaving the group"):
                self._consumer.close(autocommit=False, timeout_ms=5000)
            if self._member is not None and member_id and not self._fenced:
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
