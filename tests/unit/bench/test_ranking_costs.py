"""What was made cheaper on the way of a search says the same as before."""

from __future__ import annotations

import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ports import TermStatistics
from query_service import bm25
from schemas.keys import DOCUMENT_NAMESPACE, DocumentRef, named

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=40)


@given(TEXTS, TEXTS)
def test_a_document_keeps_its_uuid5(kind: str, document_id: str) -> None:
    document = DocumentRef(tenant="t", source="s", kind=kind, id=document_id)
    assert document.uid == str(uuid.uuid5(DOCUMENT_NAMESPACE, document.key))
    assert named(uuid.NAMESPACE_URL, document_id) == str(uuid.uuid5(uuid.NAMESPACE_URL, document_id))


@pytest.mark.requirement("B3")
@given(
    st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("abcdef"), max_size=20),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 60)),
)  # fmt: skip
def test_one_scorer_for_many_passages_is_the_formula(query: list[str], words: list[str], df: dict[str, int]) -> None:
    statistics = TermStatistics(chunks=50, average_length=8.0, document_frequency=df)
    scored = bm25.scorer(query, statistics)
    wanted = 0.0
    for term in query:
        tf, n = words.count(term), min(df.get(term, 0), 50)
        norm = bm25.K1 * (1 - bm25.B + bm25.B * len(words) / 8.0)
        wanted += math.log(1 + (50 - n + 0.5) / (n + 0.5)) * (tf / (tf + norm) if tf else 0.0)
    assert scored(" ".join(words)) == pytest.approx(wanted)
    assert scored(" ".join(words)) == bm25.score(query, " ".join(words), statistics)
