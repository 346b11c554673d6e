"""The use case behind the routes of searching, ordinary and as another person."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline import analysis
from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.ports import IndexReader, Vectors
from pipeline.settings import QuerySettings
from pipeline.settings_query import AnswerSettings, ExpansionSettings, LimitSettings, RankingSettings, RerankSettings
from query_service import assemble, bm25, boost, paging, phrases
from query_service.answer.strength import near_best, strength, weak
from query_service.cache.searches import Searches
from query_service.closure import Closures
from query_service.counters import LoadCounter, estimated
from query_service.documents import Documents
from query_service.encoders import Encoders
from query_service.expansion.expander import Expander
from query_service.expansion.ground import Way
from query_service.expansion.interface import Expanded, Ground
from query_service.extras import Extras
from query_service.finish import Finished, Finisher
from query_service.flights import Flights
from query_service.following import Following
from query_service.freshness import Freshness
from query_service.gate import Asked
from query_service.legs import Plan
from query_service.overlay import Overlay
from query_service.querylog.entry import current
from query_service.rerank.interface import Reranking
from query_service.retrieve import Limits, Outcome, Ranked, Retriever, Stopwatch
from query_service.scope import FieldError, Narrowing, Scope, narrow
from query_service.state import ServiceState
from query_service.suggest import Trials
from query_service.supply import Supplier
from query_service.turns import Turns
from query_service.versions import one_version
from query_service.waiting import Waiter, read_token
from schemas.access import Closure
from schemas.api import (
    Mode,
    SearchCounts,
    SearchRequest,
    SearchResponse,
)
from schemas.generation import Generation

KNOWN_MS = 100.0  # who waited longer for a turn looks again whether permissions are known


class DeadlineExceeded(Exception):
    """The request took longer than the configured deadline."""


class QueryService(Documents):
    """Stateless between requests, apart from the caches of its parts."""

    def __init__(
        self,
        settings: QuerySettings,
        reader: IndexReader,
        clock: Clock,
        metrics: Metrics,
        overlay: Overlay,
        closures: Closures,
        encoders: Encoders,
        freshness: Freshness,
        state: ServiceState,
        flights: Flights,
        waiter: Waiter,
        log_key: bytes,
        reranking: Reranking | None = None,
        rerank: RerankSettings | None = None,
        ranking: Mapping[str, RankingSettings] | None = None,
        expander: Expander | None = None,
        load_counter: LoadCounter | None = None,
        answer: AnswerSettings | None = None,
        kept: Searches | None = None,
        limits: LimitSettings | None = None,
    ) -> None:
        super().__init__(reader, clock, overlay, closures, freshness, state, flights)
        self._settings = settings
        self._metrics = metrics
        self._encoders = encoders
        self._waiter = waiter
        self._retriever = Retriever(reader, overlay, clock)
        self._supplier = Supplier(reader, overlay, clock)
        self._ranking = ranking if ranking is not None else {}
        self._expander = expander or Expander(ExpansionSettings(), None, metrics)
        self._finisher = Finisher(self._supplier, settings, rerank or RerankSettings(), reranking)
        self._following = Following(self._retriever)
        self._extras = Extras(settings, reader, overlay, clock, load_counter or estimated)
        self._cursors = paging.Cursors(log_key)
        self._kept = kept
        self._turns = Turns(limits or LimitSettings(), metrics)
        self._weak = (answer or AnswerSettings()).weak

    # ------------------------------------------------------------ search

    async def search(self, scope: Scope, request: SearchRequest) -> SearchResponse:
        """Raises FieldError, NotReady, StoreUnavailable, EncoderUnavailable, DeadlineExceeded or Limited."""
        narrowing = narrow(scope, request.filters, self._clock.now())
        self._extras.check(request)
        token = read_token(request.after, scope.tenant) if request.after is not None else None
        page = self._cursors.open(scope, request)
        generation = self._of_page(page, await self._state.current())
        with self._flights.on(generation.name):
            fresh: bool | None = None
            if token is not None:
                fresh = await self._waiter.wait(
                    token, generation.name, request.wait_ms, lambda: self._closures.resolve(scope)
                )
                await self._state.current()  # permissions must be known well enough after the wait as well

            async def search() -> SearchResponse:
                return await self._in_turn(
                    scope.tenant, request, lambda: self._search(scope, request, narrowing, generation, fresh, page)
                )

            if self._kept is None or page is not None or generation.name != self._state.active:
                return await search()
            return await self._kept.through(scope, request, narrowing, generation, search)

    async def searchable(self, scope: Scope, request: SearchRequest) -> None:
        """Whether a search can begin, without beginning it. Raises FieldError or NotReady."""
        narrow(scope, request.filters, self._clock.now())
        self._extras.check(request)
        if request.after is not None:
            read_token(request.after, scope.tenant)
        await self._state.current()

    async def shadow(
        self, operator: Scope, seen_as: Scope, request: SearchRequest, generation: Generation
    ) -> SearchResponse:
        """The same search as another person and of any generation, for an operator. Raises as ``search``."""
        narrowing = narrow(seen_as, request.filters, self._clock.now())
        self._extras.check(request)
        page = self._cursors.open(seen_as, request)
        if page is not None and page.generation != generation.name:
            raise FieldError("request.cursor", "it belongs to another generation; search again without a cursor")
        with self._flights.on(generation.name):
            await self._state.current()  # permissions must be known as well as for any search
            await self._encoders.prepare(generation)
            return await self._in_turn(
                seen_as.tenant, request,
                lambda: self._search(seen_as, request, narrowing, generation, None, page, operator),
            )  # fmt: skip

    def _of_page(self, page: paging.Page | None, active: Generation) -> Generation:
        """The generation that the page before came from, as long as it is kept up. Raises FieldError."""
        if page is None or page.generation == active.name:
            return active
        standing = self._state.standing(page.generation)
        if standing is None:
            raise FieldError("cursor", "the index was replaced since the page before; search again without a cursor")
        return standing

    async def _search(
        self, scope: Scope, request: SearchRequest, narrowing: Narrowing, generation: Generation, fresh: bool | None,
        page: paging.Page | None = None, operator: Scope | None = None,
    ) -> SearchResponse:  # fmt: skip
        watch = Stopwatch()
        deadline = time.monotonic() + self._settings.deadline_s * 0.9
        query_id = str(uuid.uuid4())
        # Taken before the search: what is complete by now is searched, what completes meanwhile may not be.
        complete = self._complete_until(scope.tenant, narrowing, generation)
        plan = self._plan(request, scope, generation, watch)  # the query's embedding begins, beside the closure
        limits = self._limits(request)

        by_date = request.sort != "relevance"
        ground: Ground | None = None
        expanded: Expanded | None = None
        closure: Closure  # the newest that was looked up

        async def confirmed() -> Closure:
            nonlocal closure
            closure = await self._closures.confirmed(scope)
            return closure

        def weighted(ranked: Sequence[Ranked]) -> list[Ranked]:
            return self._weighted(scope.tenant, request, ranked)

        try:
            closure = await self._closures.resolve(scope)
            watch.lap("closure")
            if page is None:
                begun = time.monotonic()
                ground = self._ground(scope, request, narrowing, generation, plan, closure, limits, watch)
                expanded = await self._expander.expand(request.expand, request.query, ground)
                if request.expand != "none":
                    watch.lap("expand")
                    deadline += time.monotonic() - begun  # it has a budget of its own
                outcome = expanded.outcome
                outcome.ranked = weighted(await one_version(self._reader, generation.name, outcome.ranked))
            else:
                outcome = await self._following.retrieve(
                    plan, narrowing, closure, request.k, limits, watch, page, weighted, deeper=not by_date
                )
                outcome.ranked = await one_version(self._reader, generation.name, outcome.ranked)
            outcome.more = outcome.more and not by_date
            finished = await self._finisher.finish(
                request, plan, narrowing, outcome, confirmed, watch, deadline, page=page
            )
        finally:
            if plan.vector is not None:
                plan.vector.cancel()
        now = self._clock.now()
        hits = tuple(assemble.search_hit(s, now, narrowing.as_of) for s in finished.page)
        asked = Asked(generation, narrowing, closure, confirmed, deadline)
        extra = await self._extras.of(request, asked, finished.page, hits, self._trials(scope, request, generation))
        watch.lap("extras")
        response = SearchResponse(
            query_id=query_id,
            generation=generation.name,
            hits=extra.hits,
            complete_until=complete if closure.principals else {},  # as in freshness: nobody learns of no source
            fresh=fresh,
            counts=SearchCounts(
                dense=outcome.admitted["dense"],
                sparse=outcome.admitted["sparse"],
                exact=outcome.admitted["exact"],
                admitted=outcome.admitted["admitted"],
                fused=len(outcome.ranked),
                reranked=finished.reranked,
            ),
            starved=outcome.starved,
            rerank=finished.report,
            suggestion=extra.suggestion,
            evidence=extra.evidence,
            next_cursor=self._next(scope, request, generation, page, outcome, finished),
            steps=await expanded.told(ground.peek) if request.explain and expanded and ground else (),
            judged_at=finished.judged_at,
            timings_ms={**{k: round(v, 3) for k, v in watch.ms.items()}, "total": round(watch.total(), 3)},
        )
        if page is None and self._weak > 0:  # a later page is weaker by itself
            response = response.model_copy(update={"weak": weak(strength(request.query, response), self._weak)})
        if operator is None:
            self._measure(outcome, response)
        self._log(closure, outcome, expanded)
        return response

    def _ground(
        self, scope: Scope, request: SearchRequest, narrowing: Narrowing, generation: Generation, plan: Plan,
        closure: Closure, limits: Limits, watch: Stopwatch,
    ) -> Ground:  # fmt: skip
        """What query expansion may ask: searches and texts of this request's scope, filters and generation."""

        def plan_of(query: str) -> Plan:
            # What the caller quoted stays demanded, whoever thought of the further query.
            thought = self._plan(request.model_copy(update={"query": query}), scope, generation)
            return replace(thought, phrases=plan.phrases)

        def passage_plan(text: str) -> Plan:
            vector = asyncio.ensure_future(self._encoders.embed_passage(generation, text))
            return replace(plan, mode="dense", terms=(), identifiers=(), vector=vector)

        way = Way(
            self._retriever, self._supplier, narrowing, request.k, limits, self._settings.deadline_s * 0.8,
            lambda: self._closures.resolve(scope), lambda: self._closures.confirmed(scope), plan_of,
            passage_plan if request.mode != "sparse" else None,
        )  # fmt: skip
        return way.ground(
            request.query, plan,
            lambda: self._retriever.retrieve(plan, narrowing, closure, request.k, limits, watch),
        )  # fmt: skip

    def _trials(self, scope: Scope, request: SearchRequest, generation: Generation) -> Trials:
        """Searches that are only tried: one passage is enough, nothing of them is logged."""

        async def search(query: str, mode: Mode, narrowing: Narrowing, closure: Closure) -> list[Ranked]:
            plan = self._plan(request.model_copy(update={"query": query, "mode": mode}), scope, generation)
            try:
                found = await self._retriever.retrieve(plan, narrowing, closure, 1, self._limits(request), Stopwatch())
            finally:
                if plan.vector is not None:
                    plan.vector.cancel()
            return found.ranked

        return Trials(search, lambda filters: narrow(scope, filters, self._clock.now()))

    def _next(
        self, scope: Scope, request: SearchRequest, generation: Generation, page: paging.Page | None, outcome: Outcome,
        finished: Finished,
    ) -> str | None:  # fmt: skip
        """Cursor of the page after this one, if there is one."""
        if not finished.left and not outcome.more:
            return None
        if page is None:
            page = paging.Page(generation.name, had=None if request.per_document is None else Counter())
        return self._cursors.seal(scope, request, page.after(finished.page, finished.copies, finished.left))

    def _weighted(self, tenant: str, request: SearchRequest, ranked: Sequence[Ranked]) -> list[Ranked]:
        """The ranking under the tenant's weights; by date, the best ``candidates`` of it that are not far weaker than
        the best one."""
        found = boost.boosted(ranked, boost.of_tenant(self._ranking, tenant), self._clock.now())
        if request.sort == "relevance":
            return found
        return paging.by_date(near_best(found[: self._settings.candidates]), newest=request.sort == "newest")

    def _plan(
        self, request: SearchRequest, scope: Scope, generation: Generation, watch: Stopwatch | None = None
    ) -> Plan:  # fmt: skip
        vector: asyncio.Future[Vectors] | None = None
        if request.mode != "sparse":
            vector = asyncio.ensure_future(self._embed(generation, request.query, watch))
        return Plan(
            generation=generation.name,
            tenant=scope.tenant,
            mode=request.mode,
            terms=tuple(bm25.query_terms(analysis.tokens(request.query))),
            identifiers=analysis.identifiers(request.query),
            vector=vector,
            phrases=phrases.of_query(request.query),
        )

    async def _embed(self, generation: Generation, text: str, watch: Stopwatch | None) -> Vectors:
        started = time.perf_counter()
        vector = await self._encoders.embed(generation, text)
        took = time.perf_counter() - started
        if watch is not None:
            watch.ms["embed"] = took * 1000  # no lap: it runs beside the closure and the other lists
        self._metrics.observe("headwater_search_stage_seconds", took, stage="embed")
        return vector

    def _limits(self, request: SearchRequest) -> Limits:
        s = self._settings
        return Limits(
            candidates=s.candidates,
            filter_principals=s.filter_principals,
            deadline=time.monotonic() + s.deadline_s * 0.8,
            fusion=s.fusion,
            dense_share=s.dense_share,
            fold=request.duplicates == "fold",
        )

    async def _in_turn(
        self, tenant: str, request: SearchRequest, search: Callable[[], Coroutine[Any, Any, SearchResponse]]
    ) -> SearchResponse:
        """Begin the search when its turn comes; its deadline runs from there."""
        async with self._turns.of(tenant, idle=request.expand != "none") as waited:
            if waited > KNOWN_MS:
                await self._state.current()
            return _waited(await self._in_time(search(), request), waited)

    async def _in_time(self, work: Coroutine[Any, Any, SearchResponse], request: SearchRequest) -> SearchResponse:
        expansion_s = self._expander.budget_s if request.expand != "none" and request.cursor is None else 0.0
        try:
            async with asyncio.timeout(self._settings.deadline_s + expansion_s):
                return await work
        except TimeoutError as error:
            raise DeadlineExceeded from error

    def _complete_until(self, tenant: str, narrowing: Narrowing, generation: Generation) -> dict[str, int | None]:
        complete = self._freshness.complete_until(tenant, generation.name)
        if narrowing.sources is None:
            return complete
        return {source: complete.get(source) for source in sorted(narrowing.sources)}

    def _measure(self, outcome: Outcome, response: SearchResponse) -> None:
        for stage, ms in response.timings_ms.items():
            if stage == "embed":  # observed when it ended
                continue
            self._metrics.observe("headwater_search_stage_seconds", ms / 1000, stage=stage)
        for reason, count in outcome.refused.items():
            self._metrics.count("headwater_refused_candidates_total", count, reason=reason)
        if outcome.refills:
            self._metrics.count("headwater_refills_total", outcome.refills)
        if outcome.repaired:
            self._metrics.count("headwater_repairs_total", outcome.repaired)
        if outcome.starved:
            self._metrics.count("headwater_starved_total")

    @staticmethod
    def _log(closure: Closure, outcome: Outcome, expanded: Expanded | None) -> None:
        entry = current()
        if entry is not None:  # LoggedService opened it and takes the rest from the reply
            entry.found(closure, outcome)
            if expanded is not None and expanded.found:
                entry.expanded(Counter(step.kind for step in expanded.steps), expanded.usage.tokens)


def _waited(response: SearchResponse, ms: float) -> SearchResponse:
    """With the time before its turn, which is part of the whole."""
    spent = {"turn": round(ms, 3), **response.timings_ms}
    spent["total"] = round(spent["total"] + ms, 3)
    return response.model_copy(update={"timings_ms": spent})
