"""Searches on real Weaviate, followed by real Kafka, embedded by the real encoder."""

from __future__ import annotations

import time

import pytest

from schemas.api_moments import EARLIEST
from schemas.events import AccessSet, AccessTombstone, DocumentState, MembershipSet, SourceCursor
from schemas.keys import DocumentRef, cursor_key
from schemas.receipts import Receipt, StageTimes
from schemas.tokens import FreshnessToken, TokenDocument
from schemas.topics import Topic
from tests.integration.query.real import RealWorld
from tests.unit.query.world import GENERATION, TENANT, anyone, ref

pytestmark = pytest.mark.anyio
REMOVAL_S = 2.0


def rule(world: RealWorld, document: DocumentRef, *principals: str) -> AccessSet:
    return AccessSet(
        document=document, version=world.version(), content_version=0, rule=anyone(*principals),
        observed_at=world.clock.now(),
    )  # fmt: skip


@pytest.mark.requirement("B2", "A9", "I3", "B1")
async def test_both_tiers_within_permissions(world: RealWorld) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    world.principal("user:bob")
    world.document("refunds", "A refund reaches the customer's account within five working days.")
    world.document("pumps", "The pump stops when the pressure falls below two bar.", tier="cold")
    world.document("secret", "Refund fraud is investigated by the audit team.", rule=anyone("group:wiki/eng"))
    world.document(DocumentRef(tenant="other", source="wiki", id="x"), "Refunds of another tenant.")
    async with world.running() as run:
        reply = await run.search("when do customers get their money back?", mode="dense")
        assert reply["hits"][0]["document_id"] == "refunds", "by meaning: no word in common"
        assert {h["document_id"] for h in reply["hits"]} == {"refunds", "pumps", "secret"}
        assert await run.ids("pressure", mode="sparse") == ["pumps"]
        assert "secret" not in await run.ids("refund fraud", "bob")
        assert await run.ids("refund", "ghost") == []
        assert (await run.get(f"/v1/documents/{ref('secret').uid}")).status_code == 200
        assert (await run.get(f"/v1/documents/{ref('secret').uid}", "bob")).status_code == 404


@pytest.mark.requirement("B2", "A5")
async def test_exact_identifiers_and_filters(world: RealWorld) -> None:
    world.principal("user:ann")
    for i in range(4):
        world.document(f"twin{i}", "The X-500-G3 replaced X 500 G2 pumps; X-500-G3 parts differ.", language="en")
    world.document("holder", "Among other old things the X-500-G2 is listed here.", tier="cold", language="de")
    ends = EARLIEST + 20
    world.document("dated", "The X-500-G2 of last year.", effective_from=EARLIEST, effective_until=ends, language="fr")
    async with world.running() as run:
        found = await run.ids("X-500-G2")
        assert set(found[:2]) == {"holder", "dated"}
        assert "dated" not in await run.ids("X-500-G2", filters={"as_of": ends})
        assert await run.ids("X-500-G2", filters={"as_of": ends - 1, "languages": ["fr"]}) == ["dated"]
        assert await run.ids("X-500-G2", filters={"languages": ["de"]}) == ["holder"]


@pytest.mark.requirement("A8", "D5", "I4", "F25")
async def test_revocations_on_the_log_count_before_the_store_has_them(world: RealWorld) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    for name in ("a", "b", "c"):
        world.document(name, f"the plan {name}", rule=anyone("group:wiki/eng"))
    async with world.running() as run:
        assert set(await run.ids("plan")) == {"a", "b", "c"}

        async def gone(name: str) -> float:
            start = time.monotonic()
            while name in await run.ids("plan"):
                assert time.monotonic() - start < 5
            return time.monotonic() - start

        world.send(rule(world, ref("a"), "user:bob"))
        assert await gone("a") < 1.0
        version = world.version()
        world.send(AccessTombstone(document=ref("b"), version=version, not_before=version, observed_at=version))
        assert await gone("b") < 1.0
        world.send(MembershipSet(
            tenant=TENANT, principal="user:ann", parents=(), version=world.version(), observed_at=version,
            source="wiki"))  # fmt: skip
        assert await gone("c") < 1.0
        for name in ("a", "b", "c"):
            assert (await run.get(f"/v1/documents/{ref(name).uid}")).status_code == 404


@pytest.mark.requirement("A8", "D5", "I4")
async def test_a_membership_that_ends_is_gone_after_its_end_although_no_event_came(world: RealWorld) -> None:
    world.principal("user:ann")
    world.principal("group:wiki/eng")
    world.document("a", "the plan", rule=anyone("group:wiki/eng"))
    world.document("b", "the plan of everybody")
    async with world.running() as run:
        end = world.clock.now() + 2_000_000
        world.send(MembershipSet(
            tenant=TENANT, principal="user:ann", parents=("group:wiki/eng",), until={"group:wiki/eng": end},
            version=world.version(), observed_at=world.clock.now(), source="wiki"))  # fmt: skip
        while set(await run.ids("plan")) != {"a", "b"}:
            assert world.clock.now() < end
        found = 0
        while world.clock.now() < end:
            asked = world.clock.now()
            found += "a" in await run.ids("plan")
            if asked >= end:
                break
        assert found > 1, "it was answered from a cached closure"
        assert await run.ids("plan") == ["b"]
        assert (await run.get(f"/v1/documents/{ref('a').uid}")).status_code == 404


@pytest.mark.requirement("A8", "I11")
async def test_events_that_the_lane_has_not_applied_are_known_from_the_start(world: RealWorld) -> None:
    world.principal("user:ann")
    world.document("a", "the plan")
    world.send(rule(world, ref("a"), "user:bob"))
    async with world.running() as run:
        assert await run.ids("plan") == []
        assert run.parts.state.reasons() == ()
        world.applied(lambda topic, partition: 0, age_s=60)
        await run.parts.state.refresh()
        assert any("access lane is behind" in r for r in run.parts.state.reasons())
        world.applied(lambda topic, partition: 1, age_s=60)
        await run.parts.state.refresh()
        assert run.parts.state.reasons() == ()


