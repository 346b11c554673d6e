"""Search through the application: permissions, both tiers, refill, repair, exact names, one generation."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from schemas.access import AccessRule, Clause, Grant
from schemas.api_moments import EARLIEST
from schemas.documents import Retiring
from schemas.events import AccessSet, AccessTombstone, HoldChanged, MembershipSet
from schemas.keys import DocumentRef
from tests.unit.query.world import GENERATION, TENANT, World, anyone, chunk_id, ref

pytestmark = pytest.mark.anyio


def rule_event(world: World, name: str, rule: AccessRule, **fields: Any) -> AccessSet:
    return AccessSet(
        document=ref(name), version=world.version(), observed_at=world.clock.now(), rule=rule,
        **{"content_version": 0, **fields},
    )  # fmt: skip


def counted(**counts: int) -> dict[str, int]:
    """All counts of a reply in which nothing was reranked; what was admitted was ranked."""
    zero = {"dense": 0, "sparse": 0, "exact": 0, "admitted": 0, "reranked": 0}
    return {**zero, "fused": counts.get("admitted", 0), **counts}


async def revoke(run: Any, event: Any) -> None:
    """Append an event and wait until the tail has it; the store stays behind."""
    run.world.log.event(event, at=run.world.clock.now())
    await run.until(lambda: _seen(run))


def _seen(run: Any) -> bool:
    reached = run.parts.tail.partitions()
    return all(reached.get(slot, 0) >= len(line) for slot, line in run.world.log.records.items() if slot in reached)


@pytest.mark.requirement("B2", "A9", "A3")
async def test_a_hit_from_each_tier_with_all_its_fields(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    m = world.document(
        "refunds", "Refunds take five days", rule=anyone("group:wiki/eng"), language="en", product="shop",
        effective_from=5, effective_until=2**52, path="sales/refunds.md",
    )  # fmt: skip
    world.document("returns", "Refunds after returns take longer", tier="cold")
    async with world.running() as run:
        reply = await run.search("how long do refunds take")
    assert reply["generation"] == GENERATION
    assert {h["document_id"]: h["tier"] for h in reply["hits"]} == {"refunds": "hot", "returns": "cold"}
    hit = next(h for h in reply["hits"] if h["document_id"] == "refunds")
    text = "Refunds take five days"
    assert hit == {
        "document_uid": m.document.uid, "document_id": "refunds", "source": "wiki", "kind": "page", "tenant": "acme",
        "title": "refunds", "url": "https://wiki.example/refunds", "path": "sales/refunds.md",
        "version": m.content_version, "content_type": "text/markdown", "language": "en", "product": "shop",
        "effective_from": 5, "effective_until": 2**52, "in_effect": True, "updated_at": m.updated_at, "tier": "hot",
        "access": {"clauses": [["group:wiki/eng"]], "has_deny": False, "version": m.access_version, "named": True},
        "age_s": 60.0,
        "section_id": m.sections[0], "chunk_id": chunk_id(m.document, text), "chunk_index": 0, "chunk_total": 1,
        "heading_path": ["Top", "Part 0"], "text": text, "scores": hit["scores"], "page": 1, "start": 0, "end": 22,
        "summary": False, "also": [], "warnings": [], "snippet": hit["snippet"], "deleted": False,
    }  # fmt: skip
    scores = hit["scores"]
    assert scores["dense_rank"] == 1 and scores["sparse_rank"] == 1
    assert scores["fused"] == 1.0
    assert 0 <= scores["dense_distance"] <= 2 and scores["sparse_score"] > 0
    assert reply["counts"] == counted(dense=2, sparse=2, admitted=2)
    assert reply["starved"] is False and reply["fresh"] is None
    stages = {"embed", "closure", "search", "admit", "repair", "fuse", "text", "diversify", "check", "total"}
    assert stages <= reply["timings_ms"].keys()
    assert all(v >= 0 for v in reply["timings_ms"].values())


@pytest.mark.requirement("B2")
async def test_modes(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "alpha beta")
    world.document("b", "gamma delta")
    async with world.running() as run:
        dense = await run.search("alpha", mode="dense")
        sparse = await run.search("alpha", mode="sparse")
        nothing = await run.search("…?!", mode="sparse")
    assert [h["document_id"] for h in dense["hits"]] == ["a", "b"]
    assert all(h["scores"]["sparse_rank"] is None for h in dense["hits"]) and dense["counts"]["sparse"] == 0
    assert [h["document_id"] for h in sparse["hits"]] == ["a"]
    assert sparse["hits"][0]["scores"]["dense_distance"] is None
    assert nothing["hits"] == []


@pytest.mark.requirement("A9")
async def test_the_same_chunk_in_both_tiers_is_one_hit(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "alpha beta", tier="cold")
    world.document("a", "alpha beta", tier="hot")
    async with world.running() as run:
        reply = await run.search("alpha")
    assert len(reply["hits"]) == 1 and reply["hits"][0]["tier"] == "hot"
    assert reply["counts"] == counted(dense=1, sparse=1, admitted=1)


@pytest.mark.requirement("A9")
async def test_a_fresh_answer_in_a_small_hot_tier_is_not_buried(world: World) -> None:
    """Hot holds one topic only, so its own statistics would call the topic's words common."""
    world.principal("user:ann")
    for i in range(8):
        world.document(f"hot{i}", f"pump manual volume {i}")
    world.document("answer", "pump pressure limit")
    for i in range(20):
        world.document(f"cold{i}", f"unrelated text number {i}", tier="cold")
    world.document("rival", "pressure of time at work and other lengthy words", tier="cold")
    async with world.running() as run:
        assert (await run.ids("pump pressure", mode="sparse"))[0] == "answer"


