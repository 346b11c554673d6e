"""Fusion of ranked lists after admission: reciprocal rank fusion and convex fusion of min-max values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

RRF_K = 60


def rrf(lists: Sequence[Sequence[str]], k: int = RRF_K) -> dict[str, float]:
    """Sum of 1 / (k + rank) over the lists, ranks one-based; an item that a list lacks gets nothing from it."""
    scores: dict[str, float] = {}
    for ranked in lists:
        for rank, item in enumerate(ranked, start=1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return scores


def min_max(values: Mapping[str, float]) -> dict[str, float]:
    """Values moved to 0..1; all 1 where they are equal."""
    if not values:
        return {}
    low, high = min(values.values()), max(values.values())
    if high <= low:
        return dict.fromkeys(values, 1.0)
    return {item: (value - low) / (high - low) for item, value in values.items()}


def convex(dense: Mapping[str, float], sparse: Mapping[str, float], dense_share: float = 0.5) -> dict[str, float]:
    """Weighted sum of the min-max values of two *merged* lists (larger is better in both); absent counts as 0.

    Raises ValueError for a share outside 0..1.
    """
    if not 0.0 <= dense_share <= 1.0:
        raise ValueError("dense_share must be between 0 and 1")
    d, s = min_max(dense), min_max(sparse)
    return {
        item: dense_share * d.get(item, 0.0) + (1.0 - dense_share) * s.get(item, 0.0)
        for item in [*d, *(i for i in s if i not in d)]
    }


def order(scores: Mapping[str, float]) -> list[str]:
    """Items best first; equal scores by id, so that a repeated query gives the same page."""
    return sorted(scores, key=lambda item: (-scores[item], item))
