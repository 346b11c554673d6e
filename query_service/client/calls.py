"""The API's calls as values: what is sent and what comes back. No I/O; both clients are made of these."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from query_service.client.errors import InvalidRequest
from schemas.api import (
    MAX_WAIT_MS,
    DocumentResponse,
    FieldProblem,
    FreshnessResponse,
    Mode,
    SearchFilters,
    SearchRequest,
    SearchResponse,
    TraceResponse,
)
from schemas.api_answer import AnswerRequest, AnswerResponse, Style, Turn, Unsupported
from schemas.api_feedback import FeedbackRequest, FeedbackResponse
from schemas.api_neighbours import NeighboursResponse
from schemas.api_ranking import EvidenceMode, Expansion, RerankMode, Sort
from schemas.querylog import Verdict
from schemas.wording import plainly

Reply = TypeVar("Reply", bound=BaseModel)
ANSWER_S = 120.0
"""What an answer may take longer than a search: a generator writes, and every sentence is checked."""


class SearchFields(TypedDict, total=False):
    """The fields of ``schemas.api.SearchRequest`` besides the query."""

    k: int
    mode: Mode
    duplicates: Literal["fold", "keep"]
    filters: SearchFilters | Mapping[str, Any]
    rerank: RerankMode | None
    rerank_candidates: int | None
    diversity: float | None
    per_document: int | None
    sort: Sort
    cursor: str | None
    snippets: bool
    evidence: EvidenceMode
    token_budget: int | None
    expand: Expansion
    explain: bool
    after: str | None
    wait_ms: int
    cache: bool


class AnswerFields(TypedDict, total=False):
    """The fields of ``schemas.api_answer.AnswerRequest`` besides the question."""

    history: Sequence[Turn | Mapping[str, str]]
    style: Style
    unsupported: Unsupported | None
    context: int | None
    token_budget: int | None
    evidence: Literal["sections", "all"]
    max_tokens: int | None
    max_staleness_s: float | None
    mode: Mode
    filters: SearchFilters | Mapping[str, Any]
    rerank: RerankMode | None
    expand: Expansion
    after: str | None
    wait_ms: int
    language: str | None
    cache: bool
    explain: bool


@dataclass(frozen=True)
class Call(Generic[Reply]):
    """One request. ``extra_s`` is how much longer than usual the service may take, because it was asked to wait."""

    method: str
    path: str
    reply: type[Reply]
    params: Mapping[str, int | str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    extra_s: float = 0.0


def search(query: str, fields: SearchFields) -> Call[SearchResponse]:
    """``POST /v1/search``. Raises InvalidRequest, with the fields' names, before anything is sent."""
    request = _checked(SearchRequest, {"query": query, **fields})
    body = request.model_dump(mode="json", exclude_unset=True)
    return Call("POST", "/v1/search", SearchResponse, body=body, extra_s=request.wait_ms / 1000)


def answer(question: str, fields: AnswerFields, *, stream: bool = False) -> Call[AnswerResponse]:
    """``POST /v1/answer``. Raises InvalidRequest, with the fields' names, before anything is sent."""
    request = _checked(AnswerRequest, {"question": question, **fields, **({"stream": True} if stream else {})})
    body = request.model_dump(mode="json", exclude_unset=True)
    return Call("POST", "/v1/answer", AnswerResponse, body=body, extra_s=ANSWER_S + request.wait_ms / 1000)


def feedback(
    query_id: str, verdict: Verdict, chunk_id: str | None, document_uid: str | None, comment: str | None
) -> Call[FeedbackResponse]:
    """``POST /v1/feedback``; a later verdict on the same target replaces it. Raises InvalidRequest."""
    given = {
        "query_id": query_id, "verdict": verdict, "chunk_id": chunk_id, "document_uid": document_uid,
        "comment": comment,
    }  # fmt: skip
    body = _checked(FeedbackRequest, given).model_dump(mode="json", exclude_none=True)
    return Call("POST", "/v1/feedback", FeedbackResponse, body=body)


