"""``GET /v1/documents/{document_uid}/chunks/{chunk_id}/neighbours``: the passages around a hit.

Under the admission of every read by id, before the texts are read and once more after. All passages are of one version
of the document: where the hit's chunk is no longer live in it, there is nothing here.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pipeline.clock import Clock
from pipeline.ports import IndexReader
from query_service import assemble
from query_service.callers import Caller
from query_service.documents import NotFound, is_uuid
from query_service.flights import Flights
from query_service.policy import Policies
from query_service.scope import Narrowing, Scope, narrow
from query_service.service import QueryService
from query_service.state import ServiceState
from schemas.api import Problem, SearchFilters
from schemas.api_neighbours import Neighbour, NeighboursResponse
from schemas.documents import ChunkEntry, Manifest
from schemas.generation import Generation

MOST = 20


class Neighbours:
    """Reads the passages around one of a document."""

    def __init__(
        self, service: QueryService, reader: IndexReader, state: ServiceState, flights: Flights, clock: Clock
    ) -> None:
        self._service, self._reader, self._state, self._flights, self._clock = service, reader, state, flights, clock

    async def around(self, scope: Scope, uid: str, chunk_id: str, before: int, after: int) -> NeighboursResponse:
        """Raises NotFound, NotReady or StoreUnavailable."""
        if not is_uuid(chunk_id):
            raise NotFound
        generation = await self._state.current()
        with self._flights.on(generation.name):
            return await self._around(scope, uid, chunk_id, before, after, generation)

    async def _around(
        self, scope: Scope, uid: str, chunk_id: str, before: int, after: int, generation: Generation
    ) -> NeighboursResponse:
        narrowing = narrow(scope, SearchFilters(), self._clock.now())
        found = await self._read(scope, uid, chunk_id, before, after, generation, narrowing)
        if found is None:
            # The document moved on between the two reads; if its new version has the chunk still, that one counts.
            found = await self._read(scope, uid, chunk_id, before, after, generation, narrowing)
        if found is None:
            raise NotFound
        manifest, passages = found
        judged_at = self._clock.now()
        record = await self._service.still_admitted(scope, manifest, narrowing)
        return NeighboursResponse(
            **assemble.document_facts(manifest, record, self._clock.now(), narrowing.as_of),
            generation=generation.name,
            chunk_total=manifest.chunk_total,
            chunk_id=chunk_id,
            passages=tuple(passages),
            judged_at=judged_at,
        )

    async def _read(
        self, scope: Scope, uid: str, chunk_id: str, before: int, after: int, generation: Generation,
        narrowing: Narrowing,
    ) -> tuple[Manifest, list[Neighbour]] | None:  # fmt: skip
        """The manifest that lists the chunk, and the passages; None where a listed text is gone by now."""
        manifest, _ = await self._service.admitted(scope, uid, generation, narrowing)
        entries = await self._entries(manifest, chunk_id, before, after, generation.name)
        texts = await self._reader.chunks(generation.name, scope.tenant, [e.chunk_id for _, e in entries])
        if any(e.chunk_id not in texts or texts[e.chunk_id].document_uid != uid for _, e in entries):
            return None
        return manifest, [
            Neighbour(
                chunk_id=entry.chunk_id,
                chunk_index=place,
                section_id=texts[entry.chunk_id].section_id,
                heading_path=texts[entry.chunk_id].heading_path,
                text=texts[entry.chunk_id].text,
                page=entry.page,
                start=entry.start if entry.start >= 0 else None,
                end=entry.end if entry.start >= 0 else None,
            )
            for place, entry in entries
        ]

    async def _entries(
        self, manifest: Manifest, chunk_id: str, before: int, after: int, generation: str
    ) -> list[tuple[int, ChunkEntry]]:
        """Places and entries of the passages. Raises NotFound where this version does not list the chunk.

        A passage that sums the document up stands nowhere in it: it is nobody's neighbour and has none.
        """
        if manifest.pages:
            found = (await self._reader.page_entries(generation, manifest, [chunk_id])).get(chunk_id)
            if found is None:
                raise NotFound
            at: int | None = found.ordinal
        else:
            at = next((i for i, e in enumerate(manifest.chunks) if e.chunk_id == chunk_id), None)
        if at is None:
            raise NotFound
        first, last = max(0, at - before), at + after
        if manifest.pages:
            span = await self._reader.page_span(generation, manifest, first, last)
            entries: list[tuple[int, ChunkEntry]] = [(e.ordinal, e) for e in span]
        else:
            entries = list(enumerate(manifest.chunks))[first : last + 1]
        own = next((e for place, e in entries if place == at), None)
        if own is None:
            raise NotFound
        return [(at, own)] if own.summary else [(place, e) for place, e in entries if not e.summary]


def router(neighbours: Neighbours, policies: Policies) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/v1")

    @routes.get(
        "/documents/{document_uid}/chunks/{chunk_id}/neighbours",
        summary="Passages around a hit",
        responses={
            401: {"model": Problem, "description": "The token is missing, expired or not valid here."},
            404: {
                "model": Problem,
                "description": "Absent, not for this token, or not in the document's present version: the answers are "
                "equal.",
            },
            422: {"model": Problem, "description": "Fields that cannot be used, by name."},
            503: {"model": Problem, "description": "Something below is down or not ready."},
        },
    )
    async def neighbours_of_chunk(
        document_uid: str,
        chunk_id: str,
        caller: Caller,
        before: Annotated[int, Query(ge=0, le=MOST, description="Passages before it.")] = 1,
        after: Annotated[int, Query(ge=0, le=MOST, description="Passages after it.")] = 1,
    ) -> NeighboursResponse:
        """The passage and those next to it in the document's order, all of the version that holds it.

        The same admission as for every read: before the texts are read, and once more before they leave.
        """
        return policies.facts(await neighbours.around(caller, document_uid, chunk_id, before, after), caller)

    return routes
