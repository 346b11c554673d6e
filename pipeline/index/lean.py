"""Reads without the client's conversions, which cost more than the server's answer when a search reads 500 objects.

Requests for searches are still built by the client; requests for ids and all replies are handled here, on the
messages of the pinned client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from weaviate.collections.classes.grpc import _MetadataQuery
from weaviate.proto.v1 import base_pb2, search_get_pb2

from pipeline.index.connection import AsyncConnection, translated
from pipeline.index.schema import VECTOR
from pipeline.ports import Hit
from schemas.documents import Tier

DISTANCE = _MetadataQuery(vector=False, distance=True)
SCORE = _MetadataQuery(vector=False, score=True)
ID_ONLY = _MetadataQuery(vector=False)


async def hits(handle: Any, tier: Tier, request: Any, what: str) -> list[Hit]:
    """Hits of a search whose request asks for ``document`` only. Raises StoreUnavailable or TenantMissing."""
    with translated(what):
        reply = await handle.query._connection.grpc_search(request)
    return [_hit(result, tier) for result in reply.results]


def _hit(result: Any, tier: Tier) -> Hit:
    metadata = result.metadata
    score = metadata.distance if metadata.distance_present else metadata.score
    document = result.properties.non_ref_props.fields["document"].text_value
    return Hit(_uid(metadata), document, tier, float(score))


async def by_ids(
    connection: AsyncConnection, collection: str, tenant: str | None, ids: Sequence[str], properties: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Text and text-list properties of the objects that exist, by id. Raises StoreUnavailable or TenantMissing."""
    request = _by_ids(collection, tenant, ids, search_get_pb2.MetadataRequest(uuid=True))
    request.properties.non_ref_properties.extend(properties)
    client = await connection.client()
    with translated(f"read {collection}"):
        reply = await client._connection.grpc_search(request)
    return {_uid(r.metadata): _properties(r.properties.non_ref_props.fields) for r in reply.results}


async def vectors(
    connection: AsyncConnection, collection: str, tenant: str, ids: Sequence[str]
) -> dict[str, npt.NDArray[np.float32]]:
    """Vectors of the objects that exist, by id, shape (dimension,). Raises StoreUnavailable or TenantMissing."""
    request = _by_ids(collection, tenant, ids, search_get_pb2.MetadataRequest(uuid=True, vectors=[VECTOR]))
    request.properties.return_all_nonref_properties = False
    client = await connection.client()
    with translated(f"read {collection}"):
        reply = await client._connection.grpc_search(request)
    found: dict[str, npt.NDArray[np.float32]] = {}
    for result in reply.results:
        for vector in result.metadata.vectors:
            if vector.name == VECTOR:
                found[_uid(result.metadata)] = np.frombuffer(vector.vector_bytes, dtype="<f4")
    return found


def _by_ids(collection: str, tenant: str | None, ids: Sequence[str], metadata: Any) -> Any:
    return search_get_pb2.SearchRequest(
        uses_123_api=True,
        uses_125_api=True,
        uses_127_api=True,
        collection=collection,
        tenant=tenant or "",
        limit=len(ids),
        filters=base_pb2.Filters(
            operator=base_pb2.Filters.OPERATOR_CONTAINS_ANY,
            target=base_pb2.FilterTarget(property="_id"),
            value_text_array=base_pb2.TextArray(values=ids),
        ),
        properties=search_get_pb2.PropertiesRequest(),
        metadata=metadata,
    )


def _uid(metadata: Any) -> str:
    if not metadata.id_as_bytes:
        return str(metadata.id)
    digits = metadata.id_as_bytes.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _properties(fields: Any) -> dict[str, Any]:
    return {name: _value(value) for name, value in fields.items()}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "text_value":
        return value.text_value
    if kind == "list_value":
        return list(value.list_value.text_values.values)
    if kind in (None, "null_value"):
        return None
    raise TypeError(f"a property of kind {kind} is not read here")
