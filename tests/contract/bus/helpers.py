"""What the bus tests share: the bus under test and a member that records what happens to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.bus.interface import Reader, Slot, Tail
from pipeline.ports import Appender, Outgoing, Publisher, Record
from schemas.topics import Topic


@dataclass
class Bus:
    """Factories for clients of one log; ``close`` closes what was made through ``make``."""

    publisher: Callable[[], Publisher]
    appender: Callable[[str], Appender]
    reader: Callable[..., Reader]
    tail: Callable[..., Tail]
    scan: Callable[..., Iterator[Record]]
    made: list[Any] = field(default_factory=list)

    def make(self, client: Any) -> Any:
        """Remember a client, to be closed at the end of the test."""
        self.made.append(client)
        return client

    def close(self) -> None:
        """Close all, newest first."""
        for client in reversed(self.made):
            client.close()


class Member:
    """A group member that starts at its committed offsets, else at the beginning, and notes its rebalances."""

    def __init__(self, bus: Bus, group: str, topics: list[Topic], **options: Any) -> None:
        self.events: list[tuple[str, frozenset[Slot]]] = []
        self.records: list[Record] = []
        self.commit_on_revoke = True
        self.committed_at_revoke: bool | None = None
        self.reader: Reader = bus.make(bus.reader(group, topics, self, **options))

    def on_assigned(self, slots: frozenset[Slot]) -> None:
        """Listener."""
        self.events.append(("assigned", slots))
        known = self.reader.committed(list(slots))
        starts = {slot: known.get(slot, 0) for slot in slots}
        self.reader.commit(starts)
        for slot, offset in starts.items():
            self.reader.seek(slot, offset)
        self.reader.resume(list(slots))

    def on_revoked(self, slots: frozenset[Slot], *, lost: bool) -> None:
        """Listener."""
        self.events.append(("lost" if lost else "revoked", slots))
        if self.commit_on_revoke and not lost:
            self.committed_at_revoke = self.reader.commit({s: self.reader.position(s) for s in slots})

    def poll(self) -> list[Record]:
        """Poll once and keep what came."""
        found = self.reader.poll(100)
        self.records.extend(found)
        return found

    def poll_for(self, count: int) -> None:
        """Poll until so many records came in all; fails after 20 s, and when more came."""
        deadline = time.monotonic() + 20
        while len(self.records) < count:
            self.poll()
            assert time.monotonic() < deadline, f"{len(self.records)} of {count} records came within 20 s"
        assert len(self.records) == count

    def numbers(self) -> set[int]:
        """Partition numbers owned now."""
        return {slot.partition for slot in self.reader.assignment()}


def out(topic: Topic, key: str, value: bytes | None = b"x", partition_key: str | None = None) -> Outgoing:
    """A record."""
    return Outgoing(str(topic), key, value, partition_key)


def polled(tail: Tail, count: int) -> list[Record]:
    """The next records of a tail, so many; fails after 20 s, and when more came."""
    got: list[Record] = []
    deadline = time.monotonic() + 20
    while len(got) < count:
        got.extend(tail.poll(100))
        assert time.monotonic() < deadline, f"{len(got)} of {count} records came within 20 s"
    assert len(got) == count
    return got
