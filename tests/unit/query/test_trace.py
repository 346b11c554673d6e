"""The trace of a document: stages, lanes, tiers, generations; of deleted ones for operators."""

from __future__ import annotations

import pytest

from query_service.trace import between
from schemas.api import TraceResponse
from schemas.events import AccessTombstone
from tests.unit.query.logged import OPERATOR
from tests.unit.query.test_freshness import MS, put, receipt, state
from tests.unit.query.world import GENERATION, TENANT, Running, World, anyone, ref

pytestmark = pytest.mark.anyio


async def traced(run: Running, uid: str, sub: str = "ann", **claims: object) -> TraceResponse:
    reply = await run.get(f"/v1/documents/{uid}/trace", sub, **claims)
    assert reply.status_code == 200, reply.text
    return TraceResponse.model_validate(reply.json())


def test_times_between_stages_skip_what_was_not_passed() -> None:
    times = {"observed_at": 1000, "appended_at": 6000, "visible_at": 5000}
    assert between(times) == {"appended": 5.0, "visible": -1.0}
    assert between({"observed_at": 5}) == between({}) == {}


@pytest.mark.requirement("A11")
async def test_stages_lanes_moves_and_what_is_awaited(world: World) -> None:
    world.principal("user:ann")
    m = world.document("a", "plan", tier="cold")
    content, access = m.content_version, m.access_version
    put(
        world,
        receipt(m.document, content, tokens=7),
        receipt(m.document, access, "access"),
        receipt(m.document, content, event_type="maintenance.move", outcome="moved", chunks_written=3),
        state(m.document, content + 100, access),
    )
    async with world.running() as run:
        await run.until(lambda: len(run.parts.freshness.trace(TENANT, m.document.uid)) == 3)
        await run.until(lambda: len(run.parts.freshness.standing(TENANT, m.document.uid, GENERATION)) == 2)
        found = await traced(run, m.document.uid)
        alias = (await run.get(f"/v1/trace/{m.document.uid}")).json()
    assert TraceResponse.model_validate(alias) == found
    assert found.steps[0].lane == "access" and found.steps[0].stages_ms == {"appended": 5.0, "visible": 7.0}
    assert found.steps[1].stages_ms == {
        "observed": 20.0, "appended": 5.0, "received": 1.0, "started": 2.0, "extracted": 2.0, "embedded": 20.0,
        "visible": 10.0,
    }  # fmt: skip
    assert found.steps[1].tokens == 7 and found.steps[1].logged_at == world.clock.now()
    assert [(x.lane, x.written, x.settled, x.pending) for x in found.lanes] == [
        ("access", access, access, False),
        ("index", content + 100, content, True),
    ]
    assert [(x.generation, x.at, x.chunks) for x in found.moves] == [(GENERATION, content + 40 * MS, 3)]
    assert [(g.name, g.active, g.tier, g.content_version) for g in found.generations] == [
        (GENERATION, True, "cold", content)
    ]
    assert not found.deleted


@pytest.mark.requirement("A11", "B1")
async def test_other_generations_and_deleted_documents_are_for_operators(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:olga")
    world.generation("g2")
    m = world.document("a", "plan")
    world.document("a", "plan of the next generation", generation="g2", record=False)
    hidden = world.document("hidden", "plan", rule=anyone("user:bob"))
    gone = world.document("gone", "plan")
    world.access(gone.document, tombstone=True)
    swept = world.document("swept", "plan", deleted=True)
    async with world.running() as run:
        assert [g.name for g in (await traced(run, m.document.uid)).generations] == [GENERATION]
        assert {g.name for g in (await traced(run, m.document.uid, "olga", **OPERATOR)).generations} == {
            GENERATION, "g2",
        }  # fmt: skip
        absent = await run.get(f"/v1/documents/{ref('never').uid}/trace")
        assert absent.status_code == 404
        for uid in (hidden.document.uid, gone.document.uid, swept.document.uid, "no-uid"):
            for path in (f"/v1/documents/{uid}/trace", f"/v1/trace/{uid}"):
                reply = await run.get(path)
                assert (reply.status_code, reply.content) == (404, absent.content), path
        for uid in (gone.document.uid, swept.document.uid):
            assert (await traced(run, uid, "olga", **OPERATOR)).deleted
            reply = await run.get(f"/v1/documents/{uid}/trace", "olga", **OPERATOR, tenant="other")
            assert (reply.status_code, reply.content) == (404, absent.content)
        # the role is no right to read what stands
        reply = await run.get(f"/v1/documents/{hidden.document.uid}/trace", "olga", **OPERATOR)
        assert (reply.status_code, reply.content) == (404, absent.content)


@pytest.mark.requirement("A11", "I4")
async def test_a_deletion_that_only_the_log_knows_hides_the_trace(world: World) -> None:
    world.principal("user:ann")
    m = world.document("a", "plan")
    async with world.running() as run:
        await traced(run, m.document.uid)
        tombstone = AccessTombstone(
            document=m.document, version=world.version(), observed_at=world.clock.now(), not_before=world.version()
        )
        world.log.event(tombstone)
        await run.until(lambda: run.parts.overlay.access(m.document.uid, None) is not None)
        assert (await run.get(f"/v1/documents/{m.document.uid}/trace")).status_code == 404
        assert (await traced(run, m.document.uid, "olga", **OPERATOR)).deleted
