"""One query on its way into the log: what is noted while it runs, and what became of it."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field

from pydantic import JsonValue

from pipeline.errors import EncoderUnavailable, Retry
from query_service.generate.interface import Usage
from query_service.limits import Limited
from query_service.retrieve import Outcome
from query_service.scope import FieldError, Scope
from query_service.state import NotReady
from schemas.access import Closure
from schemas.api import SearchHit, SearchRequest, SearchResponse
from schemas.api_answer import AnswerRequest, AnswerResponse
from schemas.api_ranking import RerankReport
from schemas.querylog import MAX_LOGGED, Kind, LoggedCounts, LoggedHit, QueryOutcome

CLIENT_LEFT = 499
_NAMES = ("kinds", "content_types", "languages", "products")  # filters that hold words of the caller


@dataclass(eq=False)
class Entry:
    """Filled by whoever knows; read once, at the end. Holds no text of a passage."""

    kind: Kind
    scope: Scope
    at: int
    operator: Scope | None = None
    document_uid: str | None = None
    query_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    begun: float = field(default_factory=time.perf_counter)
    text: str | None = None
    request: dict[str, JsonValue] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    closure: Closure | None = None
    counts: LoggedCounts = field(default_factory=LoggedCounts)
    hits: tuple[LoggedHit, ...] = ()
    evidence: tuple[str, ...] = ()
    generation: str | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    cost: float = 0.0
    cached: str = "none"
    withheld: int = 0
    cited: int = 0
    estimated: bool = False  # of the tokens that generators read and wrote: a server did not say
    support: float | None = None
    fallback: str | None = None
    rerank: RerankReport | None = None
    steps: dict[str, int] = field(default_factory=dict)
    starved: bool = False
    fresh: bool | None = None
    refills: int = 0
    repaired: int = 0
    suggestion: str | None = None
    outcome: QueryOutcome = "answered"
    status: int = 200
    refusal: str | None = None
    total_ms: float = 0.0

    def asked(self, request: SearchRequest) -> None:
        """The request, before anything is done with it."""
        self.text = request.query
        self.request = _parameters(request)
        self.words = {n: v for n in _NAMES if (v := getattr(request.filters, n)) is not None}

    def found(self, closure: Closure, outcome: Outcome) -> None:
        """By whom and what retrieval brought: counts alone."""
        self.closure = closure
        self.counts = self.counts.model_copy(update={"found": dict(outcome.raw), "refused": dict(outcome.refused)})
        self.refills, self.repaired = outcome.refills, outcome.repaired

    def answered(self, response: SearchResponse) -> None:
        """The reply: ids, scores and counts of it."""
        self.query_id = response.query_id
        self.searched(response)

    def searched(self, response: SearchResponse) -> None:
        """What a search brought, for itself or for an answer."""
        self.generation = response.generation
        if response.cached:
            self.cached = "exact"
        self.hits = tuple(_hit(hit) for hit in response.hits[:MAX_LOGGED])
        self.counts = self.counts.model_copy(update={**response.counts.model_dump(), "shown": len(response.hits)})
        if response.evidence is not None:
            passages = response.evidence.passages[:MAX_LOGGED]
            self.evidence = tuple(dict.fromkeys(p.document_uid for p in passages))
            self.tokens["evidence"] = response.evidence.tokens
        for step in response.steps if not self.steps else ():
            self.steps[step.kind] = self.steps.get(step.kind, 0) + 1
            if step.tokens:
                self.tokens["expansion"] = self.tokens.get("expansion", 0) + step.tokens
        self.timings_ms = dict(response.timings_ms)
        self.rerank, self.starved, self.fresh = response.rerank, response.starved, response.fresh
        self.suggestion = response.suggestion.kind if response.suggestion is not None else None

    def inquired(self, request: AnswerRequest) -> None:
        """The question, before anything is done with it."""
        self.text = request.question
        filters = request.filters.model_dump(mode="json", exclude_none=True)
        left_out = {"question", "history", "filters", "after"}
        self.request = {
            **request.model_dump(mode="json", exclude=left_out, exclude_none=True),
            "filters": {name: len(value) if name in _NAMES else value for name, value in filters.items()},
            "history": len(request.history),
            "after": request.after is not None,
        }
        self.words = {n: v for n in _NAMES if (v := getattr(request.filters, n)) is not None}

    def replied(self, response: AnswerResponse) -> None:
        """The answer: what it rests on, how well, or why there is none. None of its words."""
        self.query_id = response.query_id
        self.generation = response.generation
        self.support, self.fallback = response.support, response.fallback
        told = {f"answer_{stage}": ms for stage, ms in response.timings_ms.items()}
        self.timings_ms = {**self.timings_ms, **told}  # beside the stages of its search
        self.cached = response.cached
        if response.cached != "none":
            self.evidence = tuple(dict.fromkeys(c.document_uid for c in response.citations))
        self.counts = self.counts.model_copy(update={"shown": len(response.sentences)})
        self.withheld, self.cited = response.withheld, len(response.citations)
        if response.refusal is not None:
            self.refusal = response.refusal.reason

    def expanded(self, kinds: dict[str, int], tokens: int) -> None:
        """Steps of the expansion by kind, and the tokens that its generator used; also where the reply shows none."""
        self.steps = dict(kinds)
        if tokens:
            self.tokens["expansion"] = tokens

    def paid(self, usage: Usage) -> None:
        """What a call of a generator read, wrote and cost, whatever it was for."""
        self.tokens["read"] = self.tokens.get("read", 0) + usage.prompt_tokens
        self.tokens["written"] = self.tokens.get("written", 0) + usage.completion_tokens
        self.cost += usage.cost
        self.estimated = self.estimated or usage.estimated

    def failed(self, error: BaseException) -> None:
        """What it ended with instead of a reply. Nothing of the error's text is kept."""
        self.outcome, self.status, self.refusal = _verdict(error)

    def ended(self) -> None:
        """Take the time."""
        self.total_ms = round((time.perf_counter() - self.begun) * 1000, 3)


