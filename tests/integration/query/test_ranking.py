"""Ranking on real Weaviate: vectors of both tiers, near-duplicates, phrases, pages."""

from __future__ import annotations

import pytest

from tests.integration.query.real import RealWorld
from tests.unit.query.world import anyone

pytestmark = pytest.mark.anyio
LONG = (
    "Before every night watch the pilots of the day meet at the northern lock, read the gauge twice, write the level "
    "into the book and tell the harbour office at seven, so that the gates can be set before the tide turns."
)


@pytest.mark.requirement("B5", "A9", "I3")
async def test_near_duplicates_of_both_tiers_are_one_hit(world: RealWorld) -> None:
    world.principal("user:ann")
    for i, word in enumerate(("", "again", "too", "here", "quietly")):
        world.document(f"copy{i}", f"{LONG} {word}", tier="hot" if i % 2 else "cold")
    world.document("number", LONG.replace("at seven", "at 7:30"))
    world.document("negation", LONG.replace("can be set", "can not be set"), tier="cold")
    world.document("secret", f"{LONG} indeed", rule=anyone("user:bob"))
    async with world.running() as run:
        reply = await run.search("pilots at the northern lock", duplicates="fold", rerank="off")
        novel = await run.search("pilots at the northern lock", k=2, diversity=0, rerank="off")
    copies = [hit for hit in reply["hits"] if hit["document_id"].startswith("copy")]
    assert len(copies) == 1 and len(copies[0]["also"]) == 4
    assert {hit["document_id"] for hit in reply["hits"]} - {copies[0]["document_id"]} == {"number", "negation"}
    assert len(novel["hits"]) == 2


@pytest.mark.requirement("B2")
async def test_a_phrase_is_found_behind_passages_that_only_hold_its_words(world: RealWorld) -> None:
    world.principal("user:ann")
    for i in range(4):
        world.document(
            f"near{i}", f"Green or blue, deployment {i} is blue before green.", tier="hot" if i % 2 else "cold"
        )
    world.document(
        "far", "Many other words stand here before it says how Blue-Green deployments are done.", tier="cold"
    )
    async with world.running() as run:
        for mode in ("hybrid", "dense", "sparse"):
            assert await run.ids('deployment "blue green"', mode=mode) == ["far"]
        assert await run.ids('"green yellow"') == []


@pytest.mark.requirement("E4", "B9")
async def test_pages_over_both_tiers_while_documents_change(world: RealWorld) -> None:
    world.principal("user:ann")
    made = {
        f"d{i:02}": world.document(f"d{i:02}", f"The plan of ward {i} in summer.", tier="hot" if i % 2 else "cold")
        for i in range(14)
    }
    async with world.running() as run:
        body = {"query": "plan of the ward", "k": 5, "rerank": "off"}
        first = await run.search(**body)
        shown = [hit["document_id"] for hit in first["hits"]]
        left = [name for name in made if name not in shown]
        world.access(made[left[0]].document, anyone("user:bob"))
        world.document(left[1], "The plan of the ward, written anew.")
        second = await run.search(**body, cursor=first["next_cursor"])
        third = await run.search(**body, cursor=second["next_cursor"])
    pages = [hit["document_id"] for reply in (first, second, third) for hit in reply["hits"]]
    assert sorted(pages) == sorted(name for name in made if name != left[0])
    assert third["next_cursor"] is None
    texts = {hit["document_id"]: hit["text"] for hit in (*second["hits"], *third["hits"])}
    assert texts[left[1]] == "The plan of the ward, written anew."
