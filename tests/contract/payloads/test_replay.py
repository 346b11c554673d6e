"""Each golden payload through the real handlers: what an old event means today is what it meant when it was written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumers.owner_engine import OwnerEngine
from pipeline.bus.instances import living
from pipeline.clock import ManualClock
from pipeline.observe import Metrics
from pipeline.ports import Record
from pipeline.settings_query import QueryLogSettings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.folder.source import FolderSource
from pipeline.sources.ledger import Ledger
from query_service.overlay import Overlay
from query_service.querylog.view import QueryView, Wanted
from query_service.receipts import ReceiptStore
from schemas.access import Closure
from schemas.events import SourceRequest
from schemas.generation import EncoderSpec
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.reconciliation import ReconciliationReport
from schemas.topics import Topic
from tests.contract.payloads.replay_world import GOLDEN, LONG_BODY, ReplayWorld, golden, key_of, raw
from tests.unit.owner.support import MemoryBodies, MemoryLog, MemoryOwnerLog

PAGE = DocumentRef(tenant="acme", source="handbook", id="people/leave.md")
TICKET = DocumentRef(tenant="acme", source="tickets", kind="issue", id="4711")
REPORT = DocumentRef(tenant="globex", source="gateway", kind="file", id="2026/report.txt")
T = 1_772_438_400_000_000


@pytest.fixture
def world() -> Iterator[ReplayWorld]:
    world = ReplayWorld()
    yield world
    world.close()


def names(topic: Topic) -> list[str]:
    return sorted(f.stem for f in (GOLDEN / topic / "v1").glob("*.json"))


# ---------------------------------------------------------------- access


@pytest.mark.requirement("I12", "I4")
@pytest.mark.parametrize("name", [n for n in names(Topic.ACCESS) if n.startswith("rule")])
def test_a_rule_becomes_the_record_that_admission_reads(world: ReplayWorld, name: str) -> None:
    event = world.replay(Topic.ACCESS, name)
    record = world.access(event.document)
    assert record.document == event.document
    assert (record.version, record.content_version) == (event.version, event.content_version)
    assert record.not_before == event.not_before
    assert record.rule == event.rule
    assert not record.tombstone
    assert record.holds == {}
    (receipt,) = [r for r in world.receipts() if r.lane == "access"]
    assert (receipt.outcome, receipt.version, receipt.document) == ("applied", event.version, event.document)
    assert (receipt.event_type, receipt.priority) == ("rule", event.priority)
    assert world.letters() == []


@pytest.mark.requirement("I12")
def test_the_golden_rule_lets_in_whom_it_names(world: ReplayWorld) -> None:
    event = world.replay(Topic.ACCESS, "rule")
    rule = world.access(event.document).rule
    inside = {"user:ann", "audience:handbook/", "audience:handbook/people"}
    assert rule.admits(Closure(principals=frozenset(inside)), T)
    assert not rule.admits(Closure(principals=frozenset(inside - {"audience:handbook/"})), T)
    assert not rule.admits(Closure(principals=frozenset(inside | {"audience:handbook/people#deny"})), T)


@pytest.mark.requirement("I5", "F01")
@pytest.mark.parametrize("name", ["tombstone", "tombstone-minimal"])
def test_a_tombstone_hides_and_keeps_old_content_out(world: ReplayWorld, name: str) -> None:
    if name == "tombstone":
        world.replay(Topic.ACCESS, "rule")
    event = world.replay(Topic.ACCESS, name)
    record = world.access(event.document)
    assert record.tombstone
    assert (record.version, record.not_before) == (event.version, event.not_before)
    assert not record.rule.admits(Closure(principals=frozenset({"user:ann", "everyone"})), T)
    world.replay(Topic.ACCESS, "rule")  # an older event, late
    assert world.access(event.document).tombstone or name != "tombstone"


@pytest.mark.requirement("I5")
def test_a_redaction_keeps_not_before_over_later_rules(world: ReplayWorld) -> None:
    event = world.replay(Topic.ACCESS, "rule-redaction")
    assert world.access(TICKET).not_before == event.not_before
    world.replay(Topic.ACCESS, "rule-redaction", version=event.version + 5, not_before=0)
    assert world.access(TICKET).not_before == event.not_before


@pytest.mark.requirement("I3")
def test_a_hold_is_laid_and_lifted_in_its_own_field(world: ReplayWorld) -> None:
    rule = world.replay(Topic.ACCESS, "rule")
    laid = world.replay(Topic.ACCESS, "hold-laid")
    record = world.access(PAGE)
    assert record.holds == {"quarantine": laid.version}
    assert (record.version, record.rule) == (rule.version, rule.rule), "the rule stays beneath the hold"
    lifted = world.replay(Topic.ACCESS, "hold-lifted")
    assert world.access(PAGE).holds == {}
    assert world.access(PAGE).lifted == {"quarantine": lifted.version}
    world.replay(Topic.ACCESS, "hold-laid")  # late
    assert world.access(PAGE).holds == {}


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("name", names(Topic.ACCESS))
@pytest.mark.parametrize("change", [{"color": "green"}, {"schema_version": 2}, {"version": "17"}])
def test_an_access_payload_that_is_not_understood_closes_its_document(
    world: ReplayWorld, name: str, change: dict[str, Any]
) -> None:
    event = golden(Topic.ACCESS, name)
    world.replay(Topic.ACCESS, "rule-everyone", document=event.document.model_dump())
    assert world.access(event.document).rule.admits(Closure(principals=frozenset({"user:x", "everyone"})), T)
    world.feed(Topic.ACCESS, key_of(event), json.dumps({**json.loads(raw(Topic.ACCESS, name)), **change}).encode())
    record = world.access(event.document)
    assert record.holds or not record.rule.admits(Closure(principals=frozenset({"user:x", "everyone"})), T)
    assert "closed" in [r.outcome for r in world.receipts()]
    assert [letter.lane for letter in world.letters()] == ["access"]


# ---------------------------------------------------------------- membership


@pytest.mark.requirement("I4", "I12")
@pytest.mark.parametrize("name", names(Topic.MEMBERSHIP))
def test_a_membership_becomes_the_principals_record(world: ReplayWorld, name: str) -> None:
    event = world.replay(Topic.MEMBERSHIP, name)
    record = world.principal(event.tenant, event.principal)
    assert set(record.parents) == set(event.parents)
    assert record.until == event.until
    assert (record.removed, record.version) == (event.removed, event.version)
    (receipt,) = world.receipts()
    assert (receipt.lane, receipt.outcome, receipt.principal) == ("membership", "applied", event.principal)


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("change", [{"color": "green"}, {"schema_version": 2}, {"removed": "off"}])
def test_a_membership_that_is_not_understood_ends_the_principal(world: ReplayWorld, change: dict[str, Any]) -> None:
    event = world.replay(Topic.MEMBERSHIP, "person")
    value = {**json.loads(raw(Topic.MEMBERSHIP, "person")), "version": event.version + 1, **change}
    world.feed(Topic.MEMBERSHIP, key_of(event), json.dumps(value).encode())
    record = world.principal(event.tenant, event.principal)
    assert record.removed
    assert record.parents == ()


@pytest.mark.requirement("I4", "I12")
@pytest.mark.parametrize(
    ("topic", "name"),
    [(t, n) for t in (Topic.ACCESS, Topic.MEMBERSHIP) for n in names(t)],
    ids=lambda v: str(v),
)
def test_the_query_service_reads_the_same_from_its_own_tail(world: ReplayWorld, topic: Topic, name: str) -> None:
    """Admission takes the newer of the store's record and the tail: both must understand an event alike."""
    event = world.replay(topic, name)
    tail = Overlay()
    tail.apply(Record(str(topic), 0, 0, T, key_of(event), raw(topic, name)))
    if topic == Topic.MEMBERSHIP:
        seen = tail.principal(event.tenant, event.principal, None)
        stored = world.principal(event.tenant, event.principal)
        assert seen is not None
        assert (seen.removed, set(seen.parents)) == (stored.removed, set(stored.parents))
        assert seen.until == stored.until
        return
    stored_access = world.access(event.document)
    seen_access = tail.access(event.document.uid, stored_access)
    assert seen_access is not None
    for field in ("version", "not_before", "tombstone", "holds", "lifted"):
        assert getattr(seen_access, field) == getattr(stored_access, field), field
    everyone = Closure(principals=frozenset({"user:ann", "everyone", "audience:handbook/", "audience:handbook/people"}))
    closed = (seen_access.tombstone, stored_access.tombstone)
    assert seen_access.rule.admits(everyone, T) == stored_access.rule.admits(everyone, T) or closed == (True, True)


