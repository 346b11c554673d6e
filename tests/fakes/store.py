"""The index in memory: the same semantics as the real store, failures on demand, and a trace of what was asked.

Searches are exact (numpy), BM25 is the store's formula with the tier's own statistics. Records pass through JSON as
they do in the real store, so that nothing survives here which would not survive there.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel

from pipeline.errors import Reject, StoreUnavailable
from pipeline.index import pages as manifest_pages
from pipeline.index.objects import check_vector, chunk_object, chunk_text, parse, record_object
from pipeline.index.schema import BM25_B, BM25_K1, TIERS
from pipeline.ports import (
    ChunkText,
    ChunkWrite,
    Deadline,
    Hit,
    SearchFilter,
    StandingChunk,
    StoreFootprint,
    TermStatistics,
    Vectors,
)
from schemas.documents import AccessRecord, Manifest, PageEntry, PrincipalRecord, Section, Tier, page_of
from schemas.generation import Generation
from schemas.keys import DocumentRef, principal_uid, progress_uid
from schemas.receipts import Progress

M = TypeVar("M", bound=BaseModel)
Place = tuple[str, str | None]  # collection, tenant
WALK_PAGE = 100
_ANY_OF = (
    ("documents", "document"), ("sources", "source"), ("kinds", "kind"), ("content_types", "content_type"),
    ("languages", "language"), ("products", "product"),
)  # fmt: skip


@dataclass
class StoredChunk:
    """A chunk object; a vector of None is what a torn insert leaves."""

    properties: dict[str, object]
    vector: Vectors | None


@dataclass(frozen=True)
class Call:
    """One line of the trace."""

    op: str
    generation: str = ""
    tenant: str = ""
    ids: tuple[str, ...] = ()
    tier: str = ""
    ambiguous: bool = False


@dataclass
class _Failure:
    left: int
    after: bool
    torn: bool
    skip: int = 0


@dataclass
class FakeStore:
    """``ports.IndexStore`` in memory. ``reader()`` gives the ``ports.IndexReader`` on the same data."""

    trace: list[Call] = field(default_factory=list)
    refuses: tuple[str, ...] = ()  # collections that are read-only
    disk_bytes: int | None = None
    disk_used: float | None = None
    written: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._records: dict[Place, dict[str, str]] = {}
        self._kinds: dict[tuple[Place, str], tuple[str, str]] = {}  # kind of record, uid of a section's document
        self._chunks: dict[Place, dict[str, StoredChunk]] = {}
        self._dimensions: dict[str, int] = {}
        self._collections: set[str] = set()
        self._failures: dict[str, _Failure] = {}
        self._active: str | None = None
        self._lock = threading.RLock()
        self.closed = False

    # ------------------------------------------------------------ failures and trace

    def fail_next(self, op: str, n: int = 1, *, after: bool = False, torn: bool = False, skip: int = 0) -> None:
        """The next ``n`` calls of ``op`` ("*" for any) raise StoreUnavailable, before or ``after`` they took effect,
        once ``skip`` calls went well. ``torn`` (insert_chunks): the chunks stand there without vectors, and a plain
        repetition does not repair them."""
        self._failures[op] = _Failure(n, after or torn, torn, skip)

    def ops(self) -> list[str]:
        """Names of the calls so far, in order."""
        return [call.op for call in self.trace]

    @contextmanager
    def _call(
        self, op: str, generation: str = "", tenant: str = "", ids: Sequence[str] = (), tier: str = "",
        deadline: Deadline | None = None, ambiguous: bool = False,
    ) -> Iterator[bool]:  # fmt: skip
        """Yields whether the insert is torn. Reads and writes of threads follow each other."""
        with self._lock:
            self.trace.append(Call(op, generation, tenant, tuple(ids), tier, ambiguous))
            if deadline is not None:
                deadline.remaining()
            failure = self._due(op)
            if failure and not failure.after:
                raise StoreUnavailable(f"{op}: injected")
            yield bool(failure and failure.torn)
            if deadline is not None:
                deadline.check_ended()
            if failure:
                raise StoreUnavailable(f"{op}: injected after it took effect")

    def _due(self, op: str) -> _Failure | None:
        for name in (op, "*"):
            failure = self._failures.get(name)
            if failure is None:
                continue
            if failure.skip > 0:
                failure.skip -= 1
                continue
            failure.left -= 1
            if failure.left <= 0:
                del self._failures[name]
            return failure
        return None

    # ------------------------------------------------------------ creation

    def ensure_base(self) -> None:
        """See the port."""
        with self._call("ensure_base"):
            self._collections |= {"access", "principals", "progress", "generations"}

    def ensure_generation(self, generation: Generation) -> None:
        """See the port."""
        with self._call("ensure_generation", generation.name):
            self._collections |= {f"{kind}:{generation.name}" for kind in ("hot", "cold", "records")}
            self._dimensions[generation.name] = generation.encoder.dimension

    def drop_generation(self, name: str) -> None:
        """See the port."""
        with self._call("drop_generation", name):
            gone = {f"{kind}:{name}" for kind in ("hot", "cold", "records")}
            self._collections -= gone
            self._dimensions.pop(name, None)
            self._records = {place: data for place, data in self._records.items() if place[0] not in gone}
            self._chunks = {place: data for place, data in self._chunks.items() if place[0] not in gone}

    def _need(self, collection: str) -> None:
        if collection not in self._collections:
            raise StoreUnavailable(f"collection {collection} does not exist")

    def _put(
        self, collection: str, tenant: str | None, uid: str, kind: str, model: BaseModel, version: int,
        document: str | None = None,
    ) -> None:  # fmt: skip
        self._need(collection)
        item = record_object(uid, kind, model, version, document)
        self._kinds[((collection, tenant), uid)] = (kind, document or "")
        self._records.setdefault((collection, tenant), {})[uid] = str(item.properties["record"])

    def _get(
        self, collection: str, tenant: str | None, ids: Sequence[str], model: type[M]
    ) -> dict[str, M]:  # fmt: skip
        self._need(collection)
        stored = self._records.get((collection, tenant), {})
        return {uid: parse(model, stored[uid], f"{model.__name__} {uid}") for uid in ids if uid in stored}

    # ------------------------------------------------------------ access lane

    def read_access(self, tenant: str, uids: Sequence[str]) -> dict[str, AccessRecord]:
        """See the port."""
        with self._call("read_access", tenant=tenant, ids=uids):
            return self._get("access", tenant, uids, AccessRecord)

    def write_access(self, tenant: str, records: Sequence[AccessRecord], deadline: Deadline | None = None) -> None:
        """See the port."""
        with self._call("write_access", tenant=tenant, ids=[r.document.uid for r in records], deadline=deadline):
            for record in records:
                self._put("access", tenant, record.document.uid, "access", record, record.version)

    def read_principals(self, tenant: str, principals: Sequence[str]) -> dict[str, PrincipalRecord]:
        """See the port."""
        with self._call("read_principals", tenant=tenant, ids=principals):
            by_uid = {principal_uid(tenant, p): p for p in principals}
            found = self._get("principals", tenant, list(by_uid), PrincipalRecord)
            return {by_uid[uid]: record for uid, record in found.items()}

    def write_principals(
        self, tenant: str, records: Sequence[PrincipalRecord], deadline: Deadline | None = None
    ) -> None:
        """See the port."""
        with self._call("write_principals", tenant=tenant, ids=[r.principal for r in records], deadline=deadline):
            for record in records:
                uid = principal_uid(tenant, record.principal)
                self._put("principals", tenant, uid, "principal", record, record.version)

    # ------------------------------------------------------------ generations and progress

    def read_generations(self) -> dict[str, Generation]:
        """See the port."""
        with self._call("read_generations"):
            self._need("generations")
            return self._get("generations", None, list(self._records.get(("generations", None), {})), Generation)

    def write_generation(self, generation: Generation, deadline: Deadline | None = None) -> None:
        """See the port."""
        with self._call("write_generation", generation.name, deadline=deadline):
            self._put("generations", None, generation.name, "generation", generation, generation.version)

    def active_generation(self) -> str | None:
        """See the port."""
        with self._call("active_generation"):
            self._need("generations")
            return self._active

    def set_active_generation(self, name: str, deadline: Deadline | None = None) -> None:
        """See the port."""
        with self._call("set_active_generation", name, deadline=deadline):
            self._need("generations")
            self._active = name

    def read_progress(self, lane: str, generation: str, topic: str) -> dict[int, Progress]:
        """See the port."""
        with self._call("read_progress", generation, ids=[lane, topic]):
            found = self.all_progress()
            return {p.partition: p for p in found if (p.lane, p.generation, p.topic) == (lane, generation, topic)}

    def all_progress(self) -> list[Progress]:
        """Every progress record."""
        ids = list(self._records.get(("progress", None), {}))
        return list(self._get("progress", None, ids, Progress).values())

    def write_progress(self, records: Sequence[Progress], deadline: Deadline | None = None) -> None:
        """See the port."""
        ids = [f"{r.topic}/{r.partition}" for r in records]
        with self._call("write_progress", records[0].generation if records else "", ids=ids, deadline=deadline):
            for r in records:
                uid = progress_uid(r.lane, r.generation, r.topic, r.partition)
                self._put("progress", None, uid, "progress", r, r.offset)

    # ------------------------------------------------------------ manifests and sections

    def read_manifests(self, generation: str, tenant: str, uids: Sequence[str]) -> dict[str, Manifest]:
        """See the port."""
        with self._call("read_manifests", generation, tenant, uids):
            return self._get(f"records:{generation}", tenant, uids, Manifest)

    def write_manifest(self, generation: str, manifest: Manifest, deadline: Deadline | None = None) -> None:
        """See the port."""
        document = manifest.document
        with self._call("write_manifest", generation, document.tenant, [document.uid], deadline=deadline):
            self._put(
                f"records:{generation}", document.tenant, document.uid, "manifest", manifest, manifest.content_version
            )

    def write_manifest_page(
        self,
        generation: str,
        document: DocumentRef,
        version: int,
        page: int,
        pages: int,
        entries: Sequence[PageEntry],
        deadline: Deadline | None = None,
    ) -> None:
        """See the port."""
        manifest_pages.check_page(page, pages, entries)
        uid = manifest_pages.page_uid(document, version, page)
        with self._call("write_manifest_page", generation, document.tenant, [uid], deadline=deadline):
            collection = f"records:{generation}"
            self._need(collection)
            self._records.setdefault((collection, document.tenant), {})[uid] = manifest_pages.encode(entries)

    def pages(self, generation: str, manifest: Manifest, numbers: Sequence[int]) -> list[list[PageEntry]]:
        """Those of the pages that are there."""
        self._need(f"records:{generation}")
        stored = self._records.get((f"records:{generation}", manifest.document.tenant), {})
        ids = [manifest_pages.page_uid(manifest.document, manifest.content_version, n) for n in numbers]
        return [manifest_pages.decode(stored[uid]) for uid in ids if uid in stored]

    def read_manifest_pages(self, generation: str, manifest: Manifest) -> Manifest:
        """See the port."""
        document = manifest.document
        with self._call("read_manifest_pages", generation, document.tenant, [document.uid]):
            if manifest.pages == 0:
                return manifest
            return manifest_pages.filled(manifest, self.pages(generation, manifest, range(manifest.pages)))

    def delete_manifest_pages(
        self,
        generation: str,
        document: DocumentRef,
        version: int,
        pages: int,
        deadline: Deadline | None = None,
    ) -> None:
        """See the port."""
        ids = manifest_pages.page_uids(document, version, pages)
        with self._call("delete_manifest_pages", generation, document.tenant, ids, deadline=deadline):
            self._remove_records(generation, document.tenant, ids)

    def _remove_records(self, generation: str, tenant: str, ids: Sequence[str]) -> None:
        self._need(f"records:{generation}")
        stored = self._records.get((f"records:{generation}", tenant), {})
        for uid in ids:
            stored.pop(uid, None)

    def write_sections(
        self,
        generation: str,
        document: DocumentRef,
        sections: Sequence[Section],
        deadline: Deadline | None = None,
    ) -> None:
        """See the port."""
        ids = [section.section_id for section in sections]
        with self._call("write_sections", generation, document.tenant, ids, deadline=deadline):
            for section in sections:
                self._put(
                    f"records:{generation}", document.tenant, section.section_id, "section", section, 0, document.uid
                )

    def read_sections(self, generation: str, tenant: str, section_ids: Sequence[str]) -> dict[str, Section]:
        """See the port."""
        with self._call("read_sections", generation, tenant, section_ids):
            return self._get(f"records:{generation}", tenant, section_ids, Section)

    def delete_sections(
        self, generation: str, tenant: str, section_ids: Sequence[str], deadline: Deadline | None = None
    ) -> None:
        """See the port."""
        with self._call("delete_sections", generation, tenant, section_ids, deadline=deadline):
            self._remove_records(generation, tenant, section_ids)

    # ------------------------------------------------------------ chunks

    def tier(self, generation: str, tier: Tier, tenant: str) -> dict[str, StoredChunk]:
        """Chunk objects of a tier by id, live: a test may look, and break things."""
        self._need(f"{tier}:{generation}")
        return self._chunks.setdefault((f"{tier}:{generation}", tenant), {})

    def insert_chunks(
        self,
        generation: str,
        tier: Tier,
        tenant: str,
        chunks: Sequence[ChunkWrite],
        *,
        ambiguous: bool = False,
        deadline: Deadline | None = None,
    ) -> None:
        """See the port."""
        if not chunks:
            return
        if generation not in self._dimensions:
            raise StoreUnavailable(f"generation {generation!r} has not been created")
        for write in chunks:
            check_vector(write.chunk.chunk_id, write.vector, self._dimensions[generation])
        objects = [chunk_object(write) for write in chunks]
        ids = [write.chunk.chunk_id for write in chunks]
        with self._call("insert_chunks", generation, tenant, ids, tier, deadline, ambiguous) as torn:
            stored = self.tier(generation, tier, tenant)
            for write, item in zip(chunks, objects, strict=True):
                uid, before = write.chunk.chunk_id, stored.get(write.chunk.chunk_id)
                # The store skips a write that changes nothing, even where the vector is missing.
                stuck = before is not None and before.vector is None and not ambiguous
                vector = None if torn or stuck else write.vector.astype(np.float32)
                stored[uid] = StoredChunk(dict(item.properties), vector)

    def read_vectors(self, generation: str, tenant: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        """See the port."""
        with self._call("read_vectors", generation, tenant, chunk_ids):
            found: dict[str, Vectors] = {}
            for tier in reversed(TIERS):
                stored = self.tier(generation, tier, tenant)
                for uid in chunk_ids:
                    if uid in stored and (vector := stored[uid].vector) is not None:
                        found[uid] = vector.copy()
            return found

    def copy_chunks(
        self,
        generation: str,
        tenant: str,
        chunk_ids: Sequence[str],
        *,
        source: Tier,
        target: Tier,
        deadline: Deadline | None = None,
    ) -> int:
        """See the port."""
        with self._call("copy_chunks", generation, tenant, chunk_ids, target, deadline):
            from_, to = self.tier(generation, source, tenant), self.tier(generation, target, tenant)
            copied = 0
            for uid in dict.fromkeys(chunk_ids):
                item = from_.get(uid)
                if item is not None and item.vector is not None:
                    to[uid] = StoredChunk(dict(item.properties), item.vector.copy())
                    copied += 1
            return copied

    def delete_chunks(
        self,
        generation: str,
        tenant: str,
        chunk_ids: Sequence[str],
        *,
        tiers: Sequence[Tier] = TIERS,
        deadline: Deadline | None = None,
    ) -> None:
        """See the port."""
        with self._call("delete_chunks", generation, tenant, chunk_ids, ",".join(tiers), deadline):
            for tier in tiers:
                stored = self.tier(generation, tier, tenant)
                for uid in chunk_ids:
                    stored.pop(uid, None)

    def update_allow(
        self,
        generation: str,
        tenant: str,
        chunk_ids: Sequence[str],
        allow: Sequence[str],
        allow2: Sequence[str],
        deadline: Deadline | None = None,
    ) -> None:
        """See the port."""
        with self._call("update_allow", generation, tenant, chunk_ids, deadline=deadline):
            for tier in TIERS:
                stored = self.tier(generation, tier, tenant)
                for uid in chunk_ids:
                    if uid in stored:
                        stored[uid].properties.update(allow=list(allow), allow2=list(allow2))

    def searchable(self, generation: str, tier: Tier, tenant: str, chunk_ids: Sequence[str]) -> set[str]:
        """See the port."""
        with self._call("searchable", generation, tenant, chunk_ids, tier):
            stored = self.tier(generation, tier, tenant)
            return {uid for uid in chunk_ids if uid in stored and stored[uid].vector is not None}

    def section_ids_of(self, generation: str, document: DocumentRef) -> set[str]:
        """See the port."""
        place = (f"records:{generation}", document.tenant)
        with self._call("section_ids_of", generation, document.tenant, [document.uid]):
            stored = self._records.get(place, {})
            return {uid for uid in stored if self._kinds.get((place, uid)) == ("section", document.uid)}

    def chunk_ids_of(self, generation: str, document: DocumentRef) -> dict[Tier, set[str]]:
        """See the port."""
        with self._call("chunk_ids_of", generation, document.tenant, [document.uid]):
            return {
                tier: {
                    uid
                    for uid, item in self.tier(generation, tier, document.tenant).items()
                    if item.properties["document"] == document.uid
                }
                for tier in TIERS
            }

    def keyword_matches(self, generation: str, document: DocumentRef, terms: Sequence[str]) -> dict[Tier, set[str]]:
        """See the port."""
        wanted = set(terms)
        with self._call("keyword_matches", generation, document.tenant, [document.uid]):
            return self._matches(
                generation, document, lambda item: bool(wanted & set(str(item.properties["lexical"]).split()))
            )

    def vector_matches(self, generation: str, document: DocumentRef, vector: Vectors) -> dict[Tier, set[str]]:
        """See the port."""
        with self._call("vector_matches", generation, document.tenant, [document.uid]):
            return self._matches(generation, document, lambda item: item.vector is not None)

    def _matches(
        self, generation: str, document: DocumentRef, met: Callable[[StoredChunk], bool]
    ) -> dict[Tier, set[str]]:
        return {
            tier: {
                uid
                for uid, item in self.tier(generation, tier, document.tenant).items()
                if item.properties["document"] == document.uid and met(item)
            }
            for tier in TIERS
        }

    def count_chunks(self, generation: str, tenant: str) -> dict[Tier, int]:
        """See the port."""
        with self._call("count_chunks", generation, tenant):
            return {tier: len(self.tier(generation, tier, tenant)) for tier in TIERS}

    # ------------------------------------------------------------ walks

    def _tenanted(self, generation: str | None) -> list[str]:
        if generation is None:
            return ["access", "principals"]
        return [f"{kind}:{generation}" for kind in ("hot", "cold", "records")]

    def tenants(self, generation: str | None) -> set[str]:
        """See the port."""
        with self._call("tenants", generation or ""):
            collections = self._tenanted(generation)
            self._need(collections[0])
            places = [*self._records.items(), *self._chunks.items()]
            return {tenant for (name, tenant), data in places if tenant is not None and name in collections and data}

    def walk_manifests(self, generation: str, tenant: str) -> Iterator[Manifest]:
        """See the port."""
        return self._walk_records("walk_manifests", f"records:{generation}", tenant, "manifest", Manifest)

    def walk_access(self, tenant: str) -> Iterator[AccessRecord]:
        """See the port."""
        return self._walk_records("walk_access", "access", tenant, "access", AccessRecord)

    def walk_principals(self, tenant: str) -> Iterator[PrincipalRecord]:
        """See the port."""
        return self._walk_records("walk_principals", "principals", tenant, "principal", PrincipalRecord)

    def _walk_records(self, op: str, collection: str, tenant: str, kind: str, model: type[M]) -> Iterator[M]:
        place = (collection, tenant)
        for uid in self._walk(op, collection, self._records, tenant):
            if self._kinds.get((place, uid), ("", ""))[0] == kind:
                with suppress(Reject, KeyError):
                    yield parse(model, self._records[place][uid], f"{kind} {uid}")

    def walk_chunks(self, generation: str, tier: Tier, tenant: str) -> Iterator[StandingChunk]:
        """See the port."""
        collection = f"{tier}:{generation}"
        for uid in self._walk("walk_chunks", collection, self._chunks, tenant):
            item = self._chunks[(collection, tenant)].get(uid)
            if item is not None:
                properties: Mapping[str, Any] = item.properties
                allow, allow2 = (tuple(properties[name]) for name in ("allow", "allow2"))
                yield StandingChunk(uid, str(properties["document"]), allow, allow2)

    def walk_sections(self, generation: str, tenant: str) -> Iterator[tuple[str, str]]:
        """See the port."""
        collection = f"records:{generation}"
        for uid in self._walk("walk_sections", collection, self._records, tenant):
            kind, document = self._kinds.get(((collection, tenant), uid), ("", ""))
            if kind == "section":
                yield uid, document

    def _walk(self, op: str, collection: str, data: Mapping[Place, Mapping[str, Any]], tenant: str) -> Iterator[str]:
        """Ids in order, page by page: each page is one call, and sees what stands by then."""
        self._need(collection)
        last = ""
        while True:
            with self._call(op, collection.partition(":")[2], tenant):
                page = sorted(uid for uid in data.get((collection, tenant), {}) if uid > last)[:WALK_PAGE]
            if not page:
                return
            yield from page
            last = page[-1]

    def drop_tenant(self, generation: str | None, tenant: str) -> None:
        """See the port."""
        with self._call("drop_tenant", generation or "", tenant):
            for collection in self._tenanted(generation):
                self._records.pop((collection, tenant), None)
                self._chunks.pop((collection, tenant), None)

    def healthy(self) -> bool:
        """See the port."""
        with self._call("healthy"):
            return True

    def footprint(self) -> StoreFootprint:
        """See the port; ``refuses`` and ``disk_used`` are what a test has set."""
        with self._call("footprint"):
            objects = dict.fromkeys(self._collections, 0)
            places: list[tuple[Place, Mapping[str, Any]]] = [*self._records.items(), *self._chunks.items()]
            for (collection, _), data in places:
                objects[collection] += len(data)
            return StoreFootprint(objects, self.written, self.refuses, self.disk_bytes, self.disk_used)

    def close(self) -> None:
        """See the port."""
        self.closed = True

    def reader(self) -> FakeReader:
        """A reader of the same data."""
        return FakeReader(self)

    @contextmanager
    def reading(self, op: str, generation: str = "", tenant: str = "", ids: Sequence[str] = ()) -> Iterator[None]:
        """A call of the reader: traced and failed like the others."""
        with self._call(op, generation, tenant, ids):
            yield

    def readable(self, collection: str, tenant: str | None, ids: Sequence[str], model: type[M]) -> dict[str, M]:
        """Records by id as readers see them: one that cannot be read is absent."""
        found: dict[str, M] = {}
        for uid in ids:
            with suppress(Reject):
                found.update(self._get(collection, tenant, [uid], model))
        return found

    def put_raw(self, collection: str, tenant: str, uid: str, record: str) -> None:
        """Store any text as a record ("access", "principals", "records:<generation>")."""
        self._records.setdefault((collection, tenant), {})[uid] = record
        self._kinds.pop(((collection, tenant), uid), None)

    def snapshot(self) -> str:
        """Everything stored, canonically: equal snapshots mean equal stores."""
        with self._lock:
            records = sorted(
                (str(p), uid, json.loads(r)) for p, data in self._records.items() for uid, r in data.items()
            )
            chunks = sorted(
                (str(p), uid, c.properties, None if c.vector is None else c.vector.tolist())
                for p, data in self._chunks.items()
                for uid, c in data.items()
            )
            return json.dumps([records, chunks, self._active], sort_keys=True, ensure_ascii=False)


class FakeReader:
    """``ports.IndexReader`` on a FakeStore. Its calls are named ``reader.<method>`` in trace and failures."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store

    async def dense(
        self, generation: str, tier: Tier, tenant: str, vector: Vectors, where: SearchFilter, limit: int
    ) -> list[Hit]:
        """See the port."""
        with self._store.reading("reader.dense", generation, tenant):
            query = np.asarray(vector, dtype=np.float32).reshape(-1)
            query = query / np.linalg.norm(query)
            hits = [
                Hit(uid, str(item.properties["document"]), tier, 1.0 - float(query @ item.vector))
                for uid, item in self._matching(generation, tier, tenant, where)
                if item.vector is not None
            ]
            return sorted(hits, key=lambda hit: hit.score)[:limit]

    async def sparse(
        self, generation: str, tier: Tier, tenant: str, query: str, where: SearchFilter, limit: int
    ) -> list[Hit]:
        """See the port."""
        with self._store.reading("reader.sparse", generation, tenant):
            terms = query.split()
            everything = self._store.tier(generation, tier, tenant)
            words = {uid: str(item.properties["lexical"]).split() for uid, item in everything.items()}
            average = sum(map(len, words.values())) / len(words) if words else 0.0
            frequency = Counter(term for tokens in words.values() for term in set(tokens))
            hits = []
            for uid, item in self._matching(generation, tier, tenant, where):
                score = bm25(terms, words[uid], len(words), average, frequency)
                if score > 0:
                    lexical = str(item.properties["lexical"])
                    hits.append(Hit(uid, str(item.properties["document"]), tier, score, lexical))
            return sorted(hits, key=lambda hit: -hit.score)[:limit]

    async def exact(
        self, generation: str, tier: Tier, tenant: str, where: SearchFilter, limit: int
    ) -> list[Hit]:  # fmt: skip
        """See the port."""
        with self._store.reading("reader.exact", generation, tenant):
            if not where.identifiers:
                return []
            found = self._matching(generation, tier, tenant, where)
            return [
                Hit(uid, str(item.properties["document"]), tier, 0.0, str(item.properties["lexical"]))
                for uid, item in found
            ][:limit]

    async def listing(self, generation: str, tier: Tier, tenant: str, where: SearchFilter, limit: int) -> list[Hit]:
        """See the port."""
        with self._store.reading("reader.listing", generation, tenant):
            found = self._matching(generation, tier, tenant, where)
            return [Hit(uid, str(item.properties["document"]), tier, 0.0) for uid, item in found][:limit]

    def _matching(self, generation: str, tier: Tier, tenant: str, where: SearchFilter) -> list[tuple[str, StoredChunk]]:
        stored = self._store.tier(generation, tier, tenant)
        return [(uid, item) for uid, item in sorted(stored.items()) if matches(item.properties, where)]

    async def statistics(self, generation: str, tenant: str, terms: Sequence[str]) -> TermStatistics:
        """See the port."""
        with self._store.reading("reader.statistics", generation, tenant, terms):
            words = [
                str(item.properties["lexical"]).split()
                for tier in TIERS
                for item in self._store.tier(generation, tier, tenant).values()
            ]
            average = sum(map(len, words)) / len(words) if words else 0.0
            return TermStatistics(len(words), average, {term: sum(term in w for w in words) for term in terms})

    async def access(self, tenant: str, uids: Sequence[str]) -> dict[str, AccessRecord]:
        """See the port."""
        with self._store.reading("reader.access", tenant=tenant, ids=uids):
            return self._store.readable("access", tenant, uids, AccessRecord)

    async def principals(self, tenant: str, principals: Sequence[str]) -> dict[str, PrincipalRecord]:
        """See the port."""
        with self._store.reading("reader.principals", tenant=tenant, ids=principals):
            by_uid = {principal_uid(tenant, p): p for p in principals}
            found = self._store.readable("principals", tenant, list(by_uid), PrincipalRecord)
            return {by_uid[uid]: record for uid, record in found.items()}

    async def manifests(self, generation: str, tenant: str, uids: Sequence[str]) -> dict[str, Manifest]:
        """See the port."""
        with self._store.reading("reader.manifests", generation, tenant, uids):
            return self._store.readable(f"records:{generation}", tenant, uids, Manifest)

    async def page_entries(self, generation: str, manifest: Manifest, chunk_ids: Sequence[str]) -> dict[str, PageEntry]:
        """See the port."""
        with self._store.reading("reader.page_entries", generation, manifest.document.tenant, chunk_ids):
            if manifest.pages == 0:
                return {}
            numbers = sorted({page_of(uid, manifest.pages) for uid in chunk_ids})
            found = self._store.pages(generation, manifest, numbers)
            return {e.chunk_id: e for page in found for e in page if e.chunk_id in set(chunk_ids)}

    async def page_span(self, generation: str, manifest: Manifest, first: int, last: int) -> list[PageEntry]:
        """See the port."""
        with self._store.reading("reader.page_span", generation, manifest.document.tenant, []):
            found = self._store.pages(generation, manifest, range(manifest.pages))
            entries = (e for page in found for e in page if first <= e.ordinal <= last)
            return sorted(entries, key=lambda e: e.ordinal)

    async def chunks(self, generation: str, tenant: str, chunk_ids: Sequence[str]) -> dict[str, ChunkText]:
        """See the port."""
        with self._store.reading("reader.chunks", generation, tenant, chunk_ids):
            found: dict[str, ChunkText] = {}
            for tier in reversed(TIERS):
                stored = self._store.tier(generation, tier, tenant)
                found.update((uid, chunk_text(uid, stored[uid].properties)) for uid in chunk_ids if uid in stored)
            return found

    async def lexical(self, generation: str, tenant: str, chunk_ids: Mapping[Tier, Sequence[str]]) -> dict[str, str]:
        """See the port."""
        ids = [uid for found in chunk_ids.values() for uid in found]
        with self._store.reading("reader.lexical", generation, tenant, ids):
            tiers = [self._store.tier(generation, tier, tenant) for tier in TIERS]
            return {uid: str(t[uid].properties["lexical"]) for uid in ids for t in tiers if uid in t}

    async def passages(
        self, generation: str, tenant: str, chunk_ids: Mapping[Tier, Sequence[str]], *, vectors: bool = False
    ) -> tuple[dict[str, ChunkText], dict[str, Vectors]]:
        """See the port."""
        texts = await self.chunks(generation, tenant, [uid for found in chunk_ids.values() for uid in found])
        stored = {t: self._store.tier(generation, t, tenant) for t in chunk_ids} if vectors else {}
        found = {uid: tier.get(uid) for t, tier in stored.items() for uid in chunk_ids[t]}
        return texts, {uid: item.vector for uid, item in found.items() if item is not None and item.vector is not None}

    async def sections(self, generation: str, tenant: str, section_ids: Sequence[str]) -> dict[str, Section]:
        """See the port."""
        with self._store.reading("reader.sections", generation, tenant, section_ids):
            return self._store.readable(f"records:{generation}", tenant, section_ids, Section)

    async def generations(self) -> dict[str, Generation]:
        """See the port."""
        return self._store.read_generations()

    async def active_generation(self) -> str | None:
        """See the port."""
        return self._store.active_generation()

    async def progress(self) -> list[Progress]:
        """See the port."""
        with self._store.reading("reader.progress"):
            return self._store.all_progress()

    def remembered(self, uid: str) -> list[BaseModel]:
        """See the port; nothing is kept here."""
        return []

    def forget_document(self, uid: str) -> None:
        """See the port; nothing is kept here."""

    def forget(self, generation: str) -> None:
        """See the port; nothing is kept here."""

    async def close(self) -> None:
        """See the port."""


