"""Checks of chunks and sections against manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from pipeline.operate.audit.inventory import TIERS, Inventory, listed
from pipeline.operate.audit.model import CheckResult, Finding, result
from pipeline.operate.audit.sight import Right, Sight
from pipeline.ports import StandingChunk
from pipeline.upkeep import prefilter, retired_chunks, retired_sections
from schemas.documents import Manifest
from schemas.keys import DocumentRef

IDS = 5000  # of one command
PAGE = 400  # chunks probed at a time


def orphan_chunks(sight: Sight) -> CheckResult:
    """Chunks that stand but that no manifest lists. Those of deleted documents are ``tombstones_not_emptied``."""
    return _orphans(sight, sections=False)


def orphan_sections(sight: Sight) -> CheckResult:
    """Sections that stand but that no manifest lists."""
    return _orphans(sight, sections=True)


def _orphans(sight: Sight, *, sections: bool) -> CheckResult:
    findings: list[Finding] = []
    examined = 0
    for inventory in sight.inventories():
        examined += inventory.sections if sections else inventory.chunks
        strays = inventory.stray_sections if sections else inventory.stray_chunks
        findings += strays_of(sight, inventory, strays, sections=sections, deleted=False)
    return result(findings, examined=examined, note=left_out(sight, examined))


def strays_of(
    sight: Sight, inventory: Inventory, strays: dict[str, list[str]], *, sections: bool, deleted: bool
) -> Iterator[Finding]:
    """Strays that still are: of ``deleted`` documents, or of all others."""
    if not strays:
        return
    sight.unsettled()  # the consumers' work at the time of the walk is done; now look again
    manifests = sight.manifests(inventory.tenant, strays)
    wanted: dict[str, set[str]] = {}
    for uid, ids in strays.items():
        manifest = manifests.get(uid)
        if (manifest is not None and manifest.deleted) == deleted:
            wanted[uid] = set(ids) - _kept(sight, manifest, sections=sections)
    candidates = set().union(*wanted.values())
    if not candidates:
        return
    nothing: set[str] = set()
    standing = sight.standing(
        inventory.tenant, nothing if sections else candidates, candidates if sections else nothing
    )
    for uid, ids_left in wanted.items():
        ids = sorted(ids_left & standing)
        document = sight.document(inventory.tenant, uid) if ids else None
        if ids and (document is None or sight.settled(document)):
            yield from _stray(sight, inventory.tenant, uid, document, ids, sections=sections, deleted=deleted)


def _kept(sight: Sight, manifest: Manifest | None, *, sections: bool) -> set[str]:
    if manifest is None:
        return set()
    if sections:
        return {*manifest.sections, *retired_sections(manifest)}
    return {*(listed(sight.store, sight.name, manifest) or ()), *retired_chunks(manifest)}


def _stray(
    sight: Sight, tenant: str, uid: str, document: DocumentRef | None, ids: list[str], *, sections: bool, deleted: bool
) -> Iterator[Finding]:  # fmt: skip
    what = "sections" if sections else "chunks"
    for start in range(0, len(ids), IDS):
        page = tuple(ids[start : start + IDS])
        detail = f"{len(page)} {what} stand{' of a deleted document' if deleted else ''} and no manifest lists them"
        if document is None:
            detail += "; nothing names their document, so no owner can remove them: build a new generation"
        yield Finding(
            tenant=tenant,
            source=document.source if document is not None else None,
            document=document,
            document_uid=uid or None,
            detail=detail,
            chunk_ids=() if sections else page,
            section_ids=page if sections else (),
            generation=sight.name,
            mend="recheck" if document is not None else None,
        )


def missing_chunks(sight: Sight) -> CheckResult:
    """Chunks, sections and pages that a manifest lists and that cannot be found."""
    findings: list[Finding] = []
    examined = 0
    for inventory in sight.inventories():
        examined += sum(not head.deleted for head in inventory.heads.values())
        pages = {uid for uid, head in inventory.heads.items() if head.pages_lost}
        uids = {*inventory.lost_chunks, *inventory.lost_sections, *pages}
        if uids:
            sight.unsettled()
        for uid, manifest in sight.manifests(inventory.tenant, uids).items():
            finding = _missing(sight, inventory, uid, manifest) if sight.settled(manifest.document) else None
            if finding is not None:
                findings.append(finding)
    return result(findings, examined=examined, note=left_out(sight, examined))


def unsearchable_chunks(sight: Sight) -> CheckResult:
    """Listed chunks that stand without being found by their own vector: a killed store may forget vectors."""
    findings: list[Finding] = []
    examined = 0
    for inventory in sight.inventories():
        suspects: dict[str, set[str]] = {}
        for tier in TIERS:
            for page in _pages(sight.store.walk_chunks(sight.name, tier, inventory.tenant)):
                examined += len(page)
                found = sight.store.searchable(sight.name, tier, inventory.tenant, list(page))
                for uid in page.keys() - found:
                    suspects.setdefault(page[uid], set()).add(uid)
        if suspects:
            sight.unsettled()
        for uid, manifest in sight.manifests(inventory.tenant, suspects).items():
            lost = suspects[uid] & set(listed(sight.store, sight.name, manifest) or ())
            lost = _lost(sight, inventory.tenant, lost)
            if lost and sight.settled(manifest.document):
                detail = f"{len(lost)} chunks are not found by their vector"
                findings.append(_of(sight, manifest.document, detail, mend="recheck"))
    return result(findings, examined=examined, note=left_out(sight, examined))


def _pages(chunks: Iterable[StandingChunk]) -> Iterator[dict[str, str]]:
    """Chunk id to document uid, some at a time."""
    walk = iter(chunks)
    while page := {chunk.chunk_id: chunk.document_uid for chunk in islice(walk, PAGE)}:
        yield page


def _lost(sight: Sight, tenant: str, ids: set[str]) -> set[str]:
    """Those that no search finds in either tier."""
    for tier in TIERS:
        if ids:
            ids = ids - sight.store.searchable(sight.name, tier, tenant, sorted(ids))
    return ids


def _missing(sight: Sight, inventory: Inventory, uid: str, manifest: Manifest) -> Finding | None:
    ids = listed(sight.store, sight.name, manifest)
    lost = _lost(sight, inventory.tenant, set(inventory.lost_chunks.get(uid, ())) & set(ids or ()))
    sections = set(inventory.lost_sections.get(uid, ())) & set(manifest.sections)
    sections -= set(sight.store.read_sections(sight.name, inventory.tenant, sorted(sections)))
    if not lost and not sections and ids is not None:
        return None
    parts = ["the pages of its manifest"] if ids is None else []
    parts += [f"{len(found)} {what}" for found, what in ((lost, "chunks"), (sections, "sections")) if found]
    last = sight.content.get(manifest.document.key)
    moved = last is not None and last.offset != manifest.content_offset
    return _of(
        sight, manifest.document, f"{' and '.join(parts)} cannot be found",
        # compaction may have removed the event that was indexed: then the last one is processed
        mend="reprocess" if moved else "recheck", offset=last.offset if last is not None else None,
        chunk_ids=tuple(sorted(lost))[:IDS], section_ids=tuple(sorted(sections))[:IDS],
    )  # fmt: skip


def prefilter_drift(sight: Sight) -> CheckResult:
    """Chunks whose pre-filter is not what the manifest, and manifests whose rule is not what Access, says."""
    findings: list[Finding] = []
    examined = 0
    for inventory in sight.inventories():
        rights = sight.rights(inventory.tenant)
        examined += inventory.chunks
        suspects = set(inventory.drifted)
        for uid, head in inventory.heads.items():
            right = rights.get(uid)
            behind = right is not None and right.version > head.access_version
            other = right is not None and right.version == head.access_version and right.wanted != head.wanted
            if not head.deleted and (head.allow != head.wanted or behind or other):
                suspects.add(uid)
        if suspects:
            sight.unsettled()
        now = sight.rights_now(inventory.tenant, suspects)
        for uid, manifest in sight.manifests(inventory.tenant, suspects).items():
            if manifest.deleted or not manifest.chunk_total or not sight.settled(manifest.document):
                continue
            why = _drift(inventory, uid, manifest, now.get(uid))
            if why is not None:
                findings.append(_of(sight, manifest.document, why, mend="recheck"))
    return result(findings, examined=examined, note=left_out(sight, examined))


def _drift(inventory: Inventory, uid: str, manifest: Manifest, right: Right | None) -> str | None:
    head = inventory.heads[uid]
    wanted, written = prefilter(manifest.seen_rule), (manifest.allow, manifest.allow2)
    if right is not None and not right.tombstone:
        if right.version > manifest.seen_access_version:
            return f"the index lane has not seen access version {right.version}"
        if right.version == manifest.seen_access_version and right.wanted != wanted:
            return "the manifest's rule is not the one of Access"
    if written != wanted:
        return "the pre-filter of the manifest is not what its rule says"
    if uid in inventory.drifted and head.allow == written:
        return f"{inventory.drifted[uid]} chunks have another pre-filter than the manifest"
    return None


def _of(sight: Sight, document: DocumentRef, detail: str, **more: object) -> Finding:
    return Finding.model_validate(
        {
            "tenant": document.tenant,
            "source": document.source,
            "document": document,
            "document_uid": document.uid,
            "detail": detail,
            "generation": sight.name,
            **more,
        }
    )


def left_out(sight: Sight, examined: int) -> str | None:
    """What a check could not judge."""
    behind = sight.unsettled() if examined else frozenset()
    if not behind:
        return None
    return f"documents of {len(behind)} partitions are left out: their consumers have not caught up"
