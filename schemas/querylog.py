"""The topic ``queries``: one record a query, feedback to it, and what was asked to be forgotten.

Records hold ids, counts, times and parameters; of texts at most the query's own words, as ``querylog.text`` allows.
All records of a tenant share a key and so a partition: a purge stands behind what it concerns.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints, TypeAdapter

from schemas.api_ranking import RerankReport
from schemas.base import Micros, OpenModel
from schemas.keys import TenantName

Kind = Literal["search", "document", "trace", "answer", "seen_as", "why", "who"]
QueryOutcome = Literal["answered", "refused", "failed", "late", "cancelled"]
Verdict = Literal["helpful", "not_helpful", "wrong", "outdated", "forbidden"]
TextMode = Literal["none", "redacted", "full"]
MAX_COMMENT = 2000
NO_PERSON = "0" * 32  # the reference of who acts with a command and not with a token
MAX_LOGGED = 1000  # hits and other passages named by one record

Reference = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{32}$"),
    Field(description="A person, as a keyed hash that only the evaluation role can resolve."),
]


class LoggedHit(OpenModel):
    """A passage that was shown, by its ids, and how it was ranked."""

    chunk_id: str
    document_uid: str
    dense_distance: float | None = None
    dense_rank: int | None = None
    sparse_score: float | None = None
    sparse_rank: int | None = None
    fused: float | None = None
    rerank: float | None = None
    final: float | None = None
    exact: bool = False


class LoggedCounts(OpenModel):
    """Candidates by stage. ``found`` and ``refused`` (by reason) count before and at admission."""

    found: dict[str, int] = Field(default_factory=dict)
    refused: dict[str, int] = Field(default_factory=dict)
    dense: int = 0
    sparse: int = 0
    exact: int = 0
    admitted: int = 0
    fused: int = 0
    reranked: int = 0
    shown: int = Field(default=0, description="Hits, or sentences of an answer.")


class QueryFacts(OpenModel):
    """What is kept of a query, apart from who asked."""

    query_id: str
    at: Micros
    tenant: TenantName
    kind: Kind
    outcome: QueryOutcome
    status: int = Field(ge=100, le=599, description="HTTP status; 499 where the caller left.")
    refusal: str | None = Field(default=None, description="Why there was no answer: a fixed word, never a text.")
    scope_key: str = Field(default="", description="Which key made the references: they change with it.")
    operator: Reference | None = Field(default=None, description="Who looked as or at the person of 'scope'.")
    principals: int = 0
    principals_hash: str | None = Field(default=None, description="Keyed; equal for equal sets of principals.")
    generation: str | None = None
    document_uid: str | None = None
    request: dict[str, JsonValue] = Field(default_factory=dict, description="Parameters, without texts.")
    text: str | None = None
    text_mode: TextMode = "none"
    counts: LoggedCounts = LoggedCounts()
    hits: tuple[LoggedHit, ...] = ()
    evidence: tuple[str, ...] = Field(default=(), description="Uids of documents handed over as evidence.")
    timings_ms: dict[str, float] = Field(default_factory=dict)
    total_ms: float = 0.0
    tokens: dict[str, int] = Field(default_factory=dict, description="By use: evidence, expansion, prompt, …")
    withheld: int = Field(default=0, description="Sentences of an answer that were written and not released.")
    cited: int = Field(default=0, description="Passages that an answer cites.")
    cost: float = Field(default=0.0, ge=0, description="Of generators, in the configured currency.")
    cached: str = Field(default="none", description="Whether the answer was kept from before: exact, semantic.")
    support: float | None = Field(default=None, description="Support score of an answer, 0 to 1.")
    fallback: str | None = Field(default=None, description="Why an answer is not a generator's: a fixed phrase.")
    rerank: RerankReport | None = None
    steps: dict[str, int] = Field(default_factory=dict, description="Steps of the expansion by kind.")
    starved: bool = False
    fresh: bool | None = None
    refills: int = 0
    repaired: int = 0
    suggestion: str | None = Field(default=None, description="Kind of the suggestion, where nothing was found.")


class QueryRecord(QueryFacts):
    """One query: search, document, trace, answer, or an operator's look as or at another person."""

    schema_version: Literal[1] = 1
    type: Literal["query"] = "query"
    scope: Reference


class FeedbackRecord(OpenModel):
    """What a person said of an answer, or of one passage or document of it. The last word on a target counts."""

    schema_version: Literal[1] = 1
    type: Literal["feedback"] = "feedback"
    query_id: str
    at: Micros
    tenant: TenantName
    scope: Reference
    chunk_id: str | None = None
    document_uid: str | None = None
    verdict: Verdict
    comment: str | None = Field(default=None, max_length=4 * MAX_COMMENT)
    text_mode: TextMode = "none"

    @property
    def target(self) -> str:
        """Passage, document, or '' for the answer as a whole."""
        return self.chunk_id or self.document_uid or ""


class PurgeRecord(OpenModel):
    """Every view forgets the tenant's records from before a moment: of one person, or all."""

    schema_version: Literal[1] = 1
    type: Literal["purge"] = "purge"
    at: Micros
    tenant: TenantName
    before: Micros
    scope: Reference | None = None
    by: Reference


LogRecord = Annotated[QueryRecord | FeedbackRecord | PurgeRecord, Field(discriminator="type")]
LOG_RECORD: TypeAdapter[QueryRecord | FeedbackRecord | PurgeRecord] = TypeAdapter(LogRecord)
