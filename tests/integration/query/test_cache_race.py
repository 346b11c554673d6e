"""The same question in a loop while memberships, rules and documents change through the real log: what is kept is never
given once a change was acknowledged that it does not hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from pipeline.bus.codec import encode
from pipeline.ports import Outgoing
from pipeline.settings_query import CacheSettings
from schemas.access import AccessRule
from schemas.events import AccessSet, AccessTombstone, MembershipSet
from schemas.receipts import Receipt
from schemas.topics import Topic
from tests.integration.query.real import RealWorld
from tests.unit.cache.kept import Asking, receipt
from tests.unit.query.world import TENANT, anyone, ref

pytestmark = pytest.mark.anyio
TEAM = anyone("group:wiki/eng")
ASKS = 6  # of which judged replies each state of the world gets, at least
ROUNDS = 3
Expected = dict[str, int]  # document ids with the content versions that must be in a reply


class Changes:
    """Changes as the lanes make them: event on the log, store, receipt on the log. Then a change is acknowledged."""

    def __init__(self, world: RealWorld) -> None:
        self.world = world
        self.state: Expected = {}
        self.team_rule, self.member = True, True
        self.settled = 0  # number of acknowledged changes
        self.changing = False

    def told(self, *receipts: Receipt) -> None:
        self.world.publish([Outgoing(str(Topic.RECEIPTS), r.document_uid or "", encode(r)) for r in receipts])

    def edit(self) -> None:
        rule = TEAM if self.team_rule else anyone("user:carol")
        made = self.world.document("plan", f"the secret plan, edition {self.world.version()}", rule=rule)
        self.told(receipt("plan"))
        self.state = {"plan": made.content_version}

    def rule(self, rule: AccessRule, *, team: bool) -> None:
        event = AccessSet(
            document=ref("plan"), version=self.world.version(), observed_at=self.world.clock.now(), rule=rule,
            content_version=self.state["plan"],
        )  # fmt: skip
        self.world.send(event)
        self.world.access(ref("plan"), rule, version=event.version, content_version=self.state["plan"])
        self.told(receipt("plan", generation=None, lane="access"))
        self.team_rule = team

    def revoke(self) -> None:
        self.rule(anyone("user:carol"), team=False)

    def grant(self) -> None:
        self.rule(TEAM, team=True)

    def membership(self, *parents: str) -> None:
        event = MembershipSet(
            tenant=TENANT, principal="user:ann", parents=parents, version=self.world.version(),
            observed_at=self.world.clock.now(), source="wiki",
        )  # fmt: skip
        self.world.send(event)
        self.world.principal("user:ann", *parents)
        self.member = bool(parents)

    def leave(self) -> None:
        self.membership()

    def join(self) -> None:
        self.membership("group:wiki/eng")

    def delete(self) -> None:
        version = self.world.version()
        self.world.send(
            AccessTombstone(
                document=ref("plan"), version=version, not_before=version + 1, observed_at=self.world.clock.now()
            )
        )
        self.world.access(ref("plan"), TEAM, version=version, tombstone=True, not_before=version + 1)
        self.told(receipt("plan", generation=None, lane="access"))
        self.state = {}

    def expected(self) -> Expected:
        return self.state if self.team_rule and self.member else {}

    async def make(self, change: Callable[[], None]) -> None:
        self.changing = True
        await asyncio.to_thread(change)
        self.settled += 1
        self.changing = False


@pytest.mark.requirement("B10", "A8", "A11")
async def test_nothing_kept_is_given_after_a_change_was_acknowledged(world: RealWorld) -> None:
    world.settings = world.settings.model_copy(update={"cache": CacheSettings(answers=0, searches=0)})
    world.principal("group:wiki/eng")
    world.principal("user:ann", "group:wiki/eng")
    world.document("menu", "lunch is soup")
    world.applied(lambda topic, partition: 0)
    changes = Changes(world)
    changes.edit()
    async with world.running() as run:
        asking = Asking(run)
        judged, hits, wrong = await _raced(asking, changes)
        assert wrong == []
        assert hits > judged / 10, "what is kept was given at all"
        assert world.metrics.value("headwater_cache_total", cache="searches", outcome="hit") >= hits


async def _raced(asking: Asking, changes: Changes) -> tuple[int, int, list[str]]:
    judged = hits = 0
    by_state: dict[int, int] = {}
    wrong: list[str] = []
    ended = False

    async def ask() -> None:
        nonlocal judged, hits
        while not ended:
            before, busy = changes.settled, changes.changing
            expected = changes.expected()
            found = await asking.search()
            given = {hit.document_id: hit.version for hit in found.hits}
            if busy or changes.changing or changes.settled != before:
                continue  # the reply and a change were under way at once: either outcome is right
            judged += 1
            hits += found.cached
            by_state[before] = by_state.get(before, 0) + 1
            if given != expected:
                wrong.append(f"after change {before}: {sorted(given)} instead of {sorted(expected)}, {found.cached=}")

    askers = [asyncio.create_task(ask()) for _ in range(3)]
    try:
        order = ("edit", "leave", "join", "revoke", "grant", "edit", "delete")
        for _ in range(ROUNDS):
            for name in order:
                await changes.make(getattr(changes, name))
                end = time.monotonic() + 30
                while by_state.get(changes.settled, 0) < ASKS and time.monotonic() < end:
                    await asyncio.sleep(0.01)
                    for asker in askers:
                        if asker.done():
                            asker.result()
                assert by_state.get(changes.settled, 0) >= ASKS, "the askers came to nothing"
                changes.world.applied(lambda topic, partition: 0)  # the lane is at work
    finally:
        ended = True
        await asyncio.gather(*askers)
    return judged, hits, wrong