def matches(properties: dict[str, object], where: SearchFilter) -> bool:
    """Whether a chunk's properties pass the filter."""

    def holds(name: str, wanted: Sequence[str] | None) -> bool:
        stored = properties.get(name)
        values = stored if isinstance(stored, list) else [stored]
        return wanted is None or any(value in wanted for value in values)

    if not (holds("allow", where.allow) and holds("allow2", where.allow)):
        return False
    if not all(holds(name, getattr(where, field_)) for field_, name in _ANY_OF):
        return False
    if where.identifiers:
        stored = properties["identifiers"]
        assert isinstance(stored, list)
        if not set(where.identifiers) <= set(stored):
            return False
    if where.words and not set(where.words) <= set(str(properties["lexical"]).split()):
        return False
    if where.as_of is not None:
        start, end = properties["effective_from"], properties["effective_until"]
        assert isinstance(start, int) and isinstance(end, int)
        return start <= where.as_of < end
    return True


def bm25(
    terms: Sequence[str], words: Sequence[str], chunks: int, average: float, frequency: Counter[str]
) -> float:  # fmt: skip
    """The store's formula: no (k1 + 1), a term twice in the query counts twice."""
    counts = Counter(words)
    score = 0.0
    for term in terms:
        tf = counts[term]
        if tf:
            n = frequency[term]
            idf = math.log(1 + (chunks - n + 0.5) / (n + 0.5))
            score += idf * tf / (tf + BM25_K1 * (1 - BM25_B + BM25_B * len(words) / average))
    return score
