"""Growth of dead letters: one alarm a growth, and looking again is possible (F24)."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import (
    DagsterInstance,
    RunRequest,
    SensorResult,
    build_sensor_context,
    materialize,
)

from dagster_project.letters import dead_letter_growth, dead_letters
from tests.unit.dagster.fakes import FakeHeadwater, World, depth


def _tick(headwater: FakeHeadwater, cursor: str | None) -> tuple[list[RunRequest], str | None]:
    made = dead_letter_growth(build_sensor_context(cursor=cursor, resources={"headwater": headwater}))
    assert isinstance(made, SensorResult)
    return list(made.run_requests or []), made.cursor


@pytest.mark.requirement("F24")
def test_growth_raises_once(headwater: FakeHeadwater, world: World) -> None:
    world.letters = depth(wiki=2)
    first, cursor = _tick(headwater, None)
    assert len(first) == 1
    again, cursor = _tick(headwater, cursor)
    assert again == []
    world.letters = depth(wiki=3, tickets=1)
    grown, cursor = _tick(headwater, cursor)
    assert len(grown) == 1 and grown[0].run_key != first[0].run_key


@pytest.mark.requirement("F24")
def test_the_same_growth_has_the_same_run_key(headwater: FakeHeadwater, world: World) -> None:
    """A tick that is repeated after a crash of the daemon asks for the run that exists already."""
    world.letters = depth(wiki=2)
    one, _ = _tick(headwater, '{"acme/wiki: extract/unreadable": 1}')
    two, _ = _tick(headwater, '{"acme/wiki: extract/unreadable": 1}')
    assert one[0].run_key == two[0].run_key is not None


@pytest.mark.requirement("F24")
def test_growth_after_a_fall_to_the_same_number_is_another_one(headwater: FakeHeadwater, world: World) -> None:
    """2 letters, settled to 1, again 2: the key that was used must not swallow the second alarm."""
    keys = []
    cursor: str | None = None
    for moment, count in enumerate((2, 1, 2, 1, 2)):
        world.letters = depth(wiki=count, newest_at=moment)
        requests, cursor = _tick(headwater, cursor)
        keys += [request.run_key for request in requests]
    assert len(keys) == 3 == len(set(keys))


def test_an_outage_keeps_the_cursor(headwater: FakeHeadwater, world: World) -> None:
    world.down = True
    made = dead_letter_growth(build_sensor_context(cursor="{}", resources={"headwater": headwater}))
    assert not isinstance(made, SensorResult)


def _look(instance: DagsterInstance, headwater: FakeHeadwater, config: dict[str, Any] | None = None) -> Any:
    run_config = {"ops": {"dead_letters": {"config": config}}} if config else None
    return materialize([dead_letters], resources={"headwater": headwater}, instance=instance, run_config=run_config)


def _passed(result: Any) -> bool:
    (evaluation,) = result.get_asset_check_evaluations()
    return bool(evaluation.passed)


def test_the_check_fails_on_growth_and_shows_it(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.letters = depth(wiki=2)
    result = _look(instance, headwater, {"counts": {"acme/wiki: extract/unreadable": 1}, "compare": True})
    assert not _passed(result)
    (evaluation,) = result.get_asset_check_evaluations()
    assert "acme/wiki: extract/unreadable: 1 more" in evaluation.description
    (made,) = result.asset_materializations_for_node("dead_letters")
    assert made.metadata["letters"].value == 2
    assert [dict(row.data)["letters"] for row in made.metadata["kinds"].records] == [2]


@pytest.mark.requirement("F24")
def test_an_asked_for_run_compares_with_the_last_one(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.letters = depth(wiki=2)
    assert not _passed(_look(instance, headwater))
    assert _passed(_look(instance, headwater))
    world.letters = depth(wiki=2, tickets=1)
    assert not _passed(_look(instance, headwater))