@pytest.mark.requirement("A11", "I10")
async def test_receipts_make_trace_lag_and_completeness(world: RealWorld) -> None:
    from pipeline.bus.codec import document_record, encode
    from pipeline.ports import Outgoing

    world.principal("user:ann")
    m = world.document("a", "the plan")
    now = world.clock.now()

    def receipt(lane: str, version: int) -> Receipt:
        return Receipt(
            lane=lane, generation=GENERATION if lane == "index" else None, tenant=TENANT, source="wiki",
            document=m.document, document_uid=m.document.uid, version=version,
            event_type="content.upserted" if lane == "index" else "rule",
            outcome="indexed" if lane == "index" else "applied",
            times=StageTimes(observed_at=now, appended_at=now + 2000, visible_at=now + 50_000),
        )  # fmt: skip

    state = DocumentState(document=m.document, content_version=m.content_version, access_version=m.access_version)
    cursor = SourceCursor(tenant=TENANT, source="wiki", last_version=now, polled_at=now)
    world.publish([
        Outgoing(topic=Topic.CURSORS.value, key=m.document.state_key(), value=encode(state)),
        Outgoing(topic=Topic.CURSORS.value, key=cursor_key(TENANT, "wiki", "changes"), value=encode(cursor)),
    ])  # fmt: skip
    first = min(m.content_version, m.access_version)
    async with world.running() as run:
        until = run.parts.freshness.complete_until
        await run.until(lambda: until(TENANT) == {"wiki": min(now, first)})
        world.publish([
            document_record(Topic.RECEIPTS, m.document, receipt("access", m.access_version)),
            document_record(Topic.RECEIPTS, m.document, receipt("index", m.content_version)),
        ])  # fmt: skip
        await run.until(lambda: until(TENANT) == {"wiki": now})
        body = (await run.get("/v1/freshness")).json()
        assert body["sources"]["wiki"]["lag_ms"]["total"] == {"count": 1, "p50": 50.0, "p95": 50.0, "p99": 50.0}
        steps = (await run.get(f"/v1/trace/{m.document.uid}")).json()["steps"]
        assert [s["lane"] for s in steps] == ["access", "index"]


@pytest.mark.requirement("A11")
async def test_a_freshness_token_on_the_real_store(world: RealWorld) -> None:
    world.principal("user:ann")
    m = world.document("a", "the plan")

    def token(content: int) -> str:
        line = TokenDocument(kind="page", id="a", source="wiki", content=content, access=m.access_version)
        return FreshnessToken(tenant=TENANT, documents=(line,)).encode()

    async with world.running() as run:
        assert (await run.search("plan", after=token(m.content_version)))["fresh"] is True
        assert (await run.search("plan", after=token(m.content_version + 10**9), wait_ms=100))["fresh"] is False


@pytest.mark.requirement("I2", "I3", "B9", "A6")
async def test_no_search_misses_a_document_that_is_being_edited(world: RealWorld) -> None:
    """Edits as the index consumer makes them: new chunks, manifest, and the old ones removed after a while."""
    import asyncio

    world.principal("user:ann")
    world.document("page", "version 0 of the walrus page")
    for i in range(30):
        world.document(f"other{i}", f"another page {i} about walrus matters", tier="cold" if i % 2 else "hot")
    async with world.running() as run:
        stop, misses, searches = False, 0, 0
        removed: list[str] = []

        async def look() -> None:
            nonlocal misses, searches
            while not stop:
                reply = await run.search("walrus page version", k=50)
                searches += 1
                texts = [h["text"] for h in reply["hits"] if h["document_id"] == "page"]
                misses += len(texts) != 1

        async def edit() -> None:
            nonlocal stop
            replaced: list[tuple[float, str]] = []
            for i in range(1, 40):
                new = await asyncio.to_thread(world.document, "page", f"version {i} of the walrus page", record=False)
                due = [chunk for at, chunk in replaced if time.monotonic() - at > REMOVAL_S]
                replaced = [line for line in replaced if line[1] not in due]
                if due:
                    await asyncio.to_thread(world.store.delete_chunks, GENERATION, TENANT, due)
                    removed.extend(due)
                # these stop being live when the next version is committed
                replaced.extend((time.monotonic() + 0.1, c.chunk_id) for c in new.chunks)
                await asyncio.sleep(0.02)
            stop = True

        # content demands the access version that stands
        world.access(ref("page"), version=world.clock.now() + 10**12)
        await asyncio.gather(look(), look(), edit())
    assert searches > 20 and len(removed) > 5
    assert misses == 0, f"{misses} of {searches} searches"


@pytest.mark.requirement("A9")
async def test_analysed_text_of_a_chunk_that_changed_its_tier_since_it_was_found(world: RealWorld) -> None:
    from pipeline import analysis
    from pipeline.index.reader import WeaviateReader

    hot = world.document("a", "The plan of the first page.").chunks[0].chunk_id
    cold = world.document("b", "Der Plan der zweiten Seite.", tier="cold").chunks[0].chunk_id
    gone = "00000000-0000-5000-8000-000000000000"
    reader = WeaviateReader(world.settings)
    try:
        found = await reader.lexical(GENERATION, TENANT, {"hot": [hot, cold, gone]})
    finally:
        await reader.close()
    assert found == {
        hot: analysis.lexical("a", "The plan of the first page."),
        cold: analysis.lexical("b", "Der Plan der zweiten Seite."),
    }
