"""Errors as application/problem+json: what to do, and nothing of what the caller may not know."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from pipeline.errors import EncoderUnavailable, Retry
from pipeline.operate.deletion import NotDeleted
from query_service.answer.spending import BudgetExhausted
from query_service.documents import NotFound
from query_service.generate.interface import GeneratorUnavailable
from query_service.limits import Limited
from query_service.scope import FieldError, KeysUnavailable, Unauthorized
from query_service.service import DeadlineExceeded
from query_service.state import NotReady
from schemas.api import FieldProblem, Problem
from schemas.wording import plainly

log = logging.getLogger("headwater.query.http")

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
MAX_ERRORS, MAX_NAME = 20, 200
"""Fields that one reply names, and characters of each: a reply is not much longer than its request."""
_TITLES = {400: "Bad request", 405: "Method not allowed", 415: "Unsupported media type"}


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: Sequence[FieldProblem] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """A problem response."""
    body = Problem(title=title, status=status, detail=detail, errors=tuple(errors))
    return Response(body.model_dump_json(), status_code=status, media_type=MEDIA_TYPE, headers=headers)


def not_found() -> Response:
    """The one answer for what is absent and for what the caller may not read: equal to the byte."""
    return problem(404, "Not found", "There is nothing here that this token may read.")


def unauthorized(error: Unauthorized) -> Response:
    """No valid token or key."""
    headers = {"WWW-Authenticate": 'Bearer realm="headwater"'}
    return problem(401, "Unauthorized", f"Send a valid bearer token or key: {error.reason}.", headers=headers)


def too_many(error: Limited) -> Response:
    """Over a limit; Retry-After says when to ask again."""
    allowance = error.allowance.headers() if error.allowance is not None else {}
    headers = {"Retry-After": str(error.retry_after), **allowance}
    return problem(429, "Too many requests", error.detail, headers=headers)


def too_large(most: int) -> Response:
    """The body is above the limit."""
    return problem(413, "Too large", f"A request has at most {most} bytes.", headers={"Connection": "close"})


def too_slow() -> Response:
    """The body did not arrive in time."""
    detail = "The request did not arrive in time; send it again."
    return problem(408, "Too slow", detail, headers={"Connection": "close"})


def internal() -> Response:
    """A fault of ours; what it was is in the log alone."""
    return problem(500, "Internal error", "The request failed here; it has been logged.")


def unavailable(detail: str) -> Response:
    """Something below us is down; nothing was lost."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return problem(503, "Temporarily unavailable", detail, headers=headers)


def fault(error: BaseException) -> dict[str, object]:
    """What a log may hold of an error that nobody expected: its classes and where it was raised. Not its text: into
    that, libraries put what they worked on, such as a passage, a query or a prompt."""
    kinds, seen = [], error
    for _ in range(5):
        kinds.append(type(seen).__name__)
        following = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
        if following is None:
            break
        seen = following
    frames = traceback.extract_tb(error.__traceback__)[-15:]
    places = [f"{'/'.join(Path(f.filename).parts[-2:])}:{f.lineno} {f.name}" for f in frames]
    return {"error": " < ".join(kinds), "at": places}


_EVERYWHERE = {  # whatever the route: these come from around it
    400: "The body cannot be read as JSON.",
    401: "The token or key is missing, expired or not valid here.",
    405: "The path is there, the method is not.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    422: "Fields that cannot be used, by name.",
    429: "Over a limit; Retry-After says when to ask again.",
    500: "A fault of the service.",
    503: "Something below is down or not ready; Retry-After says when to ask again.",
}


