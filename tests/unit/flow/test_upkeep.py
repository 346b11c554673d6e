"""Moves and rechecks of committed documents on the fake store."""

from __future__ import annotations

import pytest

from pipeline.flow import Change
from schemas.access import AccessRule
from schemas.documents import AccessRecord, Manifest, Tier
from schemas.events import AccessSet, AccessTombstone, SourceFacts
from tests.unit.flow.flow_world import DOCUMENT, Killed, World, assert_settled, texts

OLD, NEW = ["a", "b", "c"], ["a", "d"]


def cold(*paragraphs: str) -> World:
    """A world whose document lies in the cold tier alone."""
    world = World()
    world.apply(world.content(10, texts(*paragraphs)), world.rule(9, "group:eng"))
    world.flow.move(DOCUMENT, "cold", None)
    world.settle()
    world.embedded.clear()
    return world


def held(world: World) -> dict[Tier, list[str]]:
    """Texts that stand in each tier."""
    tiers: tuple[Tier, Tier] = ("hot", "cold")
    return {t: sorted(str(c.properties["text"]) for c in world.store.tier("g1", t, "acme").values()) for t in tiers}


def stored(world: World) -> Manifest:
    manifest = world.manifest()
    assert manifest is not None
    return manifest


# ------------------------------------------------------------------ moves


@pytest.mark.requirement("A6", "A9")
def test_a_move_carries_the_vectors_and_embeds_nothing() -> None:
    world = World()
    world.apply(world.content(10, texts(*OLD)))
    before = {i: c.vector.tolist() for i, c in world.store.tier("g1", "hot", "acme").items() if c.vector is not None}
    world.embedded.clear()
    world.flow.move(DOCUMENT, "cold", None)
    world.settle()
    after = {i: c.vector.tolist() for i, c in world.store.tier("g1", "cold", "acme").items() if c.vector is not None}
    assert after == before and len(after) == 3 and not world.embedded
    assert world.flow.move(DOCUMENT, "cold", None).outcome == "unchanged"
    assert held(world) == {"hot": [], "cold": OLD}


@pytest.mark.requirement("A6", "A9", "I6")
def test_an_edit_of_a_cold_document_writes_only_its_changed_chunks_to_hot() -> None:
    world = cold(*OLD)
    done = world.apply(world.content(20, texts("a", "x", "c")))
    assert (done.chunks_written, world.embedded) == (1, ["x"])
    world.settle()
    assert held(world) == {"hot": ["x"], "cold": ["a", "c"]}
    assert_settled(world, ["a", "x", "c"])
    assert world.flow.move(DOCUMENT, "cold", None).chunks_written == 1
    world.settle()
    assert held(world) == {"hot": [], "cold": ["a", "c", "x"]} and world.embedded == ["x"]


@pytest.mark.requirement("A9", "I2")
@pytest.mark.parametrize("meanwhile", ["nothing", "edit", "delete", "rule", "back"])
@pytest.mark.parametrize("step", ["copied", "manifest", "removed"])
def test_a_move_killed_at_any_step_is_finished_by_repeating_it(step: str, meanwhile: str) -> None:
    world = World()
    world.apply(world.content(10, texts(*OLD)), world.rule(9, "group:eng"))
    world.kill_at = step
    with pytest.raises(Killed):
        world.flow.move(DOCUMENT, "cold", None)
        assert world.visible() == tuple(OLD)
        world.settle()
    assert world.visible() == tuple(OLD)
    world.restart()
    expected = OLD
    if meanwhile == "edit":
        world.apply(world.content(20, texts(*NEW)))
        expected = NEW
    elif meanwhile == "delete":
        world.apply(world.deleted(20), world.tombstone(20))
        expected = []
    elif meanwhile == "rule":
        world.apply(access=world.rule(20, "group:ops", content=10))
    elif meanwhile == "back":
        world.flow.move(DOCUMENT, "hot", None)
        world.settle()
    assert world.visible() == tuple(expected)
    world.flow.move(DOCUMENT, "cold", None)
    assert world.visible() == tuple(expected)
    world.settle()
    assert_settled(world, expected)
    assert held(world) == {"hot": [], "cold": sorted(expected)}
    if meanwhile == "rule":
        assert world.allow() == {("group:ops",)}


