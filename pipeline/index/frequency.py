"""Document frequencies asked from the store."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from weaviate.classes.query import Filter

from pipeline.index import filters, lean
from pipeline.index.connection import AsyncConnection, translated

NOWHERE = "\u2400"  # a word that analysis makes of no text
_PARTS = "build_allow_list_doc_bitmap"


async def counts(connection: AsyncConnection, collection: str, tenant: str, terms: Sequence[str]) -> dict[str, int]:
    """Chunks of a tenant's collection that hold each of the distinct terms. Raises StoreUnavailable or TenantMissing.

    A filtered count reads every object that it counts (4 µs each: 0.2 s for a common word). The profile of a search
    whose filter wants any of the terms tells how many objects each of them matched, and none is read: the search is
    for a word that is nowhere. What a profile does not tell is counted after all.
    """
    if not terms:
        return {}
    asked = lean.request(collection, tenant, 1, filters.any_of("lexical", terms), query_profile=True)
    asked.bm25_search.CopyFrom(lean.words(NOWHERE))
    told = _told(await connection.search(asked))
    return {
        term: told[term] if term in told else await _counted(connection, collection, tenant, term) for term in terms
    }


def _told(reply: Any) -> Counter[str]:
    """Objects by term in all shards; empty where one of them does not say."""
    found: Counter[str] = Counter()
    for shard in reply.query_profile.shards:
        for search in shard.searches.values():
            parts = json.loads(search.details.get(_PARTS) or "[]")
            if not parts:
                return Counter()
            found.update({_term(p): int(p["count"]) for p in parts if p["prop"] == "lexical" and not p["failed"]})
    return found


def _term(part: dict[str, Any]) -> str:
    return base64.b64decode(part["value"]).decode()


async def _counted(connection: AsyncConnection, collection: str, tenant: str, term: str) -> int:
    client = await connection.client()
    handle = client.collections.use(collection).with_tenant(tenant)
    with translated("document frequency"):
        counted = await handle.aggregate.over_all(filters=Filter.by_property("lexical").equal(term), total_count=True)
    return int(counted.total_count or 0)
