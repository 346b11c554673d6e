"""Exponential backoff with jitter. Pure but for the random source that it is given."""

from __future__ import annotations

import random


class Backoff:
    """Seconds to wait after each failure in a row: doubling from ``first`` to ``most``, half of it random."""

    def __init__(self, first: float = 0.1, most: float = 5.0, source: random.Random | None = None) -> None:
        self._first = first
        self._most = most
        self._random = source if source is not None else random.Random()
        self.failures = 0

    def next(self) -> float:
        """Count a failure and give its pause."""
        pause = min(self._most, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return pause * (0.5 + self._random.random() / 2)

    def reset(self) -> None:
        """A success ends the row."""
        self.failures = 0
