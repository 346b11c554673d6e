"""What is kept is given only while nothing changed and the caller may read all of it; each reason alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from query_service.cache.kept import PLACE
from schemas.access import AccessRule
from schemas.api_ranking import RerankReport
from schemas.events import AccessSet, AccessTombstone, HoldChanged, MembershipSet
from tests.unit.cache.kept import Asking, receipt, receive
from tests.unit.query.world import GENERATION, TENANT, Running, World, anyone, ref

pytestmark = pytest.mark.anyio
TEAM = anyone("group:wiki/eng")


def prepared(world: World) -> None:
    """Ann and Bob are in the team, which may read the plan; everybody may read the menu."""
    world.principal("group:wiki/eng")
    for person in ("user:ann", "user:bob"):
        world.principal(person, "group:wiki/eng")
    world.document("plan", "the secret plan of the team", rule=TEAM)
    world.document("menu", "lunch is soup")


def member(world: World, *parents: str) -> MembershipSet:
    return MembershipSet(
        tenant=TENANT, principal="user:ann", parents=parents, version=world.version(), observed_at=world.clock.now(),
        source="wiki",
    )  # fmt: skip


def access(world: World, name: str, rule: AccessRule) -> AccessSet:
    return AccessSet(
        document=ref(name), version=world.version(), observed_at=world.clock.now(), rule=rule, content_version=0
    )


def edited(world: World) -> None:
    world.document("plan", "the secret plan of the team, second edition", rule=TEAM)


def edited_under_the_same_rule(world: World) -> None:
    manifest = world.store.read_manifests(GENERATION, TENANT, [ref("plan").uid])[ref("plan").uid]
    world.store.write_manifest(GENERATION, manifest.model_copy(update={"content_version": world.version()}))


def revoked_in_the_store(world: World) -> None:
    world.access(ref("plan"), anyone("user:carol"))


def other_rule(world: World) -> None:
    world.access(ref("plan"), anyone("group:wiki/eng", "user:carol"))


def revoked_on_the_log(world: World) -> None:
    world.log.event(access(world, "plan", anyone("user:carol")))


def deleted_on_the_log(world: World) -> None:
    version = world.version()
    world.log.event(
        AccessTombstone(document=ref("plan"), version=version, not_before=version + 1, observed_at=world.clock.now())
    )


def held_on_the_log(world: World) -> None:
    world.log.event(
        HoldChanged(
            document=ref("plan"), hold="legal", active=True, version=world.version(), observed_at=world.clock.now()
        )
    )


def left_the_team(world: World) -> None:
    world.principal("user:ann")
    world.log.event(member(world))


def manifest_gone(world: World) -> None:
    manifest = world.store.read_manifests(GENERATION, TENANT, [ref("plan").uid])[ref("plan").uid]
    world.store.write_manifest(GENERATION, manifest.model_copy(update={"deleted": True}))


def another_became_visible(world: World) -> None:
    receive(world, receipt("news"))


def another_was_moved(world: World) -> None:
    receive(world, receipt("news").model_copy(update={"lane": "control", "outcome": "moved"}))


def another_was_granted(world: World) -> None:
    receive(world, receipt("news", generation=None, lane="access"))


def another_is_about_to_be_granted(world: World) -> None:
    world.log.event(access(world, "news", anyone()))


def passes(world: World, seconds: float) -> None:
    """Time, through which the access lane is at work."""
    world.clock.advance(seconds)
    world.progress()


def too_old(world: World) -> None:
    passes(world, 61)


CHANGES: list[Callable[[World], None]] = [
    edited, edited_under_the_same_rule, revoked_in_the_store, other_rule, revoked_on_the_log, deleted_on_the_log,
    held_on_the_log, left_the_team,
    manifest_gone, another_became_visible, another_was_moved, another_was_granted, another_is_about_to_be_granted,
    too_old,
]  # fmt: skip


TOLD = CHANGES[CHANGES.index(revoked_on_the_log) :]  # by the log, or by the clock
TOLD.remove(manifest_gone)


async def read(run: Running) -> None:
    """What is on the log was read, and the service may answer."""
    await run.until(lambda: _read(run) and not run.parts.state.reasons())


def _read(run: Running) -> bool:
    ends = {slot: len(line) for slot, line in run.world.log.records.items()}
    read = {**run.parts.tail.partitions(), **run.parts.freshness.partitions()}
    return all(read.get(slot, 0) >= end for slot, end in ends.items())


@pytest.mark.requirement("B10", "A11")
@pytest.mark.parametrize("change", CHANGES)
async def test_a_search_is_given_again_until(world: World, change: Callable[[World], None]) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        first = await asking.search()
        again = await asking.search()
        assert again.cached and not first.cached and asking.searched == 1
        assert [h.document_id for h in again.hits] == ["plan"] and again.query_id != first.query_id
        change(world)
        await read(run)
        third = await asking.search()
        assert not third.cached and asking.searched == 2, "it was searched again"


@pytest.mark.requirement("B10", "A11")
@pytest.mark.parametrize("change", CHANGES)
async def test_an_answer_is_given_again_until(world: World, change: Callable[[World], None]) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        first = await asking.answer()
        again = await asking.answer()
        assert (again.cached, first.cached, asking.written) == ("exact", "none", 1)
        change(world)
        await read(run)
        try:
            third = await asking.answer()
        except IndexError:  # nothing is found, so nothing could be quoted
            third = None
        assert asking.written == 2 and (third is None or third.cached == "none")


@pytest.mark.requirement("B10")
@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_is_kept_of_a_request_in_which_something_changed(
    world: World, change: Callable[[World], None]
) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)

        async def between() -> None:
            change(world)
            await read(run)

        await asking.search(between=between)
        if change in TOLD:
            assert asking.caches.keeper.shelf.count("searches") == 0
        after = await asking.search()
        assert not after.cached and asking.searched == 2


@pytest.mark.requirement("B10", "A8")
async def test_who_left_and_came_back_meanwhile_leaves_nothing(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)

        async def between() -> None:
            world.log.event(member(world))
            world.log.event(member(world, "group:wiki/eng"))
            await read(run)

        await asking.search(between=between)
        assert asking.caches.keeper.shelf.count("searches") == 0


@pytest.mark.requirement("B10")
async def test_a_rule_that_only_the_log_knows_is_the_one_that_counts(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        world.log.event(access(world, "plan", anyone("group:wiki/eng", "user:carol")))
        await read(run)
        first = await asking.search()
        assert (await asking.search()).cached and first.hits[0].access.version > 0


@pytest.mark.requirement("B10")
async def test_changes_elsewhere_leave_it(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        receive(world, receipt("plan", tenant="other"), receipt("plan", generation="next"))
        world.log.event(
            AccessSet(
                document=ref("x", tenant="other"), version=world.version(), observed_at=1, rule=anyone(),
                content_version=0,
            )
        )  # fmt: skip
        await read(run)
        assert (await asking.search()).cached


@pytest.mark.requirement("B10", "A8")
async def test_a_membership_that_ended_counts_although_the_tails_stand_still(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        run.parts.barrier._wait_s = asking.caches.barrier._wait_s = 0.05
        world.log.stalled = True
        left_the_team(world)
        assert await asking.ids() == []
        world.log.stalled = False


@pytest.mark.requirement("B10", "A8")
async def test_a_membership_that_began_counts_although_the_tails_stand_still(world: World) -> None:
    prepared(world)
    world.document("draft", "a secret plan of the board", rule=anyone("group:wiki/board"))
    world.principal("group:wiki/board")
    async with world.running() as run:
        asking = Asking(run)
        assert await asking.ids() == ["plan"]
        run.parts.barrier._wait_s = 0.05
        world.log.stalled = True
        world.principal("user:ann", "group:wiki/eng", "group:wiki/board")
        world.log.event(member(world, "group:wiki/eng", "group:wiki/board"))
        assert not (await asking.search()).cached
        world.log.stalled = False


@pytest.mark.requirement("B10", "A11")
async def test_while_receipts_wait_to_be_read_nothing_kept_is_given(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        asking.caches.barrier._wait_s = 0.05
        world.log.stalled = True
        world.document("news", "news of the secret plan")
        receive(world, receipt("news"))
        assert await asking.ids() == ["news", "plan"]
        world.log.stalled = False


@pytest.mark.requirement("B10", "I8")
async def test_without_the_log_it_is_searched(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        world.log.down = True
        assert not (await asking.search()).cached
        world.log.down = False


@pytest.mark.requirement("B10", "A9")
async def test_another_generation_has_its_own(world: World) -> None:
    prepared(world)
    world.generation("next")
    world.document("plan", "the secret plan of the team", rule=TEAM, generation="next")
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        world.store.set_active_generation("next")
        await run.until(lambda: run.parts.state.active == "next")
        assert (await asking.search()).generation == "next" and asking.searched == 2
        assert (await asking.search()).cached


@pytest.mark.requirement("B10", "A8")
async def test_only_callers_with_the_same_principals_share(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        assert (await asking.search(scope=asking.scope(key_id="k1"))).cached, "the same person with a key"
        assert not (await asking.search(scope=asking.scope("bob"))).cached
        assert not (await asking.search(scope=asking.scope(groups=("group:idp/x",)))).cached
        assert not (await asking.search(scope=asking.scope(products=frozenset({"pump"})))).cached
        assert not (await asking.search(scope=asking.scope(as_of_from=5, as_of_until=5))).cached
        assert await asking.ids(scope=asking.scope("nobody")) == []


@pytest.mark.requirement("B10")
@pytest.mark.parametrize(
    "body",
    [
        {"cache": False}, {"explain": True}, {"query": "secret  plans"}, {"k": 3}, {"mode": "dense"},
        {"filters": {"sources": ["wiki"]}}, {"rerank": "off"}, {"diversity": 0.5}, {"snippets": False},
        {"evidence": "sections"}, {"sort": "newest"}, {"per_document": 1}, {"duplicates": "fold"},
    ],
)  # fmt: skip
async def test_another_request_is_another_search(world: World, body: dict[str, Any]) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        found = await asking.search(**{"query": "secret plan", **body})
        assert not found.cached and asking.searched == 2


@pytest.mark.requirement("B10")
async def test_a_request_that_waits_for_a_write_or_goes_on_is_asked_anew(world: World) -> None:
    from schemas.tokens import FreshnessToken

    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        for number in range(3):
            world.document(f"more {number}", f"the secret plan, part {number}")
        page = await asking.search(k=1)
        assert page.next_cursor is not None
        token = FreshnessToken(tenant=TENANT).encode()
        bodies: list[dict[str, Any]] = [{"k": 1, "cursor": page.next_cursor}, {"k": 1, "after": token}]
        for body in bodies:
            for _ in range(2):
                assert not (await asking.search(**body)).cached
        again = await asking.search(k=1)
        assert again.cached and again.next_cursor is not None
        assert (await asking.search(k=1, cursor=again.next_cursor)).hits, "its cursor goes on"


@pytest.mark.requirement("B10", "B9")
async def test_dates_and_ages_are_of_now(world: World) -> None:
    prepared(world)
    world.document("soon", "the secret plan begins", effective_from=world.clock.now() + 30_000_000)
    async with world.running() as run:
        asking = Asking(run)
        first = {h.document_id: h for h in (await asking.search(evidence="sections")).hits}
        before = world.clock.now()
        passes(world, 40)
        await read(run)
        reply = await asking.search(evidence="sections")
        again = {h.document_id: h for h in reply.hits}
        assert reply.cached and reply.judged_at >= before + 40_000_000
        assert again["plan"].age_s == pytest.approx(first["plan"].age_s + 40, abs=1)
        assert (first["soon"].in_effect, again["soon"].in_effect) == (False, True)
        assert reply.evidence is not None and all(p.in_effect for p in reply.evidence.passages)


@pytest.mark.requirement("B10")
async def test_a_date_that_moves_with_the_clock_is_asked_anew(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        for scope, cached in (
            (asking.scope(as_of_from=1), False),
            (asking.scope(as_of_from=1, as_of_until=10), True),
        ):
            await asking.search(scope=scope)
            assert (await asking.search(scope=scope)).cached is cached


@pytest.mark.requirement("B10")
@pytest.mark.parametrize(
    "change",
    [
        {"answered": False}, {"fallback": "the generator failed"}, {"incomplete": True}, {"fresh": True},
        {"cached": "exact"}, {"kind": "refusal"}, {"generation": "other"},
    ],
)  # fmt: skip
async def test_what_is_no_whole_answer_is_not_kept(world: World, change: dict[str, Any]) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.answer(change=change)
        assert (await asking.answer()).cached == "none" and asking.written == 2


@pytest.mark.requirement("B10")
def test_what_had_too_little_time_is_not_kept() -> None:
    from query_service.cache.used import worth_keeping
    from query_service.finish import NO_RERANKER
    from query_service.rerank.service import CROWDED, FITTED
    from schemas.api import SearchResponse
    from schemas.api_examples import SEARCH_RESPONSE
    from tests.unit.cache import replies

    hits = SearchResponse.model_validate(SEARCH_RESPONSE).hits

    def found(**fields: Any) -> SearchResponse:
        return replies.found(**{"hits": hits, **fields})

    assert worth_keeping(found())
    assert not worth_keeping(found(hits=())), "a suggestion may have come too late"
    assert not worth_keeping(found(starved=True))
    assert not worth_keeping(found(fresh=True))
    for report, kept in (
        (RerankReport(asked="fast", done="fast", candidates=9), True),
        (RerankReport(asked="fast", done="off", candidates=0, reason=NO_RERANKER), True),
        (RerankReport(asked="fast", done="off", candidates=0, late=True), False),
        (RerankReport(asked="fast", done="fast", candidates=3, reason=f"3 of 9 {FITTED}"), True),
        (RerankReport(asked="fast", done="off", candidates=0, reason=f"0 of 9 {FITTED}"), True),
        (RerankReport(asked="full", done="full", candidates=3, reason=f"3 of 9 {FITTED}"), False),
        (RerankReport(asked="fast", done="off", candidates=0, reason=CROWDED), False),
    ):
        assert worth_keeping(found(rerank=report)) is kept


@pytest.mark.requirement("B10")
async def test_an_answer_costs_nothing_the_second_time(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        first = await asking.answer()
        again = await asking.answer("  What is the\tsecret plan? ")
        assert again.cached == "exact" and again.query_id != first.query_id
        assert first.usage.cost and not again.usage.cost and not again.usage.prompt_tokens
        assert again.text == first.text and again.citations[0].quote == first.citations[0].quote


@pytest.mark.requirement("B10", "B8")
async def test_an_answer_that_is_further_behind_than_accepted_is_not_given(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.answer()
        assert (await asking.answer()).cached == "exact"
        assert (await asking.answer(max_staleness_s=5)).cached == "none", "nobody knows how complete the wiki is"


@pytest.mark.requirement("B10")
async def test_a_question_that_means_the_same_gets_the_answer(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run, semantic_threshold=0.5)  # the encoder here knows words alone
        await asking.answer("How do I read the secret plan?")
        again = await asking.answer("How can I read our secret plans?")
        assert again.cached == "semantic" and asking.written == 1
        assert (await asking.answer("How do I burn the secret plan?")).cached == "none"
        assert (await asking.answer("How can I read our secret plans?", scope=asking.scope("bob"))).cached == "none"
        off = Asking(run, semantic=False)
        await off.answer("How do I read the secret plan?")
        assert (await off.answer("How can I read the secret plan?")).cached == "none"


@pytest.mark.requirement("B10", "A7")
async def test_a_deletion_empties_the_shelf_and_the_proof_counts_it(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        keeper = asking.caches.keeper
        await asking.search()
        await asking.answer()
        await asking.search("lunch soup")
        assert keeper.shelf.with_document(ref("plan").uid) == 2
        deleted_on_the_log(world)
        await run.until(lambda: keeper.shelf.with_document(ref("plan").uid) == 0)
        place = keeper.place(ref("plan"), world.clock.now())
        assert (place.place, place.found, place.clean) == (PLACE, 0, True)
        left = keeper.place(ref("menu"), world.clock.now())
        assert (left.found, left.clean) == (1, False)
        assert keeper.place(ref("menu"), world.clock.now()).clean, "what was found is dropped"


@pytest.mark.requirement("B10")
async def test_a_change_of_a_principal_drops_what_its_callers_were_given(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        await asking.search(scope=asking.scope("bob"))
        assert asking.caches.keeper.shelf.count("searches") == 2
        world.log.event(member(world, "group:wiki/eng"))
        await run.until(lambda: asking.caches.keeper.shelf.count("searches") == 1)


@pytest.mark.requirement("B10")
async def test_what_happens_is_counted(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run)
        await asking.search()
        await asking.search()
        await asking.search(cache=False)
        edited(world)
        await asking.search()

        def value(outcome: str) -> float:
            return world.metrics.value("headwater_cache_total", cache="searches", outcome=outcome)

        assert {o: value(o) for o in ("hit", "miss", "refused", "dropped")} == {
            "hit": 1, "miss": 2, "refused": 1, "dropped": 1,
        }  # fmt: skip
        assert world.metrics.value("headwater_cache_entries", cache="searches") == 1
        assert world.metrics.value("headwater_cache_bytes", cache="searches") > 500


@pytest.mark.requirement("B10")
async def test_nothing_is_kept_where_it_is_switched_off(world: World) -> None:
    prepared(world)
    async with world.running() as run:
        asking = Asking(run, answers=0, searches=0)
        for _ in range(2):
            assert not (await asking.search()).cached
            assert (await asking.answer()).cached == "none"
