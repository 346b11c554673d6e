"""The HTTP application. ``create_app`` takes its dependencies; nothing happens at import."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Response
from fastapi.responses import FileResponse
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

from pipeline import docs_page
from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.ports import IndexReader
from pipeline.settings import Settings
from query_service import deletion, feedback, neighbours, openapi, problems, receipts, shadow, why
from query_service.answer import chat
from query_service.answer import routes as answers
from query_service.answer.chat_errors import ChatErrors
from query_service.answer.made import Models, answering, metered
from query_service.answer.service import AnswerService
from query_service.barrier import Barrier
from query_service.cache import parts as kept
from query_service.callers import Caller, Callers
from query_service.closure import Closures
from query_service.counters import LoadCounter
from query_service.deletion import Deletions, OpenProofs
from query_service.encoders import Encoders, LoadEncoder
from query_service.expansion.expander import Expander
from query_service.flights import Flights
from query_service.freshness import Changes, Freshness
from query_service.generate.interface import Generator
from query_service.heartbeat import Heart, Pulse
from query_service.idempotency import Replies
from query_service.keys import ApiKeys
from query_service.keys import place as keys_place
from query_service.limits import Limits
from query_service.mcp.endpoint import Endpoint
from query_service.mcp.endpoint import router as mcp_router
from query_service.middleware import Attended, Guard, Watched
from query_service.neighbours import Neighbours
from query_service.overlay import Overlay
from query_service.policy import Policies
from query_service.querylog import routes as queries
from query_service.querylog.log import People, QueryLog
from query_service.querylog.sender import OpenPublisher
from query_service.querylog.service import LoggedNeighbours, LoggedService
from query_service.rerank.service import LoadReranker, TimedReranking
from query_service.scope import TokenVerifier
from query_service.service import QueryService
from query_service.state import REFRESH_S, ServiceState
from query_service.tail import AccessTail, TailFactory
from query_service.waiting import Waiter
from query_service.why import Why
from schemas.api import (
    DocumentResponse,
    FreshnessResponse,
    HealthResponse,
    Problem,
    SearchRequest,
    SearchResponse,
    TraceResponse,
)

STATIC = Path(__file__).parent / "static"
MAX_WINDOW_S = 30 * 24 * 3600
CORS: dict[str, Any] = {
    "allow_methods": ("GET", "POST", "DELETE"),
    "allow_headers": ("Authorization", "Content-Type", "Idempotency-Key", "X-API-Key"),
    "expose_headers": ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After"),
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in (
        (401, "The token is missing, expired or not valid here."),
        (422, "Fields that cannot be used, by name."),
        (503, "Something below is down or not ready; Retry-After says when to ask again."),
    )
}
NOT_FOUND: dict[int | str, dict[str, Any]] = {
    **PROBLEMS,
    404: {"model": Problem, "description": "Absent, or not for this token: the answers are equal."},
}


@dataclass
class Dependencies:
    """What the application is made of; the real ones come from ``query_service.wiring``, tests bring their own."""

    settings: Settings
    reader: IndexReader
    open_tail: TailFactory
    load_encoder: LoadEncoder
    clock: Clock
    metrics: Metrics
    load_reranker: LoadReranker | None = None  # None: searches are not reranked
    generator: Generator | None = None  # None: nothing is generated
    log_identity: str = ""
    open_proofs: OpenProofs | None = None
    pulse: Pulse | None = None
    open_publisher: OpenPublisher | None = None  # of the query log
    people: People | None = None
    load_counter: LoadCounter | None = None  # tokens of evidence; an estimate without it


@dataclass
class Parts:
    """The wired application."""

    verifier: TokenVerifier
    callers: Callers  # of every request: tokens and API keys
    service: QueryService
    state: ServiceState
    tail: AccessTail
    overlay: Overlay
    freshness: Freshness
    encoders: Encoders
    changes: Changes
    reader: IndexReader
    metrics: Metrics
    deletions: Deletions
    neighbours: Neighbours
    mcp: Endpoint
    barrier: Barrier
    querylog: QueryLog
    why: Why
    policies: Policies
    heart: Heart | None = None
    reranking: TimedReranking | None = None
    generator: Generator | None = None
    answers: AnswerService | None = None
    caches: kept.Caches | None = None


def assemble(deps: Dependencies) -> Parts:
    """Wire the parts. Raises ConfigError; opens nothing."""
    settings, clock, metrics, reader = deps.settings, deps.clock, deps.metrics, deps.reader
    verifier = TokenVerifier(settings.auth)
    overlay, changes = Overlay(), Changes()
    tail = AccessTail(deps.open_tail, overlay, clock, metrics, settings.query.tail_minutes, settings.kafka.partitions)
    identity = deps.log_identity or settings.namespace
    path = settings.query.receipts_path
    freshness = Freshness(deps.open_tail, lambda: receipts.opened(path, identity), clock, metrics)
    encoders = Encoders(deps.load_encoder, settings.inference, metrics)
    flights = Flights()
    state = ServiceState(reader, tail, freshness, encoders, flights, clock, metrics, settings.query.ready_age_s)
    barrier = Barrier(deps.open_tail, tail, changes)
    closures = Closures(reader, overlay, clock, tail.alive, barrier.passed)
    overlay.on_deletion(reader.forget_document)
    tail.subscribe(changes.notify)
    freshness.subscribe(changes.notify)
    querylog = QueryLog(
        settings, deps.open_tail, clock, metrics, identity, open_publisher=deps.open_publisher, people=deps.people
    )
    reranking: TimedReranking | None = None
    if deps.load_reranker is not None:
        reranking = TimedReranking(deps.load_reranker, settings.rerank, settings.inference, metrics)
    generator = metered(deps.generator, settings, querylog, clock, metrics)
    caches = kept.build(
        settings.cache, reader, overlay, closures, freshness, deps.open_tail, changes, state, flights, encoders, clock,
        metrics,
    )  # fmt: skip
    service = LoggedService(
        settings.query, reader, clock, metrics, overlay, closures, encoders, freshness, state, flights,
        Waiter(reader, overlay, tail, changes, clock), verifier.log_key(),
        rerank=settings.rerank, ranking=settings.ranking, load_counter=deps.load_counter, log=querylog,
        reranking=reranking, expander=Expander(settings.expansion, generator, metrics), answer=settings.answer,
        kept=caches.searches, limits=settings.limits,
    )  # fmt: skip
    models = Models(encoders, state, reranking, generator)
    answer = answering(settings, service, models, caches.answers, clock, metrics)
    deletions = Deletions(deps.open_proofs, reader, encoders, clock, (caches.keeper.place,))
    around = LoggedNeighbours(service, reader, state, flights, clock, log=querylog)
    mcp = Endpoint(service, settings.query.hosts, settings.auth.cors_origins, answer)
    heart = Heart(deps.pulse, state, flights, clock) if deps.pulse is not None else None
    callers = Callers(verifier, ApiKeys(keys_place(settings)))
    return Parts(
        verifier, callers, service, state, tail, overlay, freshness, encoders, changes, reader, metrics, deletions,
        around, mcp, barrier, querylog,
        Why(reader, overlay, freshness, state, flights, querylog, clock), Policies(settings.query.show_policy), heart,
        reranking, generator, answer, caches,
    )  # fmt: skip


def create_app(deps: Dependencies) -> FastAPI:
    """The application; its background work lives as long as its lifespan. Raises ConfigError."""
    parts = assemble(deps)
    app = FastAPI(
        title="Headwater",
        summary="Search within permissions over sources that change.",
        version="1",
        lifespan=_lifespan(parts),
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = parts
    problems.install(app)
    _protect(app, parts, deps.settings)
    openapi.install(app)
    app.include_router(_api(parts))
    assert parts.answers is not None
    app.include_router(answers.router(parts.answers))
    app.include_router(chat.router(parts.answers, generates=parts.generator is not None))
    app.include_router(shadow.router(parts.service, parts.reader))
    app.include_router(neighbours.router(parts.neighbours, parts.policies))
    app.include_router(mcp_router(parts.mcp))
    app.include_router(deletion.router(parts.deletions))
    app.include_router(feedback.router(feedback.Feedback(parts.querylog, deps.clock, parts.metrics)))
    app.include_router(queries.router(parts.querylog, deps.clock))
    app.include_router(why.router(parts.why))
    app.include_router(_operations(parts))
    docs_page.install(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _protect(app: FastAPI, parts: Parts, settings: Settings) -> None:
    """What stands around every request. The last one added is the outermost."""
    problems.document(app)
    limits = settings.limits
    app.state.replies = Replies(limits.idempotent_replies, limits.idempotent_h)
    app.add_middleware(Attended, body_s=limits.body_s)
    app.state.limits = Limits(limits)
    app.add_middleware(Guard, callers=parts.callers, limits=app.state.limits)
    if settings.auth.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=settings.auth.cors_origins, **CORS)
    app.add_middleware(Watched, metrics=parts.metrics)
    app.add_middleware(ChatErrors)


def _lifespan(parts: Parts) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        parts.changes.bind()
        parts.freshness.start()
        parts.querylog.start()
        if parts.reranking is not None:
            parts.reranking.start()  # loads in the background; until then searches keep the fused order
        switches = Changes()
        switches.bind()
        parts.freshness.on_transition(switches.notify)
        loops = [asyncio.create_task(_background(parts.state, switches))]
        if parts.heart is not None:
            loops.append(asyncio.create_task(parts.heart.run()))
        if parts.verifier.keyset is not None:
            loops.append(asyncio.create_task(parts.verifier.keyset.run()))
        try:
            yield
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await parts.mcp.stop()
            if parts.heart is not None:
                await parts.heart.stop()
            await parts.state.close()
            await asyncio.to_thread(parts.tail.stop)
            await asyncio.to_thread(parts.barrier.close)
            if parts.caches is not None:
                await parts.caches.close()
            await asyncio.to_thread(parts.freshness.stop)
            await asyncio.to_thread(parts.querylog.stop)
            await asyncio.to_thread(parts.encoders.close)
            if parts.reranking is not None:
                await asyncio.to_thread(parts.reranking.close)
            if parts.generator is not None:
                await parts.generator.close()
            await asyncio.to_thread(parts.deletions.close)
            await parts.reader.close()

    return run


async def _background(state: ServiceState, switches: Changes) -> None:
    frozen = False
    while True:
        await state.tick()
        if not frozen and not state.reasons():
            # What start-up made lives for good; a full collection over it stalls searches by hundreds of milliseconds.
            gc.collect()
            gc.freeze()
            frozen = True
        await switches.wait(REFRESH_S)  # a switch that the log tells of is looked at now


def _api(parts: Parts) -> APIRouter:
    router = APIRouter(prefix="/v1")
    service, policies = parts.service, parts.policies

    @router.post(
        "/search", response_model=SearchResponse, responses=PROBLEMS, summary="Search what the caller may read"
    )
    async def search(request: SearchRequest, caller: Caller) -> Response:
        # Written at once: the framework would validate every hit a second time.
        found = await service.search(caller, request)
        return Response(policies.search(found, caller).model_dump_json(), media_type="application/json")

    @router.get("/documents/{document_uid}", responses=NOT_FOUND, summary="A document's sections")
    async def document(
        document_uid: str,
        caller: Caller,
        offset: Annotated[int, Query(ge=0, le=100_000, description="First section.")] = 0,
        limit: Annotated[int, Query(ge=1, le=500, description="Sections at most.")] = 100,
    ) -> DocumentResponse:
        return policies.facts(await service.document(caller, document_uid, offset, limit), caller)

    @router.get("/documents/{document_uid}/trace", responses=NOT_FOUND, summary="What became of a document's events")
    @router.get("/trace/{document_uid}", responses=NOT_FOUND, summary="The same, under its older address")
    async def trace(document_uid: str, caller: Caller) -> TraceResponse:
        return await service.trace(caller, document_uid)

    @router.get("/freshness", responses=PROBLEMS, summary="Completeness and lag of each source")
    async def freshness(
        caller: Caller,
        window_s: Annotated[int, Query(ge=1, le=MAX_WINDOW_S, description="Window of the percentiles.")] = 3600,
    ) -> FreshnessResponse:
        return await service.freshness(caller, window_s)

    return router


def _operations(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        parts.state.publish()
        return Response(parts.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/healthz", summary="The process is alive")
    async def healthz() -> HealthResponse:
        return HealthResponse(ok=True)

    @router.get("/readyz", summary="Searches are complete and safe now", responses={503: {"model": HealthResponse}})
    async def readyz(response: Response) -> HealthResponse:
        reasons = parts.state.reasons()
        response.status_code = 503 if reasons else 200
        return HealthResponse(ok=not reasons, reasons=reasons)

    @router.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    return router
