"""One pass over a tenant of a generation: what manifests list against what stands.

Manifests are walked first, chunks and sections after them, while consumers go on writing. So everything that is
found here is a candidate only; ``sight`` looks again once the consumers have caught up with the time of the walk.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from pipeline.errors import DocumentError
from pipeline.ports import IndexStore
from pipeline.upkeep import prefilter, retired_chunks, retired_sections
from schemas.documents import Manifest, Tier
from schemas.keys import DocumentRef

TIERS: tuple[Tier, Tier] = ("hot", "cold")  # in this order a chunk that moves to cold meanwhile is met


@dataclass(slots=True)
class Head:
    """What is kept of a manifest."""

    document: DocumentRef
    deleted: bool
    content_version: int
    access_version: int  # newest that the index lane has seen
    allow: tuple[tuple[str, ...], tuple[str, ...]]
    wanted: tuple[tuple[str, ...], tuple[str, ...]]
    overdue_since: int | None  # due time of the first removal that waits
    pages_lost: bool


@dataclass
class Inventory:
    """Candidates by document uid."""

    tenant: str
    heads: dict[str, Head] = field(default_factory=dict)
    chunks: int = 0
    sections: int = 0
    stray_chunks: dict[str, list[str]] = field(default_factory=dict)
    stray_sections: dict[str, list[str]] = field(default_factory=dict)
    lost_chunks: dict[str, list[str]] = field(default_factory=dict)
    lost_sections: dict[str, list[str]] = field(default_factory=dict)
    drifted: dict[str, int] = field(default_factory=dict)  # chunks whose pre-filter is not the manifest's


def listed(store: IndexStore, generation: str, manifest: Manifest) -> list[str] | None:
    """Live chunk ids; None where the pages that list them are gone."""
    try:
        return [entry.chunk_id for entry in store.read_manifest_pages(generation, manifest).chunks]
    except DocumentError:
        return None


def take(store: IndexStore, generation: str, tenant: str, removal_wait: int) -> Inventory:
    """Walk everything of a tenant once. Raises StoreUnavailable."""
    found = Inventory(tenant)
    # ids as numbers: half the memory of their text
    owners: dict[int, str] = {}
    retiring: dict[int, str] = {}
    section_owners: dict[int, str] = {}
    retiring_sections: dict[int, str] = {}
    for manifest in store.walk_manifests(generation, tenant):
        uid = manifest.document.uid
        ids = listed(store, generation, manifest)
        found.heads[uid] = _head(manifest, ids is None, removal_wait)
        owners.update((_number(i), uid) for i in ids or ())
        section_owners.update((_number(i), uid) for i in manifest.sections)
        retiring.update((_number(i), uid) for i in retired_chunks(manifest))
        retiring_sections.update((_number(i), uid) for i in retired_sections(manifest))
    _chunks(found, store, generation, owners, retiring)
    _sections(found, store, generation, section_owners, retiring_sections)
    return found


def _head(manifest: Manifest, pages_lost: bool, removal_wait: int) -> Head:
    due = [retiring.due for retiring in manifest.retiring]
    if manifest.moving is not None:
        due.append(manifest.moved_at + removal_wait)
    return Head(
        document=manifest.document,
        deleted=manifest.deleted,
        content_version=manifest.content_version,
        access_version=manifest.seen_access_version,
        allow=(manifest.allow, manifest.allow2),
        wanted=prefilter(manifest.seen_rule),
        overdue_since=min(due, default=None),
        pages_lost=pages_lost,
    )


def _chunks(
    found: Inventory, store: IndexStore, generation: str, owners: dict[int, str], retiring: dict[int, str]
) -> None:  # fmt: skip
    met: set[int] = set()
    for tier in TIERS:
        for chunk in store.walk_chunks(generation, tier, found.tenant):
            found.chunks += 1
            number, uid = _number(chunk.chunk_id), chunk.document_uid
            head = found.heads.get(uid)
            if owners.get(number) == uid and head is not None:
                met.add(number)
                if (chunk.allow, chunk.allow2) != head.allow:
                    found.drifted[uid] = found.drifted.get(uid, 0) + 1
            elif retiring.get(number) != uid and not (head is not None and head.pages_lost):
                found.stray_chunks.setdefault(uid, []).append(chunk.chunk_id)
    for number, uid in owners.items():
        if number not in met:
            found.lost_chunks.setdefault(uid, []).append(_text(number))


def _sections(
    found: Inventory, store: IndexStore, generation: str, owners: dict[int, str], retiring: dict[int, str]
) -> None:  # fmt: skip
    met: set[int] = set()
    for section, uid in store.walk_sections(generation, found.tenant):
        found.sections += 1
        number = _number(section)
        if number in owners:
            met.add(number)
        elif number not in retiring:
            found.stray_sections.setdefault(uid, []).append(section)
    for number, uid in owners.items():
        if number not in met:
            found.lost_sections.setdefault(uid, []).append(_text(number))


def _number(uid: str) -> int:
    return int(uid.replace("-", ""), 16)


def _text(number: int) -> str:
    return str(uuid.UUID(int=number))
