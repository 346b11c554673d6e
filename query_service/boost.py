"""The first stage's score between 0 and 1, under a tenant's source weights and its preference for newer documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipeline.settings_query import RankingSettings
from query_service.fuse import min_max
from query_service.outcome import Ranked

DAY = 86_400_000_000  # µs


def of_tenant(ranking: Mapping[str, RankingSettings], tenant: str) -> RankingSettings | None:
    """The tenant's own settings, else those of '*'."""
    return ranking.get(tenant, ranking.get("*"))


def recency(updated_at: int | None, half_life_days: float, now: int) -> float:
    """1 for what changed just now, halved by each half-life; 0 where nobody knows when it changed."""
    if updated_at is None:
        return 0.0
    return float(0.5 ** (max(0, now - updated_at) / (half_life_days * DAY)))


def boosted(ranked: Sequence[Ranked], settings: RankingSettings | None, now: int) -> list[Ranked]:
    """The list with ``first`` set: min-max of the fused score, weighted; ordered by it if anything is weighted.

    Holders of all identifiers stay in front. ``now`` is in µs.
    """
    scaled = min_max({r.candidate.chunk_id: r.fused for r in ranked})
    plain = [replace(r, first=scaled[r.candidate.chunk_id]) for r in ranked]
    if settings is None or not (settings.recency_share or settings.source_weights):
        return plain
    share = settings.recency_share

    def weighted(item: Ranked) -> float:
        x = item.first * settings.source_weights.get(item.manifest.document.source, 1.0)
        return (1.0 - share) * x + share * recency(item.manifest.updated_at, settings.half_life_days, now)

    values = {r.candidate.chunk_id: weighted(r) for r in plain}
    top = max(values.values(), default=0.0)
    scale = 1.0 / top if top > 1.0 else 1.0  # weights above 1 may lead beyond
    found = [replace(r, first=values[r.candidate.chunk_id] * scale) for r in plain]
    return sorted(found, key=lambda r: (not r.candidate.exact, -r.first))
