"""How long a system that does not answer is left alone, and when to give a look up."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.clock import Clock
from pipeline.sources.connector import Mark, SourceUnavailable
from pipeline.sources.remote.contract import RateLimited

FIRST_S = 0.2
MOST_S = 30.0
GIVE_UP_AFTER = 6
"""Failures in a row, limits not counted, after which a listing is not complete."""


class Patience:
    """Pauses between failures in a row: doubling with jitter, or what the system asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self.until = 0.0  # ``Clock.elapsed`` until which nothing is asked

    def failed(self, error: SourceUnavailable) -> None:
        """One more failure."""
        if isinstance(error, RateLimited):
            pause = error.retry_after
        else:
            self._failures += 1
            pause = min(MOST_S, FIRST_S * 2.0 ** min(self._failures - 1, 10)) * (0.5 + random.random() / 2)
        self.until = self._clock.elapsed() + pause

    def worth_waiting(self, error: SourceUnavailable) -> bool:
        """Count a failure; whether to ask again after ``pauses``."""
        self.failed(error)
        return isinstance(error, RateLimited) or self._failures < GIVE_UP_AFTER

    def pauses(self) -> Iterator[Mark]:
        """Other work goes first until it is time."""
        while self._clock.elapsed() < self.until:
            yield Mark.WAIT

    def answered(self) -> None:
        """A success ends the row."""
        self._failures = 0
        self.until = 0.0
