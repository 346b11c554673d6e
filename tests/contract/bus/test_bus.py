"""Promises of the log that everything else is built on, on both implementations."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pipeline.bus.interface import Slot
from pipeline.errors import Crash, Reject
from schemas.keys import partition_of
from schemas.topics import Topic
from tests.contract.bus.helpers import Bus, Member, out, polled

Until = Callable[[Callable[[], bool]], None]


@pytest.mark.requirement("I2")
def test_records_lie_on_the_partition_of_their_partition_key_in_order(bus: Bus) -> None:
    publisher = bus.make(bus.publisher())
    hold = out(Topic.ACCESS, "doc+hold", b"h", partition_key="doc")
    appended = publisher.publish([out(Topic.ACCESS, "doc", b"1"), hold, out(Topic.ACCESS, "doc", b"2")])
    assert {a.partition for a in appended} == {partition_of("doc", 3)}
    assert [a.offset for a in appended] == [0, 1, 2]
    tail = bus.make(bus.tail([Topic.ACCESS], since="beginning"))
    got = polled(tail, 3)
    assert [(r.key, r.value) for r in got] == [("doc", b"1"), ("doc+hold", b"h"), ("doc", b"2")]
    assert abs(got[0].timestamp / 1e6 - time.time()) < 60
    assert tail.caught_up() and tail.behind() == 0


@pytest.mark.requirement("I9")
def test_a_transaction_is_seen_whole_and_its_marker_does_not_hold_the_position_back(bus: Bus, until: Until) -> None:
    appender = bus.make(bus.appender("owner"))
    appender.append([out(Topic.CONTENT, f"k{i}") for i in range(30)] + [out(Topic.CURSORS, "cursor")])
    member = Member(bus, "g", [Topic.CONTENT])
    member.poll_for(30)
    member.poll()
    slots = list(member.reader.assignment())
    ends = member.reader.end_offsets(slots)
    assert {slot: member.reader.position(slot) for slot in slots} == ends


@pytest.mark.requirement("I1")
def test_a_newer_appender_of_the_same_id_fences_the_older_one(bus: Bus) -> None:
    first = bus.make(bus.appender("owner"))
    first.append([out(Topic.CONTENT, "k")])
    second = bus.make(bus.appender("owner"))
    with pytest.raises(Crash, match="another owner"):
        first.append([out(Topic.CONTENT, "k")])
    with pytest.raises(Crash):
        first.append([out(Topic.CONTENT, "k")])
    assert len(second.append([out(Topic.CONTENT, "k")])) == 1
    other = bus.make(bus.appender("another source"))
    assert len(other.append([out(Topic.CONTENT, "k")])) == 1


@pytest.mark.requirement("F22")
def test_an_oversized_record_is_refused_with_the_remedy_and_its_neighbours_pass(bus: Bus, until: Until) -> None:
    publisher = bus.make(bus.publisher())
    with pytest.raises(Reject, match="large") as refused:
        publisher.publish([out(Topic.CONTENT, "a"), out(Topic.CONTENT, "b", b"x" * 12_000_000)])
    assert refused.value.kind == "too_large"
    appender = bus.make(bus.appender("owner"))
    with pytest.raises(Reject):
        appender.append([out(Topic.CONTENT, "b", b"x" * 12_000_000)])
    appender.append([out(Topic.CONTENT, "c", b"y" * 1_900_000), out(Topic.CONTENT, "d")])
    tail = bus.make(bus.tail([Topic.CONTENT], since="beginning"))
    got = polled(tail, 2)
    assert {r.key for r in got} == {"c", "d"}


@pytest.mark.requirement("I9")
def test_a_transaction_of_too_many_events_is_an_error_of_the_caller(bus: Bus) -> None:
    appender = bus.make(bus.appender("owner"))
    with pytest.raises(ValueError, match="at most 200"):
        appender.append([out(Topic.CONTENT, "k")] * 201)
    assert appender.append([]) == []


@pytest.mark.requirement("I1", "I2")
def test_one_member_owns_the_same_number_of_every_topic(bus: Bus, until: Until) -> None:
    topics = [Topic.CONTENT, Topic.ACCESS, Topic.MAINTENANCE]
    first = Member(bus, "g", topics)
    until(lambda: first.poll() == [] and first.numbers() == {0, 1, 2})
    second = Member(bus, "g", topics)

    def settled() -> bool:
        first.poll()
        second.poll()
        return len(first.numbers()) + len(second.numbers()) == 3 and bool(second.numbers())

    until(settled)
    assert first.numbers().isdisjoint(second.numbers())
    for member in (first, second):
        by_topic = {str(t): {s.partition for s in member.reader.assignment() if s.topic == t} for t in topics}
        assert len({frozenset(numbers) for numbers in by_topic.values()}) == 1
    assert first.events[1][0] == "revoked" and first.committed_at_revoke is True


@pytest.mark.requirement("F21")
def test_leaving_in_order_hands_over_without_a_gap_or_a_repeat(bus: Bus, until: Until) -> None:
    publisher = bus.make(bus.publisher())
    publisher.publish([out(Topic.CONTENT, f"k{i}") for i in range(20)])
    first = Member(bus, "g", [Topic.CONTENT], member="a")
    first.poll_for(20)
    first.reader.close()
    assert first.events[-1][0] == "revoked" and first.committed_at_revoke is True
    assert first.reader.confirmed() is None
    publisher.publish([out(Topic.CONTENT, f"n{i}") for i in range(20)])
    began = time.monotonic()
    second = Member(bus, "g", [Topic.CONTENT], member="b")
    second.poll_for(20)
    assert sorted(r.key or "" for r in first.records + second.records) == sorted(
        [f"k{i}" for i in range(20)] + [f"n{i}" for i in range(20)]
    )
    assert time.monotonic() - began < 5, "the static member's session was waited for"


@pytest.mark.requirement("I1")
def test_a_successor_of_the_same_static_name_takes_over_and_the_older_process_must_stop(bus: Bus, until: Until) -> None:
    first = Member(bus, "g", [Topic.CONTENT], member="a")
    until(lambda: first.poll() == [] and first.numbers() == {0, 1, 2})
    second = Member(bus, "g", [Topic.CONTENT], member="a")
    until(lambda: second.poll() == [] and second.numbers() == {0, 1, 2})

    def stopped() -> bool:
        try:
            first.poll()
        except Crash:
            return True
        return False

    until(stopped)


@pytest.mark.requirement("I8")
def test_pause_and_resume_keep_everything_and_the_membership(bus: Bus, until: Until) -> None:
    member = Member(bus, "g", [Topic.CONTENT])
    until(lambda: member.poll() == [] and member.numbers() == {0, 1, 2})
    slots = sorted(member.reader.assignment())
    member.reader.pause(slots)
    for _ in range(8):
        member.poll()  # what is being fetched when the pause comes may still arrive
    bus.make(bus.publisher()).publish([out(Topic.CONTENT, f"k{i}") for i in range(10)])
    for _ in range(5):
        assert member.poll() == []
    member.reader.resume(slots)
    member.poll_for(10)
    assert sorted(r.key or "" for r in member.records) == sorted(f"k{i}" for i in range(10))
    assert [e[0] for e in member.events] == ["assigned"]


@pytest.mark.requirement("I1")
def test_the_confirmed_moment_advances_while_polling_and_commits_confirm_too(bus: Bus, until: Until) -> None:
    from pipeline.clock import SystemClock

    clock = SystemClock()
    before = clock.elapsed()
    member = Member(bus, "g", [Topic.CONTENT])
    until(lambda: member.poll() == [] and bool(member.numbers()))
    first = member.reader.confirmed()
    assert first is not None and before <= first <= clock.elapsed()
    assert member.reader.commit({Slot("content", 0): 0})
    second = member.reader.confirmed()
    assert second is not None and second > first
    until(lambda: member.poll() == [] and (member.reader.confirmed() or 0) > second)


@pytest.mark.requirement("I11")
def test_a_tail_begins_where_it_is_told(bus: Bus, until: Until) -> None:
    publisher = bus.make(bus.publisher())
    publisher.publish([out(Topic.ACCESS, f"old{i}") for i in range(9)])
    time.sleep(1.1)
    live = bus.make(bus.tail([Topic.ACCESS], since="end"))
    recent = bus.make(bus.tail([Topic.ACCESS], since=1.0))
    everything = bus.make(bus.tail([Topic.ACCESS], since="beginning"))
    until(lambda: len(everything.poll(100)) >= 0 and everything.caught_up())
    publisher.publish([out(Topic.ACCESS, f"new{i}") for i in range(3)])
    for tail in (live, recent):
        assert {r.key for r in polled(tail, 3)} == {"new0", "new1", "new2"}


@pytest.mark.requirement("I9")
def test_a_scan_reads_a_topic_to_its_end_and_filters_by_key(bus: Bus) -> None:
    appender = bus.make(bus.appender("owner"))
    appender.append([out(Topic.CURSORS, f"k{i % 5}", str(i).encode()) for i in range(50)])
    state = {r.key: r.value for r in bus.scan(Topic.CURSORS)}
    assert state == {f"k{i}": str(45 + i).encode() for i in range(5)}
    only = [r.value for r in bus.scan(Topic.CURSORS, wanted=lambda key: key == "k3")]
    assert only[-1] == b"48"
    number = partition_of("k3", 3)
    assert {r.partition for r in bus.scan(Topic.CURSORS, partitions=[number])} == {number}
    assert list(bus.scan(Topic.CONTENT)) == []
