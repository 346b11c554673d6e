"""The newest access and membership events, in memory: the overlay over the store's records.

A revocation counts as soon as it is on the log, and a stale replica of the store cannot undo it. Whatever cannot be
read closes its document or principal until the owner has said something readable under the same key again
(invariant 12).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pipeline.bus.codec import Undecodable, decode_access, decode_membership
from pipeline.bus.folding import part_of
from pipeline.ports import Record
from schemas.access import AccessRule
from schemas.documents import AccessRecord, PrincipalPart, PrincipalRecord
from schemas.events import AccessSet, AccessTombstone, HoldChanged, MembershipSet
from schemas.keys import DocumentRef
from schemas.topics import Topic

Invalidation = Callable[[str, str], None]  # tenant, principal


@dataclass(frozen=True)
class DocumentEntry:
    """What the tail knows of a document. ``closed`` holds the keys whose newest payload could not be read."""

    document: DocumentRef
    event: AccessSet | AccessTombstone | None = None
    not_before: int = 0
    holds: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    appended_at: int = 0
    partition: int = 0
    offset: int = -1


@dataclass(frozen=True)
class PrincipalEntry:
    """What the tail knows of a principal: by source the newest part; ``closed`` as above."""

    parts: Mapping[str, PrincipalPart] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    appended_at: int = 0
    partition: int = 0
    offset: int = -1


class Overlay:
    """Entries are immutable and replaced whole, so readers on other threads need no lock."""

    def __init__(self) -> None:
        self._documents: dict[str, DocumentEntry] = {}
        self._principals: dict[tuple[str, str], PrincipalEntry] = {}
        self._listeners: list[Invalidation] = []
        self._on_deletion: list[Callable[[str], None]] = []
        self._on_access: list[Callable[[str], None]] = []
        self._changes: dict[str, int] = {}
        self._cleared = 0
        self._lock = threading.Lock()
        self.undecodable = 0
        self.membership_changes = 0

    def subscribe(self, listener: Invalidation) -> None:
        """Call ``listener(tenant, principal)`` after each change of a principal, from the tail's thread."""
        self._listeners.append(listener)

    def on_deletion(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(document uid)`` after each deletion, from the tail's thread."""
        self._on_deletion.append(listener)

    def on_access(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(document uid)`` after each access event of a document, from the tail's thread; by then
        ``changes`` tells of it."""
        self._on_access.append(listener)

    # ------------------------------------------------------------ writing (one thread)

    def apply(self, record: Record) -> bool:
        """Take one record of ``access`` or ``membership``; false when it could not be understood."""
        with self._lock:
            if record.topic == Topic.ACCESS.value:
                return self._apply_access(record)
            if record.topic == Topic.MEMBERSHIP.value:
                return self._apply_membership(record)
        return True

    def _apply_access(self, record: Record) -> bool:
        event = decode_access(record)
        document = event.document
        if document is None:
            self.undecodable += 1
            self._cleared += 1  # whose it was nobody can tell
            return False
        key = record.key or document.key
        entry = self._documents.get(document.uid, DocumentEntry(document=document))
        entry = replace(entry, appended_at=record.timestamp, partition=record.partition, offset=record.offset)
        if isinstance(event, Undecodable):
            self.undecodable += 1
            entry = replace(entry, closed=entry.closed | {key})
        elif isinstance(event, HoldChanged):
            entry = _with_hold(entry, event, key)
        else:
            entry = _with_rule(entry, event, key)
        self._documents[document.uid] = entry
        # Counted once it can be seen: who read the count before may have missed it, who reads it later has not.
        self._changes[document.tenant] = self._changes.get(document.tenant, 0) + 1
        for listener in self._on_access:
            listener(document.uid)
        if isinstance(event, AccessTombstone):
            for listener in self._on_deletion:
                listener(document.uid)
        return not isinstance(event, Undecodable)

    def _apply_membership(self, record: Record) -> bool:
        event = decode_membership(record)
        name = event.principal if isinstance(event, Undecodable) else (event.tenant, event.principal)
        if name is None or record.key is None:
            self.undecodable += 1
            return False
        entry = replace(
            self._principals.get(name, PrincipalEntry()),
            appended_at=record.timestamp,
            partition=record.partition,
            offset=record.offset,
        )
        if isinstance(event, Undecodable):
            self.undecodable += 1
            entry = replace(entry, closed=entry.closed | {record.key})
        else:
            entry = _with_part(entry, event, record.key)
        self._principals[name] = entry
        self.membership_changes += 1
        for listener in self._listeners:
            listener(*name)
        return not isinstance(event, Undecodable)

    def prune(self, before: int, applied: Mapping[tuple[str, int], int]) -> int:
        """Forget entries appended before ``before`` (µs) that the store's lane has applied; how many went.

        ``applied`` maps (topic, partition) to the next offset to apply; what it does not cover stays.
        """
        access, membership = Topic.ACCESS.value, Topic.MEMBERSHIP.value

        def settled(topic: str, entry: DocumentEntry | PrincipalEntry) -> bool:
            return entry.appended_at < before and entry.offset < applied.get((topic, entry.partition), 0)

        with self._lock:
            documents = [u for u, d in self._documents.items() if settled(access, d)]
            principals = [n for n, p in self._principals.items() if settled(membership, p)]
            for uid in documents:
                del self._documents[uid]
            for name in principals:
                del self._principals[name]
        return len(documents) + len(principals)

    def clear(self) -> None:
        """Forget everything (the tail starts again); cached closures of changed principals go with it."""
        with self._lock:
            names = list(self._principals)
            self._documents.clear()
            self._principals.clear()
            self._cleared += 1
        for name in names:
            for listener in self._listeners:
                listener(*name)

    # ------------------------------------------------------------ reading (any thread)

    def __len__(self) -> int:
        return len(self._documents) + len(self._principals)

    def changes(self, tenant: str) -> tuple[int, int]:
        """Another value after each access event of the tenant, and after one that names nobody."""
        return self._changes.get(tenant, 0), self._cleared

    def access(self, uid: str, stored: AccessRecord | None) -> AccessRecord | None:
        """The newer of the store's record and the tail; None where neither has one: no record, no access."""
        entry = self._documents.get(uid)
        return stored if entry is None else merge_access(stored, entry)

    def principal(self, tenant: str, principal: str, stored: PrincipalRecord | None) -> PrincipalRecord | None:
        """The newer of the store's record and the tail; an unreadable payload is a removed principal."""
        entry = self._principals.get((tenant, principal))
        if entry is None:
            return stored
        if entry.closed:
            return PrincipalRecord(tenant=tenant, principal=principal, parents=(), removed=True, version=0)
        parts = dict(entry.parts)
        return stored.merged(parts) if stored is not None else PrincipalRecord.of(tenant, principal, parts)


def merge_access(stored: AccessRecord | None, entry: DocumentEntry) -> AccessRecord | None:
    """The record that admission uses: newest rule or tombstone, newest state of each hold, highest ``not_before``."""
    event = entry.event
    newer = event is not None and (stored is None or event.version >= stored.version)
    if stored is None and event is None and not entry.closed:
        return None  # a hold alone is no access
    base = stored if stored is not None else AccessRecord(
        document=entry.document, version=0, rule=AccessRule.nobody("no readable rule yet")
    )  # fmt: skip
    changes: dict[str, object] = {"not_before": max(base.not_before, entry.not_before)}
    if newer and isinstance(event, AccessTombstone):
        changes |= {"version": event.version, "tombstone": True}
    elif newer and isinstance(event, AccessSet):
        same_version = stored is not None and stored.version == event.version
        changes |= {
            "version": event.version,
            "content_version": event.content_version,
            "tombstone": base.tombstone and same_version,
            "rule": event.rule,
        }
    if entry.holds:
        changes |= _merged_holds(base, entry.holds)
    if entry.closed:
        changes["rule"] = AccessRule.nobody("the newest access payload could not be read")
    return base.model_copy(update=changes)


def _merged_holds(base: AccessRecord, tail: Mapping[str, tuple[int, bool]]) -> dict[str, object]:
    active, lifted = dict(base.holds), dict(base.lifted)
    for name, (version, is_active) in tail.items():
        if version < max(active.get(name, -1), lifted.get(name, -1)):
            continue
        active.pop(name, None)
        lifted.pop(name, None)
        (active if is_active else lifted)[name] = version
    return {"holds": active, "lifted": lifted}


def _with_rule(entry: DocumentEntry, event: AccessSet | AccessTombstone, key: str) -> DocumentEntry:
    not_before = max(entry.not_before, event.not_before)
    if entry.event is not None and event.version < entry.event.version:
        return replace(entry, not_before=not_before)
    return replace(entry, event=event, not_before=not_before, closed=entry.closed - {key})


def _with_hold(entry: DocumentEntry, event: HoldChanged, key: str) -> DocumentEntry:
    known = entry.holds.get(event.hold)
    if known is not None and event.version < known[0]:
        return entry
    holds = {**entry.holds, event.hold: (event.version, event.active)}
    return replace(entry, holds=holds, closed=entry.closed - {key})


def _with_part(entry: PrincipalEntry, event: MembershipSet, key: str) -> PrincipalEntry:
    source = event.source or ""
    known = entry.parts.get(source)
    if known is not None and event.version < known.version:
        return entry
    return replace(entry, parts={**entry.parts, source: part_of(event)}, closed=entry.closed - {key})
