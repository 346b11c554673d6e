"""Contracts of the query API. Times are integer microseconds since the epoch (UTC), timings are milliseconds."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from schemas import api_examples as examples
from schemas.api_moments import Moment
from schemas.api_ranking import (
    Cursor,
    Evidence,
    EvidenceMode,
    Expansion,
    RerankMode,
    RerankReport,
    Snippet,
    Sort,
    Step,
    Suggestion,
)
from schemas.base import ClosedModel, Micros, Version
from schemas.documents import Tier
from schemas.keys import SourceName

Mode = Literal["hybrid", "dense", "sparse"]
Names = Annotated[tuple[Annotated[str, StringConstraints(min_length=1, max_length=256)], ...], Field(max_length=100)]
Sources = Annotated[tuple[SourceName, ...], Field(max_length=100)]
MAX_QUERY = 4096
MAX_WAIT_MS = 30_000


class SearchFilters(ClosedModel):
    """What a search is narrowed to. A filter can only take away from what the token allows."""

    sources: Sources | None = Field(default=None, description="Source instances, any of.")
    kinds: Names | None = Field(default=None, description="Kinds of document (page, issue, …), any of.")
    content_types: Names | None = Field(
        default=None, description="Media types that documents were read as, without parameters, any of."
    )
    languages: Names | None = Field(default=None, description="Language tags as the source gives them, any of.")
    products: Names | None = Field(default=None, description="Products, any of, within those of the token.")
    updated_after: Moment | None = Field(
        default=None, description="Last update at the source, inclusive: microseconds since 1970 or ISO 8601."
    )
    updated_before: Moment | None = Field(default=None, description="Last update at the source, exclusive.")
    as_of: Moment | None = Field(default=None, description="Only documents in effect at this moment; absent means any.")

    @field_validator("sources", "kinds", "content_types", "languages", "products")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not value:
            raise ValueError("name at least one value or leave the filter out")
        return value

    @model_validator(mode="after")
    def _interval(self) -> SearchFilters:
        after, before = self.updated_after, self.updated_before
        if after is not None and before is not None and before <= after:
            raise ValueError("updated_before must be later than updated_after")
        return self


def asked(text: str, blank: str) -> str:
    """What somebody asks: valid Unicode in which something can be seen. Raises ValueError, ``blank`` where nothing."""
    if all(unicodedata.category(char)[0] in "CZ" for char in text):  # spaces, and what nobody sees
        raise ValueError(blank)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("must be valid Unicode") from error
    return text


def waiting(wait_ms: int, after: str | None) -> None:
    """Whether it is said what to wait for. Raises ValueError."""
    if wait_ms and after is None:
        raise ValueError("wait_ms needs 'after': the freshness token of the write to wait for")


class SearchRequest(ClosedModel):
    """A search. Who asks comes from the token alone; nothing in here can widen it."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.SEARCH_REQUEST]})

    query: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY)]
    k: int = Field(default=10, ge=1, le=100, description="Hits wanted.")
    mode: Mode = "hybrid"
    duplicates: Literal["fold", "keep"] = Field(
        default="fold", description="Copies of a passage stand under the best of them (also), or each as its own hit."
    )
    filters: SearchFilters = SearchFilters()
    rerank: RerankMode | None = Field(
        default=None,
        description="'fast' scores as many passages as fit in its budget, 'full' a set number; the service's default "
        "where absent.",
    )
    rerank_candidates: int | None = Field(default=None, ge=1, le=50, description="For 'full': passages to score.")
    diversity: float | None = Field(
        default=None, ge=0, le=1, description="λ of maximal marginal relevance: 1 is relevance alone, 0 novelty alone."
    )
    per_document: int | None = Field(default=None, ge=1, le=100, description="Hits of one document at most.")
    sort: Sort = Field(default="relevance", description="By date: the best candidates, ordered by last update.")
    cursor: Cursor | None = Field(default=None, description="'next_cursor' of the page before, with the same request.")
    snippets: bool = Field(default=True, description="Hits carry a snippet with highlights.")
    evidence: EvidenceMode = Field(
        default="none",
        description="'sections': the hits' sections under a token budget, to hand to a generator. 'all': everything "
        "that the caller may read within the filters, where that fits.",
    )
    token_budget: int | None = Field(default=None, ge=64, le=1_000_000, description="Of the evidence.")
    expand: Expansion = Field(
        default="none", description="Further queries, thought of by rules (decompose) or by a generator (the others)."
    )
    explain: bool = Field(default=False, description="The reply shows each step of the expansion.")
    cache: bool = Field(
        default=True,
        description="A reply that was given before may be given again, checked as any reply is. False for whoever "
        "measures searches.",
    )
    after: str | None = Field(
        default=None,
        min_length=1,
        max_length=16_384,
        description="Freshness token of a write: the reply says whether it already holds that write.",
    )
    wait_ms: int = Field(
        default=0, ge=0, le=MAX_WAIT_MS, description="How long to wait for the write named by 'after'."
    )

    @field_validator("query")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        return asked(value, "must hold something to search for")

    @model_validator(mode="after")
    def _wait_needs_token(self) -> SearchRequest:
        waiting(self.wait_ms, self.after)
        return self


