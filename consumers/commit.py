"""Which offset may be committed: the low watermark of work that completes out of order. Pure."""

from __future__ import annotations

from collections import OrderedDict


class Tracker:
    """Open (read, not yet done) records of one slot.

    Offsets arrive in increasing order, with gaps where the log was compacted or holds control records. The low
    watermark is the offset of the oldest open record; with none open it is the position after the last one read.
    """

    def __init__(self, start: int) -> None:
        self._position = start
        self._open: OrderedDict[int, int] = OrderedDict()  # offset -> bytes
        self._done: set[int] = set()
        self._bytes = 0

    def read(self, offset: int, size: int = 0) -> None:
        """A record was read. Raises ValueError when it does not lie after all earlier ones."""
        if offset < self._position:
            raise ValueError(f"offset {offset} was read after position {self._position}")
        self._open[offset] = size
        self._bytes += size
        self._position = offset + 1

    def done(self, offset: int) -> None:
        """A record's work is durable. Saying so twice is harmless; an offset never read raises ValueError."""
        if offset not in self._open:
            if offset >= self._position:
                raise ValueError(f"offset {offset} was not read yet")
            return
        self._done.add(offset)
        while self._open:
            oldest = next(iter(self._open))
            if oldest not in self._done:
                break
            self._done.discard(oldest)
            self._bytes -= self._open.pop(oldest)

    def advance(self, position: int) -> None:
        """The reader stands at ``position``: everything between the last record and it holds no records."""
        self._position = max(self._position, position)

    @property
    def watermark(self) -> int:
        """Everything before this offset is done."""
        return next(iter(self._open)) if self._open else self._position

    @property
    def position(self) -> int:
        """Next offset to be read."""
        return self._position

    @property
    def open_records(self) -> int:
        """Records read and held back from the watermark (done ones behind an open one included)."""
        return len(self._open)

    @property
    def open_bytes(self) -> int:
        """Sum of their sizes."""
        return self._bytes

    @property
    def unfinished(self) -> list[int]:
        """Offsets not done, oldest first."""
        return [offset for offset in self._open if offset not in self._done]
