"""Clocks: wall time in microseconds for versions and lag, suspension-counting time for leases."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the code may ask of time; tests move it by hand."""

    def now(self) -> int:
        """Wall clock, microseconds since the epoch."""
        ...

    def elapsed(self) -> float:
        """Seconds on a clock that never goes back and counts suspension of process and machine."""
        ...


def micros_of(text: str) -> int:
    """Microseconds since the epoch of an ISO date or time; one without a zone is UTC. Raises ValueError."""
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0, (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))


class SystemClock:
    """The machine's clocks."""

    def now(self) -> int:
        """Wall clock, microseconds since the epoch."""
        return time.time_ns() // 1000

    def elapsed(self) -> float:
        """CLOCK_BOOTTIME where the system has it: unlike CLOCK_MONOTONIC it runs on while the machine sleeps."""
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        return time.clock_gettime(boottime) if boottime is not None else time.monotonic()


class ManualClock:
    """A clock for tests: starts at ``start`` microseconds and moves only by ``advance``."""

    def __init__(self, start: int = 1_700_000_000_000_000) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> int:
        """The set wall clock."""
        return self._now

    def elapsed(self) -> float:
        """Seconds advanced so far."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move both clocks."""
        self._now += int(seconds * 1_000_000)
        self._elapsed += seconds
