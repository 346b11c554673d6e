"""Examples of answers, shown in the OpenAPI description and checked against the models by a test."""

from __future__ import annotations

from schemas.api_examples import Example

_UNTIL = 1_767_225_600_000_000

ANSWER_REQUEST: Example = {"question": "How long do refunds take?", "filters": {"sources": ["wiki"]}}
ANSWER_RESPONSE: Example = {
    "query_id": "0f6f2f0e-6f8e-4f1c-9a53-1d2c3b4a5f60",
    "answered": True,
    "kind": "extractive",
    "text": "A refund reaches the customer's account within five working days.[^1]",
    "sentences": [
        {
            "text": "A refund reaches the customer's account within five working days.",
            "citations": [1],
            "support": 0.99,
        }
    ],
    "citations": [
        {
            "number": 1,
            "document_uid": "5b0a54c1-8f5d-5a53-9d0e-3a1b7f0c2d4e",
            "document_id": "sales/refunds.md",
            "source": "wiki",
            "title": "Refunds",
            "url": "https://wiki.example/sales/refunds",
            "section_id": "9d7be6a4-3b52-5f0e-8a41-6c2f5e8b1a07",
            "chunk_ids": ["c1d9a7e2-4e57-5a0b-b3a5-0f9e8d7c6b5a"],
            "heading_path": ["Refunds", "How long it takes"],
            "quote": "A refund reaches the customer's account within five working days.",
            "version": 1_767_139_200_512_001,
            "updated_at": 1_767_139_200_000_000,
            "age_s": 86_400.0,
        }
    ],
    "support": 0.99,
    "supplied": 3,
    "complete_until": {"wiki": _UNTIL},
    "generation": "minilm",
    "judged_at": _UNTIL,
    "timings_ms": {"search": 41.0, "write": 3.0, "check": 22.0, "total": 70.0},
}