@pytest.mark.requirement("A9")
def test_a_document_with_a_chunk_that_stands_nowhere_is_not_moved() -> None:
    world = World()
    world.apply(world.content(10, texts(*OLD)))
    lost = stored(world).chunks[1].chunk_id
    world.store.tier("g1", "hot", "acme")[lost].vector = None
    done = world.flow.move(DOCUMENT, "cold", None)
    assert done.outcome == "refused" and "recheck" in (done.reason or "")
    assert stored(world).tier == "hot" and len(held(world)["hot"]) == 3


@pytest.mark.requirement("A9", "I2")
def test_copies_that_the_store_lost_before_the_removal_keep_the_originals() -> None:
    world = World()
    world.apply(world.content(10, texts(*OLD)))
    world.flow.move(DOCUMENT, "cold", None)
    world.store.tier("g1", "cold", "acme").popitem()
    world.settle()
    assert world.visible() == tuple(OLD)
    assert (stored(world).tier, stored(world).moving) == ("hot", None) and held(world)["hot"] == OLD
    world.flow.move(DOCUMENT, "cold", None)
    world.settle()
    assert held(world) == {"hot": [], "cold": OLD}


@pytest.mark.requirement("A9")
def test_only_a_changed_text_counts_as_a_change() -> None:
    world = World()
    world.clock.advance(1000)
    facts = SourceFacts(updated_at=500)
    world.apply(world.content(10, texts(*OLD)).model_copy(update={"source_facts": facts}), world.rule(9, "group:eng"))
    assert stored(world).changed_at == 500
    same = world.content(20, texts(*OLD)).model_copy(update={"source_facts": SourceFacts(updated_at=900)})
    world.apply(same.model_copy(update={"url": "http://moved"}))
    world.apply(access=world.rule(21, "group:ops", content=20))
    world.apply(same, force=True)
    world.flow.recheck(DOCUMENT, None)
    world.flow.move(DOCUMENT, "cold", None)
    world.settle()
    assert stored(world).changed_at == 500
    world.apply(world.content(30, texts("a", "b")).model_copy(update={"observed_at": 700}))
    assert stored(world).changed_at == 700


# ------------------------------------------------------------------ rechecks


def recheck(world: World) -> None:
    """What the consumer does with a recheck."""
    found = world.flow.recheck(DOCUMENT, None)
    if not found.whole and found.manifest is not None:
        change = Change(DOCUMENT, content=world.content(10, texts(*OLD)), content_offset=1, force=True)
        change.repair = None if found.damaged else found.broken
        prepared = world.flow.prepare(change)
        world.embed(prepared)
        world.flow.commit(prepared, None)
    elif found.access is not None:
        world.flow.commit(world.flow.prepare(Change(DOCUMENT, access=found.access)), None)


@pytest.mark.requirement("A8", "I1")
def test_a_recheck_removes_objects_that_no_filter_meets_when_they_are_named() -> None:
    world = World()
    world.apply(world.content(10, texts(*OLD)))
    manifest = stored(world)
    other = World(store=world.store)
    orphan = other.flow.prepare(Change(DOCUMENT, content=world.content(15, "z"), content_offset=2))
    other.embed(orphan)
    other.store.write_sections("g1", DOCUMENT, orphan.chunked.sections if orphan.chunked else ())
    other.flow.stage(orphan, orphan.add, None)
    chunk, section = orphan.add[0].chunk_id, orphan.manifest.sections[0]
    world.store.tier("g1", "hot", "acme")[chunk].properties["document"] = "met by no filter"
    world.store._kinds[(("records:g1", "acme"), section)] = ("section", "met by no filter")
    assert world.flow.recheck(DOCUMENT, None).removed == 0
    assert world.flow.recheck(DOCUMENT, None, chunks=[chunk], sections=[section]).removed == 1
    assert chunk not in world.store.tier("g1", "hot", "acme")
    assert world.store.read_sections("g1", "acme", [section]) == {}
    listed = [c.chunk_id for c in manifest.chunks]
    world.flow.recheck(DOCUMENT, None, chunks=listed, sections=list(manifest.sections))
    assert_settled(world, OLD)


