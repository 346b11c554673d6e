"""From a ranking to a page: near-duplicates and diversity, texts, reranking, limits a document, and the last check."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.settings import QuerySettings
from pipeline.settings_query import RerankSettings
from query_service.diversify import mmr, unit_rows
from query_service.fuse import min_max
from query_service.legs import Plan
from query_service.outcome import Outcome, Ranked, Stopwatch, Twin
from query_service.paging import Page, mark
from query_service.rerank.interface import Reranked, Reranking
from query_service.scope import Narrowing
from query_service.supply import Folding, ResolveClosure, Shelf, Supplied, Supplier, itself, standing_for
from schemas.api import SearchRequest
from schemas.api_ranking import RerankMode, RerankReport

OVERFETCH = 3  # candidates of maximal marginal relevance for each hit wanted
COMPARED = 50  # passages of earlier pages with which those of a later one are compared
NO_RERANKER = "this service has no reranker"


@dataclass
class Finished:
    """A page, what is left of the ranking behind it, and what the reranker did."""

    page: list[Supplied]
    left: list[Ranked]
    report: RerankReport
    judged_at: int
    copies: list[str]  # chunk ids that stand under hits of the page and are not equal to them

    @property
    def reranked(self) -> int:
        """Passages that were scored."""
        return self.report.candidates


class Finisher:
    """One for the process; each call serves one request."""

    def __init__(
        self, supplier: Supplier, settings: QuerySettings, rerank: RerankSettings, reranking: Reranking | None
    ) -> None:
        self._supplier = supplier
        self._settings = settings
        self._rerank = rerank
        self._reranking = reranking

    async def finish(
        self, request: SearchRequest, plan: Plan, narrowing: Narrowing, outcome: Outcome, resolve: ResolveClosure,
        watch: Stopwatch, deadline: float, *, page: Page | None = None,
    ) -> Finished:  # fmt: skip
        """The page of ``request`` from ``outcome.ranked``. ``resolve`` gives the caller's closure with every change
        applied before the call; ``deadline`` is the request's, by the monotonic clock; ``page`` is what earlier
        pages came to: their ranking stands. Nothing unadmitted reaches the reranker. Raises StoreUnavailable.
        """
        share = request.diversity if request.diversity is not None else self._settings.diversity
        first_page = page is None
        by_date = request.sort != "relevance"
        mode = self._mode(request)
        diverse = first_page and not by_date and share < 1.0
        folding = Folding(outcome.fold, self._settings.near_duplicate, vectors=outcome.fold or diverse)
        shelf = self._supplier.shelf(plan, narrowing, outcome.ranked, resolve, folding)
        limit = _Limit(request.per_document, page.had if page is not None else None)
        scored = mode != "off" and first_page and not by_date
        ahead = OVERFETCH * request.k if diverse else request.k
        await shelf.stand(outcome.shown[:COMPARED])
        await shelf.fill(max(ahead, self._scored_at_most(request, mode) if scored else 0), request.k)
        watch.lap("text")
        if first_page and not by_date:
            self._diversify(shelf, share if diverse else 1.0)
            watch.lap("diversify")
        report = RerankReport(asked=mode, done="off", candidates=0, reason=_why_not(mode, first_page, by_date))
        if scored:
            report = await self._score(request, shelf, mode, deadline)
            watch.lap("rerank")
        chosen = await self._page(shelf, request.k, limit)
        watch.lap("check")
        shown = {item.chunk_id for item in chosen}
        left = [r for item in shelf.items if item.chunk_id not in shown for r in _group(item)]
        left = limit.after(chosen, [*left, *shelf.unread])
        return Finished(chosen, left, report, shelf.judged_at, _copies(chosen))

    # ------------------------------------------------------------ order

    def _diversify(self, shelf: Shelf, share: float) -> None:
        """Maximal marginal relevance over what was read; holders of all identifiers first."""
        items = shelf.items
        dimension = next((v.shape[0] for item in items if (v := item.vector) is not None), 1)
        rows = unit_rows([item.vector for item in items], dimension)
        order = mmr([i.ranked.first for i in items], rows, share, [i.ranked.candidate.exact for i in items])
        values = min_max({items[at].chunk_id: value for at, value in order})
        for at, value in order:
            items[at].first = value
            items[at].final = values[items[at].chunk_id] if share < 1.0 else value
        if share < 1.0:
            shelf.low = min(values.values(), default=1.0)
        shelf.arrange([items[at] for at, _ in order])

    def _mode(self, request: SearchRequest) -> RerankMode:
        return request.rerank if request.rerank is not None else self._rerank.default

    def _scored_at_most(self, request: SearchRequest, mode: RerankMode) -> int:
        if mode == "fast":
            return self._rerank.fast_candidates
        return request.rerank_candidates or self._rerank.full_candidates

    async def _score(self, request: SearchRequest, shelf: Shelf, mode: RerankMode, deadline: float) -> RerankReport:
        """Ask the reranker and mix its scores with the first stage's; without scores the order stays."""
        if mode == "off":
            return RerankReport(asked=mode, done="off", candidates=0)
        if self._reranking is None:
            return RerankReport(asked=mode, done="off", candidates=0, reason=NO_RERANKER)
        items = shelf.items[: self._scored_at_most(request, mode)]
        if not items:
            return RerankReport(asked=mode, done="off", candidates=0)
        started = time.monotonic()
        wanted = request.rerank_candidates if mode == "full" else None
        try:
            async with asyncio.timeout(max(0.0, deadline - started)):
                found = await self._reranking.rank(
                    request.query, [item.told() for item in items], mode, wanted=wanted, deadline=deadline
                )
        except TimeoutError:
            found = Reranked((), (time.monotonic() - started) * 1000, late=True, reason="the request's deadline passed")
        shelf.begin_round()  # whatever came of the wait: who may read may be another matter after it
        scores = found.scores[: len(items)]
        if scores:
            self._mix(shelf, items[: len(scores)], scores)
        return RerankReport(
            asked=mode, done=mode if scores else "off", candidates=len(scores), model=found.model,
            ms=round(found.ms, 3), late=found.late, reason=found.reason,
        )  # fmt: skip

    def _mix(self, shelf: Shelf, scored: Sequence[Supplied], scores: Sequence[float]) -> None:
        """share × min-max(reranker) + (1 − share) × min-max(first stage) among the scored, the others behind them in
        their order; holders of all identifiers first whatever a model says."""
        share = self._rerank.share
        given = min_max({item.chunk_id: score for item, score in zip(scored, scores, strict=True)})
        before = min_max({item.chunk_id: item.first for item in scored})
        for item, score in zip(scored, scores, strict=True):
            item.rerank = score
            item.final = share * given[item.chunk_id] + (1.0 - share) * before[item.chunk_id]
        lowest = min(item.final for item in scored)
        others = shelf.items[len(scored) :]
        for item in others:
            item.final = lowest * item.final
        shelf.low = min(item.final for item in shelf.items)
        first = sorted(scored, key=lambda item: -item.final)
        shelf.arrange(sorted([*first, *others], key=lambda item: not item.ranked.candidate.exact))

    # ------------------------------------------------------------ page

    async def _page(self, shelf: Shelf, k: int, limit: _Limit) -> list[Supplied]:
        """The first k passages that may be shown, each admitted in the shelf's present round."""
        while True:
            page = limit.pick(shelf.items, k)
            old = [item for item in page if item.round < shelf.round]
            if old:
                before = len(shelf.items)
                await shelf.recheck(old)
                if len(shelf.items) < before:
                    # Copies of the refused stand in front of what is unread: they take the places that are free now.
                    await shelf.fill(before - len(shelf.items))
                    continue
            hidden = limit.hidden(shelf.items, k)
            if hidden:
                await shelf.give_way(hidden)
                continue
            if len(page) < k and shelf.unread:
                await shelf.fill(k)
                continue
            return page


