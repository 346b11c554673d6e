"""The two record collections of the access lane: known, folded, written, and written again after a recheck."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from consumers.assignment import Assignment
from consumers.lease import EndedLate, JointLease, Rechecks, principal_document
from pipeline.bus.codec import (
    AccessEventModel,
    Undecodable,
    decode_access,
    decode_membership,
    membership_parts,
)
from pipeline.bus.folding import Effect, fold_access, fold_membership
from pipeline.clock import Clock
from pipeline.errors import Reject
from pipeline.ports import Deadline, Record
from schemas.documents import AccessRecord, PrincipalRecord
from schemas.events import AccessSet, AccessTombstone, HoldChanged, MembershipSet
from schemas.keys import DocumentRef
from schemas.topics import Topic

CACHED = 50_000

Event = AccessEventModel | MembershipSet | Undecodable
Principal = tuple[str, str]  # tenant, principal
T = TypeVar("T", DocumentRef, Principal)
V = TypeVar("V", AccessRecord, PrincipalRecord)

Wanted = Callable[[str | None], bool]
Scan = Callable[[Topic, int, Wanted], Iterable[Record]]
"""(topic, partition, wanted) -> records of wanted keys that the partition holds, in order. Raises BusUnavailable."""


class AccessStore(Protocol):
    """The part of ``pipeline.ports.IndexStore`` that this lane needs."""

    def read_access(self, tenant: str, uids: Sequence[str]) -> dict[str, AccessRecord]: ...
    def write_access(self, tenant: str, records: Sequence[AccessRecord], deadline: Deadline | None = None) -> None: ...
    def read_principals(self, tenant: str, principals: Sequence[str]) -> dict[str, PrincipalRecord]: ...
    def write_principals(
        self, tenant: str, records: Sequence[PrincipalRecord], deadline: Deadline | None = None
    ) -> None: ...


class Newest(Generic[T, V]):
    """Newest known records of one partition, the least recently used ones dropped.

    Only the partition's owner writes them, so what is here equals what the store holds.
    """

    def __init__(self, limit: int = CACHED) -> None:
        self._limit = limit
        self._records: OrderedDict[T, V] = OrderedDict()

    def get(self, target: T) -> V | None:
        """The record, or None where it is not known (it may still be in the store)."""
        record = self._records.get(target)
        if record is not None:
            self._records.move_to_end(target)
        return record

    def put(self, target: T, record: V) -> None:
        """Remember an acknowledged or just read record."""
        self._records[target] = record
        self._records.move_to_end(target)
        while len(self._records) > self._limit:
            self._records.popitem(last=False)

    def forget(self, target: T) -> None:
        """The store may hold something else."""
        self._records.pop(target, None)


class Side(ABC, Generic[T, V]):
    """One of the two collections."""

    topic: Topic

    def __init__(self, store: AccessStore, rechecks: Rechecks, scan: Scan, clock: Clock) -> None:
        self._store = store
        self._rechecks = rechecks
        self._scan = scan
        self._clock = clock
        self._caches: dict[Assignment, Newest[T, V]] = {}

    # what differs between the two

    @abstractmethod
    def tenant(self, target: T) -> str:
        """Tenant of a target."""

    @abstractmethod
    def target_of(self, key: str | None) -> T | None:
        """The target that a record of this Kafka key speaks of."""

    @abstractmethod
    def _read(self, tenant: str, targets: Sequence[T]) -> dict[T, V]: ...
    @abstractmethod
    def _write(self, tenant: str, records: Sequence[V], deadline: Deadline) -> None: ...
    @abstractmethod
    def _fold(self, record: V | None, event: Event, target: T, offset: int) -> tuple[V, Effect, bool]: ...
    @abstractmethod
    def _decode(self, record: Record) -> Event: ...
    @abstractmethod
    def _stamped(self, record: V, now: int, attempt: str) -> V: ...
    @abstractmethod
    def _document(self, target: T) -> DocumentRef:
        """What a recheck names: the document, or the principal's stand-in."""

    # what is the same

    def opened(self, assignment: Assignment) -> None:
        """A partition begins."""
        self._caches[assignment] = Newest()

    def closed(self, assignment: Assignment) -> None:
        """A partition ends: its records may change without us from now on."""
        self._caches.pop(assignment, None)

    def apply(self, events: Sequence[tuple[Assignment, T, Event, int]]) -> list[Effect]:
        """Fold events (with their offsets) of one tenant in order, write what changed; the effect of each.

        Raises StoreUnavailable or LeaseLost; then nothing of it counts as done and all of it may be done again.
        """
        tenant = self.tenant(events[0][1])
        owners = {target: assignment for assignment, target, _, _ in events}
        known, rebuilt = self._known(tenant, owners)
        effects: list[Effect] = []
        changed = {target: (owners[target], record) for target, record in rebuilt.items()}
        for assignment, target, event, offset in events:
            record, effect, differs = self._fold(known.get(target), event, target, offset)
            effects.append(effect)
            if differs:
                known[target] = record
                changed[target] = (assignment, record)
        self._replace(tenant, changed)
        return effects

    def recheck(self, assignment: Assignment, targets: Sequence[T]) -> None:
        """A late write of a former owner may stand over ours: write the newest known state again.

        The cache has it where the target was touched in this stay; otherwise the partition's log is read, whose last
        events carry the whole state.
        """
        cache = self._caches[assignment]
        newest = {target: record for target in targets if (record := cache.get(target)) is not None}
        unknown = [target for target in targets if target not in newest]
        newest |= self._from_log(assignment.partition, unknown)
        by_tenant: dict[str, dict[T, tuple[Assignment, V]]] = {}
        for target, record in newest.items():
            by_tenant.setdefault(self.tenant(target), {})[target] = (assignment, record)
        for tenant, records in by_tenant.items():
            self._replace(tenant, records)

    def _known(self, tenant: str, owners: dict[T, Assignment]) -> tuple[dict[T, V], dict[T, V]]:
        """Records from the cache, else the store; and those of them that cannot be read there, made from the log."""
        known: dict[T, V] = {}
        for target, assignment in owners.items():
            record = self._caches[assignment].get(target)
            if record is not None:
                known[target] = record
        found, unreadable = self._stored(tenant, [target for target in owners if target not in known])
        for target, record in found.items():
            self._caches[owners[target]].put(target, record)
        rebuilt: dict[T, V] = {}
        for target in unreadable:
            rebuilt |= self._from_log(owners[target].partition, [target])
        return known | found | rebuilt, rebuilt

    def _stored(self, tenant: str, targets: list[T]) -> tuple[dict[T, V], list[T]]:
        """Records of the store, and the targets whose record there cannot be read."""
        if not targets:
            return {}, []
        try:
            return self._read(tenant, targets), []
        except Reject:
            if len(targets) == 1:
                return {}, targets
        found: dict[T, V] = {}
        unreadable: list[T] = []
        for target in targets:
            one, bad = self._stored(tenant, [target])
            found |= one
            unreadable += bad
        return found, unreadable

    def _from_log(self, partition: int, targets: Sequence[T]) -> dict[T, V]:
        newest: dict[T, V] = {}
        if not targets:
            return newest
        wanted = frozenset(targets)
        for entry in self._scan(self.topic, partition, lambda key: self.target_of(key) in wanted):
            target = self.target_of(entry.key)
            if target is not None:
                newest[target] = self._fold(newest.get(target), self._decode(entry), target, entry.offset)[0]
        return newest

    def _replace(self, tenant: str, changed: dict[T, tuple[Assignment, V]]) -> None:
        if not changed:
            return
        now, attempt = self._clock.now(), uuid.uuid4().hex[:16]
        records = {target: self._stamped(record, now, attempt) for target, (_, record) in changed.items()}
        lease = JointLease([assignment.lease for assignment, _ in changed.values()])
        try:
            self._write(tenant, list(records.values()), lease)
        except EndedLate:
            for target, (assignment, _) in changed.items():
                if assignment in self._caches:
                    self._caches[assignment].forget(target)
            self._rechecks.owe(self._document(target) for target in records)
            raise
        for target, (assignment, _) in changed.items():
            self._caches[assignment].put(target, records[target])


