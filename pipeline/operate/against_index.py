"""A source's owner against the index: what stands there that the owner does not know, what is missing, who may read.

What differs at a first walk is looked at once more, one by one, with the owner's memory read again: what was under way
meanwhile is no difference.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from pipeline.operate.owned import of_source
from pipeline.ports import IndexStore, ProgressBar
from pipeline.settings import Settings
from pipeline.sources.ledger import Ledger
from pipeline.sources.rules import is_within
from pipeline.sources.states import Known
from schemas.documents import AccessRecord, Manifest
from schemas.keys import DocumentRef
from schemas.receipts import DeadLetter
from schemas.reconciliation import EXAMPLES, IndexReport
from schemas.topics import Topic

BATCH = 200
STANDING = ("ready", "active", "standby", "building")
"""Generations whose collections are fed: what is extra there is extra."""


@dataclass
class Compared:
    """Documents by what is wrong with them; a document may be in several."""

    generation: str | None
    known: int = 0
    manifests: int = 0
    access: int = 0
    found: dict[str, dict[str, DocumentRef]] = field(default_factory=dict)  # count -> uid -> document

    def note(self, count: str, document: DocumentRef) -> None:
        """One document more."""
        self.found.setdefault(count, {})[document.uid] = document

    def documents(self) -> dict[str, DocumentRef]:
        """All of them by uid."""
        return {uid: document for found in self.found.values() for uid, document in found.items()}

    def report(self, *, behind: int, repaired: int, why: Iterable[str]) -> IndexReport:
        """As it is told."""
        counts = {name: len(found) for name, found in self.found.items()}
        return IndexReport(
            generation=self.generation,
            behind=behind,
            known=self.known,
            manifests=self.manifests,
            access=self.access,
            repaired=repaired,
            why=tuple(why),
            examples={n: tuple(d.id for d in list(f.values())[:EXAMPLES]) for n, f in self.found.items()},
            **counts,
        )


class Comparison:
    """One source in one store. ``given_up``: by uid the newest version of which there is a dead letter."""

    def __init__(self, store: IndexStore, ledger: Ledger, generation: str | None, given_up: Mapping[str, int]) -> None:
        self._store, self._ledger, self._active = store, ledger, generation
        self._given_up = given_up
        self._known = {document.uid: (document, known) for document, known in ledger.states()}

    def walk(self, progress: ProgressBar) -> Compared:
        """Everything of the source's tenant once. Raises StoreUnavailable."""
        compared = self._begun()
        met: set[str] = set()
        total = len(self._known) or None
        for record in self._store.walk_access(self._ledger.tenant):
            if record.document.source == self._ledger.source:
                compared.access += 1
                met.add(record.document.uid)
                self._access(record.document, record, compared)
                if compared.access % BATCH == 0:
                    progress(f"{self._ledger.source}: permissions", compared.access, total)
        self._unmet(self._known, met, compared)
        for generation in self._generations():
            met = set()
            for manifest in self._store.walk_manifests(generation, self._ledger.tenant):
                if manifest.document.source != self._ledger.source:
                    continue
                met.add(manifest.document.uid)
                self._manifest(manifest, generation, compared)
                if len(met) % BATCH == 0:
                    progress(f"{self._ledger.source}: documents of {generation}", len(met), total)
            if generation == self._active:
                compared.manifests = len(met)
                self._absent(self._known, met, compared)
        return compared

    def look(self, suspects: Mapping[str, DocumentRef]) -> Compared:
        """Only these documents, each by its id. Raises StoreUnavailable."""
        compared = self._begun()
        uids = list(suspects)
        for start in range(0, len(uids), BATCH):
            part = uids[start : start + BATCH]
            access = self._store.read_access(self._ledger.tenant, part)
            for record in access.values():
                self._access(record.document, record, compared)
            self._unmet(part, access, compared)
            for generation in self._generations():
                manifests = self._store.read_manifests(generation, self._ledger.tenant, part)
                for manifest in manifests.values():
                    self._manifest(manifest, generation, compared)
                if generation == self._active:
                    self._absent(part, manifests, compared)
        return compared

    # ------------------------------------------------------------ judging

    def _begun(self) -> Compared:
        live = sum(not known.deleted for _, known in self._known.values())
        return Compared(self._active, known=live)

    def _generations(self) -> list[str]:
        return [g.name for g in self._store.read_generations().values() if g.state in STANDING]

    def _unmet(self, uids: Iterable[str], met: Container[str], compared: Compared) -> None:
        """Live documents without a record: nobody may read them."""
        for document, _ in self._live(uids, met):
            compared.note("wrongly_hidden", document)

    def _absent(self, uids: Iterable[str], met: Container[str], compared: Compared) -> None:
        """Live documents without a manifest; one whose content was never said has none."""
        for document, known in self._live(uids, met):
            if known.content_version:
                self._lacking(document, known, compared)

    def _live(self, uids: Iterable[str], met: Container[str]) -> Iterator[tuple[DocumentRef, Known]]:
        for uid in uids:
            found = self._known.get(uid)
            if uid not in met and found is not None and not found[1].deleted:
                yield found

    def _access(self, document: DocumentRef, record: AccessRecord, compared: Compared) -> None:
        _, known = self._known.get(document.uid, (document, None))
        if known is None or known.deleted:
            if not record.tombstone:
                compared.note("extra", document)
            return
        held = set(known.holds) - set(record.holds)
        if held or record.not_before < known.not_before or self._wider(record, known):
            compared.note("wrongly_readable", document)
        elif record.version < known.access_version and (record.tombstone or not self._same(record, known)):
            compared.note("wrongly_hidden", document)

    def _wider(self, record: AccessRecord, known: Known) -> bool:
        """Whether the record lets somebody in whom an older or equal rule than the owner's last one let in."""
        if record.tombstone or record.version > known.access_version or known.rule is None:
            return False
        return not is_within(record.rule, known.rule)

    def _same(self, record: AccessRecord, known: Known) -> bool:
        return known.rule is not None and is_within(known.rule, record.rule)

    def _manifest(self, manifest: Manifest, generation: str, compared: Compared) -> None:
        document = manifest.document
        _, known = self._known.get(document.uid, (document, None))
        if known is None or known.deleted:
            if not manifest.deleted and (known is None or manifest.content_version < known.content_version):
                compared.note("extra", document)
        elif generation == self._active and manifest.content_version < known.content_version:
            self._lacking(document, known, compared)

    def _lacking(self, document: DocumentRef, known: Known, compared: Compared) -> None:
        hopeless = self._given_up.get(document.uid, -1) >= known.content_version
        compared.note("unprocessable" if hopeless else "missing", document)


