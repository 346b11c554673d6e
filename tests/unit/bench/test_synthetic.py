"""Synthetic corpora: the same from the same seed, near their passages, readable by their scopes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from infra.bench.synthetic import (
    CHUNKS,
    PRINCIPALS,
    READERS,
    SCOPES,
    Corpus,
    Matrix,
    perturbed,
    recall,
    scope,
    tier_of,
    unit,
)

DIMENSION = 384


def _vectors(count: int = 50) -> Matrix:
    return unit(np.random.default_rng(1).standard_normal((count, DIMENSION)).astype(np.float32))


def _passages(count: int = 50) -> list[str]:
    drawn = np.random.default_rng(2)
    return [" ".join(f"word{int(n)}" for n in drawn.zipf(1.5, 120) % 500) for _ in range(count)]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Two hundred documents."""
    return Corpus(_passages(), _vectors(), documents=200)


@pytest.mark.requirement("D1")
def test_a_document_is_the_same_however_it_is_made(corpus: Corpus) -> None:
    again = Corpus(_passages(), _vectors(), documents=5).made(3)
    made = corpus.made(3)
    assert (made.texts, made.readers, made.tier) == (again.texts, again.readers, again.tier)
    assert np.array_equal(made.vectors, again.vectors)
    other = Corpus(_passages(), _vectors(), documents=5, seed=99).made(3)
    assert made.texts != other.texts


@pytest.mark.requirement("D1")
def test_vectors_are_of_unit_length_near_their_base_and_distinct(corpus: Corpus) -> None:
    base = _vectors()
    chosen = np.arange(50)
    moved = perturbed(base, chosen, np.random.default_rng(3))
    assert moved.dtype == np.float32
    assert np.allclose(np.linalg.norm(moved, axis=1), 1, atol=1e-5)
    cosines = np.einsum("ij,ij->i", moved, base[chosen])
    assert 0.6 < cosines.min() < cosines.max() < 0.99
    everything = np.concatenate([corpus.made(n).vectors for n in range(50)])
    assert everything.shape == (50 * CHUNKS, DIMENSION)
    assert len(np.unique(everything, axis=0)) == len(everything)


def test_texts_are_distinct_and_mostly_their_passage(corpus: Corpus) -> None:
    texts = [text for n in range(50) for text in corpus.made(n).texts]
    assert len(set(texts)) == len(texts)
    words = corpus.made(0).texts[0].split()[1:]
    nearest = max(
        sum(a == b for a, b in zip(words, passage.split(), strict=True)) / len(words) for passage in corpus.passages
    )
    assert 0.7 < nearest < 1


def test_questions_are_distinct_so_that_no_embedding_is_remembered(corpus: Corpus) -> None:
    asked = [corpus.question(n) for n in range(500)]
    assert len(set(asked)) == 500
    assert all(7 <= len(question.split()) <= 11 for question in asked)


@pytest.mark.requirement("D1")
def test_scopes_are_nested_and_see_the_share_that_they_should(corpus: Corpus) -> None:
    sets = [set(scope(count, corpus.seed)) for count in SCOPES]
    assert [len(names) for names in sets] == list(SCOPES)
    assert all(a < b for a, b in pairwise(sets))
    readers = [set(corpus.made(n).readers) for n in range(corpus.documents)]
    assert all(len(names) == READERS for names in readers)
    visible = [sum(bool(names & mine) for names in readers) / len(readers) for mine in sets]
    expected = [1 - (1 - count / PRINCIPALS) ** READERS for count in SCOPES]
    assert visible == pytest.approx(expected, abs=0.1)


def test_a_fifth_is_hot() -> None:
    assert sum(tier_of(n) == "hot" for n in range(1_000)) == 200


@pytest.mark.parametrize(("passages", "vectors"), [(2, 2), (5, 4)])
def test_too_little_to_perturb_is_refused(passages: int, vectors: int) -> None:
    with pytest.raises(ValueError, match="passages"):
        Corpus(["a b"] * passages, _vectors(vectors), documents=1)


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ([["a", "b"]], [["a", "b"]], 1.0),
        ([["a", "x"]], [["a", "b"]], 0.5),
        ([["a"], []], [["a"], ["b"]], 0.5),
        ([["a"], ["x"]], [["a"], []], 1.0),  # a scope that sees nothing asks for nothing
        ([[]], [[]], None),
    ],
)
def test_recall(found: Any, wanted: Any, expected: float | None) -> None:
    assert recall(found, wanted) == expected