def _checked(model: type[Reply], given: Mapping[str, Any]) -> Reply:
    """What was given, as a request. Raises InvalidRequest with the fields' names and without their values."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = tuple(
            FieldProblem(
                field=".".join(map(str, item["loc"])) or "request",
                problem=plainly(item),
            )
            for item in error.errors(include_url=False, include_input=False, include_context=False)
        )
    raise InvalidRequest("Correct the named fields.", fields=problems)  # outside, so that it carries no input along


def document(uid: str, offset: int, limit: int) -> Call[DocumentResponse]:
    """``GET /v1/documents/UID``."""
    return Call("GET", f"/v1/documents/{_part(uid)}", DocumentResponse, {"offset": offset, "limit": limit})


def neighbours(uid: str, chunk_id: str, before: int, after: int) -> Call[NeighboursResponse]:
    """``GET /v1/documents/UID/chunks/ID/neighbours``."""
    path = f"/v1/documents/{_part(uid)}/chunks/{_part(chunk_id)}/neighbours"
    return Call("GET", path, NeighboursResponse, {"before": before, "after": after})


def trace(uid: str) -> Call[TraceResponse]:
    """``GET /v1/documents/UID/trace``."""
    return Call("GET", f"/v1/documents/{_part(uid)}/trace", TraceResponse)


def freshness(window_s: int) -> Call[FreshnessResponse]:
    """``GET /v1/freshness``."""
    return Call("GET", "/v1/freshness", FreshnessResponse, {"window_s": window_s})


def _part(value: str) -> str:
    """One part of a path; a dot segment would climb out of it."""
    if not value or value in (".", ".."):
        raise InvalidRequest("An id is empty or not an id.")
    return quote(value, safe="")


class Paging:
    """The pages of one search: ``next`` is the call for the page that follows, None after the last."""

    def __init__(self, query: str, fields: SearchFields) -> None:
        self._query, self._fields = query, fields
        self._next: Call[SearchResponse] | None = search(query, fields)

    def next(self) -> Call[SearchResponse] | None:
        """The next call."""
        return self._next

    def take(self, page: SearchResponse) -> SearchResponse:
        """Note where the page ends."""
        following = page.next_cursor
        again = following is not None and following == self._fields.get("cursor")
        if following is None or again:  # a cursor that leads to itself would never end
            self._next = None
        else:
            self._fields = {**self._fields, "cursor": following}
            self._next = search(self._query, self._fields)
        return page


class Sections:
    """The pages of a document's sections, as ``Paging`` has them of a search."""

    def __init__(self, uid: str, limit: int) -> None:
        self._uid, self._limit = uid, limit
        self._next: Call[DocumentResponse] | None = document(uid, 0, limit)

    def next(self) -> Call[DocumentResponse] | None:
        """The next call."""
        return self._next

    def take(self, page: DocumentResponse) -> DocumentResponse:
        """Note where the page ends."""
        after = page.next_offset
        self._next = None if after is None or after <= page.offset else document(self._uid, after, self._limit)
        return page


class Waiting:
    """Asks for the state of one write until it is in the answers or the time is over.

    The search is one that looks for nothing: only ``fresh`` is read of its reply.
    """

    def __init__(self, token: str, timeout_s: float) -> None:
        self._token = token
        self._until = time.monotonic() + timeout_s
        self._asked = False
        self.fresh = False

    def next(self) -> Call[SearchResponse] | None:
        """The next call; None when it is known. Asks at least once."""
        left_ms = int((self._until - time.monotonic()) * 1000)
        if self.fresh or (self._asked and left_ms <= 0):
            return None
        self._asked = True
        return search(
            "*",
            {
                "k": 1, "mode": "sparse", "rerank": "off", "snippets": False, "after": self._token,
                "wait_ms": max(0, min(left_ms, MAX_WAIT_MS)),
            },
        )  # fmt: skip

    def take(self, page: SearchResponse) -> None:
        """Note what the reply says."""
        self.fresh = page.fresh is True