# ---------------------------------------------------------------- content


@pytest.mark.requirement("A1", "A3", "I2")
@pytest.mark.parametrize("name", [n for n in names(Topic.CONTENT) if n.startswith("upserted")])
def test_content_becomes_a_committed_manifest(world: ReplayWorld, name: str) -> None:
    event = golden(Topic.CONTENT, name)
    world.bodies.bodies[f"globex/gateway/{REPORT.uid}/{T + 21}"] = LONG_BODY
    world.replay(Topic.ACCESS, "rule-minimal", document=event.document.model_dump(), version=event.access_version)
    world.replay(Topic.CONTENT, name)
    manifest = world.manifest(event.document)
    assert not manifest.deleted
    assert (manifest.content_version, manifest.access_version) == (event.version, event.access_version)
    assert manifest.rule == golden(Topic.ACCESS, "rule-minimal").rule
    for field in ("title", "url", "path", "product", "effective_from", "effective_until"):
        assert getattr(manifest, field) == getattr(event, field), field
    assert manifest.content_type == event.content_type.partition(";")[0]
    assert manifest.updated_at == event.source_facts.updated_at
    assert manifest.source_revision == event.source_facts.revision
    assert manifest.chunk_total == len(world.texts(event.document)) > 0
    (receipt,) = [r for r in world.receipts() if r.lane == "index" and r.event_type == "content.upserted"]
    assert (receipt.outcome, receipt.version, receipt.priority) == ("indexed", event.version, event.priority)
    assert receipt.chunks_embedded == receipt.chunks_written > 0
    assert receipt.times.observed_at == event.observed_at
    assert receipt.coordinates is not None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("upserted-text", "16 weeks"),
        ("upserted-base64", "Déjà vu"),
        ("upserted-claim-check", "Line 1999: pump 4 ran"),
        ("upserted-effective", "Flüge bucht"),
        ("upserted-odd-id", "検索 works here. Ключ too."),
        ("upserted-minimal", "A prime."),
    ],
)
@pytest.mark.requirement("A1", "F15")
def test_the_text_of_each_body_arrives_whole(world: ReplayWorld, name: str, says: str) -> None:
    event = golden(Topic.CONTENT, name)
    world.bodies.bodies[f"globex/gateway/{REPORT.uid}/{T + 21}"] = LONG_BODY
    world.replay(Topic.ACCESS, "rule-minimal", document=event.document.model_dump(), version=event.access_version)
    world.replay(Topic.CONTENT, name)
    assert says in "\n".join(world.texts(event.document))


