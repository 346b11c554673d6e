"""Whether a document is in effect is said wherever it is shown, by the moment that was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_service.assemble import in_effect
from tests.unit.query.world import World, chunk_id, ref

pytestmark = pytest.mark.anyio
DAY = 86_400_000_000
EDGES = st.none() | st.integers(0, 20)


@pytest.mark.requirement("A3", "B1")
@given(EDGES, EDGES, st.integers(0, 20))
def test_an_interval_is_half_open(begins: int | None, ends: int | None, at: int) -> None:
    low, high = 0 if begins is None else begins, 21 if ends is None else ends
    assert in_effect(begins, ends, at) == (at in range(low, high))


def dated(world: World) -> dict[str, bool]:
    """Documents, and whether each is in effect now."""
    now = world.clock.now()
    world.principal("user:ann")
    world.document("past", "the plan of the pump", effective_from=now - 9 * DAY, effective_until=now - DAY)
    world.document("present", "another plan", effective_from=now - DAY, effective_until=now + DAY)
    world.document("future", "the next plan", effective_from=now + DAY)
    world.document("always", "the old plan")
    return {"past": False, "present": True, "future": False, "always": True}


def said(items: list[dict[str, Any]]) -> dict[str, bool]:
    return {item["document_id"]: item["in_effect"] for item in items}


@pytest.mark.requirement("A3", "B1", "B6")
@pytest.mark.parametrize("mode", ["sections", "all"])
async def test_hits_and_evidence_say_it_by_now_where_no_date_is_asked_for(world: World, mode: str) -> None:
    expected = dated(world)
    now = world.clock.now()
    async with world.running() as run:
        reply = await run.search("plan", evidence=mode)
    assert said(reply["hits"]) == expected  # nothing is left out for its dates alone
    assert reply["evidence"]["mode"] == mode
    assert said(reply["evidence"]["passages"]) == expected
    (past,) = [p for p in reply["evidence"]["passages"] if p["document_id"] == "past"]
    assert (past["effective_from"], past["effective_until"]) == (now - 9 * DAY, now - DAY)


@pytest.mark.requirement("A3", "B1", "B6")
async def test_they_say_it_by_the_date_that_was_asked_for(world: World) -> None:
    dated(world)
    then = world.clock.now() - 2 * DAY
    async with world.running() as run:
        reply = await run.search("plan", evidence="sections", filters={"as_of": then})
        pinned = (await run.post({"query": "plan", "evidence": "all"}, as_of=then)).json()
    for found in (reply, pinned):
        assert said(found["hits"]) == said(found["evidence"]["passages"]) == {"past": True, "always": True}


@pytest.mark.requirement("A3", "B9")
async def test_documents_and_neighbours_say_it(world: World) -> None:
    expected = dated(world)
    texts = {
        "past": "the plan of the pump", "present": "another plan", "future": "the next plan", "always": "the old plan",
    }  # fmt: skip
    then = world.clock.now() - 2 * DAY
    async with world.running() as run:
        for name, current in expected.items():
            path = f"/v1/documents/{ref(name).uid}"
            around = f"{path}/chunks/{chunk_id(ref(name), texts[name])}/neighbours"
            assert (await run.get(path)).json()["in_effect"] is current, name
            assert (await run.get(around)).json()["in_effect"] is current, name
        past = f"/v1/documents/{ref('past').uid}"
        assert (await run.get(past, as_of=then)).json()["in_effect"] is True
