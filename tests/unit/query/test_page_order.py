"""Scores and limits over pages: what is read late, what stands for a copy, what a document's limit leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.query.test_finish import Scripted, names, use
from tests.unit.query.test_paging import pages
from tests.unit.query.test_retrieve import revoke, rule_event
from tests.unit.query.world import World, anyone

pytestmark = pytest.mark.anyio


def finals(hits: list[Any]) -> list[float]:
    return [hit["scores"]["final"] for hit in hits]


@pytest.mark.requirement("B4", "B5", "E4")
@pytest.mark.parametrize("asked", [{"diversity": 0.5}, {"rerank": "full", "diversity": 1}, {"rerank": "full"}])
async def test_scores_fall_over_all_pages(world: World, asked: dict[str, Any]) -> None:
    world.principal("user:ann")
    for i in range(30):
        world.document(f"d{i}", "plan " + " ".join(f"w{i}x{j}" for j in range(2 + 3 * i)))
    async with world.running() as run:
        use(run, Scripted({"w3x0": 4.0, "w5x0": 2.0}))
        found = await pages(run, "plan", k=4, mode="sparse", **asked)
    all_of = finals([hit for page in found for hit in page])
    assert len(all_of) == 30
    assert all_of == sorted(all_of, reverse=True)


@pytest.mark.requirement("B4", "B5", "E4")
@pytest.mark.parametrize("asked", [{"diversity": 0.5}, {"rerank": "full"}])
async def test_scores_fall_where_a_limit_leaves_room_for_what_is_read_late(world: World, asked: dict[str, Any]) -> None:
    world.principal("user:ann")
    world.document("long", *(f"plan part{i}" for i in range(20)))
    for i in range(4):
        world.document(f"d{i}", "plan " + " ".join(f"w{i}x{j}" for j in range(6 + 3 * i)))
    async with world.running() as run:
        use(run, Scripted({"part7": 4.0}))
        reply = await run.search("plan", k=4, mode="sparse", per_document=1, **asked)
    assert len(reply["hits"]) == 4 and names(reply)[0] == "long"
    assert finals(reply["hits"]) == sorted(finals(reply["hits"]), reverse=True)


@pytest.mark.requirement("B4", "B9")
async def test_a_copy_has_the_score_of_the_place_that_it_takes(world: World) -> None:
    world.principal("user:ann")
    same = "The pilots meet at the northern lock before every night watch, and the gauge is read twice by two people."
    world.document("first", same, title="pilots")
    world.document("second", same, title="other")
    for i in range(3):
        world.document(f"d{i}", "pilots " + " ".join(f"w{i}x{j}" for j in range(30 + 3 * i)))
    async with world.running() as run:

        async def now() -> None:
            await revoke(run, rule_event(world, "first", anyone("user:bob")))

        use(run, Scripted({"northern lock": 0.2, "w0x0": 9.0, "w1x0": 0.1}, then=now))
        reply = await run.search("pilots", duplicates="fold", rerank="full", mode="sparse")
    assert "second" in names(reply) and "first" not in names(reply)
    assert finals(reply["hits"]) == sorted(finals(reply["hits"]), reverse=True)


@pytest.mark.requirement("B5", "E4")
@pytest.mark.parametrize("apart", [False, True])
async def test_a_copy_elsewhere_is_shown_where_the_limit_hides_the_passage(world: World, apart: bool) -> None:
    """Both passages of the handbook stand before the note's, which is a copy of one of them."""
    world.principal("user:ann")
    one = "plan one: the pilots meet at the northern lock before every night watch and read the gauge twice each time"
    two = "plan two: the office sends the tables of the tides to every harbour along the coast before the week begins"
    world.document("handbook", one, two, title="plan")
    world.document("note", f"{two} again" if apart else two, title="zz")
    async with world.running() as run:
        folded = await run.search("plan one two", duplicates="fold", mode="sparse", per_document=1)
        split = await pages(run, "plan one two", duplicates="fold", mode="sparse", per_document=1, k=1)
        dated = await pages(run, "plan one two", duplicates="fold", mode="sparse", per_document=1, k=1, sort="oldest")
    assert sorted(names(folded)) == ["handbook", "note"]
    assert sorted(hit["document_id"] for page in split for hit in page) == ["handbook", "note"]
    assert sorted(hit["document_id"] for page in dated for hit in page) == ["handbook", "note"]
