"""Contract of the change gateway: ``POST /v1/changes`` with one change or an array of them.

All changes of a request are checked before any is written. Times are integer microseconds since the epoch (UTC).
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, TypeAdapter, model_validator

from schemas.access import AccessRule, Clause, Ends, Grant, Principal, check_ends
from schemas.api import Problem
from schemas.base import ClosedModel, Micros, Version
from schemas.events import Priority
from schemas.keys import DocumentRef, KeyPart, SourceName, TenantName

EARLIEST_END = 10**14
"""Ends of memberships that are earlier were meant in seconds or milliseconds."""
MAX_CHANGES = 1000
"""Changes of one request."""


def _grant(value: object) -> object:
    return {"principal": value} if isinstance(value, str) else value


ReaderInput = Annotated[Grant, BeforeValidator(_grant, json_schema_input_type=Principal | Grant)]
Readers = Annotated[tuple[ReaderInput, ...], Field(min_length=1, max_length=1000)]
_UPSERT: dict[str, JsonValue] = {
    "type": "upsert",
    "tenant": "acme",
    "id": "kb-17",
    "title": "Resetting the probe",
    "text": "# Resetting the probe\n\nHold the button for seven seconds.",
    "content_type": "text/markdown; charset=utf-8",
    "url": "https://kb.example/17",
    "access": {"allow": ["group:gateway/support", "user:ann"]},
}
_DELETE: dict[str, JsonValue] = {"type": "delete", "tenant": "acme", "id": "kb-17"}
_ACCESS: dict[str, JsonValue] = {
    "type": "access",
    "tenant": "acme",
    "id": "kb-17",
    "access": {"allow": ["user:ann"], "deny": ["group:gateway/contractors"]},
}
_MEMBERSHIP: dict[str, JsonValue] = {
    "type": "membership",
    "tenant": "acme",
    "principal": "user:ann",
    "parents": ["group:gateway/support"],
}
EXAMPLES: dict[str, JsonValue] = {
    "upsert": _UPSERT,
    "delete": _DELETE,
    "access": _ACCESS,
    "membership": _MEMBERSHIP,
    "several": [_MEMBERSHIP, _UPSERT],
}


class AccessInput(ClosedModel):
    """Who may read: ``allow`` is one any-of clause, ``all_of`` several that must all hold, ``deny`` overrides both."""

    allow: Readers | None = Field(default=None, description="Any one of these may read.")
    all_of: Annotated[tuple[Readers, ...], Field(min_length=1, max_length=50)] | None = Field(
        default=None, description="A reader satisfies every one of these lists."
    )
    deny: Annotated[tuple[Principal, ...], Field(max_length=1000)] = ()

    @model_validator(mode="after")
    def _some(self) -> AccessInput:
        if self.allow is None and self.all_of is None:
            raise ValueError("needs 'allow' or 'all_of'; name 'nobody' to let nobody read")
        return self

    def rule(self) -> AccessRule:
        """The rule as it is written."""
        lists = ([self.allow] if self.allow else []) + list(self.all_of or ())
        clauses = tuple(Clause(any_of=readers) for readers in lists)
        return AccessRule(clauses=clauses, deny=self.deny)


class _DocumentChange(ClosedModel):
    tenant: TenantName
    source: SourceName | None = Field(default=None, description="Source instance; the gateway's own where absent.")
    kind: KeyPart = "page"
    id: KeyPart = Field(description="Immutable id at the source; titles, paths and addresses are attributes.")

    def ref(self, source: str) -> DocumentRef:
        """The document's key; ``source`` is the gateway's own name."""
        return DocumentRef(tenant=self.tenant, source=self.source or source, kind=self.kind, id=self.id)


class UpsertChange(_DocumentChange):
    """The whole content of a document, new or changed. Without ``access`` its rule stays; a new one has no readers."""

    model_config = ConfigDict(json_schema_extra={"examples": [_UPSERT]})

    type: Literal["upsert"]
    title: str = Field(min_length=1, max_length=8192)
    text: str | None = Field(default=None, description="The body as text; either this or 'base64'.")
    base64: str | None = Field(default=None, description="The body as base64; either this or 'text'.")
    content_type: str = Field(default="text/plain; charset=utf-8", min_length=3, max_length=255)
    url: str | None = Field(default=None, max_length=8192)
    path: str | None = Field(default=None, max_length=8192)
    language: str | None = Field(default=None, max_length=35)
    product: str | None = Field(default=None, max_length=255)
    effective_from: Micros | None = None
    effective_until: Micros | None = None
    revision: str | None = Field(default=None, max_length=1024)
    updated_at: Micros | None = Field(default=None, description="Last update at the source.")
    access: AccessInput | None = None
    redacted: bool = Field(default=False, description="Earlier content must never be shown again.")
    priority: Priority = "live"

    @model_validator(mode="after")
    def _check(self) -> UpsertChange:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("needs either 'text' or 'base64'")
        if self.effective_from is not None and self.effective_until is not None:  # noqa: SIM102
            if self.effective_until <= self.effective_from:
                raise ValueError("effective_until must be later than effective_from")
        self.body()
        return self

    def body(self) -> bytes:
        """The body's bytes. Raises ValueError where they cannot be had."""
        try:
            if self.text is not None:
                return self.text.encode("utf-8")
            return base64.b64decode(self.base64 or "", validate=True)
        except UnicodeEncodeError as error:
            raise ValueError("'text' must be valid Unicode (it holds a lone surrogate)") from error
        except binascii.Error as error:
            raise ValueError("'base64' is not valid base64") from error


