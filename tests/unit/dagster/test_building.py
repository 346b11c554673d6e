"""Building a generation as a run: what it shows, and how it ends, fails and is cancelled."""

from __future__ import annotations

import base64
import signal
import threading
from collections.abc import Callable
from types import FrameType

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult, TableMetadataValue, build_op_context, materialize

from dagster_project.building import MOST_POINTS, History
from dagster_project.following import Followed, Work
from dagster_project.generations import COMPLETE, index_generation
from dagster_project.partitions import GENERATIONS
from pipeline.errors import Crash
from pipeline.operate.build import BuildProgress, BuildResult
from tests.unit.dagster.fakes import FakeHeadwater, World, built, look


def _build(
    instance: DagsterInstance, headwater: FakeHeadwater, *, workers: int = 0, fails: bool = False
) -> ExecuteInProcessResult:
    instance.add_dynamic_partitions(str(GENERATIONS.name), ["bge"])
    return materialize(
        [index_generation],
        resources={"headwater": headwater},
        instance=instance,
        partition_key="bge",
        run_config={"ops": {"index_generation": {"config": {"workers": workers}}}},
        raise_on_error=not fails,
    )


@pytest.mark.requirement("A10")
def test_a_build_shows_progress_and_rate_of_each_partition(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    def work(tell: Callable[[BuildProgress], None], stop: threading.Event) -> BuildResult:
        for applied in (10, 60, 100):
            tell(look(applied))
        return built(look(100))

    world.build = work
    result = _build(instance, headwater, workers=3)
    assert world.workers == 3
    (made,) = result.asset_materializations_for_node("index_generation")
    assert made.partition == "bge"
    assert made.metadata["documents"].value == 40 and made.metadata["documents per second"].value == 20.0
    shown = made.metadata["partitions"]
    assert isinstance(shown, TableMetadataValue)
    rows = [dict(row.data) for row in shown.records]
    assert [(row["partition"], row["applied"], row["left"], row["per second"]) for row in rows] == [
        (0, 100, 0, 0.0), (1, 100, 0, 5.0),
    ]  # fmt: skip
    for name in ("progress", "rate"):
        svg = base64.b64decode(str(made.metadata[name].value).split("base64,")[1].rstrip(")")).decode()
        assert "partition 1" in svg and svg.startswith("<svg")
    (check,) = result.get_asset_check_evaluations()
    assert check.passed and check.blocking


@pytest.mark.requirement("A10")
def test_the_check_blocks_what_is_not_whole(instance: DagsterInstance, headwater: FakeHeadwater, world: World) -> None:
    world.build = lambda tell, stop: built(look(60), state="building", stopped=True)
    result = _build(instance, headwater, fails=True)
    assert not result.success, "nothing downstream runs"
    assert world.workers is None, "0 takes the setting"
    (check,) = result.get_asset_check_evaluations()
    assert check.check_name == COMPLETE.name and not check.passed
    assert "160 of 200" in (check.description or "")


def test_a_failed_build_says_why_and_where_it_stands(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    def work(tell: Callable[[BuildProgress], None], stop: threading.Event) -> BuildResult:
        tell(look(60))
        raise Crash("workers of bge end again and again: no room")

    world.build = work
    result = _build(instance, headwater, fails=True)
    assert not result.success
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert "no room" in str(failed.event_specific_data)
    observed = [event for event in result.all_events if event.is_asset_observation]
    assert observed and observed[-1].asset_observation_data.asset_observation.metadata["applied"].value == 160


@pytest.mark.requirement("A10")
def test_cancelling_stops_the_work_before_the_run_ends() -> None:
    ended = threading.Event()

    def work(told: Followed, stop: threading.Event) -> None:
        assert stop.wait(20), "asked to stop"
        ended.set()

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)  # in the middle of the wait, as a cancellation comes
    context = build_op_context()
    assert context.log
    try:
        with pytest.raises(KeyboardInterrupt), Work(context, "work", work) as doing:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            while doing.goes_on():
                continue
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ended.is_set()


def test_a_long_build_keeps_its_history_small() -> None:
    now = [0.0]
    history = History(lambda: now[0])
    for second in range(5 * MOST_POINTS):
        now[0] = float(second)
        history.add(look(second % 100))
    assert all(len(points) <= MOST_POINTS for points in history._rates.values())
    assert history._rates[1][0][0] == 0.0 and history._rates[1][-1][0] >= 4.9 * MOST_POINTS
