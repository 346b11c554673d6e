"""Taking over, working, holding, giving up."""

from __future__ import annotations

import threading

import pytest

from consumers.runtime import Runtime
from pipeline.bus.interface import Slot
from pipeline.errors import Crash, Hold, StoreUnavailable
from pipeline.ports import Outgoing
from schemas.topics import Topic
from tests.fakes.bus import MemoryAppender
from tests.unit.consumers.world import Recorder, World


def publish(world: World, count: int, prefix: str = "k") -> None:
    world.publisher.publish([Outgoing(str(Topic.CONTENT), f"{prefix}{i}", b"x") for i in range(count)])


@pytest.mark.requirement("I11")
def test_a_first_owner_reads_everything_and_the_store_and_kafka_know_how_far_it_is() -> None:
    world = World()
    publish(world, 30)
    lane, process = world.recorder()
    process.settle()
    assert len(lane.seen) == 30 and sorted(lane.opened_partitions) == [0, 1, 2]
    progress = world.progress("content")
    assert sum(p.offset for p in progress.values()) == 30
    assert all(p.owner == process.runtime.owner and not p.clean and p.generation == "g" for p in progress.values())
    assert all(p.end_offset == p.offset for p in progress.values())
    committed = world.broker.group("index").committed
    assert sum(o for slot, o in committed.items() if slot.topic == "content") == 30


@pytest.mark.requirement("I1", "I11")
def test_ownership_is_written_before_the_first_record_is_read() -> None:
    world = World()
    publish(world, 3)
    lane, process = world.recorder()
    lane.on_work = lambda lane: None
    process.step(3)
    assert lane.pending and all(p.owner == process.runtime.owner for p in world.progress("content").values())


@pytest.mark.requirement("I11", "F21")
def test_leaving_in_order_lets_the_next_owner_go_on_at_once_and_exactly_there() -> None:
    world = World()
    publish(world, 30)
    first, process = world.recorder()
    process.settle()
    process.stop()
    assert all(p.clean for p in world.progress("content").values())
    assert sorted(first.closed_partitions) == [0, 1, 2]
    publish(world, 10, "n")
    second, successor = world.recorder()
    successor.step(3, 0.0)
    assert len(second.seen) == 10, "no wait, no repetition"
    assert not any(p.clean for p in world.progress("content").values())


@pytest.mark.requirement("I1", "I11")
def test_after_a_crash_the_next_owner_waits_one_lease_and_rewinds() -> None:
    world = World()
    publish(world, 60)
    _, process = world.recorder()
    process.settle()
    del process  # killed: it neither leaves nor polls again
    world.clock.advance(6.1)  # the broker ejects it
    second, successor = world.recorder()
    successor.step(5, 1.0)
    assert second.seen == [], "the dead owner's lease may still run"
    assert successor.runtime.health()["state"] == "waiting"
    successor.step(4, 1.0)
    repeated = {(r.partition, r.offset) for r in second.seen}
    assert len(repeated) == 15, "five records per partition: the safety window"
    assert {p for p, _ in repeated} == {0, 1, 2}


@pytest.mark.requirement("I8")
def test_infrastructure_failure_holds_the_work_and_keeps_the_membership() -> None:
    world = World()
    lane, process = world.recorder()
    process.step(2)
    publish(world, 5)
    failures = 0

    def unavailable(lane: Recorder) -> None:
        nonlocal failures
        failures += 1
        raise StoreUnavailable("down")

    lane.on_work = unavailable
    pauses = [process.step(1, 1.0) for _ in range(20)]
    assert all(pause < 0 for pause in pauses) and min(pauses) < -1.0 and min(pauses) >= -5.0
    assert process.runtime.health()["state"] == "holding" and lane.closed_partitions == []
    assert process.observed.value("headwater_retries_total", lane="index", kind="StoreUnavailable") == failures
    assert process.observed.value("headwater_holding", lane="index") == 1
    lane.on_work = Recorder.finish
    process.settle()
    assert len(lane.seen) == 5 and process.runtime.health()["state"] == "running"
    assert process.observed.value("headwater_holding", lane="index") == 0


@pytest.mark.requirement("I8")
def test_hold_asks_for_the_pause_that_it_names() -> None:
    world = World()
    lane, process = world.recorder()

    def hold(lane: Recorder) -> None:
        raise Hold("not yet", seconds=0.07)

    lane.on_work = hold
    assert process.step(3) == 0.07
    assert process.runtime.health()["state"] == "running"


