"""Sources that send whole changes in one order: what a change at the gateway's contract says, and looks made of them.

A change is what ``POST /v1/changes`` takes (``schemas.api_changes``). One that cannot be read never stops its
neighbours. What it may have taken away is taken away all the same (invariant 12): nobody may read a document whose
readers cannot be read, and one whose deletion cannot be read is hidden until it is sent again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipeline.clock import Clock
from pipeline.ports import Observation, SourceAccess, SourceDeletion, SourceDocument, SourceMembership
from pipeline.sources.connector import Look, Mark, Reach, Seen, SourceHidden
from schemas.access import AccessRule
from schemas.api_changes import AccessChange, AccessInput, Change, DeleteChange, MembershipChange, UpsertChange
from schemas.keys import DocumentRef

TOLD = 20
"""Problems that one look tells at most."""
_CHANGE: TypeAdapter[Change] = TypeAdapter(Change)


@dataclass
class Reading:
    """What one payload says. ``alarms``: a deletion, readers or a membership that could not be read."""

    seen: list[Seen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)


class Changes:
    """Reads changes of one source. Its tenant and name are filled in where they are absent; another is refused."""

    def __init__(self, tenant: str, source: str) -> None:
        self._tenant, self._source = tenant, source

    def read(self, payload: object, where: str, *, kind: str | None = None, id_: str | None = None) -> Reading:
        """A parsed payload: a change or an array of them. ``kind`` and ``id_`` are taken where it names none.

        ``where`` names its place in what is told. Values of the payload are never told.
        """
        found = Reading()
        if payload == []:
            found.problems.append(f"{where}: the array holds no change")
        several = isinstance(payload, list)
        for number, item in enumerate(payload if isinstance(payload, list) else [payload], 1):
            place = f"{where}, change {number}" if several else where
            if isinstance(item, dict):
                self._one(item, place, {"kind": kind, "id": id_}, found)
            else:
                found.problems.append(f"{place}: a change is a JSON object")
        return found

    def _one(self, item: dict[str, Any], place: str, defaults: dict[str, str | None], found: Reading) -> None:
        given = {name: value for name, value in item.items() if value is not None or name not in ("tenant", "source")}
        for name, own in (("tenant", self._tenant), ("source", self._source)):
            if given.setdefault(name, own) != own:
                found.problems.append(f"{place}, field {name}: is not that of this source; leave it out")
                return
        if given.get("type") != "membership":
            given = {name: value for name, value in defaults.items() if value is not None} | given
        try:
            found.seen.append(observation(_CHANGE.validate_python(given), self._source))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            path = ".".join(str(part) for part in first["loc"] if part != given.get("type")) or "type"
            told = f"{place}, field {path}: {first['msg']}"[:500]
            taken = given.get("type") != "upsert" or "access" in path
            (found.alarms if taken else found.problems).append(told)
            if (rest := self._rest(given, told)) is not None:
                found.seen.append(rest)

    def _rest(self, given: dict[str, Any], told: str) -> Seen | None:
        """What holds of a change that cannot be read as a whole: its readers, or else that nobody may read for now."""
        kind = given.get("type")
        if kind == "membership" or (kind == "upsert" and given.get("access") is None):
            return None
        try:
            document = DocumentRef(
                tenant=self._tenant, source=self._source, kind=given.get("kind", "page"), id=given.get("id", "")
            )
        except ValidationError:
            return None
        if kind in ("upsert", "access"):
            try:
                rule = AccessInput.model_validate(given.get("access")).rule()
            except ValidationError:
                rule = AccessRule.nobody(f"its readers cannot be read: {told}")
            return SourceAccess(document, rule=rule)
        return SourceHidden(document, f"a change of it cannot be read: {told}"[:500])


class InOrder:
    """What connectors have in common whose source sends whole changes in one order.

    One look is handed over before the next is made: the owner puts a newer live look before an unfinished older one.
    """

    def __init__(self, clock: Clock, reach: Reach) -> None:
        self._clock, self._reach = clock, reach
        self._handing = False  # a look is not read to its end
        self._due = 0.0  # when to look (``Clock.elapsed``)
        self._wakeup = threading.Event()

    @property
    def watched(self) -> bool:
        """Silence proves nothing: each look says itself how complete it is."""
        return False

    @property
    def behind(self) -> bool:
        """Memberships come in one order with documents."""
        return False

    def watch(self) -> None:
        """Nothing to do: what is not read yet stays where it is."""

    def deleted(self, document: DocumentRef) -> None:
        """Nothing is kept of documents."""

    def held(self, document: DocumentRef) -> None:
        """Nothing is kept of documents."""

    def notify(self, document: DocumentRef | None) -> None:
        """Look at once (any thread)."""
        self._due = 0.0
        self.wake()

    def reach(self) -> Reach | None:
        """Questions that were asked, and failures."""
        return self._reach

    def wake(self) -> None:
        """Let a waiting ``changes`` return (any thread)."""
        self._wakeup.set()

    def _may_look(self, timeout: float) -> bool:
        """Whether it is time for another look, waiting at most ``timeout`` seconds for that."""
        if self._handing:
            self._pause(timeout)
            return False
        wait = self._due - self._clock.elapsed()
        if wait > 0:
            self._pause(min(wait, timeout))
        return wait <= 0 or self._due <= self._clock.elapsed()

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._wakeup.wait(seconds)
        self._wakeup.clear()


def observation(change: Change, source: str) -> Observation:
    """A change as what its source shows now. ``source`` where the change names none."""
    if isinstance(change, MembershipChange):
        return SourceMembership(change.tenant, change.principal, change.parents, change.removed, change.until)
    document = change.ref(source)
    if isinstance(change, DeleteChange):
        return SourceDeletion(document, change.reason or "deleted at the source", change.updated_at)
    if isinstance(change, AccessChange):
        return SourceAccess(document, rule=change.access.rule(), updated_at=change.updated_at)
    return _document(change, document)


def _document(change: UpsertChange, document: DocumentRef) -> SourceDocument:
    return SourceDocument(
        document=document,
        title=change.title,
        body=change.body(),
        content_type=change.content_type,
        rule=change.access.rule() if change.access is not None else None,
        url=change.url,
        path=change.path,
        language=change.language,
        product=change.product,
        effective_from=change.effective_from,
        effective_until=change.effective_until,
        revision=change.revision,
        updated_at=change.updated_at,
        redacted=change.redacted,
    )


def parsed(raw: str | bytes) -> object:
    """JSON as Python values. Raises ValueError, also for what is nested too deeply."""
    try:
        value: object = json.loads(raw)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


@dataclass(frozen=True)
class Step:
    """Something that a source says. ``document``: it may cost the index work. ``tell`` is asked when its turn comes."""

    document: bool
    tell: Callable[[], Iterable[Seen]]


def in_order(look: Look, steps: Iterable[Step]) -> Iterator[Seen | Mark]:
    """What the steps tell, in order. In a bulk look only documents wait for credit: ``look.free`` says what is next.

    The first step is taken from ``steps`` at once.
    """
    rest = iter(steps)
    first = next(rest, None)
    look.free = first is None or not first.document
    return _following(look, first, rest)


def _following(look: Look, step: Step | None, rest: Iterator[Step]) -> Iterator[Seen | Mark]:
    while step is not None:
        following = next(rest, None)
        was_free, look.free = look.free, following is None or not following.document
        yield from step.tell()
        if was_free and not look.free and look.bulk:
            yield Mark.PAUSE  # a document is next: whether it may is asked before it is taken
        step = following


def newest(seen: Iterable[Seen]) -> list[Seen]:
    """What a batch comes to: of each document and principal its last state, in the order of the last states.

    A batch that is interrupted is read again from its beginning. Told one by one, its older states would then bring
    back for a moment what its newer ones had taken away: a deleted document, a reader.
    """
    found: dict[int, Seen] = {}
    last: dict[object, int] = {}
    readers: dict[object, int] = {}  # told before a document that names none
    for number, one in enumerate(seen):
        key = one.principal if isinstance(one, SourceMembership) else one.document
        now: Seen | None = one
        if (at := last.get(key)) is not None:
            before = found[at]
            kept, now = _after(before, one)
            if not kept:
                del found[at]
            elif isinstance(before, SourceAccess) and isinstance(now, SourceDocument):
                readers[key] = at
            if key in readers and _settles(now):
                found.pop(readers.pop(key), None)
        if now is not None:
            found[number] = now
            last[key] = number
    return list(found.values())


def _after(before: Seen, now: Seen) -> tuple[bool, Seen | None]:
    """Two states of one document or principal: whether the earlier one stays, and what follows it."""
    if isinstance(now, SourceMembership | SourceDeletion):
        return isinstance(before, SourceDeletion), None if isinstance(before, SourceDeletion) else now
    if isinstance(now, SourceHidden) and isinstance(before, SourceDeletion):
        return True, None  # nothing is left to hide, and its readers stay gone
    if isinstance(now, SourceHidden) or isinstance(before, SourceHidden):
        return True, now
    if isinstance(before, SourceDeletion):
        return True, None if isinstance(now, SourceAccess) else now  # what is gone has no readers
    if isinstance(now, SourceDocument) and isinstance(before, SourceAccess):
        # Whether they are its readers depends on what stood before the batch: what is gone has none.
        return now.rule is None, now
    if isinstance(now, SourceDocument) and isinstance(before, SourceDocument):
        rule = now.rule if now.rule is not None else before.rule
        return False, replace(now, rule=rule, redacted=now.redacted or before.redacted)
    if isinstance(now, SourceAccess) and isinstance(before, SourceDocument):
        return False, replace(before, rule=now.rule)
    return False, now


def _settles(now: Seen | None) -> bool:
    """Whether readers told earlier in the batch do not count any more."""
    return isinstance(now, SourceDeletion) or (isinstance(now, SourceDocument | SourceAccess) and now.rule is not None)


def steps_of(seen: Iterable[Seen]) -> Iterator[Step]:
    """Observations that depend on nothing."""
    for one in seen:
        yield Step(isinstance(one, SourceDocument), lambda one=one: (one,))  # type: ignore[misc]


class Told:
    """Adds what is told to a look, up to a bound: a source that sends nothing but faults fills no memory."""

    def __init__(self, look: Look) -> None:
        self._look, self._count = look, 0

    def problem(self, text: str) -> None:
        """Something was passed by."""
        self._add(self._look.problems, text)

    def alarm(self, text: str) -> None:
        """Something that takes away could not be read."""
        self._add(self._look.alarms, text)

    def reading(self, reading: Reading) -> list[Seen]:
        """What a payload says; what is wrong with it is told."""
        for text in reading.problems:
            self.problem(text)
        for text in reading.alarms:
            self.alarm(text)
        return reading.seen

    def _add(self, to: list[str], text: str) -> None:
        if text in to:
            return
        self._count += 1
        if self._count <= TOLD:
            to.append(text)
        elif self._count == TOLD + 1:
            self._look.problems.append(f"more than {TOLD} faults in one look: the others are not told")