class AccessSummary(ClosedModel):
    """The policy under which a reader sees the document: one list of principals a clause, all must be met.

    Names of denied principals are not shown, only that there are some.
    """

    clauses: tuple[tuple[str, ...], ...]
    has_deny: bool
    version: Version
    named: bool = Field(default=True, description="False: names are for operators only; the clauses are empty.")


class Scores(ClosedModel):
    """How a hit was ranked. Ranks are one-based among what the caller may read; absent where a leg lacks it."""

    dense_distance: float | None = Field(default=None, description="Cosine distance, 0 is equal.")
    dense_rank: int | None = Field(default=None, ge=1)
    sparse_score: float | None = Field(default=None, description="BM25 from statistics over both tiers.")
    sparse_rank: int | None = Field(default=None, ge=1)
    fused: float
    rerank: float | None = Field(default=None, description="The reranker's own score; absent where it saw none.")
    final: float | None = Field(default=None, description="What the order follows, between 0 and 1.")
    exact: bool = Field(default=False, description="Holds every identifier of the query; these come first.")


class DocumentFacts(ClosedModel):
    """What every hit and every document says of its document."""

    document_uid: str
    document_id: str
    source: str
    kind: str
    tenant: str
    title: str
    url: str | None
    path: str | None = None
    version: Version
    content_type: str
    language: str | None
    product: str | None = None
    effective_from: Micros | None = Field(description="Inclusive; null is an open beginning.")
    effective_until: Micros | None = Field(description="Exclusive; null is an open end.")
    in_effect: bool = Field(
        default=True, description="At the moment the search asks for (as_of), else now. Older services do not say it."
    )
    updated_at: Micros | None = Field(description="Last update at the source.")
    warnings: tuple[str, ...] = Field(
        default=(), description="What extraction doubts of the document: a guessed charset, poorly read scans."
    )
    tier: Tier
    deleted: bool = Field(default=False, description="Deleted documents are never served, so always false.")
    access: AccessSummary
    age_s: float = Field(ge=0, description="Seconds since the last update at the source, else since it was observed.")


class AlsoIn(ClosedModel):
    """Another document that the caller may read and that holds the same passage, or nearly."""

    document_uid: str
    document_id: str
    source: str
    kind: str
    title: str
    url: str | None
    path: str | None = None
    chunk_id: str


class SearchHit(DocumentFacts):
    """One passage that the caller may read now."""

    section_id: str
    chunk_id: str
    chunk_index: int = Field(ge=0, description="Zero-based place among the document's chunks.")
    chunk_total: int = Field(ge=1)
    heading_path: tuple[str, ...]
    text: str
    page: int | None = Field(default=None, description="Page or slide on which it begins.")
    start: int | None = Field(
        default=None,
        description="Offset of the passage's own text in the source, in Unicode code points: decode the source, drop a "
        "byte order mark, make line ends LF (CRLF and CR), count from 0. Overlap, a repeated table header and headings "
        "that open text are not in the range. Null where unknown.",
    )
    end: int | None = Field(default=None, description="End of its own text, exclusive, counted as start is.")
    summary: bool = Field(default=False, description="The passage sums its document up.")
    also: tuple[AlsoIn, ...] = ()
    snippet: Snippet | None = None
    scores: Scores


class SearchCounts(ClosedModel):
    """Candidates after admission: what the caller may not read is not counted here."""

    dense: int = Field(ge=0)
    sparse: int = Field(ge=0)
    exact: int = Field(ge=0)
    admitted: int = Field(ge=0)
    fused: int = Field(default=0, ge=0, description="Different passages that were ranked.")
    reranked: int = Field(default=0, ge=0)


