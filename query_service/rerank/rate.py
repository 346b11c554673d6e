"""How long a call of a reranker takes: so much a call and so much a token, learnt from the calls that were made."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence

MEMORY = 0.95  # weight that an observation keeps with the next one
VARIED = 1e-3  # relative spread of sizes from which the two parts can be told apart


class Rate:
    """Least squares with exponentially fading weights over (tokens, ms) of calls; thread-safe.

    A share of the time that does not depend on tokens (a round trip) must not be counted a token: else few passages
    would seem slow, fewer would be sent, and so on down to none.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # of weights, x, y, xx, xy
        self._at = now()

    def observe(self, tokens: float, ms: float) -> None:
        """One call."""
        with self._lock:
            n, x, y, xx, xy = (MEMORY * value for value in self._sums)
            self._sums = (n + 1, x + tokens, y + ms, xx + tokens * tokens, xy + tokens * ms)
            self._at = self._now()

    @property
    def age_s(self) -> float:
        """Since the last observation."""
        return self._now() - self._at

    def line(self) -> tuple[float, float]:
        """Milliseconds of a call and of each token, neither below 0; (0, 0) before the first observation."""
        with self._lock:
            n, x, y, xx, xy = self._sums
        if n == 0 or x == 0:
            return 0.0, 0.0
        spread = xx / n - (x / n) ** 2
        if spread <= VARIED * (x / n) ** 2:
            return 0.0, y / x
        slope = (xy / n - (x / n) * (y / n)) / spread
        fixed = y / n - slope * x / n
        if slope <= 0:
            return y / n, 0.0
        return (0.0, y / x) if fixed < 0 else (fixed, slope)

    def fitting(self, tokens: Sequence[int], ms: float, *, calls_of: int, workers: int, ahead: float) -> int:
        """How many of the first pairs are scored within ``ms``.

        ``calls_of`` pairs go into one call, ``workers`` calls run at once, ``ahead`` tokens stand in the queue.
        """
        fixed, slope = self.line()
        free = [ahead * slope / workers] * workers
        done = 0
        for start in range(0, len(tokens), calls_of):
            began = heapq.heappop(free) + fixed
            ends = began
            for count in tokens[start : start + calls_of]:
                ends += count * slope
                if ends > ms:
                    return done
                done += 1
            heapq.heappush(free, ends)
        return done
