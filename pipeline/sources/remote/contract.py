"""What a system that is reached over an API has to tell: the contract of every remote source.

A system only answers. Pace, second looks, sweeps, what is new and what is gone, is decided by ``RemoteSource``, once
for all systems. Everything here may raise ``SourceUnavailable`` (the system does not answer, or not to its end: what it
did not say means nothing), ``RateLimited`` (ask again later) or ``ConfigError`` (settings are wrong; it says which).

Content and readers of a document come from one ``fetch``: read apart, they could belong to two states of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from pipeline.ports import SourceDocument, SourceMembership
from pipeline.sources.connector import Reach, SourceUnavailable
from schemas.access import AccessRule
from schemas.keys import DocumentRef


class RateLimited(SourceUnavailable):
    """The system asks for patience; ``retry_after`` seconds."""

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Capabilities:
    """What a system can tell by itself, and what has to be found out by looking again."""

    deletions: Literal["events", "listing"]  # events: ``changes`` tells them; listing: only by what a listing lacks
    push: Literal["none", "notify", "webhook"] = "none"  # how it can say that something happened
    feed: bool = True  # ``changes`` tells what happened; else only a listing does
    undated: tuple[str, ...] = ()  # changes that move no date, revision or event: only the sweep sees them
    access: Literal["events", "poll"] = "poll"  # how a lost right is noticed
    kinds: tuple[str, ...] = ("page",)  # kinds of documents that stand for themselves
    child_kinds: tuple[str, ...] = ()  # kinds that live by others (see ``child``)


@dataclass(frozen=True)
class Listed:
    """A document that stands at the source.

    ``revision`` is equal exactly while content, attributes and readers may be taken as unchanged; None where the
    listing cannot tell, and then the document is only read where it is not known. ``children`` are all documents that
    live by this one (see ``child``), with their revisions; None where the listing does not say: those known stand.
    """

    document: DocumentRef
    revision: str | None = None
    updated_at: int | None = None  # µs
    children: tuple[Listed, ...] | None = ()


@dataclass(frozen=True)
class Page:
    """One answer to a listing: memory stays bounded by its size. ``total`` is about how many there are in all.

    ``next`` is what to ask for the page after it, None where this was the last: a listing that was interrupted goes on
    from there.
    """

    documents: tuple[Listed, ...]
    next: str | None = None
    total: int | None = None
    problems: tuple[str, ...] = ()  # something could not be listed: the listing proves no absence


@dataclass(frozen=True)
class Touched:
    """A document of which something happened. ``revision``: as in ``Listed``; None reads it in any case.

    ``redacted``: text of it was withdrawn and must never be shown again, whatever is indexed.
    """

    document: DocumentRef
    revision: str | None = None
    redacted: bool = False


@dataclass(frozen=True)
class Changes:
    """What happened from a cursor on, in the order of the source. It may repeat what an earlier answer told."""

    cursor: str  # everything up to it is in this answer or an earlier one
    touched: tuple[Touched, ...] = ()
    gone: tuple[DocumentRef, ...] = ()  # the source said so; it is looked for once more all the same
    access: bool = False  # who may read changed: ``readers`` is asked at once
    relist: bool = False  # the cursor says nothing any more: only a listing tells what happened
    more: bool = False  # there is more already: ask again without waiting
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Child:
    """A document that lives by another and has its readers from it: an attachment, a private note."""

    document: DocumentRef
    revision: str
    rule: AccessRule


@dataclass(frozen=True)
class Fetched:
    """A document as it is now. ``document.revision`` equals the one that a listing made now would give.

    ``children`` are all of its children. What is known and not among them is gone.
    """

    document: SourceDocument
    children: tuple[Child, ...] = ()
    problems: tuple[str, ...] = ()  # what of it could not be used


@dataclass(frozen=True)
class Absent:
    """Not there: deleted, or hidden so well that it looks so."""

    reason: str


@dataclass(frozen=True)
class Unreadable:
    """There, or perhaps there, and not for us."""

    reason: str


Answer = Fetched | Absent | Unreadable


@dataclass(frozen=True)
class Readership:
    """Everybody's direct parents: the whole state.

    ``undecided`` are audiences and groups whose members cannot be told now: those on the log stay.
    """

    memberships: tuple[SourceMembership, ...]
    undecided: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()  # what keeps people out until someone acts


@dataclass(frozen=True)
class Finding:
    """One thing that ``headwater sources test`` found out. ``remedy`` where it is not as it should be."""

    what: str
    good: bool
    remedy: str | None = None


class System(Protocol):
    """One instance of a system. Used by one thread, but for what ``listen`` starts."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def reach(self) -> Reach: ...

    def start(self) -> str:
        """A cursor from which ``changes`` tells everything that happens after this call began."""
        ...

    def listing(self, at: str | None) -> Page:
        """A page of everything that stands, the first where ``at`` is None.

        That the last page is reached without a problem proves that this is all. A document that stands from the first
        page to the last must be met, whatever changes meanwhile; one may be met twice.
        """
        ...

    def changes(self, cursor: str) -> Changes:
        """What happened since, an overlap included: rows that became visible late are not lost."""
        ...

    def fetch(self, document: DocumentRef) -> Answer:
        """One document as it is now, children too: they are fetched by their own ref."""
        ...

    def readers(self) -> Readership:
        """Who belongs to which group and audience."""
        ...

    def check(self) -> list[Finding]:
        """What our credentials can see, and what they should see and cannot."""
        ...

    def listen(self, notify: Callable[[DocumentRef | None], None]) -> None:
        """Call ``notify`` from any thread when the system says that something happened; None: not said of what."""
        ...

    def committed(self, cursor: str) -> None:
        """Everything up to this cursor is on the log: the system may forget it. Nothing to do for most."""
        ...

    def close(self) -> None: ...


def child(parent: DocumentRef, kind: str, id_: str) -> DocumentRef:
    """The ref of a document that lives by another: its id holds its parent's kind and id."""
    return DocumentRef(tenant=parent.tenant, source=parent.source, kind=kind, id=f"{parent.kind}:{parent.id}/{id_}")


def parent_of(document: DocumentRef, capabilities: Capabilities) -> DocumentRef | None:
    """The parent of a child, None for a document that stands for itself."""
    if document.kind not in capabilities.child_kinds:
        return None
    kind, _, rest = document.id.partition(":")
    id_, _, _ = rest.rpartition("/")
    return DocumentRef(tenant=document.tenant, source=document.source, kind=kind, id=id_)