class DocumentSide(Side[DocumentRef, AccessRecord]):
    """Access records."""

    topic = Topic.ACCESS

    def tenant(self, target: DocumentRef) -> str:
        """Tenant of the document."""
        return target.tenant

    def target_of(self, key: str | None) -> DocumentRef | None:
        """The document of its own key or of one of its holds."""
        try:
            return DocumentRef.from_key(key) if key is not None else None
        except ValueError:
            return None

    def _read(self, tenant: str, targets: Sequence[DocumentRef]) -> dict[DocumentRef, AccessRecord]:
        by_uid = {document.uid: document for document in targets}
        return {by_uid[uid]: record for uid, record in self._store.read_access(tenant, list(by_uid)).items()}

    def _write(self, tenant: str, records: Sequence[AccessRecord], deadline: Deadline) -> None:
        self._store.write_access(tenant, records, deadline)

    def _fold(
        self, record: AccessRecord | None, event: Event, target: DocumentRef, offset: int
    ) -> tuple[AccessRecord, Effect, bool]:
        assert isinstance(event, (AccessSet, AccessTombstone, HoldChanged, Undecodable))
        folded = fold_access(record, event, document=target, offset=offset)
        return folded.record, folded.effect, folded.changed

    def _decode(self, record: Record) -> Event:
        return decode_access(record)

    def _stamped(self, record: AccessRecord, now: int, attempt: str) -> AccessRecord:
        return record.model_copy(update={"written_at": now, "attempt": attempt})

    def _document(self, target: DocumentRef) -> DocumentRef:
        return target


class PrincipalSide(Side[Principal, PrincipalRecord]):
    """Membership records."""

    topic = Topic.MEMBERSHIP

    def tenant(self, target: Principal) -> str:
        """Tenant of the principal."""
        return target[0]

    def target_of(self, key: str | None) -> Principal | None:
        """The principal of whichever source's key."""
        parts = membership_parts(key)
        return parts[:2] if parts is not None else None

    def _read(self, tenant: str, targets: Sequence[Principal]) -> dict[Principal, PrincipalRecord]:
        found = self._store.read_principals(tenant, [name for _, name in targets])
        return {(tenant, name): record for name, record in found.items()}

    def _write(self, tenant: str, records: Sequence[PrincipalRecord], deadline: Deadline) -> None:
        self._store.write_principals(tenant, records, deadline)

    def _fold(
        self, record: PrincipalRecord | None, event: Event, target: Principal, offset: int
    ) -> tuple[PrincipalRecord, Effect, bool]:
        assert isinstance(event, (MembershipSet, Undecodable))
        folded = fold_membership(record, event, tenant=target[0], principal=target[1], offset=offset)
        return folded.record, folded.effect, folded.changed

    def _decode(self, record: Record) -> Event:
        return decode_membership(record)

    def _stamped(self, record: PrincipalRecord, now: int, attempt: str) -> PrincipalRecord:
        return record.model_copy(update={"written_at": now, "attempt": attempt})

    def _document(self, target: Principal) -> DocumentRef:
        return principal_document(*target)
