"""Requests that run now, by the generation that they began on. Used in the event loop only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Flights:
    """What the control consumer must know before a generation goes."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    @contextmanager
    def on(self, generation: str) -> Iterator[None]:
        """Count a request. Nothing may be awaited between the choice of the generation and this."""
        self._running[generation] += 1
        try:
            yield
        finally:
            self._running[generation] -= 1

    def counts(self) -> dict[str, int]:
        """Running requests of each generation that has any."""
        return {name: count for name, count in self._running.items() if count}
