"""A remote source in pages, as a script says: order, failures and changes in the middle of a listing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from consumers.owner_engine import OwnerEngine
from consumers.owner_jobs import Pace
from pipeline.clock import ManualClock
from pipeline.observe import Metrics
from pipeline.ports import SourceDeletion, SourceDocument, SourceMembership
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.connector import Connector, Look, Mark, Reach, Seen, SourceHidden, SourceUnavailable
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.ledger import Ledger
from pipeline.sources.states import Known
from schemas.access import AccessRule
from schemas.events import ContentDeleted, ContentUpserted, HoldChanged, SourceRequest
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.reconciliation import ReconciliationReport
from schemas.topics import Topic
from tests.unit.owner.support import MemoryLog, MemoryOwnerLog

PAGE = 2
EVERYONE = AccessRule.any_of("everyone")
ANN = AccessRule.any_of("user:ann")
DAY = 86_400.0


def ref(id_: str) -> DocumentRef:
    return DocumentRef(tenant="acme", source="kb", id=id_)


class Remote:
    """What stands at the source, in the order in which it lists, and what happens while it does."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.pages: dict[str, tuple[str, AccessRule, int]] = {}  # id -> text, rule, updated at
        self.unreadable: set[str] = set()
        self.before_page: dict[int, Callable[[], object]] = {}
        self.fails_at: int | None = None  # page at which a listing breaks off
        self.events: deque[Look] = deque()
        self.committed: list[str] = []
        self.notified: list[DocumentRef | None] = []
        self.restored: list[str] = []

    def put(self, *ids: str, text: str = "text", rule: AccessRule = EVERYONE) -> None:
        for id_ in ids:
            self.pages[id_] = (f"{text} of {id_}", rule, self.clock.now())

    def tell(self, *ids: str) -> None:
        """A live event about these documents: they are read, or were seen going."""
        there = [self.document(id_) for id_ in ids if id_ in self.pages]
        gone = [SourceDeletion(ref(id_)) for id_ in ids if id_ not in self.pages]
        self.events.append(Look(self.clock.now(), iter(there), len(there), gone=gone, watched=True))

    def document(self, id_: str) -> SourceDocument | SourceHidden:
        if id_ in self.unreadable:
            return SourceHidden(ref(id_), "403")
        text, rule, updated = self.pages[id_]
        return SourceDocument(ref(id_), id_, text.encode(), "text/plain", rule, updated_at=updated)

    def listed(self, look: Look, known: Iterable[DocumentRef], wanted: Callable[[int], bool]) -> Iterator[Seen]:
        """Pages by offset, as such interfaces do: what moves to the front while it runs is not met."""
        met: set[DocumentRef] = set()
        start = page = 0
        while True:
            self.before_page.pop(page, lambda: None)()
            if self.fails_at == page:
                raise SourceUnavailable("502 from page {page}")
            ids = list(self.pages)[start : start + PAGE]
            for id_ in ids:
                look.listed += 1
                met.add(ref(id_))
                if wanted(self.pages[id_][2]):
                    yield self.document(id_)
            if not ids:
                break
            start, page = start + PAGE, page + 1
        look.missing = [SourceDeletion(document) for document in known if document not in met]


