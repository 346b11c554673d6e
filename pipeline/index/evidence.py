"""Whether searches still meet a document: by keyword and by vector, as a search would, but without admission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from weaviate.classes.query import Filter

from pipeline.index.connection import TenantMissing, translated
from pipeline.index.core import StoreCore
from pipeline.index.schema import TIERS
from pipeline.ports import Vectors
from schemas.documents import Tier
from schemas.keys import DocumentRef

WIDE = 1000
TERMS = 64


class Evidence(StoreCore):
    """Each search is asked twice: narrowed to the document, and over everything, where its own words and vector would
    bring it up although the property that names it is lost."""

    def keyword_matches(self, generation: str, document: DocumentRef, terms: Sequence[str]) -> dict[Tier, set[str]]:
        """Ids of the document's chunks that BM25 finds for any of the analysed terms. Raises StoreUnavailable."""
        query = " ".join(list(dict.fromkeys(terms))[:TERMS])

        def ask(handle: Any, where: Any, limit: int) -> Any:
            return handle.query.bm25(
                query=query, query_properties=["lexical"], filters=where, limit=limit, return_properties=["document"]
            )

        if not query:
            return {tier: set() for tier in TIERS}
        return {tier: self._met(self._names.tier(tier, generation), document, ask) for tier in TIERS}

    def vector_matches(self, generation: str, document: DocumentRef, vector: Vectors) -> dict[Tier, set[str]]:
        """Ids of the document's chunks near the vector, shape (dimension,) or (1, dimension). Raises
        StoreUnavailable."""
        near = np.asarray(vector, dtype=np.float32).reshape(-1).tolist()

        def ask(handle: Any, where: Any, limit: int) -> Any:
            return handle.query.near_vector(near, filters=where, limit=limit, return_properties=["document"])

        return {tier: self._met(self._names.tier(tier, generation), document, ask) for tier in TIERS}

    def _met(self, collection: str, document: DocumentRef, ask: Callable[[Any, Any, int], Any]) -> set[str]:
        handle = self._handle(collection, document.tenant)
        own = Filter.by_property("document").equal(document.uid)
        try:
            with translated(f"search {collection}"):
                found = [*ask(handle, own, WIDE).objects, *ask(handle, None, WIDE).objects]
        except TenantMissing:
            return set()
        return {str(item.uuid) for item in found if item.properties.get("document") == document.uid}
