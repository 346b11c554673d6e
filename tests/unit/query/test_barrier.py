"""The last check before hits leave goes by every membership change that was applied before it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from query_service import barrier as barrier_module
from schemas.events import MembershipSet
from schemas.topics import Topic
from tests.unit.query.world import TENANT, Running, World, anyone

pytestmark = pytest.mark.anyio


def left(world: World) -> MembershipSet:
    """Ann is in no group any more: in the store, and as the event that said so."""
    world.principal("user:ann")
    return MembershipSet(
        tenant=TENANT, principal="user:ann", parents=(), version=world.version(), observed_at=world.clock.now(),
        source="wiki",
    )  # fmt: skip


def prepared(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    world.document("plan", "the secret plan", rule=anyone("group:wiki/eng"))


async def warm(run: Running) -> None:
    """Her closure is kept."""
    assert await run.ids("secret plan") == ["plan"]
    assert await run.parts.barrier.passed()


@pytest.mark.requirement("A8", "B9", "I4")
async def test_a_membership_that_ended_is_known_although_the_tail_stands_still(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        await warm(run)
        world.log.stalled = True
        world.log.event(left(world))
        assert run.parts.tail.alive(), "the kept closure would still be used"
        assert not await run.parts.barrier.passed()
        assert await run.ids("secret plan") == []
        world.log.stalled = False


@pytest.mark.requirement("A8", "B9")
async def test_a_document_is_not_read_by_a_membership_that_ended(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    made = world.document("plan", "the secret plan", rule=anyone("group:wiki/eng"))
    async with world.running() as run:
        await warm(run)
        world.log.stalled = True
        world.log.event(left(world))
        for path in ("documents", "trace"):
            assert (await run.get(f"/v1/{path}/{made.document.uid}")).status_code == 404
        world.log.stalled = False


@pytest.mark.requirement("A8", "I8")
async def test_without_the_log_the_store_is_asked(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        await warm(run)
        world.log.down = True
        assert not await run.parts.barrier.passed()
        world.principal("user:ann")
        assert await run.ids("secret plan") == []
        world.log.down = False
        await run.until(lambda: run.parts.tail.alive())
        assert await run.parts.barrier.passed(), "it is asked again once the broker is back"


@pytest.mark.requirement("A8")
async def test_a_broker_that_does_not_answer_holds_nobody_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(world)
    async with world.running() as run:
        await warm(run)
        asked = run.parts.barrier._asked
        released = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hanging() -> dict[object, int]:
            asyncio.run_coroutine_threadsafe(released.wait(), loop).result(10)
            return {}

        monkeypatch.setattr(asked, "ends", hanging)
        began = loop.time()
        assert not any(await asyncio.gather(*(run.parts.barrier.passed() for _ in range(20))))
        assert loop.time() - began < 20 * barrier_module.WAIT_S, "they do not wait one after the other"
        released.set()


@pytest.mark.requirement("D1")
async def test_callers_who_wait_share_one_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(world)
    async with world.running() as run:
        await warm(run)
        asked, looks = run.parts.barrier._asked, 0
        assert asked is not None
        real = asked.ends

        def counting() -> object:
            nonlocal looks
            looks += 1
            return real()

        monkeypatch.setattr(asked, "ends", counting)
        assert all(await asyncio.gather(*(run.parts.barrier.passed() for _ in range(40))))
        assert looks <= 3
        assert {slot.topic for slot in real()} == {Topic.MEMBERSHIP.value}


@pytest.mark.requirement("A8", "I8")
async def test_a_log_that_begins_anew_is_not_taken_for_one_that_was_read(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        for _ in range(3):
            world.log.event(left(world))
        await run.until(lambda: max(run.parts.tail.partitions().values()) == 3)
        assert await run.parts.barrier.passed()
        world.log.stalled = True
        world.log.records.clear()  # the topic was removed and made again
        world.log.event(left(world))
        assert not await run.parts.barrier.passed()
        world.log.stalled = False


@pytest.mark.requirement("A8", "I8")
async def test_a_broker_that_names_no_end_is_not_believed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(world)
    async with world.running() as run:
        await warm(run)
        monkeypatch.setattr(run.parts.barrier._asked, "ends", dict)
        assert not await run.parts.barrier.passed()


@pytest.mark.requirement("A8")
async def test_closing_does_not_wait_for_a_broker_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier_module, "CLOSE_S", 0.1)
    prepared(world)
    hanging = threading.Event()
    async with world.running() as run:
        await warm(run)

        def hangs() -> dict[object, int]:
            hanging.wait(10)
            return {}

        monkeypatch.setattr(run.parts.barrier._asked, "ends", hangs)
        assert not await run.parts.barrier.passed()
        began = time.monotonic()
    assert time.monotonic() - began < 4
    hanging.set()
