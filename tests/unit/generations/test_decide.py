"""Transitions of generations: one decision at a time, refused with a reason (invariant 7)."""

from __future__ import annotations

import pytest

from pipeline.generations import Decision, decide
from schemas.events import ControlCommand
from schemas.generation import BackendChoice, EncoderSpec, Generation, GenerationState


def command(kind: str, name: str = "g1", declaration: dict[str, object] | None = None) -> ControlCommand:
    return ControlCommand.model_validate(
        {"type": kind, "generation": name, "declaration": declaration, "request_id": "r", "requested_at": 5}
    )


def generation(name: str, state: GenerationState, dimension: int = 384) -> Generation:
    return Generation(
        name=name, state=state, encoder=EncoderSpec(dimension=dimension), created_at=1,
        backend=BackendChoice(name="stub", agreement=1.0),
    )  # fmt: skip


@pytest.mark.requirement("I7", "A10")
def test_create_asks_for_the_declared_encoder() -> None:
    decision = decide(command("create", declaration={"encoder": {"dimension": 768}}), {}, None, 10)
    assert decision.create is not None and decision.create.encoder.dimension == 768


@pytest.mark.requirement("I7")
def test_creating_the_same_again_does_nothing_and_another_one_is_refused() -> None:
    known = {"g1": generation("g1", "ready")}
    assert decide(command("create"), known, None, 10) == Decision()
    other = decide(command("create", declaration={"encoder": {"dimension": 768}}), known, None, 10)
    assert other.refused is not None and "another declaration" in other.refused


@pytest.mark.requirement("I7")
def test_a_declaration_with_an_unknown_field_is_refused_by_its_name() -> None:
    decision = decide(command("create", declaration={"encodr": {}}), {}, None, 10)
    assert decision.refused is not None and "declaration.encodr" in decision.refused


@pytest.mark.requirement("I7", "A10")
def test_activation_is_one_switch_and_the_old_one_stands_by() -> None:
    known = {"g1": generation("g1", "active"), "g2": generation("g2", "ready")}
    decision = decide(command("activate", "g2"), known, "g1", 10)
    assert decision.activate == "g2"
    assert {g.name: g.state for g in decision.write} == {"g2": "active", "g1": "standby"}
    assert {g.name: g.version for g in decision.write} == {"g1": 2, "g2": 2}


@pytest.mark.requirement("I7")
@pytest.mark.parametrize("state", ["building", "retired"])
def test_what_is_not_ready_cannot_be_activated(state: GenerationState) -> None:
    decision = decide(command("activate"), {"g1": generation("g1", state)}, None, 10)
    assert decision.refused is not None and state in decision.refused and decision.activate is None


@pytest.mark.requirement("I7")
def test_the_second_of_two_activations_finds_the_first_one_active() -> None:
    known = {"g1": generation("g1", "active")}
    assert decide(command("activate"), known, "g1", 10) == Decision()


@pytest.mark.requirement("I7")
def test_an_unknown_generation_and_the_active_one_are_not_retired() -> None:
    known = {"g1": generation("g1", "active"), "g2": generation("g2", "standby")}
    assert decide(command("retire", "g9"), known, "g1", 10).refused is not None
    assert decide(command("retire", "g1"), known, "g1", 10).refused is not None
    assert [g.state for g in decide(command("retire", "g2"), known, "g1", 10).write] == ["retired"]
