"""Both clients behind one face, so that each test runs with either: calls are awaited, iterators are lists."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import httpx

from query_service.client import AsyncHeadwaterClient, HeadwaterClient

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")
BASE = "http://query.test"


class Both:
    """One client. A sync one runs in a thread; over an ASGI application, its transport comes back to the loop."""

    def __init__(self, kind: Kind, transport: Any, **options: Any) -> None:
        self.client: HeadwaterClient | AsyncHeadwaterClient
        if kind == "sync":
            bridged = transport if isinstance(transport, httpx.BaseTransport) else Bridge(transport)
            self.client = HeadwaterClient(BASE, http=httpx.Client(transport=bridged), **options)
        else:
            self.client = AsyncHeadwaterClient(BASE, http=httpx.AsyncClient(transport=transport), **options)

    async def ask(self, method: str, *args: Any, **fields: Any) -> Any:
        """Call a method; the result, or the list of what it yields."""
        function: Callable[..., Any] = getattr(self.client, method)
        if isinstance(self.client, HeadwaterClient):
            return await asyncio.to_thread(lambda: _drained(function(*args, **fields)))
        made = function(*args, **fields)
        if isinstance(made, AsyncIterator):
            return [item async for item in made]
        return await made if inspect.isawaitable(made) else made


def _drained(made: Any) -> Any:
    return list(made) if isinstance(made, Iterator) else made


class Through(httpx.AsyncBaseTransport):
    """Hands requests to another client, which has the application."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._client.send(request)


class Bridge(httpx.BaseTransport):
    """An async transport for a client in another thread; the loop is that in which it is made."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._handle(request), self._loop).result(timeout=30)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        reply = await self._transport.handle_async_request(asked)
        return httpx.Response(reply.status_code, headers=reply.headers, content=await reply.aread())
