"""One generation's manifests in memory, one tenant at a time; what is held of each is small."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.errors import DocumentError
from pipeline.ports import IndexStore
from schemas.documents import Manifest

BATCH = 200


def packed(ids: Iterable[str]) -> frozenset[bytes]:
    """Ids as 16 bytes each."""
    return frozenset(uuid.UUID(one).bytes for one in ids)


@dataclass(frozen=True, slots=True)
class Head:
    """A manifest without its lists; ``chunks`` and ``leaving`` hold packed ids. ``broken`` says why pages lack."""

    manifest: Manifest
    chunks: frozenset[bytes]
    leaving: frozenset[bytes]
    sections: frozenset[bytes]
    broken: str = ""

    @property
    def live(self) -> bool:
        """Whether it holds content."""
        return not self.manifest.deleted and self.manifest.content_version > 0

    @property
    def uid(self) -> str:
        """Of the document."""
        return self.manifest.document.uid


def head_of(store: IndexStore, generation: str, manifest: Manifest) -> Head:
    """Pages are read where the manifest has them. Raises StoreUnavailable."""
    broken = ""
    whole = manifest
    if manifest.pages and not manifest.deleted:
        try:
            whole = store.read_manifest_pages(generation, manifest)
        except DocumentError as error:
            broken = error.reason
    retiring = manifest.retiring
    return Head(
        manifest=manifest.model_copy(update={"chunks": (), "sections": (), "retiring": ()}),
        chunks=packed(c.chunk_id for c in whole.chunks),
        leaving=packed(i for r in retiring for i in (*r.chunk_ids, *r.section_ids)),
        sections=packed(manifest.sections),
        broken=broken,
    )


def walk_heads(store: IndexStore, generation: str, tenant: str) -> dict[str, Head]:
    """All manifests of a tenant by document. Raises StoreUnavailable."""
    return {m.document.uid: head_of(store, generation, m) for m in store.walk_manifests(generation, tenant)}


def read_heads(store: IndexStore, generation: str, tenant: str, uids: Iterable[str]) -> dict[str, Head]:
    """Some of them as they are now. Raises StoreUnavailable."""
    wanted, found = sorted(set(uids)), {}
    for start in range(0, len(wanted), BATCH):
        manifests = store.read_manifests(generation, tenant, wanted[start : start + BATCH])
        found.update({uid: head_of(store, generation, m) for uid, m in manifests.items()})
    return found
