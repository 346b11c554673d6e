"""From a ranking to a page: reranking and its deadline, the checks around it, copies, limits, dates, weights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.settings_query import RankingSettings
from query_service.boost import boosted, of_tenant, recency
from query_service.legs import Candidate
from query_service.outcome import Place, Ranked
from query_service.rerank.interface import Reranked
from schemas.documents import ChunkEntry
from schemas.events import AccessTombstone, MembershipSet
from tests.unit.query.test_retrieve import _seen, rule_event
from tests.unit.query.world import TENANT, World, anyone, ref

pytestmark = pytest.mark.anyio
Then = Callable[[], Any]


class Scripted:
    """``Reranking`` whose scores are told by words in the passage; it notes what it was given."""

    def __init__(self, scores: dict[str, float] | None = None, *, first: int = 50, then: Then | None = None) -> None:
        self.scores = scores or {}
        self.first = first
        self.then = then
        self.given: list[list[str]] = []
        self.wanted: list[int | None] = []
        self.cancelled = False
        self.hangs = False

    async def rank(
        self, query: str, passages: Sequence[str], mode: str, *, wanted: int | None, deadline: float
    ) -> Reranked:
        self.given.append(list(passages))
        self.wanted.append(wanted)
        if self.then is not None:
            await self.then()
        if self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        found = [max([s for word, s in self.scores.items() if word in p], default=0.0) for p in passages[: self.first]]
        return Reranked(tuple(found), 1.5, "scripted")


def use(run: Any, reranking: Any) -> None:
    run.parts.service._finisher._reranking = reranking


def names(reply: Any) -> list[str]:
    return [hit["document_id"] for hit in reply["hits"]]


def plans(world: World, count: int = 6) -> None:
    """Documents d0, d1, … that a search for "plan" ranks in this order."""
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    for i in range(count):
        world.document(
            f"d{i}", "plan " + " ".join(f"w{i}x{j}" for j in range(2 + 3 * i)), rule=anyone("group:wiki/eng")
        )


async def plan(run: Any, **asked: Any) -> Any:
    """By words alone, so that the order is known."""
    return await run.search("plan", mode="sparse", diversity=1, **asked)


@pytest.mark.requirement("B4")
async def test_the_final_score_mixes_reranker_and_first_stage(world: World) -> None:
    plans(world, 3)
    async with world.running() as run:
        plain = await plan(run, rerank="off")
        use(run, Scripted({"w0x0": 1.0, "w1x0": 2.0, "w2x0": 5.0}))
        reply = await plan(run, rerank="full")
    assert names(plain) == ["d0", "d1", "d2"] and plain["rerank"]["done"] == "off"
    first = [hit["scores"]["final"] for hit in plain["hits"]]
    assert first[0] == 1.0 and first[2] == 0.0
    expected = {"d0": 0.7 * 0.0 + 0.3 * 1.0, "d1": 0.7 * 0.25 + 0.3 * first[1], "d2": 0.7 * 1.0 + 0.3 * 0.0}
    assert names(reply) == sorted(expected, key=lambda name: -expected[name])
    for hit in reply["hits"]:
        assert hit["scores"]["final"] == pytest.approx(expected[hit["document_id"]], abs=1e-5)
    assert {hit["document_id"]: hit["scores"]["rerank"] for hit in reply["hits"]} == {"d0": 1.0, "d1": 2.0, "d2": 5.0}
    assert reply["counts"]["reranked"] == 3
    assert reply["rerank"] == {
        "asked": "full", "done": "full", "candidates": 3, "model": "scripted", "ms": 1.5, "late": False, "reason": None,
    }  # fmt: skip


@pytest.mark.requirement("B4")
async def test_what_was_not_scored_follows_in_its_order(world: World) -> None:
    plans(world, 5)
    async with world.running() as run:
        use(run, Scripted({"w1x0": 9.0}, first=2))
        reply = await plan(run, rerank="fast")
    assert names(reply) == ["d1", "d0", "d2", "d3", "d4"]
    finals = [hit["scores"]["final"] for hit in reply["hits"]]
    assert finals == sorted(finals, reverse=True)
    assert [hit["scores"]["rerank"] for hit in reply["hits"]] == [9.0, 0.0, None, None, None]


@pytest.mark.requirement("B4")
async def test_it_is_given_titles_headings_and_no_more_than_asked(world: World) -> None:
    plans(world, 6)
    async with world.running() as run:
        scripted = Scripted()
        use(run, scripted)
        await plan(run, rerank="full", rerank_candidates=2)
        await plan(run, rerank="fast")
        await plan(run, rerank="off")
        await plan(run, sort="newest", rerank="full")
    assert len(scripted.given) == 2 and [len(given) for given in scripted.given] == [2, 6]
    assert scripted.wanted == [2, None]
    assert scripted.given[0][0].startswith("d0 > Top > Part 0\nplan w0x0")


@pytest.mark.requirement("B4", "D1")
async def test_past_the_deadline_the_fused_order_is_served(tmp_path: Path) -> None:
    world = World(tmp_path, deadline_s=2.0)
    plans(world, 3)
    async with world.running() as run:
        plain = await plan(run, rerank="off")
        scripted = Scripted()
        scripted.hangs = True
        use(run, scripted)
        started = time.monotonic()
        reply = await plan(run, rerank="full")
    assert time.monotonic() - started < 30 and scripted.cancelled
    assert names(reply) == names(plain)
    assert reply["rerank"]["late"] is True and reply["rerank"]["done"] == "off" and reply["rerank"]["reason"]


@pytest.mark.requirement("D1")
async def test_a_client_that_leaves_ends_the_wait_for_the_reranker(world: World) -> None:
    plans(world, 3)
    async with world.running() as run:
        began = asyncio.Event()

        async def tell() -> None:
            began.set()

        scripted = Scripted(then=tell)
        scripted.hangs = True
        use(run, scripted)
        task = asyncio.create_task(plan(run, rerank="full"))
        await asyncio.wait_for(began.wait(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert scripted.cancelled


@pytest.mark.requirement("B4")
async def test_without_a_reranker_the_reply_says_so(world: World) -> None:
    plans(world, 2)
    async with world.running() as run:
        use(run, None)
        reply = await plan(run, rerank="full")
    assert names(reply) == ["d0", "d1"]
    assert reply["rerank"]["done"] == "off" and "no reranker" in reply["rerank"]["reason"]


REVOKE = ("rule", "membership", "tombstone")


def event(world: World, how: str, name: str) -> Any:
    if how == "rule":
        return rule_event(world, name, anyone("user:bob"))
    if how == "tombstone":
        return AccessTombstone(document=ref(name), version=world.version(), not_before=world.version(), observed_at=1)
    return MembershipSet(tenant=TENANT, principal="user:ann", version=world.version(), observed_at=1, source="wiki")


async def revoke(run: Any, world: World, how: str, name: str) -> None:
    world.log.event(event(world, how, name), at=world.clock.now())
    await run.until(lambda: _seen(run))


@pytest.mark.requirement("B4", "B9", "I3", "I4")
@pytest.mark.parametrize("how", REVOKE)
async def test_nothing_revoked_after_retrieval_reaches_the_reranker(
    world: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(world, 4)
    async with world.running() as run:
        scripted = Scripted()
        use(run, scripted)
        retriever = run.parts.service._retriever
        real = retriever.retrieve

        async def then_revoked(*given: Any, **named: Any) -> Any:
            found = await real(*given, **named)
            await revoke(run, world, how, "d0")
            return found

        monkeypatch.setattr(retriever, "retrieve", then_revoked)
        reply = await plan(run, rerank="full", k=2)
    told = "\n".join(p for given in scripted.given for p in given)
    if how == "membership":
        assert scripted.given == [] and reply["hits"] == []
    else:
        assert "w1x0" in told and "w0x0" not in told
        assert names(reply) == ["d1", "d2"]


@pytest.mark.requirement("B4", "B9", "I3", "I4")
@pytest.mark.parametrize("how", REVOKE)
async def test_what_is_revoked_while_it_is_scored_is_not_in_the_reply(world: World, how: str) -> None:
    plans(world, 4)
    async with world.running() as run:
        before = world.clock.now()

        async def now() -> None:
            world.clock.advance(1)
            await revoke(run, world, how, "d0")

        scripted = Scripted({"w0x0": 9.0}, then=now)
        use(run, scripted)
        reply = await plan(run, rerank="full", k=2)
    assert "w0x0" in scripted.given[0][0]
    assert names(reply) == ([] if how == "membership" else ["d1", "d2"])
    assert reply["judged_at"] >= before + 1_000_000, "the last check began after the wait"
    assert "w0x0" not in str(reply)


@pytest.mark.requirement("B4", "B9", "B5")
async def test_a_copy_takes_the_place_of_one_that_is_revoked_while_it_is_scored(world: World) -> None:
    world.principal("user:ann")
    same = "The pilots meet at the northern lock before every night watch, and the gauge is read twice by two people."
    world.document("first", same, title="pilots")
    world.document("second", same, title="other")
    world.document("third", "pilots of another text")
    async with world.running() as run:

        async def now() -> None:
            await revoke(run, world, "tombstone", "first")

        use(run, Scripted({"northern lock": 5.0}))
        plain = await run.search("pilots", duplicates="fold", rerank="full")
        assert names(plain)[0] == "first" and [a["document_id"] for a in plain["hits"][0]["also"]] == ["second"]
        use(run, Scripted({"northern lock": 5.0}, then=now))
        reply = await run.search("pilots", duplicates="fold", rerank="full")
    assert names(reply) == ["second", "third"]
    assert all(hit["also"] == [] for hit in reply["hits"])


@pytest.mark.requirement("B2", "B4", "B5")
@pytest.mark.parametrize(
    ("query", "holder", "twin"),
    [
        ("X-500-G2", "The X-500-G2 is sold", "The X-500-G3 X-500-G3 X 500 G 2 2 2 is sold"),
        ("what does fs.readFileSync return", "fs.readFileSync reads", "what does fs.readFile return, return what"),
        ("v2.4.18-rc1", "Notes of v2.4.18-rc1", "Notes of v2.4.18 rc1 rc1 rc1"),
        ("error 0xC0000005", "code 0xC0000005 means", "error error 0xC0000006 0xC0000 005"),
        ("ERR_CONNECTION_TIMED_OUT", "see ERR_CONNECTION_TIMED_OUT", "ERR CONNECTION TIMED OUT ERR_CONNECTION_RESET"),
    ],
)
async def test_holders_of_identifiers_stay_first_whatever_a_model_says(
    world: World, query: str, holder: str, twin: str
) -> None:
    world.principal("user:ann")
    for i in range(4):
        world.document(f"twin{i}", f"{twin}, item {i}", tier="hot" if i % 2 else "cold")
    world.document("holder", f"A long passage in which many other things stand before it comes to it. {holder}.")
    async with world.running() as run:
        use(run, Scripted({"A long passage": -50.0}))
        for asked in (
            {"rerank": "full", "diversity": 0, "duplicates": "keep"},
            {"rerank": "full", "diversity": 0.9, "duplicates": "fold"},
            {"rerank": "off", "diversity": 0, "duplicates": "fold"},
        ):
            reply = await run.search(query, **asked)
            assert names(reply)[0] == "holder" and len(reply["hits"]) == 5, "near twins are not copies"
            assert [h["scores"]["exact"] for h in reply["hits"]] == [True, False, False, False, False]


# ---------------------------------------------------------------- near-duplicates and diversity

LONG = (
    "Before every night watch the pilots of the day meet at the northern lock, read the gauge twice, write the level "
    "into the book and tell the harbour office at seven, so that the gates can be set before the tide turns."
)


@pytest.mark.requirement("B5")
async def test_of_five_near_duplicates_one_remains_and_says_where_the_others_are(world: World) -> None:
    world.principal("user:ann")
    for i, word in enumerate(("", "again", "too", "here", "quietly")):
        world.document(f"copy{i}", f"{LONG} {word}")
    world.document("other", "The pilots of another harbour meet elsewhere at noon.")
    world.document("number", LONG.replace("at seven", "at 7:30"))
    world.document("negation", LONG.replace("can be set", "can not be set"))
    async with world.running() as run:
        reply = await run.search("pilots northern lock gauge", duplicates="fold")
        kept = await run.search("pilots northern lock gauge", duplicates="keep")
    copies = [hit for hit in reply["hits"] if hit["document_id"].startswith("copy")]
    assert len(copies) == 1 and len(copies[0]["also"]) == 4
    assert {"other", "number", "negation"} <= set(names(reply)) and len(reply["hits"]) == 4
    assert len(kept["hits"]) == 8


@pytest.mark.requirement("B5", "D1")
async def test_vectors_are_read_only_where_they_are_needed_and_from_their_tier(world: World) -> None:
    world.principal("user:ann")
    for i in range(4):
        world.document(f"d{i}", f"plan {i} words", tier="hot" if i % 2 else "cold")
    world.document("hidden", "plan 9 words", rule=anyone("user:bob"))
    async with world.running() as run:
        reader = run.parts.reader
        asked: list[dict[str, list[str]]] = []
        real = reader.passages

        async def noting(generation: str, tenant: str, tiers: dict[str, list[str]], *, vectors: bool) -> Any:
            if vectors:
                asked.append(tiers)
            return await real(generation, tenant, tiers, vectors=vectors)

        reader.passages = noting
        await run.search("plan", diversity=1, duplicates="keep")
        assert asked == []
        await run.search("plan", duplicates="keep")
        assert [{t: len(ids) for t, ids in call.items()} for call in asked] == [{"hot": 2, "cold": 2}]
        await run.search("plan", diversity=1, duplicates="fold")
        assert len(asked) == 2


@pytest.mark.requirement("B5")
async def test_diversity_brings_in_what_is_new(world: World) -> None:
    world.principal("user:ann")
    for i in range(4):
        world.document(f"same{i}", f"pump pressure limit valve {'abcd'[i]}")
    world.document("new", "pump of another colour altogether painted green last summer")
    async with world.running() as run:
        relevant = await run.ids("pump pressure limit valve", k=2, diversity=1)
        novel = await run.ids("pump pressure limit valve", k=2, diversity=0)
    assert "new" not in relevant and novel == [relevant[0], "new"]


# ---------------------------------------------------------------- limits, dates, weights


@pytest.mark.requirement("E4")
async def test_hits_of_one_document_at_most(world: World) -> None:
    world.principal("user:ann")
    world.document("long", *(f"plan part{i}" for i in range(40)))
    world.document("one", "plan and some other words that let it rank low")
    world.document("two", "plan and still more other words that let it rank lower than all")
    async with world.running() as run:
        assert await run.ids("plan", k=5, per_document=2) == ["long", "long", "one", "two"]
        assert await run.ids("plan", k=2, per_document=1) == ["long", "one"]


@pytest.mark.requirement("E4")
async def test_sorted_by_date_unknown_last(world: World) -> None:
    world.principal("user:ann")
    for name, at in (("old", 10), ("new", 30), ("unknown", None), ("middle", 20)):
        world.document(name, f"plan {name}", updated_at=at)
    async with world.running() as run:
        assert await run.ids("plan", sort="newest") == ["new", "middle", "old", "unknown"]
        reply = await run.search("plan", sort="oldest", rerank="full")
    assert names(reply) == ["old", "middle", "new", "unknown"]
    assert reply["rerank"]["reason"] == "sorted by date"


def ranked(world: World, name: str, fused: float, *, exact: bool = False, source: str = "wiki", **facts: Any) -> Ranked:
    manifest = world.document(ref(name, source=source), name, **facts)
    entry = manifest.chunks[0]
    candidate = Candidate(entry.chunk_id, manifest.document.uid, "hot", exact=exact)
    return Ranked(candidate, manifest, Place(0, ChunkEntry.model_validate(entry.model_dump())), fused)


@pytest.mark.requirement("E4")
def test_recency_is_halved_by_each_half_life() -> None:
    day = 86_400_000_000
    assert recency(100 * day, 10, 100 * day) == 1.0 and recency(200 * day, 10, 100 * day) == 1.0
    assert recency(90 * day, 10, 100 * day) == pytest.approx(0.5)
    assert recency(80 * day, 10, 100 * day) == pytest.approx(0.25)
    assert recency(None, 10, 100 * day) == 0.0


@pytest.mark.requirement("E4")
def test_weights_of_sources_and_newness(world: World) -> None:
    now = world.clock.now()
    day = 86_400_000_000
    a = ranked(world, "a", 0.03, source="wiki", updated_at=now - 1000 * day)
    b = ranked(world, "b", 0.02, source="tickets", updated_at=now)
    c = ranked(world, "c", 0.01, source="wiki", updated_at=None)
    assert [r.first for r in boosted([a, b, c], None, now)] == pytest.approx([1.0, 0.5, 0.0])
    off = RankingSettings()
    assert [r.candidate for r in boosted([a, b, c], off, now)] == [a.candidate, b.candidate, c.candidate]
    heavy = boosted([a, b, c], RankingSettings(source_weights={"tickets": 4.0}), now)
    assert [r.candidate.chunk_id for r in heavy] == [r.candidate.chunk_id for r in (b, a, c)]
    assert [r.first for r in heavy] == pytest.approx([1.0, 0.5, 0.0])
    newer = boosted([a, b, c], RankingSettings(recency_share=0.6), now)
    assert [r.first for r in newer] == pytest.approx([0.4 * 0.5 + 0.6, 0.4, 0.0], abs=1e-3)
    exact = ranked(world, "x", 0.001, exact=True)
    assert boosted([exact, a, b], RankingSettings(recency_share=1.0), now)[0].candidate.chunk_id == (
        exact.candidate.chunk_id
    )


@pytest.mark.requirement("E4")
async def test_weights_belong_to_their_tenant(world: World) -> None:
    light, own = RankingSettings(), RankingSettings(source_weights={"tickets": 10})
    assert of_tenant({"*": light, TENANT: own}, TENANT) is own and of_tenant({"*": light}, TENANT) is light
    assert of_tenant({"other": own}, TENANT) is None
    world.principal("user:ann")
    world.document("page", "plan")
    world.document(ref("ticket", source="tickets", kind="issue"), "plan words that let it rank second")
    world.document(ref("last", source="tickets", kind="issue"), "plan words that let it rank third of all of them here")
    async with world.running() as run:
        assert (await run.ids("plan", diversity=1))[0] == "page"
    world.settings = world.settings.model_copy(update={"ranking": {TENANT: own}})
    async with world.running() as run:
        assert (await run.ids("plan", diversity=1))[0] == "ticket"
