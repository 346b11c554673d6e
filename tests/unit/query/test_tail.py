"""The access tail and readiness: where it begins, when it may be relied on, when the service may answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from query_service.overlay import Overlay
from query_service.tail import MAX_AGE_S, PRUNE_S, AccessTail
from schemas.documents import AccessRecord
from schemas.events import AccessSet, AccessTombstone
from schemas.keys import DocumentRef
from schemas.receipts import Progress
from schemas.topics import Topic
from tests.unit.query.world import PARTITIONS, World, anyone, ref


class Started:
    def __init__(self, world: World, applied: dict[tuple[str, int], int] | None = None) -> None:
        self.world = world
        self.overlay = Overlay()
        self.tail = AccessTail(world.log.open, self.overlay, world.clock, world.metrics, 15, PARTITIONS)
        self.note(applied or {})
        self.tail.start()

    def note(self, applied: dict[tuple[str, int], int]) -> None:
        self.tail.note_progress(
            [Progress(lane="access", topic=t, partition=p, offset=o) for (t, p), o in applied.items()]
        )

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def started(world: World) -> Iterator[list[Started]]:
    made: list[Started] = []
    yield made
    for s in made:
        s.tail.stop()


def rule(world: World, document: DocumentRef, at: int | None = None, user: str = "user:bob") -> int:
    """Append a rule; its offset."""
    event = AccessSet(
        document=document, version=world.version(), content_version=0, rule=anyone(user), observed_at=world.clock.now()
    )
    return world.log.event(event, at=world.clock.now() if at is None else at).offset


def effective(s: Started, document: DocumentRef) -> AccessRecord | None:
    return s.overlay.access(document.uid, None)


@pytest.mark.requirement("A8", "I11")
def test_it_begins_where_the_store_stands_if_that_is_before_the_window(world: World, started: list[Started]) -> None:
    old = world.clock.now() - 3600 * 1_000_000
    a, b = ref("a"), ref("b")
    first = rule(world, a, at=old)
    rule(world, b)
    slot = (Topic.ACCESS.value, world.log.event(_again(world, a), at=old).partition)
    started.append(s := Started(world, {slot: first}))
    s.until(s.tail.alive)
    assert effective(s, a) is not None, "not applied by the store, so it must be known here"
    assert effective(s, b) is not None
    ((topics, start),) = world.log.starts
    assert topics == ("access", "membership")
    assert start.since == world.clock.now() - 15 * 60 * 1_000_000
    assert start.not_after[slot] == first and len(start.not_after) == 2 * PARTITIONS


def _again(world: World, document: DocumentRef) -> AccessSet:
    return AccessSet(document=document, version=world.version(), content_version=0, rule=anyone(), observed_at=1)


@pytest.mark.requirement("I11")
def test_what_the_store_has_applied_long_ago_is_not_read(world: World, started: list[Started]) -> None:
    document = ref("a")
    rule(world, document, at=world.clock.now() - 3600 * 1_000_000)
    ends = {(t, p): len(world.log.records.get((t, p), [])) for t in ("access", "membership") for p in range(PARTITIONS)}
    started.append(s := Started(world, ends))
    s.until(s.tail.alive)
    assert effective(s, document) is None


@pytest.mark.requirement("I8", "A8")
def test_it_survives_the_log_and_goes_on_where_it_stood(world: World, started: list[Started]) -> None:
    a, b = ref("a"), ref("b")
    started.append(s := Started(world))
    rule(world, a)
    s.until(lambda: effective(s, a))
    world.log.down = True
    world.clock.advance(MAX_AGE_S + 1)
    s.until(lambda: len(world.log.starts) > 1)
    assert not s.tail.alive()
    rule(world, b)
    world.log.down = False
    s.until(lambda: effective(s, b))
    s.until(s.tail.alive)
    assert world.log.starts[-1][1].offsets, "from its positions, not from the window again"
    assert s.overlay.undecodable == 0


@pytest.mark.requirement("A8", "I11")
@pytest.mark.parametrize("while_away", [True, False])
@pytest.mark.parametrize("grown", [True, False])
def test_a_log_that_was_made_anew_is_read_from_its_beginning(
    world: World, started: list[Started], while_away: bool, grown: bool
) -> None:
    a = ref("a")
    started.append(s := Started(world))
    for _ in range(3):
        rule(world, a)
    s.until(lambda: effective(s, a) and s.tail.alive() and sum(s.tail.partitions().values()) == 3)
    if while_away:
        world.log.down = True
        opened = len(world.log.starts)
        s.until(lambda: len(world.log.starts) > opened)
    else:
        world.log.stalled = True
    world.log.make_anew()
    revoked = world.log.event(
        AccessTombstone(document=a, version=world.version(), not_before=world.version(), observed_at=1),
        at=world.clock.now() - 3600 * 1_000_000,
    )
    assert revoked.offset == 0
    for _ in range(5 if grown else 0):  # then the end lies beyond where the old log was read to
        world.log.event(_again(world, ref("b")).model_copy(update={"document": a, "version": 1}))
    world.log.down = world.log.stalled = False
    s.until(lambda: getattr(effective(s, a), "tombstone", False))
    s.until(s.tail.alive)
    slot = (revoked.topic, revoked.partition)
    assert s.tail.covers(*slot, 0) and s.tail.partitions()[slot] == (6 if grown else 1)


@pytest.mark.requirement("A8", "I11")
def test_a_store_that_speaks_of_another_log_hides_nothing_of_this_one(world: World, started: list[Started]) -> None:
    old = world.clock.now() - 3600 * 1_000_000
    a = ref("a")
    record = rule(world, a, at=old)
    slots = {(t, p): 1000 for t in ("access", "membership") for p in range(PARTITIONS)}
    started.append(s := Started(world, slots))
    s.until(lambda: effective(s, a))
    s.until(s.tail.alive)
    assert record == 0
    s.note(slots)
    world.clock.advance(PRUNE_S + 1)
    pruned = world.clock.elapsed()
    s.until(lambda: (s.tail.age_s() or 0.0) <= world.clock.elapsed() - pruned + 0.5)
    rule(world, ref("b"), at=old)
    s.until(lambda: effective(s, ref("b")))
    assert effective(s, a) is not None, "not applied by the store, so not forgotten here"


@pytest.mark.requirement("I11")
def test_a_lane_is_at_the_end_when_no_record_lies_beyond_its_offset(world: World, started: list[Started]) -> None:
    document = ref("a")
    started.append(s := Started(world))
    s.until(s.tail.alive)
    record = world.log.event(_again(world, document))
    slot = (record.topic, record.partition)
    s.until(lambda: s.tail.partitions()[slot] == 1)
    assert not s.tail.lane_at_end(*slot, 0)
    assert s.tail.lane_at_end(*slot, 1)
    assert s.tail.covers(*slot, 0)
    assert s.tail.lane_at_end(record.topic, (record.partition + 1) % PARTITIONS, 0)


# ---------------------------------------------------------------- readiness


@pytest.mark.anyio
@pytest.mark.requirement("I11")
async def test_ready_only_with_everything(world: World) -> None:
    async with world.running() as run:
        state = run.parts.state
        assert state.reasons() == ()
        world.log.event(_again(world, ref("a")))
        world.progress(age_s=100)
        await state.refresh()
        await run.until(lambda: any("access lane is behind" in r for r in state.reasons()))
        world.progress(age_s=29)
        await state.refresh()
        assert state.reasons() == (), "younger than the bound"
        world.progress(offset=1, age_s=10_000)
        await state.refresh()
        assert state.reasons() == (), "at the log's end, however long ago it was written"
        world.log.down = True
        world.clock.advance(MAX_AGE_S + 1)
        await state.refresh()
        assert "the access tail is not at the log's end" in state.reasons()
        assert any("lane is behind" in r for r in state.reasons()), "the log's end is unknown now"


@pytest.mark.anyio
@pytest.mark.requirement("I11", "I12")
async def test_searches_are_refused_where_a_revocation_might_be_unknown(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    world.log.event(_again(world, ref("a")))
    async with world.running() as run:
        world.progress(age_s=100)
        await run.parts.state.refresh()
        assert run.parts.state.reasons(), "not ready"
        assert await run.ids("plan") == ["a"], "but the tail covers what the lane has not applied"
        world.log.down = True
        world.clock.advance(MAX_AGE_S + 1)
        reply = await run.post({"query": "plan"})
        assert reply.status_code == 503 and reply.headers["retry-after"]
        assert "lane is behind" in reply.json()["detail"]
        world.log.down = False
        await run.until(lambda: run.parts.tail.alive())
        assert await run.ids("plan") == ["a"]


@pytest.mark.anyio
@pytest.mark.requirement("I11", "I7")
async def test_no_active_generation_is_not_ready(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    world.store._active = None
    async with world.running(ready=False) as run:
        world.progress()
        await run.until(lambda: run.parts.state.reasons() == ("no index generation is active yet",))
        reply = await run.post({"query": "plan"})
        assert reply.status_code == 503 and "generation" in reply.json()["detail"]


@pytest.mark.anyio
@pytest.mark.requirement("I11")
async def test_a_store_that_is_away_at_the_start_is_waited_for(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    world.progress()
    world.store.fail_next("active_generation", 3)
    async with world.running(ready=False) as run:
        assert run.parts.state.reasons() == ("the store has not answered lately",)
        await run.until_ready()
        assert await run.ids("plan") == ["a"]


@pytest.mark.anyio
@pytest.mark.requirement("I11")
async def test_an_old_look_at_the_store_is_not_ready(world: World) -> None:
    async with world.running() as run:
        world.store.fail_next("active_generation", 10_000)
        world.clock.advance(31)
        assert run.parts.state.reasons() == ("the store has not answered lately",)
