"""Suggestions where nothing is found, made of what the caller may read alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from query_service import suggest
from query_service.suggest import nearest
from tests.unit.query.world import Running, World, anyone

pytestmark = pytest.mark.anyio


async def suggested(run: Running, query: str, sub: str = "ann", **body: Any) -> Any:
    reply = await run.search(query, sub, **body)
    assert reply["hits"] == []
    return reply["suggestion"]


@pytest.mark.requirement("E4")
async def test_quotes_are_dropped_first(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "the pressure valve of the pump")
    async with world.running() as run:
        found = await suggested(run, '"valve pressure" pump', filters={"sources": ["wiki"]})
        assert found["kind"] == "quotes" and found["query"] == "valve pressure pump"
        assert await run.ids(found["query"], filters={"sources": ["wiki"]}) == ["a"]
        assert (await run.search("pressure valve"))["suggestion"] is None


@pytest.mark.requirement("E4")
async def test_the_one_filter_that_hides_everything_is_named(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "the pressure valve", language="en")
    async with world.running() as run:
        found = await suggested(run, "valve", filters={"sources": ["wiki"], "languages": ["de"], "kinds": ["page"]})
        assert found["kind"] == "filter" and found["drop_filters"] == ["languages"] and "'languages'" in found["text"]
        both = await suggested(run, "valve", filters={"sources": ["git"], "languages": ["de"]})
        assert set(both["drop_filters"]) == {"sources", "languages"}
        late = await suggested(run, "valve", filters={"updated_after": world.clock.now()})
        assert late["drop_filters"] == ["updated_after"]


@pytest.mark.requirement("E4", "B1")
async def test_a_filter_is_not_dropped_for_what_the_token_does_not_allow(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "the pressure valve", product="boiler")
    async with world.running() as run:
        found = await suggested(run, "valve", filters={"languages": ["de"]}, claims={"products": ["pump"]})
        assert found["kind"] == "words" and found["drop_filters"] == []
        assert (await suggested(run, "valve", filters={"languages": ["de"]}))["kind"] == "filter"


@pytest.mark.requirement("E4")
async def test_a_misspelt_word_is_compared_with_what_the_caller_may_read(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "It is opened by hand.", title="Pressure valve")
    async with world.running() as run:
        found = await suggested(run, "presure vavle", mode="sparse")
        assert found["kind"] == "spelling" and found["query"] == "pressure valve"
        assert await run.ids(found["query"], mode="sparse") == ["a"]
        other = await suggested(run, "zebra", mode="sparse")
        assert other["kind"] == "mode" and other["query"] is None


@pytest.mark.requirement("E4", "I3", "A8")
async def test_a_hidden_word_is_never_suggested(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("open", "It is opened by hand.", title="The garden gate")
    world.document("secret", "Acquisition of Pelikan.", title="Pelikan takeover", rule=anyone("user:bob"))
    async with world.running() as run:
        theirs = await suggested(run, "pelican", "bob", mode="sparse")
        assert theirs["kind"] == "spelling" and theirs["query"] == "pelikan"
        mine = await suggested(run, "pelican", mode="sparse")
        assert mine["kind"] == "mode" and "elikan" not in str(mine)
        # The same whether the hidden word exists, is near, or is the very one.
        assert await suggested(run, "pelikan", mode="sparse") == mine
        assert await suggested(run, "zzzzzzz", mode="sparse") == mine
        assert await suggested(run, '"pelikan takeover"', mode="sparse") == await suggested(
            run, '"zzzzzzz yyyyyyyy"', mode="sparse"
        )
        hidden = await suggested(run, "pelikan", mode="sparse", filters={"languages": ["de"]})
        assert hidden["kind"] != "filter"


@pytest.mark.requirement("E4", "I12")
async def test_nobody_is_told_nothing(world: World) -> None:
    world.document("a", "the pressure valve")
    async with world.running() as run:
        assert await suggested(run, "valve", "ghost") is None
        assert await suggested(run, '"valve of pressure"', "ghost", filters={"languages": ["de"]}) is None


@pytest.mark.requirement("E4")
async def test_who_can_read_nothing_hears_of_words_only(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "the pressure valve", rule=anyone("user:bob"))
    async with world.running() as run:
        assert (await suggested(run, "valve"))["kind"] == "words"


@pytest.mark.requirement("E4", "D1")
async def test_what_takes_too_long_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.principal("user:ann")
    world.document("a", "the pressure valve", language="en")
    async with world.running() as run:
        monkeypatch.setattr(suggest, "DEADLINE_S", 0.02)
        reader = run.parts.reader
        access = reader.access

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(0.05)
            return await access(*args)

        monkeypatch.setattr(reader, "access", slow)
        reply = await run.search("valve", filters={"languages": ["de"]})
        assert reply["hits"] == [] and reply["suggestion"] is None


@pytest.mark.requirement("E4")
def test_spellings() -> None:
    known = {"pressure": "Pressure", "valve": "valve", "pump": "pump", "v2": "v2"}
    assert nearest("presure", known) == "Pressure"
    assert nearest("vavle", known) == "valve", "two letters that changed places are one slip"
    assert nearest("pumq", known) == "pump"
    assert nearest("pxmq", known) is None, "a short word may have one slip"
    assert nearest("valve", known) is None, "it is known"
    assert nearest("pum", known) is None, "too short to tell"
    assert nearest("pump2", known) is None, "numbers are not misspelt words"
