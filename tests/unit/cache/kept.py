"""Caches around a running application's searches, and answers made of what they find."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pipeline.settings_query import CacheSettings
from query_service.cache import parts as cache_parts
from query_service.cache.parts import Caches, build
from query_service.scope import Scope, narrow
from schemas.api import SearchRequest, SearchResponse
from schemas.api_answer import AnswerRequest, AnswerResponse, AnswerSentence, AnswerUsage, Citation
from schemas.receipts import Receipt
from schemas.topics import Topic
from tests.unit.query.world import GENERATION, TENANT, Running, World, ref

PATIENT_S = 5.0
Between = Callable[[], Awaitable[None]]


def caches_of(run: Running, **settings: Any) -> Caches:
    """Caches of their own, on the parts of the application. They wait long for its tails: machines are busy."""
    patch = pytest.MonkeyPatch()
    patch.setattr(cache_parts, "WAIT_S", PATIENT_S)
    parts, world = run.parts, run.world
    service = parts.service
    made = build(
        CacheSettings(**settings), parts.reader, parts.overlay, service._closures, parts.freshness,
        world.dependencies().open_tail, parts.changes, parts.state, service._flights, parts.encoders, world.clock,
        world.metrics,
    )  # fmt: skip
    patch.undo()
    parts.barrier._wait_s = PATIENT_S
    return made


class Asking:
    """Asks through caches and counts what was searched."""

    def __init__(self, run: Running, **settings: Any) -> None:
        self.run, self.caches = run, caches_of(run, **settings)
        self.searched = 0
        self.written = 0

    def scope(self, subject: str = "ann", **fields: Any) -> Scope:
        return Scope(tenant=TENANT, subject=subject, **fields)

    async def ready(self) -> None:
        """The tail of receipts has begun."""
        await self.run.until(self.run.parts.freshness.alive)

    async def search(
        self, query: str = "secret plan", scope: Scope | None = None, *, between: Between | None = None, **body: Any
    ) -> SearchResponse:
        """``between`` happens after the search, before its reply is kept."""
        await self.ready()
        scope = scope or self.scope()
        request = SearchRequest(query=query, **{"duplicates": "keep", "mode": "sparse", **body})
        narrowing = narrow(scope, request.filters, self.run.world.clock.now())
        generation = await self.run.parts.state.current()

        async def searched() -> SearchResponse:
            self.searched += 1
            found = await self.run.parts.service.search(scope, request)
            if between is not None:
                await between()
            return found

        return await self.caches.searches.through(scope, request, narrowing, generation, searched)

    async def ids(self, *args: Any, **body: Any) -> list[str]:
        return sorted(hit.document_id for hit in (await self.search(*args, **body)).hits)

    async def answer(
        self, question: str = "What is the secret plan?", scope: Scope | None = None, *,
        between: Between | None = None, change: dict[str, Any] | None = None, **body: Any,
    ) -> AnswerResponse:  # fmt: skip
        await self.ready()
        scope = scope or self.scope()
        request = AnswerRequest(question=question, **body)
        found = await self.caches.answers.find(scope, request)
        if found is not None:
            return found
        self.written += 1
        search = await self.run.parts.service.search(
            scope, SearchRequest(query=question, filters=request.filters, evidence="sections", duplicates="keep")
        )
        answer = answer_of(search).model_copy(update=change or {})
        if between is not None:
            await between()
        await self.caches.answers.keep(scope, request, answer, search)
        return answer


def answer_of(found: SearchResponse) -> AnswerResponse:
    """One that quotes the best hit."""
    hit = found.hits[0]
    citation = Citation(
        number=1, document_uid=hit.document_uid, document_id=hit.document_id, source=hit.source, title=hit.title,
        url=hit.url, section_id=hit.section_id, chunk_ids=(hit.chunk_id,), heading_path=hit.heading_path,
        quote=hit.text, version=hit.version, updated_at=hit.updated_at, age_s=hit.age_s,
    )  # fmt: skip
    return AnswerResponse(
        query_id=found.query_id, answered=True, kind="extractive", text=f"{hit.text}[^1]",
        sentences=(AnswerSentence(text=hit.text, citations=(1,), support=0.9),), citations=(citation,),
        complete_until=found.complete_until, generation=found.generation, judged_at=found.judged_at,
        usage=AnswerUsage(prompt_tokens=7, cost=0.5), supplied=1,
    )  # fmt: skip


def receipt(name: str, *, tenant: str = TENANT, generation: str | None = GENERATION, lane: Any = "index") -> Receipt:
    """Of a document that is visible now."""
    document = ref(name, tenant=tenant)
    return Receipt(
        lane=lane, generation=generation, tenant=tenant, source=document.source, document=document,
        document_uid=document.uid, event_type="content.upserted", version=1, outcome="indexed",
    )  # fmt: skip


def receive(world: World, *receipts: Receipt) -> None:
    """Receipts on the log."""
    for one in receipts:
        world.log.append(
            Topic.RECEIPTS, one.document_uid, one.model_dump_json().encode(), at=world.clock.now()
        )  # fmt: skip