@pytest.mark.requirement("F01", "I2", "I5")
@pytest.mark.parametrize(
    ("before", "name"), [("upserted-text", "deleted"), ("upserted-base64", "deleted-minimal"), (None, "deleted")]
)
def test_a_deletion_leaves_nothing_but_the_memory_of_it(world: ReplayWorld, before: str | None, name: str) -> None:
    event = golden(Topic.CONTENT, name)
    if before is not None:
        start = golden(Topic.CONTENT, before)
        world.replay(Topic.ACCESS, "rule-minimal", document=event.document.model_dump(), version=start.access_version)
        world.replay(Topic.CONTENT, before)
        assert world.texts(event.document)
    world.replay(
        Topic.ACCESS, "tombstone-minimal", document=event.document.model_dump(), version=event.access_version,
        not_before=event.access_version,
    )  # fmt: skip
    world.replay(Topic.CONTENT, name)
    manifest = world.manifest(event.document)
    assert manifest.deleted
    assert manifest.content_version == event.version
    assert manifest.chunks == ()
    assert world.store.chunk_ids_of("minilm", event.document) == {"hot": set(), "cold": set()}
    assert [r.outcome for r in world.receipts() if r.lane == "index" and r.event_type == "content.deleted"] == [
        "deleted"
    ]


