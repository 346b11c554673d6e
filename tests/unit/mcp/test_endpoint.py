"""The start of the MCP server, which many may wait for."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import Any

import pytest

from query_service.mcp.endpoint import Endpoint

pytestmark = pytest.mark.anyio


class Manager:
    """Stands in for the SDK's, which takes a second to import."""

    @asynccontextmanager
    async def run(self) -> Any:
        yield

    async def handle_request(self, *given: Any) -> None:
        """The application."""


@pytest.mark.requirement("B1")
async def test_a_client_that_leaves_while_it_starts_ends_it_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Endpoint(None, (), ())  # type: ignore[arg-type]
    builds, go = 0, threading.Event()

    def build() -> Manager:
        nonlocal builds
        builds += 1
        go.wait(5)
        return Manager()

    monkeypatch.setattr(made, "_build", build)
    left, stays = asyncio.ensure_future(made.app()), asyncio.ensure_future(made.app())
    await asyncio.sleep(0)
    left.cancel()
    go.set()
    assert await stays is await made.app() and builds == 1
    await made.stop()


@pytest.mark.requirement("B1")
async def test_a_start_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Endpoint(None, (), ())  # type: ignore[arg-type]
    builds: list[int] = []

    def build() -> Manager:
        builds.append(1)
        if len(builds) == 1:
            raise OSError("no memory")
        return Manager()

    monkeypatch.setattr(made, "_build", build)
    with pytest.raises(OSError, match="memory"):
        await made.app()
    assert callable(await made.app()) and len(builds) == 2
    await made.stop()