@pytest.mark.requirement("A6", "I2")
@pytest.mark.parametrize("tier", ["hot", "cold"])
def test_a_lost_chunk_and_a_lost_section_are_written_again_and_nothing_else(tier: Tier) -> None:
    world = World() if tier == "hot" else cold(*OLD)
    if tier == "hot":
        world.apply(world.content(10, texts(*OLD)), world.rule(9, "group:eng"))
    world.embedded.clear()
    lost = stored(world).chunks[1].chunk_id
    del world.store.tier("g1", tier, "acme")[lost]
    assert world.flow.recheck(DOCUMENT, None).broken == {lost}
    recheck(world)
    assert world.embedded == ["b"] and world.visible() == tuple(OLD)
    assert held(world) == ({"hot": OLD, "cold": []} if tier == "hot" else {"hot": ["b"], "cold": ["a", "c"]})
    world.store.delete_sections("g1", "acme", [stored(world).sections[0]])
    assert world.flow.recheck(DOCUMENT, None).damaged
    recheck(world)
    world.settle()
    assert world.visible() == tuple(OLD) and world.embedded == ["b"]


@pytest.mark.requirement("I2")
def test_pages_that_are_lost_are_made_again() -> None:
    world = World(staged_above=2)
    world.apply(world.content(10, texts(*OLD)))
    manifest = stored(world)
    assert manifest.pages == 1
    world.store.delete_manifest_pages("g1", DOCUMENT, manifest.content_version, 1)
    found = world.flow.recheck(DOCUMENT, None)
    assert found.damaged and found.removed == 0 and len(held(world)["hot"]) == 3
    recheck(world)
    assert_settled(world, OLD)


@pytest.mark.requirement("I4")
def test_a_pre_filter_that_differs_is_set_to_what_the_rule_says() -> None:
    world = cold(*OLD)
    chunks = world.store.tier("g1", "cold", "acme")
    next(iter(chunks.values())).properties["allow"] = ["everyone"]
    recheck(world)
    assert world.allow() == {("group:eng",)}
    world.store.write_manifest("g1", stored(world).model_copy(update={"allow": ("group:other",)}))
    recheck(world)
    assert stored(world).allow == ("group:eng",) and world.allow() == {("group:eng",)}


@pytest.mark.requirement("A8", "I4", "I5")
def test_a_rule_that_the_index_lane_never_saw_is_taken_from_the_access_record() -> None:
    world = World()
    world.apply(world.content(10, texts(*OLD)), world.rule(9, "group:eng"))
    record = AccessRecord(document=DOCUMENT, version=20, content_version=10, rule=AccessRule.any_of("group:ops"))
    world.store.write_access("acme", [record])
    found = world.flow.recheck(DOCUMENT, None)
    assert isinstance(found.access, AccessSet)
    recheck(world)
    assert stored(world).seen_access_version == 20 and world.allow() == {("group:ops",)}
    assert world.flow.recheck(DOCUMENT, None).access is None
    world.store.write_access("acme", [record.model_copy(update={"version": 30, "tombstone": True, "not_before": 30})])
    tombstone = world.flow.recheck(DOCUMENT, None).access
    assert isinstance(tombstone, AccessTombstone) and tombstone.not_before == 30


@pytest.mark.requirement("A8", "F19", "I2")
def test_removals_that_a_stopped_process_left_are_finished() -> None:
    world = World()
    world.apply(world.content(10, texts(*OLD)))
    world.apply(world.content(20, texts(*NEW)))
    world.flow.move(DOCUMENT, "cold", None)
    world.restart()  # the times of removal were in the memory of the process
    world.clock.advance(6)
    assert world.flow.recheck(DOCUMENT, None).removed == 2
    assert_settled(world, NEW)
    assert held(world) == {"hot": [], "cold": NEW}

    chunks = dict(world.store.tier("g1", "cold", "acme"))
    world.apply(world.deleted(30))
    world.store.tier("g1", "cold", "acme").update(chunks)  # back after a restart of the store
    assert world.flow.recheck(DOCUMENT, None).removed == 2
    assert_settled(world, [])
