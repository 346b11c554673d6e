"""The control consumer: evidence gathered by itself, the write order, kills at every step, and what time brings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.errors import BusUnavailable, ConfigError, EncoderUnavailable, LeaseLost, StoreUnavailable
from pipeline.settings import GenerationSettings
from schemas.generation import Freed
from tests.unit.generations.control_world import ControlWorld, Killed


@pytest.fixture
def world() -> ControlWorld:
    return ControlWorld()


# ---------------------------------------------------------------- the first generation


@pytest.mark.requirement("I7", "A10")
def test_an_empty_installation_gets_its_first_generation(world: ControlWorld) -> None:
    world.idle()
    assert (world.active, world.states()) == ("g1", {"g1": "active"})
    assert [(r.event_type, r.outcome) for r in world.receipts] == [
        ("control.create", "done"), ("control.ready", "done"), ("control.activate", "done"),
    ]  # fmt: skip
    world.idle(40)
    assert len(world.commands) == 3


@pytest.mark.requirement("I7")
def test_the_first_generation_serves_once_what_was_logged_before_is_applied(world: ControlWorld) -> None:
    world.logged(50)
    world.idle(20)
    assert (world.active, world.states()) == (None, {"g1": "building"})
    world.applied("g1", 49)
    world.idle(20)
    assert world.active is None
    world.applied("g1", 50)
    world.idle()
    assert world.active == "g1"


@pytest.mark.requirement("I7")
def test_where_generations_stand_none_is_made_by_itself(world: ControlWorld) -> None:
    world.ask("create", "other")
    world.idle(10)
    assert world.states() == {"other": "building"} and world.active is None


# ---------------------------------------------------------------- create


@pytest.mark.requirement("I7", "A10")
def test_a_created_generation_is_building_with_collections_group_and_reference_vectors(world: ControlWorld) -> None:
    receipt = world.ask("create")
    assert receipt.outcome == "done" and receipt.details is not None and receipt.details["backend"] == "stub"
    made = world.known["g2"]
    assert made.state == "building" and made.reference is not None and made.reference.dimension == 8
    assert made.requested_by == "ops" and made.state_since is not None
    assert world.facts.groups == {"g2"}
    assert world.store.count_chunks("g2", "acme") == {"hot": 0, "cold": 0}


@pytest.mark.requirement("A10", "F18")
def test_weights_or_dimension_that_differ_are_refused_and_leave_nothing(world: ControlWorld) -> None:
    world.dimension = 16
    receipt = world.ask("create")
    assert receipt.outcome == "refused" and "dimension 16, declared are 8" in str(receipt.reason)
    world.dimension = None
    world.refuses = ConfigError("encoder.weights_sha256", "the file has another hash", "Put the official one there.")
    receipt = world.ask("create")
    assert receipt.outcome == "refused" and "encoder.weights_sha256" in str(receipt.reason)
    world.refuses = EncoderUnavailable("endpoint corp does not answer")
    assert "does not answer" in str(world.ask("create").reason)
    assert world.known == {} and world.facts.groups == set() and "ensure_generation" not in world.store.ops()


# ---------------------------------------------------------------- evidence is looked up, not believed


@pytest.mark.requirement("I7")
def test_ready_looks_at_progress_and_the_log(world: ControlWorld) -> None:
    world.serving()
    world.ask("create")
    world.logged(10)
    world.applied("g2", 7)
    refused = world.ask("ready")
    assert refused.outcome == "refused" and "6 records" in str(refused.reason)
    world.applied("g2", 10)
    world.applied("g1", 2000)
    assert "behind g1" in str(world.ask("ready").reason)
    world.applied("g2", 1500)
    done = world.ask("ready")
    assert done.outcome == "done" and world.states()["g2"] == "ready"
    assert done.details == {"checks": {"built": {"holds": True, "found": 0}, "behind": {"holds": True, "found": 1000}}}


@pytest.mark.requirement("I7", "A10")
def test_activation_looks_at_report_lag_and_query_services(world: ControlWorld) -> None:
    world.serving()
    world.ask("create")
    world.ask("ready")
    world.heard("g1", "g1")
    refused = world.ask("activate")
    assert "never verified" in str(refused.reason) and "not loaded in query service q1" in str(refused.reason)
    world.ask("report", report=world.summary())
    world.heard("g1", "g1", "g2")
    world.applied("g1", 5000)
    assert "10000 records behind g1" in str(world.ask("activate").reason)
    world.applied("g2", 4900)
    receipt = world.ask("activate", expected_active="g1")
    assert receipt.outcome == "done" and receipt.details is not None
    assert receipt.details["checks"]["behind"] == {"holds": True, "found": 200}  # type: ignore[index]
    assert (world.active, world.states()) == ("g2", {"g1": "standby", "g2": "active"})


@pytest.mark.requirement("I7", "A10")
def test_two_activations_at_once(world: ControlWorld) -> None:
    world.serving()
    world.proven("g2")
    world.proven("g3")
    world.put("activate", "g2", expected_active="g1")
    world.put("activate", "g3", expected_active="g1")
    world.work()
    one, two = world.receipts[-2:]
    assert (one.outcome, two.outcome) == ("done", "refused")
    assert two.reason == "g2 is active by now, not g1: look again and decide anew"
    assert world.states() == {"g1": "standby", "g2": "active", "g3": "ready"}


@pytest.mark.requirement("I7", "A10")
@pytest.mark.parametrize("order", [("rollback", "retire"), ("retire", "rollback")])
def test_rollback_and_retire_at_once(world: ControlWorld, order: tuple[str, str]) -> None:
    world.serving()
    world.proven()
    world.ask("activate")
    world.clock.advance(1)
    world.heard("g2", "g1", "g2")
    for kind in order:
        world.put(kind, "g1")
    world.work()
    outcomes = {r.event_type.removeprefix("control."): r.outcome for r in world.receipts[-2:]}
    assert outcomes == {order[0]: "done", order[1]: "refused"}
    assert world.active == ("g1" if order[0] == "rollback" else "g2")
    assert world.states()["g1"] == ("active" if order[0] == "rollback" else "retired")


@pytest.mark.requirement("I7")
def test_a_switch_waits_for_what_was_logged_before_it(world: ControlWorld) -> None:
    """A generation may lag a little when it is activated; yet nobody shall see the past again, if that is soon over."""
    world.serving()
    world.proven()
    world.heard("g1", "g1", "g2")
    world.logged(20)
    world.applied("g1", 20)
    world.applied("g2", 15)
    active_while_waiting: list[str | None] = []

    def pause(seconds: float) -> None:
        world.clock.advance(seconds)
        active_while_waiting.append(world.active)
        if len(active_while_waiting) == 3:
            world.applied("g2", 20)

    world.lane.pause = pause
    answer = world.ask("activate")
    assert answer.outcome == "done" and world.active == "g2"
    assert active_while_waiting == ["g1"] * 3
    assert answer.details is not None and answer.details["behind_log"] == 0 and answer.details["waited_s"] == 0.3


@pytest.mark.requirement("A10", "I7")
def test_a_switch_does_not_wait_for_ever(world: ControlWorld) -> None:
    world.serving()
    world.proven()
    world.heard("g1", "g1", "g2")
    world.logged(20)
    world.applied("g1", 20)
    world.applied("g2", 15)
    world.lane.pause = world.clock.advance
    answer = world.ask("activate")
    assert answer.outcome == "done", "as many as that are allowed"
    assert answer.details is not None and answer.details["behind_log"] == 10 and answer.details["waited_s"] == 10.0


@pytest.mark.requirement("A10", "I7")
def test_a_rollback_of_a_lagging_standby_warns(world: ControlWorld) -> None:
    world.serving()
    world.proven()
    world.ask("activate")
    world.applied("g2", 3000)
    receipt = world.ask("rollback", "g1")
    assert receipt.outcome == "done" and "6000 records behind g2" in str(receipt.reason)
    assert receipt.details is not None and receipt.details["warnings"] == [receipt.reason]
    assert world.active == "g1"


# ---------------------------------------------------------------- kills


def prepared(kind: str) -> Callable[[ControlWorld], None]:
    def prepare(world: ControlWorld) -> None:
        world.serving()
        if kind == "create":
            return
        if kind == "ready":
            world.ask("create")
            return
        if kind == "report":
            world.ask("create")
            return
        world.proven()
        if kind in ("rollback", "retire", "drop"):
            world.ask("activate")
            world.ask("rollback", "g1")
            world.clock.advance(1)
            world.ask("activate", override="test")
            world.ask("rollback", "g1")
        if kind == "drop":
            world.ask("retire", "g2")

    return prepare


KINDS = ("create", "ready", "report", "activate", "rollback", "retire", "drop")


def send(world: ControlWorld, kind: str) -> None:
    fields: dict[str, dict[str, object]] = {
        "report": {"report": world.summary()},
        "activate": {"expected_active": "g1"},
        "drop": {"override": "disk is needed"},
    }
    world.put(kind, "g2", **fields.get(kind, {}))


def outcome_of(kind: str, kill_at: int | None, offset: int | None = None) -> tuple[ControlWorld, int]:
    world = ControlWorld(retention_days=1.0)
    prepared(kind)(world)
    before = len(world.commands)
    world.steps.clear()
    send(world, kind)
    world.kill_at = kill_at
    try:
        world.work()
    except Killed:
        world.restart(before if offset is None else offset)
        world.work()
    return world, before


@pytest.mark.requirement("I7", "A10")
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_step_changes_nothing_of_the_outcome(kind: str) -> None:
    smooth, before = outcome_of(kind, None)
    steps = list(smooth.steps)
    assert steps, kind
    for number in range(len(steps)):
        for offset in (None, 0):  # Kafka's offset just before the command, or lost altogether
            world, _ = outcome_of(kind, number, offset)
            where = f"{kind} killed at {steps[number]}, read again from {offset if offset is not None else before}"
            assert (world.active, world.states()) == (smooth.active, smooth.states()), where
            told = [r for r in world.receipts if r.request_id and r.request_id.endswith(f"-{before}")]
            assert told and {r.outcome for r in told} == {"done"}, where
            world.idle(1)
            assert (world.active, world.states()) == (smooth.active, smooth.states()), where
            one, other = world.known["g2"], smooth.known["g2"]
            assert (one.freed, one.report is None, one.override) == (other.freed, other.report is None, other.override)
            assert (one.dropped_at is None) == (other.dropped_at is None), where
            assert one.requested_by == other.requested_by, where


@pytest.mark.requirement("I7", "A10")
@pytest.mark.parametrize("op", ["set_active_generation", "write_generation", "write_progress"])
@pytest.mark.parametrize("after", [False, True])
def test_a_write_that_fails_is_repeated_until_it_holds(world: ControlWorld, op: str, after: bool) -> None:
    world.serving()
    world.proven()
    world.put("activate")
    for skip in (0, 1):
        world.store.fail_next(op, after=after, skip=skip)
        while True:
            try:
                world.work()
                break
            except StoreUnavailable:
                continue
        world.store._failures.clear()
        assert (world.active, world.states()) == ("g2", {"g1": "standby", "g2": "active"})
        assert [r.outcome for r in world.receipts if r.event_type == "control.activate"][1:] == ["done"] * (skip + 1)
        world.put("activate")


@pytest.mark.requirement("I7")
def test_an_answer_that_could_not_be_sent_is_sent_as_it_was_decided(world: ControlWorld) -> None:
    world.serving()
    world.proven()
    world.put("activate")

    def away() -> None:
        raise BusUnavailable("no broker")

    world.publishing = away
    with pytest.raises(BusUnavailable):
        world.work()
    assert world.active == "g2"
    world.publishing = lambda: None
    world.work()
    assert world.receipts[-1].details is not None and "checks" in world.receipts[-1].details


@pytest.mark.requirement("I7", "A10")
def test_what_was_refused_does_not_happen_after_a_kill(world: ControlWorld) -> None:
    world.serving()
    world.proven()
    world.ask("activate")
    world.heard("g2", "g1", "g2", g1=1)
    before = len(world.commands)
    world.steps.clear()
    world.put("retire", "g1")
    world.kill_at = 1  # after it was answered
    with pytest.raises(Killed):
        world.work()
    assert world.receipts[-1].outcome == "refused"
    world.clock.advance(1)
    world.heard("g2", "g1", "g2")  # by now it would be allowed
    world.restart(before)
    world.work()
    assert world.states()["g1"] == "standby"


@pytest.mark.requirement("I7", "I11")
def test_lost_offsets_do_not_play_a_year_of_commands_again(world: ControlWorld) -> None:
    world.serving()
    world.proven()
    world.ask("activate")
    world.ask("rollback", "g1")
    receipts = len(world.receipts)
    world.restart(0)
    world.work()
    assert world.active == "g1" and len(world.receipts) == receipts


@pytest.mark.requirement("I11")
def test_commands_of_a_new_log_count_though_their_offsets_were_seen(world: ControlWorld) -> None:
    world.serving()
    world.commands.clear()
    world.restart(0)
    assert world.ask("create", "fresh").outcome == "done"


@pytest.mark.requirement("I1")
def test_nothing_is_written_without_a_lease(world: ControlWorld) -> None:
    world.serving()
    world.proven()
    world.put("activate")
    world.assignment.lease.give_up()
    with pytest.raises(LeaseLost):
        world.work()
    assert world.active == "g1"


@pytest.mark.requirement("I7", "A10")
def test_records_that_did_not_follow_the_switch_are_repaired(world: ControlWorld) -> None:
    world.serving()
    world.proven()
    world.store.set_active_generation("g2")  # and nothing else: the process died, its command is not read again
    world.restart(len(world.commands))
    world.idle(1)
    assert world.states() == {"g1": "standby", "g2": "active"}


# ---------------------------------------------------------------- the end of a generation


@pytest.mark.requirement("I7", "A10")
def test_a_retired_generation_loses_its_group_and_then_its_collections() -> None:
    world = ControlWorld(policy=GenerationSettings(retention_days=1.0))
    world.serving()
    world.proven()
    world.ask("activate")
    world.clock.advance(1)
    world.heard("g2", "g2")
    world.facts.consumers["g1"] = 1
    world.facts.groups.add("g1")
    assert world.ask("retire", "g1").outcome == "done"
    world.idle(3)
    assert "g1" in world.facts.groups  # its consumer has not left yet
    world.facts.consumers["g1"] = 0
    world.idle(3)
    assert "g1" not in world.facts.groups
    assert world.known["g1"].dropped_at is None
    world.clock.advance(24 * 3600)
    world.idle(2)
    assert world.known["g1"].dropped_at is None  # the query service was heard last before that
    world.heard("g2", "g2")
    world.idle(2)
    dropped = world.known["g1"]
    assert dropped.dropped_at is not None and dropped.freed == Freed(documents=0, chunks=0, bytes=0)
    assert world.receipts[-1].event_type == "control.drop" and world.receipts[-1].details is not None
    assert world.receipts[-1].details["freed"] == {"documents": 0, "chunks": 0, "bytes": 0}
    with pytest.raises(StoreUnavailable):
        world.store.count_chunks("g1", "acme")
        world.store.read_manifests("g1", "acme", ["x"])
    assert world.active == "g2"
