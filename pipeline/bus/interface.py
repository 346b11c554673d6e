"""What the rest of the code asks of a log, beside ``pipeline.ports.Publisher`` and ``Appender``.

Topics are logical names (``schemas.topics.Topic`` values) everywhere; the namespace is added inside. Offsets name the
next record to read. A ``Slot`` is one partition of one topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pipeline.ports import Record


class Slot(NamedTuple):
    """One partition of one topic (logical name)."""

    topic: str
    partition: int


MIN_POLL_MS = 50
"""Shorter polls starve the client: they were seen to burn a core and to receive nothing."""


class Listener(Protocol):
    """Told of rebalances, from inside ``Reader.poll`` or ``Reader.close``, never concurrently with either.

    It runs in a thread of its own while heartbeats go on, so it may block; it may call the reader's methods except
    ``poll`` and ``close``.
    """

    def on_assigned(self, slots: frozenset[Slot]) -> None:
        """New slots, all paused; the owner seeks each and resumes it."""
        ...

    def on_revoked(self, slots: frozenset[Slot], *, lost: bool) -> None:
        """Slots are given up when this returns. ``lost``: membership has ended already, commits would fail."""
        ...


class Reader(Protocol):
    """A member of a consumer group. One thread polls; ``commit`` may be called from another."""

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """Records of resumed slots, in order per slot; waits at least ``MIN_POLL_MS``. Keeps the membership alive.

        Raises BusUnavailable when the broker refuses, Crash when another member took this member's static id, or
        when the assigned partition numbers differ between topics.
        """
        ...

    def assignment(self) -> frozenset[Slot]: ...
    def pause(self, slots: Sequence[Slot]) -> None:
        """Fetch no more of these slots; what is being fetched may still come."""
        ...

    def resume(self, slots: Sequence[Slot]) -> None: ...
    def seek(self, slot: Slot, offset: int) -> None: ...
    def position(self, slot: Slot) -> int:
        """Offset of the next record that ``poll`` will return, past aborted and control records already skipped."""
        ...

    def committed(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Committed offsets of the group; slots without one are absent. Raises BusUnavailable."""
        ...

    def commit(self, offsets: Mapping[Slot, int]) -> bool:
        """Commit; false when the group is rebalancing or this member has fallen out. Raises BusUnavailable."""
        ...

    def beginning_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]: ...
    def end_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]: ...
    def highwater(self, slot: Slot) -> int | None:
        """End of the slot as seen by the last fetch, without asking; None before the first."""
        ...

    def confirmed(self) -> float | None:
        """``Clock.elapsed`` at the sending of the newest request by which the broker confirmed this membership.

        None while not a member. Leases count from here.
        """
        ...

    def close(self) -> None:
        """Leave the group in order (the listener's ``on_revoked`` runs first)."""
        ...


ReaderFactory = Callable[[Listener], Reader]


class Tail(Protocol):
    """Reads all partitions of some topics without a group. Used by one thread."""

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        """New records, in order per slot. Raises BusUnavailable."""
        ...

    def caught_up(self) -> bool:
        """Whether everything before the end offsets taken at the first call after start was polled."""
        ...

    def behind(self) -> int:
        """Records between the positions and the end offsets of now. Raises BusUnavailable."""
        ...

    def positions(self) -> dict[Slot, int]: ...
    def close(self) -> None: ...
