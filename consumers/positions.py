"""Where a new owner starts reading (invariant 11). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.receipts import Progress


@dataclass(frozen=True)
class Start:
    """``offset`` is read first. Records from ``ambiguous_from`` up to ``ambiguous_until`` may have been half done.

    ``end``: where the log ended then.
    """

    offset: int
    ambiguous_from: int
    ambiguous_until: int
    why: str
    end: int = 0

    def ambiguous(self, offset: int) -> bool:
        """Whether the previous owner may have stopped in the middle of this record."""
        return self.ambiguous_from <= offset < self.ambiguous_until


def start_of(
    *,
    committed: int | None,
    progress: Progress | None,
    tracked: bool,
    beginning: int,
    end: int,
    safety_window: int,
    window_records: int,
    first: Literal["beginning", "end"] = "beginning",
) -> Start:
    """Start of one slot.

    ``tracked``: the lane keeps progress records for the topic, so a missing one means that the store is empty. The
    smaller of both offsets counts; after an unclean stop, or when the store is behind the committed offset (it was
    restored), the start lies ``safety_window`` records earlier. A start outside the log is moved into it.
    """
    if not tracked:
        fresh = beginning if first == "beginning" else end
        at = committed if committed is not None else fresh
        return _inside(at, at, at, beginning, end, "committed" if committed is not None else f"first: {first}")
    if progress is None:
        if committed is None and first == "end":
            return _inside(end, end, end, beginning, end, "first: end")
        why = "no progress record: the store is empty" if committed is not None else "first: beginning"
        return _inside(beginning, beginning, beginning, beginning, end, why)
    if progress.offset > end:
        # The log is another one than the store was fed from; nothing that the store says of it counts.
        return _inside(beginning, beginning, beginning, beginning, end, "progress lies beyond the end of the log")
    at = progress.offset if committed is None else min(progress.offset, committed)
    restored = committed is not None and progress.offset < committed
    if progress.clean and not restored:
        return _inside(at, at, at, beginning, end, "left in order")
    why = "restored store" if restored else "unclean stop"
    return _inside(max(0, at - safety_window), at, at + window_records, beginning, end, why)


def _inside(offset: int, start: int, until: int, beginning: int, end: int, why: str) -> Start:
    return Start(min(max(offset, beginning), end), start, until, why, end)


def must_wait(progress: list[Progress], owner: str) -> bool:
    """Whether a new owner waits one lease: some lane's last owner was another process and did not leave in order."""
    return any(not p.clean and p.owner != owner for p in progress)
