"""A search is interrupted by a revocation at each of its reads: nothing revoked until ``judged_at`` is in the reply."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.ports import Record
from schemas.events import MembershipSet
from schemas.keys import membership_key
from schemas.topics import Topic
from tests.unit.query.test_finish import Scripted, use
from tests.unit.query.test_retrieve import rule_event
from tests.unit.query.world import TENANT, Running, World, anyone, ref

pytestmark = pytest.mark.anyio
MOST = 100  # reads of a search, more than any has
GROUP = "group:wiki/eng"


def prepared(world: World) -> None:
    world.principal("user:ann", GROUP)
    world.principal(GROUP)
    world.document(
        "hidden", "zebra plan of Zebra Harbour", "zebra plan second part", rule=anyone(GROUP), title="zebra title"
    )
    for i in range(3):
        world.document(f"open{i}", f"plan words number{i} of the Northern Lock", tier="cold" if i else "hot")


class Interrupted:
    """Wraps all reads of a running service: at the end of the n-th of a search the permission goes."""

    def __init__(self, run: Running, how: str) -> None:
        self._run, self._how = run, how
        self._reads = self._at = 0
        self.revoked_at: int | None = None
        reader = run.parts.reader
        for name, real in inspect.getmembers(reader, inspect.iscoroutinefunction):
            if not name.startswith("_") and name != "close":
                setattr(reader, name, self._wrapped(real))

    def begin(self, at: int) -> None:
        """The next search is interrupted at read ``at``; the permission is there again until then."""
        self._say(granted=True)
        self._reads, self._at, self.revoked_at = 0, at, None

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            found = await real(*given, **named)
            self._run.world.clock.advance(0.00001)
            if self._reads == self._at:
                self._say(granted=False)
                self.revoked_at = self._run.world.clock.now()
                self._run.world.clock.advance(0.00001)
            self._reads += 1
            return found

        return call

    def _say(self, *, granted: bool) -> None:
        """To the tail, as if it had just read it."""
        world = self._run.world
        if self._how == "rule":
            event: Any = rule_event(world, "hidden", anyone(GROUP if granted else "user:bob"))
            topic, key = Topic.ACCESS, ref("hidden").key
        else:
            event = MembershipSet(
                tenant=TENANT, principal="user:ann", parents=(GROUP,) if granted else (), version=world.version(),
                observed_at=world.clock.now(), source="wiki",
            )  # fmt: skip
            topic, key = Topic.MEMBERSHIP, membership_key(TENANT, "user:ann", "wiki")
        value = event.model_dump_json().encode()
        assert self._run.parts.overlay.apply(Record(topic.value, 0, 0, world.clock.now(), key, value))


ASKED: dict[str, dict[str, Any]] = {
    "all": {"query": "plan harbour", "evidence": "all"},
    "reranked": {"query": "plan harbour", "rerank": "full", "evidence": "sections"},
    "rounds": {"query": "plan harbour", "expand": "iterative", "explain": True},
    "spelling": {"query": "zebrq", "mode": "sparse"},
}


@pytest.mark.requirement("B9", "I3", "I4", "B6", "B14", "E4")
@pytest.mark.parametrize("how", ["rule", "membership"])
@pytest.mark.parametrize("kind", list(ASKED))
async def test_nothing_revoked_until_the_last_check_is_in_the_reply(world: World, how: str, kind: str) -> None:
    prepared(world)
    withheld = 0
    async with world.running() as run:
        scripted = Scripted({"second": 5.0})
        use(run, scripted)
        cut = Interrupted(run, how)
        cut.begin(-1)
        whole = await run.post(ASKED[kind])
        assert "zebra" in whole.text.lower(), "it is told while it may be"
        for at in range(MOST):
            cut.begin(at)
            reply = await run.post(ASKED[kind])
            assert reply.status_code == 200, reply.text
            if cut.revoked_at is None:
                break
            if reply.json()["judged_at"] > cut.revoked_at:
                withheld += 1
                assert "zebra" not in reply.text.lower() and ref("hidden").uid not in reply.text, at
        else:
            raise AssertionError("more reads than expected")
    assert withheld > 2
