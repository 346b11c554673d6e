"""The query service with every one of its answers in the query log, whichever way a question came in."""

from __future__ import annotations

from typing import Any

from query_service.neighbours import Neighbours
from query_service.querylog.entry import current
from query_service.querylog.log import QueryLog
from query_service.scope import Scope
from query_service.service import QueryService
from schemas.api import DocumentResponse, SearchRequest, SearchResponse, TraceResponse
from schemas.api_neighbours import NeighboursResponse
from schemas.generation import Generation


class LoggedService(QueryService):
    """``QueryService``; what is refused, fails or is late is logged as well."""

    def __init__(self, *parts: Any, log: QueryLog, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.querylog = log

    async def search(self, scope: Scope, request: SearchRequest) -> SearchResponse:
        """As ``QueryService.search``."""
        with self.querylog.watching("search", scope) as entry:
            entry.asked(request)
            found = await super().search(scope, request)
            entry.answered(found)
            return found

    async def searched(self, scope: Scope, request: SearchRequest) -> SearchResponse:
        """A search on behalf of a query that is being logged: it is part of that one."""
        found = await super().search(scope, request)
        if (entry := current()) is not None:
            entry.searched(found)
        return found

    async def shadow(
        self, operator: Scope, seen_as: Scope, request: SearchRequest, generation: Generation
    ) -> SearchResponse:
        """As ``QueryService.shadow``; the record names both persons by reference."""
        with self.querylog.watching("seen_as", seen_as, operator=operator) as entry:
            entry.asked(request)
            found = await super().shadow(operator, seen_as, request, generation)
            entry.answered(found)
            return found

    async def document(self, scope: Scope, uid: str, offset: int, limit: int) -> DocumentResponse:
        """As ``QueryService.document``."""
        with self.querylog.watching("document", scope, document_uid=_named(uid)) as entry:
            entry.request = {"offset": offset, "limit": limit}
            found = await super().document(scope, uid, offset, limit)
            entry.generation = found.generation
            entry.counts = entry.counts.model_copy(update={"shown": len(found.sections)})
            return found

    async def trace(self, scope: Scope, uid: str) -> TraceResponse:
        """As ``QueryService.trace``."""
        with self.querylog.watching("trace", scope, document_uid=_named(uid)):
            return await super().trace(scope, uid)


class LoggedNeighbours(Neighbours):
    """``Neighbours``, logged as looks at the document."""

    def __init__(self, *parts: Any, log: QueryLog) -> None:
        super().__init__(*parts)
        self._querylog = log

    async def around(self, scope: Scope, uid: str, chunk_id: str, before: int, after: int) -> NeighboursResponse:
        """As ``Neighbours.around``."""
        with self._querylog.watching("document", scope, document_uid=_named(uid)) as entry:
            entry.request = {"around": _named(chunk_id), "before": before, "after": after}
            found = await super().around(scope, uid, chunk_id, before, after)
            entry.generation = found.generation
            return found


def _named(uid: str) -> str | None:
    """A document's uid, where it is one: anything else is the caller's text."""
    from query_service.documents import is_uuid

    return uid if is_uuid(uid) else None
