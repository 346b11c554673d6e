"""The access lane end to end."""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from typing import Any

import pytest

from consumers.runtime import Hooks
from pipeline.bus.codec import access_record, encode
from pipeline.errors import Crash, StoreUnavailable
from pipeline.ports import Outgoing
from schemas.access import AccessRule, Closure
from schemas.events import AccessSet, AccessTombstone, HoldChanged, MembershipSet
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.integration.bus.conftest import Lane, wait_until

ANN = Closure(principals=frozenset({"user:ann"}))


def doc(number: int) -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", id=f"p{number}")


def rule(document: DocumentRef, version: int, *principals: str, **fields: Any) -> AccessSet:
    options: dict[str, Any] = {"content_version": 1, "observed_at": version} | fields
    return AccessSet(document=document, version=version, rule=AccessRule.any_of(*principals), **options)


def admits(lane: Lane, document: DocumentRef) -> bool:
    record = lane.record(document)
    return record is not None and not record.tombstone and not record.holds and record.rule.admits(ANN, 0)


@pytest.mark.requirement("D5", "I4", "A8")
def test_an_appended_revocation_is_in_the_store_within_milliseconds(lane: Lane) -> None:
    consumer = lane.consumer()
    owner = lane.owner()
    took: list[float] = []
    for number in range(60):
        version = 1000 + number
        principal = "user:ann" if number % 2 == 0 else "user:bob"
        owner.append([access_record(rule(doc(number % 5), version, principal))])
        began = time.perf_counter()
        while (record := lane.record(doc(number % 5))) is None or record.version != version:
            assert time.perf_counter() - began < 10
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.01)
    busy = max(1.0, os.getloadavg()[0] / 1.5)
    median = statistics.median(took)
    assert median < 15 * busy, f"{median:.1f} ms at load {os.getloadavg()[0]:.1f}"
    buckets = consumer.observed.registry.get_sample_value(
        "headwater_event_lag_seconds_count", {"lane": "access", "priority": "live"}
    )
    assert buckets == 60


@pytest.mark.requirement("A6", "I5", "I11")
def test_replayed_duplicated_and_late_events_change_nothing(lane: Lane) -> None:
    lane.consumer()
    source = random.Random(7)
    newest = {number: rule(doc(number), 100 + number, "user:ann" if number % 2 else "user:bob") for number in range(20)}
    older = [rule(doc(number), 50 + i, "user:ann", "user:bob") for number in range(20) for i in range(3)]
    lane.send(*newest.values())
    repeated = [*older, *newest.values(), *newest.values()]
    source.shuffle(repeated)
    lane.send(*repeated)
    wait_until(lambda: lane.applied() == 20 + len(repeated))
    for number, event in newest.items():
        record = lane.record(doc(number))
        assert record is not None and record.version == event.version and record.rule == event.rule
    outcomes = [receipt.outcome for receipt in lane.receipts()]
    assert outcomes.count("applied") == 20
    assert outcomes.count("superseded") == 60 and outcomes.count("unchanged") == 40


@pytest.mark.requirement("I9", "I1")
def test_the_event_of_a_fenced_owner_counts_although_its_transaction_was_aborted(lane: Lane) -> None:
    lane.consumer()
    lane.send(rule(doc(1), 10, "user:ann"))
    wait_until(lambda: admits(lane, doc(1)))
    first = lane.owner()
    producer = first._producer
    assert producer is not None
    producer.begin_transaction()
    event = access_record(rule(doc(1), 11, "user:bob"))
    from pipeline.bus.producer import _send

    _send(producer, lane.settings, event).get(timeout=10)  # on the log, the transaction still open
    second = lane.owner()  # takes over: the broker aborts the open transaction
    wait_until(lambda: not admits(lane, doc(1)))
    with pytest.raises(Crash):
        first.append([event])
    second.append([access_record(rule(doc(1), 12, "user:ann"))])
    wait_until(lambda: admits(lane, doc(1)))


@pytest.mark.requirement("F20", "I8", "I12")
def test_poison_between_two_good_records_closes_what_it_names_and_stops_nothing(lane: Lane) -> None:
    consumer = lane.consumer()
    lane.send(rule(doc(1), 10, "user:ann"), rule(doc(2), 10, "user:ann"))
    unknown = json.dumps(json.loads(encode(rule(doc(1), 11, "user:ann"))) | {"schema_version": 2}).encode()
    lane.publisher.publish(
        [
            Outgoing(str(Topic.ACCESS), doc(1).key, unknown),
            Outgoing(str(Topic.ACCESS), "no key of ours", b"\xff\x00", partition_key=doc(1).key),
            Outgoing(str(Topic.MEMBERSHIP), "neither", b"{"),
        ]
    )
    lane.send(rule(doc(3), 10, "user:ann"))
    wait_until(lambda: lane.applied() == 5 and lane.applied("membership") == 1)
    assert [admits(lane, doc(n)) for n in (1, 2, 3)] == [False, True, True]
    assert consumer.observed.value("headwater_closed_total", lane="access", kind="invalid") == 1
    assert consumer.observed.value("headwater_dead_letters_total", lane="access", stage="decode", kind="not_json") == 2
    lane.send(rule(doc(1), 12, "user:ann"))
    wait_until(lambda: admits(lane, doc(1)))


