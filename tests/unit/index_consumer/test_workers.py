"""The index lane's threads: the four verbs, priorities, dead letters, parking, rechecks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest

from consumers.index import IndexLane
from pipeline.errors import Crash, DocumentError, EncoderUnavailable
from pipeline.settings import IndexSettings
from schemas.access import AccessRule
from schemas.documents import AccessRecord
from schemas.events import ClaimCheck
from schemas.topics import Topic
from tests.fakes.store import StoredChunk
from tests.unit.index_consumer.worker_world import WorkerWorld, doc


@pytest.fixture
def world() -> Iterator[WorkerWorld]:
    made = WorkerWorld()
    yield made
    made.close()


@pytest.mark.requirement("A1", "A11")
def test_a_page_becomes_chunks_with_a_receipt_that_times_each_stage(world: WorkerWorld) -> None:
    world.rule("a", 9, "group:eng")
    world.page("a", 10, "one\n\ntwo", access=9)
    world.settle()
    assert world.texts("a") == {"one", "two"}
    receipt = next(r for r in world.log.receipts() if r.event_type == "content.upserted")
    times = receipt.times
    assert receipt.outcome == "indexed" and receipt.chunks_total == receipt.chunks_embedded == 2
    stages = [times.appended_at, times.received_at, times.started_at, times.extracted_at, times.embedded_at]
    moments = [*stages, times.visible_at]
    assert all(m is not None for m in moments)
    assert moments == sorted(moments)  # type: ignore[type-var]


@pytest.mark.requirement("I13")
def test_a_live_edit_waits_for_one_slice_of_bulk_only() -> None:
    world = WorkerWorld(encode_s=0.02)
    try:
        for i in range(30):
            world.page(f"bulk{i}", 10, "\n\n".join(f"bulk {i} {j}" for j in range(10)), bulk=True)
        world.until(lambda: len(world.encoder.slices) > 3)
        world.page("edited", 11, "live text")
        started = len(world.encoder.slices)
        world.until(lambda: any("live text" in s for s in world.encoder.slices))
        at = next(i for i, s in enumerate(world.encoder.slices) if "live text" in s)
        assert at - started <= 2
        assert world.encoder.slices[at] == ["live text"]
    finally:
        world.close()


@pytest.mark.requirement("I13")
def test_events_of_a_document_in_the_window_are_worked_off_as_one() -> None:
    world = WorkerWorld(encode_s=0.05)
    try:
        world.page("block", 1, "x", bulk=True)
        for version in range(10, 20):
            world.page("a", version, f"text {version}", bulk=True)
        world.settle()
        assert world.texts("a") == {"text 19"}
        assert world.outcomes("a").count("indexed") <= 2
        assert len(world.outcomes("a")) == 10
    finally:
        world.close()


@pytest.mark.requirement("I9")
def test_content_waits_for_the_access_event_that_it_demands(world: WorkerWorld) -> None:
    world.page("a", 10, "one", access=9)
    world.page("b", 10, "other")
    world.until(lambda: world.texts("b") == {"other"})
    assert world.manifest("a") is None
    world.rule("a", 9, "group:eng")
    world.settle()
    manifest = world.manifest("a")
    assert manifest is not None and manifest.allow == ("group:eng",)


@pytest.mark.requirement("I8", "F20", "F06")
def test_one_bad_document_becomes_a_dead_letter_and_its_neighbours_go_on(world: WorkerWorld) -> None:
    def refuse(texts: Sequence[str]) -> None:
        if any("poison" in t for t in texts):
            raise DocumentError("the text cannot be embedded", stage="embed", kind="refused")

    world.encoder.fail = refuse
    world.page("a", 10, "good one")
    world.rule("bad", 9, "group:eng")
    world.page("bad", 10, "poison", access=9)
    world.page("b", 10, "good two")
    world.settle()
    assert (world.texts("a"), world.texts("b")) == ({"good one"}, {"good two"})
    letter = world.log.letters()[0]
    assert (letter.stage, letter.error_kind, letter.attempts, letter.document) == ("embed", "refused", 3, doc("bad"))
    assert letter.coordinates.topic == "content" and b"poison" not in letter.model_dump_json().encode()
    assert "dead_letter" in world.outcomes("bad")
    manifest = world.manifest("bad")
    assert manifest is not None and manifest.seen_rule.prefilter()[0] == ["group:eng"]


@pytest.mark.requirement("I8", "F20")
def test_records_that_are_not_understood_become_dead_letters_at_once(world: WorkerWorld) -> None:
    world.page("a", 10, "good one")
    world.put_raw(Topic.CONTENT, doc("x").key, b"\xff\xfe not json")
    world.put_raw(Topic.CONTENT, None, b"{}")
    world.put_raw(Topic.MAINTENANCE, doc("x").key, b"[]")
    world.page("b", 10, "good two")
    world.settle()
    assert world.texts("b") == {"good two"}
    assert sorted(letter.stage for letter in world.log.letters()) == ["decode"] * 3


@pytest.mark.requirement("I8", "A8")
def test_a_deletion_that_is_not_understood_still_removes_the_document(world: WorkerWorld) -> None:
    world.page("a", 10, "secret")
    world.settle()
    world.put_raw(Topic.CONTENT, doc("a").key, b'{"type":"deleted","version":20,"document":"broken"}')
    world.settle()
    manifest = world.manifest("a")
    assert manifest is not None and manifest.deleted
    assert world.store.chunk_ids_of("g1", doc("a"))["hot"] == set()
    assert len(world.log.letters()) == 1


@pytest.mark.requirement("I12")
def test_an_access_event_that_is_not_understood_closes_the_prefilter(world: WorkerWorld) -> None:
    world.rule("a", 9, "everyone")
    world.page("a", 10, "one", access=9)
    world.settle()
    world.put_raw(Topic.ACCESS, doc("a").key, b'{"type":"rule","version":20,"new_field":1}')
    world.settle()
    manifest = world.manifest("a")
    assert manifest is not None and manifest.allow == ("nobody",) and manifest.seen_access_version == 20


@pytest.mark.requirement("I8")
def test_a_store_that_is_away_holds_everything_and_loses_nothing(world: WorkerWorld) -> None:
    world.store.fail_next("*", 12)
    for i in range(5):
        world.page(f"p{i}", 10, f"text {i}")
    world.settle(20)
    assert [world.texts(f"p{i}") for i in range(5)] == [{f"text {i}"} for i in range(5)]
    assert world.log.letters() == []


@pytest.mark.requirement("I8")
def test_an_encoder_that_is_away_is_not_poison(world: WorkerWorld) -> None:
    calls = 0

    def away(texts: Sequence[str]) -> None:
        nonlocal calls
        calls += 1
        if calls < 6:
            raise EncoderUnavailable("no answer")

    world.encoder.fail = away
    world.page("a", 10, "one")
    world.settle()
    assert world.texts("a") == {"one"} and world.log.letters() == []


@pytest.mark.requirement("I2", "I8")
def test_a_record_is_not_done_before_its_receipt_is_acknowledged(world: WorkerWorld) -> None:
    world.log.down = True
    world.page("a", 10, "one")
    world.until(lambda: world.texts("a") == {"one"})
    assert world.assignment.watermark("content") == 0
    world.log.down = False
    world.settle()
    assert world.outcomes("a") == ["indexed"]


@pytest.mark.requirement("I8")
def test_a_missing_body_gets_its_receipt_and_holds_nobody(world: WorkerWorld) -> None:
    world.page("a", 10, "", body=ClaimCheck(path="gone", size=3, sha256="0" * 64))
    world.page("b", 10, "two")
    world.settle()
    assert world.outcomes("a") == ["body_gone"] and world.texts("b") == {"two"}
    assert world.log.letters() == []


@pytest.mark.requirement("I8")
def test_a_source_that_mostly_fails_is_parked_and_deletions_pass_all_the_same() -> None:
    world = WorkerWorld(index=IndexSettings(query_deadline_s=0.1, attempts=1, park_minimum=5, park_window=10))
    try:
        world.encoder.fail = _refuse_bad
        world.page("bad/keep", 1, "fine")
        world.settle()
        for i in range(12):
            world.page(f"bad/p{i}", 10, f"bad {i}")
            world.settle()
        world.page("good/a", 10, "fine")
        world.gone("bad/keep", 20)
        world.settle()
        assert world.lane._parking.parked() == [("acme", "bad")]
        assert any(letter.parked for letter in world.log.letters())
        assert world.texts("good/a") == {"fine"}
        manifest = world.manifest("bad/keep")
        assert manifest is not None and manifest.deleted
    finally:
        world.close()


@pytest.mark.requirement("I8")
def test_several_sources_that_fail_alike_stop_the_process() -> None:
    world = WorkerWorld(index=IndexSettings(attempts=1, park_minimum=3, park_window=10, stop_sources=2))
    try:
        world.encoder.fail = _refuse_bad
        for source in ("one", "two"):
            for i in range(4):
                world.page(f"{source}/p{i}", 10, f"bad {source} {i}")
        with pytest.raises(Crash, match="several sources"):
            world.until(lambda: False, 5)
    finally:
        world.close()


def _refuse_bad(texts: Sequence[str]) -> None:
    if any(t.startswith("bad") for t in texts):
        raise DocumentError("refused", stage="embed", kind="refused")


@pytest.mark.requirement("I2")
def test_a_dead_letters_replay_processes_the_recorded_offset_again(world: WorkerWorld) -> None:
    world.encoder.fail = _refuse_bad
    offset = world.page("a", 10, "bad text")
    world.settle()
    assert world.texts("a") == set()
    world.encoder.fail = lambda texts: None
    world.command("a", "reprocess", offset=offset)
    world.settle()
    assert world.texts("a") == {"bad text"}


@pytest.mark.requirement("I8", "F20")
def test_a_replay_that_fails_again_speaks_of_the_same_coordinates(world: WorkerWorld) -> None:
    def refuse(texts: Sequence[str]) -> None:
        raise DocumentError("the text cannot be embedded", stage="embed", kind="refused")

    world.encoder.fail = refuse
    offset = world.page("a", 10, "first")
    world.settle()
    world.command("a", "reprocess", offset=offset)
    world.settle()
    first, second = world.log.letters()
    assert first.coordinates == second.coordinates and second.coordinates.offset == offset
    assert world.log.receipts()[-1].outcome == "dead_letter"


@pytest.mark.requirement("I8")
def test_a_command_for_another_generation_is_no_letter_of_this_one(world: WorkerWorld) -> None:
    def refuse(texts: Sequence[str]) -> None:
        raise DocumentError("the text cannot be embedded", stage="embed", kind="refused")

    world.encoder.fail = refuse
    world.page("block", 9, "x", bulk=True)
    offset = world.page("a", 10, "first")
    for generation in ("g1", "g2"):
        world.command("a", "reprocess", offset=offset, generation=generation)
    world.settle()
    letters = [x for x in world.log.letters() if x.document == doc("a")]
    assert {x.coordinates.offset for x in letters} == {offset}
    assert len(letters) == 2  # the event, and its replay here


@pytest.mark.requirement("I8")
def test_a_replay_whose_event_or_body_is_gone_says_so(world: WorkerWorld) -> None:
    world.command("a", "reprocess", offset=77)
    body = ClaimCheck(path="acme/wiki/x/1", size=3, sha256="0" * 64)
    offset = world.page("b", 10, "", body=body)
    world.settle()
    world.command("b", "reprocess", offset=offset)
    world.settle()
    told = [(r.document, r.outcome) for r in world.log.receipts() if r.event_type == "maintenance.reprocess"]
    assert told == [(doc("a"), "refused"), (doc("b"), "body_gone")]


@pytest.mark.requirement("I5", "A8")
def test_a_replay_cannot_bring_back_what_was_deleted_since(world: WorkerWorld) -> None:
    world.encoder.fail = _refuse_bad
    offset = world.page("a", 10, "bad text")
    world.gone("a", 20)
    world.settle()
    world.encoder.fail = lambda texts: None
    world.command("a", "reprocess", offset=offset)
    world.settle()
    manifest = world.manifest("a")
    assert world.texts("a") == set() and manifest is not None and manifest.deleted


@pytest.mark.requirement("I1")
def test_a_write_that_ends_after_the_lease_asks_for_a_recheck_first(world: WorkerWorld) -> None:
    def stopped_between_check_and_send() -> None:
        world.hook = None
        world.confirmed = world.clock.elapsed() - 60  # the clock ran on while the process stood still

    world.hook = stopped_between_check_and_send
    world.page("a", 10, "one")
    world.until(lambda: world.rechecks.owed() == [doc("a").key])
    world.rechecks.settle()
    sent = [r for r in world.log.records if r.topic == Topic.MAINTENANCE]
    assert [r.key for r in sent] == [doc("a").key]
    assert world.assignment.watermark("content") == 0


@pytest.mark.requirement("I1")
def test_a_recheck_restores_what_a_late_writer_overwrote(world: WorkerWorld) -> None:
    world.page("a", 10, "old")
    world.settle()
    old = world.manifest("a")
    world.page("a", 20, "new")
    world.settle()
    assert old is not None
    world.store.write_manifest("g1", old)  # the late write of a stopped process
    world.command("a", "recheck")
    world.settle()
    assert world.texts("a") == {"new"}
    assert "rechecked" in world.outcomes("a")


@pytest.mark.requirement("A6", "A8", "I1")
def test_a_recheck_writes_only_what_is_lost_and_follows_the_access_record(world: WorkerWorld) -> None:
    world.rule("p", 9, "group:eng")
    world.page("p", 10, "one\n\ntwo", access=9)
    world.settle()
    manifest = world.manifest("p")
    assert manifest is not None
    hot = world.store.tier("g1", "hot", "acme")
    lost, kept = manifest.chunks[0].chunk_id, hot[manifest.chunks[1].chunk_id]
    del hot[lost]
    orphan = str(uuid4())
    hot[orphan] = StoredChunk(kept.properties | {"document": "met by no filter"}, kept.vector)
    rule = AccessRule.any_of("group:ops")
    world.store.write_access("acme", [AccessRecord(document=doc("p"), version=20, content_version=10, rule=rule)])
    before = len(world.encoder.slices)
    world.command("p", "recheck", chunk_ids=(orphan,))
    world.settle()
    assert world.texts("p") == {"one", "two"} and orphan not in hot
    assert world.encoder.slices[before:] == [["one"]]
    assert [call.ids for call in world.store.trace if call.op == "insert_chunks"][-1] == (lost,)
    assert {tuple(c.properties["allow"]) for c in hot.values()} == {("group:ops",)}  # type: ignore[arg-type]
    assert world.outcomes("p")[-1] == "rechecked"


@pytest.mark.requirement("A9")
def test_a_move_command_carries_a_document_to_the_cold_tier(world: WorkerWorld) -> None:
    world.page("a", 10, "one\n\ntwo")
    world.settle()
    world.command("a", "move", tier="cold")
    world.until(lambda: world.store.chunk_ids_of("g1", doc("a"))["hot"] == set())
    assert len(world.store.chunk_ids_of("g1", doc("a"))["cold"]) == 2
    assert world.texts("a") == {"one", "two"}


@pytest.mark.requirement("I1")
def test_given_up_partitions_are_drained_and_write_no_more(world: WorkerWorld) -> None:
    lane: IndexLane = world.lane
    world.encoder.seconds = 0.2
    for i in range(6):
        world.page(f"p{i}", 10, f"text {i}")
    world.until(lambda: len(world.encoder.slices) > 0)
    assert lane.drain([world.assignment], 10)
    watermark = world.assignment.watermark("content")
    world.assignment.lease.give_up()
    world.assignment.closed = True
    lane.closed(world.assignment)
    before = len(world.store.trace)
    world.encoder.seconds = 0
    assert 0 < watermark <= 6
    assert len(world.store.trace) == before
