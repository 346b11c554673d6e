"""Replies as the service makes them."""

from __future__ import annotations

from typing import Any

from schemas.api import SearchCounts, SearchResponse


def found(**fields: Any) -> SearchResponse:
    """A search without hits."""
    told: dict[str, Any] = {
        "query_id": "q", "generation": "g1", "hits": (), "complete_until": {}, "fresh": None,
        "counts": SearchCounts(dense=0, sparse=0, exact=0, admitted=0), "starved": False, "judged_at": 1,
        "timings_ms": {},
    }  # fmt: skip
    return SearchResponse(**{**told, **fields})