@pytest.mark.requirement("I8")
def test_a_claim_check_without_its_body_is_body_gone(world: ReplayWorld) -> None:
    world.replay(Topic.ACCESS, "rule-nobody")
    world.replay(Topic.CONTENT, "upserted-claim-check")
    assert [r.outcome for r in world.receipts() if r.event_type == "content.upserted"] == ["body_gone"]
    assert world.letters() == []


@pytest.mark.requirement("I12")
def test_an_unknown_field_of_content_changes_nothing(world: ReplayWorld) -> None:
    event = golden(Topic.CONTENT, "upserted-text")
    world.replay(Topic.ACCESS, "rule")
    world.feed(
        Topic.CONTENT,
        event.document.key,
        json.dumps({**json.loads(raw(Topic.CONTENT, "upserted-text")), "color": "green"}).encode(),
    )
    assert world.manifest(PAGE).content_version == event.version
    assert world.letters() == []


# ---------------------------------------------------------------- maintenance


@pytest.fixture
def indexed(world: ReplayWorld) -> ReplayWorld:
    """A world with the three documents that maintenance speaks of."""
    world.bodies.bodies[f"globex/gateway/{REPORT.uid}/{T + 21}"] = LONG_BODY
    for rule, content in (
        ("rule", "upserted-text"), ("rule-until", "upserted-base64"), ("rule-nobody", "upserted-claim-check")
    ):  # fmt: skip
        world.replay(Topic.ACCESS, rule)
        world.replay(Topic.CONTENT, content)
    return world


@pytest.mark.requirement("A9")
def test_move_carries_a_document_to_the_cold_tier(indexed: ReplayWorld) -> None:
    before = indexed.texts(REPORT)
    indexed.replay(Topic.MAINTENANCE, "move")
    assert indexed.manifest(REPORT).tier == "cold"
    assert indexed.texts(REPORT) == before
    assert indexed.receipts()[-1].outcome == "moved"


@pytest.mark.requirement("I1")
def test_recheck_compares_the_store_with_the_manifest(indexed: ReplayWorld) -> None:
    before = indexed.texts(PAGE)
    indexed.replay(Topic.MAINTENANCE, "recheck")
    assert indexed.texts(PAGE) == before
    assert "rechecked" in [r.outcome for r in indexed.receipts()]


@pytest.mark.requirement("F20")
def test_reprocess_reads_the_recorded_offset_again(indexed: ReplayWorld) -> None:
    indexed.replay(Topic.MAINTENANCE, "reprocess", offset=1)  # the ticket's event lies there
    assert indexed.receipts()[-1].event_type == "maintenance.reprocess"
    assert indexed.receipts()[-1].outcome == "done"
    assert "Déjà vu" in "\n".join(indexed.texts(TICKET))


# ---------------------------------------------------------------- control


