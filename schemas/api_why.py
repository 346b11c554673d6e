"""``GET /v1/why``: why a person sees a document or does not, clause by clause. For operators; without any text."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.access import Principal
from schemas.base import ClosedModel, Micros, Version
from schemas.documents import Tier

CheckName = Literal[
    "manifest", "record", "tenant", "not_deleted", "no_tombstone", "no_hold", "content_new_enough",
    "record_new_enough", "rule", "rule_of_the_text",
]  # fmt: skip


class Check(ClosedModel):
    """One condition of admission, in the order in which they are decided. The first that fails is the refusal."""

    name: CheckName
    passed: bool | None = Field(description="Null where it cannot be asked, or need not hold.")
    says: str = Field(description="In plain words.")


class Reached(ClosedModel):
    """A principal of the person and how it was reached: the person first, each the parent of the one before."""

    principal: Principal
    path: tuple[str, ...]
    until: Micros | None = Field(default=None, description="The first end of a membership on the path.")


class PersonReport(ClosedModel):
    """The person's own record and closure. Groups that only a token claims are not known here."""

    user: Principal
    live: bool = Field(description="A record that no source has ended: without one a caller is nobody.")
    tenant_suspended: bool
    complete: bool = Field(description="False: nothing that has a deny set admits the person.")
    cut: bool = Field(description="The walk ended before the last principal.")
    missing: tuple[str, ...] = Field(description="Principals that others name and that have no record.")
    removed: tuple[str, ...] = Field(description="Principals that have ended.")
    unreadable: tuple[str, ...] = Field(description="Principals with a membership record that cannot be read.")
    ended: tuple[str, ...] = Field(description="Memberships whose end has come, as 'member > group'.")
    principals_total: int = Field(ge=0)
    principals: tuple[Reached, ...] = Field(description="Those that the rules name, then others, at most 200.")
    written_at: Micros | None = Field(description="When the person's own record was last written; null without one.")
    until: Micros | None = Field(description="When the first membership ends: from then on the closure is another.")


class GrantReport(ClosedModel):
    """A grant of a clause."""

    principal: Principal
    until: Micros | None
    held: bool = Field(description="The person has the principal.")
    live: bool = Field(description="It has not run out.")


class ClauseReport(ClosedModel):
    """One clause: any live grant that the person holds satisfies it."""

    satisfied: bool
    satisfied_by: tuple[str, ...]
    grants_total: int
    grants: tuple[GrantReport, ...] = Field(description="Those that are held first, at most 50.")


class RuleReport(ClosedModel):
    """A rule, clause by clause."""

    admits: bool
    clauses: tuple[ClauseReport, ...]
    deny_total: int
    denied_by: tuple[str, ...] = Field(description="Principals of the person that the deny set names.")
    denied_as_unknown: bool = Field(description="There is a deny set and the closure is incomplete.")
    reason: str | None = Field(description="What the rule itself says of why it is so.")


class RecordReport(ClosedModel):
    """The access record: the newer of the store and what the service has read of the log."""

    version: Version
    content_version: Version
    not_before: Version
    tombstone: bool
    holds: dict[str, Version]
    written_at: Micros | None
    from_log: bool = Field(description="The log is ahead of the store.")


class ManifestReport(ClosedModel):
    """What of the document is live in the generation."""

    deleted: bool
    content_version: Version
    access_version: Version = Field(description="Access version that the text demands.")
    tier: Tier
    chunk_total: int
    indexed_at: Micros | None
    effective_from: Micros | None
    effective_until: Micros | None
    product: str | None
    in_effect: bool = Field(description="At the moment that was asked for; searches without a date ignore it.")
    prefilter: bool = Field(description="Whether searches that are filtered by principals meet the chunks.")


class PendingReport(ClosedModel):
    """What the owner wrote and a lane has not settled yet: the answer may change by itself."""

    lane: str
    written: Version
    settled: Version | None


class WhyResponse(ClosedModel):
    """Whether the person may read the document now, and each reason for or against it."""

    query_id: str
    tenant: str
    generation: str
    active: bool
    judged_at: Micros
    allowed: bool
    refusal: str | None = Field(description="The first condition that failed, as metrics name it.")
    says: str = Field(description="In plain words.")
    document_uid: str
    source: str | None
    kind: str | None
    document_id: str | None
    checks: tuple[Check, ...]
    person: PersonReport
    record: RecordReport | None
    rule: RuleReport | None
    manifest: ManifestReport | None
    manifest_rule: RuleReport | None = Field(description="Also counts while the text is older than the rule.")
    pending: tuple[PendingReport, ...]
    source_alarms: tuple[str, ...] = Field(
        default=(),
        description="What the source's owner says that keeps people out or documents hidden, such as an access file "
        "that cannot be read. At most 20; those that name a container of the rule first.",
    )
