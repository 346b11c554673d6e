"""The log in memory: partitions, offsets, transactions with markers, compaction, groups, fencing, failures on demand.

It keeps Kafka's visible semantics, so that ``tests/contract/bus`` holds for both:
a transaction's marker takes an offset, ``read_committed`` stops before an open transaction, compaction keeps offsets,
a rebalance revokes before it assigns, a member whose session ended loses its partitions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.bus.interface import Listener, Slot
from pipeline.clock import Clock, SystemClock
from pipeline.errors import BusUnavailable, Crash, Reject
from pipeline.ports import Appended, Outgoing, Record
from schemas.keys import partition_of
from schemas.topics import TOPICS, Topic

Isolation = Literal["read_committed", "read_uncommitted"]
MAX_BYTES = 2 * 1024 * 1024 - 1024
_PARTITIONED = {str(spec.topic): spec.partitioned for spec in TOPICS}


@dataclass
class _Entry:
    """One offset: a record, a marker (record None), or a hole left by compaction (record None)."""

    record: Record | None
    transaction: int | None = None


@dataclass
class _Member:
    name: str
    session_s: float
    confirmed: float
    lost: bool = False


@dataclass
class _Group:
    members: dict[int, _Member] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)  # partition number -> member
    generation: int = 0
    committed: dict[Slot, int] = field(default_factory=dict)


class MemoryBroker:
    """Shared by all clients of a test."""

    def __init__(self, partitions: int = 3, clock: Clock | None = None) -> None:
        self.partitions = partitions
        self.clock = clock if clock is not None else SystemClock()
        self.down = False
        self.changed = threading.Condition(threading.RLock())
        self._log: dict[Slot, list[_Entry]] = {}
        self._states: dict[int, Literal["open", "committed", "aborted"]] = {}
        self._epochs: dict[str, int] = {}
        self._groups: dict[str, _Group] = {}
        self._next = 0

    # ------------------------------------------------------------ log

    def count(self, topic: str) -> int:
        """Partitions of a topic."""
        return self.partitions if _PARTITIONED[topic] else 1

    def check(self) -> None:
        """Raises BusUnavailable while the broker is down."""
        if self.down:
            raise BusUnavailable("the broker in memory is down")

    def append(self, outgoing: Outgoing, transaction: int | None = None) -> Appended:
        """Append one record."""
        key = outgoing.partition_key if outgoing.partition_key is not None else outgoing.key
        return self.append_raw(
            outgoing.topic,
            partition_of(key, self.count(outgoing.topic)),
            outgoing.key,
            outgoing.value,
            headers=outgoing.headers,
            transaction=transaction,
        )

    def append_raw(
        self,
        topic: str,
        partition: int,
        key: str | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        transaction: int | None = None,
    ) -> Appended:
        """Append whatever a test wants to an explicit partition."""
        with self.changed:
            slot = Slot(str(topic), partition)
            entries = self._log.setdefault(slot, [])
            now = self.clock.now() // 1000 * 1000
            record = Record(slot.topic, partition, len(entries), now, key, value, headers)
            entries.append(_Entry(record, transaction))
            self.changed.notify_all()
            return Appended(slot.topic, partition, record.offset, now)

    def begin(self) -> int:
        """A new open transaction."""
        with self.changed:
            self._next += 1
            self._states[self._next] = "open"
            return self._next

    def end(self, transaction: int, state: Literal["committed", "aborted"]) -> None:
        """Commit or abort: a marker on every partition that the transaction touched."""
        with self.changed:
            self._states[transaction] = state
            for entries in self._log.values():
                if any(entry.transaction == transaction for entry in entries):
                    entries.append(_Entry(None))
            self.changed.notify_all()

    def compact(self, topic: str) -> None:
        """Keep the last appended record of each key; offsets stay."""
        with self.changed:
            for slot, entries in self._log.items():
                if slot.topic != topic:
                    continue
                last = {e.record.key: i for i, e in enumerate(entries) if e.record is not None and e.record.key}
                for index, entry in enumerate(entries):
                    if entry.record is not None and entry.record.key and last[entry.record.key] != index:
                        entry.record = None

    def end_offset(self, slot: Slot, isolation: Isolation = "read_uncommitted") -> int:
        """Offset after the last readable entry."""
        entries = self._log.get(slot, [])
        if isolation == "read_committed":
            for offset, entry in enumerate(entries):
                if entry.transaction is not None and self._states[entry.transaction] == "open":
                    return offset
        return len(entries)

    def read(self, slot: Slot, offset: int, isolation: Isolation, limit: int) -> tuple[list[Record], int]:
        """Readable records from ``offset`` on, and the position after them."""
        with self.changed:
            entries = self._log.get(slot, [])
            end = self.end_offset(slot, isolation)
            records: list[Record] = []
            while offset < end and len(records) < limit:
                entry = entries[offset]
                aborted = entry.transaction is not None and self._states[entry.transaction] == "aborted"
                if entry.record is not None and not (aborted and isolation == "read_committed"):
                    records.append(entry.record)
                offset += 1
            return records, offset

    def records(self, topic: str) -> list[Record]:
        """All records of a topic that a read_committed reader meets, by partition and offset."""
        slots = sorted(slot for slot in self._log if slot.topic == str(topic))
        return [record for slot in slots for record in self.read(slot, 0, "read_committed", 10**9)[0]]

    # ------------------------------------------------------------ fencing

    def take_over(self, transactional_id: str) -> int:
        """The new epoch of a transactional id."""
        with self.changed:
            self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
            return self._epochs[transactional_id]

    def fenced(self, transactional_id: str, epoch: int) -> bool:
        """Whether a newer holder exists."""
        return self._epochs.get(transactional_id) != epoch

    # ------------------------------------------------------------ groups

    def group(self, name: str) -> _Group:
        """A consumer group."""
        with self.changed:
            return self._groups.setdefault(name, _Group())

    def join(self, group: str, name: str, session_s: float) -> int:
        """A new member; everyone rebalances. The member of the same static name is lost."""
        with self.changed:
            found = self.group(group)
            for number, member in list(found.members.items()):
                if name and member.name == name:
                    self._drop(found, number)
            self._next += 1
            found.members[self._next] = _Member(name, session_s, self.clock.elapsed())
            found.generation += 1
            self.changed.notify_all()
            return self._next

    def leave(self, group: str, number: int) -> None:
        """A member leaves in order."""
        with self.changed:
            found = self.group(group)
            self._drop(found, number)
            found.members.pop(number, None)
            self.changed.notify_all()

    def expire(self, group: str) -> None:
        """Eject members whose session ended."""
        with self.changed:
            found = self.group(group)
            now = self.clock.elapsed()
            for number, member in list(found.members.items()):
                if not member.lost and now - member.confirmed > member.session_s:
                    self._drop(found, number)

    def _drop(self, found: _Group, number: int) -> None:
        if number in found.members:
            found.members[number].lost = True
        found.owners = {p: owner for p, owner in found.owners.items() if owner != number}
        found.generation += 1

    def desired(self, group: str, number: int) -> set[int]:
        """Partition numbers of a member by range assignment."""
        found = self.group(group)
        living = sorted(n for n, member in found.members.items() if not member.lost)
        share, extra = divmod(self.partitions, len(living))
        at = living.index(number)
        start = at * share + min(at, extra)
        return set(range(start, start + share + (1 if at < extra else 0)))


class MemoryPublisher:
    """``pipeline.ports.Publisher``."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        """Append all."""
        self._broker.check()
        _check_sizes(records)
        return [self._broker.append(record) for record in records]

    def close(self) -> None:
        """Nothing to disconnect."""


class MemoryAppender:
    """``pipeline.ports.Appender``. ``fail_next`` makes transactions abort after their records were written."""

    def __init__(self, broker: MemoryBroker, transactional_id: str, limit: int = 200) -> None:
        self._broker = broker
        self._id = transactional_id
        self._limit = limit
        self._epoch = broker.take_over(transactional_id)
        self.fail_next = 0

    def append(self, records: Sequence[Outgoing]) -> list[Appended]:
        """One transaction."""
        if len(records) > self._limit:
            raise ValueError(f"{len(records)} events in one transaction, at most {self._limit}")
        if self._broker.fenced(self._id, self._epoch):
            raise Crash(f"another owner took over transactional id {self._id}")
        if not records:
            return []
        _check_sizes(records)
        self._broker.check()
        with self._broker.changed:
            transaction = self._broker.begin()
            appended = [self._broker.append(record, transaction) for record in records]
            failed = self.fail_next > 0
            self.fail_next -= 1 if failed else 0
            self._broker.end(transaction, "aborted" if failed else "committed")
        if failed:
            raise BusUnavailable("the transaction was aborted as the test asked")
        return appended

    def close(self) -> None:
        """Nothing to disconnect."""


def _check_sizes(records: Sequence[Outgoing]) -> None:
    for record in records:
        if len(record.value or b"") + len(record.key.encode()) > MAX_BYTES:
            raise Reject(f"record for {record.key} is too large", stage="append", kind="too_large")


class MemoryReader:
    """``pipeline.bus.interface.Reader``. Polling is the heartbeat."""

    def __init__(
        self,
        broker: MemoryBroker,
        group: str,
        topics: Sequence[Topic],
        listener: Listener,
        *,
        session_s: float = 6.0,
        isolation: Isolation = "read_committed",
        member: str | None = None,
        max_records: int = 500,
    ) -> None:
        self._broker = broker
        self._group = group
        self._topics = [str(topic) for topic in topics]
        self._listener = listener
        self._session = session_s
        self._isolation: Isolation = isolation
        self._name = member or ""
        self._max = max_records
        self._number = broker.join(group, self._name, session_s)
        self._generation = -1
        self._positions: dict[Slot, int] = {}
        self._paused: set[Slot] = set()
        self._owned: set[int] = set()
        self._confirmed: float | None = None
        self._closed = False

    # -- membership

    def _member(self) -> _Member:
        return self._broker.group(self._group).members[self._number]

    def _slots_of(self, numbers: set[int]) -> frozenset[Slot]:
        return frozenset(
            Slot(topic, number) for topic in self._topics for number in numbers if number < self._broker.count(topic)
        )

    def _rebalance(self) -> None:
        if self._member().lost:
            self._give_up(lost=True)
            if self._name:
                raise Crash(f"another process took the member name {self._name}")
            self._broker.group(self._group).members.pop(self._number, None)
            self._number = self._broker.join(self._group, self._name, self._session)
        found = self._broker.group(self._group)
        if found.generation == self._generation:
            return
        generation = found.generation
        if self._owned:
            self._give_up(lost=False)
        with self._broker.changed:
            wanted = self._broker.desired(self._group, self._number)
            if any(found.owners.get(p, self._number) != self._number for p in wanted):
                return  # another member has not given up yet
            found.owners |= dict.fromkeys(wanted, self._number)
            self._owned = wanted
            self._generation = generation
            slots = self._slots_of(wanted)
            self._positions = dict.fromkeys(slots, 0)
            self._paused = set(slots)
        if slots:
            self._listener.on_assigned(slots)

    def _give_up(self, *, lost: bool) -> None:
        slots = self._slots_of(self._owned)
        if slots:
            self._listener.on_revoked(slots, lost=lost)
        with self._broker.changed:
            found = self._broker.group(self._group)
            found.owners = {p: o for p, o in found.owners.items() if o != self._number}
            self._owned = set()
            self._positions = {}
            self._paused = set()
            self._generation = -1
            if lost:
                self._confirmed = None

    def _confirm(self, at: float) -> None:
        if not self._member().lost:
            self._member().confirmed = at
            self._confirmed = at

    # -- reading

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """See ``Reader.poll``."""
        self._broker.check()
        self._broker.expire(self._group)
        self._confirm(self._broker.clock.elapsed())
        self._rebalance()
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            with self._broker.changed:
                records = self._fetch()
                left = deadline - time.monotonic()
                changed = self._broker.group(self._group).generation != self._generation
                if records or left <= 0 or changed:
                    if changed and not records and left > 0:
                        self._broker.changed.wait(min(left, 0.01))
                    return records
                self._broker.changed.wait(min(left, 0.05))

    def _fetch(self) -> list[Record]:
        records: list[Record] = []
        for slot in sorted(self._positions):
            if slot in self._paused:
                continue
            found, position = self._broker.read(slot, self._positions[slot], self._isolation, self._max - len(records))
            records.extend(found)
            self._positions[slot] = position
        return records

    def assignment(self) -> frozenset[Slot]:
        """Slots assigned now."""
        return frozenset(self._positions)

    def pause(self, slots: Sequence[Slot]) -> None:
        """See ``Reader.pause``."""
        self._paused |= set(slots) & set(self._positions)

    def resume(self, slots: Sequence[Slot]) -> None:
        """See ``Reader.resume``."""
        self._paused -= set(slots)

    def seek(self, slot: Slot, offset: int) -> None:
        """See ``Reader.seek``."""
        if slot not in self._positions:
            raise ValueError("Unassigned partition")
        self._positions[slot] = offset

    def position(self, slot: Slot) -> int:
        """See ``Reader.position``."""
        return self._positions.get(slot, 0)

    def highwater(self, slot: Slot) -> int | None:
        """See ``Reader.highwater``."""
        return self._broker.end_offset(slot)

    def confirmed(self) -> float | None:
        """See ``Reader.confirmed``."""
        return self._confirmed

    def committed(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """See ``Reader.committed``."""
        self._broker.check()
        known = self._broker.group(self._group).committed
        return {slot: known[slot] for slot in slots if slot in known}

    def commit(self, offsets: Mapping[Slot, int]) -> bool:
        """See ``Reader.commit``."""
        self._broker.check()
        self._broker.expire(self._group)
        if self._member().lost:
            return False
        self._confirm(self._broker.clock.elapsed())
        self._broker.group(self._group).committed.update(offsets)
        return True

    def beginning_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Always 0: nothing is ever trimmed here."""
        self._broker.check()
        return dict.fromkeys(slots, 0)

    def end_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """See ``Reader.end_offsets``."""
        self._broker.check()
        return {slot: self._broker.end_offset(slot, self._isolation) for slot in slots}

    def close(self) -> None:
        """See ``Reader.close``."""
        if self._closed:
            return
        self._closed = True
        self._give_up(lost=self._member().lost)
        self._broker.leave(self._group, self._number)
        self._confirmed = None


