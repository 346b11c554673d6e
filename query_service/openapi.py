"""The OpenAPI document: what FastAPI finds out by itself, and what only we know.

Operation ids are given here, not made from paths and functions: generated clients name their methods by them. A route
that is not in the table fails a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from schemas.api_examples_operations import BY_MODEL, PROBLEMS

DESCRIPTION = """\
Who asks comes from the token or API key alone; a request can narrow what it sees and never widen it. What the caller
may not read and what does not exist are answered alike, to the byte. Permissions are checked when candidates are
found and once more before an answer leaves.

Times are integer microseconds since 1970 (UTC), durations are milliseconds where a name says so. Errors are
`application/problem+json` (RFC 9457) and name the field and the remedy. After 429 and 503, `Retry-After` says when to
ask again.
"""
TAGS = [
    {"name": "search", "description": "Search, and read what was found."},
    {"name": "answers", "description": "Answers with citations."},
    {"name": "freshness", "description": "How complete answers are, and what became of a change."},
    {"name": "feedback", "description": "What people say of answers."},
    {"name": "query log", "description": "For evaluators and operators; for others these routes are not there."},
    {"name": "operators", "description": "For operators; for others these routes are not there."},
    {"name": "health", "description": "For probes; no token."},
]


@dataclass(frozen=True)
class Operation:
    """What is said of one operation besides its summary."""

    id: str
    tag: str
    says: str
    deprecated: bool = False


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("post", "/v1/search"): Operation(
        "search", "search",
        "Hits come best first, each with its document, its place and its scores. `next_cursor` leads to the next page. "
        "With `after` and `wait_ms` the search waits for a write that you made. `evidence` adds sections for a "
        "generator.",
    ),
    ("post", "/v1/answer"): Operation(
        "answer", "answers",
        "Each sentence is checked against passages that the caller may read, and cites them; where they do not say "
        "enough, the answer is a refusal with its reason. With `stream` (or `Accept: text/event-stream`) events "
        "`step`, `sentence` and `done` come as they happen; `done` holds the whole answer, which counts.",
    ),
    ("get", "/v1/documents/{document_uid}"): Operation(
        "getDocument", "search",
        "The document's facts and its sections in order, `limit` from `offset`; `next_offset` leads on.",
    ),
    ("get", "/v1/documents/{document_uid}/chunks/{chunk_id}/neighbours"): Operation(
        "getNeighbours", "search",
        "The passage and those next to it in the document's order, all of the version that holds it. Where the "
        "document's present version lacks the passage, the answer is the one for what does not exist.",
    ),
    ("get", "/v1/freshness"): Operation(
        "getFreshness", "freshness",
        "By source: up to when it is complete, what is on its way, and percentiles of the lag over `window_s`.",
    ),
    ("get", "/v1/documents/{document_uid}/trace"): Operation(
        "getTrace", "freshness", "Each event of the document with the times at which it passed the stages.",
    ),
    ("get", "/v1/trace/{document_uid}"): Operation(
        "getTraceOld", "freshness", "As `/v1/documents/{document_uid}/trace`, which replaces it.", deprecated=True,
    ),
    ("post", "/v1/feedback"): Operation(
        "giveFeedback", "feedback",
        "On an answer that the caller was given, or on one passage or document of it. The last verdict on a target "
        "counts. `forbidden` tells administrators that somebody sees what they should not. Send an `Idempotency-Key` "
        "to repeat it safely.",
    ),
    ("get", "/v1/queries"): Operation("listQueries", "query log", "Queries of the caller's tenant, newest first."),
    ("get", "/v1/queries/{query_id}"): Operation("getQuery", "query log", "One query, with its feedback."),
    ("get", "/v1/queries/who/{reference}"): Operation(
        "resolveReference", "query log", "Evaluators only: whom a reference of the log stands for. It is logged.",
    ),
    ("post", "/v1/queries/purge"): Operation(
        "purgeQueries", "query log",
        "Views forget the records; the reply says by when the last copy leaves the log. Operators only.",
    ),
    ("get", "/v1/documents/{document_uid}/deletion"): Operation(
        "proveDeletion", "operators", "Each place in which something of the deleted document could be left.",
    ),
    ("get", "/v1/why"): Operation(
        "explainAccess", "operators", "Why a person sees a document or does not, clause by clause. It is logged.",
    ),
    ("get", "/healthz"): Operation("isAlive", "health", "The process answers."),
    ("get", "/readyz"): Operation(
        "isReady", "health", "Ready means that no revocation can be missing. Otherwise the reasons are named.",
    ),
}  # fmt: skip
PARAMETERS: dict[str, tuple[str, str | int]] = {
    "document_uid": ("As hits and changes name it.", "5b0a54c1-8f5d-5a53-9d0e-3a1b7f0c2d4e"),
    "chunk_id": ("As hits name it.", "c1d9a7e2-4e57-5a0b-b3a5-0f9e8d7c6b5a"),
    "query_id": ("As replies name it.", "0f6f2f0e-6f8e-4f1c-9a53-1d2c3b4a5f60"),
    "reference": ("As the query log names a person.", "7d3f0c5a9e1b4d6f8a2c0e4b6d8f1a3c"),
    "since": ("From this moment on, microseconds since 1970.", 1_767_225_600_000_000),
    "until": ("Before this moment, microseconds since 1970.", 1_767_312_000_000_000),
    "kind": ("What was asked.", "search"),
    "limit": ("Of one reply, at most.", 50),
}
_SECONDS = {"schema": {"type": "integer", "minimum": 0}}
_LEFT = {
    "RateLimit-Limit": {"description": "Requests that are allowed in one go.", **_SECONDS},
    "RateLimit-Remaining": {"description": "Of them, what is left.", **_SECONDS},
    "RateLimit-Reset": {"description": "Seconds until all are allowed again.", **_SECONDS},
}
_RETRY = {"Retry-After": {"description": "Seconds to wait before asking again.", **_SECONDS}}
HEADERS: dict[str, dict[str, Any]] = {
    "401": {"WWW-Authenticate": {"description": "The scheme to use.", "schema": {"type": "string"}}},
    "429": {**_RETRY, **_LEFT},
    "503": _RETRY,
}


def install(app: FastAPI) -> None:
    """Complete what the application says of itself. After all that else changes the document."""
    made = app.openapi

    def complete() -> dict[str, Any]:
        document = made()
        document["info"].update(description=DESCRIPTION, license={"name": "Apache-2.0", "identifier": "Apache-2.0"})
        document["servers"] = [{"url": "/", "description": "Where this document was read."}]
        document["tags"] = TAGS
        models = document["components"]["schemas"]
        for name, example in BY_MODEL.items():
            if name in models:
                models[name]["examples"] = [example]  # the framework drops nulls from those that it copies
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _describe(operation, OPERATIONS.get((method, path)))
        return document

    app.openapi = complete  # type: ignore[method-assign]


def _describe(operation: dict[str, Any], known: Operation | None) -> None:
    if known is not None:
        operation.update(operationId=known.id, tags=[known.tag], description=known.says)
        if known.deprecated:
            operation["deprecated"] = True
    for parameter in operation.get("parameters", []):
        if parameter["name"] in PARAMETERS:
            text, example = PARAMETERS[parameter["name"]]
            parameter.setdefault("description", text)
            parameter["example"] = example
    _exemplify(operation.get("requestBody", {}), None)
    for status, answer in operation["responses"].items():
        _exemplify(answer, PROBLEMS.get(int(status)))
        if "security" in operation and status in HEADERS:
            answer.setdefault("headers", {}).update(HEADERS[status])


def _exemplify(holder: dict[str, Any], problem: Any) -> None:
    """An example for each media type: of the status where it is a problem, else the model's own."""
    for media, content in holder.get("content", {}).items():
        schema = content.get("schema", {})
        name = schema.get("$ref", "").rpartition("/")[2] or schema.get("title", "")
        example = problem if name == "Problem" else BY_MODEL.get(name)
        if example is not None:
            holder["content"][media] = {**content, "example": example}  # anew: answers may share what they hold
