"""Examples of problems by status, and of the routes for evaluators and operators; checked against the models."""

from __future__ import annotations

from pydantic import JsonValue

from schemas import api_examples as examples
from schemas import api_examples_answers as answers
from schemas.api_examples import Example

_UID = "5b0a54c1-8f5d-5a53-9d0e-3a1b7f0c2d4e"
_CHUNK = "c1d9a7e2-4e57-5a0b-b3a5-0f9e8d7c6b5a"
_QUERY = "0f6f2f0e-6f8e-4f1c-9a53-1d2c3b4a5f60"
_REFERENCE = "7d3f0c5a9e1b4d6f8a2c0e4b6d8f1a3c"
_AT = 1_767_225_600_000_000


def _problem(status: int, title: str, detail: str, *errors: JsonValue) -> Example:
    return {
        "type": "about:blank", "title": title, "status": status, "detail": detail, "query_id": None,
        "errors": [*errors],
    }  # fmt: skip


PROBLEMS: dict[int, Example] = {
    400: _problem(400, "Bad request", "Bad request."),
    401: _problem(401, "Unauthorized", "Send a valid bearer token or key: the token has expired."),
    404: _problem(404, "Not found", "There is nothing here that this token may read."),
    405: _problem(405, "Method not allowed", "Method not allowed."),
    408: _problem(408, "Too slow", "The request did not arrive in time; send it again."),
    409: _problem(409, "Not deleted", "There is no deletion to prove: the document is live."),
    413: _problem(413, "Too large", "A request has at most 65536 bytes."),
    422: _problem(
        422, "Invalid request", "Correct the named fields and send it again.",
        {"field": "k", "problem": "Input should be less than or equal to 100"},
    ),
    429: _problem(429, "Too many requests", "You have sent too many requests; slow down."),
    500: _problem(500, "Internal error", "The request failed here; it has been logged."),
    503: _problem(503, "Temporarily unavailable", "The index does not answer at the moment; try again shortly."),
}  # fmt: skip

FEEDBACK_REQUEST: Example = {
    "query_id": _QUERY,
    "chunk_id": _CHUNK,
    "verdict": "outdated",
    "comment": "It takes ten days now.",
}
FEEDBACK_RESPONSE: Example = {
    "query_id": _QUERY,
    "chunk_id": _CHUNK,
    "document_uid": None,
    "verdict": "outdated",
    "comment_kept": "redacted",
    "at": _AT,
}
LOGGED_QUERY: Example = {
    "query_id": _QUERY,
    "at": _AT,
    "tenant": "acme",
    "kind": "search",
    "outcome": "answered",
    "status": 200,
    "principals": 4,
    "generation": "minilm",
    "request": {"k": 5, "mode": "hybrid"},
    "text": "how long do refunds take",
    "text_mode": "redacted",
    "counts": {"dense": 50, "sparse": 18, "exact": 0, "admitted": 57, "fused": 57, "reranked": 10, "shown": 1},
    "hits": [{"chunk_id": _CHUNK, "document_uid": _UID, "dense_rank": 1, "sparse_rank": 2, "fused": 0.032522}],
    "timings_ms": {"search": 14.2, "total": 28.8},
    "total_ms": 28.8,
    "scope": _REFERENCE,
    "feedback": [
        {"verdict": "outdated", "chunk_id": _CHUNK, "document_uid": None, "comment": "Ten days now.", "at": _AT}
    ],
}
QUERIES_RESPONSE: Example = {"queries": [LOGGED_QUERY], "next_cursor": None, "complete_until": _AT}
WHO_RESPONSE: Example = {"scope": _REFERENCE, "user": "user:ann"}
PURGE_REQUEST: Example = {"before": _AT, "user": "ann"}
PURGE_RESPONSE: Example = {
    "tenant": "acme",
    "before": _AT,
    "scope": _REFERENCE,
    "here": 12,
    "views": "dropped as they read the log",
    "log_until": _AT + 30 * 86_400_000_000,
}
WHY_RESPONSE: Example = {
    "query_id": _QUERY,
    "tenant": "acme",
    "generation": "minilm",
    "active": True,
    "judged_at": _AT,
    "allowed": False,
    "refusal": "rule",
    "says": "The rule does not admit the person.",
    "document_uid": _UID,
    "source": "wiki",
    "kind": "page",
    "document_id": "sales/refunds.md",
    "checks": [
        {"name": "record", "passed": True, "says": "There is an access record."},
        {"name": "rule", "passed": False, "says": "No grant of clause 1 is held."},
    ],
    "person": {
        "user": "user:omar",
        "live": True,
        "tenant_suspended": False,
        "complete": True,
        "cut": False,
        "missing": [],
        "removed": [],
        "unreadable": [],
        "ended": [],
        "principals_total": 1,
        "principals": [{"principal": "user:omar", "path": ["user:omar"], "until": None}],
        "written_at": _AT,
        "until": None,
    },
    "record": {
        "version": 1_767_139_200_512_000,
        "content_version": 1_767_139_200_512_001,
        "not_before": 0,
        "tombstone": False,
        "holds": {},
        "written_at": _AT,
        "from_log": False,
    },
    "rule": {
        "admits": False,
        "clauses": [
            {
                "satisfied": False,
                "satisfied_by": [],
                "grants_total": 1,
                "grants": [{"principal": "audience:wiki/sales", "until": None, "held": False, "live": True}],
            }
        ],
        "deny_total": 0,
        "denied_by": [],
        "denied_as_unknown": False,
        "reason": None,
    },
    "manifest": None,
    "manifest_rule": None,
    "pending": [],
}
BY_MODEL: dict[str, Example] = {
    "SearchRequest": examples.SEARCH_REQUEST,
    "SearchResponse": examples.SEARCH_RESPONSE,
    "AnswerRequest": answers.ANSWER_REQUEST,
    "AnswerResponse": answers.ANSWER_RESPONSE,
    "DocumentResponse": examples.DOCUMENT_RESPONSE,
    "NeighboursResponse": examples.NEIGHBOURS_RESPONSE,
    "FreshnessResponse": examples.FRESHNESS_RESPONSE,
    "TraceResponse": examples.TRACE_RESPONSE,
    "DeletionResponse": examples.DELETION_RESPONSE,
    "HealthResponse": examples.HEALTH_RESPONSE,
    "Problem": examples.PROBLEM,
    "FeedbackRequest": FEEDBACK_REQUEST,
    "FeedbackResponse": FEEDBACK_RESPONSE,
    "LoggedQuery": LOGGED_QUERY,
    "QueriesResponse": QUERIES_RESPONSE,
    "WhoResponse": WHO_RESPONSE,
    "PurgeRequest": PURGE_REQUEST,
    "PurgeResponse": PURGE_RESPONSE,
    "WhyResponse": WHY_RESPONSE,
}
