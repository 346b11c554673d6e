"""Searches take turns: few at once, each tenant in turn, nobody loses a place that another gave up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pipeline.observe import Metrics
from pipeline.settings_query import LimitSettings
from query_service.limits import Limited
from query_service.turns import Turns

pytestmark = pytest.mark.anyio


def turns(at_once: int | None, wait_s: float = 30.0) -> Turns:
    return Turns(LimitSettings(searches=at_once, searches_wait_s=wait_s), Metrics())


class Work:
    """Searches that are held until they are let go; tells who began in what order."""

    def __init__(self, of: Turns) -> None:
        self._of = of
        self.begun: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}
        self.waited: dict[str, float] = {}

    def start(self, name: str, tenant: str = "t") -> asyncio.Task[None]:
        self.doors[name] = asyncio.Event()
        return asyncio.create_task(self._run(name, tenant))

    async def _run(self, name: str, tenant: str) -> None:
        async with self._of.of(tenant) as waited:
            self.begun.append(name)
            self.waited[name] = waited
            await self.doors[name].wait()


async def until(told: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not told():
            await asyncio.sleep(0)


@pytest.mark.requirement("D1")
async def test_no_more_than_so_many_run_and_the_rest_follow() -> None:
    work = Work(row := turns(2))
    tasks = [work.start(str(n)) for n in range(5)]
    await until(lambda: row.waiting == 3)
    assert work.begun == ["0", "1"]
    for n in range(5):
        await until(lambda n=n: str(n) in work.begun)  # type: ignore[misc]
        assert len(work.begun) == min(5, n + 2)
        work.doors[str(n)].set()
        await tasks[n]
    assert work.begun == ["0", "1", "2", "3", "4"] and row.waiting == 0
    assert work.waited["0"] < work.waited["4"]


@pytest.mark.requirement("D1")
async def test_a_tenant_that_floods_lets_another_one_in_between() -> None:
    work = Work(row := turns(1))
    tasks = [work.start("first", "a")]
    await until(lambda: bool(work.begun))
    tasks += [work.start(f"a{n}", "a") for n in range(4)]
    await until(lambda: row.waiting == 4)
    tasks += [work.start(f"b{n}", "b") for n in range(2)]
    await until(lambda: row.waiting == 6)
    for door in work.doors.values():
        door.set()
    await asyncio.gather(*tasks)
    assert work.begun == ["first", "a0", "b0", "a1", "b1", "a2", "a3"]


@pytest.mark.requirement("D1")
async def test_who_waits_too_long_is_told_to_come_again_and_blocks_nobody() -> None:
    work = Work(row := turns(1, wait_s=0.05))
    first = work.start("first")
    await until(lambda: bool(work.begun))
    with pytest.raises(Limited, match="busy") as told:
        await work.start("late")
    assert told.value.retry_after >= 1 and row.waiting == 0
    work.doors["first"].set()
    await first
    after = work.start("after")
    work.doors["after"].set()
    await after
    assert work.begun == ["first", "after"]


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("called", [False, True])
async def test_a_client_that_leaves_gives_its_place_to_the_next(called: bool) -> None:
    """Also where it leaves in the very moment in which it was called."""
    work = Work(row := turns(1))
    first, gone, last = work.start("first"), None, None
    await until(lambda: bool(work.begun))
    gone = work.start("gone")
    await until(lambda: row.waiting == 1)
    last = work.start("last")
    await until(lambda: row.waiting == 2)
    if called:
        work.doors["first"].set()
        await until(lambda: row.waiting == 1)  # its place was given, and it has not run since
    gone.cancel()
    work.doors["first"].set()
    work.doors["last"].set()
    await asyncio.wait({first, gone, last})
    assert gone.cancelled() and work.begun[-1] == "last" and "gone" not in work.begun
    again = work.start("again")
    work.doors["again"].set()
    await again


@pytest.mark.requirement("D1")
async def test_a_search_that_fails_ends_its_turn() -> None:
    row = turns(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            async with row.of("t"):
                raise ValueError("broken")


@pytest.mark.requirement("D1")
async def test_without_a_limit_everybody_runs() -> None:
    work = Work(row := turns(0))
    tasks = [work.start(str(n)) for n in range(40)]
    await until(lambda: len(work.begun) == 40)
    assert row.waiting == 0
    for door in work.doors.values():
        door.set()
    await asyncio.gather(*tasks)


@pytest.mark.requirement("D1", "B11")
async def test_who_waits_for_a_generator_keeps_nobody_waiting() -> None:
    row = turns(1)
    async with row.of("t", idle=True) as waited, row.of("t", idle=True), row.of("t") as after:
        assert waited == 0.0 and after < 1000 and row.waiting == 0


async def test_two_a_core_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("query_service.turns.os.cpu_count", lambda: 3)
    assert turns(None)._at_once == 6
