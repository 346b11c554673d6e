"""Corpus statistics for the re-scoring, asked from the store and kept for a while.

What changes the ranking with every document (a word that is nowhere yet, anything in a small corpus) is kept for
seconds. What changes slowly is served old while it is asked again in the background, so that only the first query
with a word waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pipeline.ports import TermStatistics

FRESH_S = 30.0
STALE_S = 600.0  # older than this is not served any more
SHORT_S = 3.0
SMALL_CORPUS = 10_000
MAX_TERMS = 100_000

Corpus = tuple[str, str]  # generation, tenant
V = TypeVar("V")


@dataclass(frozen=True)
class Total:
    """Chunks of a corpus and the tokens in all of them."""

    chunks: int
    tokens: int

    @property
    def average_length(self) -> float:
        """Tokens a chunk; 0 for an empty corpus."""
        return self.tokens / self.chunks if self.chunks else 0.0


class _Kept(Generic[V]):
    """Values by key with the moment they were asked for, refreshed one at a time."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()
        self._refreshing: dict[Hashable, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def peek(self, key: Hashable) -> V | None:
        """The value, however old."""
        entry = self._values.get(key)
        return None if entry is None else entry[1]

    async def get(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, V]], changes_fast: bool) -> V:
        """The kept value, or a new one where there is none or it is too old."""
        entry = self._values.get(key)
        if entry is None:
            return await self.fetch(key, ask)
        age = self._clock() - entry[0]
        if age > (SHORT_S if changes_fast else STALE_S):
            return await self.fetch(key, ask)
        if not changes_fast and age > FRESH_S and key not in self._refreshing:
            task = asyncio.create_task(self.fetch(key, ask))
            self._refreshing[key] = task
            task.add_done_callback(lambda done: self._refreshed(key, done))
        return entry[1]

    async def fetch(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """Ask now and keep the answer."""
        asked = self._clock()
        value = await ask()
        self._values[key] = (asked, value)
        self._values.move_to_end(key)
        while len(self._values) > self._limit:
            self._values.popitem(last=False)
        return value

    def drop(self, which: Callable[[Hashable], bool]) -> None:
        """Release the values of some keys."""
        for key in [key for key in self._values if which(key)]:
            del self._values[key]

    def _refreshed(self, key: Hashable, task: asyncio.Task[V]) -> None:
        self._refreshing.pop(key, None)
        if not task.cancelled():
            task.exception()  # seen: the old value stays, the next request tries again

    async def close(self) -> None:
        """End refreshes that are on their way."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class StatisticsCache:
    """Totals and document frequencies of each corpus; all questions of one request are asked at once."""

    def __init__(
        self,
        ask_total: Callable[[str, str], Coroutine[Any, Any, Total]],
        ask_frequency: Callable[[str, str, str], Coroutine[Any, Any, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask_total = ask_total
        self._ask_frequency = ask_frequency
        self._totals: _Kept[Total] = _Kept(MAX_TERMS, clock)
        self._frequencies: _Kept[int] = _Kept(MAX_TERMS, clock)

    async def get(self, generation: str, tenant: str, terms: Sequence[str]) -> TermStatistics:
        """Statistics of the distinct terms."""
        corpus = (generation, tenant)
        known = self._totals.peek(corpus)
        small = known is None or known.chunks < SMALL_CORPUS
        distinct = list(dict.fromkeys(terms))
        total, counted = await asyncio.gather(
            self._totals.get(corpus, lambda: self._ask_total(*corpus), small),
            asyncio.gather(*(self._frequency(corpus, term, small) for term in distinct)),
        )
        most = max(counted, default=0)
        if most > total.chunks:
            # Documents came since the total was counted.
            total = await self._totals.fetch(corpus, lambda: self._ask_total(*corpus))
        frequencies = dict(zip(distinct, counted, strict=True))
        return TermStatistics(max(total.chunks, most), total.average_length, frequencies)

    async def _frequency(self, corpus: Corpus, term: str, small: bool) -> int:
        key = (*corpus, term)
        changes_fast = small or self._frequencies.peek(key) == 0
        return await self._frequencies.get(key, lambda: self._ask_frequency(*corpus, term), changes_fast)

    def forget(self, generation: str) -> None:
        """Release what is kept of a generation's corpora."""
        for kept in (self._totals, self._frequencies):
            kept.drop(lambda key: isinstance(key, tuple) and key[0] == generation)

    async def close(self) -> None:
        """End refreshes that are on their way."""
        await self._totals.close()
        await self._frequencies.close()
