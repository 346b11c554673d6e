"""Examples of the query API, shown in its OpenAPI description and checked against the models by a test."""

from __future__ import annotations

from pydantic import JsonValue

Example = dict[str, JsonValue]

_UID = "5b0a54c1-8f5d-5a53-9d0e-3a1b7f0c2d4e"
_SECTION = "9d7be6a4-3b52-5f0e-8a41-6c2f5e8b1a07"
_UNTIL = 1_767_225_600_000_000
_UPDATED = 1_767_139_200_000_000

_FACTS: Example = {
    "document_uid": _UID,
    "document_id": "sales/refunds.md",
    "source": "wiki",
    "kind": "page",
    "tenant": "acme",
    "title": "Refunds",
    "url": "https://wiki.example/sales/refunds",
    "path": "sales/refunds.md",
    "version": 1_767_139_200_512_001,
    "content_type": "text/markdown",
    "language": "en",
    "product": None,
    "effective_from": None,
    "effective_until": None,
    "in_effect": True,
    "updated_at": _UPDATED,
    "tier": "hot",
    "deleted": False,
    "access": {"clauses": [["audience:wiki/sales"]], "has_deny": False, "version": 1_767_139_200_512_000},
    "age_s": 86_400.0,
}
_LAG: Example = {"count": 42, "p50": 41.2, "p95": 88.0, "p99": 131.5}

SEARCH_REQUEST: Example = {
    "query": "how long do refunds take",
    "k": 5,
    "mode": "hybrid",
    "filters": {"sources": ["wiki"], "languages": ["en"], "as_of": "2026-01-01"},
}
SEARCH_RESPONSE: Example = {
    "query_id": "0f6f2f0e-6f8e-4f1c-9a53-1d2c3b4a5f60",
    "generation": "minilm",
    "hits": [
        {
            **_FACTS,
            "section_id": _SECTION,
            "chunk_id": "c1d9a7e2-4e57-5a0b-b3a5-0f9e8d7c6b5a",
            "chunk_index": 3,
            "chunk_total": 12,
            "heading_path": ["Refunds", "How long it takes"],
            "text": "A refund reaches the customer's account within five working days.",
            "scores": {
                "dense_distance": 0.21,
                "dense_rank": 1,
                "sparse_score": 7.43,
                "sparse_rank": 2,
                "fused": 0.032522,
                "rerank": 4.81,
                "final": 0.91,
                "exact": False,
            },
            "snippet": {
                "text": "A refund reaches the customer's account within five working days.",
                "highlights": [[2, 8]],
                "cut_before": False,
                "cut_after": False,
            },
        }
    ],
    "complete_until": {"wiki": _UNTIL},
    "fresh": None,
    "counts": {"dense": 50, "sparse": 18, "exact": 0, "admitted": 57, "fused": 55, "reranked": 10},
    "starved": False,
    "rerank": {
        "asked": "fast",
        "done": "fast",
        "candidates": 10,
        "model": "cross-encoder/ms-marco-MiniLM-L-12-v2",
        "ms": 61.3,
        "late": False,
        "reason": None,
    },
    "next_cursor": None,
    "judged_at": _UNTIL,
    "timings_ms": {"closure": 0.1, "search": 14.2, "admit": 5.1, "fuse": 6.0, "text": 3.4, "total": 28.8},
}
DOCUMENT_RESPONSE: Example = {
    **_FACTS,
    "generation": "minilm",
    "chunk_total": 12,
    "sections_total": 4,
    "offset": 0,
    "next_offset": 1,
    "sections": [
        {
            "section_id": _SECTION,
            "ordinal": 0,
            "heading_path": ["Refunds", "How long it takes"],
            "text": "A refund reaches the customer's account within five working days.",
            "page": None,
        }
    ],
    "complete_until": _UNTIL,
}
NEIGHBOURS_RESPONSE: Example = {
    **_FACTS,
    "generation": "minilm",
    "chunk_total": 12,
    "chunk_id": "c1d9a7e2-4e57-5a0b-b3a5-0f9e8d7c6b5a",
    "passages": [
        {
            "chunk_id": "a8f0c1d2-7b3e-5c4d-9e6f-1a2b3c4d5e6f",
            "chunk_index": 2,
            "section_id": _SECTION,
            "heading_path": ["Refunds", "How to ask for one"],
            "text": "Ask for a refund with the order's number.",
            "page": None,
            "start": 410,
            "end": 451,
        },
        {
            "chunk_id": "c1d9a7e2-4e57-5a0b-b3a5-0f9e8d7c6b5a",
            "chunk_index": 3,
            "section_id": _SECTION,
            "heading_path": ["Refunds", "How long it takes"],
            "text": "A refund reaches the customer's account within five working days.",
            "page": None,
            "start": 480,
            "end": 546,
        },
    ],
    "judged_at": _UNTIL,
}
FRESHNESS_RESPONSE: Example = {
    "tenant": "acme",
    "generation": "minilm",
    "window_s": 3600,
    "now": _UNTIL + 1_500_000,
    "sources": {
        "wiki": {
            "complete_until": _UNTIL,
            "complete_age_s": 1.5,
            "pending": 0,
            "failed": 0,
            "lag_ms": {"embed": _LAG, "total": _LAG},
            "revocation_ms": {"count": 3, "p50": 12.0, "p95": 16.1, "p99": 16.1},
        }
    },
}
TRACE_RESPONSE: Example = {
    "document_uid": _UID,
    "steps": [
        {
            "lane": "index",
            "generation": "minilm",
            "event_type": "content.upserted",
            "version": 1_767_139_200_512_001,
            "outcome": "indexed",
            "priority": "live",
            "reason": None,
            "times": {"observed_at": _UPDATED + 512_001, "visible_at": _UPDATED + 580_000},
            "chunks_total": 12,
            "chunks_embedded": 1,
            "chunks_written": 1,
            "chunks_removed": 1,
        }
    ],
}
PROBLEM: Example = {
    "type": "about:blank",
    "title": "Invalid request",
    "status": 422,
    "detail": "Correct the named fields and send it again.",
    "query_id": None,
    "errors": [{"field": "k", "problem": "Input should be less than or equal to 100"}],
}
HEALTH_RESPONSE: Example = {"ok": False, "reasons": ["the encoder is not loaded yet"]}

DELETION_RESPONSE: Example = {
    "document_uid": _UID,
    "document_id": "sales/refunds.md",
    "source": "wiki",
    "kind": "page",
    "tenant": "acme",
    "deleted_at": _UPDATED,
    "hidden_at": 1_767_139_200_009_000,
    "version": _UPDATED,
    "checked_at": _UNTIL,
    "standing": "bounded",
    "clean_by": 1_767_247_200_000_000,
    "tombstone_until": 1_774_915_200_000_000,
    "places": [
        {
            "place": "minilm/hot",
            "method": "by id, by keyword and by vector",
            "found": 0,
            "clean": True,
            "checked_at": _UNTIL,
            "empties_itself": False,
            "clean_by": None,
            "note": None,
        },
        {
            "place": "log/content",
            "method": "events of the document that still carry a body",
            "found": 1,
            "clean": False,
            "checked_at": _UNTIL,
            "empties_itself": True,
            "clean_by": 1_767_247_200_000_000,
            "note": "compaction removes them",
        },
    ],
}
