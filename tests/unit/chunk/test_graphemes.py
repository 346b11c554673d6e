"""Places between what a reader sees as characters."""

from __future__ import annotations

from itertools import accumulate

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunk.graphemes import cut_at

PIECES = [
    "a", "é", "e\u0301", "\u0301", "\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "🇩🇪",
    "\U0001f1eb", "क्षि", "한", "\u1112\u1161\u11ab", "漢", "\r\n", " ", "\u200d", "ไ", "ท", "ย์", "ש\u05b8", "1\u20e3",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES), max_size=150).map("".join)


def edges(text: str) -> list[int]:
    return [0, *accumulate(len(cluster) for cluster in regex.findall(r"\X", text))]


@pytest.mark.requirement("A4")
@settings(max_examples=150, deadline=None)
@given(TEXT, st.data())
def test_the_last_edge_at_or_before_a_place(text: str, data: st.DataObject) -> None:
    found = edges(text)
    floor = data.draw(st.sampled_from(found))
    at = data.draw(st.integers(floor, len(text)))
    assert cut_at(text, at, floor) == max(edge for edge in found if edge <= at)


@pytest.mark.requirement("A4")
def test_flags_are_paired_from_where_their_row_begins() -> None:
    text = "x" + "🇩🇪" * 400
    assert all(cut_at(text, at, 0) == at - (at + 1) % 2 for at in range(2, 700))


@pytest.mark.requirement("A4")
def test_a_cluster_without_end_takes_no_time() -> None:
    text = "a" + "\u0301" * 2_000_000
    assert all(cut_at(text, at, 0) in (0, at - 1024, at) for at in range(1_000, 2_000_000, 40_000))
