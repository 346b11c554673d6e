"""Around every request, outermost first. Plain ASGI, since it is on the path of every search.

``Watched``  headers of all replies, metrics, and the last resort for errors
``Guard``    who asks and whether they may at the moment; closed for every path that is not named as open
``Attended`` the body within its limits of size and time; the work ends when the client leaves
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.observe import Metrics
from query_service import problems
from query_service.callers import STATE, Callers
from query_service.limits import Allowance, Limited, Limits
from query_service.scope import KeysUnavailable, Unauthorized

log = logging.getLogger("headwater.query.http")

MAX_BODY = 64 * 1024
LONG_BODY = 1024 * 1024  # of what carries a conversation
LONG = frozenset({"/v1/answer", "/v1/chat/completions"})
CLIENT_LEFT = 499
OPEN = frozenset({"/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"})
OPEN_FOLDERS = ("/static/",)
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
HSTS = "max-age=31536000"


class ClientLeft(Exception):
    """Nobody waits for the reply any more."""


class _TooLarge(Exception):
    """The body grew beyond the limit while it was read."""


def is_open(path: str) -> bool:
    """Whether a path is answered without a token: health, metrics, the page, the document of the API."""
    return path in OPEN or path.startswith(OPEN_FOLDERS)


class Watched:
    """Security headers on every reply, errors included; counts and times."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, begun = time.perf_counter(), 500, False

        async def watched(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                if scope.get("scheme") == "https":
                    headers["Strict-Transport-Security"] = HSTS
                if status >= 400 or not (scope["path"] == "/" or scope["path"].startswith(OPEN_FOLDERS)):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientLeft:
            status = CLIENT_LEFT
        except Exception as error:
            log.error("request failed", extra={"fields": problems.fault(error)})
            if begun:  # the reply cannot be taken back: the connection breaks
                raise RuntimeError("a reply broke off") from None
            await problems.internal()(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count("headwater_requests_total", route=route, status=str(status))
            self._metrics.observe("headwater_request_seconds", time.perf_counter() - started, route=route)


class Guard:
    """Nobody passes without a valid token or key, and within their limits. What is not known to be open is closed."""

    def __init__(self, app: ASGIApp, callers: Callers, limits: Limits) -> None:
        self._app, self._callers, self._limits = app, callers, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # nothing is served this way
            return
        if scope["type"] != "http" or is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._callers.identify(Headers(scope=scope))
            lease = self._limits.begin(caller)
        except Unauthorized as error:
            response = self._refused(scope, error)
        except KeysUnavailable as error:
            response = problems.unavailable(f"{error.reason[:1].upper()}{error.reason[1:]}; try again shortly.")
        except Limited as error:
            response = problems.too_many(error)
        else:
            with lease:
                scope.setdefault("state", {})[STATE] = caller
                await self._app(scope, receive, _with_allowance(send, lease.allowance))
            return
        await response(scope, receive, send)

    def _refused(self, scope: Scope, error: Unauthorized) -> ASGIApp:
        client = scope.get("client")
        try:
            self._limits.refused(client[0] if client else None)
        except Limited as limited:
            return problems.too_many(limited)
        return problems.unauthorized(error)


def _with_allowance(send: Send, allowance: Allowance | None) -> Send:
    if allowance is None:
        return send
    told = allowance.headers()

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(told)
        await send(message)

    return with_headers


class Attended:
    """Reads the body: MAX_BODY bytes at most (LONG_BODY for a conversation) within ``body_s`` seconds. Ends work that
    nobody waits for."""

    def __init__(self, app: ASGIApp, body_s: float) -> None:
        self._app, self._body_s = app, body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection. Raises ClientLeft."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = LONG_BODY if scope["path"] in LONG else MAX_BODY
        try:
            if _declared(scope) > most:
                raise _TooLarge
            async with asyncio.timeout(self._body_s):
                body = await _body(receive, most)
        except _TooLarge:
            await problems.too_large(most)(scope, receive, send)
        except TimeoutError:
            await problems.too_slow()(scope, receive, send)
        else:
            await _Attended(self._app, scope, receive, send, body).run()


def _declared(scope: Scope) -> int:
    """Declared length of the body; the server has refused what is no number."""
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 19 else 0


async def _body(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _TooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


class _Attended:
    """One request whose body is here: the application works, and beside it somebody looks whether the client waits."""

    def __init__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        self._app, self._scope, self._from, self._to = app, scope, receive, send
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._answered = False

    async def run(self) -> None:
        """Raises ClientLeft, or what the application raises."""
        work: asyncio.Task[None] = asyncio.ensure_future(_of(self._app(self._scope, self._receive, self._send)))
        watch = asyncio.ensure_future(self._watch(work.cancel))
        try:
            await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the server ends us, not the client
            if self._gone.is_set():
                raise ClientLeft from None
            raise
        finally:
            watch.cancel()

    async def _watch(self, cancel: Callable[[], Any]) -> None:
        while (await self._from())["type"] != "http.disconnect":
            continue
        self._gone.set()
        if not self._answered:  # after the last byte the server says so too, and something may be left to do
            cancel()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._answered = True
        await self._to(message)


async def _of(work: Awaitable[None]) -> None:
    await work
