"""Events on the log. Content payloads are open, access and membership payloads are closed (invariant 12)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StringConstraints, TypeAdapter, model_validator

from schemas.access import NOBODY, AccessRule, Ends, Principal, check_ends
from schemas.base import ClosedModel, EventVersion, Micros, OpenModel, Version
from schemas.generation import VerificationSummary
from schemas.keys import DocumentRef, SourceName, TenantName

Priority = Literal["live", "bulk"]
SCHEMA_VERSION = 1
REQUESTS_STREAM = "requests"
"""The stream of a source's cursor that tells which requests are answered: not a look at the source."""


class InlineBody(OpenModel):
    """A body of at most the inline limit, as text or base64."""

    where: Literal["inline"] = "inline"
    text: str | None = None
    base64: str | None = None

    @model_validator(mode="after")
    def _one(self) -> InlineBody:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("an inline body carries either 'text' or 'base64'")
        return self


class ClaimCheck(OpenModel):
    """The address of a larger body, relative to the configured store, with its length in bytes and hash."""

    where: Literal["store"] = "store"
    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


Body = Annotated[InlineBody | ClaimCheck, Field(discriminator="where")]


class SourceFacts(OpenModel):
    """What the source says of itself: attributes, never the fence."""

    revision: str | None = None
    updated_at: Micros | None = None
    content_hash: str | None = None


class ContentUpserted(OpenModel):
    """The whole state of a document's content as read by the owner at ``version``."""

    schema_version: Literal[1] = 1
    type: Literal["upserted"] = "upserted"
    document: DocumentRef
    version: EventVersion
    access_version: Version
    title: str = Field(max_length=8192)
    url: str | None = Field(default=None, max_length=8192)
    path: str | None = Field(default=None, max_length=8192)
    content_type: str = Field(default="text/plain", max_length=255, description="Media type, with charset if declared.")
    language: str | None = Field(default=None, max_length=35)
    product: str | None = Field(default=None, max_length=255)
    effective_from: Micros | None = None
    effective_until: Micros | None = None
    body: Body
    source_facts: SourceFacts = SourceFacts()
    observed_at: Micros
    priority: Priority = "live"

    @model_validator(mode="after")
    def _interval(self) -> ContentUpserted:
        start, end = self.effective_from, self.effective_until
        if start is not None and end is not None and end <= start:
            raise ValueError("effective_until must be later than effective_from")
        return self


class ContentDeleted(OpenModel):
    """The document is gone at its source."""

    schema_version: Literal[1] = 1
    type: Literal["deleted"] = "deleted"
    document: DocumentRef
    version: EventVersion
    access_version: Version
    observed_at: Micros
    reason: str | None = None
    source_facts: SourceFacts = SourceFacts()
    priority: Priority = "live"


ContentEvent = Annotated[ContentUpserted | ContentDeleted, Field(discriminator="type")]
CONTENT_EVENT: TypeAdapter[ContentUpserted | ContentDeleted] = TypeAdapter(ContentEvent)


class AccessSet(ClosedModel):
    """Who may read the document now, read together with content ``content_version``."""

    schema_version: Literal[1] = 1
    type: Literal["rule"] = "rule"
    document: DocumentRef
    version: EventVersion
    content_version: Version = Field(description="Content that the rule was read with; 0 before the first content.")
    not_before: Version = Field(default=0, description="Content older than this is never admitted.")
    rule: AccessRule
    observed_at: Micros
    source_updated_at: Micros | None = None
    priority: Priority = "live"


class AccessTombstone(ClosedModel):
    """The document is deleted: hidden at once, and content older than ``not_before`` never returns."""

    schema_version: Literal[1] = 1
    type: Literal["tombstone"] = "tombstone"
    document: DocumentRef
    version: EventVersion
    not_before: Version
    observed_at: Micros
    reason: str | None = None
    source_updated_at: Micros | None = None
    priority: Priority = "live"


