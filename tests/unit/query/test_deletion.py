"""The proof of a deletion: what it looks at, what it names, and who may ask."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.operate.deletion import Absent, NotDeleted, Place, Prover
from pipeline.operate.deletion_log import Copy, OnLog
from query_service.app import Dependencies
from query_service.deletion import Deletions, Proofs
from query_service.encoders import Encoders
from schemas.access import AccessRule
from schemas.deletion import DeletionPlace, DeletionResponse
from schemas.documents import Manifest, Section
from schemas.events import AccessTombstone
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.unit.query.world import GENERATION, TENANT, World, ref

pytestmark = pytest.mark.anyio
DOC = ref("plans/secret.md")
HOUR = 3_600_000


class OneLog:
    """What the log says of every document, and how its topics are set."""

    def __init__(self) -> None:
        self.seen = OnLog()
        self.topics: dict[Topic, dict[str, str]] = {
            Topic.CONTENT: {"max.compaction.lag.ms": str(24 * HOUR), "segment.ms": str(6 * HOUR)},
            Topic.DEAD_LETTER: {"retention.ms": str(720 * HOUR), "segment.ms": str(24 * HOUR)},
            Topic.ACCESS: {"delete.retention.ms": str(2160 * HOUR)},
        }

    def of(self, document: DocumentRef) -> OnLog:
        return self.seen

    def configuration(self) -> Mapping[Topic, Mapping[str, str]]:
        return self.topics


class Folder:
    """Paths of bodies."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def of_document(self, document: DocumentRef) -> list[str]:
        return [path for path in self.paths if f"/{document.uid}/" in path]


