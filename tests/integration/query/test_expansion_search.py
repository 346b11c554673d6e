"""Expanded searches on real Weaviate and Kafka, the generator over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.observe import Metrics
from pipeline.settings import Settings
from pipeline.settings_query import GeneratorSettings, InferenceSettings
from query_service.app import Dependencies
from query_service.generate.interface import Generator, GeneratorUnavailable, Message
from query_service.generate.openai_server import OpenAiGenerator, generator_of
from schemas.events import AccessSet
from tests.fakes.llm import KEY, Garbage, Hangs, Reply, Says, ScriptedModel, Status, Unreachable
from tests.integration.query.real import RealWorld
from tests.unit.query.world import anyone, ref

pytestmark = pytest.mark.anyio
HOP = "until when does the device with the file handle leak get fixes"


class ThinkingWorld(RealWorld):
    """With a generator behind real HTTP."""

    thinks: Generator | None = None

    def dependencies(self) -> Dependencies:
        return replace(super().dependencies(), generator=self.thinks, load_reranker=None)


@pytest.fixture
def world(settings: Settings) -> Any:
    """A namespace of its own with one active generation."""
    made = ThinkingWorld(settings)
    yield made
    made.close()


@asynccontextmanager
async def generating(*replies: Reply, otherwise: Any = None, key: str | None = KEY) -> AsyncIterator[Any]:
    """A scripted server on loopback, and the generator that asks it."""
    model = ScriptedModel.of(*replies, key=key)
    if otherwise is not None:
        model.otherwise = otherwise
    async with model.serve() as url:
        settings = GeneratorSettings(url=url, api_key=SecretStr(KEY), attempts=1, timeout_s=5)
        generator = OpenAiGenerator(settings, InferenceSettings(failures=99), Metrics())
        try:
            yield model, generator
        finally:
            await generator.close()


@pytest.mark.requirement("B12")
async def test_the_generator_over_real_http() -> None:
    prompt = [Message("user", "count")]
    async with generating(Says("one two three"), Says("one two three"), Says("a b c d", stream_breaks=True)) as (
        model,
        generator,
    ):
        whole = await generator.complete(prompt, max_tokens=9, timeout_s=5)
        assert whole.text == "one two three" and not whole.usage.estimated
        pieces = [p async for p in generator.stream(prompt, max_tokens=9, timeout_s=5)]
        assert "".join(p.text for p in pieces) == "one two three" and pieces[-1].usage is not None
        with pytest.raises(GeneratorUnavailable, match=r"the stream broke|ended in the middle"):
            [p async for p in generator.stream(prompt, max_tokens=9, timeout_s=5)]
        for reply in (Unreachable(), Status(429, retry_after=99), Garbage(), Hangs()):
            model.replies.append(reply)
            with pytest.raises(GeneratorUnavailable):
                await generator.complete(prompt, max_tokens=9, timeout_s=0.5)
    async with generating(Says("never"), key="another") as (_, generator):
        with pytest.raises(GeneratorUnavailable, match="status 401"):
            await generator.complete(prompt, max_tokens=9, timeout_s=5)


@pytest.mark.requirement("B12")
async def test_settings_make_the_generator() -> None:
    assert generator_of(Settings(), Metrics()) is None
    async with ScriptedModel.of(Says("yes"), key=KEY).serve() as url:
        settings = Settings(generator=GeneratorSettings(url=url, model="tiny", api_key=SecretStr(KEY)))
        made = generator_of(settings, Metrics())
        assert made is not None and made.model == "tiny" and KEY not in repr(settings)
        assert (await made.complete([Message("user", "?")], max_tokens=5, timeout_s=5)).text == "yes"
        await made.close()


def two_hops(world: RealWorld) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    world.document(
        "leak", "The release candidate has a file handle leak. It shows on the Heron device alone.",
        rule=anyone("group:wiki/eng"), title="Known faults",
    )  # fmt: skip
    world.document("life", "Heron is maintained up to 2028, Kestrel up to 2030.", title="End of life")
    for i in range(5):
        world.document(f"noise{i}", f"Fixes for device {i} get a number when they are written down.", title=f"Note {i}")


@pytest.mark.requirement("B11")
async def test_every_expansion_on_the_real_index(world: ThinkingWorld) -> None:
    two_hops(world)
    replies = (
        Says('["support period of the device with the file handle leak", "end of maintenance"]'),
        Says("Devices are maintained up to a year that is published in a list."),
        Says('{"query": "Heron maintained up to"}'),
    )  # fmt: skip
    async with generating(*replies) as (model, generator):
        world.thinks = generator
        async with world.running() as run:
            plain = await run.ids(HOP)
            for kind in ("decompose", "multi_query", "hyde", "iterative"):
                reply = await run.search(HOP, expand=kind, explain=True)
                found = [h["document_id"] for h in reply["hits"]]
                assert "leak" in found and reply["steps"][0]["kind"] == "original", kind
                if kind == "iterative":
                    assert found.index("life") < plain.index("life"), "the second hop"
    assert not model.replies, "all were asked for"
    assert "end of passage" in model.prompts[-1]


@pytest.mark.requirement("B11", "I3", "D5")
async def test_a_revocation_on_the_log_during_an_expansion(world: ThinkingWorld) -> None:
    two_hops(world)
    calls: list[int] = []

    def answer(body: dict[str, Any]) -> Says:
        calls.append(1)
        if len(calls) == 1:
            world.send(
                AccessSet(
                    document=ref("leak"), version=world.version(), content_version=0, rule=anyone("user:bob"),
                    observed_at=world.clock.now(),
                )
            )  # fmt: skip
        told: list[Callable[[], Says]] = [
            lambda: Says(json.dumps({"query": "Heron maintained up to"})), lambda: Says("STOP"),
        ]  # fmt: skip
        return told[min(len(calls), 2) - 1]()

    async with generating(otherwise=answer) as (model, generator):
        world.thinks = generator
        async with world.running() as run:
            assert "leak" in await run.ids(HOP)
            reply = await run.search(HOP, expand="iterative", explain=True)
    assert "file handle leak" in model.prompts[0]
    assert all("shows on the Heron" not in p and "Heron maintained" not in p for p in model.prompts[1:])
    assert "leak" not in {h["document_id"] for h in reply["hits"]}
    assert all("Heron" not in s["query"] for s in reply["steps"])