class SearchResponse(ClosedModel):
    """Hits, best first, and how complete they are."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.SEARCH_RESPONSE]})

    query_id: str
    generation: str | None = Field(description="The one index generation that answered; null with nothing to search.")
    hits: tuple[SearchHit, ...]
    complete_until: dict[str, Micros | None] = Field(
        description="Per source: everything seen there before this moment is in the answer; null where unknown."
    )
    fresh: bool | None = Field(description="Whether the write named by 'after' is in the answer; null without 'after'.")
    counts: SearchCounts
    starved: bool = Field(description="More may exist than could be looked through in time.")
    weak: bool = Field(
        default=False,
        description="Nothing fits the query well: no answer should rest on these hits alone. Judged on the first page, "
        "by what the caller may read alone.",
    )
    cached: bool = Field(default=False, description="It was given before, and nothing it rests on changed since.")
    rerank: RerankReport | None = None
    suggestion: Suggestion | None = None
    next_cursor: Cursor | None = Field(default=None, description="For the next page; null at the end.")
    evidence: Evidence | None = None
    steps: tuple[Step, ...] = ()
    judged_at: Micros = Field(
        description="The last check of permissions began then: nothing revoked before that moment is in the answer."
    )
    timings_ms: dict[str, float]


class SectionView(ClosedModel):
    """One section of a document."""

    section_id: str
    ordinal: int
    heading_path: tuple[str, ...]
    text: str
    page: int | None = None


class DocumentResponse(DocumentFacts):
    """A document's sections in order, from ``offset``."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.DOCUMENT_RESPONSE]})

    generation: str
    chunk_total: int
    sections_total: int
    offset: int
    next_offset: int | None = Field(description="Where the next page starts; null at the end.")
    sections: tuple[SectionView, ...]
    complete_until: Micros | None


class Percentiles(ClosedModel):
    """Milliseconds over the window; null without a measurement."""

    count: int = Field(ge=0)
    p50: float | None
    p95: float | None
    p99: float | None


class SourceFreshness(ClosedModel):
    """How fresh one source is. ``lag_ms`` by stage: ``total`` is observed to visible, ``source`` edit to visible."""

    complete_until: Micros | None
    complete_age_s: float | None
    pending: int = Field(ge=0, description="Documents observed but not yet visible.")
    failed: int = Field(ge=0, description="Documents of the window that ended as dead letters or without a body.")
    lag_ms: dict[str, Percentiles]
    revocation_ms: Percentiles = Field(description="Live access and membership events: appended to applied.")


class FreshnessResponse(ClosedModel):
    """Freshness of the tenant's sources in the active generation."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.FRESHNESS_RESPONSE]})

    tenant: str
    generation: str | None
    window_s: int
    now: Micros
    sources: dict[str, SourceFreshness]


class TraceStep(ClosedModel):
    """What became of one event of a document in one lane and generation."""

    lane: str
    generation: str | None
    event_type: str
    version: Version
    outcome: str
    priority: str
    reason: str | None
    times: dict[str, Micros]
    stages_ms: dict[str, float] = Field(
        default_factory=dict,
        description="Milliseconds from the stage before, by stage; below 0 where the clocks of two machines differ.",
    )
    logged_at: Micros | None = Field(default=None, description="When the log took the receipt.")
    tokens: int = Field(default=0, ge=0, description="Tokens that were embedded.")
    chunks_total: int
    chunks_embedded: int
    chunks_written: int
    chunks_removed: int


class TraceLane(ClosedModel):
    """How far a lane is with what the document's owner last wrote."""

    lane: str
    written: Version
    settled: Version | None = Field(description="Newest version whose end is recorded; null where none is.")
    pending: bool


class TraceGeneration(ClosedModel):
    """Where the document stands in one generation."""

    name: str
    active: bool
    deleted: bool
    content_version: Version
    tier: Tier
    moving_from: Tier | None = Field(description="Tier whose copies are still to be removed.")
    chunk_total: int = Field(ge=0)
    indexed_at: Micros | None
    changed_at: Micros | None = Field(description="When the text last changed, which tiers go by.")


class TraceMove(ClosedModel):
    """A move of the document between the tiers hot and cold."""

    generation: str | None
    at: Micros | None
    chunks: int = Field(ge=0)


class TraceResponse(ClosedModel):
    """The recorded steps of a document, oldest first, and where it stands."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.TRACE_RESPONSE]})

    document_uid: str
    deleted: bool = Field(default=False, description="Only operators are told of deleted documents.")
    steps: tuple[TraceStep, ...]
    lanes: tuple[TraceLane, ...] = Field(default=(), description="Access, and content in the active generation.")
    generations: tuple[TraceGeneration, ...] = Field(
        default=(), description="The active one; for operators each that has the document."
    )
    moves: tuple[TraceMove, ...] = Field(default=(), description="Between the tiers, oldest first.")


class FieldProblem(ClosedModel):
    """One field that could not be used, and why."""

    field: str
    problem: str


class Problem(ClosedModel):
    """RFC 9457 problem details (application/problem+json). It repeats nothing of the request's content."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.PROBLEM]})

    type: str = "about:blank"
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    query_id: str | None = None
    errors: tuple[FieldProblem, ...] = ()


class HealthResponse(ClosedModel):
    """Liveness or readiness, with the reasons against it."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.HEALTH_RESPONSE]})

    ok: bool
    reasons: tuple[str, ...] = ()
