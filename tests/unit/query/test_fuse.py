"""Fusion: the exact figures of requirement B3."""

from __future__ import annotations

import pytest

from query_service import fuse


@pytest.mark.requirement("B3")
def test_rrf_of_two_lists_of_three() -> None:
    scores = fuse.rrf([["D2", "D3", "D1"], ["D1", "D2", "D3"]])
    assert scores["D1"] == pytest.approx(0.032266, abs=5e-7)
    assert scores["D2"] == pytest.approx(0.032522, abs=5e-7)
    assert scores["D3"] == pytest.approx(0.032002, abs=5e-7)
    assert fuse.order(scores) == ["D2", "D1", "D3"]


@pytest.mark.requirement("B3")
def test_rrf_gives_zero_for_an_absent_item() -> None:
    scores = fuse.rrf([["A", "B", "C"], ["C", "A", "D"]])
    assert scores == {
        "A": pytest.approx(1 / 61 + 1 / 62),
        "B": pytest.approx(1 / 62),
        "C": pytest.approx(1 / 63 + 1 / 61),
        "D": pytest.approx(1 / 63),
    }
    assert fuse.order(scores) == ["A", "C", "B", "D"]


@pytest.mark.requirement("B3")
def test_two_middling_ranks_beat_one_first_rank() -> None:
    scores = fuse.rrf([["x", "y", "z", "both"], ["p", "q", "both"]])
    assert scores["both"] == pytest.approx(0.031498, abs=5e-7)
    assert scores["x"] == pytest.approx(0.016393, abs=5e-7)
    assert fuse.order(scores)[0] == "both"


@pytest.mark.requirement("B3")
def test_rrf_sees_ranks_only() -> None:
    """Raw scores are never added: an outlier moves nothing, because it is not even passed."""
    assert fuse.rrf([["a", "b"], ["b", "a"]])["a"] == fuse.rrf([["a", "b"], ["b", "a"]])["b"]


@pytest.mark.requirement("B3")
def test_a_bm25_outlier_reorders_convex_fusion_and_not_rrf() -> None:
    dense = {"a": 0.90, "b": 0.88, "c": 0.50}
    plain = {"b": 3.0, "a": 2.9, "c": 1.0}
    outlier = {"b": 30.0, "a": 2.9, "c": 1.0}
    lists = [sorted(dense, key=lambda i: -dense[i])]
    before = fuse.order(fuse.rrf([*lists, sorted(plain, key=lambda i: -plain[i])]))
    after = fuse.order(fuse.rrf([*lists, sorted(outlier, key=lambda i: -outlier[i])]))
    assert before == after
    assert fuse.order(fuse.convex(dense, plain)) == ["a", "b", "c"]
    assert fuse.order(fuse.convex(dense, outlier)) == ["b", "a", "c"]


@pytest.mark.requirement("B3")
def test_convex_counts_an_absent_item_as_zero_and_equal_values_as_one() -> None:
    assert fuse.convex({"a": 0.4}, {"b": 7.0, "c": 7.0}) == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert fuse.convex({}, {}) == {}
    assert fuse.convex({"a": 1.0, "b": 0.0}, {"b": 1.0, "a": 0.0}, dense_share=0.25) == {"a": 0.25, "b": 0.75}


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_the_interval_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="dense_share"):
        fuse.convex({}, {}, dense_share=share)


def test_ties_are_ordered_by_id() -> None:
    assert fuse.order({"b": 1.0, "a": 1.0, "c": 2.0}) == ["c", "a", "b"]
