"""Evidence, snippets and suggestions on real Weaviate with the real tokenizer and encoder."""

from __future__ import annotations

import pytest

from query_service import suggest
from tests.integration.query.real import RealWorld
from tests.unit.query.world import GENERATION, TENANT, anyone

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("B6", "B14", "I3")
async def test_evidence_within_permissions_and_budget(world: RealWorld) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    world.principal("user:bob")
    world.document("pump", "The pump stops when the pressure falls below two bar.", "Its seal is made of rubber.")
    world.document("valve", "The valve opens at four bar of pressure.", tier="cold")
    world.document("secret", "The secret pressure is nine bar.", rule=anyone("group:wiki/eng"))
    world.document("denied", "The denied pressure is ten bar.", rule=anyone(deny=["user:bob"]))
    async with world.running() as run:
        reply = await run.search("at which pressure does the pump stop?", evidence="sections", rerank="off")
        found = reply["evidence"]
        first = found["passages"][0]
        assert first["rank"] == 1 and first["chunk_ids"] == [reply["hits"][0]["chunk_id"]] and found["complete"]
        assert "The pump stops when the pressure falls below two bar." in [p["text"] for p in found["passages"]]
        assert sorted(p["rank"] for p in found["passages"]) == list(range(1, len(found["passages"]) + 1))
        counter = run.parts.service._extras._gatherer._counters
        tokens = await counter.of(world.store.read_generations()[GENERATION])
        assert first["tokens"] == len(tokens.offsets(first["text"]))
        small = (await run.search("pressure", evidence="sections", token_budget=64, k=1, rerank="off"))["evidence"]
        assert small["tokens"] <= 64 and len(small["passages"]) == 1

        everything = (await run.search("seal", evidence="all", rerank="off"))["evidence"]
        assert everything["mode"] == "all" and everything["complete"]
        assert {p["document_id"] for p in everything["passages"]} == {"pump", "valve", "secret", "denied"}
        assert [p["text"] for p in everything["passages"] if p["document_id"] == "pump"] == [
            "The pump stops when the pressure falls below two bar.", "Its seal is made of rubber.",
        ]  # fmt: skip
        theirs = (await run.search("seal", "bob", evidence="all", rerank="off"))["evidence"]
        assert {p["document_id"] for p in theirs["passages"]} == {"pump", "valve"} and theirs["complete"]
        kinds = (await run.search("seal", evidence="all", filters={"kinds": ["issue"]}, rerank="off"))["evidence"]
        assert kinds["passages"] == [] and kinds["complete"]


@pytest.mark.requirement("B6", "I2")
async def test_a_document_that_moved_on_is_resolved_again(world: RealWorld) -> None:
    world.principal("user:ann")
    old = world.document("d", "The probe is reset by its button.", "It beeps twice.")
    async with world.running() as run:
        reader = run.parts.reader
        sections = reader.sections
        moved: list[int] = []

        async def after_an_edit(generation: str, tenant: str, ids: list[str]) -> object:
            if not moved:
                new = world.document("d", "A new beginning.", "The probe is reset by its button.")
                world.store.delete_sections(GENERATION, TENANT, [old.sections[1]])
                moved.append(new.content_version)
            return await sections(generation, tenant, ids)

        reader.sections = after_an_edit
        found = (await run.search("probe button beeps", mode="sparse", evidence="sections", rerank="off"))["evidence"]
        assert {p["version"] for p in found["passages"]} == {moved[0]}
        assert [p["text"] for p in found["passages"]] == ["The probe is reset by its button."]


@pytest.mark.requirement("E4", "I3")
async def test_suggestions_are_made_of_what_the_caller_may_read(
    world: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggest, "DEADLINE_S", 5.0)
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("gate", "The gate is opened by hand.", title="Garden gate", language="en")
    world.document("secret", "Takeover of Pelikan.", title="Pelikan", rule=anyone("user:bob"))
    async with world.running() as run:
        theirs = await run.search("pelican", "bob", mode="sparse")
        assert theirs["suggestion"]["query"] == "pelikan"
        mine = await run.search("pelican", mode="sparse")
        assert mine["hits"] == [] and "elikan" not in str(mine["suggestion"])
        filtered = await run.search("gate", filters={"languages": ["de"]})
        assert filtered["suggestion"]["drop_filters"] == ["languages"]
        hit = (await run.search("who opens the GATE"))["hits"][0]["snippet"]
        assert [hit["text"][a:b].lower() for a, b in hit["highlights"]] == ["gate"]
