"""Maximal marginal relevance: both ends, the formula, near-duplicates, identifiers in front."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_service.diversify import mmr, unit_rows

VECTORS = st.lists(
    st.lists(st.floats(-1, 1, allow_nan=False, width=32), min_size=4, max_size=4), min_size=1, max_size=12
)


def rows(*vectors: list[float]) -> np.ndarray:
    return unit_rows([np.asarray(v, dtype=np.float32) for v in vectors], len(vectors[0]))


def order(found: list[tuple[int, float]]) -> list[int]:
    return [at for at, _ in found]


@pytest.mark.requirement("B5")
def test_the_formula_on_three_passages() -> None:
    """b is nearly a; c is less relevant and something else."""
    matrix = rows([1.0, 0.0], [0.96, 0.28], [0.0, 1.0])
    found = mmr([1.0, 0.9, 0.5], matrix, 0.5)
    assert order(found) == [0, 2, 1]
    assert found[0][1] == pytest.approx(0.5)
    assert found[1][1] == pytest.approx(0.5 * 0.5 - 0.5 * 0.0, abs=1e-6)
    assert found[2][1] == pytest.approx(0.5 * 0.9 - 0.5 * 0.96, abs=1e-6)


@pytest.mark.requirement("B5")
def test_the_default_keeps_relevance_and_parts_near_twins() -> None:
    matrix = rows([1.0, 0.0], [1.0, 0.001], [0.0, 1.0], [0.5, 0.5])
    assert order(mmr([1.0, 0.95, 0.9, 0.1], matrix, 0.9)) == [0, 2, 1, 3]
    assert order(mmr([1.0, 0.9, 0.2, 0.1], matrix, 0.9)) == [0, 1, 2, 3]


@pytest.mark.requirement("B5")
@given(VECTORS)
def test_one_is_the_order_of_relevance(vectors: list[list[float]]) -> None:
    relevance = [1.0 / (1 + i // 2) for i in range(len(vectors))]
    assert order(mmr(relevance, rows(*vectors), 1.0)) == list(range(len(vectors)))


@pytest.mark.requirement("B5")
@settings(max_examples=50)
@given(VECTORS)
def test_zero_is_novelty_alone(vectors: list[list[float]]) -> None:
    """Relevance does not count: each next one is the least like those before."""
    matrix = rows(*vectors)
    one = mmr([1.0 - i / 100 for i in range(len(vectors))], matrix, 0.0)
    assert one == mmr([0.0] * len(vectors), matrix, 0.0) and one[0][0] == 0
    cosine = matrix @ matrix.T
    done = [0]
    for at, value in one[1:]:
        waiting = [i for i in range(len(vectors)) if i not in done]
        likeness = {i: max(float(cosine[i, j]) for j in done) for i in waiting}
        assert likeness[at] == pytest.approx(min(likeness.values()), abs=1e-5)
        assert value == pytest.approx(-likeness[at], abs=1e-5)
        done.append(at)


@pytest.mark.requirement("B2", "B5")
@settings(max_examples=50)
@given(VECTORS, st.floats(0, 1), st.data())
def test_all_come_once_marked_ones_first_and_values_fall(
    vectors: list[list[float]], share: float, data: st.DataObject
) -> None:
    first = data.draw(st.lists(st.booleans(), min_size=len(vectors), max_size=len(vectors)))
    relevance = [1.0 - i / len(vectors) for i in range(len(vectors))]
    found = mmr(relevance, rows(*vectors), share, first)
    assert sorted(order(found)) == list(range(len(vectors)))
    marked = [first[at] for at, _ in found]
    assert marked == sorted(marked, reverse=True)
    # Before anything is chosen there is no likeness; later ones may be the opposite of all before, once.
    values = [value for at, value in found[1:] if not first[at]]
    assert all(a >= b - 1e-5 for a, b in itertools.pairwise(values))


@pytest.mark.requirement("B5")
def test_a_vector_that_is_not_known_is_like_nothing() -> None:
    matrix = unit_rows([np.asarray([2.0, 0.0], dtype=np.float32), None], 2)
    np.testing.assert_array_equal(matrix, [[1.0, 0.0], [0.0, 0.0]])


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    ("relevance", "share", "first"), [([1.0], 1.1, None), ([1.0, 0.5], 0.5, None), ([1.0], 0.5, [])]
)
def test_what_cannot_be_computed_is_refused(relevance: list[float], share: float, first: list[bool] | None) -> None:
    with pytest.raises(ValueError, match="must"):
        mmr(relevance, rows([1.0, 0.0]), share, first)
