"""How old corpus statistics may be, and what is asked when."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from pipeline.errors import StoreUnavailable
from pipeline.index import statistics
from pipeline.index.statistics import SMALL_CORPUS, StatisticsCache, Total
from pipeline.ports import TermStatistics


class Corpus:
    """A corpus that counts the questions and whose time is moved by hand."""

    def __init__(self, total: Total, **frequencies: int) -> None:
        self.total = total
        self.frequencies = frequencies
        self.asked: Counter[str] = Counter()
        self.now = 1000.0
        self.running = self.most = 0
        self.fail = False
        self.cache = StatisticsCache(self.ask_total, self.ask_frequencies, lambda: self.now)

    async def ask_total(self, generation: str, tenant: str) -> Total:
        await self._pause("total")
        return self.total

    async def ask_frequencies(self, generation: str, tenant: str, terms: Sequence[str]) -> dict[str, int]:
        await self._pause(*terms)
        return {term: self.frequencies.get(term, 0) for term in terms}

    async def _pause(self, *what: str) -> None:
        self.asked.update(what)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        if self.fail:
            raise StoreUnavailable("down")

    async def get(self, *terms: str) -> TermStatistics:
        return await self.cache.get("g", "t", terms)


LARGE = Total(SMALL_CORPUS * 2, SMALL_CORPUS * 100)


def test_all_questions_of_a_request_run_together_and_each_once() -> None:
    async def scenario() -> None:
        corpus = Corpus(LARGE, a=3, b=2, c=1)
        found = await corpus.get("a", "b", "c", "a")
        assert found == TermStatistics(LARGE.chunks, 50.0, {"a": 3, "b": 2, "c": 1})
        assert corpus.most == 2, "the total, and all words in one"
        assert corpus.asked == Counter(total=1, a=1, b=1, c=1)

    asyncio.run(scenario())


def test_word_that_is_nowhere_is_asked_again_after_seconds() -> None:
    async def scenario() -> None:
        corpus = Corpus(LARGE)
        await corpus.get("new")
        corpus.frequencies["new"] = 1
        corpus.now += 2.9
        assert (await corpus.get("new")).document_frequency == {"new": 0}
        corpus.now += 0.2
        assert (await corpus.get("new")).document_frequency == {"new": 1}
        assert corpus.asked == Counter(total=1, new=2)

    asyncio.run(scenario())


def test_old_values_serve_while_new_ones_are_fetched_once() -> None:
    async def scenario() -> None:
        corpus = Corpus(LARGE, a=5)
        await corpus.get("a")
        corpus.total, corpus.frequencies = Total(LARGE.chunks + 7, LARGE.tokens), {"a": 6}
        corpus.now += 29.9
        await corpus.get("a")
        await asyncio.sleep(0.01)
        assert corpus.asked == Counter(total=1, a=1)
        corpus.now += 0.2
        for _ in range(3):
            found = await corpus.get("a")
            assert (found.chunks, found.document_frequency["a"]) == (LARGE.chunks, 5)
        await asyncio.sleep(0.01)
        found = await corpus.get("a")
        assert (found.chunks, found.document_frequency["a"]) == (LARGE.chunks + 7, 6)
        assert corpus.asked == Counter(total=2, a=2)

    asyncio.run(scenario())


def test_values_of_another_hour_are_not_served() -> None:
    async def scenario() -> None:
        corpus = Corpus(LARGE, a=5)
        await corpus.get("a")
        corpus.total, corpus.frequencies = Total(LARGE.chunks + 7, LARGE.tokens), {"a": 6}
        corpus.now += 601
        found = await corpus.get("a")
        assert (found.chunks, found.document_frequency["a"]) == (LARGE.chunks + 7, 6)

    asyncio.run(scenario())


def test_failed_refresh_keeps_the_old_values_and_tries_again() -> None:
    async def scenario() -> None:
        corpus = Corpus(LARGE, a=5)
        await corpus.get("a")
        corpus.now += 61
        corpus.fail = True
        assert (await corpus.get("a")).document_frequency == {"a": 5}
        await asyncio.sleep(0.01)
        corpus.fail = False
        corpus.frequencies["a"] = 6
        assert (await corpus.get("a")).document_frequency == {"a": 5}
        await asyncio.sleep(0.01)
        assert (await corpus.get("a")).document_frequency == {"a": 6}
        corpus.fail = True
        with pytest.raises(StoreUnavailable):
            await corpus.get("unknown")
        await corpus.cache.close()

    asyncio.run(scenario())


def test_small_corpus_is_asked_again_after_seconds() -> None:
    async def scenario() -> None:
        corpus = Corpus(Total(2, 8), a=1)
        assert (await corpus.get("a")).average_length == 4.0
        corpus.total, corpus.frequencies = Total(4, 8), {"a": 3}
        corpus.now += 3.1
        assert await corpus.get("a") == TermStatistics(4, 2.0, {"a": 3})

    asyncio.run(scenario())


def test_frequency_never_exceeds_the_number_of_chunks() -> None:
    async def scenario() -> None:
        corpus = Corpus(Total(0, 0))
        assert await corpus.get() == TermStatistics(0, 0.0, {})
        corpus.total, corpus.frequencies = Total(5, 50), {"a": 5}
        assert await corpus.get("a") == TermStatistics(5, 10.0, {"a": 5})

    asyncio.run(scenario())


def test_terms_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_TERMS", 10)

    async def scenario(terms: Sequence[str]) -> Corpus:
        corpus = Corpus(LARGE)
        found = await corpus.get(*terms)
        assert len(found.document_frequency) == len(terms)
        return corpus

    corpus = asyncio.run(scenario([f"t{i}" for i in range(50)]))
    assert len(corpus.cache._frequencies) == 10
