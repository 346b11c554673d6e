"""The SDK's own client on the application, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.unit.query.world import Running

URL = "http://127.0.0.1:8700/mcp"
MODES = ("legacy", "auto")  # with the older handshake, and as the newest protocol has it


@asynccontextmanager
async def talking(app: Any, headers: dict[str, str], mode: str = "auto", url: str = URL) -> AsyncIterator[Client]:
    """A connected client; ``app`` is an ASGI application, or None for a real server at ``url``."""
    transport = httpx2.ASGITransport(app=app) if app is not None else None
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def application(run: Running) -> Any:
    """The application behind a running world's client."""
    return run.client._transport.app  # type: ignore[attr-defined]
