"""Contracts of the query log's routes: what is read of it, feedback, and forgetting."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from schemas.access import Principal
from schemas.base import ClosedModel, Micros
from schemas.keys import TenantName
from schemas.querylog import MAX_COMMENT, FeedbackRecord, QueryFacts, Reference, TextMode, Verdict

Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class FeedbackRequest(ClosedModel):
    """What the caller says of an answer of their own, or of one passage or document of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "query_id": "0d5b0f6e-9f0c-4b7a-8c39-1f2a0a3c4d5e",
                    "chunk_id": "9b2f6c1e-3d4a-5e6f-8a7b-0c1d2e3f4a5b",
                    "verdict": "outdated",
                    "comment": "The limit was raised in spring.",
                }
            ]
        }
    )

    query_id: Id = Field(description="Of the answer.")
    chunk_id: Id | None = Field(default=None, description="One of its passages.")
    document_uid: Id | None = Field(default=None, description="One of its documents. Without both: the whole answer.")
    verdict: Verdict = Field(description="'forbidden' means: I should not see this. It alarms the administrators.")
    comment: Annotated[str, StringConstraints(max_length=MAX_COMMENT)] | None = None

    @field_validator("comment")
    @classmethod
    def _unicode(cls, value: str | None) -> str | None:
        try:
            (value or "").encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("must be valid Unicode") from error
        return value if value is not None and value.strip() else None

    @model_validator(mode="after")
    def _one_target(self) -> FeedbackRequest:
        if self.chunk_id is not None and self.document_uid is not None:
            raise ValueError("name 'chunk_id' or 'document_uid', not both")
        return self


class FeedbackResponse(ClosedModel):
    """What was stored. A later verdict on the same target replaces it."""

    query_id: str
    chunk_id: str | None
    document_uid: str | None
    verdict: Verdict
    comment_kept: TextMode = Field(description="'redacted': without mail addresses, numbers and secrets.")
    at: Micros


class LoggedFeedback(ClosedModel):
    """Feedback to a query, as the log shows it."""

    verdict: Verdict
    chunk_id: str | None
    document_uid: str | None
    comment: str | None
    at: Micros

    @staticmethod
    def of(record: FeedbackRecord) -> LoggedFeedback:
        """The shown part of a record."""
        return LoggedFeedback(
            verdict=record.verdict, chunk_id=record.chunk_id, document_uid=record.document_uid, comment=record.comment,
            at=record.at,
        )  # fmt: skip


class LoggedQuery(QueryFacts):
    """One query of the log. ``scope`` is null where the reader's role may not learn at whom an operator looked."""

    scope: Reference | None = None
    feedback: tuple[LoggedFeedback, ...] = ()


class QueriesResponse(ClosedModel):
    """Queries of the tenant, newest first."""

    queries: tuple[LoggedQuery, ...]
    next_cursor: str | None = Field(description="For the next page; null at the end.")
    complete_until: Micros | None = Field(description="Everything logged before this moment (µs) is in the view.")


class WhoResponse(ClosedModel):
    """The person behind a reference."""

    scope: Reference
    user: Principal | None = Field(description="Null where no known person of the tenant has it.")


class PurgeRequest(ClosedModel):
    """Which records of the tenant are to be forgotten."""

    before: Micros = Field(description="Records from before this moment.")
    user: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = Field(
        default=None, description="Of this person only: ann, as in user:ann."
    )


class PurgeResponse(ClosedModel):
    """What happened, and until when copies remain elsewhere."""

    tenant: TenantName
    before: Micros
    scope: Reference | None = Field(description="Reference of the person, where one was named.")
    here: int = Field(ge=0, description="Records that the view of the answering service held and has dropped.")
    views: Literal["dropped as they read the log"] = "dropped as they read the log"
    log_until: Micros = Field(description="Kafka cannot delete single records: the last leaves the topic by then.")
