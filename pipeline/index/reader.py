"""What the query service asks of Weaviate: searches of one tier, corpus statistics, records by id."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel
from weaviate.classes.query import Metrics

from pipeline.errors import Reject
from pipeline.index import filters, frequency, lean, pages
from pipeline.index.connection import AsyncConnection, TenantMissing, translated
from pipeline.index.objects import ACTIVE_UID, chunk_text, pages_of, parse
from pipeline.index.parsed import Parsed
from pipeline.index.schema import TIERS, Collections
from pipeline.index.statistics import StatisticsCache, Total
from pipeline.ports import ChunkText, Hit, SearchFilter, TermStatistics, Vectors
from pipeline.settings import Settings
from schemas.documents import AccessRecord, Manifest, PageEntry, PrincipalRecord, Section, Tier, page_of
from schemas.generation import Generation
from schemas.keys import principal_uid
from schemas.receipts import Progress

MAX_RECORDS = 10_000
PARSED = 10_000  # documents and principals whose records are kept parsed
_TEXT = (
    "document", "section", "heading_path", "text", "lexical", "identifiers", "source", "kind", "content_type",
    "language",
)  # fmt: skip
_FOUND = ("document",)
_FOUND_BY_WORDS = ("document", "lexical")
_log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)


class WeaviateReader:
    """``ports.IndexReader`` on Weaviate: one asynchronous client for the life of the event loop, opened at first use,
    with the read-only key where one is set. A missing tenant is empty; a record that this release cannot read is
    absent, which closes what depends on it."""

    def __init__(self, settings: Settings) -> None:
        self._names = Collections(settings.namespace)
        self._connection = AsyncConnection(settings.weaviate)
        self._handles: dict[tuple[str, str | None], Any] = {}
        self._statistics = StatisticsCache(self._ask_total, self._ask_frequencies)
        self._parsed = Parsed(PARSED)  # never sections: they are texts

    # ------------------------------------------------------------ searches

    async def dense(
        self, generation: str, tier: Tier, tenant: str, vector: Vectors, where: SearchFilter, limit: int
    ) -> list[Hit]:
        """Nearest chunks by cosine distance; ``vector`` has shape (dimension,) or (1, dimension)."""
        vector = np.asarray(vector, dtype=np.float32)
        return await self._search(generation, tier, tenant, where, limit, near_vector=lean.near(vector), distance=True)

    async def sparse(
        self, generation: str, tier: Tier, tenant: str, query: str, where: SearchFilter, limit: int
    ) -> list[Hit]:
        """Best chunks by BM25 over ``lexical``; ``query`` holds space-joined analysed tokens."""
        if not query.strip():
            return []
        return await self._search(
            generation, tier, tenant, where, limit, _FOUND_BY_WORDS, bm25_search=lean.words(query), score=True
        )

    async def exact(
        self, generation: str, tier: Tier, tenant: str, where: SearchFilter, limit: int
    ) -> list[Hit]:  # fmt: skip
        """Chunks that hold all of ``where.identifiers`` (casefolded), unranked; without identifiers none."""
        if not where.identifiers:
            return []
        return await self._search(generation, tier, tenant, where, limit, _FOUND_BY_WORDS)

    async def listing(self, generation: str, tier: Tier, tenant: str, where: SearchFilter, limit: int) -> list[Hit]:
        """Chunks that pass the filter, unranked; ``limit`` is at most MAX_RECORDS, which the server returns at once."""
        return await self._search(generation, tier, tenant, where, min(limit, MAX_RECORDS))

    async def _search(
        self, generation: str, tier: Tier, tenant: str, where: SearchFilter, limit: int,
        properties: Sequence[str] = _FOUND, *, near_vector: Any = None, bm25_search: Any = None, **metadata: bool,
    ) -> list[Hit]:  # fmt: skip
        if filters.nothing_matches(where):
            return []
        collection = self._names.tier(tier, generation)
        asked = lean.request(collection, tenant, limit, filters.build(where), properties, **metadata)
        if near_vector is not None:
            asked.near_vector.CopyFrom(near_vector)
        if bm25_search is not None:
            asked.bm25_search.CopyFrom(bm25_search)
        try:
            return await lean.hits(self._connection, tier, asked)
        except TenantMissing:
            return []

    async def statistics(self, generation: str, tenant: str, terms: Sequence[str]) -> TermStatistics:
        """Chunks, average length and document frequencies over both tiers, a few seconds old at most where they
        change the ranking (see ``statistics.StatisticsCache``)."""
        return await self._statistics.get(generation, tenant, terms)

    async def _ask_total(self, generation: str, tenant: str) -> Total:
        counted = await asyncio.gather(*(self._tier_total(generation, tier, tenant) for tier in TIERS))
        return Total(sum(t.chunks for t in counted), sum(t.tokens for t in counted))

    async def _tier_total(self, generation: str, tier: Tier, tenant: str) -> Total:
        handle = await self._handle(self._names.tier(tier, generation), tenant)
        try:
            with translated("corpus statistics"):
                reply = await handle.aggregate.over_all(
                    total_count=True, return_metrics=Metrics("length").integer(sum_=True)
                )
        except TenantMissing:
            return Total(0, 0)
        return Total(int(reply.total_count or 0), int(reply.properties["length"].sum_ or 0))

    async def _ask_frequencies(self, generation: str, tenant: str, terms: Sequence[str]) -> dict[str, int]:
        counted = await asyncio.gather(*(self._tier_frequencies(generation, tier, tenant, terms) for tier in TIERS))
        return {term: sum(found.get(term, 0) for found in counted) for term in terms}

    async def _tier_frequencies(self, generation: str, tier: Tier, tenant: str, terms: Sequence[str]) -> dict[str, int]:
        try:
            return await frequency.counts(self._connection, self._names.tier(tier, generation), tenant, terms)
        except TenantMissing:
            return {}

    # ------------------------------------------------------------ records

    async def access(self, tenant: str, uids: Sequence[str]) -> dict[str, AccessRecord]:
        """Access records by document uid."""
        collection = self._names.access
        return _readable(AccessRecord, await self._records(collection, tenant, uids), self._parsed, collection)

    async def principals(self, tenant: str, principals: Sequence[str]) -> dict[str, PrincipalRecord]:
        """Membership records by principal."""
        by_uid = {principal_uid(tenant, p): p for p in principals}
        collection = self._names.principals
        records = await self._records(collection, tenant, list(by_uid))
        found = _readable(PrincipalRecord, records, self._parsed, collection)
        return {by_uid[uid]: record for uid, record in found.items()}

    async def manifests(self, generation: str, tenant: str, uids: Sequence[str]) -> dict[str, Manifest]:
        """Manifests by document uid."""
        collection = self._names.records(generation)
        return _readable(Manifest, await self._records(collection, tenant, uids), self._parsed, collection)

    async def page_entries(self, generation: str, manifest: Manifest, chunk_ids: Sequence[str]) -> dict[str, PageEntry]:
        """Entries of those of the chunk ids that a paged manifest lists; only their pages are read."""
        if manifest.pages == 0 or not chunk_ids:
            return {}
        numbers = {page_of(uid, manifest.pages) for uid in chunk_ids}
        ids = [pages.page_uid(manifest.document, manifest.content_version, number) for number in sorted(numbers)]
        records = await self._records(self._names.records(generation), manifest.document.tenant, ids)
        wanted = set(chunk_ids)
        return {e.chunk_id: e for record in records.values() for e in pages.decode(record) if e.chunk_id in wanted}

    async def page_span(self, generation: str, manifest: Manifest, first: int, last: int) -> list[PageEntry]:
        """Entries at the places from first to last of a paged manifest; all pages are read, for places lie anywhere."""
        ids = pages.page_uids(manifest.document, manifest.content_version, manifest.pages)
        records = await self._records(self._names.records(generation), manifest.document.tenant, ids)
        entries = (e for record in records.values() for e in pages.decode(record))
        return sorted((e for e in entries if first <= e.ordinal <= last), key=lambda e: e.ordinal)

    async def chunks(self, generation: str, tenant: str, chunk_ids: Sequence[str]) -> dict[str, ChunkText]:
        """Stored text of chunks, from either tier."""
        found = await asyncio.gather(
            *(self._by_ids(self._names.tier(tier, generation), tenant, chunk_ids, _TEXT) for tier in TIERS)
        )
        return {uid: chunk_text(uid, item) for objects in reversed(found) for uid, item in objects.items()}

    async def passages(
        self, generation: str, tenant: str, chunk_ids: Mapping[Tier, Sequence[str]], *, vectors: bool = False
    ) -> tuple[dict[str, ChunkText], dict[str, Vectors]]:
        """Stored text of chunks by the tier in which they were found, and where wanted their vectors, shape
        (dimension,); one call a tier. One that has moved since is read in both, without a vector."""
        found = await asyncio.gather(
            *(
                self._passage_page(self._names.tier(tier, generation), tenant, page, vectors)
                for tier, ids in chunk_ids.items()
                for page in pages_of(ids)
            )
        )
        objects = {uid: item for page in found for uid, item in page.items()}
        texts = {uid: chunk_text(uid, item) for uid, (item, _) in objects.items()}
        moved = [uid for ids in chunk_ids.values() for uid in ids if uid not in texts]
        if moved:
            texts.update(await self.chunks(generation, tenant, moved))
        return texts, {uid: vector for uid, (_, vector) in objects.items() if vector is not None}

    async def _passage_page(
        self, collection: str, tenant: str, ids: list[str], vectors: bool
    ) -> dict[str, tuple[dict[str, Any], Vectors | None]]:
        try:
            return await lean.with_vectors(self._connection, collection, tenant, ids, _TEXT, vectors)
        except TenantMissing:
            return {}

    async def lexical(self, generation: str, tenant: str, chunk_ids: Mapping[Tier, Sequence[str]]) -> dict[str, str]:
        """Analysed text of chunks by the tier in which they were found; one that has moved since is read in both."""
        found = await asyncio.gather(
            *(
                self._one_by_ids(self._names.tier(tier, generation), tenant, ids, "lexical")
                for tier, ids in chunk_ids.items()
                if ids
            )
        )
        texts = {uid: text for objects in found for uid, text in objects.items()}
        moved = [uid for ids in chunk_ids.values() for uid in ids if uid not in texts]
        if moved:
            texts.update((uid, text.lexical) for uid, text in (await self.chunks(generation, tenant, moved)).items())
        return texts

    async def sections(self, generation: str, tenant: str, section_ids: Sequence[str]) -> dict[str, Section]:
        """Sections by id."""
        return _readable(Section, await self._records(self._names.records(generation), tenant, section_ids))

    async def generations(self) -> dict[str, Generation]:
        """Generation records by name."""
        records = await self._all(self._names.generations)
        found = _readable(Generation, {uid: r for uid, (kind, r) in records.items() if kind == "generation"})
        return {generation.name: generation for generation in found.values()}

    async def active_generation(self) -> str | None:
        """Name of the active generation, or None."""
        records = await self._records(self._names.generations, None, [ACTIVE_UID])
        return str(json.loads(records[ACTIVE_UID])["active"]) if records else None

    async def progress(self) -> list[Progress]:
        """Progress of every lane, generation and partition."""
        records = await self._all(self._names.progress)
        return list(_readable(Progress, {uid: record for uid, (_, record) in records.items()}).values())

    def forget(self, generation: str) -> None:
        """Release handles and statistics of a generation that nobody asks for any more."""
        gone = set(self._names.of_generation(generation))
        self._handles = {place: handle for place, handle in self._handles.items() if place[0] not in gone}
        self._statistics.forget(generation)

    def remembered(self, uid: str) -> list[BaseModel]:
        """Records of a document that are kept in memory."""
        return self._parsed.remembered(uid)

    def forget_document(self, uid: str) -> None:
        """Keep none of a document's records in memory."""
        self._parsed.forget(uid)

    async def close(self) -> None:
        """Close the connection."""
        await self._statistics.close()
        self._handles.clear()
        await self._connection.close()

    # ------------------------------------------------------------ calls

    async def _handle(self, collection: str, tenant: str | None) -> Any:
        handle = self._handles.get((collection, tenant))
        if handle is None:
            client = await self._connection.client()
            handle = client.collections.use(collection)
            if tenant is not None:
                handle = handle.with_tenant(tenant)
            if len(self._handles) >= 4096:
                self._handles.clear()
            self._handles[(collection, tenant)] = handle
        return handle

    async def _records(self, collection: str, tenant: str | None, ids: Sequence[str]) -> dict[str, str]:
        return await self._one_by_ids(collection, tenant, ids, "record")

    async def _one_by_ids(
        self, collection: str, tenant: str | None, ids: Sequence[str], name: str
    ) -> dict[str, str]:  # fmt: skip
        found = await asyncio.gather(*(self._one_page(collection, tenant, page, name) for page in pages_of(ids)))
        return {uid: text for objects in found for uid, text in objects.items()}

    async def _one_page(self, collection: str, tenant: str | None, ids: list[str], name: str) -> dict[str, str]:
        try:
            return await lean.one_by_ids(self._connection, collection, tenant, ids, name)
        except TenantMissing:
            return {}

    async def _by_ids(
        self, collection: str, tenant: str | None, ids: Sequence[str], properties: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        found = await asyncio.gather(*(self._page(collection, tenant, page, properties) for page in pages_of(ids)))
        return {uid: item for objects in found for uid, item in objects.items()}

    async def _page(
        self, collection: str, tenant: str | None, ids: list[str], properties: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        try:
            return await lean.by_ids(self._connection, collection, tenant, ids, properties)
        except TenantMissing:
            return {}

    async def _all(self, collection: str) -> dict[str, tuple[str, str]]:
        """Type and JSON of every record of a small collection."""
        handle = await self._handle(collection, None)
        with translated(f"read {collection}"):
            reply = await handle.query.fetch_objects(limit=MAX_RECORDS, return_properties=["type", "record"])
        return {str(o.uuid): (str(o.properties["type"]), str(o.properties["record"])) for o in reply.objects}


def _readable(
    model: type[M], records: dict[str, str], parsed: Parsed | None = None, collection: str = ""
) -> dict[str, M]:
    """Parsed records; one that cannot be read is reported and absent, so that what it guards stays closed."""
    found: dict[str, M] = {}
    for uid, record in records.items():
        try:
            if parsed is not None:
                found[uid] = parsed.get(model, collection, uid, record)
            else:
                found[uid] = parse(model, record, model.__name__)
        except Reject as error:
            _log.error("record %s ignored: %s", uid, error.reason)
    return found
