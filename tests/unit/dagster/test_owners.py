"""Sources as assets: what is told of them, when, what their checks say, and what can be asked of their owners."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetObservation,
    DagsterInstance,
    Definitions,
    SensorResult,
    SkipReason,
    TableMetadataValue,
    build_sensor_context,
)

from dagster_project.asking import pause_source, reset_source, resume_source
from dagster_project.owners import defs_of, key_of, states_sensor
from pipeline.operate.owned import SourceStatus
from pipeline.settings import Settings
from schemas.reconciliation import OwnerStatus
from tests.unit.dagster.fakes import FakeHeadwater, World

SOURCES = Settings.model_validate({"sources": [{"name": "wiki", "path": "/srv/wiki", "walk_s": 60}]}).sources


def ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1e6)


def status(state: str = "waiting", since: float = 1.0, listed: float | None = 5.0, **more: Any) -> SourceStatus:
    """A source whose owner was in ``state`` for ``since`` seconds and listed all ``listed`` seconds ago."""
    told: dict[str, Any] = {
        "state": state, "since": ago(since), "documents": 3, "listed": 3,
        "listed_at": ago(listed) if listed is not None else None,
    }  # fmt: skip
    seen = more.pop("seen", 1.0)
    said = OwnerStatus.model_validate(told | more)
    return SourceStatus(
        "acme", "wiki", configured=True, documents=3, polled_at=ago(2), told=said,
        seen_at=ago(seen) if seen is not None else None, paused=state == "paused",
    )  # fmt: skip


def tick(headwater: FakeHeadwater, cursor: str | None) -> tuple[list[Any], str | None]:
    made = states_sensor(SOURCES)(build_sensor_context(cursor=cursor, resources={"headwater": headwater}))
    assert isinstance(made, SensorResult)
    return list(made.asset_events or []), made.cursor


def checked(events: list[Any]) -> dict[str, tuple[bool, str]]:
    return {e.check_name: (e.passed, e.severity.value) for e in events if isinstance(e, AssetCheckEvaluation)}


@pytest.mark.requirement("A11")
def test_a_source_is_told_of_when_it_changed_and_every_ten_minutes(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.states = [
        status(problems=("a.md: too large",), limited=2, limited_s=7.0, notes={"version": "1.39"}, backlog=4)
    ]
    events, cursor = tick(headwater, None)
    (told,) = [event for event in events if isinstance(event, AssetObservation)]
    assert told.asset_key == key_of("acme", "wiki")
    shown: dict[str, Any] = {name: value.value for name, value in told.metadata.items()}
    assert (shown["state"], shown["documents"], shown["not applied by the index"]) == ("waiting", 3, 4)
    assert 1.5 < shown["lag, seconds"] < 30
    assert shown["rate limit"] == "asked for patience 2 times, for 7 s"
    problems = told.metadata["problems"]
    assert isinstance(problems, TableMetadataValue)
    assert dict(problems.records[0].data) == {"problems": "a.md: too large"}
    assert shown["last complete listing"].startswith("3 documents, ")
    for event in events:
        instance.report_runless_asset_event(event)  # Dagster takes them

    world.states = [status(problems=("a.md: too large",), limited=3, notes={"version": "1.39"}, backlog=3)]  # moved
    events, cursor = tick(headwater, cursor)
    assert events == []
    world.states = [status(problems=("a.md: too large",), limited=3, notes={"version": "1.39"})]
    events, cursor = tick(headwater, cursor)
    assert len(events) == 3  # the index has caught up
    world.states = [status("starved", problems=("a.md: too large",), limited=3, notes={"version": "1.39"})]
    events, cursor = tick(headwater, cursor)
    assert len(events) == 3
    assert cursor is not None
    old = cursor.replace(str(max(int(n) for n in cursor.replace("]", " ").split() if n.isdigit())), str(ago(601)))
    events, _ = tick(headwater, old)
    assert len(events) == 3


@pytest.mark.requirement("A11")
@pytest.mark.parametrize(
    ("now", "alive", "listed"),
    [
        ({}, (True, "WARN"), True),
        ({"seen": 120}, (True, "ERROR"), True),
        ({"seen": 301}, (False, "ERROR"), True),
        ({"seen": None}, (False, "WARN"), True),
        ({"state": "unreachable", "since": 290, "why": "refused"}, (True, "WARN"), True),
        ({"state": "unreachable", "since": 310, "why": "refused"}, (False, "ERROR"), True),
        ({"state": "starved", "since": 890}, (True, "WARN"), True),
        ({"state": "starved", "since": 910}, (False, "WARN"), True),
        ({"state": "paused", "since": 9000}, (True, "WARN"), True),
        ({"alarms": ("groups.yaml is missing",)}, (False, "WARN"), True),
        ({"listed": 170}, (True, "WARN"), True),
        ({"listed": 190}, (True, "WARN"), False),
        ({"listed": None}, (True, "WARN"), False),
    ],
)
def test_checks_tell_what_a_person_must_see_to(
    headwater: FakeHeadwater, world: World, now: dict[str, Any], alive: tuple[bool, str], listed: bool
) -> None:
    world.states = [status(**now)]
    found = checked(tick(headwater, None)[0])
    assert found["alive"] == alive and found["listed"] == (listed, "WARN")


def test_checks_can_be_run_by_hand(instance: DagsterInstance, headwater: FakeHeadwater, world: World) -> None:
    world.states = [status("unreachable", since=400, why="refused")]
    defs = Definitions.merge(defs_of(SOURCES), Definitions(resources={"headwater": headwater}))
    key = AssetCheckKey(key_of("acme", "wiki"), "alive")
    job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_check_selection={key}, asset_selection=set())
    (found,) = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert (found.check_name, found.passed, found.severity.value) == ("alive", False, "ERROR")
    assert found.description is not None and "refused" in found.description


def test_a_source_of_which_the_settings_say_nothing_any_more_is_left_out(
    headwater: FakeHeadwater, world: World
) -> None:
    gone = status()
    gone.configured = False
    world.states = [gone]
    assert tick(headwater, None)[0] == []


def test_an_outage_is_no_failure(headwater: FakeHeadwater, world: World) -> None:
    world.down = True
    made = states_sensor(SOURCES)(build_sensor_context(resources={"headwater": headwater}))
    assert isinstance(made, SkipReason) and "nobody answers" in (made.skip_message or "")


@pytest.mark.requirement("A1")
def test_owners_are_asked_by_jobs(instance: DagsterInstance, headwater: FakeHeadwater, world: World) -> None:
    config = {"tenant": "acme", "source": "wiki"}
    for name, job in (("pause", pause_source), ("resume", resume_source), ("reset", reset_source)):
        done = job.execute_in_process(
            run_config={"ops": {name: {"config": config}}}, instance=instance, resources={"headwater": headwater}
        )
        assert done.success
    assert world.asked == [("pause", "acme", "wiki"), ("resume", "acme", "wiki"), ("reset", "acme", "wiki")]


@pytest.mark.requirement("E5")
def test_settings_that_cannot_be_read_take_no_other_definition_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dagster_project.definitions import build, defs

    file = tmp_path / "headwater.toml"
    monkeypatch.setenv("HEADWATER_CONFIG", str(file))
    file.write_text('[[sources]]\nname = "wiki"\npath = "/srv/wiki"\n')
    good = defs().resolve_asset_graph().get_all_asset_keys()
    assert key_of("acme", "wiki") in good
    file.write_text('[[sources]]\nname = "wiki"\ntype = "wikki"\n')
    broken = defs()
    Definitions.validate_loadable(broken)
    assert broken.resolve_asset_graph().get_all_asset_keys() == good - {key_of("acme", "wiki")}
    assert len(broken.get_repository_def().job_names) == len(build(()).get_repository_def().job_names)
    documents = next(iter(spec for spec in broken.resolve_all_asset_specs() if spec.key.path == ["source_documents"]))
    assert "wikki" not in str(documents.metadata) and "type must be one of" in str(documents.metadata)