class HoldChanged(ClosedModel):
    """A hold is laid on or lifted; it lives under its own key and its own lane field."""

    schema_version: Literal[1] = 1
    type: Literal["hold"] = "hold"
    document: DocumentRef
    hold: Literal["quarantine", "legal", "administrator"]
    active: StrictBool
    version: EventVersion
    observed_at: Micros
    reason: str | None = None


AccessEvent = Annotated[AccessSet | AccessTombstone | HoldChanged, Field(discriminator="type")]
ACCESS_EVENT: TypeAdapter[AccessSet | AccessTombstone | HoldChanged] = TypeAdapter(AccessEvent)


class MembershipSet(ClosedModel):
    """The direct parents (groups, audiences) of a principal: whole state. ``removed`` ends the principal."""

    schema_version: Literal[1] = 1
    type: Literal["membership"] = "membership"
    tenant: TenantName
    principal: Principal
    parents: tuple[Principal, ...] = ()
    until: Ends = Field(default_factory=dict)
    removed: StrictBool = False
    version: EventVersion
    observed_at: Micros
    source: SourceName | None = None

    @model_validator(mode="after")
    def _sensible(self) -> MembershipSet:
        if self.principal == NOBODY or NOBODY in self.parents:
            raise ValueError("'nobody' is a marker in rules: it has no parents and is nobody's parent")
        if self.removed and self.parents:
            raise ValueError("a removed principal has no parents")
        check_ends(self.parents, self.until)
        return self


class Quarantine(ClosedModel):
    """Why a document is hidden until it is seen again, and by which look. It is kept while an undo overrules it."""

    since: Micros
    by: str = Field(max_length=255, description="The request_id of the listing, or the owner's name of its own walk.")
    absent: StrictBool = Field(default=False, description="A listing lacked it; else it is there but unreadable.")
    overruled: StrictBool = Field(default=False, description="An undo made it visible although it is still so.")


class DocumentState(ClosedModel):
    """What the owner remembers of a document, in ``cursors``: enough to say "nothing changed" after a restart."""

    schema_version: Literal[1] = 1
    type: Literal["document"] = "document"
    document: DocumentRef
    content_version: Version
    access_version: Version
    not_before: Version = 0
    deleted: StrictBool = False
    content_hash: str | None = None
    attributes_hash: str | None = Field(default=None, description="Title, address, dates and the like.")
    access_hash: str | None = None
    rule: AccessRule | None = Field(default=None, description="The last rule: is the next one narrower?")
    holds: tuple[str, ...] = Field(default=(), description="Holds that this owner laid on and has not lifted.")
    quarantine: Quarantine | None = None
    body_path: str | None = Field(default=None, description="Claim check of the newest body.")
    path: str | None = None
    revision: str | None = None


class SourceCursor(ClosedModel):
    """Where the owner stands in one stream of its source, with the last version given out."""

    schema_version: Literal[1] = 1
    type: Literal["cursor"] = "cursor"
    tenant: TenantName
    source: SourceName
    stream: str = "changes"
    position: str = ""
    last_version: Version
    polled_at: Micros = Field(description="When the last complete look at the source began.")
    pending: StrictBool = Field(
        default=False, description="Whether events observed before polled_at are still unwritten."
    )