@pytest.mark.requirement("I13")
def test_reading_ahead_is_bounded_per_slot_and_goes_on_when_work_is_done() -> None:
    world = World(partitions=1)
    publish(world, 2000)
    lane, process = world.recorder(window_records=400)
    lane.on_work = lambda lane: None
    process.step(10)
    assert 400 <= len(lane.pending) <= 900, "the window and at most one fetch more"
    world.publisher.publish([Outgoing(str(Topic.MAINTENANCE), "k", b"x")])
    process.step(2)
    assert lane.pending[-1][1].topic == "maintenance", "a full slot holds no other slot back"
    lane.on_work = Recorder.finish
    process.step(20)
    assert len(lane.seen) == 2001


@pytest.mark.requirement("I13")
def test_reading_ahead_is_bounded_in_bytes_too() -> None:
    world = World(partitions=1)
    world.publisher.publish([Outgoing(str(Topic.CONTENT), f"k{i}", b"x" * 60_000) for i in range(1200)])
    lane, process = world.recorder(window_bytes=1_000_000)
    lane.on_work = lambda lane: None
    process.step(10)
    assert len(lane.pending) <= 500


@pytest.mark.requirement("I2", "F21")
def test_only_what_is_done_is_committed() -> None:
    world = World(partitions=1)
    publish(world, 10)
    lane, process = world.recorder()

    def all_but_the_fifth(lane: Recorder) -> None:
        for assignment, record in lane.pending:
            if record.offset != 4:
                assignment.done(record)

    lane.on_work = all_but_the_fifth
    process.settle()
    assert world.progress("content")[0].offset == 4
    assert world.broker.group("index").committed[Slot("content", 0)] == 4


@pytest.mark.requirement("I8")
def test_a_crash_neither_commits_nor_leaves_a_clean_record() -> None:
    world = World(partitions=1)
    publish(world, 10)
    lane, process = world.recorder()
    process.step(2)
    progress = world.progress("content")[0].offset

    def crash(lane: Recorder) -> None:
        raise Crash("a bug")

    publish(world, 5, "n")
    lane.on_work = crash
    process.runtime._poll_once(process.reader)
    with pytest.raises(Crash):
        process.runtime._work_once()
    process.runtime.fail(Crash("a bug"))
    process.reader.close()
    left = world.progress("content")[0]
    assert not left.clean and left.offset == progress


@pytest.mark.requirement("I1")
def test_lost_membership_ends_the_leases_and_forgets_the_work() -> None:
    world = World()
    publish(world, 9)
    lane, process = world.recorder()
    lane.on_work = lambda lane: None
    process.step(3)
    leases = [assignment.lease for assignment, _ in lane.pending]
    world.clock.advance(7)
    world.broker.expire("index")
    process.step(1)
    assert all(lease.given_up for lease in leases) and sorted(lane.closed_partitions) == [0, 1, 2]
    assert not any(p.clean for p in world.progress("content").values())
    lane.on_work = Recorder.finish
    process.settle()
    assert len({(r.partition, r.offset) for r in lane.seen}) == 9, "it took the partitions again and lost nothing"


@pytest.mark.requirement("I1")
def test_work_that_could_not_be_awaited_leaves_no_clean_record() -> None:
    world = World()
    publish(world, 9)
    lane, process = world.recorder()
    process.settle()
    lane.drains = False
    process.stop()
    assert not any(p.clean for p in world.progress("content").values())
    assert process.observed.value("headwater_rebalances_total", lane="index", how="undrained") == 3


@pytest.mark.requirement("I1", "F21")
def test_a_second_member_takes_its_share_in_order() -> None:
    world = World()
    publish(world, 30)
    first, one = world.recorder()
    one.settle()
    second, two = world.recorder()
    for _ in range(6):
        one.step()
        two.step()
    publish(world, 30, "n")
    for _ in range(6):
        one.step()
        two.step()
    seen = [(r.partition, r.offset) for r in first.seen + second.seen]
    assert len(seen) == len(set(seen)) == 60
    assert {r.partition for r in second.seen} < {0, 1, 2}


@pytest.mark.requirement("I11")
def test_progress_is_throttled_but_a_sign_of_life_comes_every_five_seconds() -> None:
    world = World(partitions=1)
    _, process = world.recorder()
    process.settle()

    def writes() -> int:
        return sum(1 for op in world.store.ops() if op == "write_progress")

    before = writes()
    for i in range(40):
        publish(world, 1, f"p{i}-")
        process.step(1, 0.01)
    assert writes() - before <= 3, "40 records in 0.4 s"
    process.step(2, 0.3)
    before = writes()
    process.step(21, 0.5)
    assert 2 <= writes() - before <= 3, "10 idle seconds"


