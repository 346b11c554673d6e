"""Corpus statistics for the re-scoring, asked from the store and kept for seconds."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pipeline.ports import TermStatistics

TOTAL_TTL_S = 60.0
TERM_TTL_S = 30.0
# A word that is nowhere yet, and a small corpus, change the ranking with every document.
SHORT_TTL_S = 3.0
SMALL_CORPUS = 10_000
MAX_TERMS = 100_000

Corpus = tuple[str, str]  # generation, tenant


@dataclass(frozen=True)
class Total:
    """Chunks of a corpus and the tokens in all of them."""

    chunks: int
    tokens: int

    @property
    def average_length(self) -> float:
        """Tokens a chunk; 0 for an empty corpus."""
        return self.tokens / self.chunks if self.chunks else 0.0


class StatisticsCache:
    """Totals and document frequencies with a bounded age; a stale total is used while a new one is fetched."""

    def __init__(
        self,
        ask_total: Callable[[str, str], Awaitable[Total]],
        ask_frequency: Callable[[str, str, str], Awaitable[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask_total = ask_total
        self._ask_frequency = ask_frequency
        self._clock = clock
        self._totals: dict[Corpus, tuple[float, Total]] = {}
        self._frequencies: OrderedDict[tuple[str, str, str], tuple[float, int]] = OrderedDict()
        self._refreshing: dict[Corpus, asyncio.Task[Total]] = {}

    async def get(self, generation: str, tenant: str, terms: Sequence[str]) -> TermStatistics:
        """Statistics of the distinct terms; everything that is not known is asked at once."""
        corpus = (generation, tenant)
        known = {term: self._known(corpus, term) for term in dict.fromkeys(terms)}
        unknown = [term for term, frequency in known.items() if frequency is None]
        total, fetched = await asyncio.gather(
            self._total(corpus), asyncio.gather(*(self._fetch_frequency(corpus, term) for term in unknown))
        )
        frequencies = {term: frequency or 0 for term, frequency in known.items()}
        frequencies.update(zip(unknown, fetched, strict=True))
        most = max(frequencies.values(), default=0)
        if most > total.chunks:
            # Documents came since the total was counted.
            total = await self._fetch_total(corpus)
        return TermStatistics(max(total.chunks, most), total.average_length, frequencies)

    async def close(self) -> None:
        """End refreshes that are on their way."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ttl(self, corpus: Corpus, ordinary: float) -> float:
        known = self._totals.get(corpus)
        return SHORT_TTL_S if known is None or known[1].chunks < SMALL_CORPUS else ordinary

    def _known(self, corpus: Corpus, term: str) -> int | None:
        entry = self._frequencies.get((*corpus, term))
        if entry is None:
            return None
        asked, frequency = entry
        ttl = self._ttl(corpus, TERM_TTL_S) if frequency else SHORT_TTL_S
        return frequency if self._clock() - asked <= ttl else None

    async def _fetch_frequency(self, corpus: Corpus, term: str) -> int:
        asked = self._clock()
        frequency = await self._ask_frequency(*corpus, term)
        key = (*corpus, term)
        self._frequencies[key] = (asked, frequency)
        self._frequencies.move_to_end(key)
        while len(self._frequencies) > MAX_TERMS:
            self._frequencies.popitem(last=False)
        return frequency

    async def _total(self, corpus: Corpus) -> Total:
        entry = self._totals.get(corpus)
        if entry is None or (entry[1].chunks < SMALL_CORPUS and self._clock() - entry[0] > SHORT_TTL_S):
            return await self._fetch_total(corpus)
        asked, total = entry
        if self._clock() - asked > TOTAL_TTL_S and corpus not in self._refreshing:
            task = asyncio.create_task(self._fetch_total(corpus))
            self._refreshing[corpus] = task
            task.add_done_callback(lambda done: self._refreshed(corpus, done))
        return total

    def _refreshed(self, corpus: Corpus, task: asyncio.Task[Total]) -> None:
        self._refreshing.pop(corpus, None)
        if not task.cancelled():
            task.exception()  # seen: the old total stays, the next request tries again

    async def _fetch_total(self, corpus: Corpus) -> Total:
        asked = self._clock()
        total = await self._ask_total(*corpus)
        self._totals[corpus] = (asked, total)
        return total
