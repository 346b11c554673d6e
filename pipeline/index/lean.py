"""Requests and replies without the client's conversions, which cost more than the server's answer when a search reads
500 objects: both are handled here, on the messages of the pinned client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from weaviate.proto.v1 import base_pb2, base_search_pb2, search_get_pb2

from pipeline.index.connection import AsyncConnection
from pipeline.index.schema import VECTOR
from pipeline.ports import Hit
from schemas.documents import Tier

_SINGLE = base_pb2.Vectors.VECTOR_TYPE_SINGLE_FP32


def request(
    collection: str, tenant: str | None, limit: int, where: Any | None, properties: Sequence[str] = (), **metadata: Any
) -> Any:
    """A SearchRequest for ids and the named properties; ``metadata`` names what of MetadataRequest is wanted besides,
    ``where`` is of ``filters``."""
    return search_get_pb2.SearchRequest(
        uses_123_api=True,
        uses_125_api=True,
        uses_127_api=True,
        collection=collection,
        tenant=tenant or "",
        limit=limit,
        filters=where,
        properties=search_get_pb2.PropertiesRequest(non_ref_properties=properties),
        metadata=search_get_pb2.MetadataRequest(uuid=True, **metadata),
    )


def near(vector: npt.NDArray[np.float32]) -> Any:
    """What to be near to: ``vector`` has as many numbers as the collection's, in any shape."""
    packed = np.ascontiguousarray(vector, dtype="<f4").tobytes()
    return base_search_pb2.NearVector(vectors=[base_pb2.Vectors(vector_bytes=packed, type=_SINGLE)])


def words(query: str) -> Any:
    """BM25 over ``lexical``."""
    return base_search_pb2.BM25(query=query, properties=["lexical"])


async def hits(connection: AsyncConnection, tier: Tier, asked: Any) -> list[Hit]:
    """Hits of a search that asks for ``document``, and perhaps for ``lexical``. Raises StoreUnavailable or
    TenantMissing."""
    reply = await connection.search(asked)
    if "lexical" in asked.properties.non_ref_properties:
        return [_hit(result, tier, lexical=True) for result in reply.results]
    return [_hit(result, tier) for result in reply.results]


def _hit(result: Any, tier: Tier, *, lexical: bool = False) -> Hit:
    metadata = result.metadata
    score = metadata.distance if metadata.distance_present else metadata.score
    fields = result.properties.non_ref_props.fields
    return Hit(
        _uid(metadata), fields["document"].text_value, tier, score, fields["lexical"].text_value if lexical else None
    )


async def by_ids(
    connection: AsyncConnection, collection: str, tenant: str | None, ids: Sequence[str], properties: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Text and text-list properties of the objects that exist, by id. Raises StoreUnavailable or TenantMissing."""
    reply = await connection.search(request(collection, tenant, len(ids), _with_ids(ids), properties))
    return {_uid(r.metadata): _properties(r.properties.non_ref_props.fields) for r in reply.results}


async def one_by_ids(
    connection: AsyncConnection, collection: str, tenant: str | None, ids: Sequence[str], name: str
) -> dict[str, str]:
    """One text property of the objects that exist, by id. Raises StoreUnavailable or TenantMissing."""
    reply = await connection.search(request(collection, tenant, len(ids), _with_ids(ids), (name,)))
    return {_uid(r.metadata): r.properties.non_ref_props.fields[name].text_value for r in reply.results}


async def with_vectors(
    connection: AsyncConnection, collection: str, tenant: str, ids: Sequence[str], properties: Sequence[str],
    vectors: bool,
) -> dict[str, tuple[dict[str, Any], npt.NDArray[np.float32] | None]]:  # fmt: skip
    """As ``by_ids``, each with its vector, shape (dimension,); None where the object has none or none is wanted."""
    wanted = {"vectors": [VECTOR]} if vectors else {}
    asked = request(collection, tenant, len(ids), _with_ids(ids), properties, **wanted)
    reply = await connection.search(asked)
    return {
        _uid(r.metadata): (_properties(r.properties.non_ref_props.fields), _vector(r.metadata)) for r in reply.results
    }


def _vector(metadata: Any) -> npt.NDArray[np.float32] | None:
    for vector in metadata.vectors:
        if vector.name == VECTOR:
            return np.frombuffer(vector.vector_bytes, dtype="<f4")
    return None


def _with_ids(ids: Sequence[str]) -> Any:
    return base_pb2.Filters(
        operator=base_pb2.Filters.OPERATOR_CONTAINS_ANY,
        target=base_pb2.FilterTarget(property="_id"),
        value_text_array=base_pb2.TextArray(values=ids),
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
