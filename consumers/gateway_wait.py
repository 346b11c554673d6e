"""Waiting until what was written is applied, or searchable: by receipts as they come, else by asking the store."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from consumers.backoff import Backoff
from consumers.gateway_writer import Written
from pipeline.bus.codec import decode
from pipeline.bus.tail import KafkaTail
from pipeline.errors import Reject, Retry
from pipeline.ports import IndexStore
from pipeline.settings import Settings
from schemas.access import EVERYONE, NOBODY, AccessRule
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.topics import Topic

log = logging.getLogger("headwater.gateway")

REMEMBERED = 50_000
MOVES = frozenset({"moved", "rechecked", "refreshed"})
"""Outcomes of maintenance: they say nothing of a content version."""
Key = tuple[str, str]  # lane (with the generation), document or principal


@dataclass(frozen=True)
class Outcome:
    """What a receipt says."""

    version: int
    outcome: str
    reason: str | None


def _principal_key(tenant: str, source: str | None, principal: str) -> Key:
    return "membership", "\x00".join((tenant, source or "", principal))


class ReceiptWatch:
    """The newest receipt of each document and principal in each lane. All methods from any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, Outcome] = OrderedDict()
        self._listeners: set[Callable[[], None]] = set()
        self._lock = threading.Lock()

    def note(self, receipt: Receipt) -> None:
        """Take a receipt in."""
        key = self._key(receipt)
        if key is None:
            return
        with self._lock:
            known = self._known.get(key)
            if known is None or known.version <= receipt.version:
                self._known[key] = Outcome(receipt.version, receipt.outcome, receipt.reason)
                self._known.move_to_end(key)
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    @staticmethod
    def _key(receipt: Receipt) -> Key | None:
        if receipt.lane == "membership" and receipt.principal is not None:
            return _principal_key(receipt.tenant, receipt.source, receipt.principal)
        if receipt.document_uid is None or receipt.outcome in MOVES:
            return None
        if receipt.lane == "index":
            return f"index/{receipt.generation}", receipt.document_uid
        return ("access", receipt.document_uid) if receipt.lane == "access" else None

    def document(self, lane: str, uid: str, version: int) -> Outcome | None:
        """What became of a document's event of this version, or of a newer one."""
        return self._since((lane, uid), version)

    def principal(self, tenant: str, source: str, principal: str, version: int) -> Outcome | None:
        """What became of what a source said of a principal at this version, or later."""
        return self._since(_principal_key(tenant, source, principal), version)

    def _since(self, key: Key, version: int) -> Outcome | None:
        found = self._known.get(key)
        return found if found is not None and found.version >= version else None

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each receipt; the returned function ends that."""
        with self._lock:
            self._listeners.add(listener)

        def end() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return end


class ReceiptTail:
    """Feeds a ``ReceiptWatch`` from the topic ``receipts`` in a thread of its own."""

    def __init__(self, settings: Settings, watch: ReceiptWatch) -> None:
        self._settings, self._watch = settings, watch
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receipts", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        backoff = Backoff(first=0.2, most=5.0)
        while not self._stop.is_set():
            try:
                self._follow(backoff)
            except Retry as error:
                log.warning("receipts cannot be read: %s", error)
                self._stop.wait(backoff.next())

    def _follow(self, backoff: Backoff) -> None:
        tail = KafkaTail(self._settings, [Topic.RECEIPTS], since="end", isolation="read_uncommitted")
        try:
            while not self._stop.is_set():
                for record in tail.poll(500):
                    try:
                        self._watch.note(decode(record, Receipt))
                    except Reject as error:
                        log.warning("a receipt at offset %d cannot be read: %s", record.offset, error.reason)
                backoff.reset()
        finally:
            tail.close()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(5)


@dataclass
class Pending:
    """What is still awaited of one request."""

    tenant: str
    access: dict[DocumentRef, int] = field(default_factory=dict)
    principals: dict[tuple[str, str], int] = field(default_factory=dict)  # source and principal
    content: dict[DocumentRef, int] = field(default_factory=dict)
    outcomes: dict[DocumentRef, Outcome] = field(default_factory=dict)

    @staticmethod
    def of(tenant: str, written: Mapping[str, Written], *, searchable: bool) -> Pending:
        """All that a request wrote or found written, by source."""
        pending = Pending(tenant)
        for source, part in written.items():
            for document, (content, access) in part.documents.items():
                if access:
                    pending.access[document] = access
                if content and searchable:
                    pending.content[document] = content
            pending.principals.update({(source, p): version for p, version in part.principals.items() if version})
        return pending

    @property
    def applied(self) -> bool:
        """Nothing of the access lane is awaited."""
        return not self.access and not self.principals

    @property
    def done(self) -> bool:
        """Nothing is awaited."""
        return self.applied and not self.content

    def strike(self, watch: ReceiptWatch, generation: str) -> None:
        """Take away what receipts announce."""
        for document, version in list(self.access.items()):
            if watch.document("access", document.uid, version) is not None:
                del self.access[document]
        for (source, principal), version in list(self.principals.items()):
            if watch.principal(self.tenant, source, principal, version) is not None:
                del self.principals[(source, principal)]
        for document, version in list(self.content.items()):
            found = watch.document(f"index/{generation}", document.uid, version)
            if found is not None:
                self.outcomes[document] = found
                del self.content[document]


def nobody(rule: AccessRule, now: int, absent: Collection[str] = ()) -> str | None:
    """Why nobody at all satisfies a rule at ``now`` (µs), ``absent`` being people without a record; else None.

    Who is in a group or an audience is not asked: a rule that names one may reach somebody.
    """
    if EVERYONE in rule.deny:
        return "nobody may read it: its rule denies everyone"
    for clause in rule.clauses:
        named = {g.principal for g in clause.any_of if g.live(now)} - {NOBODY, *rule.deny}
        if not named:
            return f"nobody may read it: {rule.reason or 'its rule lets nobody in; send an access change'}"
        if named <= set(absent):
            some = ", ".join(sorted(named)[:3])
            return f"nobody may read it: no source knows {some}; send a membership change for each"
    return None


class StoreCheck:
    """Asks the store, which is the truth that receipts only announce."""

    def __init__(self, store: IndexStore, generation: str) -> None:
        self._store, self._generation = store, generation

    def generation(self) -> str:
        """Name of the active generation. Raises StoreUnavailable."""
        return self._store.active_generation() or self._generation

    def absent(self, tenant: str, people: Collection[str]) -> set[str]:
        """Those of them without a record, or with one that has ended. Raises StoreUnavailable."""
        known = self._store.read_principals(tenant, sorted(people)) if people else {}
        return {name for name in people if (record := known.get(name)) is None or record.removed}

    def strike(self, pending: Pending, generation: str) -> None:
        """Take away what the store has. Raises StoreUnavailable."""
        documents = {d.uid: d for d in (*pending.access, *pending.content)}
        uids = sorted(d.uid for d in pending.access)
        for uid, record in self._store.read_access(pending.tenant, uids).items() if uids else ():
            if record.version >= pending.access[documents[uid]]:
                del pending.access[documents[uid]]
        uids = sorted(d.uid for d in pending.content)
        for uid, manifest in self._store.read_manifests(generation, pending.tenant, uids).items() if uids else ():
            if manifest.content_version >= pending.content[documents[uid]]:
                del pending.content[documents[uid]]
        self._strike_principals(pending)

    def _strike_principals(self, pending: Pending) -> None:
        names = sorted({principal for _, principal in pending.principals})
        for name, record in self._store.read_principals(pending.tenant, names).items() if names else ():
            for source, principal in [key for key in pending.principals if key[1] == name]:
                part = record.parts.get(source)
                if part is not None and part.version >= pending.principals[(source, principal)]:
                    del pending.principals[(source, principal)]
