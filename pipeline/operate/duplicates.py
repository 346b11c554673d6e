"""What is indexed more than once: passages that many documents repeat, and documents that are copies of one another.

Both by the hash of what was embedded (heading path and text), so reading the manifests is enough. Searches fold copies
by themselves; this tells whoever keeps the sources what to clear up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations

from pydantic import Field

from pipeline.ports import IndexStore
from schemas.base import ClosedModel
from schemas.documents import Manifest

REPEATED = 5  # documents that hold a passage before it is called repeated
COMMON = 50  # documents beyond which a passage says nothing of copies: it is a template
SHOWN = 20  # documents named with a passage


class Holder(ClosedModel):
    """A document that holds a passage."""

    document_uid: str
    document_id: str
    source: str
    title: str


class Repeated(ClosedModel):
    """One passage in many documents."""

    embed_hash: str
    count: int = Field(ge=2, description="Documents that hold it.")
    chunk_id: str = Field(description="One of its chunks, in the first document named.")
    holders: tuple[Holder, ...] = Field(description=f"The first {SHOWN} by source and id.")


class Copies(ClosedModel):
    """Two documents that share most of their passages."""

    first: Holder
    second: Holder
    shared: int = Field(ge=1)
    share: float = Field(gt=0, le=1, description="Shared passages of all passages of the two.")


class DuplicateReport(ClosedModel):
    """What one tenant holds twice in one generation."""

    generation: str
    tenant: str
    documents: int
    passages: int = Field(description="Different ones.")
    repeated: tuple[Repeated, ...] = Field(description="The most frequent first.")
    copies: tuple[Copies, ...] = Field(description="The most alike first.")


def find_duplicates(
    store: IndexStore, generation: str, tenant: str, *, least: float = 0.8, repeated: int = REPEATED, limit: int = 100,
    progress: Callable[[int], None] = lambda _: None,
) -> DuplicateReport:  # fmt: skip
    """Look through a tenant's manifests. ``least`` is the share from which two documents count as copies, ``limit``
    bounds both lists. Raises StoreUnavailable."""
    holders: dict[str, Holder] = {}
    held: dict[str, frozenset[str]] = {}
    where: dict[str, list[tuple[str, str]]] = defaultdict(list)  # hash -> (document, chunk)
    for manifest in store.walk_manifests(generation, tenant):
        if manifest.deleted or not manifest.chunk_total:
            continue
        uid = manifest.document.uid
        entries = store.read_manifest_pages(generation, manifest).chunks if manifest.pages else manifest.chunks
        chunks = {entry.embed_hash: entry.chunk_id for entry in reversed(entries) if not entry.summary}
        holders[uid], held[uid] = _holder(manifest), frozenset(chunks)
        for embed_hash, chunk_id in chunks.items():
            where[embed_hash].append((uid, chunk_id))
        progress(len(holders))
    return DuplicateReport(
        generation=generation,
        tenant=tenant,
        documents=len(holders),
        passages=len(where),
        repeated=tuple(_repeated(where, holders, repeated)[:limit]),
        copies=tuple(_copies(where, held, holders, least)[:limit]),
    )


def _holder(manifest: Manifest) -> Holder:
    document = manifest.document
    return Holder(document_uid=document.uid, document_id=document.id, source=document.source, title=manifest.title)


def _order(holder: Holder) -> tuple[str, str, str]:
    return holder.source, holder.document_id, holder.document_uid


def _repeated(
    where: dict[str, list[tuple[str, str]]], holders: dict[str, Holder], least: int
) -> list[Repeated]:  # fmt: skip
    found: list[Repeated] = []
    for embed_hash, places in where.items():
        if len(places) >= least:
            listed = sorted(places, key=lambda place: _order(holders[place[0]]))
            found.append(
                Repeated(
                    embed_hash=embed_hash, count=len(places), chunk_id=listed[0][1],
                    holders=tuple(holders[uid] for uid, _ in listed[:SHOWN]),
                )
            )  # fmt: skip
    return sorted(found, key=lambda one: (-one.count, one.embed_hash))


def _copies(
    where: dict[str, list[tuple[str, str]]], held: dict[str, frozenset[str]], holders: dict[str, Holder], least: float
) -> list[Copies]:
    shared: Counter[tuple[str, str]] = Counter()
    for places in where.values():
        if len(places) <= COMMON:
            shared.update(combinations(sorted(uid for uid, _ in places), 2))
    found: list[Copies] = []
    for a, b in _candidates(shared, held, least):
        both = len(held[a] & held[b])
        share = both / len(held[a] | held[b])
        if share >= least:
            first, second = sorted((holders[a], holders[b]), key=_order)
            found.append(Copies(first=first, second=second, shared=both, share=round(share, 4)))
    return sorted(found, key=lambda one: (-one.share, -one.shared, _order(one.first), _order(one.second)))


def _candidates(
    shared: Counter[tuple[str, str]], held: dict[str, frozenset[str]], least: float
) -> Iterable[tuple[str, str]]:
    """Pairs that share a passage of their own and are of like size."""
    for a, b in shared:
        small, large = sorted((len(held[a]), len(held[b])))
        if small >= least * large:
            yield a, b
