"""``POST /mcp``: one route among the others, so that token, limits, size and headers are theirs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from query_service.answer.face import Answering
from query_service.callers import Caller
from query_service.service import QueryService

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class Endpoint:
    """The MCP server behind the route. It starts with the first request and ends with the service."""

    def __init__(
        self,
        service: QueryService,
        hosts: tuple[str, ...],
        origins: tuple[str, ...],
        answering: Answering | None = None,
    ) -> None:
        self._service, self._hosts, self._origins, self._answering = service, hosts, origins, answering
        self._started: asyncio.Future[ASGIApp] | None = None
        self._holder: asyncio.Task[None] | None = None
        self._end = asyncio.Event()

    async def app(self) -> ASGIApp:
        """The running application. Whoever leaves while it starts does not end that for the others."""
        started = self._started
        if started is None or (started.done() and started.exception() is not None):
            started = self._started = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(started))
        return await asyncio.shield(started)

    async def _hold(self, started: asyncio.Future[ASGIApp]) -> None:
        """Keeps the server's tasks: they belong to no request."""
        try:
            manager = await asyncio.to_thread(self._build)
            async with manager.run():
                started.set_result(manager.handle_request)
                await self._end.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    def _build(self) -> StreamableHTTPSessionManager:
        from query_service.mcp import server  # takes a second

        return server.build(self._service, server.security(self._hosts, self._origins), self._answering)

    async def stop(self) -> None:
        """End what runs."""
        self._end.set()
        if self._holder is not None:
            await asyncio.gather(self._holder, return_exceptions=True)


class _Handed(Response):
    """Hands the connection to another application."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def router(endpoint: Endpoint) -> APIRouter:
    """The route. There is no GET and no DELETE: without sessions nothing is to be streamed or ended."""
    routes = APIRouter()

    @routes.post("/mcp", include_in_schema=False)
    async def mcp(caller: Caller) -> Response:
        return _Handed(await endpoint.app())

    return routes
