"""Each check finds what it is for and nothing else, and its mend mends it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from pipeline.errors import ConfigError
from pipeline.operate.audit import Finding, examine
from schemas.access import AccessRule
from schemas.documents import Section
from schemas.events import ContentUpserted, InlineBody, SourceRequest
from schemas.receipts import Coordinates, DeadLetter
from schemas.topics import Topic
from tests.fakes.store import StoredChunk
from tests.unit.flow.flow_world import GENERATION
from tests.unit.upkeep.looking import failing, look, mended, sight
from tests.unit.upkeep.shop import G, Shop, page

QUIET = {"canary"}  # no canary runs here


@pytest.fixture
def shop() -> Shop:
    """Twenty documents in two tenants, some cold, some deleted, all as it should be."""
    made = Shop()
    for number in range(18):
        made.put(page(number), f"a {number}\n\nb {number}\n\nc {number}", age_days=40)
    for number in range(2):
        made.put(page(number, tenant="other", source="tickets"), f"other {number}")
    for number in (4, 5):
        made.flow.move(page(number), "cold", None)
    made.delete(page(6))
    made.wait_removals([page(number) for number in range(18)])
    return made


def held(shop: Shop, number: int) -> tuple[str, StoredChunk]:
    """The first chunk of a page."""
    uid = shop.of(page(number)).chunks[0].chunk_id
    for tier in ("hot", "cold"):
        if uid in shop.store.tier(G, tier, "acme"):
            return uid, shop.store.tier(G, tier, "acme")[uid]
    raise AssertionError("it does not stand")


def stray(shop: Shop, number: int, *, hidden: bool = False) -> str:
    """A chunk of a page that no manifest lists; ``hidden`` from the filter by document."""
    _, like = held(shop, 1)
    uid = str(uuid4())
    document = page(number).uid
    shop.store.tier(G, "hot", "acme")[uid] = StoredChunk(like.properties | {"document": document}, like.vector)
    if hidden:
        shop.store.chunk_ids_of = lambda generation, document: {"hot": set(), "cold": set()}  # type: ignore[method-assign]
    return uid


def section_without_manifest(shop: Shop) -> None:
    stranger = Section(section_id=str(uuid4()), ordinal=0, heading_path=(), text="left over")
    shop.store.write_sections(G, page(2), [stranger])


def lost_chunk(shop: Shop) -> None:
    uid, _ = held(shop, 3)
    del shop.store.tier(G, "hot", "acme")[uid]


def lost_vector(shop: Shop) -> None:
    held(shop, 4)[1].vector = None


def lost_section(shop: Shop) -> None:
    shop.store.delete_sections(G, "acme", [shop.of(page(5)).sections[0]])


def open_chunk(shop: Shop) -> None:
    held(shop, 4)[1].properties["allow"] = ["everyone"]


def narrow_manifest(shop: Shop) -> None:
    shop.store.write_manifest(G, shop.of(page(7)).model_copy(update={"allow": ("group:other",)}))


def unseen_rule(shop: Shop) -> None:
    record = shop.store.read_access("acme", [page(8).uid])[page(8).uid]
    newer = record.model_copy(update={"version": record.version + 1, "rule": AccessRule.any_of("group:ops")})
    shop.store.write_access("acme", [newer])


def no_access(shop: Shop) -> None:
    shop.store._records[("access", "acme")].pop(page(9).uid)


def no_manifest(shop: Shop) -> None:
    manifest = shop.of(page(10))
    shop.store._records[(f"records:{G}", "acme")].pop(page(10).uid)
    shop.store.delete_chunks(G, "acme", [chunk.chunk_id for chunk in manifest.chunks])
    shop.store.delete_sections(G, "acme", manifest.sections)
    shop.flow.manifests.forget()


def back_after_delete(shop: Shop) -> None:
    stray(shop, 6)


def undone_delete(shop: Shop) -> None:
    shop.delete(page(11), indexed=False)
    shop.applied()


def unfinished_move(shop: Shop) -> None:
    shop.flow.move(page(12), "cold", None)
    shop.restart()
    shop.clock.advance(600)


def unfinished_removal(shop: Shop) -> None:
    shop.put(page(13), "a 13\n\nnew")
    shop.restart()
    shop.clock.advance(600)


FAULTS: dict[str, tuple[str, Callable[[Shop], object]]] = {
    "chunk without a manifest's line": ("orphan_chunks", lambda shop: stray(shop, 2)),
    "chunk of a document without a manifest": ("orphan_chunks", lambda shop: stray(shop, 2, hidden=True)),
    "section without a manifest's line": ("orphan_sections", section_without_manifest),
    "lost chunk": ("missing_chunks", lost_chunk),
    "lost vector": ("unsearchable_chunks", lost_vector),
    "lost section": ("missing_chunks", lost_section),
    "chunk that is open": ("prefilter_drift", open_chunk),
    "manifest that is narrow": ("prefilter_drift", narrow_manifest),
    "rule that was not seen": ("prefilter_drift", unseen_rule),
    "no access record": ("manifests_without_access", no_access),
    "no manifest": ("access_without_manifest", no_manifest),
    "back after a delete": ("tombstones_not_emptied", back_after_delete),
    "delete not carried out": ("tombstones_not_emptied", undone_delete),
    "move not finished": ("tombstones_not_emptied", unfinished_move),
    "removal not finished": ("tombstones_not_emptied", unfinished_removal),
}


@pytest.mark.requirement("I1")
def test_a_shop_in_order_passes_every_check(shop: Shop) -> None:
    report = examine(sight(shop))
    assert {r.name for r in report.results if not r.passed} == QUIET
    by_name = {r.name: r for r in report.results}
    assert by_name["orphan_chunks"].examined == 17 * 3 + 2 and by_name["superseded_events"].examined == 40
    assert by_name["recent_deletes"].examined == 1
    assert all(r.note is None for r in report.results if r.name.startswith(("orphan", "missing", "prefilter")))


@pytest.mark.requirement("A6", "A8", "F10", "I1", "I2", "I5")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_mended_by_its_owner(shop: Shop, fault: str) -> None:
    name, damage = FAULTS[fault]
    damage(shop)
    found = look(shop, name)
    assert found.count == 1 and found.by == {"acme/wiki": 1}, found
    allowed = QUIET | {name} | ({"recent_deletes"} if fault == "back after a delete" else set())
    assert failing(shop) == allowed, "other checks do not see it, or see what is none of theirs"
    before = len(shop.embedded)
    done = mended(shop, found)
    assert (done.mended, done.failed, done.left) == (1, 0, 0), done
    shop.wait_removals([page(number) for number in range(18)])
    assert failing(shop) == QUIET
    assert len(shop.embedded) - before <= (3 if fault == "no manifest" else 1)
    assert mended(shop, found).failed == 0, "mending again does no harm"
    assert failing(shop) == QUIET
    assert all(c.type in ("recheck", "reprocess") for c in shop.asked)


@pytest.mark.requirement("I1")
def test_work_in_progress_is_no_finding(shop: Shop) -> None:
    stray(shop, 2)
    lost_chunk(shop)
    open_chunk(shop)
    no_access(shop)
    shop.applied(behind=1)
    assert {r.name for r in examine(sight(shop)).results if r.count} - QUIET == set()
    note = look(shop, "orphan_chunks").note
    assert note is not None and "have not caught up" in note


@pytest.mark.requirement("I1")
def test_what_a_second_look_explains_is_no_finding(shop: Shop) -> None:
    """A chunk that was written after its manifest was walked, and one that has gone since."""
    seen = sight(shop)
    uid = stray(shop, 2)
    new_page = page(30)
    list(seen.inventories())
    for inventory in seen.inventories():
        inventory.stray_chunks.setdefault(new_page.uid, []).append("not yet")
    del shop.store.tier(G, "hot", "acme")[uid]
    shop.put(new_page, "written meanwhile")
    listed = shop.of(new_page).chunks[0].chunk_id
    next(iter(seen.inventories())).stray_chunks[new_page.uid] = [listed]
    assert examine(seen, ["orphan_chunks"]).results[0].count == 0


@pytest.mark.requirement("I1")
def test_a_chunk_whose_document_nothing_names_is_left_to_a_person(shop: Shop) -> None:
    stray(shop, 99)
    found = look(shop, "orphan_chunks")
    assert found.count == 1 and found.findings[0].mend is None and found.findings[0].document is None
    assert mended(shop, found).left == 1 and not shop.asked


@pytest.mark.requirement("I1", "I5")
def test_an_older_version_behind_a_newer_one_on_the_log_is_found_and_its_owner_is_asked(shop: Shop) -> None:
    event = ContentUpserted(
        document=page(0), version=5, access_version=5, title="t", body=InlineBody(text="late"), observed_at=5
    )
    place = shop.log(event)
    shop.applied()
    found = look(shop, "superseded_events")
    assert found.count == 1 and f"offset {place.offset}" in found.findings[0].detail
    done = mended(shop, found)
    assert (done.asked, done.mended) == (1, 0)
    (record,) = shop.broker.records(Topic.REQUESTS)
    request = SourceRequest.model_validate_json(record.value or b"")
    assert (request.type, request.document, request.source) == ("document", page(0), "wiki")


@pytest.mark.requirement("A8", "F19")
def test_a_delete_that_came_undone_with_the_store_is_carried_out_again(shop: Shop) -> None:
    before = shop.store.snapshot()
    manifest, access = shop.of(page(0)), shop.store.read_access("acme", [page(0).uid])[page(0).uid]
    chunks = dict(shop.store.tier(G, "hot", "acme"))
    shop.delete(page(0))
    shop.store.tier(G, "hot", "acme").update(chunks)  # back from an older copy: chunks, manifest and access record
    shop.store.write_manifest(G, manifest)
    shop.store.write_access("acme", [access])
    shop.flow.manifests.forget()
    assert shop.store.snapshot() != before
    found = look(shop, "recent_deletes")
    assert found.count == 1 and found.findings[0].mend in ("reprocess", "ask_owner")
    mended(shop, look(shop, "tombstones_not_emptied"))
    found = look(shop, "recent_deletes")
    assert [f.mend for f in found.findings] == ["recheck_access"]
    mended(shop, found)
    assert failing(shop) == QUIET
    assert shop.store.read_access("acme", [page(0).uid])[page(0).uid].tombstone
    assert shop.of(page(0)).deleted


@pytest.mark.requirement("A8", "F19")
def test_a_hundred_deletes_are_verified_and_those_that_are_back_removed() -> None:
    shop = Shop()
    for number in range(200):
        shop.put(page(number), f"text {number}")
    chunks = dict(shop.store.tier(G, "hot", "acme"))
    for number in range(100):
        shop.delete(page(number))
    assert look(shop, "recent_deletes").examined == 100
    shop.store.tier(G, "hot", "acme").update(chunks)
    found = look(shop, "recent_deletes")
    assert found.count == 100 and mended(shop, found).mended == 100
    assert shop.store.count_chunks(G, "acme")["hot"] == 100
    assert look(shop, "recent_deletes").passed


@pytest.mark.requirement("A8", "F19")
def test_a_document_made_again_after_its_delete_is_no_finding(shop: Shop) -> None:
    shop.put(page(6), "made again")
    assert look(shop, "recent_deletes").passed


@pytest.mark.requirement("D4")
def test_a_source_that_lags_is_named_with_its_figure(shop: Shop) -> None:
    now = shop.clock.now()
    for number in range(20):
        shop.receipt(page(number), "content.upserted", "indexed", 1, now - (5_000_000 if number > 15 else 100_000))
    found = look(shop, "lag", lag_window_s=1.0)
    assert [f.source for f in found.findings] == ["wiki"] and found.figures["acme/wiki p95 ms"] == 5000.0
    assert look(shop, "lag", lag_window_s=1.0, lag_target_ms=6000.0).passed


@pytest.mark.requirement("I10")
def test_a_backlog_that_nobody_reads_is_found(shop: Shop) -> None:
    shop.applied(behind=1)
    assert look(shop, "lag").passed, "a consumer at work"
    shop.clock.advance(120)
    assert {f.detail.split(":")[0] for f in look(shop, "lag").findings} >= {"index lane", "access lane"}


@pytest.mark.requirement("I8")
def test_dead_letters_are_counted_against_what_is_allowed(shop: Shop) -> None:
    letter = DeadLetter(
        coordinates=Coordinates(topic="content", partition=0, offset=10_000), lane="index", generation=G,
        document=page(0), stage="extract", error_kind="broken", reason="no PDF", attempts=3, failed_at=shop.clock.now(),
    )  # fmt: skip
    shop.broker.append_raw(str(Topic.DEAD_LETTER), 0, page(0).key, letter.model_dump_json().encode())
    found = look(shop, "dead_letters")
    assert found.by == {"acme/wiki": 1} and "extract/broken" in found.findings[0].detail
    assert look(shop, "dead_letters", dead_letters=1).passed
    no_manifest(shop)
    assert look(shop, "access_without_manifest").count == 1
    aside = letter.model_copy(update={"document": page(10)})
    shop.broker.append_raw(str(Topic.DEAD_LETTER), 0, page(10).key, aside.model_dump_json().encode())
    assert look(shop, "access_without_manifest").count == 0, "it is a dead letter"


@pytest.mark.requirement("I10")
def test_a_silent_canary_is_found(shop: Shop) -> None:
    assert not look(shop, "canary").passed
    shop.receipt(
        page(0, tenant="headwater-canary"), "content.upserted", "indexed", 1, shop.clock.now() - 1000
    )  # fmt: skip
    assert look(shop, "canary").passed
    shop.clock.advance(3600)
    assert not look(shop, "canary").passed


@pytest.mark.requirement("I8")
def test_the_stores_disk_read_only_state_and_churn_are_looked_at(shop: Shop) -> None:
    assert look(shop, "store").note == "the store's disk cannot be seen from here"
    shop.store.refuses, shop.store.disk_used, shop.store.disk_bytes = (f"Headwater_Hot_{G}",), 0.95, 10
    details = [f.detail for f in look(shop, "store").findings]
    assert len(details) == 2 and "refuses writes" in details[0] and "95 % full" in details[1]
    shop.store.written = {f"Headwater_Hot_{G}": 300_000}
    found = look(shop, "churn")
    assert found.count == 1 and "vectors_from" in found.findings[0].detail
    assert look(shop, "churn", churn_chunks=400_000).passed


@pytest.mark.requirement("I1", "I7")
def test_collections_of_a_dropped_generation_are_removed_from_here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    old = GENERATION.model_copy(update={"name": "old", "state": "retired", "dropped_at": 5})
    shop.store.ensure_generation(old)
    shop.store.write_generation(old)
    footprint = shop.store.footprint()
    monkeypatch.setattr(
        shop.store, "footprint", lambda: type(footprint)({"Headwater_Hot_old": 3, f"Headwater_Hot_{G}": 3})
    )
    found = look(shop, "store")
    assert [f.mend for f in found.findings] == ["drop_generation"]
    assert mended(shop, found).mended == 1
    assert "hot:old" not in shop.store._collections and f"hot:{G}" in shop.store._collections


def test_an_unknown_check_is_refused_by_name(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="orphan_chunks"):
        look(shop, "no such check")


def test_findings_keep_their_count_when_they_are_cut() -> None:
    from pipeline.operate.audit.model import MAX_FINDINGS, result

    found = result((Finding(detail=str(n)) for n in range(MAX_FINDINGS + 5)), examined=1)
    assert (found.count, len(found.findings), len(found.shortened().findings)) == (MAX_FINDINGS + 5, MAX_FINDINGS, 20)
