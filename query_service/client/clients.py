"""``HeadwaterClient`` and ``AsyncHeadwaterClient``: the same calls, blocking and awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Unpack

import httpx

from query_service.client import calls
from query_service.client.answers import Answers, AsyncAnswers
from query_service.client.calls import Paging, SearchFields, Sections, Waiting
from query_service.client.common import CONNECTIONS, TIMEOUT_S
from query_service.client.errors import UnexpectedReply
from query_service.client.exchange import Credentials, Retry
from schemas.api import (
    DocumentResponse,
    FreshnessResponse,
    SearchHit,
    SearchResponse,
    SectionView,
    TraceResponse,
)
from schemas.api_feedback import FeedbackResponse
from schemas.api_neighbours import NeighboursResponse
from schemas.api_ranking import Evidence
from schemas.querylog import Verdict


class HeadwaterClient(Answers):
    """Searches and reads as one caller. Blocking; may be shared by threads; keeps connections open.

    ``token`` is a token or a function that gives one; ``api_key`` is an API key. ``http`` brings a client of your own,
    for proxies or certificates; it stays open when this one is closed. All methods raise
    ``query_service.client.HeadwaterError``.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | Callable[[], str] | None = None,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retry: Retry | None = None,
        headers: dict[str, str] | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(base_url, Credentials(token, api_key), timeout_s, retry, headers or {})
        self._own = http is None
        self._http = http if http is not None else httpx.Client(limits=CONNECTIONS)

    def __enter__(self) -> HeadwaterClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        if self._own:
            self._http.close()

    def search(self, query: str, **fields: Unpack[SearchFields]) -> SearchResponse:
        """One page of hits, best first."""
        return self._run(calls.search(query, fields))

    def pages(self, query: str, **fields: Unpack[SearchFields]) -> Iterator[SearchResponse]:
        """All pages, of ``k`` hits each."""
        paging = Paging(query, fields)
        while (call := paging.next()) is not None:
            yield paging.take(self._run(call))

    def search_all(
        self, query: str, *, limit: int | None = None, **fields: Unpack[SearchFields]
    ) -> Iterator[SearchHit]:
        """The hits of all pages, ``limit`` at most."""
        left = limit
        for page in self.pages(query, **fields):
            yield from page.hits if left is None else page.hits[:left]
            left = None if left is None else left - len(page.hits)
            if left is not None and left <= 0:
                return

    def evidence(self, query: str, *, whole: bool = False, **fields: Unpack[SearchFields]) -> Evidence:
        """Sections to hand to a generator, under ``token_budget``; ``whole``: all that may be read, where it fits."""
        wanted: SearchFields = {**fields, "evidence": "all" if whole else "sections"}
        return _evidence(self._run(calls.search(query, wanted)))

    def document(self, document_uid: str, *, offset: int = 0, limit: int = 100) -> DocumentResponse:
        """A document's facts and ``limit`` of its sections from ``offset``."""
        return self._run(calls.document(document_uid, offset, limit))

    def sections(self, document_uid: str, *, page: int = 100) -> Iterator[SectionView]:
        """All sections of a document in order, read ``page`` at a time."""
        sections = Sections(document_uid, page)
        while (call := sections.next()) is not None:
            yield from sections.take(self._run(call)).sections

    def neighbours(self, document_uid: str, chunk_id: str, *, before: int = 1, after: int = 1) -> NeighboursResponse:
        """The passages around a hit, in the version of the document that holds it."""
        return self._run(calls.neighbours(document_uid, chunk_id, before, after))

    def feedback(
        self,
        query_id: str,
        verdict: Verdict,
        *,
        chunk_id: str | None = None,
        document_uid: str | None = None,
        comment: str | None = None,
    ) -> FeedbackResponse:
        """Say what an answer, or one passage or document of it, was worth."""
        return self._run(calls.feedback(query_id, verdict, chunk_id, document_uid, comment))

    def trace(self, document_uid: str) -> TraceResponse:
        """What became of a document's events."""
        return self._run(calls.trace(document_uid))

    def freshness(self, *, window_s: int = 3600) -> FreshnessResponse:
        """Completeness and lag of each source."""
        return self._run(calls.freshness(window_s))

    def wait_for(self, freshness_token: str, *, timeout_s: float = 30.0) -> bool:
        """Wait until answers hold the write that the token names; False when the time is over first."""
        waiting = Waiting(freshness_token, timeout_s)
        while (call := waiting.next()) is not None:
            waiting.take(self._run(call))
        return waiting.fresh