class Outage:
    """The store, unavailable while ``down``."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.down = False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def guarded(*args: Any, **options: Any) -> Any:
            if self.down:
                self.refused += 1
                raise StoreUnavailable("the test took the store away")
            return call(*args, **options)

        return guarded


@pytest.mark.requirement("I8")
def test_a_store_outage_longer_than_a_session_holds_everything_and_loses_nothing(lane: Lane) -> None:
    store = Outage(lane.store)
    consumer = lane.consumer(store=store)
    lane.send(*(rule(doc(n), 10, "user:ann") for n in range(10)))
    wait_until(lambda: lane.applied() == 10)
    store.down = True
    lane.send(*(rule(doc(n), 11, "user:bob") for n in range(10)))
    lane.send(
        *(MembershipSet(tenant="acme", principal="user:ann", version=5, observed_at=5, source=s) for s in ("a", "b"))
    )
    wait_until(lambda: consumer.state() == "holding")
    time.sleep(8)
    assert consumer.state() == "holding" and store.refused > 5
    assert consumer.observed.value("headwater_rebalances_total", lane="access", how="lost") == 0, "it stayed a member"
    assert lane.applied() == 10
    store.down = False
    wait_until(lambda: lane.applied() == 20 and lane.applied("membership") == 2)
    assert not any(admits(lane, doc(n)) for n in range(10))
    principal = lane.principal("acme", "user:ann")
    assert principal is not None and set(principal.parts) == {"a", "b"}
    assert consumer.state() == "running"


@pytest.mark.requirement("I1", "F21")
def test_members_come_and_go_while_events_flow(lane: Lane) -> None:
    first = lane.consumer(member="a")
    stop = threading.Event()
    sent: dict[int, AccessSet] = {}

    def flow() -> None:
        version = 1000
        while not stop.is_set():
            version += 1
            event = rule(doc(version % 40), version, "user:ann" if version % 3 else "user:bob")
            lane.send(event)
            sent[version % 40] = event
            time.sleep(0.005)

    feeder = threading.Thread(target=flow, daemon=True)
    feeder.start()
    second = lane.consumer(member="b")
    wait_until(lambda: len(second.runtime.health()["partitions"]) in (1, 2))  # type: ignore[arg-type]
    time.sleep(1)
    began = time.monotonic()
    first.stop()
    wait_until(lambda: len(second.runtime.health()["partitions"]) == 3 and second.state() == "running")  # type: ignore[arg-type]
    assert time.monotonic() - began < 5, "a member that left in order leaves no lease to wait for"
    time.sleep(0.5)
    stop.set()
    feeder.join()
    wait_until(lambda: all((lane.record(e.document) or e).version == e.version for e in sent.values()))
    for event in sent.values():
        record = lane.record(event.document)
        assert record is not None and record.rule == event.rule
    for consumer in (first, second):
        assert consumer.observed.value("headwater_late_writes_total", lane="access") == 0
    receipts = lane.receipts()
    where = [(r.coordinates.partition, r.coordinates.offset) for r in receipts if r.coordinates]
    assert len(set(where)) == len(where), "in order means without repetition"


@pytest.mark.requirement("I1")
def test_a_stop_between_check_and_send_is_repaired_by_the_new_owner(lane: Lane) -> None:
    """The old owner passes the lease check, stands still for longer than its session, and then writes."""
    gate, arrived = threading.Event(), threading.Event()
    armed = [False]

    def before_write() -> None:
        if armed[0] and threading.current_thread().name.startswith("work-"):
            armed[0] = False
            old.runtime._reader._heartbeat.forget()  # type: ignore[union-attr]
            arrived.set()
            gate.wait(60)

    old = lane.consumer(hooks=Hooks(before_write=before_write))
    lane.send(rule(doc(1), 10, "user:ann"))
    wait_until(lambda: admits(lane, doc(1)) and lane.applied() == 1)
    time.sleep(0.5)
    armed[0] = True
    lane.send(rule(doc(1), 11, "user:ann", "user:carl"))
    assert arrived.wait(10)
    # What SIGSTOP does to its membership: it ends, with work in flight that nobody can await.
    old.runtime.stop()
    new = lane.consumer()
    lane.send(rule(doc(1), 12, "user:bob"))
    wait_until(lambda: (lane.record(doc(1)) or rule(doc(1), 1, "user:bob")).version == 12, 60)
    gate.set()
    wait_until(lambda: new.observed.value("headwater_rechecks_total", lane="access") == 1, 60)
    wait_until(lambda: (lane.record(doc(1)) or rule(doc(1), 1, "user:bob")).version == 12, 20)
    assert not admits(lane, doc(1))
    assert old.observed.value("headwater_late_writes_total", lane="access") == 1


@pytest.mark.requirement("F01", "I5")
def test_tombstones_holds_and_memberships_reach_the_store(lane: Lane) -> None:
    lane.consumer()
    lane.send(
        rule(doc(1), 10, "user:ann"),
        AccessTombstone(document=doc(1), version=11, not_before=11, observed_at=11),
        rule(doc(2), 10, "user:ann"),
        HoldChanged(document=doc(2), hold="legal", active=True, version=3, observed_at=3),
        MembershipSet(
            tenant="acme", principal="user:ann", parents=("group:wiki/eng",), version=4, observed_at=4, source="wiki"
        ),
    )
    wait_until(lambda: lane.applied() == 4 and lane.applied("membership") == 1)
    first, second = lane.record(doc(1)), lane.record(doc(2))
    assert first is not None and first.tombstone and first.not_before == 11
    assert second is not None and second.holds == {"legal": 3}
    principal = lane.principal("acme", "user:ann")
    assert principal is not None and principal.parents == ("group:wiki/eng",)
