"""Replies of a search with its reranker, in this process and without services: what an answer begins with.

both legs ▸ convex fusion ▸ diversity ▸ reranker ▸ mixed ▸ hits with their scores, and their sections as sources
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from infra.bench.quality.search import Mask, Measured
from infra.bench.supplied import VERSION, Limits, Supply
from pipeline.settings import Settings
from query_service.answer.interface import Source
from query_service.answer.moment import of_its_time
from query_service.diversify import mmr, unit_rows
from query_service.finish import OVERFETCH
from query_service.fuse import min_max
from query_service.rerank.interface import Reranking
from schemas.api import AccessSummary, Scores, SearchCounts, SearchHit, SearchResponse
from schemas.keys import DocumentRef

PATIENCE_S = 60.0  # for the reranker: no figure here is a time


@dataclass(frozen=True)
class Reply:
    """Of one question: what a search says, and the sources that its evidence gives."""

    response: SearchResponse
    sources: tuple[Source, ...]


class Searching:
    """Searches one corpus with the product's settings. ``reranking`` None: as a service without reranker."""

    def __init__(self, supply: Supply, settings: Settings, reranking: Reranking | None) -> None:
        self._supply = supply
        self._settings = settings
        self._reranking = reranking

    async def ask(self, question: str, admitted: Mask, day: int | None = None) -> Reply:
        """``day``: what is in effect then, in µs; the years that the question names where absent."""
        answer = self._settings.answer
        ahead = max(OVERFETCH * answer.context, self._settings.rerank.full_candidates)
        found = self._supply.measured(question, admitted, self._settings.query.dense_share)[:ahead]
        ranked = await self._ranked(question, found)
        limits = Limits(answer.context, answer.token_budget)
        best = ranked[: answer.context]
        sources = self._supply.sources_of([one.passage for one, _, _ in best], limits, day)
        return Reply(_response(self._supply, best), of_its_time(question, sources) if day is None else sources)

    async def _ranked(self, question: str, found: Sequence[Measured]) -> list[tuple[Measured, float | None, float]]:
        """Each with the reranker's score, where it gave one, and the final one; best first."""
        if not found:
            return []
        first = min_max({str(n): one.fused for n, one in enumerate(found)})
        rows = unit_rows([one.vector for one in found], len(found[0].vector))
        values = [first[str(n)] for n in range(len(found))]
        order = mmr(values, rows, self._settings.query.diversity, [one.exact for one in found])
        scaled = min_max({str(at): value for at, value in order})
        items = [(found[at], scaled[str(at)]) for at, _ in order]
        if self._reranking is None:
            return [(one, None, value) for one, value in items]
        candidates = items[: self._settings.rerank.full_candidates]
        texts = [self._told(one) for one, _ in candidates]
        until = time.monotonic() + PATIENCE_S
        given = (await self._reranking.rank(question, texts, "full", wanted=len(texts), deadline=until)).scores
        share = self._settings.rerank.share
        of_model = min_max({str(n): value for n, value in enumerate(given)})
        before = min_max({str(n): value for n, (_, value) in enumerate(candidates[: len(given)])})
        scored = [
            (candidates[n][0], float(given[n]), share * of_model[str(n)] + (1 - share) * before[str(n)])
            for n in range(len(given))
        ]
        lowest = min((value for _, _, value in scored), default=1.0)
        rest = [(one, None, lowest * value) for one, value in items[len(given) :]]
        first_ones = sorted(scored, key=lambda item: -item[2])
        return sorted([*first_ones, *rest], key=lambda item: not item[0].exact)

    def _told(self, one: Measured) -> str:
        headings = [self._supply.page(one.passage.document).title, *one.passage.chunk.heading_path]
        return " > ".join(dict.fromkeys(h for h in headings if h)) + "\n" + one.passage.chunk.text


def _response(supply: Supply, ranked: Sequence[tuple[Measured, float | None, float]]) -> SearchResponse:
    hits = tuple(_hit(supply, one, logit, final) for one, logit, final in ranked)
    return SearchResponse(
        query_id="bench", generation="bench", hits=hits, complete_until={}, fresh=None,
        counts=SearchCounts(dense=len(hits), sparse=len(hits), exact=0, admitted=len(hits)), starved=False,
        judged_at=0, timings_ms={},
    )  # fmt: skip


def _hit(supply: Supply, one: Measured, logit: float | None, final: float) -> SearchHit:
    page, chunk = supply.page(one.passage.document), one.passage.chunk
    ref = DocumentRef(tenant="bench", source="pages", id=page.name)
    return SearchHit(
        document_uid=ref.uid, document_id=page.name, source="pages", kind="page", tenant="bench", title=page.title,
        url=None, version=VERSION, content_type="text/markdown", language=None, effective_from=page.effective_from,
        effective_until=page.effective_until, updated_at=None, tier="hot", age_s=0,
        access=AccessSummary(clauses=(("everyone",),), has_deny=False, version=VERSION),
        section_id=f"{page.name}#{chunk.section_ordinal}", chunk_id=chunk.chunk_id, chunk_index=chunk.ordinal,
        chunk_total=chunk.ordinal + 1, heading_path=chunk.heading_path, text=chunk.text,
        scores=Scores(
            dense_distance=1.0 - one.cosine if one.cosine is not None else None, sparse_score=one.sparse,
            fused=one.fused, rerank=logit, final=final, exact=one.exact,
        ),
    )  # fmt: skip