def behind(settings: Settings, store: IndexStore, generation: str | None) -> int:
    """Records of content and access that the index and the access lane have not applied. Raises BusUnavailable,
    StoreUnavailable."""
    from pipeline.bus.groups import log_ends

    _, ends = log_ends(settings, [Topic.CONTENT, Topic.ACCESS])
    lanes = [("access", "", Topic.ACCESS)]
    if generation is not None:
        lanes += [("index", generation, Topic.CONTENT), ("index", generation, Topic.ACCESS)]
    left = 0
    for lane, name, topic in lanes:
        at = {p: progress.offset for p, progress in store.read_progress(lane, name, str(topic)).items()}
        left += sum(max(0, end - at.get(slot.partition, 0)) for slot, end in ends.items() if slot.topic == topic)
    return left


def given_up(settings: Settings, tenant: str, source: str) -> dict[str, int]:
    """By uid the newest version of a source's documents that could not be processed, settled or not.

    Raises BusUnavailable.
    """
    from pipeline.bus.tail import read_compacted

    found: dict[str, int] = {}
    for record in read_compacted(settings, Topic.DEAD_LETTER, wanted=of_source(tenant, source)):
        try:
            letter = DeadLetter.model_validate_json(record.value or b"")
        except ValidationError:
            continue
        if letter.document is not None and letter.lane == "index":
            uid = letter.document.uid
            found[uid] = max(found.get(uid, -1), letter.version if letter.version is not None else -1)
    return found