def _hit(hit: SearchHit) -> LoggedHit:
    scores = hit.scores
    return LoggedHit.model_construct(  # all of it was checked in the reply; this is on the path of a search
        chunk_id=hit.chunk_id, document_uid=hit.document_uid, dense_distance=scores.dense_distance,
        dense_rank=scores.dense_rank, sparse_score=scores.sparse_score, sparse_rank=scores.sparse_rank,
        fused=scores.fused, rerank=scores.rerank, final=scores.final, exact=scores.exact,
    )  # fmt: skip


CURRENT: ContextVar[Entry | None] = ContextVar("query log entry", default=None)


def current() -> Entry | None:
    """The query that runs in this context."""
    return CURRENT.get()


def _verdict(error: BaseException) -> tuple[QueryOutcome, int, str]:
    from query_service.documents import NotFound
    from query_service.service import DeadlineExceeded  # it imports this module

    if isinstance(error, asyncio.CancelledError):
        return "cancelled", CLIENT_LEFT, "caller_left"
    if isinstance(error, NotFound):
        return "refused", 404, "not_found"
    if isinstance(error, FieldError):
        return "refused", 422, f"field:{error.field}"
    if isinstance(error, NotReady):
        return "refused", 503, "not_ready"
    if isinstance(error, DeadlineExceeded):
        return "late", 503, "deadline"
    if isinstance(error, Limited):
        return "refused", 429, "busy"
    if isinstance(error, EncoderUnavailable):
        return "failed", 503, "encoder"
    if isinstance(error, Retry):
        return "failed", 503, "index"
    return "failed", 500, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def _parameters(request: SearchRequest) -> dict[str, JsonValue]:
    """What was asked for, without the caller's words: of those only how many there were."""
    left_out = {"query", "filters", "after", "cursor"}
    found = request.model_dump(mode="json", exclude=left_out, exclude_none=True)
    filters = request.filters.model_dump(mode="json", exclude_none=True)
    shown = {name: len(value) if name in _NAMES else value for name, value in filters.items()}
    return {**found, "filters": shown, "after": request.after is not None, "cursor": request.cursor is not None}
