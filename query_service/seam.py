"""What a generator sees of retrieval: ``search(query, k)`` gives passages, and nothing says where they come from.

Whoever writes answers depends on ``Search`` alone. Another way to find passages, a graph for instance, takes its place
behind the same method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from query_service.scope import Scope
    from schemas.api import SearchFilters, SearchRequest, SearchResponse
    from schemas.api_ranking import Expansion


@dataclass(frozen=True)
class Passage:
    """A passage that the caller could read when it was found. ``passage_id`` names it in citations; ``score`` falls
    from the first to the last and lies between 0 and 1; times are microseconds since the epoch (UTC)."""

    passage_id: str
    document_id: str
    source: str
    title: str
    heading_path: tuple[str, ...]
    text: str
    url: str | None
    version: int
    updated_at: int | None
    score: float


class Search(Protocol):
    """Passages for a query, best first, at most ``k`` of them. It always searches as one caller."""

    async def search(self, query: str, k: int) -> Sequence[Passage]: ...


class Searches(Protocol):
    """What answers requests: ``QueryService``."""

    async def search(self, scope: Scope, request: SearchRequest) -> SearchResponse: ...


class CallerSearch:
    """``Search`` as one caller. Every call is a search of its own: admitted, limited and logged like any other."""

    def __init__(
        self, service: Searches, scope: Scope, *, filters: SearchFilters | None = None, expand: Expansion = "none"
    ) -> None:
        self._service = service
        self._scope = scope
        self._filters = filters
        self._expand: Expansion = expand

    async def search(self, query: str, k: int) -> Sequence[Passage]:
        """See ``Search``. Raises ValueError for an empty query or a ``k`` outside 1..100, and what the service raises:
        FieldError, NotReady, StoreUnavailable, EncoderUnavailable, DeadlineExceeded."""
        from schemas.api import SearchFilters, SearchRequest

        filters = self._filters if self._filters is not None else SearchFilters()
        request = SearchRequest(query=query, k=k, filters=filters, expand=self._expand, snippets=False)
        found = await self._service.search(self._scope, request)
        return [
            Passage(
                passage_id=hit.chunk_id,
                document_id=hit.document_id,
                source=hit.source,
                title=hit.title,
                heading_path=hit.heading_path,
                text=hit.text,
                url=hit.url,
                version=hit.version,
                updated_at=hit.updated_at,
                score=hit.scores.final if hit.scores.final is not None else hit.scores.fused,
            )
            for hit in found.hits
        ]