class DeleteChange(_DocumentChange):
    """The document is gone."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DELETE]})

    type: Literal["delete"]
    reason: str | None = Field(default=None, max_length=500)
    updated_at: Micros | None = None


class AccessChange(_DocumentChange):
    """Who may read the document from now on."""

    model_config = ConfigDict(json_schema_extra={"examples": [_ACCESS]})

    type: Literal["access"]
    access: AccessInput
    updated_at: Micros | None = None


class MembershipChange(ClosedModel):
    """The direct parents of a principal as this source knows them: whole state."""

    model_config = ConfigDict(json_schema_extra={"examples": [_MEMBERSHIP]})

    type: Literal["membership"]
    tenant: TenantName
    source: SourceName | None = None
    principal: Principal
    parents: Annotated[tuple[Principal, ...], Field(max_length=10_000)] = ()
    until: Ends = Field(default_factory=dict)
    removed: bool = Field(default=False, description="The principal has ended; it must then have no parents.")

    @model_validator(mode="after")
    def _check(self) -> MembershipChange:
        if self.principal == "nobody" or "nobody" in self.parents:
            raise ValueError("'nobody' has no members and is no member")
        if self.removed and self.parents:
            raise ValueError("a removed principal has no parents")
        for parent, end in self.until.items():
            if end < EARLIEST_END:
                raise ValueError(f"'until' of {parent} is not in microseconds since 1970: {end} lies before 1974")
        check_ends(self.parents, self.until)
        return self


Change = Annotated[UpsertChange | DeleteChange | AccessChange | MembershipChange, Field(discriminator="type")]
CHANGES: TypeAdapter[list[Change]] = TypeAdapter(Annotated[list[Change], Field(min_length=1, max_length=MAX_CHANGES)])


class ChangeResult(ClosedModel):
    """What became of one change, in the order of the request."""

    document_uid: str | None = None
    document_id: str | None = None
    principal: str | None = None
    changed: bool = Field(description="False when the log already said so: nothing was written.")
    content_version: Version = 0
    access_version: Version = 0
    version: Version = Field(default=0, description="Version of a membership record.")
    outcome: str | None = Field(default=None, description="With wait=searchable: what became of it in the index.")
    reason: str | None = None
    readable: bool | None = Field(
        default=None,
        description="With wait=searchable: false where nobody may read the document now; 'reason' says why. Null where "
        "that cannot be told.",
    )


class ChangesReply(ClosedModel):
    """Answer to ``POST /v1/changes``: everything is on the log."""

    token: str = Field(description="Freshness token: pass it as 'after' to a search.")
    applied: bool = Field(default=False, description="The access lane has applied all of it.")
    indexed: bool = Field(default=False, description="The active index is done with all of it.")
    searchable: bool = Field(
        default=False,
        description="A search finds it, for whoever may read it. False where the index could not take a document, or "
        "where nobody may read it: the results say which.",
    )
    results: tuple[ChangeResult, ...]


class ChangesProblem(Problem):
    """``application/problem+json`` of the gateway. Never holds a value of the request."""

    token: str | None = Field(default=None, description="Where the changes are on the log although not awaited.")
