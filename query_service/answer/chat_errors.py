"""Errors as chat clients read them: ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.api import Problem

PATHS = ("/v1/chat/", "/v1/models")
PROBLEM_TYPE = "application/problem+json"
_KINDS = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("authentication_error", "invalid_api_key"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("timeout_error", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    422: ("invalid_request_error", "invalid_value"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "service_unavailable"),
}


def error_object(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an error; ``code`` by the status where absent."""
    kind, usual = _KINDS.get(status, ("server_error", "server_error") if status >= 500 else _KINDS[400])
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual}}


def translated(problem: Problem) -> dict[str, Any]:
    """A problem as an error object; its fields are named in the message, the first one in ``param``."""
    named = "; ".join(f"{e.field}: {e.problem}" for e in problem.errors)
    message = f"{problem.detail} {named}".strip() if named else problem.detail
    return error_object(problem.status, message, problem.errors[0].field if problem.errors else None)


def is_chat(path: str) -> bool:
    """Whether a path is one that chat clients ask."""
    return path.startswith(PATHS[0]) or path == PATHS[1] or path.startswith(PATHS[1] + "/")


class ChatErrors:
    """Plain ASGI, around everything else: on the paths of chat clients it rewrites every problem, whoever made it.

    Status and headers (Retry-After, RateLimit-…) stay.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or not is_chat(scope["path"]):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Rewriting(send))


class _Rewriting:
    """Holds back a problem's head until its body, which is one small document, is there."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None
        self._body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if Headers(raw=message["headers"]).get("content-type", "").startswith(PROBLEM_TYPE):
                self._head = message
                return
        elif message["type"] == "http.response.body" and self._head is not None:
            self._body += message.get("body", b"")
            if message.get("more_body", False):
                return
            head, self._head = self._head, None
            body = _rewritten(head["status"], bytes(self._body))
            headers = MutableHeaders(raw=head["headers"])
            headers["Content-Type"], headers["Content-Length"] = "application/json", str(len(body))
            await self._send({**head, "headers": headers.raw})
            await self._send({"type": "http.response.body", "body": body})
            return
        await self._send(message)


def _rewritten(status: int, body: bytes) -> bytes:
    try:
        made = translated(Problem.model_validate_json(body))
    except ValidationError:  # a reply to HEAD has no body
        made = error_object(status, f"The service answers {status}.")
    return json.dumps(made, ensure_ascii=False).encode()
