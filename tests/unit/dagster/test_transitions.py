"""Jobs that move generations: what they send, and what a refusal looks like."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import DagsterInstance, JobDefinition

from dagster_project.partitions import GENERATIONS
from dagster_project.transitions import (
    activate_generation,
    create_generation,
    drop_generation,
    retire_generation,
    rollback_generation,
)
from tests.unit.dagster.fakes import FakeHeadwater, World, generation


def _run(job: JobDefinition, headwater: FakeHeadwater, instance: DagsterInstance, **config: Any) -> Any:
    op = job.name.removesuffix("_generation")
    return job.execute_in_process(
        run_config={"ops": {op: {"config": config}}}, resources={"headwater": headwater}, instance=instance,
        raise_on_error=False,
    )  # fmt: skip


@pytest.mark.requirement("A10")
def test_each_job_sends_one_command(instance: DagsterInstance, headwater: FakeHeadwater, world: World) -> None:
    declaration = {"encoder": {"dimension": 768}}
    assert _run(create_generation, headwater, instance, generation="bge", declaration=declaration).success
    assert _run(activate_generation, headwater, instance, generation="bge", expected_active="minilm").success
    assert _run(activate_generation, headwater, instance, generation="bge", override="an outage").success
    assert _run(retire_generation, headwater, instance, generation="minilm").success
    assert _run(drop_generation, headwater, instance, generation="minilm", override="disk is full").success
    assert world.commands == [
        ("create", "bge", {"declaration": declaration}),
        ("activate", "bge", {"expected_active": "minilm"}),
        ("activate", "bge", {"override": "an outage"}),
        ("retire", "minilm", {}),
        ("drop", "minilm", {"override": "disk is full"}),
    ]
    assert instance.get_dynamic_partitions(str(GENERATIONS.name)) == ["bge"], "it can be built at once"


@pytest.mark.requirement("A10")
def test_a_rollback_finds_where_to_go_back_to(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    old = generation("minilm", "standby").model_copy(update={"activated_at": 5})
    older = generation("first", "standby").model_copy(update={"activated_at": 3})
    world.generations = {"minilm": old, "first": older, "bge": generation("bge", "active")}
    assert _run(rollback_generation, headwater, instance).success
    assert world.commands == [("rollback", "minilm", {})]
    world.generations = {"bge": generation("bge", "active")}
    assert not _run(rollback_generation, headwater, instance).success
    assert len(world.commands) == 1


@pytest.mark.requirement("A10")
def test_a_refusal_fails_the_run_with_its_reason(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.refusal = "its encoder is not loaded in query service q1"
    result = _run(activate_generation, headwater, instance, generation="bge")
    assert not result.success
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_failure_data.user_failure_data.metadata["reason"].value == world.refusal


def test_config_errors_name_the_field(instance: DagsterInstance, headwater: FakeHeadwater) -> None:
    with pytest.raises(Exception, match="generation"):
        _run(retire_generation, headwater, instance)
    with pytest.raises(Exception, match="genration"):
        _run(retire_generation, headwater, instance, generation="bge", genration="bge")