@pytest.mark.requirement("I3", "B1")
async def test_who_sees_what(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("user:bob", "group:wiki/hr")
    world.principal("group:wiki/eng")
    world.principal("group:wiki/hr")
    world.document("public", "plan for all", rule=anyone())
    world.document("eng", "plan for engineering", rule=anyone("group:wiki/eng"))
    world.document("hr", "plan for people", rule=anyone("group:wiki/hr"))
    both = AccessRule(clauses=tuple(Clause(any_of=(Grant(principal=p),)) for p in ("group:wiki/eng", "group:wiki/hr")))
    world.document("both", "plan for two", rule=both)
    world.document("not-ann", "plan without ann", rule=anyone(deny=["user:ann"]))
    world.document("other tenant", "plan elsewhere")
    world.document(DocumentRef(tenant="other", source="wiki", id="eng"), "plan of others", rule=anyone("user:ann"))
    async with world.running() as run:
        assert set(await run.ids("plan")) == {"public", "eng", "other tenant"}
        assert set(await run.ids("plan", "bob")) == {"public", "hr", "not-ann", "other tenant"}
        for stranger in ("ghost", "Ann", "ann2"):
            reply = await run.search("plan", stranger)
            assert reply["hits"] == [] and set(reply["counts"].values()) == {0}
        claimed = {"groups": ["group:wiki/hr"]}
        assert set(await run.ids("plan", claims=claimed)) == {"public", "eng", "other tenant"}
        assert await run.ids("plan", claims={"tenant": "other"}) == []


@pytest.mark.requirement("I12")
async def test_an_incomplete_closure_sees_nothing_with_a_deny_set(world: World) -> None:
    world.principal("user:ann", "group:wiki/unknown")
    world.document("open", "plan open")
    world.document("denies", "plan denies", rule=anyone(deny=["group:wiki/contractors"]))
    world.document("group", "plan group", rule=anyone("group:wiki/unknown"))
    async with world.running() as run:
        assert set(await run.ids("plan")) == {"open", "group"}


@pytest.mark.requirement("I3", "I4", "A8")
async def test_no_record_tombstone_hold_and_redaction(world: World) -> None:
    world.principal("user:ann")
    world.document("no record", "plan", record=False)
    gone, held, redacted = (world.document(n, "plan") for n in ("gone", "held", "redacted"))
    world.document("fine", "plan")
    world.access(gone.document, tombstone=True, not_before=gone.content_version + 1)
    world.access(held.document, holds={"quarantine": 1})
    world.access(redacted.document, not_before=redacted.content_version + 1, content_version=redacted.content_version)
    behind = world.document("behind", "plan")
    world.access(behind.document, version=behind.access_version - 1)
    async with world.running() as run:
        assert await run.ids("plan") == ["fine"]


@pytest.mark.requirement("I3")
async def test_a_rule_widened_before_its_content_does_not_open_the_old_text(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    m = world.document("page", "secret plan", rule=anyone("user:bob"))
    world.access(m.document, anyone(), content_version=m.content_version + 1)
    world.store.update_allow(GENERATION, TENANT, [c.chunk_id for c in m.chunks], ["everyone"], ["everyone"])
    async with world.running() as run:
        assert await run.ids("plan") == []
        assert await run.ids("plan", "bob") == ["page"]


@pytest.mark.requirement("I4", "A8", "D5", "F25", "F26")
async def test_revocations_count_from_the_tail_while_the_store_is_behind(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("group:wiki/eng")
    for name in ("a", "b", "c", "d"):
        world.document(name, "plan", rule=anyone("group:wiki/eng"))
    async with world.running() as run:
        assert set(await run.ids("plan")) == {"a", "b", "c", "d"}
        await revoke(run, rule_event(world, "a", anyone("user:bob")))
        assert set(await run.ids("plan")) == {"b", "c", "d"}
        await revoke(run, AccessTombstone(
            document=ref("b"), version=world.version(), not_before=world.version(), observed_at=1))  # fmt: skip
        assert set(await run.ids("plan")) == {"c", "d"}
        await revoke(run, HoldChanged(
            document=ref("c"), hold="legal", active=True, version=world.version(), observed_at=1))  # fmt: skip
        assert await run.ids("plan") == ["d"]
        assert (await run.get(f"/v1/documents/{ref('d').uid}")).status_code == 200
        await revoke(run, MembershipSet(
            tenant=TENANT, principal="user:ann", version=world.version(), observed_at=1, source="wiki"))  # fmt: skip
        assert await run.ids("plan") == []
        assert (await run.get(f"/v1/documents/{ref('d').uid}")).status_code == 404
        assert (await run.get(f"/v1/trace/{ref('d').uid}")).status_code == 404


@pytest.mark.requirement("I12")
async def test_an_unreadable_access_payload_hides_the_document_and_is_an_alarm(world: World) -> None:
    from schemas.topics import Topic

    world.principal("user:ann")
    world.document("a", "plan")
    async with world.running() as run:
        assert await run.ids("plan") == ["a"]
        world.log.append(Topic.ACCESS, ref("a").key, b'{"type":"rule","future":true}')
        await run.until(lambda: run.parts.overlay.undecodable == 1)
        assert await run.ids("plan") == []
        assert world.metrics.value("headwater_closed_total", lane="query", kind="access") == 1


@pytest.mark.requirement("B9", "A8")
async def test_permissions_are_checked_again_before_the_answer_leaves(world: World) -> None:
    """The record is revoked after ranking: what replaces it on the page is the next permitted hit."""
    world.principal("user:ann")
    for name in ("a", "b", "c"):
        world.document(name, f"plan {name}")
    async with world.running() as run:
        reader = run.parts.reader
        real, calls = reader.access, []

        async def revoking(tenant: str, uids: list[str]) -> Any:
            calls.append(uids)
            if len(calls) == 2:
                world.access(ref("a"), anyone("user:bob"))
            return await real(tenant, uids)

        reader.access = revoking
        reply = await run.search("plan a", k=2)
        assert reply["hits"][0]["document_id"] != "a" and len(reply["hits"]) == 2
        assert "plan a" not in json.dumps(reply)


@pytest.mark.requirement("B9", "A8")
async def test_an_answer_says_when_its_permissions_were_checked_last(world: World) -> None:
    """What is revoked after that moment may still be in it, what was revoked before may not."""
    world.principal("user:ann")
    world.document("a", "plan a")
    async with world.running() as run:
        reader = run.parts.reader
        real, calls, revoked = reader.access, [], []

        async def too_late(tenant: str, uids: list[str]) -> Any:
            calls.append(uids)
            if len(calls) == 1:
                world.clock.advance(1)  # ranking takes a while: the answer's own check counts, not the first one
                return await real(tenant, uids)
            found = await real(tenant, uids)
            world.clock.advance(1)
            world.access(ref("a"), anyone("user:bob"))
            revoked.append(world.clock.now())
            return found

        began = world.clock.now()
        reader.access = too_late
        reply = await run.search("plan a")
    assert [h["document_id"] for h in reply["hits"]] == ["a"]
    assert began < reply["judged_at"] < revoked[0]


@pytest.mark.requirement("I4")
async def test_refill_until_enough_are_admitted(world: World) -> None:
    """Hundreds of near documents are refused by a deny set that the pre-filter cannot see."""
    world.principal("user:ann")
    for i in range(150):
        world.document(f"denied{i}", "plan plan plan", rule=anyone(deny=["user:ann"]))
    for i in range(5):
        world.document(f"mine{i}", "plan with many other words in it that make it rank low")
    async with world.running() as run:
        reply = await run.search("plan", k=5)
    assert len(reply["hits"]) == 5 and not reply["starved"]
    assert world.metrics.value("headwater_refills_total") >= 1
    assert reply["counts"] == counted(dense=5, sparse=5, admitted=5)
    assert world.metrics.value("headwater_refused_candidates_total", reason="rule") == 150


@pytest.mark.requirement("I4")
async def test_starved_is_counted_and_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from query_service import retrieve

    monkeypatch.setattr(retrieve, "MAX_LIMIT", 60)
    world.principal("user:ann")
    for i in range(80):
        world.document(f"denied{i}", "plan", rule=anyone(deny=["user:ann"]))
    async with world.running() as run:
        reply = await run.search("plan", k=5)
    assert reply["hits"] == [] and reply["starved"] is True
    assert world.metrics.value("headwater_starved_total") == 1


@pytest.mark.requirement("D1", "I4")
@pytest.mark.parametrize("visible", [300, 3])
async def test_many_principals_search_unfiltered_and_fall_back(tmp_path: Path, visible: int) -> None:
    world = World(tmp_path, filter_principals=5, candidates=20)
    world.principal("user:ann", *(f"audience:wiki/{i}" for i in range(10)))
    for i in range(300):
        mine = i >= 300 - visible
        world.document(f"d{i:03}", f"plan {i}", rule=anyone("audience:wiki/3" if mine else "audience:wiki/99"))
    async with world.running() as run:
        ids = await run.ids("plan", k=10)
    assert len(ids) == min(visible, 10)
    assert all(int(name[1:]) >= 300 - visible for name in ids)
    assert (world.metrics.value("headwater_refills_total") > 0) is (visible == 3)


@pytest.mark.requirement("I2", "I3", "B9")
async def test_a_document_that_moved_on_during_the_search_is_found_again(world: World) -> None:
    """The old chunk is found, the manifest lists the new one: the document is searched once more by its id."""
    world.principal("user:ann")
    old = world.document("page", "plan of last year")
    for i in range(60):
        world.document(f"near{i}", "plan plan")
    new = world.document("page", "budget of this year")
    assert new.chunks[0].chunk_id != old.chunks[0].chunk_id
    world.store.write_manifest(
        GENERATION,
        new.model_copy(update={"retiring": (Retiring(chunk_ids=(old.chunks[0].chunk_id,), due=world.clock.now()),)}),
    )
    async with world.running() as run:
        reply = await run.search("last", mode="sparse")
        assert reply["hits"] == [], "the new version does not hold the word"
        reply = await run.search("of last year")
        assert [h["text"] for h in reply["hits"] if h["document_id"] == "page"] == ["budget of this year"]
    assert world.metrics.value("headwater_repairs_total") == 2


@pytest.mark.requirement("I3", "I10")
async def test_a_record_read_just_before_its_lane_wrote_it_is_read_again(world: World) -> None:
    world.principal("user:ann")
    m = world.document("page", "plan")
    world.access(m.document, version=m.access_version - 1)
    async with world.running() as run:
        reader = run.parts.reader
        real, calls = reader.access, []

        async def late(tenant: str, uids: list[str]) -> Any:
            found = await real(tenant, uids)
            calls.append(uids)
            world.access(m.document, version=m.access_version)
            return found

        reader.access = late
        assert await run.ids("plan") == ["page"]
        assert len(calls) == 3, "at admission, once more, and before the answer leaves"


@pytest.mark.requirement("I3")
async def test_chunks_of_an_uncommitted_version_are_not_shown(world: World) -> None:
    world.principal("user:ann")
    old = world.document("page", "plan")
    world.document("page", "plan draft", record=False)
    world.store.write_manifest(GENERATION, old)
    async with world.running() as run:
        reply = await run.search("plan draft")
    assert [h["text"] for h in reply["hits"]] == ["plan"]


@pytest.mark.requirement("I3")
async def test_a_paged_manifest_lists_through_its_pages(world: World) -> None:
    from schemas.documents import PageEntry, page_of

    world.principal("user:ann")
    m = world.document("huge", "plan alpha", "plan beta", "plan gamma")
    pages = 2
    entries = [PageEntry(**c.model_dump(), ordinal=i) for i, c in enumerate(m.chunks)][:2]
    for n in range(pages):
        world.store.write_manifest_page(
            GENERATION, m.document, m.content_version, n, pages, [e for e in entries if page_of(e.chunk_id, pages) == n]
        )
    world.store.write_manifest(GENERATION, m.model_copy(update={"chunks": (), "pages": pages, "chunk_total": 3}))
    async with world.running() as run:
        reply = await run.search("plan")
    assert {(h["text"], h["chunk_index"], h["chunk_total"]) for h in reply["hits"]} == {
        ("plan alpha", 0, 3),
        ("plan beta", 1, 3),
    }


@pytest.mark.requirement("B2")
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
async def test_exact_identifiers_rank_first_and_above_near_twins(
    world: World, query: str, holder: str, twin: str
) -> None:
    world.principal("user:ann")
    for i in range(5):
        world.document(f"twin{i}", twin, tier="hot" if i % 2 else "cold")
    world.document("holder", f"A long passage in which many other things stand before it comes to it. {holder}.")
    async with world.running() as run:
        for mode in ("hybrid", "sparse"):
            reply = await run.search(query, mode=mode)
            assert reply["hits"][0]["document_id"] == "holder"
            assert [h["scores"]["exact"] for h in reply["hits"]] == [True] + [False] * (len(reply["hits"]) - 1)
            assert reply["counts"]["exact"] == 1


@pytest.mark.requirement("B2", "I3")
async def test_an_exact_match_is_admitted_like_any_other(world: World) -> None:
    world.principal("user:ann")
    world.document("secret", "see ERR_SECRET_CODE", rule=anyone(deny=["user:ann"]))
    async with world.running() as run:
        reply = await run.search("ERR_SECRET_CODE")
    assert reply["hits"] == [] and reply["counts"] == counted()


@pytest.mark.requirement("B1", "I6")
async def test_filters(world: World) -> None:
    base = EARLIEST
    world.principal("user:ann")
    world.document("a", "plan", language="en", product="shop", content_type="text/html", updated_at=base + 1000)
    issue = ref("b", source="tickets", kind="issue")
    world.document(issue, "plan", language="de", effective_from=base + 10, effective_until=base + 20)
    async with world.running() as run:

        async def found(**filters: Any) -> set[str]:
            return set(await run.ids("plan", filters=filters))

        assert await found() == {"a", "b"}
        assert await found(sources=["tickets"]) == {"b"}
        assert await found(kinds=["issue", "x"]) == {"b"}
        assert (
            await found(content_types=["text/html"]) == await found(content_types=["Text/HTML; charset=utf-8"]) == {"a"}
        )
        assert await found(languages=["en"]) == {"a"}
        assert await found(products=["shop"]) == {"a"}
        assert await found(updated_after=base + 1001) == {"b"}
        assert await found(updated_before=base + 1001) == {"a"}
        assert await found(as_of=base + 15) == {"a", "b"}
        assert await found(as_of=base + 20) == {"a"}
        assert set(await run.ids("plan", claims={"products": ["shop"]})) == {"a"}
        assert await run.ids("plan", claims={"products": ["pump"]}, filters={"products": ["shop"]}) == []
        assert set(await run.ids("plan", claims={"as_of": 25})) == {"a"}


@pytest.mark.requirement("I7", "A10")
async def test_one_generation_answers_with_its_own_encoder(world: World) -> None:
    world.principal("user:ann")
    world.document("old", "plan")
    world.generation("g2")
    world.document("new", "plan", generation="g2")
    async with world.running() as run:
        reply = await run.search("plan")
        assert (reply["generation"], [h["document_id"] for h in reply["hits"]]) == (GENERATION, ["old"])
        world.store.set_active_generation("g2")
        world.clock.advance(3)
        reply = await run.search("plan")
        assert (reply["generation"], [h["document_id"] for h in reply["hits"]]) == ("g2", ["new"])


@pytest.mark.requirement("B10")
async def test_a_repeated_query_is_embedded_once(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    async with world.running() as run:
        for _ in range(3):
            await run.search("the plan")
    assert [q for e in world.encoders for q in e.queries].count("the plan") == 1


@pytest.mark.requirement("B3")
async def test_fusion_is_a_setting(tmp_path: Path) -> None:
    for number, (fusion, fused) in enumerate((("convex", [1.0, 0.0]), ("rrf", [2 / 61, 2 / 62]))):
        world = World(tmp_path / str(number), fusion=fusion)
        world.principal("user:ann")
        world.document("a", "plan alpha")
        world.document("b", "plan beta gamma delta")
        async with world.running() as run:
            reply = await run.search("plan alpha")
        assert [h["scores"]["fused"] for h in reply["hits"]] == pytest.approx(fused)


@pytest.mark.requirement("C5")
async def test_the_query_log_has_ids_and_counts_and_no_text(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.principal("user:ann")
    world.document("open", "plan walrus")
    world.document("secret", "plan narwhal", rule=anyone(deny=["user:ann"]))
    with caplog.at_level(logging.INFO, logger="headwater.query"):
        async with world.running() as run:
            reply = await run.search("plan zebra")
    (line,) = [r.fields for r in caplog.records if r.message == "query"]  # type: ignore[attr-defined]
    assert line["query_id"] == reply["query_id"]
    assert line["tenant"] == TENANT and line["principals"] == 2 and len(line["principals_hash"]) == 32
    assert line["candidates"] == {"dense": 2, "sparse": 2, "exact": 0}
    assert line["admitted"] == {"dense": 1, "sparse": 1, "exact": 0, "admitted": 1}
    assert line["refused"] == {"rule": 1}
    (hit,) = line["hits"]
    assert hit[1] == ref("open").uid
    written = json.dumps(line)
    for word in ("zebra", "walrus", "narwhal", "user:ann", '"ann"', ref("secret").uid):
        assert word not in written


@pytest.mark.requirement("B2", "F17")
@pytest.mark.parametrize(
    ("text", "query"),
    [("Насос протекает под давлением", "протекает"), ("ポンプの圧力を確認する", "圧力"), ("המשאבה דולפת", "דולפת"),
     ("η αντλία έχει διαρροή", "ΔΙΑΡΡΟΉ"), ("水泵压力过高", "压力")],
)  # fmt: skip
async def test_other_scripts_are_found_by_words(world: World, text: str, query: str) -> None:
    world.principal("user:ann")
    world.document("it", text)
    world.document("noise", "pressure of the pump")
    async with world.running() as run:
        assert await run.ids(query, mode="sparse") == ["it"]
