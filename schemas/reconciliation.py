"""What an owner found and did when it was asked, and where it stands with what it was asked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Micros, OpenModel, Version

RequestKind = Literal[
    "listing", "document", "backfill", "lift_hold", "undo", "remove", "notify", "pause", "resume", "reset"
]
EXAMPLES = 20
"""Most documents that a report names for each of its counts."""


class ReconciliationReport(OpenModel):
    """A source against what its owner knew, as one look found them; the details of a receipt of lane ``source``.

    Counts are documents unless named otherwise. ``missing`` are known ones that the look did not find, whatever became
    of them: ``held`` (hidden now), ``purged`` (deleted now), held before, or kept visible by an undo.
    """

    schema_version: Literal[1] = 1
    type: RequestKind
    tenant: str
    source: str
    request_id: str = Field(description="Of the request, or the owner's own name of a walk that nobody asked for.")
    repair: bool = Field(default=True, description="False: differences were counted and nothing was changed.")
    complete: bool = Field(default=True, description="The whole source was met; else nothing is taken for deleted.")
    why: tuple[str, ...] = Field(default=(), description="Why it is not complete, or why something was not done.")
    listed: int = Field(default=0, ge=0, description="Documents that stand at the source.")
    known: int = Field(default=0, ge=0, description="Live documents that the owner knew before.")
    new: int = Field(default=0, ge=0)
    stale: int = Field(default=0, ge=0, description="Their text, attributes or readers differed.")
    wrongly_readable: int = Field(default=0, ge=0, description="The source's rule is narrower than the one on the log.")
    memberships: int = Field(default=0, ge=0, description="Principals whose groups or audiences differed.")
    missing: int = Field(default=0, ge=0)
    held: int = Field(default=0, ge=0, description="Hidden now, by a quarantine.")
    released: int = Field(default=0, ge=0, description="Quarantines lifted.")
    purged: int = Field(default=0, ge=0, description="Deleted now.")
    repaired: int = Field(default=0, ge=0, description="Appended, hidden, released or deleted.")
    attempts: int = Field(default=1, ge=1, description="How often the owner began, restarts included.")
    began_at: Micros
    finished_at: Micros
    examples: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="Ids of documents by the name of the count, 20 each at most."
    )

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0, self.finished_at - self.began_at) / 1e6


class OpenRequest(OpenModel):
    """A request that is not answered yet."""

    offset: int = Field(ge=0)
    request_id: str
    type: str
    state: Literal["queued", "begun"] = "queued"
    attempts: int = Field(default=0, ge=0)
    version: Version = Field(default=0, description="The source's last version when it was begun first.")
    done: int = Field(default=0, ge=0, description="Documents looked at.")
    expected: int = Field(default=0, ge=0, description="About how many there are; 0 where that is not known.")


class OwnerStatus(OpenModel):
    """How an owner says that it is, every half a minute and whenever that changes."""

    state: Literal["waiting", "working", "starved", "unreachable", "paused"] = Field(
        description="'starved': bulk work waits until the index has caught up; 'unreachable': the source is silent."
    )
    since: Micros
    why: str | None = Field(default=None, description="Why it is unreachable.")
    documents: int = Field(default=0, ge=0, description="Live documents.")
    backlog: int = Field(default=0, ge=0, description="Events that the index has not applied.")
    listed: int = Field(default=0, ge=0, description="Documents that the last complete listing met.")
    listed_at: Micros | None = Field(default=None, description="When the last complete listing ended.")
    problems: tuple[str, ...] = ()
    alarms: tuple[str, ...] = Field(default=(), description="What keeps people out or documents hidden.")
    requests: int = Field(default=0, ge=0, description="Requests to the source's system since the owner began.")
    failures: int = Field(default=0, ge=0, description="Of which failed.")
    limited: int = Field(default=0, ge=0, description="Times that the system asked for patience.")
    limited_s: float = Field(default=0.0, ge=0, description="Seconds for which it is to be left alone.")
    notes: dict[str, str] = Field(default_factory=dict, description="The system's version and the like.")


class RequestsPosition(OpenModel):
    """The position of an owner's cursor of stream ``requests``: what is answered, and what is under way.

    Everything before ``next`` is answered, and so are ``answered`` beyond it.
    """

    next: int = Field(default=0, ge=0)
    answered: tuple[int, ...] = ()
    open: tuple[OpenRequest, ...] = ()
    paused: bool = Field(default=False, description="Nothing is read from the source until it is resumed.")
    status: OwnerStatus | None = None

    @staticmethod
    def read(position: str) -> RequestsPosition:
        """From a cursor's position, which was a bare offset before requests could overlap."""
        if not position.startswith("{"):
            return RequestsPosition(next=int(position or 0))
        return RequestsPosition.model_validate_json(position)


class IndexReport(OpenModel):
    """What an index holds of one source against what the source's owner wrote. Counts are documents."""

    generation: str | None = Field(description="The active one; None before there is one.")
    behind: int = Field(default=0, ge=0, description="Records that were not applied when it was compared.")
    known: int = Field(default=0, ge=0, description="Live documents of the owner.")
    manifests: int = Field(default=0, ge=0)
    access: int = Field(default=0, ge=0, description="Access records, those of deleted documents included.")
    extra: int = Field(default=0, ge=0, description="Standing in the index, deleted at the owner or unknown to it.")
    missing: int = Field(default=0, ge=0, description="Not in the index, or older there than the owner's last event.")
    unprocessable: int = Field(default=0, ge=0, description="Missing because of a dead letter.")
    wrongly_readable: int = Field(default=0, ge=0, description="More people may read it than the owner says.")
    wrongly_hidden: int = Field(default=0, ge=0, description="Fewer people may read it than the owner says.")
    repaired: int = Field(default=0, ge=0, description="Of which the owner said everything again.")
    why: tuple[str, ...] = Field(default=(), description="Why something was not repaired.")
    examples: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="Ids of documents by the name of the count, 20 each at most."
    )

    @property
    def differences(self) -> int:
        """Documents that are not as the owner says, dead letters left out."""
        return self.extra + self.missing + self.wrongly_readable + self.wrongly_hidden


class SourceReconciliation(OpenModel):
    """One source: against its owner's memory, and that against the index. Either is None where it was not compared."""

    tenant: str
    source: str
    listing: ReconciliationReport | None = None
    index: IndexReport | None = None
    problem: str | None = Field(default=None, description="Why nothing, or only a part, was compared.")
