"""Connections that misbehave, on the real server: slow, large, gone, too many, and a service that is told to stop."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.settings_query import LimitSettings
from query_service import connections
from query_service.app import create_app
from query_service.connections import MAX_HEAD, server_options
from schemas.tokens import FreshnessToken, TokenDocument
from tests.unit.query.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The world in memory: these tests are about connections."""
    made = World(tmp_path)
    made.principal("user:ann")
    made.document("a", "plan")
    return made


class Serving:
    """A server on loopback."""

    def __init__(self, world: World, server: Any, app: Any, port: int) -> None:
        self.world, self.server, self.app, self.port = world, server, app, port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def request(self, body: bytes = b"", *, method: str = "POST", path: str = "/v1/search", **more: str) -> bytes:
        headers = {
            "Host": "x", "Authorization": f"Bearer {self.world.token()}", "Content-Type": "application/json",
            "Content-Length": str(len(body)), **{k.replace("_", "-"): v for k, v in more.items()},
        }  # fmt: skip
        head = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body

    def waiting(self) -> bytes:
        """A search that waits for a write that never comes."""
        coming = TokenDocument(source="wiki", kind="page", id="a", content=2**52)
        token = FreshnessToken(tenant="acme", documents=(coming,)).encode()
        return json.dumps({"query": "plan", "after": token, "wait_ms": 30_000}).encode()

    def running(self) -> int:
        """Requests that hold a place now."""
        return int(self.app.state.limits.running)

    async def until(self, condition: Any, seconds: float = 5.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(world: World, **limits: Any) -> AsyncIterator[Serving]:
    import uvicorn

    world.settings.limits = LimitSettings(**limits)
    app = create_app(world.dependencies())
    world.progress()
    options = {**server_options(world.settings.limits), "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(app, **options))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.ensure_future(server._serve([listening]))
        made = Serving(world, server, app, listening.getsockname()[1])
        await made.until(lambda: server.started or task.done())
        await made.until(lambda: not app.state.parts.state.reasons())
        try:
            yield made
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, 15)


async def reply(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode()
    status, *lines = head.strip().split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
    body = await asyncio.wait_for(reader.readexactly(int(headers.get("content-length", 0))), 10)
    return int(status.split()[1]), headers, body


@pytest.mark.requirement("B1")
async def test_a_client_that_leaves_ends_its_search(world: World) -> None:
    async with serving(world) as served:
        reader, writer = await served.connect()
        writer.write(served.request(served.waiting()))
        await served.until(lambda: served.running() == 1)
        left = time.monotonic()
        writer.close()
        await served.until(lambda: served.running() == 0)
        assert time.monotonic() - left < 1  # of the 30 s that it would have waited
        metrics = world.metrics.render().decode()
        assert 'route="/v1/search",status="499"' in metrics
        del reader


async def test_slow_heads_are_closed_and_others_answered(world: World) -> None:
    async with serving(world, header_s=0.3) as served:
        slow = [await served.connect() for _ in range(20)]
        for _, writer in slow:
            writer.write(b"POST /v1/search HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{served.port}/healthz")).status_code == 200
        begun = time.monotonic()
        for reader, writer in slow:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 5)
            writer.close()
        assert time.monotonic() - begun < 3
        # A second request on a connection that was good is watched as well.
        reader, writer = await served.connect()
        writer.write(served.request(method="GET", path="/v1/freshness"))
        assert (await reply(reader))[0] == 200
        writer.write(b"GET /healthz HT")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 5)
        writer.close()


async def test_slow_bodies_get_408_and_give_their_place_back(world: World) -> None:
    async with serving(world, body_s=0.3) as served:
        reader, writer = await served.connect()
        writer.write(served.request(Content_Length="1000") + b'{"query"')
        status, headers, _ = await reply(reader)
        assert status == 408 and headers["content-type"] == "application/problem+json"
        assert headers["x-content-type-options"] == "nosniff" and headers["connection"] == "close"
        assert served.running() == 0
        writer.close()


@pytest.mark.requirement("B1")
async def test_without_a_token_no_body_is_waited_for(world: World) -> None:
    async with serving(world) as served:
        reader, writer = await served.connect()
        writer.write(served.request(Content_Length="60000", Authorization="Bearer x"))
        status, headers, _ = await reply(reader)
        assert status == 401 and headers["cache-control"] == "no-store"
        writer.close()


@pytest.mark.parametrize(
    "first", [b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n"]
)
async def test_heads_that_are_too_large_are_refused(world: World, first: bytes) -> None:
    async with serving(world) as served:
        reader, writer = await served.connect()
        writer.write(first % (b"a" * (MAX_HEAD * 4)))
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


async def test_bodies_that_are_too_large_are_refused_while_they_come(world: World) -> None:
    async with serving(world) as served:
        reader, writer = await served.connect()
        writer.write(served.request(Content_Length="70000"))
        assert (await reply(reader))[0] == 413
        writer.close()
        reader, writer = await served.connect()
        head = served.request().replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        writer.write(head + b"10000\r\n" + b"x" * 0x10000 + b"\r\n1\r\nx\r\n")
        assert (await reply(reader))[0] == 413
        writer.close()


async def test_connections_above_the_limit_are_closed(world: World) -> None:
    async with serving(world, connections=5) as served:
        held = [await served.connect() for _ in range(5)]
        await served.until(lambda: len(served.server.server_state.connections) == 5)
        reader, writer = await served.connect()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 5)
        for _, each in [*held, (reader, writer)]:
            each.close()
        await served.until(lambda: not served.server.server_state.connections)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{served.port}/healthz")).status_code == 200


async def test_what_is_under_way_is_ended_in_order_on_stop(world: World) -> None:
    async with serving(world) as served:
        reader, writer = await served.connect()
        writer.write(served.request(served.waiting()))
        await served.until(lambda: served.running() == 1)
        quick, other = await served.connect()
        other.write(served.request(method="GET", path="/v1/freshness"))
        served.server.should_exit = True
        assert (await reply(quick))[0] in (200, 503)
        other.close()
    assert served.running() == 0
    writer.close()
    del reader


@pytest.mark.requirement("B1")
async def test_a_client_that_takes_nothing_of_its_replies_loses_its_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.2)
    async with serving(world) as run:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", run.port))
            one = run.request(method="GET", path="/openapi.json")
            # Many at once, and not one byte of what comes back is read.
            sending = asyncio.ensure_future(loop.sock_sendall(client, one * 4000))
            try:
                await run.until(lambda: len(run.server.server_state.connections) == 1)
                await run.until(lambda: not run.server.server_state.connections)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            await run.until(lambda: run.running() == 0)


@pytest.mark.requirement("B1")
async def test_whoever_reads_slowly_gets_the_whole_reply(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.1)
    async with serving(world) as run:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", run.port))
            await loop.sock_sendall(client, run.request(method="GET", path="/openapi.json", Connection="close"))
            got = bytearray()
            while part := await loop.sock_recv(client, 16_384):
                got += part
                await asyncio.sleep(0.005)  # the reader's own pace
        head, _, body = bytes(got).partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head.lower()
