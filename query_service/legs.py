"""Candidate lists: dense and sparse searches of both tiers and the exact check, in parallel, merged by chunk id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace

from pipeline.ports import Hit, IndexReader, SearchFilter, Vectors
from query_service import phrases
from query_service.phrases import Phrase
from query_service.scope import Narrowing
from schemas.access import Closure
from schemas.api import Mode
from schemas.documents import Tier

TIERS: tuple[Tier, Tier] = ("hot", "cold")


@dataclass
class Candidate:
    """A chunk found by some leg, before admission. One entry a chunk id, whichever tiers hold it."""

    chunk_id: str
    document_uid: str
    tier: Tier
    distance: float | None = None
    sparse: bool = False
    exact: bool = False
    lexical: str | None = None  # analysed text, where words found it: for scoring


@dataclass
class Pool:
    """All candidates of a request so far, and whether a leg may have had more."""

    found: dict[str, Candidate] = field(default_factory=dict)
    saturated: set[str] = field(default_factory=set)

    def add(self, leg: str, hits: Sequence[Hit]) -> None:
        """Merge one list. Distances of the two tiers are comparable; sparse scores are not and are dropped."""
        for hit in hits:
            candidate = self.found.get(hit.chunk_id)
            if candidate is None:
                candidate = Candidate(hit.chunk_id, hit.document_uid, hit.tier)
                self.found[hit.chunk_id] = candidate
            elif hit.tier == "hot":
                candidate.tier = "hot"
            if hit.lexical is not None:
                candidate.lexical = hit.lexical
            if leg == "dense":
                nearer = candidate.distance is None or hit.score < candidate.distance
                candidate.distance = hit.score if nearer else candidate.distance
            elif leg == "sparse":
                candidate.sparse = True
            else:
                candidate.sparse = candidate.exact = True

    def by_distance(self) -> list[Candidate]:
        """The merged dense list, nearest first."""
        found = [c for c in self.found.values() if c.distance is not None]
        return sorted(found, key=lambda c: (c.distance, c.chunk_id))

    def by_words(self) -> list[Candidate]:
        """What the sparse and exact legs found, unordered: scores of two tiers cannot be compared yet."""
        return [c for c in self.found.values() if c.sparse]


@dataclass(frozen=True)
class Plan:
    """What is asked of the store; ``vector`` is awaited by the dense legs alone, so the others do not wait for it."""

    generation: str
    tenant: str
    mode: Mode
    terms: tuple[str, ...]
    identifiers: tuple[str, ...]
    vector: asyncio.Future[Vectors] | None
    phrases: tuple[Phrase, ...] = ()  # quoted: a passage holds them all, or is not found


def search_filter(
    narrowing: Narrowing,
    closure: Closure | None,
    *,
    documents: Sequence[str] | None = None,
    identifiers: Sequence[str] | None = None,
) -> SearchFilter:
    """The store's side of the scope; closure None searches unfiltered by principals and lets admission decide."""

    def listed(value: frozenset[str] | None) -> tuple[str, ...] | None:
        return None if value is None else tuple(sorted(value))

    return SearchFilter(
        allow=None if closure is None else tuple(sorted(closure.principals)),
        documents=None if documents is None else tuple(documents),
        sources=listed(narrowing.sources),
        kinds=listed(narrowing.kinds),
        content_types=listed(narrowing.content_types),
        languages=listed(narrowing.languages),
        products=listed(narrowing.products),
        as_of=narrowing.as_of,
        identifiers=None if identifiers is None else tuple(identifiers),
    )


async def search(reader: IndexReader, plan: Plan, where: SearchFilter, limit: int, pool: Pool) -> None:
    """Run all legs of both tiers at once and merge them into the pool. Raises StoreUnavailable."""
    if plan.phrases:
        # All their words at least: else a passage that holds a phrase might lie behind hundreds that do not.
        where = replace(where, words=phrases.words(plan.phrases))
    legs: list[tuple[str, Awaitable[list[Hit]]]] = []
    for tier in TIERS:
        if plan.vector is not None:
            legs.append(("dense", _dense(reader, plan, plan.vector, tier, where, limit)))
        if plan.mode != "dense" and plan.terms:
            query = " ".join(plan.terms)
            legs.append(("sparse", reader.sparse(plan.generation, tier, plan.tenant, query, where, limit)))
        if plan.mode != "dense" and plan.identifiers:
            exact = _with_identifiers(where, plan.identifiers)
            legs.append(("exact", reader.exact(plan.generation, tier, plan.tenant, exact, limit)))
    pool.saturated.clear()
    results = await asyncio.gather(*(call for _, call in legs))
    for (leg, _), hits in zip(legs, results, strict=True):
        pool.add(leg, hits)
        if len(hits) >= limit:
            pool.saturated.add(leg)


async def _dense(
    reader: IndexReader, plan: Plan, vector: asyncio.Future[Vectors], tier: Tier, where: SearchFilter, limit: int
) -> list[Hit]:
    return await reader.dense(plan.generation, tier, plan.tenant, await vector, where, limit)


def _with_identifiers(where: SearchFilter, identifiers: Sequence[str]) -> SearchFilter:
    return replace(where, identifiers=tuple(identifiers))
