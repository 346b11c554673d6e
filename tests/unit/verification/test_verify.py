"""Faults of every kind, planted in one of two generations: each is found and named, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.operate.verification.shadow import ShadowClient
from schemas.api import SearchRequest, SearchResponse
from schemas.documents import Section
from schemas.topics import Topic
from schemas.verification import FAULTS, DocumentFault, VerificationReport
from tests.fakes.store import StoredChunk
from tests.unit.query.world import TENANT, anyone, ref
from tests.unit.verification.twins import NEW, OLD, Twins

NAMES = {document: ref(f"d{document}") for document in range(12)}


def faults(report: VerificationReport) -> dict[str, set[str]]:
    """Document ids (or uids) by fault."""
    found: dict[str, set[str]] = {}
    for one in report.coverage.findings:
        found.setdefault(one.fault, set()).add(one.document.id if one.document is not None else one.document_uid)
    return found


def kinds(report: VerificationReport) -> set[str]:
    """Kinds of access differences."""
    assert report.access is not None
    return {one.kind for one in report.access.differences}


@pytest.mark.requirement("A10", "I7", "C1")
def test_equal_generations_pass(twins: Twins) -> None:
    report = twins.verify()
    assert report.verdict.passed, report.verdict.failures
    (line,) = report.coverage.sources
    assert (line.documents, line.matched, line.chunks, line.faults) == (12, 12, 24, {})
    assert report.coverage.vectors_checked == 24
    assert report.access is not None and report.retrieval is not None
    seen = {s.principal: (s.here, s.there, s.chosen) for s in report.access.principals}
    assert seen["user:ann"][:2] == (12, 12) and seen["user:bob"][:2] == (8, 8) and seen["user:cid"][:2] == (4, 4)
    assert seen["user:dan"] == (0, 0, "removed")
    assert [s.here for s in report.access.principals if s.chosen == "unknown"] == [0]
    (queries,) = report.retrieval.sets
    assert queries.name == "known_item" and queries.queries == 12 and queries.overlap == 1.0
    assert queries.recall is not None and queries.recall.here == 1.0 and queries.recall.change == 0.0
    assert report.access.searches >= 2 * queries.queries


# ---------------------------------------------------------------- one fault, one name


def missing(twins: Twins) -> str:
    twins.put("late", "comes late", into=[OLD])
    return "late"


def stale(twins: Twins) -> str:
    document = NAMES[0]
    version = twins.version()
    record = twins.content(document, version, version)
    twins.change(document, OLD, content_version=version, content_offset=record.offset)
    return "d0"


def extra(twins: Twins) -> str:
    twins.stand(ref("ghost"), ["nobody wrote this"], anyone("group:wiki/boss"), NEW, 1, 1, 0)
    return "ghost"


def undead(twins: Twins) -> str:
    twins.delete(NAMES[1], into=[OLD])
    return "d1"


def thought_deleted(twins: Twins) -> str:
    twins.change(NAMES[0], deleted=True, chunks=(), sections=(), chunk_total=0)
    return "d0"


def undead_chunk(twins: Twins) -> str:
    before = twins.manifest(NAMES[1]).chunks[0].chunk_id
    chunk = twins.store.tier(NEW, "hot", TENANT)[before]
    twins.delete(NAMES[1])
    twins.store.tier(NEW, "hot", TENANT)[before] = chunk
    return "d1"


def undead_section(twins: Twins) -> str:
    twins.delete(NAMES[1])
    left = Section(section_id="0b6f8ad4-8a04-5d2b-9f0c-6b1d4c8a7e01", ordinal=0, heading_path=(), text="left")
    twins.store.write_sections(NEW, NAMES[1], [left])
    return "d1"


def wrong_rule(twins: Twins) -> str:
    twins.change(NAMES[2], seen_rule=anyone())
    return "d2"


def wrong_paired_rule(twins: Twins) -> str:
    twins.change(NAMES[2], rule=anyone())
    return "d2"


def wrong_prefilter(twins: Twins) -> str:
    twins.change(NAMES[3], allow=("group:wiki/eng",))
    return "d3"


def chunk_gone(twins: Twins) -> str:
    del twins.store.tier(NEW, "hot", TENANT)[twins.manifest(NAMES[4]).chunks[1].chunk_id]
    return "d4"


def chunk_without_vector(twins: Twins) -> str:
    twins.store.tier(NEW, "hot", TENANT)[twins.manifest(NAMES[5]).chunks[0].chunk_id].vector = None
    return "d5"


def chunk_for_others(twins: Twins) -> str:
    uid = twins.manifest(NAMES[6]).chunks[0].chunk_id
    twins.store.tier(NEW, "hot", TENANT)[uid].properties["allow"] = ["group:wiki/boss"]
    return "d6"


def stray_chunk(twins: Twins) -> str:
    manifest = twins.manifest(NAMES[7])
    twins.change(NAMES[7], chunks=manifest.chunks[:1], chunk_total=1)
    return "d7"


def section_gone(twins: Twins) -> str:
    twins.store.delete_sections(NEW, TENANT, twins.manifest(NAMES[8]).sections[:1])
    return "d8"


def stray_section(twins: Twins) -> str:
    twins.change(NAMES[9], sections=twins.manifest(NAMES[9]).sections[:1])
    return "d9"


FAULT_CASES: list[tuple[Callable[[Twins], str], DocumentFault]] = [
    (missing, "missing"), (stale, "stale"), (extra, "extra"), (undead, "undead"), (thought_deleted, "missing"),
    (undead_chunk, "undead"), (undead_section, "undead"), (wrong_rule, "unlike_rule"),
    (wrong_paired_rule, "unlike_rule"), (wrong_prefilter, "unlike_rule"), (chunk_gone, "chunk_missing"),
    (chunk_without_vector, "chunk_without_vector"),
    (chunk_for_others, "chunk_other_readers"), (stray_chunk, "chunk_stray"), (section_gone, "section_missing"),
    (stray_section, "section_stray"),
]  # fmt: skip


@pytest.mark.requirement("A10", "I2", "I3")
@pytest.mark.parametrize(("plant", "fault"), FAULT_CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_planted_fault_is_named(twins: Twins, plant: Callable[[Twins], str], fault: DocumentFault) -> None:
    name = plant(twins)
    report = twins.verify()
    found = faults(report)
    assert name in found[fault]
    assert set().union(*found.values()) == {name}  # nothing else is accused
    assert not report.verdict.passed
    assert any(FAULTS[fault] in line and name in line for line in report.verdict.failures), report.verdict.failures
    (line,) = report.coverage.sources
    assert line.faults[fault] == 1


@pytest.mark.requirement("A10")
def test_every_kind_of_fault_has_a_case() -> None:
    assert {fault for _, fault in FAULT_CASES} | {"unprocessable", "chunk_wrong_dimension"} == set(FAULTS)


@pytest.mark.requirement("A10")
def test_a_vector_of_another_dimension_is_named(tmp_path: Path) -> None:
    twins = Twins(tmp_path)  # without people, since no search can be made over such a vector
    document = twins.put("d0", "some text")
    place = twins.store.tier(NEW, "hot", TENANT)
    uid = twins.manifest(document).chunks[0].chunk_id
    place[uid] = StoredChunk(place[uid].properties, np.ones(3, dtype=np.float32))
    report = twins.verify()
    assert faults(report) == {"chunk_wrong_dimension": {"d0"}} and not report.verdict.passed
    assert any("nothing could be asked" in remark for remark in report.verdict.remarks)


# ---------------------------------------------------------------- what is no fault


@pytest.mark.requirement("A10", "I5")
def test_what_changed_after_the_ends_is_no_fault(twins: Twins) -> None:
    ends = twins.version()
    twins.change(NAMES[0], content_version=ends)  # newer than the log says: it was read a moment later
    twins.change(NAMES[0], OLD, content_version=ends)
    twins.delete(NAMES[1])
    report = twins.verify()
    assert report.verdict.passed, report.verdict.failures
    assert report.coverage.sources[0].deleted == 1


@pytest.mark.requirement("A10", "I3", "I5")
def test_a_document_that_one_generation_has_at_a_later_version_is_no_difference_of_permissions(twins: Twins) -> None:
    """Redacted after the ends: the other generation has it already, here the old text is hidden until it has."""
    document, version = NAMES[0], twins.version()
    twins.change(document, OLD, content_version=version)
    twins.access(document, anyone(), version=version, content_version=version, not_before=version)
    report = twins.verify()
    assert report.access is not None and report.access.differences == ()
    assert report.verdict.passed, report.verdict.failures


@pytest.mark.requirement("A10", "I2", "I5")
def test_what_is_being_written_while_it_is_looked_at_is_no_fault(twins: Twins) -> None:
    """Chunks stand before the manifest that lists them; the log behind the ends knows of the change."""
    new, version = ref("new"), twins.version()
    record = twins.content(new, version, version)
    twins.stand(new, ["being written"], anyone(), NEW, version, version, record.offset)
    twins.store._remove_records(NEW, TENANT, [new.uid])
    report = twins.verify(after=record)
    assert report.verdict.passed, report.verdict.failures
    assert twins.log.records[(record.topic, record.partition)].pop() == record  # without it, nobody knows of them
    assert faults(twins.verify()) == {"chunk_stray": {new.uid}, "section_stray": {new.uid}}


@pytest.mark.requirement("A10", "E1")
def test_what_was_erased_from_the_log_may_stand_nowhere(twins: Twins) -> None:
    twins.log.append(Topic.CONTENT, NAMES[0].key, None)
    assert faults(twins.verify()) == {"extra": {"d0"}}
    twins.change(NAMES[0], deleted=True, chunks=(), sections=(), chunk_total=0)
    assert faults(twins.verify()) == {"undead": {"d0"}}


@pytest.mark.requirement("A10", "I2")
def test_what_is_retiring_or_moving_is_no_fault(twins: Twins) -> None:
    from schemas.documents import Retiring

    manifest = twins.manifest(NAMES[7])
    gone = Retiring(chunk_ids=(manifest.chunks[1].chunk_id,), section_ids=(manifest.sections[1],), due=1)
    for generation in (OLD, NEW):
        cut = manifest.model_copy(update={"chunks": manifest.chunks[:1], "sections": manifest.sections[:1]})
        twins.change(NAMES[7], generation, chunks=cut.chunks, sections=cut.sections, retiring=(gone,), chunk_total=1)
    ids = [c.chunk_id for c in twins.manifest(NAMES[8]).chunks]
    twins.store.copy_chunks(NEW, TENANT, ids, source="hot", target="cold")
    twins.change(NAMES[8], tier="cold", moving="hot")
    assert twins.verify().verdict.passed


@pytest.mark.requirement("A10", "I8")
def test_what_neither_generation_can_process_is_excused_and_what_only_one_cannot_is_not(twins: Twins) -> None:
    both, record = twins.unprocessed("both")
    twins.letter(both, record.offset, NEW)
    gone, _ = twins.unprocessed("gone", claim=True)
    one = twins.put("one", "served by the old one", into=[OLD])
    twins.letter(one, twins.manifest(one, OLD).content_offset, NEW, parked=True)
    report = twins.verify()
    details = {f.document.id: f.detail for f in report.coverage.findings if f.document is not None}
    assert set(details) == {"both", "gone", "one"} == faults(report)["unprocessable"]
    assert "dead letter (extract, broken)" in details["both"] and "body is gone" in details["gone"]
    assert "parked" in details["one"] and gone.id == "gone"
    assert report.coverage.excused == 2
    (failure,) = report.verdict.failures
    assert "g1 serves 1 of them" in failure


@pytest.mark.requirement("A10", "I8")
def test_a_replayed_dead_letter_excuses_nothing(twins: Twins) -> None:
    document, record = twins.unprocessed("both")
    twins.letter(document, record.offset, NEW, settled="replayed", settled_at=2)
    assert faults(twins.verify()) == {"missing": {"both"}}


@pytest.mark.requirement("A10", "I11")
def test_a_generation_that_stays_behind_fails_and_its_pending_documents_are_not_called_missing(twins: Twins) -> None:
    late = twins.put("late", "comes late", into=[OLD])
    twins.applied()
    slot = next(r for records in twins.log.records.values() for r in records if r.key == late.key)
    twins.read_to("index", NEW, Topic.CONTENT, slot.partition, slot.offset)
    report = twins.verify()
    assert report.coverage.behind == 1 and report.coverage.sources[0].pending == 1
    assert "1 record before the log's end not applied by generation g2, content" in report.verdict.failures
    assert not faults(report)


# ---------------------------------------------------------------- permissions


@pytest.mark.requirement("A10", "I3", "I12")
def test_a_document_that_one_generation_shows_to_others_is_named_with_the_person(twins: Twins) -> None:
    document = NAMES[2]  # for the board
    record = twins.access(document, anyone(), content_version=twins.version())
    for generation, rule in ((OLD, anyone("group:wiki/boss")), (NEW, anyone())):
        # the record's rule is newer than both contents, so that the manifest's own decides
        twins.change(
            document, generation, rule=rule, seen_rule=record.rule, seen_access_version=record.version,
            seen_content_version=record.content_version, allow=("everyone",), allow2=("everyone",),
        )  # fmt: skip
    report = twins.verify()
    assert report.access is not None
    named = {(d.kind, d.principal) for d in report.access.differences if d.document == document}
    assert {("only_here", "user:bob"), ("only_here", "user:cid")} <= named
    assert any("seen here and not in g1" in f and "d2" in f for f in report.verdict.failures)


@pytest.mark.requirement("A10", "I3", "I4")
def test_a_document_that_a_stale_prefilter_hides_is_found_missing_by_searching(twins: Twins) -> None:
    twins.store.update_allow(NEW, TENANT, [c.chunk_id for c in twins.manifest(NAMES[0]).chunks], ["nobody"], ["nobody"])
    twins.change(NAMES[0], allow=("nobody",), allow2=("nobody",))
    report = twins.verify()
    assert "unreached_here" in kinds(report)
    assert any("cannot be found here" in f and "d0" in f for f in report.verdict.failures)


class Leaky(ShadowClient):
    """A query service that takes everybody for ann in the new generation."""

    def search(self, tenant: str, seen_as: str, generation: str, request: SearchRequest) -> SearchResponse:
        return super().search(tenant, "ann" if generation == NEW else seen_as, generation, request)


@pytest.mark.requirement("A10", "B1", "I3")
def test_a_hit_that_the_asker_may_not_read_is_an_exposure(twins: Twins) -> None:
    report = twins.verify(client=Leaky)
    assert report.access is not None and kinds(report) == {"exposed_here"}
    assert {d.principal for d in report.access.differences}.isdisjoint({"user:ann"})
    readable = {f"d{n}" for n in range(0, 12, 3)}  # for everyone who is still here
    shown = {d.document.id for d in report.access.differences if d.document and d.principal == "user:cid"}
    assert shown and not shown & readable
    assert any("that the person may not read" in failure for failure in report.verdict.failures)


# ---------------------------------------------------------------- retrieval


@pytest.mark.requirement("A10", "C1")
def test_ranking_that_falls_fails_and_overlap_is_only_reported(twins: Twins) -> None:
    hot = twins.store.tier(NEW, "hot", TENANT)
    decoy = twins.vector("number0")
    for n in range(12):  # every vector is the same, and the words are gone: nothing is found by meaning or by words
        for entry in twins.manifest(NAMES[n]).chunks:
            hot[entry.chunk_id] = StoredChunk({**hot[entry.chunk_id].properties, "lexical": "x"}, decoy)
    report = twins.verify()
    assert report.retrieval is not None
    (queries,) = report.retrieval.sets
    assert queries.ndcg is not None and queries.ndcg.change is not None and queries.ndcg.change < -0.1
    assert queries.overlap is not None and queries.overlap < 1
    assert [f for f in report.verdict.failures if "nDCG@10" in f and "fell from" in f]


@pytest.mark.requirement("A10", "C1")
def test_another_order_is_reported(twins: Twins) -> None:
    hot = twins.store.tier(NEW, "hot", TENANT)
    for n in range(12):
        first, second = (c.chunk_id for c in twins.manifest(NAMES[n]).chunks)
        hot[first].vector, hot[second].vector = twins.vector(f"other {n}"), twins.vector(f"words {n * 5 % 12}")
    report = twins.verify()
    assert report.retrieval is not None and report.retrieval.sets[0].reordered > 0
    assert any("in another order" in remark for remark in report.verdict.remarks)


@pytest.mark.requirement("A10")
def test_a_golden_set_is_asked_where_its_documents_are(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> None:
    questions = [
        {"id": "q1", "question": "first part", "user": "ann", "tenant": TENANT, "kind": "plain",
         "relevant": [{"document": "d0", "span": "stands in the first part", "grade": 3}]},
        {"id": "q2", "question": "elsewhere", "user": "ann", "tenant": TENANT, "kind": "plain",
         "relevant": [{"document": "absent", "span": "x", "grade": 1}]},
        {"id": "q3", "question": "of nobody", "user": "ann", "tenant": "other", "kind": "plain"},
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("golden") / "questions.jsonl"
    path.write_text("\n".join(json.dumps(q) for q in questions))
    generations = twins.settings.generations.model_copy(update={"golden": path})
    twins.settings = twins.settings.model_copy(update={"generations": generations})
    report = twins.verify()
    assert report.retrieval is not None
    golden = next(s for s in report.retrieval.sets if s.name == "golden")
    assert (golden.queries, golden.left_out) == (1, 1) and golden.outcomes[0].recall_here == 1.0
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"generations\.golden"):
        twins.verify()


# ---------------------------------------------------------------- the report


@pytest.mark.requirement("A10")
def test_the_first_generation_is_verified_alone(twins: Twins) -> None:
    report = twins.verify(generation=OLD)
    assert report.verdict.passed and report.against is None
    assert report.retrieval is not None and report.retrieval.sets[0].ndcg is not None
    assert report.retrieval.sets[0].ndcg.there is None and report.retrieval.latency_there is None


@pytest.mark.requirement("A10")
@pytest.mark.parametrize(("generation", "against", "field"), [("g9", None, "generation"), (NEW, "g9", "against"),
                                                              (NEW, NEW, "against")])  # fmt: skip
def test_names_that_are_none(twins: Twins, generation: str, against: str | None, field: str) -> None:
    with pytest.raises(ConfigError) as error:
        twins.verify(generation=generation, against=against)
    assert error.value.field == field


@pytest.mark.requirement("A10", "E1")
def test_the_report_is_stored_told_and_holds_no_text_of_documents(twins: Twins) -> None:
    chunk_gone(twins)
    report = twins.verify()
    (told,) = twins.told
    assert told == report.summary() and not told.passed and told.failures == report.verdict.failures
    folder = twins.settings.state_dir / told.path
    assert VerificationReport.model_validate_json((folder / "report.json").read_bytes()) == report
    page = (folder / "report.html").read_text()
    assert "Failed" in page and "<svg" in page and "d4" in page
    assert not any(link in page for link in ("<script", "<link", "src=", "@import", "url("))
    for text in (page, (folder / "report.json").read_text()):
        assert "stands in the first part" not in text and "Title of" not in text


@pytest.mark.requirement("A10", "B1")
def test_names_are_escaped_on_the_page(twins: Twins) -> None:
    twins.put("<script>alert(1)</script>", "evil", into=[OLD])
    report = twins.verify()
    page = (twins.settings.state_dir / report.path / "report.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page


@pytest.mark.requirement("A10")
def test_a_repetition_looks_at_the_same_people_and_documents(twins: Twins) -> None:
    first, second = twins.verify(), twins.verify()
    assert first.access is not None and second.access is not None
    assert first.access.principals == second.access.principals
    assert first.retrieval is not None and second.retrieval is not None
    named = [[o.query for o in r.sets[0].outcomes] for r in (first.retrieval, second.retrieval)]
    assert named[0] == named[1]
