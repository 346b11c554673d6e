"""The owner's ledger: what the log says of a source, and which events a new observation adds to it.

Pure but for the body store. Versions come from one clock per source, ``max(last + 1, now in µs)``. Nothing changed
means no event. States change when a change is made, before it is on the log: when appending fails, the ledger is in
doubt and must be built again from the log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from pipeline.clock import Clock
from pipeline.errors import Crash, DocumentError
from pipeline.ports import (
    Observation,
    Record,
    SourceAccess,
    SourceDeletion,
    SourceDocument,
    SourceMembership,
)
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import AccessEvent, Change, Refusal
from pipeline.sources.compare import Verdict, compare, compare_rule, content_event
from pipeline.sources.states import QUARANTINE, HoldName, Known, RulePool, hold_name
from schemas.documents import PrincipalPart
from schemas.events import (
    AccessSet,
    AccessTombstone,
    ContentDeleted,
    ContentUpserted,
    DocumentState,
    HoldChanged,
    MembershipSet,
    Priority,
    Quarantine,
    SourceCursor,
    SourceFacts,
)
from schemas.keys import DocumentRef

T = TypeVar("T", bound=BaseModel)
FORGET_DELETED_US = 90 * 24 * 3600 * 1_000_000
"""How long a deleted document is remembered: as long as tombstones."""
DENY = "#deny"
"""How the names of the sets end whose members are turned away (``schemas.access.deny_audience``)."""


class Ledger:
    """All that one owner knows of its source. Used by one thread."""

    def __init__(self, tenant: str, source: str, clock: Clock, bodies: BodyPlacer) -> None:
        self.tenant = tenant
        self.source = source
        self.last_version = 0
        self.cursors: dict[str, SourceCursor] = {}
        self.members: dict[str, PrincipalPart] = {}
        self._clock = clock
        self._bodies = bodies
        self._documents: dict[tuple[str, str], Known] = {}
        self._rules = RulePool()

    # ------------------------------------------------------------ reading the log

    def load_cursor(self, record: Record) -> None:
        """Take over a record of ``cursors``; those of other sources are passed by.

        Raises Crash where it cannot be read: an owner that does not know its versions must not give out new ones.
        """
        parts = _key_parts(record)
        if parts[:2] != [self.tenant, self.source]:
            return
        if record.value is None:
            if len(parts) == 5:
                self._documents.pop((parts[3], parts[4]), None)
            elif len(parts) == 4:
                self.cursors.pop(parts[3], None)
            return
        if parts[2] == "cursor":
            cursor = _read(SourceCursor, record)
            self.cursors[cursor.stream] = cursor
            self.last_version = max(self.last_version, cursor.last_version)
            return
        state = _read(DocumentState, record)
        self.last_version = max(self.last_version, state.content_version, state.access_version)
        self._documents[(state.document.kind, state.document.id)] = self._rules.from_state(state)

    def load_membership(self, record: Record) -> None:
        """Take over a record of ``membership`` that this source wrote. Raises Crash where it cannot be read."""
        parts = _key_parts(record)
        if len(parts) != 3 or [parts[0], parts[2]] != [self.tenant, self.source]:
            return
        if record.value is None:
            self.members.pop(parts[1], None)
            return
        event = _read(MembershipSet, record)
        self.last_version = max(self.last_version, event.version)
        self.members[event.principal] = PrincipalPart(
            parents=event.parents, until=event.until, removed=event.removed, version=event.version
        )

    def expired(self) -> list[DocumentRef]:
        """Deleted documents whose memory has reached its age; they are forgotten here."""
        oldest = self._clock.now() - FORGET_DELETED_US
        gone = [k for k, s in self._documents.items() if s.deleted and s.content_version < oldest]
        for key in gone:
            del self._documents[key]
        return [self._ref(*key) for key in gone]

    # ------------------------------------------------------------ what is known

    def state(self, document: DocumentRef) -> Known | None:
        """A copy of what is known of a document."""
        known = self._documents.get((document.kind, document.id))
        return known.copy() if known is not None else None

    def states(self) -> Iterator[tuple[DocumentRef, Known]]:
        """All known documents, deleted ones too. The states must not be changed."""
        for (kind, id_), known in self._documents.items():
            yield self._ref(kind, id_), known

    def live(self) -> int:
        """Number of documents that are not deleted (from any thread)."""
        return sum(not s.deleted for s in list(self._documents.values()))

    def doubt(self) -> None:
        """Forget which revisions were read: every document is read again when it is met. Texts and rules stay known."""
        for known in self._documents.values():
            known.revision = None

    def next_version(self) -> int:
        """The next version of this source."""
        self.last_version = max(self.last_version + 1, self._clock.now())
        return self.last_version

    def cursor(self, *, polled_at: int, pending: bool, position: str = "", stream: str = "changes") -> SourceCursor:
        """The cursor as it is after everything planned so far."""
        cursor = SourceCursor(
            tenant=self.tenant,
            source=self.source,
            stream=stream,
            position=position,
            last_version=self.last_version,
            polled_at=polled_at,
            pending=pending,
        )
        self.cursors[stream] = cursor
        return cursor

    # ------------------------------------------------------------ observations

    def observe(self, seen: Observation, *, priority: Priority = "live", force: bool = False) -> list[Change]:
        """The changes that an observation makes, usually one, none where nothing changed.

        ``force`` publishes unchanged content again. Raises BusUnavailable where a body cannot be stored.
        """
        if isinstance(seen, SourceDocument):
            return self.document(seen, priority=priority, force=force)
        if isinstance(seen, SourceDeletion):
            return self.deletion(seen)
        if isinstance(seen, SourceAccess):
            return self.access(seen)
        return self.memberships([seen])

    def document(
        self, seen: SourceDocument, *, priority: Priority = "live", force: bool = False, restate: bool = False
    ) -> list[Change]:
        """A document as it is now: content, rule, attributes. Its rule is None where the source leaves it as it was.

        ``force`` publishes unchanged content again, ``restate`` the unchanged rule too.
        """
        document = seen.document
        known = self._documents.get((document.kind, document.id))
        verdict = compare(seen, known, force=force)
        if verdict.nothing:
            if known is not None:  # only where it stands: nothing that is worth an event
                known.path, known.revision = seen.path, seen.revision
            return []
        if verdict.urgent and verdict.republish and self._bodies.stored(seen.body):
            # Storing a large body takes time, or fails, and a revocation must not wait for that.
            return self._rule_first(seen, known or Known(), verdict)
        old = known or Known()
        new_rule = verdict.new_rule or restate
        access_version = self.next_version() if new_rule else old.access_version
        content_version = self.next_version() if verdict.republish else old.content_version
        state = Known(
            content_version=content_version,
            access_version=access_version,
            not_before=content_version if verdict.redacts else old.not_before,
            content_hash=verdict.content_hash,
            attributes_hash=verdict.attributes_hash,
            rule=self._rules.shared(verdict.rule),
            holds=tuple(h for h in old.holds if h != QUARANTINE),
            body_path=old.body_path,
            path=seen.path,
            revision=seen.revision,
        )
        access: list[AccessEvent] = []
        if new_rule:
            access.append(self._access_set(document, state, verdict, seen.updated_at, priority))
        if verdict.held:
            access.append(self._hold(document, active=False, reason="seen again at the source"))
        content, refusal = self._content(seen, state, priority) if verdict.republish else (None, None)
        if content is not None:
            state.body_path = getattr(content.body, "path", None)
        self._documents[(document.kind, document.id)] = state
        return [
            Change(
                document,
                access=tuple(access),
                content=(content,) if content is not None else (),
                state=state.to_state(document),
                urgent=verdict.urgent,
                refusal=refusal,
                replaces=content is not None and not verdict.fresh and not (force and verdict.same_text),
                verdict=verdict,
            )
        ]

    def _rule_first(self, seen: SourceDocument, old: Known, verdict: Verdict) -> list[Change]:
        """The new rule alone, promising content that the next observation of the same document publishes."""
        state = old.copy()
        state.access_version, state.content_version = self.next_version(), self.next_version()
        state.not_before = state.content_version if verdict.redacts else old.not_before
        state.rule = self._rules.shared(verdict.rule)
        state.attributes_hash = None  # differs from any, so that the content follows
        self._documents[(seen.document.kind, seen.document.id)] = state
        event = self._access_set(seen.document, state, verdict, seen.updated_at, "live")
        after = state.to_state(seen.document)
        return [Change(seen.document, access=(event,), state=after, urgent=True, again=True, verdict=verdict)]

    def deletion(self, seen: SourceDeletion, *, force: bool = False) -> list[Change]:
        """A document that is gone. One never seen gets a tombstone too: its creation may come late.

        ``force`` says it again of one that is deleted already.
        """
        document = seen.document
        known = self._documents.get((document.kind, document.id))
        if known is not None and known.deleted and not force:
            return []
        old = known.copy() if known is not None else Known()
        now = self._clock.now()
        access_version, content_version = self.next_version(), self.next_version()
        tombstone = AccessTombstone(
            document=document,
            version=access_version,
            not_before=access_version,
            observed_at=now,
            reason=seen.reason,
            source_updated_at=seen.updated_at,
        )
        deleted = ContentDeleted(
            document=document,
            version=content_version,
            access_version=access_version,
            observed_at=now,
            reason=seen.reason,
            source_facts=SourceFacts(updated_at=seen.updated_at),
        )
        state = Known(
            content_version=content_version,
            access_version=access_version,
            not_before=access_version,
            deleted=True,
            content_hash=old.content_hash,
            holds=old.holds,
            path=old.path,
            revision=old.revision,
        )
        self._documents[(document.kind, document.id)] = state
        return [
            Change(
                document,
                access=(tombstone,),
                content=(deleted,),
                state=state.to_state(document),
                urgent=True,
                drop_body=old.body_path,
            )
        ]

    def access(self, seen: SourceAccess) -> list[Change]:
        """A rule alone. It stands for the newest content that this source gave; a deleted document has none."""
        document = seen.document
        known = self._documents.get((document.kind, document.id)) or Known()
        verdict = compare_rule(seen.rule, known)
        if known.deleted or not verdict.new_rule:
            return []
        state = known.copy()
        state.access_version = self.next_version()
        state.rule = self._rules.shared(verdict.rule)
        self._documents[(document.kind, document.id)] = state
        event = self._access_set(document, state, verdict, seen.updated_at, "live")
        return [Change(document, access=(event,), state=state.to_state(document), urgent=verdict.urgent)]

    def memberships(
        self,
        seen: Iterable[SourceMembership],
        *,
        whole: bool = False,
        gains: bool = True,
        undecided: frozenset[str] = frozenset(),
    ) -> list[Change]:
        """Direct parents of principals; with ``whole`` the principals that are not named have ended.

        What takes something away comes first. A parent that leads to a ``#deny`` takes away by being gained. Without
        ``gains`` that is all: what gives is left to a later call. Who is in an ``undecided`` parent stays in it, and an
        ``undecided`` principal does not end. An end that is nearer than before takes away, a later one gives.
        """
        wanted = {s.principal: _part(s) for s in seen}
        if whole:
            live = {p for p, part in self.members.items() if not part.removed}
            ended = sorted(live - set(wanted) - undecided)
            wanted.update({p: PrincipalPart(removed=True, version=0) for p in ended})
        denying = _Denying(wanted, self.members, self._clock.now())
        losing: list[str] = []
        gaining: list[str] = []
        for principal, part in list(wanted.items()):
            known = self.members.get(principal)
            before, after = set(known.parents) if known else set(), set(part.parents)
            if undecided & before - after and not part.removed:
                after |= undecided & before
                part = wanted[principal] = _with_parents(part, after, known)
            denied = {p for p in after - before if denying(p)}
            if not gains and not part.removed:
                after = (after & before) | denied | {p for p in before if p.endswith(DENY)}
                if (known is None or known.removed) and (principal.startswith("user:") or not after):
                    continue  # nobody so far, and being somebody is a gain
                part = wanted[principal] = _losing_ends(_with_parents(part, after, known), known, denying)
            if known is not None and _says(known) == _says(part):
                continue
            loses = part.removed or bool(before - after) or bool(denied) or _ends_take(part, known, denying)
            (losing if loses else gaining).append(principal)
        changes = []
        for principal in losing + gaining:
            part = wanted[principal].model_copy(update={"version": self.next_version()})
            self.members[principal] = part
            event = MembershipSet(
                tenant=self.tenant,
                principal=principal,
                parents=part.parents,
                until=part.until,
                removed=part.removed,
                version=part.version,
                observed_at=self._clock.now(),
                source=self.source,
            )
            changes.append(Change(membership=(event,), urgent=principal in losing))
        return changes

    def differing(self, seen: Iterable[SourceMembership], undecided: frozenset[str] = frozenset()) -> int:
        """How many principals ``memberships`` with the whole state would speak of. Nothing changes."""
        before = dict(self.members)
        try:
            return len(self.memberships(seen, whole=True, undecided=undecided))
        finally:
            self.members = before

    def hold(
        self,
        document: DocumentRef,
        *,
        active: bool,
        reason: str,
        name: HoldName = QUARANTINE,
        quarantine: Quarantine | None = None,
    ) -> list[Change]:
        """Lay on or lift a hold; nothing where the quarantine is so already, or the document is unknown.

        ``quarantine`` says why it is laid on. A document that was unreadable and is lacking now counts as lacking.
        """
        known = self._documents.get((document.kind, document.id))
        if known is None:
            return []
        standing = name == QUARANTINE and (name in known.holds) == active
        lacking = quarantine is not None and quarantine.absent
        if standing and not (active and lacking and (known.quarantine is None or not known.quarantine.absent)):
            return []
        state = known.copy()
        others = tuple(h for h in known.holds if h != name)
        state.holds = (*others, name) if active else others
        if name == QUARANTINE:
            state.quarantine = quarantine if active else None
        self._documents[(document.kind, document.id)] = state
        event = self._hold(document, active=active, reason=reason, name=name)
        access = () if standing else (event,)
        return [Change(document, access=access, state=state.to_state(document), urgent=True)]

    def overrule(self, document: DocumentRef, reason: str) -> list[Change]:
        """Lift the quarantine of a document although it is still missing: it is not laid on again for that."""
        known = self._documents.get((document.kind, document.id))
        cause = known.quarantine if known is not None else None
        changes = self.hold(document, active=False, reason=reason)
        if changes and cause is not None:
            state = self._documents[(document.kind, document.id)]
            state.quarantine = cause.model_copy(update={"overruled": True})
            changes = [replace(changes[0], state=state.to_state(document))]
        return changes

    def restate_holds(self, document: DocumentRef) -> list[Change]:
        """The holds that stand, once more."""
        known = self._documents.get((document.kind, document.id))
        if known is None or known.deleted or not known.holds:
            return []
        events = tuple(
            self._hold(document, active=True, reason="said again by request", name=hold_name(name))
            for name in known.holds
        )
        return [Change(document, access=events, state=known.to_state(document), urgent=True)]

    # ------------------------------------------------------------ parts of events

    def _ref(self, kind: str, id_: str) -> DocumentRef:
        return DocumentRef(tenant=self.tenant, source=self.source, kind=kind, id=id_)

    def _access_set(
        self, document: DocumentRef, state: Known, verdict: Verdict, updated_at: int | None, priority: Priority
    ) -> AccessSet:
        return AccessSet(
            document=document,
            version=state.access_version,
            content_version=state.content_version,
            not_before=state.not_before,
            rule=verdict.rule,
            observed_at=self._clock.now(),
            source_updated_at=updated_at,
            priority="live" if verdict.urgent else priority,
        )

    def _hold(self, document: DocumentRef, *, active: bool, reason: str, name: HoldName = QUARANTINE) -> HoldChanged:
        return HoldChanged(
            document=document,
            hold=name,
            active=active,
            version=self.next_version(),
            observed_at=self._clock.now(),
            reason=reason,
        )

    def _content(
        self, seen: SourceDocument, state: Known, priority: Priority
    ) -> tuple[ContentUpserted | None, Refusal | None]:
        """The content event, or why there is none. Raises BusUnavailable where the body cannot be stored."""
        version = state.content_version
        limit = self._bodies.max_bytes
        if len(seen.body) > limit:
            reason = f"the body has more than bodies.max_bytes = {limit} bytes; shorten it or raise the limit"
            return None, Refusal(seen.document, version, "too_large", reason)
        try:
            event = content_event(seen, state, priority, self._clock.now())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "document"
            return None, Refusal(seen.document, version, "invalid", f"{field}: {first['msg']}"[:500])
        try:
            body = self._bodies.place(seen.document, version, seen.body)
        except DocumentError as error:
            return None, Refusal(seen.document, version, error.kind, error.reason)
        return event.model_copy(update={"body": body}), None


class _Denying:
    """Whether being in a group or audience denies something: it is a deny set, or leads to one at ``now``."""

    def __init__(self, wanted: Mapping[str, PrincipalPart], known: Mapping[str, PrincipalPart], now: int) -> None:
        self._wanted, self._known, self._now = wanted, known, now
        self._found: dict[str, bool] = {}

    def __call__(self, principal: str) -> bool:
        if principal not in self._found:
            self._found[principal] = self._leads(principal)
        return self._found[principal]

    def _leads(self, principal: str) -> bool:
        seen, todo = {principal}, [principal]
        while todo:
            name = todo.pop()
            if name.endswith(DENY):
                return True
            part = self._wanted.get(name) or self._known.get(name)
            above = {p for p in part.parents if self._now < _end(part, p)} - seen if part is not None else set()
            seen.update(above)
            todo += above
        return False


def _part(seen: SourceMembership) -> PrincipalPart:
    parents = () if seen.removed else tuple(sorted(set(seen.parents)))
    until = {p: seen.until[p] for p in parents if p in seen.until}
    return PrincipalPart(parents=parents, until=until, removed=seen.removed, version=0)


def _says(part: PrincipalPart) -> tuple[tuple[str, ...], dict[str, int], bool]:
    return part.parents, part.until, part.removed


def _end(part: PrincipalPart, parent: str) -> float:
    return part.until.get(parent, math.inf)


def _with_parents(part: PrincipalPart, parents: set[str], known: PrincipalPart | None) -> PrincipalPart:
    """The part with these parents: those that it lacks are kept as they were known."""
    until = {p: end for p, end in part.until.items() if p in parents}
    if known is not None:
        until |= {p: end for p, end in known.until.items() if p in parents and p not in part.parents}
    return part.model_copy(update={"parents": tuple(sorted(parents)), "until": until})


def _losing_ends(part: PrincipalPart, known: PrincipalPart | None, denying: _Denying) -> PrincipalPart:
    """The part without the ends that give: the nearer of both counts, in what denies the later."""
    if known is None:
        return part
    ends = {p: _end(part, p) for p in part.parents}
    both = set(part.parents) & set(known.parents)
    ends |= {p: (max if denying(p) else min)(ends[p], _end(known, p)) for p in both}
    return part.model_copy(update={"until": {p: int(end) for p, end in ends.items() if end != math.inf}})


def _ends_take(part: PrincipalPart, known: PrincipalPart | None, denying: _Denying) -> bool:
    """Whether a membership that stays ends sooner, or one that denies later."""
    if known is None:
        return False
    both = set(part.parents) & set(known.parents)
    return any(_end(part, p) > _end(known, p) if denying(p) else _end(part, p) < _end(known, p) for p in both)


def _key_parts(record: Record) -> list[str]:
    try:
        parts = json.loads(record.key or "")
    except ValueError:
        return []
    return parts if isinstance(parts, list) and all(isinstance(p, str) for p in parts) else []


def _read(model: type[T], record: Record) -> T:
    try:
        return model.model_validate_json(record.value or b"")
    except ValidationError as error:
        where = f"{record.topic}[{record.partition}] at {record.offset}"
        raise Crash(f"the owner cannot read its own record in {where}; was it written by a newer release?") from error
