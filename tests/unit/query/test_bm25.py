"""The re-scoring: one table for both tiers."""

from __future__ import annotations

import math

import pytest

from pipeline.ports import TermStatistics
from query_service import bm25


def statistics(**frequency: int) -> TermStatistics:
    return TermStatistics(chunks=10, average_length=4.0, document_frequency=frequency)


@pytest.mark.requirement("A5", "A9")
def test_the_formula() -> None:
    idf = math.log(1 + (10 - 2 + 0.5) / (2 + 0.5))
    norm = 1.2 * (1 - 0.75 + 0.75 * 5 / 4)
    got = bm25.score(["refund"], "refund policy of the refund", statistics(refund=2))
    assert got == pytest.approx(idf * 2 / (2 + norm))


@pytest.mark.requirement("A9")
def test_a_word_twice_in_the_query_counts_twice() -> None:
    table = statistics(refund=2)
    once, twice = bm25.score(["refund"], "refund now", table), bm25.score(["refund"] * 2, "refund now", table)
    assert twice == pytest.approx(2 * once)


@pytest.mark.requirement("A9")
def test_a_word_unknown_to_the_table_has_the_highest_idf() -> None:
    known = bm25.score(["common"], "common text", statistics(common=9))
    new = bm25.score(["fresh"], "fresh text", statistics())
    assert new > known > 0


@pytest.mark.requirement("A9")
def test_a_table_older_than_the_text_gives_no_negative_score() -> None:
    stale = TermStatistics(chunks=1, average_length=0.0, document_frequency={"a": 5})
    assert bm25.score(["a"], "a b c", stale) > 0
    assert bm25.score(["a"], "", stale) == 0


def test_terms_are_bounded_and_keep_repetitions() -> None:
    tokens = [f"w{i}" for i in range(100)] + ["w0", "w99"]
    terms = bm25.query_terms(tokens)
    assert len(set(terms)) == bm25.MAX_TERMS
    assert terms.count("w0") == 2
    assert "w99" not in terms