class AsyncHeadwaterClient(AsyncAnswers):
    """``HeadwaterClient``, awaited. ``token`` may also be a coroutine function. For one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        token: str | Callable[[], str] | Callable[[], Awaitable[str]] | None = None,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retry: Retry | None = None,
        headers: dict[str, str] | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(base_url, Credentials(token, api_key), timeout_s, retry, headers or {})
        self._own = http is None
        self._http = http if http is not None else httpx.AsyncClient(limits=CONNECTIONS)

    async def __aenter__(self) -> AsyncHeadwaterClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect."""
        if self._own:
            await self._http.aclose()

    async def search(self, query: str, **fields: Unpack[SearchFields]) -> SearchResponse:
        """One page of hits, best first."""
        return await self._run(calls.search(query, fields))

    async def pages(self, query: str, **fields: Unpack[SearchFields]) -> AsyncIterator[SearchResponse]:
        """All pages, of ``k`` hits each."""
        paging = Paging(query, fields)
        while (call := paging.next()) is not None:
            yield paging.take(await self._run(call))

    async def search_all(
        self, query: str, *, limit: int | None = None, **fields: Unpack[SearchFields]
    ) -> AsyncIterator[SearchHit]:
        """The hits of all pages, ``limit`` at most."""
        left = limit
        async for page in self.pages(query, **fields):
            for hit in page.hits if left is None else page.hits[:left]:
                yield hit
            left = None if left is None else left - len(page.hits)
            if left is not None and left <= 0:
                return

    async def evidence(self, query: str, *, whole: bool = False, **fields: Unpack[SearchFields]) -> Evidence:
        """Sections to hand to a generator, under ``token_budget``; ``whole``: all that may be read, where it fits."""
        wanted: SearchFields = {**fields, "evidence": "all" if whole else "sections"}
        return _evidence(await self._run(calls.search(query, wanted)))

    async def document(self, document_uid: str, *, offset: int = 0, limit: int = 100) -> DocumentResponse:
        """A document's facts and ``limit`` of its sections from ``offset``."""
        return await self._run(calls.document(document_uid, offset, limit))

    async def sections(self, document_uid: str, *, page: int = 100) -> AsyncIterator[SectionView]:
        """All sections of a document in order, read ``page`` at a time."""
        sections = Sections(document_uid, page)
        while (call := sections.next()) is not None:
            for section in sections.take(await self._run(call)).sections:
                yield section

    async def neighbours(
        self, document_uid: str, chunk_id: str, *, before: int = 1, after: int = 1
    ) -> NeighboursResponse:
        """The passages around a hit, in the version of the document that holds it."""
        return await self._run(calls.neighbours(document_uid, chunk_id, before, after))

    async def feedback(
        self,
        query_id: str,
        verdict: Verdict,
        *,
        chunk_id: str | None = None,
        document_uid: str | None = None,
        comment: str | None = None,
    ) -> FeedbackResponse:
        """Say what an answer, or one passage or document of it, was worth."""
        return await self._run(calls.feedback(query_id, verdict, chunk_id, document_uid, comment))

    async def trace(self, document_uid: str) -> TraceResponse:
        """What became of a document's events."""
        return await self._run(calls.trace(document_uid))

    async def freshness(self, *, window_s: int = 3600) -> FreshnessResponse:
        """Completeness and lag of each source."""
        return await self._run(calls.freshness(window_s))

    async def wait_for(self, freshness_token: str, *, timeout_s: float = 30.0) -> bool:
        """Wait until answers hold the write that the token names; False when the time is over first."""
        waiting = Waiting(freshness_token, timeout_s)
        while (call := waiting.next()) is not None:
            waiting.take(await self._run(call))
        return waiting.fresh


def _evidence(reply: SearchResponse) -> Evidence:
    if reply.evidence is None:
        raise UnexpectedReply("The service gave no evidence; it may be of an older version.", query_id=reply.query_id)
    return reply.evidence
