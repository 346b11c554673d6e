"""Chunks: insert, repair after an ambiguous failure, probe, copy between tiers, refresh of the pre-filter, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from weaviate.classes.data import DataObject
from weaviate.classes.query import Filter

from pipeline.errors import StoreUnavailable
from pipeline.index.connection import TenantMissing, translated
from pipeline.index.core import StoreCore
from pipeline.index.objects import (
    Object,
    batches,
    check_vector,
    chunk_object,
    generation_uid,
    pages_of,
    parse,
    size_of,
)
from pipeline.index.schema import TIERS, VECTOR
from pipeline.ports import ChunkWrite, Deadline, Vectors
from pipeline.settings import Settings
from schemas.documents import Tier
from schemas.generation import Generation
from schemas.keys import DocumentRef

MAX_RESULTS = 10_000  # of one filtered query, by the server's default


class ChunkStore(StoreCore):
    """The chunk collections of both tiers."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        # Sent but not acknowledged: a repeated insert would not give them the vector that they may lack.
        self._suspects: set[tuple[str, str, str]] = set()

    # ------------------------------------------------------------ insert

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
        """Insert chunks; with ``ambiguous``, or after an insert that was not acknowledged, delete them first and
        probe each afterwards. Raises DocumentError for a vector that does not fit, before anything is written."""
        if not chunks:
            return
        dimension = self._dimension(generation)
        for write in chunks:
            check_vector(write.chunk.chunk_id, write.vector, dimension)
        objects = [chunk_object(write) for write in chunks]
        collection = self._names.tier(tier, generation)
        if ambiguous or any(self._is_suspect(collection, tenant, item) for item in objects):
            self._repair(collection, tenant, objects, deadline)
        else:
            self._insert(collection, tenant, objects, deadline)
            self._trust(collection, tenant, objects)

    def _dimension(self, generation: str) -> int:
        if generation not in self._dimensions:
            uid = generation_uid(generation)
            record = self._read_records(self._names.generations, None, [uid]).get(uid)
            if record is None:
                raise StoreUnavailable(f"generation {generation!r} has not been created")
            self._dimensions[generation] = parse(Generation, record, "generation record").encoder.dimension
        return self._dimensions[generation]

    def _is_suspect(self, collection: str, tenant: str, item: Object) -> bool:
        return (collection, tenant, str(item.uuid)) in self._suspects

    def _trust(self, collection: str, tenant: str, objects: Sequence[Object]) -> None:
        self._suspects.difference_update((collection, tenant, str(item.uuid)) for item in objects)

    def _insert(self, collection: str, tenant: str, objects: Sequence[Object], deadline: Deadline | None) -> None:
        """Insert and leave those under suspicion that were not acknowledged; the caller lifts it."""
        self._suspects.update((collection, tenant, str(item.uuid)) for item in objects)
        self._upsert(collection, tenant, objects, deadline)
        # The server flushes the log of the vector index before a batch's vectors are in it: killed now, it would come
        # back without the vectors of the last batch that it acknowledged. A further batch flushes them.
        self._upsert(collection, tenant, [min(objects, key=size_of)], deadline)

    def _repair(self, collection: str, tenant: str, objects: Sequence[Object], deadline: Deadline | None) -> None:
        self._erase(collection, tenant, [str(item.uuid) for item in objects], deadline)
        self._insert(collection, tenant, objects, deadline)
        missing = self._without_vector(collection, tenant, objects)
        if missing:
            raise StoreUnavailable(f"{collection}: {len(missing)} inserted chunks are not in the vector index")
        self._trust(collection, tenant, objects)

    def _without_vector(self, collection: str, tenant: str, objects: Sequence[Object]) -> list[Object]:
        """Objects that a vector search narrowed to their ids does not find."""
        missing: list[Object] = []
        for batch in batches(objects):
            ids = [str(item.uuid) for item in batch]
            found = self._probe(collection, tenant, batch[0], ids)
            # Above the flat cutoff the search is approximate: what one look missed is asked for alone.
            missing.extend(
                item
                for item in batch
                if str(item.uuid) not in found and not self._probe(collection, tenant, item, [str(item.uuid)])
            )
        return missing

    def _probe(self, collection: str, tenant: str, near: Object, ids: list[str]) -> set[str]:
        assert isinstance(near.vector, dict)
        with translated(f"probe {collection}"):
            reply = self._handle(collection, tenant).query.near_vector(
                near.vector[VECTOR],
                filters=Filter.by_id().contains_any(ids),
                limit=len(ids),
                return_properties=[],
            )
        return {str(item.uuid) for item in reply.objects}

    def searchable(self, generation: str, tier: Tier, tenant: str, chunk_ids: Sequence[str]) -> set[str]:
        """Those of the chunks that stand in the tier and are found there by their own vector."""
        collection = self._names.tier(tier, generation)
        stored = self._read(collection, tenant, chunk_ids, [], vectors=True)
        objects: list[Object] = [
            DataObject(properties={}, uuid=uid, vector={VECTOR: item.vector[VECTOR]})
            for uid, item in stored.items()
            if item.vector.get(VECTOR)
        ]
        lost = {str(item.uuid) for item in self._without_vector(collection, tenant, objects)}
        return {str(item.uuid) for item in objects} - lost

    # ------------------------------------------------------------ vectors and copies

    def read_vectors(self, generation: str, tenant: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        """Vectors (shape (dimension,)) of chunks found in either tier."""
        found: dict[str, Vectors] = {}
        for tier in TIERS:
            left = [uid for uid in chunk_ids if uid not in found]
            objects = self._read(self._names.tier(tier, generation), tenant, left, [], vectors=True)
            found.update(
                (uid, np.asarray(item.vector[VECTOR], dtype=np.float32))
                for uid, item in objects.items()
                if item.vector.get(VECTOR)
            )
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
        """Copy chunks with their vectors and probe them. The count copied: absent ids and chunks without a vector
        are not."""
        copied = 0
        collection = self._names.tier(target, generation)
        for page in pages_of(chunk_ids):
            stored = self._read(self._names.tier(source, generation), tenant, page, None, vectors=True)
            objects: list[Object] = [
                DataObject(properties=_present(item.properties), uuid=uid, vector={VECTOR: item.vector[VECTOR]})
                for uid, item in stored.items()
                if item.vector.get(VECTOR)
            ]
            if not objects:
                continue
            self._insert(collection, tenant, objects, deadline)
            # Chunks left by an interrupted copy may lack their vector, which inserting again does not repair.
            missing = self._without_vector(collection, tenant, objects)
            if missing:
                self._repair(collection, tenant, missing, deadline)
            self._trust(collection, tenant, objects)
            copied += len(objects)
        return copied

    # ------------------------------------------------------------ pre-filter and removal

    def update_allow(
        self,
        generation: str,
        tenant: str,
        chunk_ids: Sequence[str],
        allow: Sequence[str],
        allow2: Sequence[str],
        deadline: Deadline | None = None,
    ) -> None:
        """Replace the pre-filter of the chunks that stand in either tier; those that have it already are left."""
        new = {"allow": list(allow), "allow2": list(allow2)}
        work: list[tuple[str, str]] = []
        for tier in TIERS:
            collection = self._names.tier(tier, generation)
            stored = self._read(collection, tenant, chunk_ids, ["allow", "allow2"])
            work.extend(
                (collection, uid)
                for uid, item in stored.items()
                if any(list(item.properties.get(name) or []) != value for name, value in new.items())
            )
        if not work:
            return
        self._in_threads([self._patcher(c, tenant, uid, new, deadline) for c, uid in work], deadline)

    def _patcher(
        self, collection: str, tenant: str, uid: str, properties: dict[str, Any], deadline: Deadline | None
    ) -> Callable[[], None]:
        """Merges properties into one object; the vector stays."""

        def patch() -> None:
            body = {"class": collection, "tenant": tenant, "properties": properties}
            self._rest("PATCH", collection, uid, deadline, json=body)

        return patch

    def delete_chunks(
        self,
        generation: str,
        tenant: str,
        chunk_ids: Sequence[str],
        *,
        tiers: Sequence[Tier] = TIERS,
        deadline: Deadline | None = None,
    ) -> None:
        """Delete chunks by id."""
        collections = [self._names.tier(tier, generation) for tier in tiers]
        left = set(chunk_ids)
        for collection in collections:
            left -= self._delete(collection, tenant, chunk_ids, deadline)
        for collection in collections:
            # Met in no tier: absent or torn.
            self._erase(collection, tenant, sorted(left), deadline)
            self._suspects.difference_update((collection, tenant, uid) for uid in chunk_ids)

    # ------------------------------------------------------------ audits

    def chunk_ids_of(self, generation: str, document: DocumentRef) -> dict[Tier, set[str]]:
        """Ids of a document's chunks in each tier, by document filter."""
        return {tier: self._ids_of(self._names.tier(tier, generation), document) for tier in TIERS}

    def section_ids_of(self, generation: str, document: DocumentRef) -> set[str]:
        """Ids of a document's sections, by document filter."""
        where = Filter.by_property("document").equal(document.uid)
        return self._ids_where(self._names.records(generation), document.tenant, where)

    def _ids_of(self, collection: str, document: DocumentRef) -> set[str]:
        where = Filter.by_property("document").equal(document.uid)
        found = self._ids_where(collection, document.tenant, where)
        if len(found) < MAX_RESULTS:
            return found
        # More than one query returns: sliced by the first digit of the section's uuid.
        for digit in "0123456789abcdef":
            found |= self._ids_where(
                collection, document.tenant, where & Filter.by_property("section").like(f"{digit}*")
            )
        return found

    def _ids_where(self, collection: str, tenant: str, where: Any) -> set[str]:
        try:
            with translated(f"list {collection}"):
                reply = self._handle(collection, tenant).query.fetch_objects(
                    filters=where, limit=MAX_RESULTS, return_properties=[]
                )
        except TenantMissing:
            return set()
        return {str(item.uuid) for item in reply.objects}

    def count_chunks(self, generation: str, tenant: str) -> dict[Tier, int]:
        """Chunks in each tier."""
        return {tier: self._count(self._names.tier(tier, generation), tenant) for tier in TIERS}


def _present(properties: dict[str, Any]) -> dict[str, Any]:
    """Stored properties without those that are not set."""
    return {name: value for name, value in properties.items() if value is not None}
