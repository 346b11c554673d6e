"""Corpus statistics for the re-scoring, asked from the store and kept for a while.

What changes the ranking with every document (a word that is nowhere yet, anything in a small corpus) is kept for
seconds. What changes slowly is served old while it is asked again in the background, so that only the first query
with a word waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipeline.ports import TermStatistics

FRESH_S = 30.0
STALE_S = 600.0  # older than this is not served any more
SHORT_S = 3.0
SMALL_CORPUS = 10_000
MAX_TERMS = 100_000

Corpus = tuple[str, str]  # generation, tenant
V = TypeVar("V")
Ask = Callable[[Sequence[Hashable]], Awaitable[dict[Hashable, V]]]


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
    """Values by key with the moment they were asked for; what a request lacks is asked in one question."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()
        self._refreshing: set[Hashable] = set()
        self._tasks: set[asyncio.Task[dict[Hashable, V]]] = set()

    def __len__(self) -> int:
        return len(self._values)

    def peek(self, key: Hashable) -> V | None:
        """The value, however old."""
        entry = self._values.get(key)
        return None if entry is None else entry[1]

    async def get(
        self, keys: Sequence[Hashable], ask: Ask[V], changes_fast: Callable[[V], bool]
    ) -> dict[Hashable, V]:  # fmt: skip
        """The kept values, new ones where there are none or they are too old."""
        now = self._clock()
        found: dict[Hashable, V] = {}
        lacking: list[Hashable] = []
        old: list[Hashable] = []
        for key in keys:
            entry = self._values.get(key)
            if entry is None:
                lacking.append(key)
                continue
            asked, value = entry
            fast = changes_fast(value)
            if now - asked > (SHORT_S if fast else STALE_S):
                lacking.append(key)
                continue
            found[key] = value
            if not fast and now - asked > FRESH_S and key not in self._refreshing:
                old.append(key)
        if old:
            self._refreshing.update(old)
            task = asyncio.create_task(self.fetch(old, ask))
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._refreshed(old, done))
        if lacking:
            found.update(await self.fetch(lacking, ask))
        return found

    async def fetch(self, keys: Sequence[Hashable], ask: Ask[V]) -> dict[Hashable, V]:
        """Ask now and keep the answers."""
        asked = self._clock()
        found = await ask(keys)
        for key, value in found.items():
            self._values[key] = (asked, value)
            self._values.move_to_end(key)
        while len(self._values) > self._limit:
            self._values.popitem(last=False)
        return found

    def drop(self, which: Callable[[Hashable], bool]) -> None:
        """Release the values of some keys."""
        for key in [key for key in self._values if which(key)]:
            del self._values[key]

    def _refreshed(self, keys: Sequence[Hashable], task: asyncio.Task[dict[Hashable, V]]) -> None:
        self._refreshing.difference_update(keys)
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the old values stay, the next request tries again

    async def close(self) -> None:
        """End refreshes that are on their way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class StatisticsCache:
    """Totals and document frequencies of each corpus; one request asks for all words at once, beside the total."""

    def __init__(
        self,
        ask_total: Callable[[str, str], Awaitable[Total]],
        ask_frequencies: Callable[[str, str, Sequence[str]], Awaitable[Mapping[str, int]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask_total = ask_total
        self._ask_frequencies = ask_frequencies
        self._totals: _Kept[Total] = _Kept(MAX_TERMS, clock)
        self._frequencies: _Kept[int] = _Kept(MAX_TERMS, clock)

    async def get(self, generation: str, tenant: str, terms: Sequence[str]) -> TermStatistics:
        """Statistics of the distinct terms."""
        corpus = (generation, tenant)
        known = self._totals.peek(corpus)
        small = known is None or known.chunks < SMALL_CORPUS
        keys = {(generation, tenant, term): term for term in terms}

        async def ask_total(_: Sequence[Hashable]) -> dict[Hashable, Total]:
            return {corpus: await self._ask_total(*corpus)}

        async def ask_frequencies(lacking: Sequence[Hashable]) -> dict[Hashable, int]:
            by_term = {term: key for key, term in keys.items() if key in lacking}
            counted = await self._ask_frequencies(*corpus, list(by_term))
            return {key: counted[term] for term, key in by_term.items()}

        totals, counted = await asyncio.gather(
            self._totals.get([corpus], ask_total, lambda _: small),
            self._frequencies.get(list(keys), ask_frequencies, lambda frequency: small or frequency == 0),
        )
        total = totals[corpus]
        most = max(counted.values(), default=0)
        if most > total.chunks:
            # Documents came since the total was counted.
            total = (await self._totals.fetch([corpus], ask_total))[corpus]
        frequencies = {term: counted[key] for key, term in keys.items()}
        return TermStatistics(max(total.chunks, most), total.average_length, frequencies)

    def forget(self, generation: str) -> None:
        """Release what is kept of a generation's corpora."""
        for kept in (self._totals, self._frequencies):
            kept.drop(lambda key: isinstance(key, tuple) and key[0] == generation)

    async def close(self) -> None:
        """End refreshes that are on their way."""
        await self._totals.close()
        await self._frequencies.close()
