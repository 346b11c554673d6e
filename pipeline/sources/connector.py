"""What an owner asks of a connector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.ports import SourceDeletion, SourceDocument, SourceMembership
from pipeline.sources.states import Known
from schemas.keys import DocumentRef


@dataclass(frozen=True)
class SourceHidden:
    """A document that is there but cannot be read: deleted, moved, or our right to it lost. It is hidden meanwhile."""

    document: DocumentRef
    reason: str


Seen = SourceDocument | SourceHidden


@dataclass
class Look:
    """What one look at a source yields.

    ``memberships`` is the whole state, None where nothing of it changed. ``gone`` are known documents that are no
    longer there; it may be acted on only where ``complete``. ``watched`` says that their going was seen happening,
    rather than concluded from a list. ``seen`` reads lazily: each document is read when it is asked for.
    """

    began: int  # µs; everything before it is in the look
    seen: Iterator[Seen]
    expected: int = 0  # about how many documents ``seen`` will yield
    replaced: int = 0  # how many of them are known already: their older state stands until the new one is written
    memberships: list[SourceMembership] | None = None
    undecided: frozenset[str] = frozenset()  # audiences whose members cannot be told yet: those on the log stay
    gone: list[SourceDeletion] = field(default_factory=list)
    complete: bool = True
    listing: bool = False  # a look at everything
    watched: bool = False
    problems: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)  # what keeps people out until someone acts


class Connector(Protocol):
    """One source instance. Used by one thread, but for ``wake``."""

    @property
    def degraded(self) -> str | None:
        """Why changes may be seen late, None where they are seen at once."""
        ...

    def restore(self, states: Iterable[tuple[DocumentRef, Known]]) -> None:
        """Start from what the log knows; called again whenever the owner begins anew."""
        ...

    def watch(self) -> None:
        """Begin to watch for changes; what happens from here on is not missed."""
        ...

    def listing(self) -> Look:
        """A look at everything."""
        ...

    def changes(self, timeout: float) -> Look | None:
        """What changed since, waiting at most ``timeout`` seconds for something to do so."""
        ...

    def read(self, document: DocumentRef) -> Seen | SourceDeletion | None:
        """One known document as it is now; None where it cannot be said yet."""
        ...

    def deleted(self, document: DocumentRef) -> None:
        """The owner has written the document's deletion."""
        ...

    def held(self, document: DocumentRef) -> None:
        """The owner has hidden the document: it must be read again when it is met, changed or not."""
        ...

    def wake(self) -> None:
        """Let a waiting ``changes`` return (any thread)."""
        ...

    def close(self) -> None: ...
