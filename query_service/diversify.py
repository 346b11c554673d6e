"""Maximal marginal relevance: the next passage is relevant and unlike those already chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]


def unit_rows(vectors: Sequence[npt.NDArray[np.float32] | None], dimension: int) -> Matrix:
    """Shape (n, dimension), rows of length 1; a passage whose vector is not known is a row of zeros, like nothing."""
    rows = np.zeros((len(vectors), dimension), dtype=np.float32)
    for i, vector in enumerate(vectors):
        if vector is not None:
            rows[i] = vector
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, norms, out=rows, where=norms > 0.0)
    return rows


def mmr(
    relevance: Sequence[float], rows: Matrix, share: float, first: Sequence[bool] | None = None
) -> list[tuple[int, float]]:
    """All items, in the order of share × relevance − (1 − share) × max cosine to those before, each with this value.

    ``relevance`` is between 0 and 1, best first (equal values keep their order); ``rows`` are unit vectors of shape
    (n, dimension). ``share`` 1 is the order of relevance, 0 novelty alone. Items marked in ``first`` come before all
    others. Raises ValueError for a share outside 0..1 or lengths that differ.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError("share must be between 0 and 1")
    n = len(relevance)
    if rows.shape[0] != n or (first is not None and len(first) != n):
        raise ValueError("relevance, rows and first must have the same length")
    rel = np.asarray(relevance, dtype=np.float64)
    likeness = np.zeros(n)  # nothing is chosen yet: no likeness
    waiting = np.ones(n, dtype=bool)
    ahead = np.asarray(first if first is not None else [False] * n, dtype=bool)
    chosen: list[tuple[int, float]] = []
    for step in range(n):
        values = share * rel - (1.0 - share) * likeness
        open_ = waiting & ahead if (waiting & ahead).any() else waiting
        best = int(np.argmax(np.where(open_, values, -np.inf)))
        chosen.append((best, float(values[best])))
        waiting[best] = False
        cosine = rows @ rows[best]
        likeness = cosine.astype(np.float64) if step == 0 else np.maximum(likeness, cosine)
    return chosen
