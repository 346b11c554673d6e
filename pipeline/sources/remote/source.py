"""A remote system as an owner sees it: when to ask what, what is new, what is gone, and what is only not answering.

Whatever the system: it is asked every ``poll_s`` what changed, at once when it notifies; who may read is compared every
``access_s``; everything is listed when the owner asks; and in ``sweep_s`` each document is read again once, for changes
that move no date. Not found is hidden at once and deleted at a second look; forbidden is hidden as long as it lasts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace

from pipeline.clock import Clock
from pipeline.ports import SourceAccess, SourceDeletion, SourceDocument, SourceMembership
from pipeline.sources.connector import Look, Mark, Reach, Seen, SourceHidden, SourceUnavailable
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.remote.contract import (
    Absent,
    Answer,
    Changes,
    Child,
    Fetched,
    Listed,
    RateLimited,
    System,
    Touched,
    Unreadable,
    parent_of,
)
from pipeline.sources.remote.waiting import Patience
from pipeline.sources.rules import is_within, rule_hash
from pipeline.sources.states import Known
from schemas.access import AccessRule
from schemas.keys import DocumentRef

MOST_TOUCHED = 2000
"""Documents that one look reads at most; the rest is in the next one."""
SWEEP_AT_MOST = 10
"""Documents that one look reads again for the sweep."""
RETRY_S = 60.0
"""When a document that the system fails to give, and only that one, is asked for again."""
SHARE = 4
"""How many times as long as a comparison of who may read took, it is not repeated."""
SETTLING_S = (0.1, 0.3, 0.6, 1.2)
"""When to ask again after a notification: a change may become visible a moment after it was told."""


@dataclass(frozen=True)
class Rhythm:
    """Seconds."""

    poll_s: float = 5.0
    access_s: float = 5.0
    sweep_s: float = 3600.0
    second_look_s: float = 1.0


@dataclass
class _Due:
    """When what is next (``Clock.elapsed``)."""

    poll: float = 0.0
    access: float = 0.0
    sweep: float = 0.0


class RemoteSource:
    """``Connector`` of one remote system. ``known`` gives the owner's memory of a document, ``states`` of all."""

    def __init__(
        self,
        system: System,
        clock: Clock,
        rhythm: Rhythm,
        *,
        known: Callable[[DocumentRef], Known | None],
        states: Callable[[], Iterable[tuple[DocumentRef, Known]]],
        guard: DeletionGuard = DeletionGuard(),  # noqa: B008 (frozen)
    ) -> None:
        self._system, self._clock, self._rhythm = system, clock, rhythm
        self._known, self._states, self._guard = known, states, guard
        self._cursor = ""
        self._relist = False
        self._walking = False  # a listing is being read: another one is not begun beside it
        self._due = _Due()
        self._settling: list[float] = []
        self._children: dict[tuple[str, str], set[DocumentRef]] = {}  # of live parents
        self._doubts: dict[DocumentRef, float] = {}  # not found: when to look a second time
        self._backlog: list[Touched] = []
        self._stuck: dict[Touched, float] = {}  # what the system fails to give: when to ask again
        self._sweeping: list[DocumentRef] = []
        self._readers: tuple[SourceMembership, ...] | None = None
        self._undecided: frozenset[str] = frozenset()
        self._owed = False  # who may read was asked after what happened was: documents may have moved in between
        self._gap = False  # what happened cannot be asked any more: until a listing has met everything
        self._closed: tuple[str, ...] = ()  # alarms, as of the newest access state
        self._patience = Patience(clock)
        self._failing: str | None = None
        self._wake = threading.Event()
        self._noticed: dict[DocumentRef | None, None] = {}
        self._lock = threading.Lock()

    # ------------------------------------------------------------ the connector's port

    @property
    def degraded(self) -> str | None:
        """Why nothing is seen at the moment."""
        return self._failing

    @property
    def watched(self) -> bool:
        """Silence of a remote system proves nothing."""
        return False

    @property
    def behind(self) -> bool:
        """Whether documents are still to be read that the newest access state could open in an older state."""
        return self._owed or self._gap or bool(self._backlog)

    def restore(self, states: Iterable[tuple[DocumentRef, Known]], position: str) -> None:
        """Go on from a cursor on the log."""
        self._cursor = position
        for document, known in states:
            if not known.deleted:
                self._adopt(document)

    def watch(self) -> None:
        """Listen, where the system can push."""
        self._due.sweep = self._clock.elapsed() + min(self._rhythm.sweep_s, 1.0)
        self._system.listen(self.notify)

    def listing(self) -> Look:
        """Everything: a walk over ids first, then what is new or differs is read."""
        began = self._clock.now()
        try:
            problems, alarms = self._ask_readers()
            if not self._cursor:
                self._cursor = self._system.start()
        except RateLimited as error:
            raise SourceUnavailable(f"{error}") from error
        self._relist, self._walking = False, True
        look = Look(began, iter(()), listing=True, bulk=True, free=True)
        look.replaced = int(any(not known.deleted for _, known in self._states()))
        if look.replaced:
            self._owed, self._due.poll = True, 0.0
        look.memberships, look.undecided = list(self._readers or ()), self._undecided
        look.problems.extend(problems)
        look.alarms.extend(alarms)
        look.seen = self._walk(look)
        return look

    def updated(self, since: int, until: int) -> Look:
        """All documents of which the system says that they were updated in the window, or does not say when."""
        look = Look(self._clock.now(), iter(()), bulk=True)
        look.seen = self._window(look, since, until)
        return look

    def changes(self, timeout: float) -> Look | None:
        """What is due now, waiting at most ``timeout`` seconds for something to be."""
        self._wait(timeout)
        now = self._clock.elapsed()
        if now < self._patience.until:
            return None
        look = Look(self._clock.now(), iter(()))
        touched = self._taken_notice(now) + self._second_looks(now)
        try:
            if now >= self._due.poll or self._backlog:
                touched += self._poll(look)
            if now >= self._due.access:
                self._access(look)
            touched += self._swept(now)
        except SourceUnavailable as error:
            self._failed(error, look)
        if self._relist and not self._walking:
            return self.listing()
        if not (touched or look.gone or look.whole or look.memberships is not None or look.problems):
            return None
        look.expected = len(touched)
        look.replaced = sum(self._live(t.document) is not None for t in touched)
        look.seen = self._read(look, touched)
        return look

    def read(self, document: DocumentRef) -> SourceDocument | SourceHidden | SourceDeletion | None:
        """One document as it is now; None where the system does not say."""
        try:
            answer = self._system.fetch(document)
        except SourceUnavailable:
            return None
        if isinstance(answer, Fetched):
            return answer.document
        if isinstance(answer, Absent):
            return SourceDeletion(document, reason=answer.reason) if self._live(document) is not None else None
        return SourceHidden(document, answer.reason)

    def deleted(self, document: DocumentRef) -> None:
        """Its deletion is on the log: nothing more is asked of it."""
        self._doubts.pop(document, None)
        self._children.pop((document.kind, document.id), None)
        parent = parent_of(document, self._system.capabilities)
        if parent is not None:
            self._children.get((parent.kind, parent.id), set()).discard(document)

    def held(self, document: DocumentRef) -> None:
        """A held document is read whenever it is met: its state says so."""

    def committed(self, position: str) -> None:
        """The system may forget what is before it."""
        self._system.committed(position)

    def notify(self, document: DocumentRef | None) -> None:
        """The system, or somebody for it, says that something happened (any thread)."""
        with self._lock:
            self._noticed[document] = None
        self._wake.set()

    def reach(self) -> Reach | None:
        """The way to the system."""
        return self._system.reach

    def wake(self) -> None:
        """Let a waiting ``changes`` return."""
        self._wake.set()

    def close(self) -> None:
        """Disconnect."""
        self._system.close()

    # ------------------------------------------------------------ when

    def _wait(self, timeout: float) -> None:
        now = self._clock.elapsed()
        due = [self._due.poll, self._due.access, self._due.sweep, *self._settling]
        due += [*self._doubts.values(), *self._stuck.values()]
        next_ = now if self._backlog else min(due)
        pause = min(timeout, max(next_, self._patience.until) - now)
        if pause > 0:
            self._wake.wait(pause)
        self._wake.clear()

    def _taken_notice(self, now: float) -> list[Touched]:
        """What was notified; it makes a poll due, now and a moment later."""
        with self._lock:
            noticed, self._noticed = list(self._noticed), {}
        settled = [at for at in self._settling if at <= now]
        if noticed:
            self._settling = [now + s for s in SETTLING_S]
        elif settled:
            self._settling = [at for at in self._settling if at > now]
        if noticed or settled:
            self._due.poll = now
        if noticed and self._system.capabilities.access == "poll":
            self._due.access = now
        if None in noticed and not self._system.capabilities.feed:
            self._relist = True  # nothing else tells what it was
        return [Touched(document) for document in noticed if document is not None]

    def _second_looks(self, now: float) -> list[Touched]:
        """Documents that were not found, or not given, and are due for another look."""
        due = [d for d, at in self._doubts.items() if at <= now]
        for document in due:
            self._doubts[document] = now + max(self._rhythm.poll_s, self._rhythm.second_look_s)
        stuck = [touched for touched, at in self._stuck.items() if at <= now]
        for touched in stuck:
            del self._stuck[touched]
        return [Touched(d) for d in due] + stuck

    def _swept(self, now: float) -> list[Touched]:
        """The next documents of the sweep."""
        if now < self._due.sweep:
            return []
        if not self._sweeping:
            self._sweeping = [d for d, known in self._states() if not known.deleted]
        pace = self._rhythm.sweep_s / max(1, len(self._sweeping))
        number = max(1, min(SWEEP_AT_MOST, int(0.5 / pace))) if pace < 0.5 else 1
        taken, self._sweeping = self._sweeping[-number:], self._sweeping[:-number]
        self._due.sweep = now + (self._rhythm.sweep_s if not taken else max(pace * len(taken), 0.05))
        return [Touched(d) for d in taken]

    # ------------------------------------------------------------ asking

    def _poll(self, look: Look) -> list[Touched]:
        """What happened since the cursor. A full answer leaves the rest to the next look."""
        if self._backlog:
            taken, self._backlog = self._backlog[:MOST_TOUCHED], self._backlog[MOST_TOUCHED:]
            look.whole, look.position = not self._backlog, None if self._backlog else self._cursor
            return taken
        if not self._cursor:
            self._cursor = self._system.start()
        answer = self._system.changes(self._cursor)
        self._answered()
        self._due.poll = self._clock.elapsed() + (0.0 if answer.more else self._rhythm.poll_s)
        if answer.relist:
            self._relist, self._cursor = True, ""  # what happened since cannot be asked any more
            self._gap = True
            return []
        back = self._confirm(answer, look)
        self._cursor = answer.cursor  # only now: where confirming failed, all of it is asked again
        look.problems.extend(answer.problems)
        if answer.access:
            self._due.access = 0.0
        fresh = [t for t in _merged([*answer.touched, *back]) if self._differs(t)]
        taken, self._backlog = fresh[:MOST_TOUCHED], fresh[MOST_TOUCHED:]
        self._owed = self._owed and answer.more
        if not self._backlog:
            look.whole, look.position = not answer.more, self._cursor
        return taken

    def _confirm(self, answer: Changes, look: Look) -> list[Touched]:
        """Deletions that the system told: each is looked for once more; those that are there, perhaps restored."""
        gone: list[SourceDeletion] = []
        back: list[Touched] = []
        for number, document in enumerate(answer.gone):
            if self._live(document) is None:
                continue
            try:
                found = self._system.fetch(document)
            except SourceUnavailable:
                if number == 0:
                    raise  # nothing is confirmed: all of it is asked again
                back += [Touched(d) for d in answer.gone[number:] if self._live(d) is not None]
                break  # the rest is looked for like anything else: what was confirmed stands
            if isinstance(found, Absent):
                gone += self._with_children(document, found.reason)
            else:
                back.append(Touched(document))
        look.gone += gone
        look.watched = bool(gone)
        return back

    def _access(self, look: Look) -> None:
        """Who may read, where that changed."""
        before = (self._readers, self._undecided, self._closed)
        problems, alarms = self._ask_readers()
        if (self._readers, self._undecided, self._closed) != before:
            look.memberships, look.undecided = list(self._readers or ()), self._undecided
            self._owed, self._due.poll = True, 0.0  # what left a container before it was opened is asked for first
            look.problems.extend(problems)
            look.alarms.extend(alarms)

    def _ask_readers(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        began = self._clock.elapsed()
        found = self._system.readers()
        self._answered()
        self._readers, self._undecided, self._closed = found.memberships, found.undecided, found.alarms
        ended = self._clock.elapsed()  # a system of many groups takes its time: it has other things to answer too
        self._due.access = ended + max(self._rhythm.access_s, SHARE * (ended - began))
        return found.problems, found.alarms

    def _failed(self, error: SourceUnavailable, look: Look) -> None:
        """The system did not answer: said once; what it did answer before stands."""
        self._patience.failed(error)
        if self._failing is None:
            look.problems.append(f"the system cannot be asked: {error}")
        self._failing = f"the system cannot be asked: {error}"

    def _answered(self) -> None:
        self._patience.answered()
        self._failing = None

    # ------------------------------------------------------------ listing

    def _walk(self, look: Look) -> Iterator[Seen | Mark]:
        met: set[tuple[str, str]] = set()
        stale: list[Touched] = []
        for page in self._pages(look):
            if isinstance(page, Mark):
                yield page
                continue
            for listed in page:
                self._meet(listed, met, stale)
            look.listed = len(met)
            yield Mark.PAUSE
        self._walking = False
        if not look.complete:
            look.free = False
            yield from self._read(look, stale)
            return
        yield from self._lacking(look, met)
        self._gap = False
        yield Mark.SETTLE
        look.free, look.expected = False, len(stale)
        yield Mark.PAUSE  # reading costs the index something: whether it may begin is asked first
        yield from self._read(look, stale)

    def _pages(self, look: Look) -> Iterator[tuple[Listed, ...] | Mark]:
        """All pages, each asked for until it is answered or the system stays away."""
        at: str | None = None
        patience = Patience(self._clock)
        while True:
            try:
                page = self._system.listing(at)
            except SourceUnavailable as error:
                if not patience.worth_waiting(error):
                    look.complete = False
                    look.problems.append(f"the source stopped answering: {error}")
                    return
                yield from patience.pauses()
                continue
            patience.answered()
            if page.problems:
                look.complete = False
                look.problems.extend(page.problems)
            yield page.documents
            if page.next is None:
                return
            at = page.next

    def _meet(self, listed: Listed, met: set[tuple[str, str]], stale: list[Touched]) -> None:
        document = listed.document
        met.add((document.kind, document.id))
        touched = Touched(document, listed.revision)
        known = self._live(document)
        if known is None or (listed.revision is not None and self._differs(touched)) or known.doubted:
            stale.append(touched)
        if listed.children is None:
            met.update((c.kind, c.id) for c in self._children_of(document))
        for one in listed.children or ():
            self._meet(one, met, stale)

    def _lacking(self, look: Look, met: set[tuple[str, str]]) -> Iterator[Mark]:
        """Known documents that were not met, and were known before it began: each is looked for by itself, unless they
        are suspiciously many."""
        live = 0
        lacking: list[DocumentRef] = []
        for document, known in self._states():
            if known.deleted:
                continue
            live += 1
            old = max(known.content_version, known.access_version) < look.began
            if old and (document.kind, document.id) not in met:
                lacking.append(document)
        if self._guard.suspicious(len(lacking), live):
            look.missing += [SourceDeletion(d) for d in lacking]
            return
        for document in lacking:
            try:
                answer = yield from self._fetched(document)
            except SourceUnavailable as error:
                if not self._speaks():
                    raise
                look.problems.append(f"{document.kind} {document.id} cannot be looked for: {error}")
                look.missing.append(SourceDeletion(document))  # hidden, not deleted
                continue
            if isinstance(answer, Absent):
                look.gone.append(SourceDeletion(document, reason=answer.reason))
            elif isinstance(answer, Unreadable):
                look.missing.append(SourceDeletion(document))

    def _window(self, look: Look, since: int, until: int) -> Iterator[Seen | Mark]:
        wanted: list[Touched] = []
        for page in self._pages(look):
            if isinstance(page, Mark):
                yield page
                continue
            for listed in _flat(page):
                look.listed += 1
                if listed.updated_at is None or since <= listed.updated_at < until:
                    wanted.append(Touched(listed.document))
            yield Mark.PAUSE
        look.expected = len(wanted)
        yield from self._read(look, wanted)

    # ------------------------------------------------------------ reading

    def _read(self, look: Look, todo: list[Touched]) -> Iterator[Seen | Mark]:
        """Read documents. Where the system stays away, the rest is left to a later look, and the cursor with it."""
        for number, one in enumerate(todo):
            try:
                answer = yield from self._fetched(one.document)
            except SourceUnavailable as error:
                if self._speaks():
                    yield from self._not_given(look, one, error)
                    continue
                self._backlog = _merged([*todo[number:], *self._backlog])
                look.position, look.whole = None, False
                self._failed(error, look)
                break
            if isinstance(answer, Fetched):
                yield from self._there(look, one, answer)
            elif isinstance(answer, Absent):
                yield from self._not_found(look, one.document, answer.reason)
            else:
                self._doubts.pop(one.document, None)
                yield from self._hidden(one.document, answer.reason)
        if look.gone or look.missing:
            yield Mark.SETTLE

    def _fetched(self, document: DocumentRef) -> Generator[Mark, None, Answer]:
        """Ask until there is an answer. Raises SourceUnavailable where none comes."""
        patience = Patience(self._clock)
        while True:
            try:
                answer = self._system.fetch(document)
            except SourceUnavailable as error:
                self._failing = f"the system cannot be asked: {error}"
                if not patience.worth_waiting(error):
                    raise
                yield from patience.pauses()
                continue
            self._failing = None
            return answer

    def _speaks(self) -> bool:
        """Whether the system answers at all: then what it did not give is the fault of one document."""
        try:
            self._system.changes(self._cursor or self._system.start())
        except SourceUnavailable:
            return False
        return True

    def _not_given(self, look: Look, touched: Touched, error: SourceUnavailable) -> Iterator[Seen]:
        """One document that cannot be had: something happened to it and nobody knows what, so it is hidden."""
        self._failing = None
        look.problems.append(f"{touched.document.kind} {touched.document.id} cannot be read: {error}")
        self._stuck[touched] = self._clock.elapsed() + RETRY_S
        yield from self._hidden(touched.document, "the source fails to give it")

    def _there(self, look: Look, touched: Touched, answer: Fetched) -> Iterator[Seen | Mark]:
        document = answer.document.document
        self._doubts.pop(document, None)
        self._adopt(document)
        seen = answer.document
        look.problems.extend(answer.problems)
        yield replace(seen, redacted=True) if touched.redacted else seen
        named = {c.document for c in answer.children}
        look.gone += [
            SourceDeletion(d, reason="no longer part of its document")
            for d in self._children_of(document)
            if d not in named and self._live(d) is not None
        ]
        for child in answer.children:  # what its readers lose goes before anything is asked again
            if (narrower := self._narrower(child)) is not None:
                yield SourceAccess(child.document, rule=narrower)
        for child in answer.children:
            self._adopt(child.document)
            if self._child_differs(child):
                yield from self._read(look, [Touched(child.document)])

    def _not_found(self, look: Look, document: DocumentRef, reason: str) -> Iterator[Seen]:
        """Hidden at once, deleted at a second look."""
        known = self._live(document)
        if known is None:
            self._doubts.pop(document, None)
            return
        if document in self._doubts or known.doubted:
            look.watched = True
            look.gone += self._with_children(document, reason)
            return
        self._doubts[document] = self._clock.elapsed() + self._rhythm.second_look_s
        yield from self._hidden(document, reason)

    def _hidden(self, document: DocumentRef, reason: str) -> Iterator[Seen]:
        for one in (document, *self._children_of(document)):
            if self._live(one) is not None:
                yield SourceHidden(one, reason)

    def _with_children(self, document: DocumentRef, reason: str) -> list[SourceDeletion]:
        all_ = (document, *self._children_of(document))
        return [
            SourceDeletion(d, reason=reason, updated_at=self._clock.now()) for d in all_ if self._live(d) is not None
        ]

    # ------------------------------------------------------------ what is known

    def _live(self, document: DocumentRef) -> Known | None:
        known = self._known(document)
        return None if known is None or known.deleted else known

    def _differs(self, touched: Touched) -> bool:
        """Whether it is to be read: an overlap repeats much that is known."""
        known = self._live(touched.document)
        if known is None or touched.redacted or touched.revision is None or known.doubted:
            return True
        return known.revision != touched.revision

    def _child_differs(self, child: Child) -> bool:
        known = self._live(child.document)
        if known is None or known.rule is None or known.revision != child.revision or known.doubted:
            return True
        return rule_hash(known.rule) != rule_hash(child.rule)

    def _narrower(self, child: Child) -> AccessRule | None:
        """What may be said of a child's readers before it is read: only what takes away."""
        known = self._live(child.document)
        if known is None or known.rule is None or is_within(known.rule, child.rule):
            return None
        if is_within(child.rule, known.rule):
            return child.rule
        return AccessRule(
            clauses=(*known.rule.clauses, *child.rule.clauses),
            deny=tuple(dict.fromkeys((*known.rule.deny, *child.rule.deny))),
        )

    def _adopt(self, document: DocumentRef) -> None:
        parent = parent_of(document, self._system.capabilities)
        if parent is not None:
            self._children.setdefault((parent.kind, parent.id), set()).add(document)

    def _children_of(self, document: DocumentRef) -> list[DocumentRef]:
        return sorted(self._children.get((document.kind, document.id), ()), key=lambda d: (d.kind, d.id))


def _flat(page: Iterable[Listed]) -> Iterator[Listed]:
    for listed in page:
        yield listed
        yield from listed.children or ()


def _merged(touched: Iterable[Touched]) -> list[Touched]:
    """One for each document: the newest, withdrawn where any of them says so."""
    found: dict[DocumentRef, Touched] = {}
    for one in touched:
        before = found.pop(one.document, None)
        if before is not None and before.redacted:
            one = replace(one, redacted=True)
        found[one.document] = one
    return list(found.values())
