"""What is done to documents that are committed already: removals that have come due, moves, rechecks.

The caller owns the document's partition and serialises its work (invariant 1), as for ``pipeline.flow``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.errors import DocumentError
from pipeline.manifests import ManifestCache
from pipeline.ports import Deadline, IndexStore
from schemas.access import AccessRule
from schemas.documents import AccessRecord, ChunkEntry, Manifest, Retiring, Tier
from schemas.events import AccessSet, AccessTombstone
from schemas.generation import Generation
from schemas.keys import DocumentRef
from schemas.receipts import Outcome


@dataclass(frozen=True)
class Committed:
    """What a commit did, for the receipt."""

    outcome: Outcome
    visible_at: int
    chunks_total: int = 0
    chunks_embedded: int = 0
    chunks_written: int = 0
    chunks_removed: int = 0
    tokens: int = 0
    remove_due: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Rechecked:
    """What a recheck found. ``broken``: listed chunks to be written again; ``damaged``: sections or pages are lacking.

    ``access`` is the store's access record as an event, where the manifest has not seen it yet.
    """

    manifest: Manifest | None
    broken: frozenset[str] = frozenset()
    damaged: bool = False
    removed: int = 0
    access: AccessSet | AccessTombstone | None = None
    remove_due: int | None = None

    @property
    def whole(self) -> bool:
        """Whether everything that the manifest lists can be found."""
        return not self.broken and not self.damaged


class Upkeep:
    """Works on the documents of one generation; ``removal_wait`` in microseconds."""

    def __init__(
        self,
        *,
        store: IndexStore,
        generation: Generation,
        clock: Clock,
        manifests: ManifestCache,
        removal_wait: int,
        crash_point: Callable[[str], None],
    ) -> None:
        self.store = store
        self.generation = generation
        self.clock = clock
        self.manifests = manifests
        self.removal_wait = removal_wait
        self.crash_point = crash_point

    def _entries(self, manifest: Manifest | None, *, lost: bool = False) -> Sequence[ChunkEntry]:
        """Live chunks. With ``lost`` a manifest whose pages are gone lists nothing, instead of DocumentError."""
        if manifest is None:
            return ()
        try:
            return self.manifests.entries(manifest)
        except DocumentError:
            if lost:
                return ()
            raise

    # ------------------------------------------------------------------ removals

    def remove_due(self, document: DocumentRef, deadline: Deadline | None) -> int | None:
        """Remove what has been retiring long enough; when something remains, the next moment (µs) to look."""
        manifest = self.manifests.get(document)
        if manifest is None:
            return None
        self._finish_tail(manifest, deadline)
        return self._next_due(self.manifests.get(document))

    def _next_due(self, manifest: Manifest | None) -> int | None:
        if manifest is None:
            return None
        waiting = [r.due for r in manifest.retiring]
        if manifest.moving is not None:
            waiting.append(manifest.moved_at + self.removal_wait)
        return min(waiting, default=None)

    def _finish_tail(self, manifest: Manifest, deadline: Deadline | None) -> int:
        now = self.clock.now()
        due = tuple(r for r in manifest.retiring if r.due <= now)
        moved = manifest.moving is not None and manifest.moved_at + self.removal_wait <= now
        if not due and not moved:
            return 0
        removed = self._remove(manifest, due, deadline)
        update: dict[str, object] = {"retiring": tuple(r for r in manifest.retiring if r.due > now)}
        if moved and manifest.moving is not None:
            update |= self._leave_tier(manifest, manifest.moving, deadline)
        self.crash_point("removed")
        self.manifests.put(manifest.model_copy(update=update), None, deadline)
        return removed

    def _leave_tier(self, manifest: Manifest, left: Tier, deadline: Deadline | None) -> dict[str, object]:
        """Fields of the manifest after the copies of a move that is over are removed: unless the new ones were lost."""
        ids = [c.chunk_id for c in self._entries(manifest)]
        tenant = manifest.document.tenant
        found = self.store.searchable(self.generation.name, manifest.tier, tenant, ids)
        if not found.issuperset(ids):
            return {"moving": None, "tier": left}
        self.store.delete_chunks(self.generation.name, tenant, ids, tiers=(left,), deadline=deadline)
        return {"moving": None}

    def _remove(self, manifest: Manifest, retiring: Sequence[Retiring], deadline: Deadline | None) -> int:
        live = {c.chunk_id for c in self._entries(manifest)}
        chunks = [i for r in retiring for i in r.chunk_ids if i not in live]
        sections = [i for r in retiring for i in r.section_ids if i not in set(manifest.sections)]
        tenant = manifest.document.tenant
        if chunks:
            self.store.delete_chunks(self.generation.name, tenant, chunks, deadline=deadline)
        if sections:
            self.store.delete_sections(self.generation.name, tenant, sections, deadline)
        return len(chunks)

    # ------------------------------------------------------------------ moves

    def move(self, document: DocumentRef, tier: Tier, deadline: Deadline | None) -> Committed:
        """Carry a document's chunks to the other tier: copied and verified first, removed after the query deadline.

        Repeating it converges. Refused where a chunk stands in neither tier: a recheck has to mend that first.
        """
        manifest = self.manifests.get(document)
        if manifest is None or manifest.deleted or not manifest.chunk_total:
            return Committed(outcome="unchanged", visible_at=self.clock.now())
        source: Tier = "hot" if tier == "cold" else "cold"
        name, ids = self.generation.name, [c.chunk_id for c in self._entries(manifest)]
        copied = self.store.copy_chunks(name, document.tenant, ids, source=source, target=tier, deadline=deadline)
        self.crash_point("copied")
        now = self.clock.now()
        lacking = set(ids) - self.store.searchable(name, tier, document.tenant, ids)
        if lacking:
            return Committed(
                outcome="refused", visible_at=now, chunks_total=len(ids), chunks_written=copied,
                reason=f"{len(lacking)} chunks stand in neither tier; recheck the document first",
            )  # fmt: skip
        if manifest.tier == tier and not copied and manifest.moving is None:
            return Committed(outcome="unchanged", visible_at=now, chunks_total=len(ids))
        self.manifests.put(
            manifest.model_copy(update={"tier": tier, "moving": source, "moved_at": now}), None, deadline
        )
        self.crash_point("manifest")
        return Committed(
            outcome="moved", visible_at=now, chunks_total=len(ids), chunks_written=copied,
            remove_due=now + self.removal_wait,
        )  # fmt: skip

    # ------------------------------------------------------------------ rechecks

    def recheck(
        self,
        document: DocumentRef,
        deadline: Deadline | None,
        *,
        chunks: Sequence[str] = (),
        sections: Sequence[str] = (),
    ) -> Rechecked:
        """Compare the store with the stored manifest and mend what needs no content: strays and overdue removals go,
        the pre-filter is what the rule says. ``chunks`` and ``sections`` are ids that stand although no filter may
        meet them (``pipeline.index.core``)."""
        manifest = self.manifests.get(document, fresh=True)
        entries, pages_lost = self._listed(manifest)
        listed = {c.chunk_id for c in entries}
        removed = 0
        if not pages_lost:
            removed = self._remove_strays(document, manifest, listed, chunks, sections, deadline)
        if manifest is not None and listed:
            manifest = self._refreshed(manifest, sorted(listed), deadline)
        if manifest is not None and not pages_lost:
            removed += self._finish_tail(manifest, deadline)
            manifest = self.manifests.get(document)
        sections_lost = manifest is not None and self._sections_lost(manifest)
        return Rechecked(
            manifest=manifest,
            broken=frozenset(listed - self._found(document, listed)),
            damaged=pages_lost or sections_lost,
            removed=removed,
            access=self.unseen_access(document, manifest),
            remove_due=self._next_due(manifest),
        )

    def _listed(self, manifest: Manifest | None) -> tuple[Sequence[ChunkEntry], bool]:
        """Live chunks, and whether pages that list them are gone."""
        try:
            return self._entries(manifest), False
        except DocumentError:
            return (), True

    def _found(self, document: DocumentRef, ids: set[str]) -> set[str]:
        """Those that a search would find in either tier."""
        found: set[str] = set()
        tiers: tuple[Tier, ...] = ("hot", "cold")
        for tier in tiers:
            left = sorted(ids - found)
            if left:
                found |= self.store.searchable(self.generation.name, tier, document.tenant, left)
        return found

    def _remove_strays(
        self, document: DocumentRef, manifest: Manifest | None, listed: set[str], chunks: Sequence[str],
        sections: Sequence[str], deadline: Deadline | None,
    ) -> int:  # fmt: skip
        name = self.generation.name
        standing = self.store.chunk_ids_of(name, document)
        kept = listed | set(retired_chunks(manifest) if manifest is not None else ())
        strays = (standing.get("hot", set()) | standing.get("cold", set()) | set(chunks)) - kept
        if strays:
            self.store.delete_chunks(name, document.tenant, sorted(strays), deadline=deadline)
        kept = set((*manifest.sections, *retired_sections(manifest)) if manifest is not None else ())
        stray_sections = (self.store.section_ids_of(name, document) | set(sections)) - kept
        if stray_sections:
            self.store.delete_sections(name, document.tenant, sorted(stray_sections), deadline)
        return len(strays)

    def _refreshed(self, manifest: Manifest, ids: Sequence[str], deadline: Deadline | None) -> Manifest:
        """The manifest after the pre-filter of all its chunks is what the newest rule seen says."""
        allow, allow2 = prefilter(manifest.seen_rule)
        self.store.update_allow(self.generation.name, manifest.document.tenant, ids, allow, allow2, deadline)
        if (manifest.allow, manifest.allow2) == (allow, allow2):
            return manifest
        mended = manifest.model_copy(update={"allow": allow, "allow2": allow2})
        self.manifests.put(mended, None, deadline)
        return mended

    def _sections_lost(self, manifest: Manifest) -> bool:
        stored = self.store.read_sections(self.generation.name, manifest.document.tenant, manifest.sections)
        return any(section not in stored for section in manifest.sections)

    def unseen_access(
        self, document: DocumentRef, manifest: Manifest | None
    ) -> AccessSet | AccessTombstone | None:  # fmt: skip
        """The document's access record as an event, where the manifest has not seen it yet."""
        record = self.store.read_access(document.tenant, [document.uid]).get(document.uid)
        seen = manifest.seen_access_version if manifest is not None else 0
        return access_event(record) if record is not None and record.version > seen else None


# ---------------------------------------------------------------------- pure helpers


def access_event(record: AccessRecord) -> AccessSet | AccessTombstone:
    """The event that an access record was made of, as far as the index lane uses it."""
    if record.tombstone:
        return AccessTombstone(
            document=record.document, version=record.version, not_before=record.not_before,
            observed_at=record.written_at,
        )  # fmt: skip
    return AccessSet(
        document=record.document, version=record.version, content_version=record.content_version,
        not_before=record.not_before, rule=record.rule, observed_at=record.written_at,
    )  # fmt: skip


def prefilter(rule: AccessRule) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``allow`` and ``allow2`` of every chunk under this rule."""
    allow, allow2 = rule.prefilter()
    return tuple(allow), tuple(allow2)


def retired_chunks(manifest: Manifest) -> list[str]:
    """Chunk ids that wait for their removal."""
    return [i for r in manifest.retiring for i in r.chunk_ids]


def retired_sections(manifest: Manifest) -> list[str]:
    """Section ids that wait for their removal."""
    return [i for r in manifest.retiring for i in r.section_ids]