class MemoryTail:
    """``pipeline.bus.interface.Tail``."""

    def __init__(
        self,
        broker: MemoryBroker,
        topics: Sequence[Topic],
        *,
        since: float | Literal["end", "beginning"] = "end",
        offsets: Mapping[Slot, int] | None = None,
        not_after: Mapping[Slot, int] | None = None,
        isolation: Isolation = "read_committed",
    ) -> None:
        self._broker = broker
        self._isolation: Isolation = isolation
        slots = [Slot(str(t), n) for t in topics for n in range(broker.count(str(t)))]
        self._target = {slot: broker.end_offset(slot, isolation) for slot in slots}
        starts = {slot: self._start(slot, since) for slot in slots}
        starts |= {slot: at for slot, at in (offsets or {}).items() if slot in starts}
        self._positions = {
            slot: min(at, (not_after or {}).get(slot, at), self._target[slot]) for slot, at in starts.items()
        }

    def _start(self, slot: Slot, since: float | Literal["end", "beginning"]) -> int:
        if since == "end":
            return self._target[slot]
        if since == "beginning":
            return 0
        moment = self._broker.clock.now() - int(since * 1_000_000)
        records, _ = self._broker.read(slot, 0, "read_uncommitted", 10**9)
        return next((r.offset for r in records if r.timestamp >= moment), self._target[slot])

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """See ``Tail.poll``."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            self._broker.check()
            with self._broker.changed:
                records: list[Record] = []
                for slot in sorted(self._positions):
                    found, position = self._broker.read(slot, self._positions[slot], self._isolation, 1000)
                    records.extend(found)
                    self._positions[slot] = position
                left = deadline - time.monotonic()
                if records or left <= 0:
                    return records
                self._broker.changed.wait(min(left, 0.05))

    def positions(self) -> dict[Slot, int]:
        """Next offsets."""
        return dict(self._positions)

    def caught_up(self) -> bool:
        """See ``Tail.caught_up``."""
        return all(self._positions[slot] >= end for slot, end in self._target.items())

    def behind(self) -> int:
        """See ``Tail.behind``."""
        self._broker.check()
        return sum(self._broker.end_offset(s, self._isolation) - p for s, p in self._positions.items())

    def close(self) -> None:
        """Nothing to disconnect."""


def scan(
    broker: MemoryBroker,
    topic: Topic,
    *,
    partitions: Sequence[int] | None = None,
    wanted: Callable[[str | None], bool] | None = None,
    isolation: Isolation = "read_committed",
) -> Iterator[Record]:
    """``pipeline.bus.tail.read_compacted``."""
    broker.check()
    numbers = partitions if partitions is not None else range(broker.count(str(topic)))
    for number in numbers:
        for record in broker.read(Slot(str(topic), number), 0, isolation, 10**9)[0]:
            if wanted is None or wanted(record.key):
                yield record