class SourceRequest(ClosedModel):
    """Asks a source's owner for work; answered with a receipt of lane ``source`` that carries counts.

    ``listing`` compares everything (``repair`` False only counts), ``document`` reads one again, ``backfill`` appends
    again what was updated in a window, changed or not, ``lift_hold`` undoes a hold, ``undo`` lifts every hold that the
    listing with id ``of_request`` laid on, ``notify`` tells that something happened at the source, to ``document`` if
    one is named.
    """

    schema_version: Literal[1] = 1
    type: Literal["listing", "document", "backfill", "lift_hold", "undo", "notify", "pause", "resume", "reset"]
    tenant: TenantName
    source: SourceName
    document: DocumentRef | None = None
    hold: Literal["quarantine", "legal", "administrator"] | None = None
    confirm_deletions: StrictBool = Field(
        default=False, description="Of a listing: delete what is missing even where that is suspiciously much."
    )
    repair: StrictBool = Field(default=True, description="Of a listing: False counts differences and changes nothing.")
    updated_from: Micros | None = Field(default=None, description="Of a backfill: first moment of its window.")
    updated_until: Micros | None = Field(default=None, description="Of a backfill: first moment after its window.")
    of_request: str | None = Field(default=None, max_length=255, description="Of an undo: the listing's request_id.")
    request_id: str
    requested_at: Micros
    requested_by: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> SourceRequest:
        if self.type in ("document", "lift_hold") and self.document is None:
            raise ValueError(f"a '{self.type}' request names its document")
        if (self.type == "undo") != (self.of_request is not None):
            raise ValueError("'of_request' is given with 'undo' and only there")
        if self.type != "backfill" and (self.updated_from, self.updated_until) != (None, None):
            raise ValueError("'updated_from' and 'updated_until' are given with 'backfill' only")
        if (self.type == "lift_hold") != (self.hold is not None):
            raise ValueError("'hold' is given with 'lift_hold' and only there")
        if self.document is not None and (self.document.tenant, self.document.source) != (self.tenant, self.source):
            raise ValueError("the document belongs to another tenant or source than the request")
        return self


ACCESS_ONLY = "-access"
"""``MaintenanceCommand.generation`` of a recheck for the access lane alone; no generation's name has a '-'."""


class MaintenanceCommand(ClosedModel):
    """Asks the index consumer that owns the document for work on it.

    ``reprocess`` reads the content event at the recorded coordinates again, ``recheck`` compares the store with the
    manifest, ``move`` carries the document's chunks to the other tier.
    """

    schema_version: Literal[1] = 1
    type: Literal["reprocess", "recheck", "move"]
    document: DocumentRef
    generation: str | None = Field(default=None, description="None means every generation.")
    offset: int | None = Field(default=None, ge=0, description="Content offset to process again.")
    tier: Literal["hot", "cold"] | None = None
    chunk_ids: tuple[str, ...] = Field(
        default=(), max_length=5000, description="Of a recheck: chunks that stand by a walk; no filter may meet them."
    )
    section_ids: tuple[str, ...] = Field(default=(), max_length=5000, description="The same of sections.")
    requested_at: Micros
    priority: Priority = "bulk"

    @model_validator(mode="after")
    def _complete(self) -> MaintenanceCommand:
        if self.type != "recheck" and (self.chunk_ids or self.section_ids):
            raise ValueError("'chunk_ids' and 'section_ids' are given with 'recheck' and only there")
        if (self.type == "move") != (self.tier is not None):
            raise ValueError("'tier' is given with 'move' and only there")
        if self.type == "reprocess" and self.offset is None:
            raise ValueError("'reprocess' names the offset of the content event")
        return self


class ControlCommand(ClosedModel):
    """Asks the control consumer for a transition of a generation; answered with a receipt.

    ``create`` makes collections and group (state building), ``ready`` says that the build has reached the log's end,
    ``report`` stores a verification, ``activate`` and ``rollback`` switch, ``retire`` stops the group, ``drop`` removes
    a retired generation's collections once the retention time is over.
    """

    schema_version: Literal[1] = 1
    type: Literal["create", "ready", "report", "activate", "rollback", "retire", "drop"]
    generation: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")
    declaration: dict[str, object] | None = None
    report: VerificationSummary | None = None
    expected_active: str | None = Field(
        default=None, description="The active generation that the sender saw: refused where another is active by then."
    )
    override: str | None = Field(
        default=None, max_length=500, description="Reason for going on without a report, or past the retention time."
    )
    request_id: str
    requested_at: Micros
    requested_by: str | None = None