class _Limit:
    """Hits of one document at most, over all pages."""

    def __init__(self, most: int | None, had: Counter[bytes] | None) -> None:
        self._most = most
        self._had: Counter[bytes] = had if had is not None else Counter()

    def pick(self, items: Sequence[Supplied], k: int) -> list[Supplied]:
        """The first k that the limit leaves."""
        if self._most is None:
            return list(items[:k])
        count = Counter(self._had)
        found: list[Supplied] = []
        for item in items:
            document = mark(item.ranked.candidate.document_uid)
            if len(found) < k and count[document] < self._most:
                count[document] += 1
                found.append(item)
        return found

    def hidden(self, items: Sequence[Supplied], k: int) -> list[tuple[Supplied, Twin]]:
        """Among the first k: passages that the limit hides, each with a copy in a document that may be shown."""
        if self._most is None:
            return []
        count, taken = Counter(self._had), 0
        found: list[tuple[Supplied, Twin]] = []
        for item in items:
            if taken >= k:
                break
            twin = self._open(count, [itself(item.ranked), *item.also])
            if twin is None:
                continue
            count[mark(twin.candidate.document_uid)] += 1
            taken += 1
            if twin.candidate.chunk_id != item.chunk_id:
                found.append((item, twin))
        return found

    def after(self, page: Sequence[Supplied], left: list[Ranked]) -> list[Ranked]:
        """Of what is left, that of which the limit lets any more be shown, or a copy in its place."""
        if self._most is None:
            return left
        count = self._had + Counter(mark(item.ranked.candidate.document_uid) for item in page)
        open_ = [(r, self._open(count, [itself(r), *r.twins])) for r in left]
        return [
            r if twin.candidate.chunk_id == r.candidate.chunk_id else standing_for(r, twin)
            for r, twin in open_
            if twin is not None
        ]

    def _open(self, count: Counter[bytes], copies: Sequence[Twin]) -> Twin | None:
        """The first that stands in a document which may be shown once more."""
        return next((t for t in copies if self._most and count[mark(t.candidate.document_uid)] < self._most), None)


def _why_not(mode: RerankMode, first_page: bool, by_date: bool) -> str | None:
    if mode == "off":
        return None
    if by_date:
        return "sorted by date"
    return None if first_page else "a later page keeps the order of the first"


def _group(item: Supplied) -> list[Ranked]:
    """The passage with the scores of this page; copies that are not equal to it, which stand under it, behind it."""
    own = item.ranked
    embedded = own.place.entry.embed_hash
    equal = {t.candidate.chunk_id for t in own.twins if t.place.entry.embed_hash == embedded}
    scored = Ranked(
        own.candidate, own.manifest, own.place, own.fused, own.first, item.rerank, item.final, own.dense_rank,
        own.sparse_rank, own.sparse_score, own.twins,
    )  # fmt: skip
    copies = [
        Ranked(t.candidate, t.manifest, t.place, own.fused, own.first, item.rerank, item.final)
        for t in item.also
        if t.candidate.chunk_id not in equal
    ]
    return [scored, *copies]


def _copies(page: Sequence[Supplied]) -> list[str]:
    return [r.candidate.chunk_id for item in page for r in _group(item)[1:]]
