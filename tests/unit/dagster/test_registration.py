"""Partitions of generations and sources."""

from __future__ import annotations

from dagster import DagsterInstance, SensorResult, SkipReason, build_sensor_context

from dagster_project.registration import registration
from tests.unit.dagster.fakes import FakeHeadwater, World, generation


def _tick(instance: DagsterInstance, headwater: FakeHeadwater) -> dict[str, list[str]]:
    """Evaluate, and do what the daemon does with the result."""
    made = registration(build_sensor_context(instance=instance, resources={"headwater": headwater}))
    if isinstance(made, SkipReason):
        return {}
    assert isinstance(made, SensorResult)
    added: dict[str, list[str]] = {}
    for request in made.dynamic_partitions_requests or []:
        name, keys = request.partitions_def_name, list(request.partition_keys)
        instance.add_dynamic_partitions(name, keys)
        added[name] = keys
    return added


def test_new_generations_and_sources_become_partitions_once(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.generations = {"minilm": generation("minilm", "active"), "bge": generation("bge")}
    world.sources = [("acme", "wiki")]
    assert _tick(instance, headwater) == {"generations": ["bge", "minilm"], "sources": ["acme/wiki"]}
    assert _tick(instance, headwater) == {}
    world.sources.append(("other", "wiki"))
    assert _tick(instance, headwater) == {"sources": ["other/wiki"]}
    assert instance.get_dynamic_partitions("sources") == ["acme/wiki", "other/wiki"]


def test_a_partition_that_is_gone_keeps_its_history(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.generations = {"minilm": generation("minilm", "active")}
    _tick(instance, headwater)
    world.generations = {"bge": generation("bge")}
    assert _tick(instance, headwater) == {"generations": ["bge"]}
    assert instance.get_dynamic_partitions("generations") == ["minilm", "bge"]


def test_an_outage_is_no_failure(instance: DagsterInstance, headwater: FakeHeadwater, world: World) -> None:
    world.down = True
    made = registration(build_sensor_context(instance=instance, resources={"headwater": headwater}))
    assert isinstance(made, SkipReason) and "nobody answers" in (made.skip_message or "")
