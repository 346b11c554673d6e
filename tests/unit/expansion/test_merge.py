"""Several lists into one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_service.expansion.merge import best_of_documents, merged
from tests.unit.expansion.index import names, outcome, ranked, twin

pytestmark = pytest.mark.requirement("B11")


def test_without_further_lists_nothing_changes() -> None:
    original = outcome("a", "b")
    assert merged(original, []) is original


def test_what_two_lists_agree_on_comes_first_and_scores_fall() -> None:
    found = merged(outcome("a", "b", "c"), [(outcome("c", "d"), 1.0)])
    assert names(found) == ["c", "a", "b", "d"]
    assert [r.fused for r in found.ranked] == sorted((r.fused for r in found.ranked), reverse=True)
    assert found.admitted["admitted"] == 4
    weak = merged(outcome("a", "b"), [(outcome("c"), 0.1)])
    assert names(weak) == ["a", "b", "c"]


@pytest.mark.requirement("B2")
def test_identifiers_of_the_original_stay_first_and_those_of_others_are_none() -> None:
    original = outcome("x", ranked("holder", exact=True))
    original.ranked.sort(key=lambda r: not r.candidate.exact)
    found = merged(original, [(outcome(ranked("twin", exact=True), "x"), 1.0), (outcome("twin", "x"), 1.0)])
    assert names(found)[0] == "holder"
    assert {r.candidate.chunk_id for r in found.ranked if r.candidate.exact} == {"holder"}


def test_what_only_others_found_carries_no_scores_of_theirs() -> None:
    found = merged(outcome("a"), [(outcome(ranked("b", dense_rank=1, sparse_rank=2, sparse_score=9.0)), 1.0)])
    own, other = found.ranked
    assert own.candidate.distance == 0.5
    assert (other.candidate.distance, other.dense_rank, other.sparse_rank, other.sparse_score) == (None,) * 4
    assert found.admitted["dense"] == 1, "the counts know it"


def test_equal_passages_stay_one() -> None:
    found = merged(outcome(ranked("a", twins=(twin("copy"),))), [(outcome("copy", "b"), 1.0)])
    assert names(found) == ["a", "b"]
    assert found.ranked[0].fused == pytest.approx(2 / 61)


def test_counters_add_up() -> None:
    one = outcome("a", raw=Counter(dense=3), refused=Counter(rule=1), refills=1)
    two = outcome("b", raw=Counter(dense=2), refused=Counter(rule=2), starved=True)
    found = merged(one, [(two, 1.0)])
    assert (found.raw["dense"], found.refused["rule"], found.refills, found.starved) == (5, 3, 1, True)


def test_the_best_passage_of_each_document() -> None:
    one = outcome(ranked("a1", document="a"), ranked("b1", document="b"))
    two = outcome(ranked("b2", document="b"), ranked("a2", document="a"), ranked("c1", document="c"))
    best = best_of_documents([one, two])
    assert best is not None and names(best) == ["a1", "b2", "c1"]
    assert best_of_documents([]) is None


_LISTS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8), min_size=1, max_size=5)


@given(_LISTS, st.sets(st.sampled_from("abcdefgh"), max_size=3))
def test_nothing_is_lost_doubled_or_invented(lists: list[list[str]], exact: set[str]) -> None:
    first, *others = lists
    original = outcome(*sorted((ranked(n, exact=n in exact) for n in first), key=lambda r: not r.candidate.exact))
    found = merged(original, [(outcome(*other), 0.7) for other in others])
    assert sorted(names(found)) == sorted({n for one in lists for n in one})
    holders = [n for n in names(found) if n in exact and n in first]
    assert names(found)[: len(holders)] == holders
    again = merged(original, [(outcome(*other), 0.7) for other in others])
    assert names(again) == names(found)
