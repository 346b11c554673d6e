"""Checks of manifests and access records against each other and against the log."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.operate import letters
from pipeline.operate.audit.inventory import Inventory
from pipeline.operate.audit.model import CheckResult, Finding, Mend, result
from pipeline.operate.audit.objects import left_out, strays_of
from pipeline.operate.audit.sight import Right, Sight
from schemas.keys import DocumentRef
from schemas.topics import Topic


def manifests_without_access(sight: Sight) -> CheckResult:
    """Live documents that nobody can read, because their access record is missing."""
    findings: list[Finding] = []
    examined = 0
    for inventory in sight.inventories():
        rights = sight.rights(inventory.tenant)
        examined += len(inventory.heads)
        suspects = [uid for uid, head in inventory.heads.items() if not head.deleted and uid not in rights]
        if suspects:
            sight.unsettled()
        now = sight.rights_now(inventory.tenant, suspects)
        for uid, manifest in sight.manifests(inventory.tenant, suspects).items():
            if manifest.deleted or uid in now or not sight.settled(manifest.document):
                continue
            known = manifest.document.key in sight.access
            detail = "no access record" if known else "no access record, and no access event on the log"
            findings.append(_finding(sight, manifest.document, detail, "recheck_access" if known else "ask_owner"))
    return result(findings, examined=examined, note=left_out(sight, examined))


def access_without_manifest(sight: Sight) -> CheckResult:
    """Documents that somebody may read and whose content on the log is not indexed. Unsettled dead letters and parked
    documents are counted by ``dead_letters``, not here."""
    findings: list[Finding] = []
    examined = 0
    set_aside: set[str] | None = None
    for inventory in sight.inventories():
        rights = sight.rights(inventory.tenant)
        examined += len(rights)
        suspects = {uid for uid, right in rights.items() if not right.tombstone and _unindexed(inventory, uid)}
        suspects = {uid for uid in suspects if _upserted(sight, rights[uid].document)}
        if not suspects:
            continue
        sight.unsettled()
        if set_aside is None:
            set_aside = _set_aside(sight)
        manifests = sight.manifests(inventory.tenant, suspects)
        now = sight.rights_now(inventory.tenant, suspects)
        for uid in sorted(suspects):
            manifest, right = manifests.get(uid), now.get(uid)
            document = rights[uid].document
            if right is None or right.tombstone or (manifest is not None and manifest.content_version):
                continue
            if document.key in set_aside or not sight.settled(document):
                continue
            offset = sight.content[document.key].offset
            findings.append(_finding(sight, document, "its content is on the log and not indexed", "reprocess", offset))
    return result(findings, examined=examined, note=left_out(sight, examined))


def _unindexed(inventory: Inventory, uid: str) -> bool:
    head = inventory.heads.get(uid)
    return head is None or head.content_version == 0


def _upserted(sight: Sight, document: DocumentRef) -> bool:
    last = sight.content.get(document.key)
    return last is not None and last.type == "upserted"


def _set_aside(sight: Sight) -> set[str]:
    """Keys of documents with an unsettled dead letter."""
    found = letters.fold(sight.log.records(Topic.DEAD_LETTER))
    return {letter.newest.document.key for letter in found if letter.newest.document is not None}


def tombstones_not_emptied(sight: Sight) -> CheckResult:
    """Deleted documents of which something stands or is live, and removals that are overdue."""
    findings: list[Finding] = []
    examined = 0
    for inventory in sight.inventories():
        examined += len(inventory.heads)
        findings += strays_of(sight, inventory, inventory.stray_chunks, sections=False, deleted=True)
        findings += strays_of(sight, inventory, inventory.stray_sections, sections=True, deleted=True)
        findings += _overdue(sight, inventory)
        findings += _alive(sight, inventory)
    return result(findings, examined=examined, note=left_out(sight, examined))


def _overdue(sight: Sight, inventory: Inventory) -> Iterator[Finding]:
    limit = sight.clock.now() - int(sight.settings.audit.overdue_s * 1_000_000)
    waiting = [uid for uid, h in inventory.heads.items() if h.overdue_since is not None and h.overdue_since < limit]
    for manifest in sight.manifests(inventory.tenant, waiting).values():
        overdue = any(retiring.due < limit for retiring in manifest.retiring)
        moving = manifest.moving is not None and manifest.moved_at < limit
        if overdue or moving:
            detail = "replaced or deleted chunks wait for their removal" if overdue else "a move was not finished"
            yield _finding(sight, manifest.document, detail, "recheck")


def _alive(sight: Sight, inventory: Inventory) -> Iterator[Finding]:
    """Live manifests of documents that are deleted by the log or by Access."""
    rights = sight.rights(inventory.tenant)
    suspects = [
        uid
        for uid, head in inventory.heads.items()
        if not head.deleted and (_closed(rights.get(uid), head.content_version) or _deleted(sight, head.document))
    ]
    if suspects:
        sight.unsettled()
    now = sight.rights_now(inventory.tenant, suspects)
    for uid, manifest in sight.manifests(inventory.tenant, suspects).items():
        if manifest.deleted or not sight.settled(manifest.document):
            continue
        last = sight.content.get(manifest.document.key)
        if last is not None and last.type == "deleted" and last.version > manifest.content_version:
            detail = "its deletion is on the log and not carried out"
            yield _finding(sight, manifest.document, detail, "reprocess", last.offset)
        elif _closed(now.get(uid), manifest.content_version):
            yield _finding(sight, manifest.document, "deleted by Access, but no deletion is on the log", "ask_owner")


def _closed(right: Right | None, content_version: int) -> bool:
    return right is not None and right.tombstone and content_version < right.not_before


def _deleted(sight: Sight, document: DocumentRef) -> bool:
    last = sight.content.get(document.key)
    return last is not None and last.type == "deleted"


def superseded_events(sight: Sight) -> CheckResult:
    """Keys whose last event on the log is older than an earlier one: compaction would keep the wrong one."""
    findings: list[Finding] = []
    examined = 0
    for topic, lasts in ((Topic.CONTENT, sight.content), (Topic.ACCESS, sight.access)):
        examined += len(lasts)
        for key, last in lasts.items():
            if not last.superseded:
                continue
            try:
                document = DocumentRef.from_key(key)
            except ValueError:
                document = None
            detail = (
                f"{topic}/{last.partition}: version {last.version} at offset {last.offset} lies behind version "
                f"{last.newest} at {last.newest_offset}"
            )
            findings.append(
                Finding(
                    tenant=document.tenant if document else None,
                    source=document.source if document else None,
                    document=document,
                    document_uid=document.uid if document else None,
                    detail=detail,
                    mend="ask_owner" if document else None,
                )
            )
    return result(findings, examined=examined)


def _finding(
    sight: Sight, document: DocumentRef, detail: str, mend: Mend | None, offset: int | None = None
) -> Finding:  # fmt: skip
    return Finding(
        tenant=document.tenant,
        source=document.source,
        document=document,
        document_uid=document.uid,
        detail=detail,
        generation=sight.name,
        offset=offset,
        mend=mend,
    )