def document(app: FastAPI) -> None:
    """Have the OpenAPI document name what every protected route may answer, each as application/problem+json."""
    made = app.openapi

    def described() -> dict[str, Any]:
        schema = made()
        model = {"schema": {"$ref": "#/components/schemas/Problem"}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                answers = operation.setdefault("responses", {})
                if path.startswith("/v1/"):
                    for status, text in _EVERYWHERE.items():
                        answers.setdefault(str(status), {"description": text})["content"] = {MEDIA_TYPE: model}
                for answer in answers.values():
                    content = answer.get("content", {})
                    if content.get("application/json", {}).get("schema") == model["schema"]:
                        content[MEDIA_TYPE] = content.pop("application/json")
        return schema

    app.openapi = described  # type: ignore[method-assign]


def _fields(error: RequestValidationError, media_type: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    is_json = bool(re.fullmatch(r"application/(.+\+)?json", media_type.partition(";")[0].strip().lower()))
    for item in error.errors()[:MAX_ERRORS]:
        path = [str(p) for p in item["loc"]]
        if path and path[0] in ("body", "query", "path", "header"):
            path = path[1:] or [path[0]]
        message = plainly(item)
        if item["type"] == "json_invalid":
            path, message = ["body"], "the body is not valid JSON"
        elif tuple(item["loc"]) == ("body",) and not is_json and item["type"] == "model_attributes_type":
            path, message = ["Content-Type"], "say what the body is by the header 'Content-Type: application/json'"
        elif tuple(item["loc"]) == ("body",) and item["type"] == "missing":
            message = "there is none; send a JSON object"
        # A name that is no valid Unicode could not be written into the reply.
        named = ".".join(path)[:MAX_NAME].encode("utf-8", "replace").decode()
        found.append(FieldProblem(field=named, problem=message[:MAX_NAME]))
    return found


_KNOWN = (
    FieldError, Unauthorized, KeysUnavailable, NotFound, NotDeleted, NotReady, DeadlineExceeded, BudgetExhausted,
    Limited, Retry,
)  # fmt: skip


def of(error: BaseException) -> Response | None:
    """What a caller is told of an error that can be expected; None for any other."""
    if isinstance(error, FieldError):
        errors = [FieldProblem(field=error.field, problem=error.problem)]
        return problem(422, "Invalid request", "Correct the named fields and send it again.", errors=errors)
    if isinstance(error, Unauthorized):
        return unauthorized(error)
    if isinstance(error, KeysUnavailable):
        return unavailable(f"{error.reason[:1].upper()}{error.reason[1:]}; try again shortly.")
    if isinstance(error, NotFound):
        return not_found()
    if isinstance(error, NotDeleted):
        return problem(409, "Not deleted", f"There is no deletion to prove: {error.reason}.")
    if isinstance(error, NotReady):
        return unavailable("The service is not ready: " + "; ".join(error.reasons) + ".")
    if isinstance(error, DeadlineExceeded):
        return unavailable("The search did not end within its deadline; try again or narrow it.")
    if isinstance(error, BudgetExhausted):
        detail = f"Nothing was generated: {error}. Ask for style 'extractive', or have the limit raised."
        return problem(429, "Budget used up", detail)
    if isinstance(error, Limited):
        return too_many(error)
    if isinstance(error, Retry):
        log.warning("unavailable", extra={"fields": {"error": type(error).__name__, "reason": str(error)[:300]}})
        return unavailable(f"The {_part(error)} does not answer at the moment; try again shortly.")
    return None


def _part(error: Retry) -> str:
    if isinstance(error, GeneratorUnavailable):
        return "generator"
    return "encoder" if isinstance(error, EncoderUnavailable) else "index"


def install(app: FastAPI) -> None:
    """Register the handlers."""

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        errors = _fields(error, request.headers.get("content-type", ""))
        return problem(422, "Invalid request", "Correct the named fields and send it again.", errors=errors)

    async def _known(request: Request, error: Exception) -> Response:
        return of(error) or internal()

    for kind in _KNOWN:
        app.add_exception_handler(kind, _known)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return not_found()
        if error.status_code == 405 and request.url.path.startswith("/v1/operator/"):
            return not_found()  # a method that is not allowed would tell that the hidden route is there
        title = _TITLES.get(error.status_code, "Request refused")
        # The framework's 400 is that of a body which cannot be read at all: wrong bytes, too deep.
        detail = "Send the body as JSON in UTF-8, not nested too deep." if error.status_code == 400 else f"{title}."
        return problem(error.status_code, title, detail, headers=dict(error.headers or {}))
