"""What the installed Dagster does with run keys: our sensors rely on it (F24)."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from dagster import DagsterInstance, DagsterRun
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.sensor import execute_sensor_iteration

from tests.unit.dagster.twice import quiet

COORDINATOR = {"module": "dagster._core.test_utils", "class": "MockedRunCoordinator"}


@pytest.fixture
def queued() -> Iterator[DagsterInstance]:
    """Storage in memory and a queue that launches nothing."""
    with DagsterInstance.local_temp(overrides={"run_coordinator": COORDINATOR}) as made:
        yield made


def _tick(instance: DagsterInstance) -> None:
    target = LoadableTargetOrigin(executable_path=sys.executable, module_name="tests.unit.dagster.twice")
    origin = InProcessCodeLocationOrigin(target, location_name="twice")
    with WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin)) as workspace:
        for error in execute_sensor_iteration(workspace, logging.getLogger("test"), None, None):
            assert error is None


def _keys(runs: list[DagsterRun]) -> Counter[str]:
    return Counter(run.tags.get("dagster/run_key", "") for run in runs)


@pytest.mark.requirement("F24")
def test_equal_run_keys_launch_one_run_and_an_asked_for_one_still_runs(queued: DagsterInstance) -> None:
    _tick(queued)
    assert _keys(list(queued.get_runs())) == {"same": 1, "other": 1}
    _tick(queued)
    assert _keys(list(queued.get_runs())) == {"same": 1, "other": 1}
    asked = quiet.execute_in_process(instance=queued)
    assert asked.success
    assert _keys(list(queued.get_runs())) == {"same": 1, "other": 1, "": 1}
