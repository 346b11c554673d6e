"""What is compared: the default, and each with one part of the ranking otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.settings import Settings
from pipeline.settings_query import RankingSettings

State = Literal["all hot", "20 % hot", "all cold"]
USUAL: State = "20 % hot"
FUSED = "fused"
LATE_MS = 60_000.0  # quality is measured: nothing is cut short by a slow machine, but for 'fast'


@dataclass(frozen=True)
class Variant:
    """One row: fields of the request over the usual ones, settings over the defaults, where the documents stand.

    ``against``: the row that it is compared with, question by question. ``remembered``: pairs that were scored for
    another row are not scored again. ``plain``: the copy of the wiki whose passages carry no heading path.
    """

    name: str
    group: str
    request: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    rerank: Mapping[str, Any] = field(default_factory=dict)
    ranking: Mapping[str, Any] = field(default_factory=dict)
    state: State = USUAL
    against: str = FUSED
    remembered: bool = False
    plain: bool = False

    def fields(self) -> dict[str, Any]:
        """Of a search request."""
        return {"rerank": "off", "cache": False, **self.request}

    def measured(self, settings: Settings) -> tuple[object, ...]:
        """Equal for two variants that come to the same under these settings: one of them is asked."""
        request = {"mode": "hybrid", "duplicates": "fold", "diversity": settings.query.diversity, **self.fields()}
        query = {"fusion": settings.query.fusion, "candidates": settings.query.candidates, **self.query}
        rerank = {"share": settings.rerank.share, **self.rerank} if request["rerank"] != "off" else {}
        parts = (request, query, rerank, self.ranking)
        return (*(tuple(sorted(part.items())) for part in parts), self.state, self.plain, self.remembered)

    def service(self) -> tuple[tuple[str, Any], ...]:
        """What tells its query service from others; variants with equal ones share it."""
        named = [*self.query.items(), *((f"rerank.{k}", v) for k, v in self.rerank.items())]
        named += [(f"ranking.{k}", v) for k, v in self.ranking.items()]
        return (*sorted(named), ("remembered", self.remembered))

    def settings(self, settings: Settings) -> Settings:
        """The settings of its query service."""
        query = settings.query.model_copy(update={"deadline_s": LATE_MS / 1000, **self.query})
        rerank = settings.rerank.model_copy(update={"full_ms": LATE_MS, **self.rerank})
        if self.remembered:  # its time is not measured
            rerank = rerank.model_copy(update={"threads": os.cpu_count() or 1})
        ranking = {"*": RankingSettings.model_validate(dict(self.ranking))} if self.ranking else settings.ranking
        return settings.model_copy(update={"query": query, "rerank": rerank, "ranking": ranking})


def _full(name: str, candidates: int, share: float, **more: Any) -> Variant:
    return Variant(
        name, "reranker", {"rerank": "full", "rerank_candidates": candidates}, rerank={"share": share},
        remembered=True, **more,
    )  # fmt: skip


VARIANTS: tuple[Variant, ...] = (
    Variant("fused, all hot", "tiers", state="all hot"),
    Variant(FUSED, "fused"),
    Variant("dense alone", "lists", {"mode": "dense"}),
    Variant("sparse alone", "lists", {"mode": "sparse"}),
    Variant("rrf", "fusion", query={"fusion": "rrf"}),
    Variant("convex", "fusion", query={"fusion": "convex"}),
    Variant("λ = 1", "diversity", {"diversity": 1.0}),
    Variant("λ = 0.9", "diversity", {"diversity": 0.9}),
    Variant("λ = 0.7", "diversity", {"diversity": 0.7}),
    Variant("20 candidates", "depth", query={"candidates": 20}),
    Variant("50 candidates", "depth", query={"candidates": 50}),
    Variant("100 candidates", "depth", query={"candidates": 100}),
    Variant("copies kept", "folding", {"duplicates": "keep"}),
    Variant("recency 0.1", "weights", ranking={"recency_share": 0.1}),
    Variant("recency 0.2", "weights", ranking={"recency_share": 0.2}),
    Variant("recency 0.4", "weights", ranking={"recency_share": 0.4}),
    Variant("fast", "reranker", {"rerank": "fast"}),
    _full("full 10, 0.7", 10, 0.7),
    _full("full 10, 0.5", 10, 0.5),
    _full("full 10, its order alone", 10, 1.0),
    _full("full 20, 0.7", 20, 0.7),
    _full("convex, full 10, 0.7", 10, 0.7, query={"fusion": "convex"}),
    _full("rrf, full 10, 0.7", 10, 0.7, query={"fusion": "rrf"}),
    Variant("no heading path", "passages", plain=True),
    Variant("fused, all cold", "tiers", state="all cold"),
)
"""In the order in which they are measured: documents move from hot to cold on the way."""


def judged(settings: Settings) -> tuple[str, str]:
    """Names of the rows that stand for ``full`` and ``fast`` as they are set."""
    wanted = (settings.rerank.full_candidates, settings.rerank.share)
    known = {
        (v.request["rerank_candidates"], v.rerank["share"]): v.name
        for v in VARIANTS
        if v.request.get("rerank") == "full" and not v.query
    }
    return known.get(wanted, "full 10, 0.7"), "fast"