@pytest.mark.requirement("I9", "I11")
def test_aborted_records_are_passed_over_to_the_end() -> None:
    world = World(partitions=1)
    lane, process = world.recorder()
    appender = MemoryAppender(world.broker, "o")
    appender.fail_next = 1
    with pytest.raises(Exception, match="aborted"):
        appender.append([Outgoing(str(Topic.CONTENT), "a", b"x")])
    process.settle()
    assert lane.seen == []
    progress = world.progress("content")[0]
    assert progress.offset == progress.end_offset == 2


@pytest.mark.requirement("I8")
def test_a_store_that_is_down_at_take_over_delays_it_and_loses_nothing() -> None:
    world = World()
    publish(world, 9)
    lane, process = world.recorder()
    world.store.fail_next("read_progress", 3)
    world.store.fail_next("write_progress", 2)
    process.step(12, 0.5)
    assert len(lane.seen) == 9 and lane.closed_partitions == []


@pytest.mark.requirement("I8")
def test_a_broker_that_is_down_is_waited_for() -> None:
    world = World()
    lane, process = world.recorder()
    process.step(2)
    world.broker.down = True
    process.runtime._pause_poll = lambda seconds: None  # type: ignore[method-assign]
    process.step(3)
    world.broker.down = False
    publish(world, 4)
    process.settle()
    assert len(lane.seen) == 4
    assert process.observed.value("headwater_retries_total", lane="index", kind="BusUnavailable") == 3


@pytest.mark.requirement("I2", "I11")
def test_records_that_the_last_owner_may_have_half_done_are_marked() -> None:
    world = World(partitions=1)
    publish(world, 20)
    _, process = world.recorder()
    process.settle()
    del process
    publish(world, 10, "n")
    world.clock.advance(6.1)
    second, successor = world.recorder(window_records=6)
    marked: list[int] = []

    def note(lane: Recorder) -> None:
        marked.extend(r.offset for a, r in lane.pending if a.ambiguous(r))
        lane.finish()

    second.on_work = note
    successor.step(14, 1.0)
    assert [r.offset for r in second.seen] == list(range(15, 30))
    assert marked == [20, 21, 22, 23, 24, 25]


@pytest.mark.requirement("I8")
def test_run_ends_on_stop_and_raises_what_stopped_the_lane() -> None:
    from pipeline.clock import SystemClock

    world = World()
    world.broker.clock = SystemClock()
    lane, process = world.recorder()
    process.reader.close()

    def runtime() -> Runtime:
        old = process.runtime
        return Runtime(
            lane, reader=old._make_reader, store=world.store, rechecks=old._rechecks, observed=old._metrics, poll_ms=50
        )

    first = runtime()
    threading.Timer(0.3, first.stop).start()
    publish(world, 5)
    first.run()
    assert len(lane.seen) == 5 and all(p.clean for p in world.progress("content").values())

    def broken(lane: Recorder) -> None:
        raise ZeroDivisionError

    lane.on_work = broken
    with pytest.raises(ZeroDivisionError):
        runtime().run()


@pytest.mark.requirement("I11", "F19")
def test_a_store_restored_under_a_running_lane_is_noticed_and_read_into_again() -> None:
    world = World()
    publish(world, 30)
    lane, process = world.recorder()
    process.settle()
    copy = {place: dict(records) for place, records in world.store._records.items()}
    publish(world, 30, "later")
    process.settle()
    assert len(lane.seen) == 60
    lane.seen.clear()
    world.store._records = copy  # restored while nothing was asked of it
    world.clock.advance(2)
    process.step(8, 0.5)
    read = {(r.partition, r.offset) for r in lane.seen}
    ends = {p.partition: p.offset for p in world.progress("content").values()}
    assert sum(ends.values()) == 60, "the store is told so again"
    assert all((n, o) in read for n, end in ends.items() for o in range(10, end)), "what came after the copy"
    assert sorted(lane.closed_partitions) == [0, 1, 2], "caches of before are dropped"


@pytest.mark.requirement("I11")
def test_progress_never_hides_that_the_store_was_emptied() -> None:
    world = World()
    publish(world, 30)
    lane, process = world.recorder()
    process.settle()
    lane.seen.clear()
    world.store._records.clear()
    world.clock.advance(6)  # the sign of life is due
    process.step(1, 0.0)
    assert not any(p.offset for p in world.progress("content").values())
    process.step(8, 0.5)
    assert len(lane.seen) == 30
