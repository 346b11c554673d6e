"""The clients over real HTTP: connections, headers and errors as a server on loopback has them.

Two worlds: in memory, where the matter is the wire, and on real Weaviate and Kafka, where it is the whole way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from query_service.app import create_app
from query_service.client import AsyncHeadwaterClient, HeadwaterClient, NotFound, Retry, Unauthorized, Unavailable
from query_service.client.passages import Passages
from schemas.access import AccessRule
from tests.integration.query.real import RealWorld
from tests.unit.mcp.talk import MODES, talking
from tests.unit.query.world import World, anyone, chunk_id, ref

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[str]:
    """The world's application on a port of its own; the address, once it is ready."""
    app = create_app(world.dependencies())
    world.progress()
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(60):
            while not server.started or app.state.parts.state.reasons():
                assert not running.done(), "the server ended"
                await asyncio.sleep(0.01)
        yield address
    finally:
        server.should_exit = True
        await running
        listening.close()


@pytest.fixture
def memory(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.requirement("E3", "B1", "A8")
async def test_both_clients_on_the_wire(memory: World) -> None:
    memory.principal("user:ann")
    memory.principal("user:bob")
    memory.document("a", "the plan of the pump", "its second step", rule=anyone("user:ann"))
    async with serving(memory) as address:
        given = iter([memory.token(exp=1), memory.token()])

        def blocking() -> list[str]:
            with HeadwaterClient(address, token=lambda: next(given)) as client:
                found = [h.document_id for h in client.search_all("plan", duplicates="keep")]
                around = client.neighbours(ref("a").uid, chunk_id(ref("a"), "its second step"))
                assert [p.text for p in around.passages] == ["the plan of the pump", "its second step"]
                return found

        assert set(await asyncio.to_thread(blocking)) == {"a"}, "the expired token was renewed"
        async with AsyncHeadwaterClient(address, token=memory.token("bob")) as bob:
            assert (await bob.search("plan")).hits == ()
            with pytest.raises(NotFound):
                await bob.document(ref("a").uid)
        async with AsyncHeadwaterClient(address, token="wrong") as nobody:
            with pytest.raises(Unauthorized):
                await nobody.freshness()
    with HeadwaterClient(address, token="t", retry=Retry(attempts=1)) as late, pytest.raises(Unavailable):
        late.freshness()


@pytest.mark.requirement("E3", "B1", "A8", "I4")
@pytest.mark.parametrize("mode", MODES)
async def test_mcp_on_the_wire(memory: World, mode: str) -> None:
    memory.principal("user:ann")
    memory.document("a", "the plan of the pump")
    ann = {"Authorization": f"Bearer {memory.token()}"}
    other = {"Authorization": f"Bearer {memory.token(tenant='other')}"}

    def passages(result: Any) -> list[str]:
        return [p.text for p in Passages.model_validate(result.structured_content).passages]

    async with serving(memory) as address:
        url = f"{address}/mcp"
        async with talking(None, ann, mode, url) as client, talking(None, other, mode, url) as stranger:
            assert passages(await client.call_tool("search", {"query": "plan"})) == ["the plan of the pump"]
            assert passages(await stranger.call_tool("search", {"query": "plan"})) == []
            memory.access(ref("a"), AccessRule.any_of("user:bob"))
            assert passages(await client.call_tool("search", {"query": "plan"})) == []
            assert (await client.call_tool("fetch_document", {"document_uid": ref("a").uid})).is_error
        with pytest.raises(BaseException, match=r"401|unhandled|Unauthorized"):
            async with talking(None, {"Authorization": "Bearer wrong"}, mode, url) as nobody:
                await nobody.list_tools()


@pytest.mark.requirement("E3", "B1")
async def test_the_whole_way(world: RealWorld) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.document(
        "refunds", "A refund reaches the customer's account within five working days.", "Ask for it by mail."
    )
    world.document("secret", "Refund fraud is investigated by the audit team.", rule=anyone("user:ann"))
    async with serving(world) as address:
        async with AsyncHeadwaterClient(address, token=world.token()) as ann:
            found = await ann.search("when do customers get their money back?", k=3)
            assert "refunds" in {h.document_id for h in found.hits}
            around = await ann.neighbours(ref("refunds").uid, chunk_id(ref("refunds"), "Ask for it by mail."))
            assert len(around.passages) == 2
            assert (await ann.document(ref("secret").uid)).sections
            assert [p.document_id async for p in ann.search_all("refund fraud", limit=1)]
        headers = {"Authorization": f"Bearer {world.token('bob')}"}
        async with talking(None, headers, url=f"{address}/mcp") as bob:
            result = await bob.call_tool("search", {"query": "refund fraud"})
            shown = Passages.model_validate(result.structured_content)
            assert {p.title for p in shown.passages} == {"refunds"}
            assert (await bob.call_tool("fetch_document", {"document_uid": ref("secret").uid})).is_error