@pytest.mark.requirement("I7")
def test_control_commands_are_decided(world: ReplayWorld) -> None:
    created = world.replay(Topic.CONTROL, "create", generation="fresh")
    assert world.store.read_generations()["fresh"].state == "building"
    assert world.store.read_generations()["fresh"].encoder.model_dump() == {
        **EncoderSpec().model_dump(), **created.declaration["encoder"],
    }  # fmt: skip
    world.replay(Topic.CONTROL, "ready", generation="fresh")
    assert world.store.read_generations()["fresh"].state == "ready"
    now = world.clock.now()
    reported = {**json.loads(raw(Topic.CONTROL, "report"))["report"], "finished_at": now}
    world.replay(Topic.CONTROL, "report", generation="fresh", report=reported)
    kept = world.store.read_generations()["fresh"].report
    assert kept is not None and not kept.passed and kept.failures == tuple(reported["failures"])
    world.replay(Topic.CONTROL, "activate", generation="fresh")
    world.replay(Topic.CONTROL, "activate", generation="fresh", override="a test")
    assert world.store.active_generation() == "fresh"
    assert world.store.read_generations()["fresh"].override == "a test"
    assert world.store.read_generations()["minilm"].state == "standby"
    world.replay(Topic.CONTROL, "rollback", expected_active="fresh")
    assert world.store.active_generation() == "minilm"
    world.replay(Topic.CONTROL, "retire", generation="fresh")
    assert world.store.read_generations()["fresh"].state == "retired"
    world.replay(Topic.CONTROL, "retire", generation="minilm")
    world.replay(Topic.CONTROL, "drop", generation="fresh")
    dropped = world.store.read_generations()["fresh"]
    assert dropped.dropped_at is not None and dropped.freed is not None
    world.replay(Topic.CONTROL, "retire")
    outcomes = [(r.event_type, r.outcome, r.request_id) for r in world.receipts()]
    assert outcomes == [
        ("control.create", "done", "01J9Z6T1SB"),
        ("control.ready", "done", "r-7"),
        ("control.report", "done", "r-7"),
        ("control.activate", "refused", "01J9Z6T1SC"),
        ("control.activate", "done", "01J9Z6T1SC"),
        ("control.rollback", "done", "r-7"),
        ("control.retire", "done", "01J9Z6T1SD"),
        ("control.retire", "refused", "01J9Z6T1SD"),
        ("control.drop", "done", "r-7"),
        ("control.retire", "refused", "01J9Z6T1SD"),
    ]


@pytest.mark.requirement("I7")
def test_heartbeats_count_while_they_are_young_and_say_nothing_of_stopping(world: ReplayWorld) -> None:
    payload = json.loads(raw(Topic.INSTANCES, "query"))

    def record(offset: int, at: int, **changes: Any) -> Record:
        return Record(str(Topic.INSTANCES), 0, offset, at, "k", json.dumps({**payload, **changes}).encode())

    (found,) = living([record(0, T), Record(str(Topic.INSTANCES), 0, 1, T, "k", b"?")], T + 5_000_000)
    assert found.beat == golden(Topic.INSTANCES, "query") and found.heard_at == T
    assert living([record(0, T)], T + 11_000_000) == ()
    assert living([record(0, T), record(1, T, stopping=True)], T) == ()


# ---------------------------------------------------------------- owner: cursors and requests


@pytest.mark.requirement("I9")
@pytest.mark.parametrize("name", names(Topic.CURSORS))
def test_an_owner_starts_from_its_cursor_and_document_states(name: str) -> None:
    event = golden(Topic.CURSORS, name)
    owner = event.document if name.startswith("document") else event
    ledger = Ledger(owner.tenant, owner.source, ManualClock(1), BodyPlacer(MemoryBodies(), 65_536, 1_000_000))
    ledger.load_cursor(Record(str(Topic.CURSORS), 0, 0, T, key_of(event), raw(Topic.CURSORS, name)))
    if name.startswith("cursor"):
        assert ledger.cursors[event.stream] == event
        assert ledger.next_version() == event.last_version + 1
        return
    ((document, known),) = ledger.states()
    assert document == event.document
    kept = known.to_state(document)
    for field in ("content_version", "access_version", "not_before", "deleted", "content_hash", "attributes_hash",
                  "rule", "holds", "body_path", "path", "revision"):  # fmt: skip
        assert getattr(kept, field) == getattr(event, field), field
    assert ledger.next_version() > max(event.content_version, event.access_version)


class _Asked:
    """Requests as the owner takes them."""

    def __init__(self, request: SourceRequest) -> None:
        self._request = request
        self.sent = False

    def take(self, position: int) -> list[tuple[int, SourceRequest]]:
        return [(0, self._request)] if self.sent and position == 0 else []


