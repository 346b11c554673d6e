"""Recent deletes, verified again: a store that was killed has been seen to bring deleted objects back (F19)."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.operate.audit.inventory import TIERS
from pipeline.operate.audit.model import CheckResult, Finding, result
from pipeline.operate.audit.sight import Right, Sight
from schemas.documents import Manifest
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.topics import Topic


def recent_deletes(sight: Sight) -> CheckResult:
    """Documents that were deleted of late and of which something stands, is live or is open again."""
    deleted: dict[str, dict[str, Receipt]] = {}
    for receipt in sight.log.receipts(sight.settings.audit.recent_deletes_s):
        ours = receipt.lane == "index" and receipt.generation == sight.name and receipt.outcome == "deleted"
        if ours and receipt.document is not None:
            of_tenant = deleted.setdefault(receipt.tenant, {})
            before = of_tenant.get(receipt.document.uid)
            if before is None or before.version <= receipt.version:
                of_tenant[receipt.document.uid] = receipt
    findings: list[Finding] = []
    for tenant, receipts in deleted.items():
        findings += _tenant(sight, tenant, receipts)
    return result(findings, examined=sum(map(len, deleted.values())))


def _tenant(sight: Sight, tenant: str, receipts: dict[str, Receipt]) -> Iterator[Finding]:
    manifests = sight.manifests(tenant, receipts)
    rights = sight.rights_now(tenant, receipts)
    gone = {uid for uid in receipts if _is_gone(manifests.get(uid))}
    chunks, sections = _standing(sight, tenant, gone)
    now = sight.manifests(tenant, {*chunks, *sections})  # a document may have been made again meanwhile
    gone = {uid for uid in gone if _is_gone(now.get(uid, manifests.get(uid)))}
    for uid, receipt in receipts.items():
        document, manifest, at = receipt.document, manifests.get(uid), receipt.coordinates
        assert document is not None
        if uid in gone:
            if chunks.get(uid) or sections.get(uid):
                yield _back(sight, document, tuple(chunks.get(uid, ())), tuple(sections.get(uid, ())))
        elif manifest is not None and manifest.content_version < receipt.version:
            offset = at.offset if at is not None and at.topic == Topic.CONTENT else None
            yield _live(sight, document, "is live again", "reprocess" if offset is not None else "ask_owner", offset)
        if uid in gone and _open(rights.get(uid), receipt):
            yield _live(sight, document, "has lost its tombstone in Access", "recheck_access", None)


def _is_gone(manifest: Manifest | None) -> bool:
    """Whether the manifest says, or does not deny, that the document is deleted."""
    return manifest is None or manifest.deleted


def _open(right: Right | None, receipt: Receipt) -> bool:
    return right is None or (not right.tombstone and right.version < receipt.version)


def _standing(
    sight: Sight, tenant: str, uids: set[str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:  # fmt: skip
    """Chunks and sections by document, found by walking: a filter does not meet all that may be back."""
    chunks: dict[str, list[str]] = {}
    sections: dict[str, list[str]] = {}
    if uids:
        for tier in TIERS:
            for chunk in sight.store.walk_chunks(sight.name, tier, tenant):
                if chunk.document_uid in uids:
                    chunks.setdefault(chunk.document_uid, []).append(chunk.chunk_id)
        for section, uid in sight.store.walk_sections(sight.name, tenant):
            if uid in uids:
                sections.setdefault(uid, []).append(section)
    return chunks, sections


def _back(sight: Sight, document: DocumentRef, chunks: tuple[str, ...], sections: tuple[str, ...]) -> Finding:
    return Finding(
        tenant=document.tenant,
        source=document.source,
        document=document,
        document_uid=document.uid,
        detail=f"{len(chunks)} chunks and {len(sections)} sections of a deleted document stand",
        chunk_ids=chunks[:5000],
        section_ids=sections[:5000],
        generation=sight.name,
        mend="recheck",
    )


def _live(sight: Sight, document: DocumentRef, what: str, mend: str, offset: int | None) -> Finding:
    return Finding.model_validate(
        {
            "tenant": document.tenant,
            "source": document.source,
            "document": document,
            "document_uid": document.uid,
            "detail": f"a deleted document {what}",
            "generation": sight.name,
            "offset": offset,
            "mend": mend,
        }
    )