class Deleted(World):
    """A document in an active and a building generation, deleted from both."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.settings = self.settings.model_copy(update={"state_dir": tmp_path})
        self.on_log, self.folder = OneLog(), Folder()
        self.generation("next")
        for generation in (GENERATION, "next"):
            made = self.document(DOC, "the pelican plan", "its appendix", generation=generation)
            self.store.delete_chunks(generation, TENANT, [c.chunk_id for c in made.chunks])
            self.store.delete_sections(generation, TENANT, made.sections)
            self.store.write_manifest(generation, gone(made))
        self.deleted_at = self.clock.now()
        self.access(
            DOC, AccessRule.nobody("deleted"), version=self.deleted_at, tombstone=True, written_at=self.deleted_at
        )

    def prover(self, *more: Place) -> Prover:
        return Prover(
            self.settings, self.store, log=self.on_log, bodies=self.folder, clock=self.clock,
            embed=lambda generation, text: self.vector(text), more=more,
        )  # fmt: skip

    def prove(self, thorough: bool = False) -> DeletionResponse:
        return self.prover().prove(TENANT, DOC.uid, thorough=thorough)

    def dependencies(self) -> Dependencies:
        return replace(
            super().dependencies(), open_proofs=lambda embed, caches: Proofs(self.prover(*caches), self.store.close)
        )


def gone(manifest: Manifest) -> Manifest:
    return manifest.model_copy(
        update={"deleted": True, "title": "", "url": None, "path": None, "chunks": (), "sections": (), "chunk_total": 0}
    )


def left(found: DeletionResponse) -> dict[tuple[str, str], int]:
    return {(p.place, p.method): p.found for p in found.places if not p.clean}


@pytest.fixture
def world(tmp_path: Path) -> Deleted:
    return Deleted(tmp_path)


@pytest.mark.requirement("A8", "F01")
async def test_a_deleted_document_is_looked_for_in_every_place_and_is_in_none(world: Deleted) -> None:
    found = world.prove(thorough=True)
    assert (found.standing, found.clean_by, left(found)) == ("clean", None, {})
    assert (found.document_id, found.deleted_at) == (DOC.id, world.deleted_at)
    assert found.tombstone_until == world.deleted_at + 2160 * HOUR * 1000
    for generation in (GENERATION, "next"):
        for tier in ("hot", "cold"):
            methods = {p.method for p in found.places if p.place == f"{generation}/{tier}"}
            assert methods == {"by id", "by keyword", "by vector", "every object read"}
        assert {f"{generation}/sections", f"{generation}/manifest"} <= {p.place for p in found.places}
    others = {"claim checks", "query log", "log/content", "dead letters", "backups"}
    assert others <= {p.place for p in found.places}


def stray(world: Deleted, generation: str) -> None:
    made = world.document(DOC, "the pelican plan", generation=generation, tier="cold", record=False)
    world.store.delete_sections(generation, TENANT, made.sections)
    world.store.write_manifest(generation, gone(made))


@pytest.mark.requirement("A8", "F01")
async def test_a_chunk_left_in_a_building_generation_is_named_by_all_three_searches(world: Deleted) -> None:
    world.on_log.seen = OnLog((Copy(1, 5, "Plan", "the pelican plan"),), ended_at=1)
    stray(world, "next")
    found = world.prove()
    at_once = {p.method for p in found.places if not p.clean and not p.empties_itself}
    assert found.standing == "left" and at_once == {"by id", "by keyword", "by vector"}
    assert {p.place for p in found.places if not p.clean and not p.empties_itself} == {"next/cold"}


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("place", ["g1/sections", "next/manifest", "claim checks", "query log"])
async def test_each_thing_left_behind_is_named_by_its_place(world: Deleted, place: str) -> None:
    if place == "g1/sections":
        section = Section(section_id=DOC.uid[:-1] + "0", ordinal=0, heading_path=(), text="appendix")
        world.store.write_sections("g1", DOC, [section])
    elif place == "next/manifest":
        manifest = world.store.read_manifests("next", TENANT, [DOC.uid])[DOC.uid]
        world.store.write_manifest("next", manifest.model_copy(update={"title": "Plan"}))
    elif place == "claim checks":
        world.folder.paths = [f"acme/wiki/{DOC.uid}/17.abc.part", f"acme/wiki/{ref('other').uid}/3"]
    else:
        log_query(world, world.deleted_at + 60_000_000)
    found = world.prove()
    assert found.standing == "left" and found.clean_by is None
    assert {p.place: p.found for p in found.places if not p.clean} == {place: 1}


def log_query(world: Deleted, at: int) -> None:
    path = world.settings.state_dir / "logs" / "query.log"
    path.parent.mkdir(exist_ok=True)
    stamp = datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    line = {"time": stamp, "message": "query", "hits": [["c1", ref("x").uid, 0.1], ["c2", DOC.uid, 0.1]]}
    with path.open("a") as file:
        file.write(f"--- starting\n{json.dumps(line)}\n{json.dumps({'message': DOC.uid})}\n")


@pytest.mark.requirement("A8")
async def test_lines_of_the_query_log_from_before_the_deletion_are_told_but_are_no_fault(world: Deleted) -> None:
    log_query(world, world.deleted_at - 60_000_000)
    (place,) = [p for p in world.prove().places if p.place == "query log"]
    assert place.clean and place.note is not None and place.note.startswith("1 lines")


@pytest.mark.requirement("A8")
async def test_places_that_empty_by_themselves_say_by_when(world: Deleted) -> None:
    at = world.deleted_at
    world.on_log.seen = OnLog((Copy(at - 9, 5, "Plan", "pelican"),), ended_at=at, letters=(at - 9_000,))
    retention = world.settings.retention.model_copy(update={"backup_days": 40.0})
    world.settings = world.settings.model_copy(update={"retention": retention})
    found = world.prove()
    by = {p.place: p.clean_by for p in found.places if not p.clean}
    assert by["log/content"] == at + 30 * HOUR * 1000 + 60_000_000
    assert by["dead letters"] == at - 9_000 + 744 * HOUR * 1000
    assert by["backups"] == at + 40 * 24 * HOUR * 1000
    assert (found.standing, found.clean_by) == ("bounded", by["backups"])
    world.on_log.topics[Topic.CONTENT]["max.compaction.lag.ms"] = str(2**63 - 1)
    assert world.prove().clean_by is None  # the broker never compacts: nobody can say when


@pytest.mark.requirement("A8")
async def test_what_is_not_deleted_or_was_never_there_is_no_proof(world: Deleted) -> None:
    world.access(ref("held"), holds={"quarantine": 5})
    world.access(ref("alive"))
    with pytest.raises(NotDeleted, match="hidden by a hold"):
        world.prover().prove(TENANT, ref("held").uid)
    with pytest.raises(NotDeleted, match="it is not deleted"):
        world.prover().prove(TENANT, ref("alive").uid)
    with pytest.raises(Absent):
        world.prover().prove("other", DOC.uid)


@pytest.mark.requirement("A8", "F25")
async def test_only_operators_of_the_tenant_learn_anything(world: Deleted) -> None:
    world.principal("user:ann")
    world.access(ref("alive"))
    async with world.running() as running:
        path = f"/v1/documents/{DOC.uid}/deletion"
        roles: dict[str, Any] = {"roles": ["operator"]}
        answer = await running.get(path, **roles)
        assert answer.status_code == 200 and answer.json()["standing"] == "clean"
        assert "caches of the query service" in {p["place"] for p in answer.json()["places"]}
        nothing = await running.get(f"/v1/documents/{ref('never').uid}/deletion", **roles)
        for refused in (
            await running.get(path),
            await running.get(path, roles=["reader"]),
            await running.get(path, tenant="globex", **roles),
            await running.get("/v1/documents/not-an-id/deletion", **roles),
        ):
            assert (refused.status_code, refused.content) == (404, nothing.content)
        assert (await running.client.get(path)).status_code == 401
        alive = await running.get(f"/v1/documents/{ref('alive').uid}/deletion", **roles)
        assert alive.status_code == 409 and "not deleted" in alive.json()["detail"]


class _Remembering:
    """A reader that keeps records, as the real one does."""

    def __init__(self, kept: list[Any]) -> None:
        self.kept = kept

    def remembered(self, uid: str) -> list[Any]:
        return self.kept

    def forget_document(self, uid: str) -> None:
        self.kept = []


@pytest.mark.requirement("A8")
async def test_records_that_a_query_service_still_remembers_are_counted_once_and_dropped(world: Deleted) -> None:
    kept = world.document(ref("old"), "text", record=False)
    opened: list[Place] = []
    reader: Any = _Remembering([kept, gone(kept)])
    encoders = Encoders(world.load_encoder)
    deletions = Deletions(lambda embed, caches: _opened(world, caches, opened), reader, encoders, world.clock)
    first = await deletions.prove(TENANT, DOC.uid, False)
    assert _cache(first).found == 1 and first.standing == "left"
    assert _cache(await deletions.prove(TENANT, DOC.uid, False)).clean and len(opened) == 1


def _opened(world: Deleted, caches: Sequence[Place], opened: list[Place]) -> Proofs:
    opened.extend(caches)
    return Proofs(world.prover(*caches), lambda: None)


def _cache(found: DeletionResponse) -> DeletionPlace:
    return next(p for p in found.places if p.place.startswith("caches"))


@pytest.mark.requirement("A8")
async def test_a_tombstone_on_the_log_empties_the_cache_of_parsed_records(world: Deleted) -> None:
    dropped: list[str] = []
    async with world.running() as running:
        running.parts.overlay.on_deletion(dropped.append)
        event = AccessTombstone(
            document=ref("late"), version=world.version(), not_before=1, observed_at=world.clock.now()
        )
        world.log.event(event, at=world.clock.now())
        await running.until(lambda: dropped == [ref("late").uid])


@pytest.mark.requirement("A8")
async def test_parsed_records_keep_one_text_a_record() -> None:
    from pipeline.index.parsed import Parsed

    parsed = Parsed(2)
    manifest = Manifest(document=DOC, rule=AccessRule.nobody("x"), seen_rule=AccessRule.nobody("x"), title="Secret")
    old, new = manifest.model_dump_json(), gone(manifest).model_dump_json()
    first = parsed.get(Manifest, "records", DOC.uid, old)
    assert parsed.get(Manifest, "records", DOC.uid, old) is first
    assert parsed.get(Manifest, "records", DOC.uid, new).title == ""
    assert [m.title for m in parsed.remembered(DOC.uid) if isinstance(m, Manifest)] == [""]
    parsed.forget(DOC.uid)
    assert parsed.remembered(DOC.uid) == []
    for name in ("a", "b", "c"):
        parsed.get(Manifest, "records", name, old)
    assert (parsed.remembered("a"), len(parsed.remembered("c"))) == ([], 1)
