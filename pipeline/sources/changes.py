"""What one observation becomes, and how such changes are cut into transactions (invariant 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from pipeline.ports import Outgoing
from pipeline.sources.compare import Verdict
from schemas.events import (
    AccessSet,
    AccessTombstone,
    ContentDeleted,
    ContentUpserted,
    DocumentState,
    HoldChanged,
    MembershipSet,
    SourceCursor,
)
from schemas.keys import DocumentRef, canonical_json, cursor_key, membership_key
from schemas.topics import Topic

AccessEvent = AccessSet | AccessTombstone | HoldChanged
ContentEvent = ContentUpserted | ContentDeleted


@dataclass(frozen=True)
class Refusal:
    """Why a document's content was not published. Its access was."""

    document: DocumentRef
    version: int
    kind: str
    reason: str


@dataclass(frozen=True)
class Change:
    """The events of one document or principal, which stay together in one transaction."""

    document: DocumentRef | None = None
    membership: tuple[MembershipSet, ...] = ()
    access: tuple[AccessEvent, ...] = ()
    content: tuple[ContentEvent, ...] = ()
    state: DocumentState | None = None
    urgent: bool = False  # takes something away: never waits for and never rides with others
    refusal: Refusal | None = None
    drop_body: str | None = None  # claim check to remove once this is committed
    again: bool = False  # observe the document once more when this is committed: its content follows
    replaces: bool = False  # an older text of the document stands until this content is indexed
    verdict: Verdict | None = None  # what an observed document differed in

    @property
    def size(self) -> int:
        """Number of records."""
        return len(self.membership) + len(self.access) + len(self.content) + (self.state is not None)

    def versions(self) -> list[int]:
        """Versions of its events; each is given out once, so they name the events of their source."""
        return [e.version for e in (*self.membership, *self.access, *self.content)]


@dataclass(frozen=True)
class Transaction:
    """Records in the order in which they are appended, and the changes they came from."""

    records: tuple[Outgoing, ...]
    changes: tuple[Change, ...]
    cursor: SourceCursor

    def versions(self) -> list[int | None]:
        """For each record the version of its event; None for states and cursor."""
        membership = [e.version for c in self.changes for e in c.membership]
        access = [e.version for c in self.changes for e in c.access]
        content = [e.version for c in self.changes for e in c.content]
        known = [*membership, *access, *content]
        return [*known, *[None] * (len(self.records) - len(known))]


@dataclass(frozen=True)
class Limits:
    """Bounds of one transaction: records (the cursor included) and bytes of their values."""

    events: int = 200
    urgent_events: int = 60
    bytes: int = 1_000_000


def source_partition_key(tenant: str, source: str) -> str:
    """Keeps all of a source's cursors and states in one partition, so that its owner reads just that one."""
    return canonical_json([tenant, source])


def _value(model: BaseModel) -> bytes:
    return model.model_dump_json(exclude_none=True).encode("utf-8")


def _access(event: AccessEvent) -> Outgoing:
    document = event.document
    key = document.hold_key(event.hold) if isinstance(event, HoldChanged) else document.key
    return Outgoing(Topic.ACCESS, key, _value(event), partition_key=document.key)


def membership_record(event: MembershipSet) -> Outgoing:
    """A membership event as it is appended: keyed by tenant, principal and source, placed by tenant and principal."""
    key = membership_key(event.tenant, event.principal, event.source)
    return Outgoing(Topic.MEMBERSHIP, key, _value(event), partition_key=membership_key(event.tenant, event.principal))


def state_record(state: DocumentState) -> Outgoing:
    """An owner's document state as it is appended."""
    document = state.document
    place = source_partition_key(document.tenant, document.source)
    return Outgoing(Topic.CURSORS, document.state_key(), _value(state), partition_key=place)


def forgotten_record(document: DocumentRef) -> Outgoing:
    """Ends the memory of a document that was deleted long ago."""
    place = source_partition_key(document.tenant, document.source)
    return Outgoing(Topic.CURSORS, document.state_key(), None, partition_key=place)


def cursor_record(cursor: SourceCursor) -> Outgoing:
    """A cursor as it is appended."""
    key = cursor_key(cursor.tenant, cursor.source, cursor.stream)
    place = source_partition_key(cursor.tenant, cursor.source)
    return Outgoing(Topic.CURSORS, key, _value(cursor), partition_key=place)


def ended_cursor_record(tenant: str, source: str, stream: str = "changes") -> Outgoing:
    """Ends a cursor: a source without one is complete up to no time, since nobody looks at it."""
    place = source_partition_key(tenant, source)
    return Outgoing(Topic.CURSORS, cursor_key(tenant, source, stream), None, partition_key=place)


def _records(changes: Sequence[Change]) -> tuple[list[Outgoing], list[Outgoing], list[Outgoing], list[Outgoing]]:
    membership = [membership_record(e) for c in changes for e in c.membership]
    access = [_access(e) for c in changes for e in c.access]
    content = [Outgoing(Topic.CONTENT, e.document.key, _value(e)) for c in changes for e in c.content]
    states = [state_record(c.state) for c in changes if c.state is not None]
    return membership, access, content, states


def _bytes(change: Change) -> int:
    return sum(len(r.value or b"") for part in _records([change]) for r in part)


def _groups(changes: Sequence[Change], events: int, size: int) -> Iterator[list[Change]]:
    """Consecutive changes that fit; one change alone may exceed the bounds, it is never cut."""
    group: list[Change] = []
    count = weight = 0
    for change in changes:
        heavy = _bytes(change)
        if group and (count + change.size > events - 1 or weight + heavy > size):
            yield group
            group, count, weight = [], 0, 0
        group.append(change)
        count, weight = count + change.size, weight + heavy
    if group:
        yield group


def _urgent_first(changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Split, keeping the order per document and principal: compaction keeps what was appended last, so versions must
    not cross."""
    urgent: list[Change] = []
    rest: list[Change] = []
    hurried: set[DocumentRef | str | None] = set()
    for change in reversed(changes):
        target = change.document if not change.membership else change.membership[0].principal
        if change.urgent:
            hurried.add(target)
        (urgent if target in hurried else rest).append(change)
    return urgent[::-1], rest[::-1]


def transactions(
    changes: Sequence[Change],
    cursor: Callable[[], SourceCursor],
    limits: Limits,
    last: Callable[[], SourceCursor] | None = None,
) -> Iterator[Transaction]:
    """Cut changes into transactions: what takes away first, memberships before documents; memberships that give last.

    A membership that gives must not be in force before the documents that it opens are as they were seen with it.

    ``cursor`` is asked once for each, when it is built; for the last of them ``last``, where it is given. The order
    inside: membership, access, content, states, cursor.
    """
    losses, gains = _urgent_first([c for c in changes if c.membership])
    urgent, rest = _urgent_first([c for c in changes if not c.membership])
    hurried = min(limits.urgent_events, limits.events)
    parts = ((losses, limits.events), (urgent, hurried), (rest, limits.events), (gains, limits.events))
    groups = [group for part, events in parts for group in _groups(part, events, limits.bytes)]
    for number, group in enumerate(groups, 1):
        end = last() if last is not None and number == len(groups) else cursor()
        ordered = [record for kind in _records(group) for record in kind]
        yield Transaction((*ordered, cursor_record(end)), tuple(group), end)
