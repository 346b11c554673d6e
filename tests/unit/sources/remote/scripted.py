"""A remote system as a script says: what stands there, what it tells, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from consumers.owner_engine import OwnerEngine
from consumers.owner_jobs import Pace
from pipeline.clock import ManualClock
from pipeline.observe import Metrics
from pipeline.ports import SourceDocument, SourceMembership
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.ledger import Ledger
from pipeline.sources.remote.contract import (
    Absent,
    Answer,
    Capabilities,
    Changes,
    Child,
    Fetched,
    Finding,
    Listed,
    Page,
    Readership,
    Touched,
    Unreadable,
    child,
    parent_of,
)
from pipeline.sources.remote.source import RemoteSource, Rhythm
from schemas.access import AccessRule
from schemas.events import ContentDeleted, ContentUpserted, HoldChanged
from schemas.keys import DocumentRef
from tests.unit.owner.scripted import Asked
from tests.unit.owner.support import MemoryLog, MemoryOwnerLog

EVERYONE = AccessRule.any_of("everyone")
ANN = AccessRule.any_of("user:ann")


def ref(id_: str, kind: str = "page") -> DocumentRef:
    return DocumentRef(tenant="acme", source="kb", kind=kind, id=id_)


@dataclass
class Stands:
    text: str
    revision: int
    rule: AccessRule = EVERYONE
    files: dict[str, tuple[str, int]] = field(default_factory=dict)  # id -> text, revision
    updated_at: int | None = None


class Script:
    """``System``."""

    def __init__(self) -> None:
        self.pages: dict[str, Stands] = {}
        self.feed: list[Changes | Exception] = []
        self.members: tuple[SourceMembership, ...] = (SourceMembership("acme", "user:ann", ("everyone",)),)
        self.forbidden: set[str] = set()
        self.fails: list[Exception] = []  # raised by the next fetches
        self.listing_fails: list[Exception] = []
        self.before_fetch: Callable[[DocumentRef], object] = lambda document: None
        self.page_size = 2
        self.page_problems: tuple[str, ...] = ()
        self.asked: list[str] = []  # cursors
        self.fetched: list[str] = []
        self.done: list[str] = []
        self.lists_children = True
        self.started = 0

    capabilities = Capabilities("events", access="poll", child_kinds=("file",))
    reach = Reach()

    def put(self, id_: str, text: str, rule: AccessRule = EVERYONE, **files: str) -> None:
        before = self.pages.get(id_)
        revision = before.revision + 1 if before is not None else 1
        self.pages[id_] = Stands(text, revision, rule, {name: (t, revision) for name, t in files.items()})

    def tell(
        self, *touched: Touched, gone: tuple[DocumentRef, ...] = (), cursor: str = "c", relist: bool = False
    ) -> None:
        self.feed.append(Changes(cursor, touched, gone, relist=relist))

    def start(self) -> str:
        self.started += 1
        return f"start{self.started}"

    def listing(self, at: str | None) -> Page:
        if self.listing_fails:
            raise self.listing_fails.pop(0)
        start = int(at or 0)
        ids = sorted(self.pages)
        taken = tuple(self._listed(i) for i in ids[start : start + self.page_size])
        end = start + self.page_size
        return Page(taken, str(end) if end < len(ids) else None, len(ids), self.page_problems)

    def _listed(self, id_: str) -> Listed:
        stands = self.pages[id_]
        files = tuple(Listed(child(ref(id_), "file", f), str(r)) for f, (_, r) in stands.files.items())
        return Listed(ref(id_), str(stands.revision), stands.updated_at, files if self.lists_children else None)

    def changes(self, cursor: str) -> Changes:
        self.asked.append(cursor)
        if not self.feed:
            return Changes(cursor)
        answer = self.feed.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def fetch(self, document: DocumentRef) -> Answer:
        self.before_fetch(document)
        if self.fails:
            raise self.fails.pop(0)
        self.fetched.append(document.id)
        parent = parent_of(document, self.capabilities)
        id_ = (parent or document).id
        if id_ in self.forbidden:
            return Unreadable("403")
        stands = self.pages.get(id_)
        if stands is None:
            return Absent("404")
        if parent is not None:
            name = document.id.rpartition("/")[2]
            if name not in stands.files:
                return Absent("404")
            text, revision = stands.files[name]
            return Fetched(_document(document, text, stands.rule, revision))
        children = tuple(
            Child(child(document, "file", f), str(r), stands.rule) for f, (_, r) in sorted(stands.files.items())
        )
        return Fetched(_document(document, stands.text, stands.rule, stands.revision), children)

    def readers(self) -> Readership:
        return Readership(self.members)

    def check(self) -> list[Finding]:
        return []

    def listen(self, notify: Callable[[DocumentRef | None], None]) -> None:
        self.notify = notify

    def committed(self, cursor: str) -> None:
        self.done.append(cursor)

    def close(self) -> None:
        """Nothing is open."""


def _document(document: DocumentRef, text: str, rule: AccessRule, revision: int) -> SourceDocument:
    return SourceDocument(
        document, document.id, text.encode(), "text/plain", rule, path=f"pages/{document.id}", revision=str(revision)
    )


class Owned:
    """A scripted system with its owner and its log."""

    def __init__(self) -> None:
        self.clock, self.log, self.asked, self.script = ManualClock(), MemoryLog(), Asked(), Script()
        self.script.reach = Reach()
        self.guard = DeletionGuard()
        self.applied: dict[int, int] | None = None
        self.throttled = False
        self.engine: OwnerEngine

    def start(self) -> None:
        def connect(ledger: Ledger) -> RemoteSource:
            rhythm = Rhythm(poll_s=5, access_s=5, sweep_s=3600)
            return RemoteSource(
                self.script, self.clock, rhythm, known=ledger.state, states=ledger.states, guard=self.guard
            )

        self.engine = OwnerEngine(
            MemoryOwnerLog(self.log, self.clock),
            connect,
            tenant="acme",
            source="kb",
            clock=self.clock,
            bodies=BodyPlacer(None),
            observed=Metrics(),
            pace=Pace(walk_s=100_000, rest_s=0.0, idle_s=0.0),
            guard=self.guard,
            requests=self.asked,
            applied=(lambda: self.applied if self.throttled else None) if self.throttled else None,
        )
        self.engine.start()
        self.settle()

    def settle(self, steps: int = 60) -> None:
        for _ in range(steps):
            self.engine.step()

    def passes(self, seconds: float, steps: int = 60) -> None:
        """Time goes by, and the owner works."""
        self.clock.advance(seconds)
        self.settle(steps)

    # ------------------------------------------------------------ what is on the log

    def texts(self) -> dict[str, str | None]:
        """Newest text of each document; None where it is deleted."""
        found: dict[str, str | None] = {}
        for event in self.log.content():
            if isinstance(event, ContentUpserted):
                found[event.document.id] = event.body.text  # type: ignore[union-attr]
            elif isinstance(event, ContentDeleted):
                found[event.document.id] = None
        return found

    def hidden(self) -> set[str]:
        """Documents on hold."""
        holds: dict[str, bool] = {}
        for event in self.log.access():
            if isinstance(event, HoldChanged):
                holds[event.document.id] = event.active
        return {id_ for id_, active in holds.items() if active}

    def position(self) -> str:
        """The cursor on the log."""
        return self.log.cursor().position


UNAVAILABLE = SourceUnavailable("502")