@pytest.mark.requirement("I1")
@pytest.mark.parametrize("name", names(Topic.REQUESTS))
def test_an_owner_serves_each_request_and_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "leave.md").write_text("# Parental leave\n\n16 weeks.\n", encoding="utf-8")
    for folder in (tmp_path / "people", tmp_path):
        os.utime(folder, (1, 1))
    clock, log = ManualClock(T), MemoryLog()
    asked = _Asked(golden(Topic.REQUESTS, name))
    engine = OwnerEngine(
        MemoryOwnerLog(log, clock),
        lambda ledger: FolderSource(
            "acme", "handbook", str(tmp_path), clock=clock, version=ledger.next_version, max_bytes=1_000_000
        ),
        tenant="acme",
        source="handbook",
        clock=clock,
        bodies=BodyPlacer(MemoryBodies(), 65_536, 1_000_000),
        observed=Metrics(),
        requests=asked,
    )
    try:
        engine.start()
        while not any(r.topic == Topic.CONTENT for r in log.records) or engine.busy:
            engine.step()
            clock.advance(0.5)
        asked.sent = True
        for _ in range(3):  # a long one is begun in one step and ends in another
            engine.step()
    finally:
        engine.close()
    receipts = [Receipt.model_validate_json(r.value or b"") for r in log.topic(Topic.RECEIPTS)]
    request = golden(Topic.REQUESTS, name)
    assert [(r.lane, r.request_id, r.event_type, r.outcome) for r in receipts] == [
        ("source", request.request_id, f"request.{request.type}", "done")
    ]
    report = ReconciliationReport.model_validate(receipts[0].details)
    assert (report.type, report.request_id, report.complete) == (request.type, request.request_id, True)


# ---------------------------------------------------------------- receipts


@pytest.mark.requirement("A11", "I10")
@pytest.mark.parametrize("name", names(Topic.RECEIPTS))
def test_the_query_service_keeps_each_receipt(tmp_path: Path, name: str) -> None:
    event = golden(Topic.RECEIPTS, name)
    store = ReceiptStore(tmp_path / "receipts.sqlite", "replay")
    try:
        record = Record(str(Topic.RECEIPTS), 0, 0, T, "k", raw(Topic.RECEIPTS, name))
        store.apply([record], {(str(Topic.RECEIPTS), 0): 1})
        kept = store.window(event.tenant, 0)
        assert [(r["lane"], r["outcome"], r["version"], r["reason"]) for r in kept] == [
            (event.lane, event.outcome, event.version, event.reason)
        ]
        if event.document is not None:
            (step,) = store.trace(event.tenant, event.document.uid)
            assert step["observed_at"] == event.times.observed_at
    finally:
        store.close()


# ---------------------------------------------------------------- queries


@pytest.mark.requirement("C5")
def test_the_query_log_keeps_what_was_logged_and_forgets_what_was_purged(tmp_path: Path) -> None:
    view = QueryView(tmp_path / "queries.sqlite", "replay", QueryLogSettings(text="full"))
    slot = (str(Topic.QUERIES), 0)

    def apply(name: str, offset: int) -> None:
        record = Record(str(Topic.QUERIES), 0, offset, T, "acme", raw(Topic.QUERIES, name))
        view.apply([record], {slot: offset + 1})

    try:
        asked, said = golden(Topic.QUERIES, "query"), golden(Topic.QUERIES, "feedback")
        apply("query", 0)
        apply("feedback", 1)
        assert view.query("acme", asked.query_id, T) == asked
        assert view.queries("acme", Wanted(feedback=said.verdict), 10, T) == [asked]
        assert view.queries("acme", Wanted(feedback="helpful"), 10, T) == []
        apply("purge", 2)
        assert view.query("acme", asked.query_id, T) is None
    finally:
        view.close()


def test_no_topic_is_left_out() -> None:
    """Dead letters are read by people and commands only; every other topic is replayed above."""
    replayed = {Topic.ACCESS, Topic.MEMBERSHIP, Topic.CONTENT, Topic.MAINTENANCE, Topic.CONTROL, Topic.CURSORS,
                Topic.REQUESTS, Topic.RECEIPTS, Topic.INSTANCES, Topic.QUERIES}  # fmt: skip
    assert set(Topic) - replayed == {Topic.DEAD_LETTER}
