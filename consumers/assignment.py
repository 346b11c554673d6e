"""What a process holds of one partition number while it owns it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from consumers.commit import Tracker
from consumers.lease import Lease
from consumers.positions import Start
from pipeline.bus.interface import Slot
from pipeline.ports import Record


class Assignment:
    """One partition number with all topics of the lane, for one stay in the group. Thread-safe.

    ``lease`` is the Deadline of every store write for the partition. A lane calls ``done`` for each record once its
    work is durable and its receipt published, in any order.
    """

    def __init__(self, partition: int, topics: Sequence[str], lease: Lease, since: float) -> None:
        self.partition = partition
        self.topics = tuple(topics)
        self.lease = lease
        self.since = since  # Clock.elapsed at assignment
        self.starts: dict[str, Start] = {}
        self.closed = False
        self._trackers: dict[str, Tracker] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> bool:
        """Whether records flow: the wait for the previous owner's lease is over and the start is decided."""
        return bool(self._trackers) and not self.closed

    def slots(self) -> list[Slot]:
        """All slots of the partition number."""
        return [Slot(topic, self.partition) for topic in self.topics]

    def begin(self, starts: dict[str, Start]) -> None:
        """Start reading at these offsets."""
        with self._lock:
            self.starts = dict(starts)
            self._trackers = {topic: Tracker(start.offset) for topic, start in starts.items()}

    def read(self, record: Record) -> None:
        """A record was handed over by the reader."""
        with self._lock:
            self._trackers[record.topic].read(record.offset, len(record.value or b""))

    def advance(self, topic: str, position: int) -> None:
        """The reader passed everything before ``position``."""
        with self._lock:
            self._trackers[topic].advance(position)

    def done(self, record: Record) -> None:
        """The record's work is durable and its receipt published."""
        with self._lock:
            self._trackers[record.topic].done(record.offset)

    def ambiguous(self, record: Record) -> bool:
        """Whether the previous owner may have stopped in the middle of this record: writes are repaired, not assumed.

        The manifest that lists an id remains the proof that the id is whole.
        """
        start = self.starts.get(record.topic)
        return start is not None and start.ambiguous(record.offset)

    def watermark(self, topic: str) -> int:
        """Everything before this offset is done."""
        with self._lock:
            return self._trackers[topic].watermark

    def open(self, topic: str) -> tuple[int, int]:
        """Records and bytes read but not yet below the watermark."""
        with self._lock:
            tracker = self._trackers[topic]
            return tracker.open_records, tracker.open_bytes
