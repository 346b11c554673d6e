"""What the checks of one run share: one walk per tenant, one look at the log, and a second look at what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pipeline.bus.interface import Slot
from pipeline.clock import Clock
from pipeline.operate.audit.inventory import TIERS, Inventory, take
from pipeline.operate.audit.logview import Last, LogView, last_events
from pipeline.ports import IndexStore, ProgressBar
from pipeline.settings import Settings
from pipeline.upkeep import prefilter
from schemas.documents import AccessRecord, Manifest
from schemas.generation import Generation
from schemas.keys import DocumentRef, partition_of
from schemas.topics import Topic

PAGE = 500
PAUSE_S = 0.25
T = TypeVar("T")
LANES: tuple[tuple[str, Topic], ...] = (
    ("index", Topic.CONTENT),
    ("index", Topic.ACCESS),
    ("index", Topic.MAINTENANCE),
    ("access", Topic.ACCESS),
)


@dataclass(slots=True)
class Right:
    """What is kept of an access record."""

    document: DocumentRef
    version: int
    tombstone: bool
    not_before: int
    wanted: tuple[tuple[str, ...], tuple[str, ...]]

    @staticmethod
    def of(record: AccessRecord) -> Right:
        """The part that checks compare."""
        return Right(record.document, record.version, record.tombstone, record.not_before, prefilter(record.rule))


class Sight:
    """One run over one generation (None: only what concerns no generation). Not thread-safe."""

    def __init__(
        self,
        settings: Settings,
        store: IndexStore,
        log: LogView,
        clock: Clock,
        generation: Generation | None,
        *,
        tenants: Sequence[str] | None = None,
        progress: ProgressBar | None = None,
        pause: Callable[[float], None],
    ) -> None:
        self.settings = settings
        self.store = store
        self.log = log
        self.clock = clock
        self.generation = generation
        self.progress = progress
        self._asked = tenants
        self._pause = pause
        self._inventories: dict[str, Inventory] = {}
        self._rights: dict[str, dict[str, Right]] = {}
        self._unsettled: frozenset[int] | None = None
        self._patience = settings.audit.settle_s  # for the whole run: a consumer that is down is waited for once

    @property
    def name(self) -> str:
        """Name of the generation."""
        assert self.generation is not None
        return self.generation.name

    # ------------------------------------------------------------ walks

    @cached_property
    def tenants(self) -> list[str]:
        """Tenants looked at."""
        if self._asked is not None:
            return sorted(self._asked)
        return sorted(self.store.tenants(None) | (self.store.tenants(self.name) if self.generation else set()))

    def inventories(self) -> Iterable[Inventory]:
        """One a tenant, walked once a run."""
        wait = int(self.settings.index.query_deadline_s * 1_000_000)
        for number, tenant in enumerate(self.tenants):
            if tenant not in self._inventories:
                if self.progress is not None:
                    self.progress("walking tenants", number, len(self.tenants))
                self._inventories[tenant] = take(self.store, self.name, tenant, wait)
                self._unsettled = None
            yield self._inventories[tenant]

    def rights(self, tenant: str) -> dict[str, Right]:
        """Access records by document uid, walked once a run."""
        if tenant not in self._rights:
            self._rights[tenant] = {r.document.uid: Right.of(r) for r in self.store.walk_access(tenant)}
            self._unsettled = None
        return self._rights[tenant]

    # ------------------------------------------------------------ the log

    @cached_property
    def content(self) -> dict[str, Last]:
        """Last content event of each document."""
        return last_events(self.log.records(Topic.CONTENT))

    @cached_property
    def access(self) -> dict[str, Last]:
        """Last event of each key of the access topic, holds included."""
        return last_events(self.log.records(Topic.ACCESS))

    @cached_property
    def _on_log(self) -> dict[str, DocumentRef]:
        documents: dict[str, DocumentRef] = {}
        for key in (*self.content, *self.access):
            try:
                document = DocumentRef.from_key(key)
            except ValueError:
                continue
            documents[document.uid] = document
        return documents

    def document(self, tenant: str, uid: str) -> DocumentRef | None:
        """Which document a uid belongs to: by its manifest, its access record or the log."""
        head = self._inventories[tenant].heads.get(uid) if tenant in self._inventories else None
        if head is not None:
            return head.document
        right = self.store.read_access(tenant, [uid]).get(uid)
        return right.document if right is not None else self._on_log.get(uid)

    # ------------------------------------------------------------ the second look

    def unsettled(self) -> frozenset[int]:
        """Partitions whose consumers have not applied what was on the log when the walks ended, after some patience.

        What was walked there may be work in progress.
        """
        if self._unsettled is None:
            topics = sorted({topic for _, topic in LANES})
            ends = self.log.ends(topics)
            behind = self._behind(ends)
            while behind and self._patience > 0:
                self._pause(PAUSE_S)
                self._patience -= PAUSE_S
                behind = self._behind(ends)
            self._unsettled = behind
        return self._unsettled

    def _behind(self, ends: dict[Slot, int]) -> frozenset[int]:
        behind: set[int] = set()
        for lane, topic in LANES:
            known = self.store.read_progress(lane, self.name if lane == "index" else "", str(topic))
            for slot, end in ends.items():
                if slot.topic == topic and end > 0:
                    record = known.get(slot.partition)
                    if record is None or record.offset < end:
                        behind.add(slot.partition)
        return frozenset(behind)

    def settled(self, document: DocumentRef) -> bool:
        """Whether what was walked of the document is what its consumers made of it."""
        return partition_of(document.key, self.settings.kafka.partitions) not in self.unsettled()

    def manifests(self, tenant: str, uids: Iterable[str]) -> dict[str, Manifest]:
        """As they stand now."""
        return _paged(lambda page: self.store.read_manifests(self.name, tenant, page), uids)

    def rights_now(self, tenant: str, uids: Iterable[str]) -> dict[str, Right]:
        """Access records as they stand now."""
        found = _paged(lambda page: self.store.read_access(tenant, page), uids)
        return {uid: Right.of(record) for uid, record in found.items()}

    def standing(self, tenant: str, chunks: set[str], sections: set[str]) -> set[str]:
        """Those of the ids that stand now, torn objects included: walked again, and only where something is asked."""
        found: set[str] = set()
        for tier in TIERS if chunks else ():
            found.update(c.chunk_id for c in self.store.walk_chunks(self.name, tier, tenant) if c.chunk_id in chunks)
        if sections:
            found.update(uid for uid, _ in self.store.walk_sections(self.name, tenant) if uid in sections)
        return found


def _paged(read: Callable[[list[str]], dict[str, T]], uids: Iterable[str]) -> dict[str, T]:
    ids = list(uids)
    found: dict[str, T] = {}
    for start in range(0, len(ids), PAGE):
        found |= read(ids[start : start + PAGE])
    return found
