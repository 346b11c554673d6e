"""The access lane: one write a revocation, fences, holds, nobody, and nothing lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consumers.runtime import Hooks
from pipeline.bus.codec import access_record, encode, membership_record
from pipeline.ports import Outgoing
from schemas.access import AccessRule, Closure
from schemas.events import ACCESS_ONLY, AccessSet, AccessTombstone, HoldChanged, MaintenanceCommand, MembershipSet
from schemas.keys import DocumentRef, membership_key, partition_of
from schemas.topics import Topic
from tests.fakes.bus import MemoryAppender
from tests.unit.consumers.world import Process, World

DOC = DocumentRef(tenant="acme", source="wiki", id="page 1")
ANN = Closure(principals=frozenset({"user:ann"}))


def rule(version: int, *principals: str, document: DocumentRef = DOC, **fields: Any) -> AccessSet:
    options: dict[str, Any] = {"content_version": 1, "observed_at": version} | fields
    return AccessSet(document=document, version=version, rule=AccessRule.any_of(*principals), **options)


def tombstone(version: int, not_before: int, document: DocumentRef = DOC) -> AccessTombstone:
    return AccessTombstone(document=document, version=version, not_before=not_before, observed_at=version)


def membership(version: int, *parents: str, principal: str = "user:ann", **fields: Any) -> MembershipSet:
    options: dict[str, Any] = {"source": "wiki"} | fields
    return MembershipSet(
        tenant="acme", principal=principal, parents=parents, version=version, observed_at=version, **options
    )


def send(world: World, *events: AccessSet | AccessTombstone | HoldChanged | MembershipSet) -> None:
    records = [membership_record(e) if isinstance(e, MembershipSet) else access_record(e) for e in events]
    world.publisher.publish(records)


def running(world: World) -> Process:
    process = world.access()
    process.step(3)
    return process


def admits(world: World, document: DocumentRef = DOC, closure: Closure = ANN) -> bool:
    """What admission makes of the record: no tombstone, no hold, the rule satisfied."""
    record = world.record(document)
    return record is not None and not record.tombstone and not record.holds and record.rule.admits(closure, 0)


@pytest.mark.requirement("I4", "A8")
def test_a_revocation_is_one_write() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann"))
    process.step()
    assert admits(world)
    before = len(world.store.trace)
    send(world, rule(11, "user:bob"))
    process.step()
    assert not admits(world)
    writes = [call.op for call in world.store.trace[before:] if call.op.startswith("write_a")]
    reads = [call.op for call in world.store.trace[before:] if call.op.startswith("read_a")]
    assert writes == ["write_access"] and len(reads) == 1, "the one read is this test's own: the lane knew the record"


@pytest.mark.requirement("A11", "I10")
def test_the_receipt_carries_stage_times_and_coordinates() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann", source_updated_at=5, priority="bulk"))
    process.step()
    (receipt,) = world.receipts()
    assert (receipt.lane, receipt.outcome, receipt.version, receipt.event_type) == ("access", "applied", 10, "rule")
    assert receipt.document_uid == DOC.uid and receipt.source == "wiki" and receipt.priority == "bulk"
    times = receipt.times
    assert times.source_updated_at == 5 and times.observed_at == 10
    assert (times.appended_at or 0) <= (times.received_at or 0) <= (times.visible_at or 0)
    where = receipt.coordinates
    assert where is not None and (where.topic, where.partition) == ("access", partition_of(DOC.key, 3))
    lag = process.observed.registry.get_sample_value(
        "headwater_event_lag_seconds_count", {"lane": "access", "priority": "bulk"}
    )
    assert lag == 1


@pytest.mark.requirement("I5", "A6")
def test_older_and_repeated_events_write_nothing() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann"))
    process.step()
    before = len([op for op in world.store.ops() if op == "write_access"])
    send(world, rule(9, "user:bob"), rule(10, "user:ann"), rule(10, "user:ann"))
    process.step()
    assert admits(world)
    assert len([op for op in world.store.ops() if op == "write_access"]) == before
    assert [r.outcome for r in world.receipts()] == ["applied", "superseded", "unchanged", "unchanged"]


@pytest.mark.requirement("I3", "I5")
def test_not_before_only_grows_even_by_an_event_that_came_late() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann", not_before=4))
    process.step()
    send(world, tombstone(8, not_before=7), rule(11, "user:ann", not_before=2))
    process.step()
    record = world.record(DOC)
    assert record is not None and record.not_before == 7 and record.version == 11 and admits(world)


@pytest.mark.requirement("I5", "F01")
def test_a_tombstone_hides_and_a_later_rule_brings_the_document_back_above_it() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann"), tombstone(11, not_before=11))
    process.step()
    record = world.record(DOC)
    assert record is not None and record.tombstone and not record.rule.admits(ANN, 0) and record.not_before == 11
    send(world, rule(12, "user:ann", not_before=11, content_version=12))
    process.step()
    record = world.record(DOC)
    assert record is not None and admits(world) and record.not_before == 11 and record.content_version == 12


@pytest.mark.requirement("I5")
def test_holds_live_beside_the_rule_under_versions_of_their_own() -> None:
    def hold(version: int, active: bool, name: Any = "quarantine") -> HoldChanged:
        return HoldChanged(document=DOC, hold=name, active=active, version=version, observed_at=version)

    world = World()
    process = running(world)
    send(world, rule(20, "user:ann"), hold(5, True), hold(6, True, "legal"))
    process.step()
    record = world.record(DOC)
    assert record is not None and record.holds == {"quarantine": 5, "legal": 6} and record.version == 20
    send(world, rule(21, "user:ann"), hold(7, False), hold(4, True))
    process.step()
    record = world.record(DOC)
    assert record is not None and record.holds == {"legal": 6} and record.lifted == {"quarantine": 7}
    send(world, hold(8, False, "legal"))
    process.step()
    assert admits(world)
    assert [r.outcome for r in world.receipts()][-2:] == ["superseded", "applied"]


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("payload", ["unknown field", "unknown version", "garbage", "empty", "other document"])
def test_what_is_not_understood_closes_the_document_and_raises_the_alarm(payload: str) -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann"))
    process.step()
    assert admits(world)
    good = json.loads(encode(rule(11, "user:ann")))
    values: dict[str, bytes | None] = {
        "unknown field": json.dumps(good | {"exemptions": ["user:ann"]}).encode(),
        "unknown version": json.dumps(good | {"schema_version": 2}).encode(),
        "garbage": b"\xff\x00\x01",
        "empty": None,
        "other document": encode(rule(11, "user:ann", document=DocumentRef(tenant="acme", source="wiki", id="2"))),
    }
    world.publisher.publish([Outgoing(str(Topic.ACCESS), DOC.key, values[payload])])
    process.step()
    record = world.record(DOC)
    assert record is not None and not record.rule.admits(ANN, 0) and record.holds
    (letter,) = world.letters()
    assert letter.document == DOC and letter.stage == "decode" and letter.coordinates.topic == "access"
    assert world.receipts()[-1].outcome == "closed"
    assert process.observed.value("headwater_closed_total", lane="access", kind=letter.error_kind) == 1
    send(world, rule(12, "user:ann"))
    process.step()
    assert admits(world), "the next event that is understood opens it again"


@pytest.mark.requirement("I12", "I11")
def test_a_replay_over_an_unreadable_record_ends_where_it_was() -> None:
    world = World(partitions=1)
    send(world, rule(10, "user:ann"))
    world.publisher.publish([Outgoing(str(Topic.ACCESS), DOC.key, b"?")])
    first = running(world)
    assert not admits(world)
    del first
    world.clock.advance(6.1)
    second = world.access()
    second.step(12, 1.0)
    assert second.runtime.health()["state"] == "running" and not admits(world), "version 10 does not open it"
    send(world, rule(11, "user:ann"))
    second.step()
    assert admits(world)
    del second
    world.clock.advance(6.1)
    third = world.access()
    third.step(12, 1.0)
    assert admits(world), "nor does the unreadable record close what followed it"


@pytest.mark.requirement("F20", "I8")
def test_poison_between_two_good_records_stops_neither() -> None:
    world = World(partitions=1)
    process = running(world)
    send(world, rule(10, "user:ann"))
    for key in (None, "no document key", DOC.hold_key("legal")[:-2]):
        world.broker.append_raw("access", 0, key, b"\x00\xff")
    world.broker.append_raw("membership", 0, "nonsense", b"{")
    other = DocumentRef(tenant="acme", source="wiki", id="2")
    send(world, rule(11, "user:ann", document=other))
    process.settle()
    assert admits(world) and admits(world, other)
    assert len(world.letters()) == 4 and world.progress("access")[0].offset == 5
    assert process.observed.value("headwater_unhandled_undecodable_total", lane="access", kind="not_json") == 4


@pytest.mark.requirement("I1")
def test_a_record_on_a_foreign_partition_is_not_applied() -> None:
    world = World()
    process = running(world)
    foreign = (partition_of(DOC.key, 3) + 1) % 3
    world.broker.append_raw("access", foreign, DOC.key, encode(rule(10, "user:ann")))
    process.step()
    assert world.record(DOC) is None
    assert [letter.error_kind for letter in world.letters()] == ["wrong_partition"]


@pytest.mark.requirement("I9")
def test_an_aborted_access_event_still_counts() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann"))
    appender = MemoryAppender(world.broker, "owner")
    appender.fail_next = 1
    with pytest.raises(Exception, match="aborted"):
        appender.append([access_record(rule(11, "user:bob"))])
    process.step(2)
    assert not admits(world), "the fenced owner truly read it"


@pytest.mark.requirement("I8", "A8")
def test_a_store_outage_holds_the_partitions_and_loses_nothing() -> None:
    world = World()
    process = running(world)
    documents = [DocumentRef(tenant="acme", source="wiki", id=str(i)) for i in range(30)]
    send(world, *(rule(10, "user:ann", document=d) for d in documents))
    world.store.fail_next("write_access", 7)
    process.step(3, 1.0)
    assert process.runtime.health()["state"] == "holding"
    assert sum(p.offset for p in world.progress("access").values()) == 0
    send(world, *(rule(11, "user:bob", document=d) for d in documents[:5]))
    process.step(12, 1.0)
    assert [admits(world, d) for d in documents] == [False] * 5 + [True] * 25
    outcomes = [r.outcome for r in world.receipts()]
    assert outcomes.count("applied") == 35, "each event has one receipt, whatever the attempts"
    process.settle()
    assert sum(p.offset for p in world.progress("access").values()) == 35


@pytest.mark.requirement("I8")
def test_a_log_that_takes_no_receipts_holds_too_and_events_are_told_once_applied() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann"))
    process.runtime._poll_once(process.reader)
    world.broker.down = True
    assert process.runtime._work_once() < 0
    assert admits(world), "the write went through"
    world.broker.down = False
    process.runtime._work_once()
    assert [r.outcome for r in world.receipts()] == ["applied"]


@pytest.mark.requirement("I13", "D5")
def test_live_keys_go_before_bulk_keys_and_a_key_keeps_its_order() -> None:
    world = World(partitions=1)
    process = running(world)
    bulk = [DocumentRef(tenant="acme", source="wiki", id=f"b{i}") for i in range(250)]
    send(world, *(rule(10, "user:ann", document=d, priority="bulk") for d in bulk))
    send(world, rule(20, "user:ann"), rule(21, "user:bob", document=bulk[200]))
    process.step()
    assert admits(world) and not admits(world, bulk[200]), "a live event takes its key's earlier ones along"
    assert not admits(world, bulk[249]) and world.record(bulk[249]) is None
    process.step(6)
    assert all(admits(world, d) for d in bulk if d != bulk[200])


@pytest.mark.requirement("I12", "B1")
def test_memberships_of_several_sources_are_joined_and_each_is_fenced() -> None:
    world = World()
    process = running(world)
    send(world, membership(10, "group:wiki/eng"), membership(3, "group:crm/sales", source="crm"))
    process.step()
    record = world.principal("user:ann")
    assert record is not None and record.parents == ("group:crm/sales", "group:wiki/eng")
    send(world, membership(9), membership(11), membership(3, "group:crm/other", source="crm"))
    process.step()
    record = world.principal("user:ann")
    assert record is not None and record.parents == ("group:crm/sales",) and not record.removed
    send(world, membership(12, removed=True), membership(4, source="crm", removed=True))
    process.step()
    record = world.principal("user:ann")
    assert record is not None and record.removed and record.parents == ()
    outcomes = [r.outcome for r in world.receipts() if r.lane == "membership"]
    assert outcomes == ["applied", "applied", "superseded", "applied", "unchanged", "applied", "applied"]


@pytest.mark.requirement("I4", "A8")
def test_ends_of_memberships_reach_the_record_and_the_later_of_two_sources_counts() -> None:
    world = World()
    process = running(world)
    send(world, membership(10, "group:x/a", "group:x/b", until={"group:x/a": 50, "group:x/b": 60}))
    send(world, membership(3, "group:x/a", "group:x/b", source="crm", until={"group:x/a": 70}))
    process.step()
    record = world.principal("user:ann")
    assert record is not None and record.until == {"group:x/a": 70}, "the other source names no end for b"
    assert record.parts["wiki"].until == {"group:x/a": 50, "group:x/b": 60}
    assert (record.parents_at(69), record.parents_at(70)) == (("group:x/a", "group:x/b"), ("group:x/b",))
    send(world, membership(4, source="crm"))
    process.step()
    record = world.principal("user:ann")
    assert record is not None and record.until == {"group:x/a": 50, "group:x/b": 60}


@pytest.mark.requirement("I12")
def test_an_unreadable_membership_makes_nobody_until_its_source_is_understood_again() -> None:
    world = World(partitions=1)
    process = running(world)
    send(world, membership(10, "group:wiki/eng"), membership(3, "group:crm/sales", source="crm"))
    bad = json.loads(encode(membership(11, "group:wiki/eng"))) | {"denied": ["x"]}
    world.publisher.publish(
        [Outgoing("membership", membership_key("acme", "user:ann", "wiki"), json.dumps(bad).encode())]
    )
    process.step()
    record = world.principal("user:ann")
    assert record is not None and record.removed and record.parents == () and record.closed == {"wiki": 2}
    send(world, membership(4, "group:crm/sales", source="crm"))
    process.step()
    record = world.principal("user:ann")
    assert record is not None and record.removed, "what the unreadable one says may be a denial"
    send(world, membership(12, "group:wiki/eng"))
    process.step()
    record = world.principal("user:ann")
    assert record is not None and not record.removed and record.parents == ("group:crm/sales", "group:wiki/eng")
    assert process.observed.value("headwater_closed_total", lane="membership", kind="invalid") == 1


# ---------------------------------------------------------------- late writes and rechecks


@pytest.mark.requirement("I1")
def test_a_write_that_ended_after_its_lease_is_rechecked_by_the_present_owner() -> None:
    """SIGSTOP between check and send: the old owner's older record lands on top of the new owner's."""
    world = World(partitions=1)
    stop = [False]

    def before_write() -> None:
        if not stop[0]:
            return
        stop[0] = False
        world.clock.advance(7)  # the process is suspended; the broker ejects it
        world.broker.expire("access")
        successor[0].step(10, 1.0)
        assert not admits(world), "the new owner has applied the revocation"

    old = world.access(hooks=Hooks(before_write=before_write))
    old.step(3)
    successor = [world.access()]
    send(world, rule(10, "user:ann"))
    for _ in range(4):
        old.step(1)
        successor[0].step(1)
    assert admits(world)
    # Both are members now, but there is one partition: the older member owns it.
    send(world, rule(11, "user:ann", "user:carl"))
    old.runtime._poll_once(old.reader)
    send(world, rule(12, "user:bob"))
    stop[0] = True
    assert old.runtime._work_once() < 0
    assert admits(world), "the late write stands over the revocation: this is the fault that the recheck cures"
    assert old.observed.value("headwater_late_writes_total", lane="access") == 1
    (command,) = [MaintenanceCommand.model_validate_json(r.value or b"") for r in world.broker.records("maintenance")]
    assert (command.type, command.document, command.generation) == ("recheck", DOC, ACCESS_ONLY)
    successor[0].step(3)
    assert not admits(world)
    record = world.record(DOC)
    assert record is not None and record.version == 12
    assert [r.outcome for r in world.receipts()][-1] == "rechecked"


@pytest.mark.requirement("I1")
@pytest.mark.parametrize("known", [True, False], ids=["in the cache", "from the log"])
def test_a_recheck_writes_the_newest_known_state_again(known: bool) -> None:
    world = World(partitions=1)
    send(world, rule(10, "user:ann"), rule(12, "user:bob", not_before=3), membership(5, "group:wiki/eng"))
    send(world, HoldChanged(document=DOC, hold="legal", active=True, version=4, observed_at=4))
    process = running(world)
    process.settle()
    right, principal = world.record(DOC), world.principal("user:ann")
    assert right is not None and principal is not None
    if not known:
        process.stop()
        process = world.access()
        process.step(2)
    late = right.model_copy(update={"rule": AccessRule.any_of("user:ann"), "version": 11, "holds": {}})
    world.store.write_access("acme", [late])
    world.store.write_principals("acme", [principal.model_copy(update={"parents": ("group:old",), "version": 4})])
    from consumers.lease import principal_document

    rechecks = process.runtime._rechecks
    rechecks.owe([DOC, principal_document("acme", "user:ann")])
    process.step(4)
    found, again = world.record(DOC), world.principal("user:ann")
    assert found is not None and again is not None
    ignore = {"attempt", "written_at"}
    assert found.model_dump(exclude=ignore) == right.model_dump(exclude=ignore)
    assert again.model_dump(exclude=ignore) == principal.model_dump(exclude=ignore)
    assert found.attempt != right.attempt


@pytest.mark.requirement("I1")
def test_maintenance_of_index_generations_is_none_of_this_lane() -> None:
    world = World()
    process = running(world)
    send(world, rule(10, "user:ann"))
    process.step()
    before = len(world.store.trace)
    for kind, generation in (("recheck", "minilm"), ("move", None), ("reprocess", None)):
        fields: dict[str, dict[str, Any]] = {"move": {"tier": "cold"}, "reprocess": {"offset": 0}}
        payload = {"type": kind, "document": DOC, "generation": generation, "requested_at": 1} | fields.get(kind, {})
        command = MaintenanceCommand.model_validate(payload)
        world.publisher.publish([Outgoing(str(Topic.MAINTENANCE), DOC.key, encode(command))])
    world.publisher.publish([Outgoing(str(Topic.MAINTENANCE), DOC.key, b"?")])
    process.settle()
    assert not [call.op for call in world.store.trace[before:] if "access" in call.op]
    assert world.letters() == [], "the index consumers write that dead letter"
    committed = world.broker.group("access").committed
    assert sum(o for slot, o in committed.items() if slot.topic == "maintenance") == 4


@pytest.mark.requirement("I8", "I12")
def test_a_record_that_cannot_be_read_in_the_store_is_made_again_from_the_log() -> None:
    world = World(partitions=1)
    send(world, rule(10, "user:ann", not_before=6))
    first = running(world)
    first.settle()
    first.stop()
    world.store.put_raw("access", "acme", DOC.uid, '{"from":"the future"}')
    second = world.access()
    second.step(2)
    send(world, rule(11, "user:bob"))
    second.step()
    record = world.record(DOC)
    assert record is not None and record.version == 11 and record.not_before == 6


@pytest.mark.requirement("I12", "E1")
def test_the_end_of_a_key_changes_nothing_that_has_ended() -> None:
    world = World()
    gone, never = (DocumentRef(tenant="acme", source="wiki", id=name) for name in ("gone", "never"))
    send(world, rule(10, "user:ann", document=gone), tombstone(20, 20, gone))
    send(world, membership(5, principal="user:bob", removed=True), membership(5, principal="user:cleo"))
    for document in (gone, never):
        world.publisher.publish([Outgoing(str(Topic.ACCESS), document.key, None)])
    for name in ("user:bob", "user:cleo", "user:unknown"):
        place = membership_key("acme", name)
        ended = Outgoing(str(Topic.MEMBERSHIP), membership_key("acme", name, "wiki"), None, partition_key=place)
        world.publisher.publish([ended])
    running(world)
    record = world.record(gone)
    assert record is not None and record.tombstone and not record.holds
    assert world.record(never) is None and world.principal("user:unknown") is None
    bob, cleo = world.principal("user:bob"), world.principal("user:cleo")
    assert bob is not None and not bob.closed
    assert cleo is not None and cleo.removed and cleo.closed, "who is still somebody is closed by it"
    assert [letter.key for letter in world.letters()] == [membership_key("acme", "user:cleo", "wiki")]