class ScriptedConnector(Connector):
    def __init__(self, remote: Remote) -> None:
        self.remote, self.known = remote, set[DocumentRef]()
        self.closed = False

    @property
    def degraded(self) -> str | None:
        return None

    @property
    def watched(self) -> bool:
        return True

    @property
    def behind(self) -> bool:
        return False

    def committed(self, position: str) -> None:
        self.remote.committed.append(position)

    def notify(self, document: DocumentRef | None) -> None:
        self.remote.notified.append(document)

    def reach(self) -> Reach | None:
        return None

    def restore(self, states: Iterable[tuple[DocumentRef, Known]], position: str) -> None:
        self.remote.restored.append(position)
        self.known = {document for document, known in states if not known.deleted}

    def watch(self) -> None:
        """Events come anyway."""

    def listing(self) -> Look:
        if self.remote.fails_at == -1:
            raise SourceUnavailable("503")
        look = Look(self.remote.clock.now(), iter(()), len(self.remote.pages), listing=True)
        look.seen = self._noted(self.remote.listed(look, list(self.known), lambda at: True))
        return look

    def updated(self, since: int, until: int) -> Look:
        look = Look(self.remote.clock.now(), iter(()), len(self.remote.pages))
        look.seen = self._noted(self.remote.listed(look, (), lambda at: since <= at < until))
        return look

    def changes(self, timeout: float) -> Look | None:
        if not self.remote.events:
            return None
        look = self.remote.events.popleft()
        look.seen = self._noted(look.seen)
        return look

    def _noted(self, seen: Iterator[Seen | Mark]) -> Iterator[Seen | Mark]:
        for one in seen:
            if not isinstance(one, Mark | SourceMembership):
                self.known.add(one.document)
            yield one

    def read(self, document: DocumentRef) -> SourceDocument | SourceHidden | SourceDeletion | None:
        if document.id in self.remote.pages:
            return self.remote.document(document.id)
        return SourceDeletion(document) if document in self.known else None

    def deleted(self, document: DocumentRef) -> None:
        self.known.discard(document)

    def held(self, document: DocumentRef) -> None:
        """Everything is read anyway."""

    def wake(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        self.closed = True


class Asked:
    """The topic of requests."""

    def __init__(self) -> None:
        self.all: list[tuple[int, SourceRequest]] = []

    def ask(self, type_: str, **more: Any) -> str:
        id_ = f"r{len(self.all)}"
        request = SourceRequest(type=type_, tenant="acme", source="kb", request_id=id_, requested_at=1, **more)
        self.all.append((len(self.all), request))
        return id_

    def take(self, position: int) -> list[tuple[int, SourceRequest]]:
        return [item for item in self.all if item[0] >= position]


class Owned:
    """A remote source, its owner and the log."""

    def __init__(self) -> None:
        self.clock, self.log, self.asked = ManualClock(), MemoryLog(), Asked()
        self.remote = Remote(self.clock)
        self.applied: dict[int, int] | None = None
        self.throttled = False
        self.connectors: list[ScriptedConnector] = []
        self.live_at_most = 0  # even a short listing goes in slices
        self.engine: OwnerEngine

    def start(self) -> None:
        """A new owner on the same log; an older one is left as it lies."""

        def connect(ledger: Ledger) -> ScriptedConnector:
            self.connectors.append(ScriptedConnector(self.remote))
            return self.connectors[-1]

        self.engine = OwnerEngine(
            MemoryOwnerLog(self.log, self.clock),
            connect,
            tenant="acme",
            source="kb",
            clock=self.clock,
            bodies=BodyPlacer(None),
            observed=Metrics(),
            pace=Pace(walk_s=100, window=6, slice=2, live_at_most=self.live_at_most),
            guard=DeletionGuard(0.5, 2),
            quarantine_s=7 * DAY,
            requests=self.asked,
            applied=(lambda: self.applied) if self.throttled else None,
        )
        self.engine.start()

    def settle(self, steps: int = 30) -> None:
        for _ in range(steps):
            self.engine.step()
            self.clock.advance(0.01)

    def walk(self, days: float = 0.0) -> ReconciliationReport:
        """The next periodic walk, after this time; what it found."""
        self.clock.advance(101 + days * DAY)
        self.settle()
        assert self.engine.listed is not None
        return self.engine.listed

    def request(self, type_: str, **more: Any) -> ReconciliationReport:
        """Ask and let the owner answer."""
        id_ = self.asked.ask(type_, **more)
        self.settle()
        return self.report(id_)

    def receipts(self) -> list[Receipt]:
        return [Receipt.model_validate_json(r.value or b"") for r in self.log.topic(Topic.RECEIPTS)]

    def report(self, id_: str) -> ReconciliationReport:
        (receipt,) = [r for r in self.receipts() if r.request_id == id_]
        assert receipt.lane == "source"
        return ReconciliationReport.model_validate(receipt.details)

    def hidden(self) -> set[str]:
        last = {e.document.id: e.active for e in self.log.access() if isinstance(e, HoldChanged)}
        return {id_ for id_, active in last.items() if active}

    def live(self) -> set[str]:
        """Documents of which the newest content event is none of a deletion."""
        last = {e.document.id: e for e in self.log.content() if isinstance(e, ContentUpserted | ContentDeleted)}
        return {id_ for id_, event in last.items() if isinstance(event, ContentUpserted)}

    def upserts(self, id_: str) -> list[ContentUpserted]:
        return [e for e in self.log.content() if isinstance(e, ContentUpserted) and e.document.id == id_]
