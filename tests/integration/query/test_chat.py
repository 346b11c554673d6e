"""Chat completions through the OpenAI SDK over real HTTP: sentences when they are released, work that ends with its
reader."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from openai import AsyncOpenAI

from tests.unit.answer.scripted import Scripted, answer, events_of
from tests.unit.answer.test_chat import ASK, application
from tests.unit.query.world import World

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("B8", "E3")
@pytest.mark.parametrize("leaves", [False, True])
async def test_sentences_come_when_released_and_leaving_ends_the_work(tmp_path: Path, leaves: bool) -> None:
    world, go = World(tmp_path), asyncio.Event()
    events = events_of(answer())
    answering = Scripted(*events[:3], go, *events[3:])
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application(world, answering), log_config=None, lifespan="off", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(30):
            address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            client = AsyncOpenAI(base_url=address, api_key=world.token(), max_retries=0)
            given: Any = {"model": "headwater", "messages": ASK, "stream": True}
            stream: Any = await client.chat.completions.create(**given)
            texts: list[str] = []
            async for chunk in stream:
                texts.append(chunk.choices[0].delta.content or "")
                if texts[-1] == "Refunds take five days.[^1]":
                    assert not answering.finished, "the second sentence is not released yet"
                    if leaves:
                        break
                    go.set()
            if leaves:
                await stream.close()
                await answering.ended.wait()
                assert not answering.finished and not go.is_set()
            else:
                assert "".join(texts) == answer().text and answering.finished
            await client.close()
    finally:
        server.should_exit = True
        await running
        listening.close()
