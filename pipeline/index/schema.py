"""Names and definitions of the collections.

Every property says how it is tokenised and indexed; the server's auto-schema is not relied upon. Collections are
multi-tenant except the two that describe the whole installation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from weaviate.classes.config import (
    Configure,
    DataType,
    Property,
    StopwordsPreset,
    Tokenization,
    VectorDistances,
)

from schemas.base import MAX_SAFE_INTEGER
from schemas.documents import Tier
from schemas.generation import Generation, TierSpec

VECTOR = "default"
BM25_K1 = 1.2
BM25_B = 0.75
# An open interval is stored closed, so that an as-of query is two plain range filters.
ALWAYS_FROM = 0
ALWAYS_UNTIL = MAX_SAFE_INTEGER
TIERS: tuple[Tier, ...] = ("hot", "cold")


@dataclass(frozen=True)
class Collections:
    """Physical collection names under a namespace."""

    namespace: str

    def _name(self, *parts: str) -> str:
        prefix = re.sub(r"[^A-Za-z0-9_]", "_", self.namespace)
        return "_".join((prefix[:1].upper() + prefix[1:], *parts))

    @property
    def access(self) -> str:
        """Access records, by document."""
        return self._name("Access")

    @property
    def principals(self) -> str:
        """Membership records, by principal."""
        return self._name("Principals")

    @property
    def progress(self) -> str:
        """Applied offsets."""
        return self._name("Progress")

    @property
    def generations(self) -> str:
        """Generation records and the name of the active one."""
        return self._name("Generations")

    def tier(self, tier: Tier, generation: str) -> str:
        """Chunks of a tier."""
        return self._name(tier.capitalize(), generation)

    def records(self, generation: str) -> str:
        """Manifests, their pages, and sections."""
        return self._name("Records", generation)

    def pattern(self) -> re.Pattern[str]:
        """Matches the names of this namespace's collections, the generation's name in ``generation``.

        Of "docs" and "docs_old" either name starts like the other's collections.
        """
        base = re.escape(self._name(""))
        return re.compile(
            rf"{base}(?:Access|Principals|Progress|Generations|(?:Hot|Cold|Records)_(?P<generation>[a-z]\w{{0,31}}))"
        )

    def of_generation(self, generation: str) -> list[str]:
        """All collections of a generation."""
        return [self.tier("hot", generation), self.tier("cold", generation), self.records(generation)]


def _field(name: str, data_type: DataType = DataType.TEXT) -> Property:
    """A value matched whole, letter by letter."""
    return Property(
        name=name,
        data_type=data_type,
        tokenization=Tokenization.FIELD,
        index_filterable=True,
        index_searchable=False,
        index_range_filters=False,
    )


def _stored(name: str, data_type: DataType = DataType.TEXT) -> Property:
    """Text that is only kept."""
    return Property(
        name=name,
        data_type=data_type,
        tokenization=Tokenization.FIELD,
        index_filterable=False,
        index_searchable=False,
        index_range_filters=False,
    )


def _number(name: str, *, filterable: bool, ranged: bool) -> Property:
    return Property(
        name=name,
        data_type=DataType.INT,
        index_filterable=filterable,
        index_searchable=False,
        index_range_filters=ranged,
    )


def chunk_properties() -> list[Property]:
    """Properties of Hot and Cold."""
    return [
        *(_field(name) for name in ("document", "section", "source", "kind", "content_type")),
        *(_field(name) for name in ("language", "product")),
        *(_field(name, DataType.TEXT_ARRAY) for name in ("allow", "allow2", "identifiers")),
        _number("effective_from", filterable=False, ranged=True),
        _number("effective_until", filterable=False, ranged=True),
        # Filterable too: document frequencies are counts of "lexical equals term".
        Property(
            name="lexical",
            data_type=DataType.TEXT,
            tokenization=Tokenization.WHITESPACE,
            index_filterable=True,
            index_searchable=True,
            index_range_filters=False,
        ),
        _number("length", filterable=True, ranged=False),
        _stored("text"),
        _stored("heading_path", DataType.TEXT_ARRAY),
    ]


def record_properties() -> list[Property]:
    """Properties of all record collections: the record as JSON, and what tells whose it is without reading it.

    ``document`` is set for sections only, whose record does not name their document.
    """
    return [
        _stored("record"),
        _stored("type"),
        _number("version", filterable=False, ranged=False),
        _field("document"),
    ]


def _inverted() -> Any:
    return Configure.inverted_index(
        bm25_b=BM25_B,
        bm25_k1=BM25_K1,
        stopwords_preset=StopwordsPreset.NONE,
        index_null_state=False,
        index_property_length=False,
        index_timestamps=False,
    )


def _hnsw(tier: TierSpec) -> Any:
    quantizer = Configure.VectorIndex.Quantizer
    return Configure.VectorIndex.hnsw(
        distance_metric=VectorDistances.COSINE,
        max_connections=tier.max_connections,
        ef_construction=tier.ef_construction,
        ef=tier.ef,
        flat_search_cutoff=tier.flat_search_cutoff,
        quantizer=quantizer.rq(bits=8) if tier.quantizer == "rq8" else quantizer.none(),
    )


def _definition(name: str, properties: list[Property], index: Any, *, tenants: bool) -> dict[str, Any]:
    return {
        "name": name,
        "properties": properties,
        "vector_config": Configure.Vectors.self_provided(vector_index_config=index),
        "inverted_index_config": _inverted(),
        "multi_tenancy_config": Configure.multi_tenancy(
            enabled=tenants, auto_tenant_creation=False, auto_tenant_activation=tenants
        ),
    }


def record_collection(name: str, *, tenants: bool = True) -> dict[str, Any]:
    """Arguments that create a record collection: found by id alone, without a vector index."""
    return _definition(name, record_properties(), Configure.VectorIndex.none(), tenants=tenants)


def chunk_collection(name: str, tier: TierSpec) -> dict[str, Any]:
    """Arguments that create a collection of chunks."""
    return _definition(name, chunk_properties(), _hnsw(tier), tenants=True)


def base_collections(names: Collections) -> list[dict[str, Any]]:
    """What all generations share."""
    return [
        record_collection(names.access),
        record_collection(names.principals),
        record_collection(names.progress, tenants=False),
        record_collection(names.generations, tenants=False),
    ]


def generation_collections(names: Collections, generation: Generation) -> list[dict[str, Any]]:
    """What a generation has of its own."""
    return [
        chunk_collection(names.tier("hot", generation.name), generation.index.hot),
        chunk_collection(names.tier("cold", generation.name), generation.index.cold),
        record_collection(names.records(generation.name)),
    ]
