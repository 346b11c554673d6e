"""Chat and MCP over the service itself: the same answer as /v1/answer, in the caller's scope, gone when revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from schemas.access import AccessRule
from tests.unit.mcp.talk import application, talking
from tests.unit.query.world import Running, World, anyone, ref

pytestmark = pytest.mark.anyio
FACT = "A refund reaches the account of the customer within five working days."
QUESTION = "How many working days until a refund reaches the account of the customer?"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.principal("user:ann")
    made.principal("user:bob")
    made.document("refunds", FACT, rule=anyone("user:ann"))
    made.document("lunch", "The kitchen serves lunch at noon.")
    return made


def sdk(run: Running, sub: str = "ann") -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=application(run)))
    return AsyncOpenAI(base_url="http://query.test/v1", api_key=run.world.token(sub), http_client=http, max_retries=0)


async def said(run: Running, sub: str = "ann", **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": QUESTION}]
    return await sdk(run, sub).chat.completions.create(model="headwater", messages=messages, **more)


@pytest.mark.requirement("B8", "B9", "E3")
async def test_chat_says_what_the_caller_may_read_and_nothing_of_what_was_revoked(world: World) -> None:
    async with world.running() as run:
        made = await said(run)
        assert made.choices[0].message.content == f"{FACT}[^1]" and made.headwater["kind"] == "extractive"
        stream = await said(run, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == f"{FACT}[^1]"
        assert (await said(run, "bob")).headwater["answered"] is False
        assert [m.id async for m in await sdk(run).models.list()] == ["headwater", "headwater-extractive"]
        world.access(ref("refunds"), AccessRule.any_of("user:bob"))
        after = await said(run)
        assert after.headwater["answered"] is False and "five" not in after.choices[0].message.content
        with pytest.raises(openai.AuthenticationError, match="token"):
            await AsyncOpenAI(
                base_url="http://query.test/v1", api_key="wrong", max_retries=0, http_client=sdk(run)._client
            ).models.list()


@pytest.mark.requirement("B8", "E3")
async def test_a_long_conversation_is_taken(world: World) -> None:
    turns: Any = [{"role": role, "content": "word " * 900} for _ in range(60) for role in ("user", "assistant")]
    async with world.running() as run:
        messages = [*turns, {"role": "user", "content": QUESTION}]
        made: Any = await sdk(run).chat.completions.create(model="headwater-extractive", messages=messages)
        assert made.headwater["query_id"]
        huge = [{"role": "user", "content": "word " * 300_000}]
        with pytest.raises(openai.APIStatusError) as caught:
            await sdk(run).chat.completions.create(model="headwater", messages=huge)  # type: ignore[arg-type]
        assert caught.value.status_code == 413 and caught.value.code == "request_too_large"


@pytest.mark.requirement("B8", "E3")
async def test_mcp_answers_within_the_scope(world: World) -> None:
    async with world.running() as run:
        for sub, answered in (("ann", True), ("bob", False)):
            async with talking(application(run), run.headers(sub)) as client:
                result = await client.call_tool("answer", {"question": QUESTION, "style": "extractive"})
            assert not result.is_error and result.structured_content is not None
            assert result.structured_content["answered"] is answered
            assert ("five working days" in str(result.content)) is answered
