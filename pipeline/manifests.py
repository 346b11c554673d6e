"""The owner's view of its documents' manifests: a bounded cache in front of the store.

Only the consumer that owns a partition writes the manifests of its documents (invariant 1), so what it wrote last is
what stands; the cache is emptied for a partition when it is revoked and bypassed for a recheck.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from pipeline.clock import Clock
from pipeline.ports import Deadline, IndexStore
from schemas.documents import ChunkEntry, Manifest, PageEntry, page_of
from schemas.keys import DocumentRef

# Without a word from the store for longer it may have been restarted, and restored from an older copy meanwhile.
TRUST_S = 2.0


class ManifestCache:
    """Reads through to the store; at most ``limit`` documents are remembered, absent ones included."""

    def __init__(self, store: IndexStore, generation: str, limit: int, clock: Clock) -> None:
        self._clock = clock
        self._contact = clock.elapsed()
        self._store = store
        self._generation = generation
        self._limit = limit
        self._known: OrderedDict[str, Manifest | None] = OrderedDict()
        self._lock = threading.Lock()  # several worker threads, each on documents of its own

    def get(self, document: DocumentRef, *, fresh: bool = False) -> Manifest | None:
        """The document's manifest, or None."""
        uid = document.uid
        self._forget_after_silence()
        with self._lock:
            if not fresh and uid in self._known:
                self._known.move_to_end(uid)
                return self._known[uid]
        found = self._store.read_manifests(self._generation, document.tenant, [uid]).get(uid)
        self._remember(uid, found)
        return found

    def prefetch(self, documents: Iterable[DocumentRef]) -> None:
        """Read many manifests in one call per tenant."""
        wanted: dict[str, list[str]] = {}
        for document in documents:
            if document.uid not in self._known:
                wanted.setdefault(document.tenant, []).append(document.uid)
        for tenant, uids in wanted.items():
            found = self._store.read_manifests(self._generation, tenant, uids)
            for uid in uids:
                self._remember(uid, found.get(uid))

    def entries(self, manifest: Manifest) -> Sequence[ChunkEntry]:
        """All live chunk entries, read from the pages where the manifest is paged."""
        if not manifest.pages:
            return manifest.chunks
        return self._store.read_manifest_pages(self._generation, manifest).chunks

    def put(self, manifest: Manifest, entries: Sequence[ChunkEntry] | None, deadline: Deadline | None) -> None:
        """Write pages (where ``entries`` is given and the manifest is paged), then the head: the commit."""
        uid = manifest.document.uid
        self.forget_document(manifest.document)
        if manifest.pages and entries is not None:
            self._write_pages(manifest, entries, deadline)
        self._store.write_manifest(self._generation, manifest, deadline)
        self._remember(uid, manifest)

    def _write_pages(self, manifest: Manifest, entries: Sequence[ChunkEntry], deadline: Deadline | None) -> None:
        pages: dict[int, list[PageEntry]] = {page: [] for page in range(manifest.pages)}
        for ordinal, entry in enumerate(entries):
            pages[page_of(entry.chunk_id, manifest.pages)].append(PageEntry(**entry.model_dump(), ordinal=ordinal))
        for page, listed in pages.items():
            self._store.write_manifest_page(
                self._generation,
                manifest.document,
                manifest.content_version,
                page,
                manifest.pages,
                listed,
                deadline,
            )

    def forget(self, belongs: Callable[[Manifest | None], bool] | None = None) -> None:
        """Drop everything (or what ``belongs``): after a revocation, a lost lease or an unacknowledged write."""
        with self._lock:
            for uid in [u for u, m in self._known.items() if belongs is None or belongs(m)]:
                del self._known[uid]

    def forget_document(self, document: DocumentRef) -> None:
        """Drop one document, because a write of it was not acknowledged."""
        with self._lock:
            self._known.pop(document.uid, None)

    def _forget_after_silence(self) -> None:
        with self._lock:
            silent = self._clock.elapsed() - self._contact > TRUST_S
        if silent:
            self.forget()

    def _remember(self, uid: str, manifest: Manifest | None) -> None:
        with self._lock:
            self._contact = self._clock.elapsed()
            self._known[uid] = manifest
            self._known.move_to_end(uid)
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
