"""Document frequencies asked from the store."""

from __future__ import annotations

from typing import Any

from weaviate.classes.query import Filter
from weaviate.collections.classes.grpc import _MetadataQuery

from pipeline.index.connection import translated

_PROFILE = _MetadataQuery(vector=False, query_profile=True)
_MATCHED = "filters_ids_matched"


async def count(handle: Any, term: str, direction: list[float] | None) -> int:
    """Chunks of a tenant's collection that hold the term. Raises StoreUnavailable or TenantMissing.

    A filtered count reads every object that it counts (4 µs each: 0.2 s for a common word). The profile of a
    filtered vector search in any ``direction`` tells how many objects the filter matched, and one is read; without a
    profile (nothing matched, or a server that does not say) it is counted after all.
    """
    where = Filter.by_property("lexical").equal(term)
    with translated("document frequency"):
        if direction is not None:
            request = handle.query._query.near_vector(
                near_vector=direction, filters=where, limit=1, return_properties=[], return_metadata=_PROFILE
            )
            matched = _matched(await handle.query._connection.grpc_search(request))
            if matched is not None:
                return matched
        counted = await handle.aggregate.over_all(filters=where, total_count=True)
    return int(counted.total_count or 0)


def _matched(reply: Any) -> int | None:
    """How many objects the filter matched in all shards; None where the server does not say."""
    counts = [search.details.get(_MATCHED) for s in reply.query_profile.shards for search in s.searches.values()]
    return sum(int(found) for found in counts if found) if counts and all(counts) else None
