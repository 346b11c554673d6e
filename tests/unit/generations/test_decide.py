"""Transitions of generations: one decision at a time, refused with a reason (invariant 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.generations import Decision, Evidence, repairs
from pipeline.generations import decide as decided
from pipeline.settings import GenerationSettings
from schemas.events import ControlCommand
from schemas.generation import GenerationState
from tests.unit.generations.support import HOUR, NOW, command, generation, instance, report, two

POLICY = GenerationSettings()


def decide(wanted: ControlCommand, evidence: Evidence, now: int = NOW) -> Decision:
    return decided(wanted, evidence, POLICY, now)


def states(decision: Decision) -> dict[str, str]:
    return {g.name: g.state for g in decision.write}


# ---------------------------------------------------------------- create


@pytest.mark.requirement("I7", "A10")
def test_create_asks_for_the_declared_encoder() -> None:
    decision = decide(command("create", declaration={"encoder": {"dimension": 768}}), Evidence({}, None))
    assert decision.create is not None and decision.create.encoder.dimension == 768


@pytest.mark.requirement("I7")
@pytest.mark.parametrize("state", ["building", "ready", "active", "standby"])
def test_creating_the_same_again_does_nothing_and_another_one_is_refused(state: GenerationState) -> None:
    evidence = Evidence({"g2": generation("g2", state)}, None)
    again = decide(command("create"), evidence)
    assert (again.refused, again.create, again.write) == (None, None, ())
    other = decide(command("create", declaration={"encoder": {"dimension": 768}}), evidence)
    assert other.refused is not None and "another declaration" in other.refused


@pytest.mark.requirement("I7")
def test_vectors_are_taken_over_from_a_generation_of_the_same_encoder_only() -> None:
    wanted = {"vectors_from": "g1"}
    evidence = Evidence({"g1": generation("g1", "active")}, "g1")
    decision = decide(command("create", declaration=wanted), evidence)
    assert decision.create is not None and decision.create.vectors_from == "g1"
    again = Evidence({**evidence.known, "g2": generation("g2", "building", vectors_from="g1")}, "g1")
    assert decide(command("create", declaration=wanted), again) == Decision(details={"state": "building"})
    other = Evidence({"g1": generation("g1", "active", dimension=768)}, "g1")
    gone = Evidence({"g1": generation("g1", "retired", dropped_at=1)}, None)
    for found, why in ((other, "another encoder"), (gone, "no generation g1"), (Evidence({}, None), "no generation")):
        refused = decide(command("create", declaration=wanted), found).refused
        assert refused is not None and "vectors_from" in refused and why in refused


@pytest.mark.requirement("I7")
def test_the_name_of_a_retired_one_is_not_used_again() -> None:
    decision = decide(command("create"), Evidence({"g2": generation("g2", "retired")}, None))
    assert decision.refused is not None and "retired" in decision.refused


@pytest.mark.requirement("I7")
@pytest.mark.parametrize(
    ("declaration", "named"),
    [
        ({"encodr": {}}, "declaration.encodr"),
        ({"encoder": {"dimension": 0}}, "declaration.encoder.dimension"),
        ({"chunking": {"child_max_tokens": 512}}, "declaration.chunking.child_max_tokens"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_by_its_field(declaration: dict[str, Any], named: str) -> None:
    decision = decide(command("create", declaration=declaration), Evidence({}, None))
    assert decision.refused is not None and decision.refused.startswith(named) and decision.create is None


# ---------------------------------------------------------------- ready and report


@pytest.mark.requirement("I7", "A10")
def test_ready_is_not_believed_before_the_log_is_applied() -> None:
    early = decide(command("ready"), two("building", unread=3))
    assert early.refused is not None and "3 records" in early.refused and early.write == ()
    assert early.details["checks"]["built"] == {"holds": False, "found": 3}  # type: ignore[index]
    behind = decide(command("ready"), two("building", behind=POLICY.behind_records + 1))
    assert behind.refused is not None and "1001 records behind g1" in behind.refused
    assert states(decide(command("ready"), two("building", behind=POLICY.behind_records))) == {"g2": "ready"}


@pytest.mark.requirement("I7")
def test_ready_twice_changes_nothing_and_a_retired_one_is_not_ready() -> None:
    assert decide(command("ready"), two("ready")).write == ()
    assert decide(command("ready"), two("retired")).refused is not None


@pytest.mark.requirement("I7")
def test_a_report_is_kept_and_an_older_one_does_not_replace_it() -> None:
    first, newer = report(age_us=50), report(report_id="v-2", passed=False)
    kept = decide(command("report", report=first), two(summary=report(age_us=100)))
    assert kept.write[0].report == first
    assert decide(command("report", report=newer), two(summary=newer)).write == ()
    assert decide(command("report", report=first), two(summary=newer)).refused == "report v-2 is newer"
    assert decide(command("report"), two()).refused == "a report command carries a report"
    future = decide(command("report", report=report(age_us=-HOUR)), two())
    assert future.refused is not None and "future" in future.refused
    assert decide(command("report", report=first), two("retired")).refused is not None


# ---------------------------------------------------------------- activate


@pytest.mark.requirement("I7", "A10")
@pytest.mark.parametrize("state", ["ready", "standby"])
def test_activation_is_one_switch_and_the_old_one_stands_by(state: GenerationState) -> None:
    warm = (instance(warm=("g1", "g2"), active="g1"),)
    decision = decide(command("activate", expected_active="g1"), two(state, instances=warm, behind=7))
    assert decision.activate == "g2" and decision.refused is None and decision.warnings == ()
    assert states(decision) == {"g2": "active", "g1": "standby"}
    assert {g.name: g.version for g in decision.write} == {"g2": 2, "g1": 2}
    new = decision.write[0]
    assert (new.activated_at, new.state_since, new.requested_by, new.override) == (NOW, NOW, "ops", None)
    checks = decision.details["checks"]
    assert checks == {
        "report": {"holds": True, "found": {"report_id": "v-1", "passed": True, "against": "g1", "age_s": 0.0}},
        "behind": {"holds": True, "found": 7},
        "warm": {"holds": True, "found": {"q1": True}},
    }
    assert decision.details["before"] == "g1"


@pytest.mark.requirement("I7")
@pytest.mark.parametrize("state", ["building", "retired"])
@pytest.mark.parametrize("override", [None, "it must go on"])
def test_what_is_not_ready_cannot_be_activated(state: GenerationState, override: str | None) -> None:
    decision = decide(command("activate", override=override), two(state))
    assert decision.refused is not None and state in decision.refused and decision.activate is None


UNPROVEN: list[tuple[dict[str, Any], str]] = [
    ({"summary": report(passed=False)}, "did not pass: coverage: 2 documents missing"),
    ({"summary": report(against="g0")}, "compares with g0, and g1 is active"),
    ({"summary": report(against=None)}, "compares with nothing, and g1 is active"),
    ({"summary": report(age_us=HOUR + 2_000_000)}, "is 3602 s old"),
    ({"behind": 1001}, "1001 records behind g1"),
    ({"instances": (instance(warm=("g1", "g2")), instance("q2", warm=("g1",)))}, "not loaded in query service q2"),
]


@pytest.mark.requirement("I7", "A10")
@pytest.mark.parametrize(("evidence", "reason"), UNPROVEN)
def test_activation_without_proof_is_refused_and_an_override_is_recorded(evidence: dict[str, Any], reason: str) -> None:
    refused = decide(command("activate"), two(**evidence))
    assert refused.refused is not None and reason in refused.refused
    assert refused.activate is None and refused.write == ()
    forced = decide(command("activate", override="the old model is withdrawn"), two(**evidence))
    assert forced.activate == "g2" and reason in "; ".join(forced.warnings)
    assert forced.write[0].override == "the old model is withdrawn"


@pytest.mark.requirement("I7")
def test_a_generation_that_was_never_verified_says_how() -> None:
    evidence = two()
    evidence = replace(evidence, known={**evidence.known, "g2": generation("g2", "ready")})
    decision = decide(command("activate"), evidence)
    assert decision.refused is not None and "headwater generation verify g2" in decision.refused


@pytest.mark.requirement("I7")
def test_all_problems_are_told_at_once() -> None:
    decision = decide(command("activate"), two(summary=report(passed=False), behind=5000))
    assert decision.refused is not None and "did not pass" in decision.refused and "5000 records" in decision.refused


@pytest.mark.requirement("I7")
def test_an_override_of_nothing_is_not_kept() -> None:
    assert decide(command("activate", override="just in case"), two()).write[0].override is None


@pytest.mark.requirement("I7", "A10")
def test_of_two_activations_the_second_is_refused_with_the_reason() -> None:
    known = {name: generation(name, "ready", report=report()) for name in ("g2", "g3")}
    known["g1"] = generation("g1", "active")
    evidence = Evidence(known, "g1")
    first = decide(command("activate", "g2", expected_active="g1"), evidence)
    after = Evidence({**known, **{g.name: g for g in first.write}}, first.activate)
    second = decide(command("activate", "g3", expected_active="g1", override="me first"), after)
    assert second.refused is not None and "g2 is active by now, not g1" in second.refused
    unaware = decide(command("activate", "g3"), after)  # its report compares with what is not active any more
    assert unaware.refused is not None and "compares with g1, and g2 is active" in unaware.refused


@pytest.mark.requirement("I7")
def test_activating_the_active_one_changes_nothing_even_if_it_is_expected_otherwise() -> None:
    decision = decide(command("activate", "g1", expected_active="g0"), two())
    assert decision == Decision(details={"already": True})


@pytest.mark.requirement("I7", "A10")
def test_a_switch_that_a_crash_left_half_done_is_finished() -> None:
    evidence = replace(two(), active="g2")  # the active record was written, the states were not
    decision = decide(command("activate", override="why not"), evidence)
    assert decision.activate is None and decision.refused is None
    assert states(decision) == {"g1": "standby", "g2": "active"}
    assert next(g for g in decision.write if g.name == "g2").requested_by == "ops"


@pytest.mark.requirement("I7")
def test_the_first_activation_needs_no_proof() -> None:
    decision = decide(command("activate"), Evidence({"g2": generation("g2", "ready")}, None, behind=9999))
    assert decision.activate == "g2" and states(decision) == {"g2": "active"}


# ---------------------------------------------------------------- rollback


@pytest.mark.requirement("I7", "A10")
def test_rollback_is_the_same_switch_without_a_report_and_warns() -> None:
    cold = (instance(warm=("g1",)),)
    decision = decide(command("rollback"), two("standby", summary=report(passed=False), behind=2000, instances=cold))
    assert decision.activate == "g2" and states(decision) == {"g2": "active", "g1": "standby"}
    assert len(decision.warnings) == 2
    assert "2000 records behind g1" in decision.warnings[0] and "not loaded" in decision.warnings[1]


@pytest.mark.requirement("I7")
@pytest.mark.parametrize("state", ["building", "ready", "retired"])
def test_only_a_standby_one_is_rolled_back_to(state: GenerationState) -> None:
    assert decide(command("rollback"), two(state)).refused is not None
    expected = decide(command("rollback", expected_active="g7"), two("standby"))
    assert expected.refused is not None and "g1 is active by now" in expected.refused


# ---------------------------------------------------------------- retire and drop


@pytest.mark.requirement("I7")
def test_an_unknown_generation_and_the_active_one_are_not_retired() -> None:
    assert decide(command("retire", "g9"), two()).refused is not None
    assert decide(command("retire", "g1"), two()).refused is not None
    decision = decide(command("retire"), two("standby"))
    assert states(decision) == {"g2": "retired"}
    assert decision.write[0].drop_after == NOW + int(POLICY.retention_days * 24 * HOUR)


@pytest.mark.requirement("I7")
def test_retire_waits_for_requests_and_for_every_service_to_switch() -> None:
    switched = NOW - 5_000_000
    standby = generation("g2", "standby", activated_at=1, state_since=switched)
    known = {"g1": generation("g1", "active"), "g2": standby}

    def reason(**beat: Any) -> str | None:
        return decide(command("retire"), Evidence(known, "g1", instances=(instance(**beat),))).refused

    assert "runs 2 requests on it" in str(reason(active="g1", in_flight={"g2": 2}))
    assert "has not switched yet" in str(reason(active="g2"))
    assert "was not heard since the switch" in str(reason(active="g1", heard_at=switched - 1))
    assert reason(active="g1", in_flight={"g1": 4}) is None


@pytest.mark.requirement("I7")
def test_rollback_and_retire_of_one_generation_exclude_each_other() -> None:
    evidence = two("standby")
    back = decide(command("rollback"), evidence)
    after = Evidence({**evidence.known, **{g.name: g for g in back.write}}, back.activate)
    assert "is active" in str(decide(command("retire"), after).refused)
    retired = decide(command("retire"), evidence)
    after = Evidence({**evidence.known, **{g.name: g for g in retired.write}}, "g1")
    assert "is retired" in str(decide(command("rollback"), after).refused)


@pytest.mark.requirement("I7")
def test_collections_go_after_the_retention_time_once_nobody_uses_them() -> None:
    gone = generation("g2", "retired", drop_after=NOW + 1)
    evidence = Evidence({"g1": generation("g1", "active"), "g2": gone}, "g1")
    assert "retention" in str(decide(command("drop"), evidence).refused)
    assert decide(command("drop", override="disk is needed"), evidence).drop
    assert decide(command("drop"), evidence, NOW + 1).drop
    assert "consumers are still in its group" in str(
        decide(command("drop"), replace(evidence, members=1), NOW + 1).refused
    )
    used = replace(evidence, instances=(instance(in_flight={"g2": 1}),))
    assert "runs 1 requests" in str(decide(command("drop"), used, NOW + 1).refused)
    dropped = gone.model_copy(update={"dropped_at": NOW})
    again = decide(command("drop"), replace(evidence, known={"g2": dropped}), NOW + 1)
    assert (again.refused, again.drop) == (None, False)


@pytest.mark.requirement("I7")
@pytest.mark.parametrize("state", ["building", "ready", "active", "standby"])
def test_only_a_retired_one_is_dropped(state: GenerationState) -> None:
    active = "g2" if state == "active" else "g1"
    assert not decide(command("drop", override="now"), replace(two(state), active=active)).drop


# ---------------------------------------------------------------- records and the switch


@pytest.mark.requirement("I7", "A10")
def test_records_follow_the_switch() -> None:
    known = {"g1": generation("g1", "active"), "g2": generation("g2", "ready"), "g3": generation("g3", "standby")}
    assert {g.name: g.state for g in repairs(known, "g2", NOW)} == {"g1": "standby", "g2": "active"}
    assert repairs({**known, "g1": generation("g1", "standby"), "g2": generation("g2", "active")}, "g2", NOW) == ()
