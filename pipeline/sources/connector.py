"""What an owner asks of a connector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from pipeline.errors import Retry
from pipeline.ports import Observation, SourceDeletion, SourceDocument, SourceMembership
from pipeline.sources.states import Known
from schemas.keys import DocumentRef


class SourceUnavailable(Retry):
    """The source does not answer, or not to its end: what it did not say means nothing."""


@dataclass(frozen=True)
class SourceHidden:
    """A document that is there but cannot be read: deleted, moved, or our right to it lost. It is hidden meanwhile."""

    document: DocumentRef
    reason: str


class Mark(Enum):
    """What a look may yield beside observations.

    ``PAUSE``: nothing to tell yet, other work may go first. ``WAIT``: the same, and it takes a while. ``SETTLE``: what
    is in ``gone`` and ``missing`` by now is all that was looked for so far; it is acted on at once.
    """

    PAUSE = "pause"
    WAIT = "wait"
    SETTLE = "settle"


Seen = Observation | SourceHidden
"""Deletions, rules alone and memberships come from sources that send them in one order with their documents."""


@dataclass
class Reach:
    """What is known of the way to a source; for status pages and metrics."""

    requests: int = 0
    failures: int = 0
    limited: int = 0  # times that it asked for patience
    waiting_until: float = 0.0  # ``Clock.elapsed`` until which nothing is asked
    notes: dict[str, str] = field(default_factory=dict)  # the system's version and the like


@dataclass
class Look:
    """What one look at a source yields.

    ``memberships`` is the whole state, None where nothing of it changed. ``seen`` reads lazily: each document is read
    when it is asked for. What is no longer there is acted on only where ``complete``, which may change while ``seen``
    is read:

    - ``gone``: known documents each of which was looked for by itself and is surely not there. ``watched`` says that
      their going was seen happening, rather than concluded from a list;
    - ``missing``: known documents that were not met, perhaps for another reason. It counts when ``seen`` has run out.
    """

    began: int  # µs; everything before it is in the look
    seen: Iterator[Seen | Mark]
    expected: int = 0  # about how many documents ``seen`` will yield
    replaced: int = 0  # how many of them are known already: their older state stands until the new one is written
    listed: int = 0  # how many documents a listing met, changed or not
    memberships: list[SourceMembership] | None = None
    undecided: frozenset[str] = frozenset()  # audiences whose members cannot be told yet: those on the log stay
    gone: list[SourceDeletion] = field(default_factory=list)
    missing: list[SourceDeletion] = field(default_factory=list)
    complete: bool = True
    listing: bool = False  # a look at everything
    bulk: bool | None = None  # whether it waits for credit; None: where many documents are expected
    free: bool = False  # what it yields now costs the index nothing: it needs no credit
    watched: bool = False
    whole: bool = False  # nothing that happened before ``began`` is missing from it
    position: str | None = None  # the cursor once all of it is on the log, with the last of its events
    problems: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)  # what keeps people out until someone acts


class Connector(Protocol):
    """One source instance. Used by one thread, but for ``wake``."""

    @property
    def degraded(self) -> str | None:
        """Why changes may be seen later than usual, None where all is well."""
        ...

    @property
    def watched(self) -> bool:
        """Whether what happens is seen at once: then silence proves that nothing happened."""
        ...

    @property
    def behind(self) -> bool:
        """Whether documents are still to be asked for that the newest memberships could open in an older state."""
        ...

    def restore(self, states: Iterable[tuple[DocumentRef, Known]], position: str) -> None:
        """Start from what the log knows, once. ``position`` is the newest cursor on the log, "" before there is one."""
        ...

    def watch(self) -> None:
        """Begin to watch for changes; what happens from here on is not missed."""
        ...

    def listing(self) -> Look:
        """A look at everything. Raises SourceUnavailable or OSError, here or while ``seen`` is read."""
        ...

    def updated(self, since: int, until: int) -> Look:
        """A look at all documents that were updated from ``since`` to before ``until`` (µs), changed or not.

        Nothing is concluded from what it lacks. Raises as ``listing`` does.
        """
        ...

    def changes(self, timeout: float) -> Look | None:
        """What changed since, waiting at most ``timeout`` seconds for something to do so."""
        ...

    def read(self, document: DocumentRef) -> SourceDocument | SourceHidden | SourceDeletion | None:
        """One known document as it is now; None where it cannot be said yet."""
        ...

    def deleted(self, document: DocumentRef) -> None:
        """The owner has written the document's deletion."""
        ...

    def held(self, document: DocumentRef) -> None:
        """The owner has hidden the document: it must be read again when it is met, changed or not."""
        ...

    def committed(self, position: str) -> None:
        """This cursor is on the log, and so is everything up to it."""
        ...

    def notify(self, document: DocumentRef | None) -> None:
        """Something happened at the source, to this document if one is named: look at once (any thread)."""
        ...

    def reach(self) -> Reach | None:
        """The way to the source, None where there is no way that could be blocked."""
        ...

    def wake(self) -> None:
        """Let a waiting ``changes`` return (any thread)."""
        ...

    def close(self) -> None: ...
