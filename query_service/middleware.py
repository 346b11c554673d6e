"""Around every request: size limit, metrics, headers. Plain ASGI, since it is on the path of every search."""

from __future__ import annotations

import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.observe import Metrics
from query_service import problems

MAX_BODY = 64 * 1024
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _TooLarge(Exception):
    """The body grew beyond the limit while it was read."""


class Watched:
    """The middleware. Bodies above MAX_BODY bytes are refused, whether their length was declared or not."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MAX_BODY:
                raise _TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                if scope["path"].startswith("/v1/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            if _declared(scope) > MAX_BODY:
                raise _TooLarge
            await self._app(scope, counted, watched)
        except _TooLarge:
            response = problems.problem(413, "Too large", f"A request has at most {MAX_BODY} bytes.")
            await response(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count("headwater_requests_total", route=route, status=str(status))
            self._metrics.observe("headwater_request_seconds", time.perf_counter() - started, route=route)


def _declared(scope: Scope) -> int:
    """Declared length of the body; the server has refused what is no number."""
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isdigit() else 0
