"""Principal closures: who the caller is, transitively."""

from __future__ import annotations

import pytest

from query_service import closure as closures_module
from query_service.closure import Closures, walk
from query_service.overlay import Overlay
from query_service.scope import Scope
from schemas.access import SUSPENDED, Closure
from schemas.events import MembershipSet
from tests.unit.query.world import TENANT, World

pytestmark = pytest.mark.anyio
ANN = Scope(TENANT, "ann")


def joined(
    world: World, principal: str, *parents: str, removed: bool = False, source: str = "wiki",
    until: dict[str, int] | None = None,
) -> MembershipSet:  # fmt: skip
    return MembershipSet(
        tenant=TENANT, principal=principal, parents=parents, removed=removed, version=world.version(),
        observed_at=world.clock.now(), source=source, until=until or {},
    )  # fmt: skip


async def closure(world: World, overlay: Overlay | None = None, scope: Scope = ANN, **limits: int) -> Closure:
    now = world.clock.now()
    return (await walk(world.store.reader(), overlay or Overlay(), scope, now=now, **limits)).closure


@pytest.mark.requirement("I12", "B1")
async def test_groups_audiences_and_everyone_transitively(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng", "audience:wiki/space")
    world.principal("group:wiki/eng", "group:wiki/all")
    world.principal("group:wiki/all", "audience:wiki/root")
    world.principal("everyone", "audience:wiki/public")
    world.principal("user:bob", "group:wiki/hr")
    found = await closure(world)
    assert found.principals == {
        "user:ann", "everyone", "group:wiki/eng", "group:wiki/all", "audience:wiki/space", "audience:wiki/root",
        "audience:wiki/public",
    }  # fmt: skip
    assert found.complete


@pytest.mark.requirement("I12")
async def test_a_caller_without_a_live_record_is_nobody(world: World) -> None:
    world.principal("everyone", "audience:wiki/public")
    assert await closure(world) == Closure.of_nobody()
    world.principal("user:ann", removed=True)
    assert await closure(world) == Closure.of_nobody()
    world.principal("user:ann", tenant="other")
    assert await closure(world) == Closure.of_nobody()


@pytest.mark.requirement("I12")
async def test_a_caller_without_groups_is_itself_and_everyone(world: World) -> None:
    world.principal("user:ann")
    assert await closure(world) == Closure(principals=frozenset({"user:ann", "everyone"}), complete=True)


@pytest.mark.requirement("I12")
async def test_look_alike_callers_are_others(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    for subject in ("Ann", "ann2", "an", "аnn"):
        assert await closure(world, scope=Scope(TENANT, subject)) == Closure.of_nobody()


@pytest.mark.requirement("I12")
async def test_a_missing_group_counts_but_the_closure_is_incomplete(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    found = await closure(world)
    assert found == Closure(principals=frozenset({"user:ann", "everyone", "group:wiki/eng"}), complete=False)


@pytest.mark.requirement("I12")
async def test_a_removed_group_does_not_count_and_leaves_the_closure_incomplete(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng", removed=True)
    assert await closure(world) == Closure(principals=frozenset({"user:ann", "everyone"}), complete=False)


@pytest.mark.requirement("I12")
async def test_audiences_need_no_record_and_a_removed_one_is_gone(world: World) -> None:
    world.principal("user:ann", "audience:wiki/a", "audience:wiki/b")
    world.principal("audience:wiki/b", removed=True)
    assert await closure(world) == Closure(principals=frozenset({"user:ann", "everyone", "audience:wiki/a"}))


@pytest.mark.requirement("I12")
async def test_a_user_is_nobodys_parent(world: World) -> None:
    world.principal("user:ann", "user:bob")
    world.principal("user:bob", "group:wiki/hr")
    assert await closure(world) == Closure(principals=frozenset({"user:ann", "everyone"}), complete=False)


@pytest.mark.requirement("I12")
async def test_cycles_end_and_cuts_are_incomplete(world: World) -> None:
    world.principal("user:ann", "group:0")
    for i in range(10):
        world.principal(f"group:{i}", f"group:{(i + 1) % 10}")
    whole = await closure(world)
    assert whole.complete and len(whole.principals) == 12
    deep = await closure(world, max_depth=4)
    assert not deep.complete and "group:9" not in deep.principals
    wide = await closure(world, max_principals=5)
    assert not wide.complete and len(wide.principals) <= 5


@pytest.mark.requirement("I12")
async def test_trusted_groups_join_the_closure_and_bring_their_parents(world: World) -> None:
    world.principal("user:ann")
    world.principal("group:idp/eng", "audience:wiki/eng")
    found = await closure(world, scope=Scope(TENANT, "ann", groups=("group:idp/eng", "group:idp/unknown")))
    assert found.principals == {"user:ann", "everyone", "group:idp/eng", "audience:wiki/eng", "group:idp/unknown"}
    assert not found.complete
    nobody = await closure(world, scope=Scope(TENANT, "ghost", groups=("group:idp/eng",)))
    assert nobody == Closure.of_nobody()


@pytest.mark.requirement("A8", "I4")
async def test_the_tail_overrides_the_store_by_version(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    overlay = Overlay()
    stale = joined(world, "user:ann", "group:wiki/old")
    world.principal("user:ann", "group:wiki/eng")
    overlay.apply(world.log.event(stale))
    assert "group:wiki/old" not in (await closure(world, overlay)).principals
    overlay.apply(world.log.event(joined(world, "user:ann")))
    assert (await closure(world, overlay)).principals == {"user:ann", "everyone"}
    overlay.apply(world.log.event(joined(world, "user:ann", removed=True)))
    assert await closure(world, overlay) == Closure.of_nobody()


@pytest.mark.requirement("A8")
async def test_what_several_sources_say_adds_up(world: World) -> None:
    world.principal("user:ann", "audience:wiki/a", source="wiki")
    overlay = Overlay()
    overlay.apply(world.log.event(joined(world, "user:ann", "audience:tickets/b", source="tickets")))
    assert (await closure(world, overlay)).principals >= {"audience:wiki/a", "audience:tickets/b"}
    overlay.apply(world.log.event(joined(world, "user:ann", removed=True, source="tickets")))
    assert (await closure(world, overlay)).principals == {"user:ann", "everyone", "audience:wiki/a"}


async def at_end() -> bool:
    """The overlay is at the log's end."""
    return True


class Switch:
    def __init__(self) -> None:
        self.on = True

    def __call__(self) -> bool:
        return self.on


def reads(world: World) -> int:
    return world.store.ops().count("reader.principals")


@pytest.mark.requirement("A8", "D5")
async def test_closures_are_cached_and_dropped_by_events_of_any_principal_in_them(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng", "audience:wiki/a")
    overlay, alive = Overlay(), Switch()
    closures = Closures(world.store.reader(), overlay, world.clock, alive, at_end)
    first = await closures.resolve(ANN)
    before = reads(world)
    assert await closures.resolve(ANN) == first
    assert reads(world) == before
    overlay.apply(world.log.event(joined(world, "user:bob", "group:wiki/eng")))
    assert await closures.resolve(ANN) == first and reads(world) == before
    overlay.apply(world.log.event(joined(world, "group:wiki/eng")))
    assert (await closures.resolve(ANN)).principals == {"user:ann", "everyone", "group:wiki/eng"}
    overlay.apply(world.log.event(joined(world, "everyone", "audience:wiki/new")))
    assert "audience:wiki/new" in (await closures.resolve(ANN)).principals
    overlay.apply(world.log.event(joined(world, "user:ann", removed=True)))
    assert await closures.resolve(ANN) == Closure.of_nobody()


@pytest.mark.requirement("I12")
async def test_a_nobody_is_cached_only_until_its_record_comes(world: World) -> None:
    overlay = Overlay()
    closures = Closures(world.store.reader(), overlay, world.clock, lambda: True, at_end)
    assert await closures.resolve(ANN) == Closure.of_nobody()
    overlay.apply(world.log.event(joined(world, "user:ann")))
    assert (await closures.resolve(ANN)).principals == {"user:ann", "everyone"}


@pytest.mark.requirement("A8")
async def test_nothing_is_cached_while_the_tail_is_dead(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    overlay, alive = Overlay(), Switch()
    closures = Closures(world.store.reader(), overlay, world.clock, alive, at_end)
    await closures.resolve(ANN)
    alive.on = False
    world.principal("user:ann")
    assert (await closures.resolve(ANN)).principals == {"user:ann", "everyone"}


@pytest.mark.requirement("A8")
async def test_a_change_during_the_walk_is_not_missed(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    overlay = Overlay()
    reader = world.store.reader()
    real = reader.principals

    async def slow(tenant: str, names: list[str]) -> object:
        found = await real(tenant, names)
        if "group:wiki/eng" in names and not overlay.membership_changes:
            overlay.apply(world.log.event(joined(world, "user:ann", removed=True)))
        return found

    reader.principals = slow  # type: ignore[method-assign, assignment]
    closures = Closures(reader, overlay, world.clock, lambda: True, at_end)
    assert await closures.resolve(ANN) == Closure.of_nobody()


async def test_the_cache_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closures_module, "MAX_CACHED", 3)
    closures = Closures(world.store.reader(), Overlay(), world.clock, lambda: True, at_end)
    for i in range(5):
        world.principal(f"user:u{i}")
        await closures.resolve(Scope(TENANT, f"u{i}"))
    assert len(closures._cached) == 3
    assert len(closures._by_principal) <= 4


@pytest.mark.requirement("E1", "I4", "I12")
async def test_everybody_of_a_suspended_tenant_is_nobody_until_it_is_resumed(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    world.principal("user:bob", tenant="globex")
    overlay = Overlay()
    closures = Closures(world.store.reader(), overlay, world.clock, lambda: True, at_end)
    assert "user:ann" in (await closures.resolve(ANN)).principals
    overlay.apply(world.log.event(joined(world, "everyone", SUSPENDED, source="headwater")))
    overlay.apply(world.log.event(joined(world, "everyone", "audience:wiki/public")))
    assert (await closures.resolve(ANN)).principals == frozenset()  # the cached closure went with the event
    assert "user:bob" in (await closures.resolve(Scope("globex", "bob"))).principals
    overlay.apply(world.log.event(joined(world, "everyone", source="headwater")))
    assert (await closures.resolve(ANN)).principals >= {"user:ann", "audience:wiki/public"}


@pytest.mark.requirement("A8", "I4", "I12")
async def test_a_membership_counts_until_its_end_and_not_at_it(world: World) -> None:
    world.principal("user:ann")
    world.principal("group:wiki/eng", "audience:wiki/a")
    overlay = Overlay()
    end = world.clock.now() + 2_000_000
    overlay.apply(world.log.event(joined(world, "user:ann", "group:wiki/eng", until={"group:wiki/eng": end})))
    assert (await closure(world, overlay)).principals >= {"group:wiki/eng", "audience:wiki/a"}
    world.clock.advance(2 - (world.clock.now() + 2_000_000 - end) / 1_000_000)
    assert world.clock.now() == end
    found = await closure(world, overlay)
    assert found == Closure(principals=frozenset({"user:ann", "everyone"})), "ended, not unknown: it is complete"


@pytest.mark.requirement("A8", "D5", "I4")
async def test_a_cached_closure_does_not_outlive_the_first_end_in_it(world: World) -> None:
    """The end two groups up comes first, and no event tells of it."""
    world.principal("user:ann")
    overlay = Overlay()
    now = world.clock.now()
    near, far = now + 5_000_000, now + 20_000_000
    overlay.apply(world.log.event(joined(world, "user:ann", "group:wiki/eng", until={"group:wiki/eng": far})))
    above = {"audience:wiki/a": near, "audience:wiki/x#deny": near}
    overlay.apply(world.log.event(joined(world, "group:wiki/eng", *above, "audience:wiki/b", until=above)))
    closures = Closures(world.store.reader(), overlay, world.clock, lambda: True, at_end)
    assert (await closures.resolve(ANN)).principals >= {"audience:wiki/a", "audience:wiki/b", "audience:wiki/x#deny"}
    before = reads(world)
    world.clock.advance(4)
    await closures.resolve(ANN)
    assert reads(world) == before, "cached until then"
    world.clock.advance(1)
    found = (await closures.resolve(ANN)).principals
    assert not found & above.keys() and found >= {"group:wiki/eng", "audience:wiki/b"}
    world.clock.advance(15)
    assert (await closures.resolve(ANN)).principals == {"user:ann", "everyone"}


@pytest.mark.requirement("I12")
async def test_a_membership_of_two_sources_ends_with_the_later(world: World) -> None:
    world.principal("user:ann", "audience:x/a", source="wiki")
    overlay, now = Overlay(), world.clock.now()
    ends = {"wiki": now + 1_000_000, "tickets": now + 3_000_000}
    for source, end in ends.items():
        event = joined(world, "user:ann", "audience:x/a", source=source, until={"audience:x/a": end})
        overlay.apply(world.log.event(event))
    world.clock.advance(2)
    assert "audience:x/a" in (await closure(world, overlay)).principals
    world.clock.advance(2)
    assert "audience:x/a" not in (await closure(world, overlay)).principals
    overlay.apply(world.log.event(joined(world, "user:ann", "audience:x/a", source="tickets")))
    assert "audience:x/a" in (await closure(world, overlay)).principals, "one of them without an end"


@pytest.mark.requirement("A8", "I4")
async def test_a_kept_closure_is_not_confirmed_while_the_tail_may_be_behind(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    passed = Switch()

    async def whether() -> bool:
        return passed()

    closures = Closures(world.store.reader(), Overlay(), world.clock, lambda: True, whether)
    assert "group:wiki/eng" in (await closures.confirmed(ANN)).principals
    world.principal("user:ann")
    assert "group:wiki/eng" in (await closures.confirmed(ANN)).principals, "the test would show nothing"
    passed.on = False
    assert (await closures.confirmed(ANN)).principals == {"user:ann", "everyone"}
