"""What became of an event, how far a lane is, and what could not be processed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Micros, OpenModel, Version
from schemas.keys import DocumentRef

Lane = Literal["access", "membership", "index", "control", "source"]
Outcome = Literal[
    "indexed", "unchanged", "superseded", "deleted", "refreshed", "moved", "rechecked", "applied", "closed",
    "body_gone", "dead_letter", "parked", "refused", "done",
]  # fmt: skip


class Coordinates(OpenModel):
    """Where a record lies on the log."""

    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)


class StageTimes(OpenModel):
    """When an event passed each stage; None where it did not pass it."""

    source_updated_at: Micros | None = None
    observed_at: Micros | None = None
    appended_at: Micros | None = None
    received_at: Micros | None = None
    started_at: Micros | None = None
    extracted_at: Micros | None = None
    embedded_at: Micros | None = None
    visible_at: Micros | None = None


class Receipt(OpenModel):
    """What became of one event in one generation (or in the access lane)."""

    schema_version: Literal[1] = 1
    lane: Lane
    generation: str | None = None
    tenant: str
    source: str | None = None
    document: DocumentRef | None = None
    document_uid: str | None = None
    principal: str | None = None
    event_type: str
    version: Version
    outcome: Outcome
    priority: Literal["live", "bulk"] = "live"
    times: StageTimes = StageTimes()
    chunks_total: int = 0
    chunks_embedded: int = 0
    chunks_written: int = 0
    chunks_removed: int = 0
    tokens: int = 0
    reason: str | None = None
    request_id: str | None = None
    coordinates: Coordinates | None = None
    details: dict[str, object] | None = Field(
        default=None, description="Of an answered request: counts and other facts, by name."
    )


class Progress(OpenModel):
    """The applied offset of one partition of a lane and generation: everything before ``offset`` is in the store."""

    lane: Lane
    generation: str = ""
    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0, description="Next offset to process.")
    owner: str = ""
    clean: bool = Field(default=False, description="The owner left in order; its lease is void.")
    lease_until: Micros = 0
    written_at: Micros = 0
    end_offset: int = Field(default=0, ge=0, description="End of the partition as last seen by the owner.")


class DeadLetter(OpenModel):
    """Coordinates of what could not be processed: never a body.

    A later record with the same key, lane, generation and coordinates says what became of it: it failed again, or it
    is ``settled``.
    """

    schema_version: Literal[1] = 1
    coordinates: Coordinates
    lane: Lane
    generation: str | None = None
    key: str | None = None
    document: DocumentRef | None = None
    version: Version | None = None
    stage: str
    error_kind: str
    reason: str
    attempts: int = Field(ge=1)
    parked: bool = False
    failed_at: Micros
    settled: Literal["replayed", "discarded"] | None = Field(
        default=None, description="What an operator did with it; it counts no longer."
    )
    settled_at: Micros | None = None
    settled_by: str | None = None
    settled_reason: str | None = None
