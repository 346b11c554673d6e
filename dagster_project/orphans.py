"""Runs whose code server died: a run notices and leaves in order, the next code server closes what is left open."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster import DagsterInstance

ABANDONED_WAIT_S = 20.0

log = logging.getLogger("headwater.dagster")


def leave_with_parent() -> None:
    """In a run's own process: interrupt it once the code server is gone, as its cancellation would."""
    parent = multiprocessing.parent_process()
    if parent is None or any(thread.name == "parent" for thread in threading.enumerate()):
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def close_abandoned_runs() -> int:
    """Before the code server serves: it is the parent of every run, so what is still open has lost its parent.

    Waits for a process that is on its way out, then marks its run as failed, so that the run can be started again.
    Returns how many were closed.
    """
    from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

    open_states = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
    closed = 0
    with DagsterInstance.get() as instance:
        for record in instance.get_run_records(RunsFilter(statuses=open_states)):
            run_id = record.dagster_run.run_id
            _end_process(instance, run_id)
            run = instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                continue
            if run.status == DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, "The code server ended while the run was being cancelled.")
            else:
                instance.report_run_failed(run, "The code server ended while the run was under way.")
            closed += 1
    if closed:
        log.warning("closed %d runs whose code server had ended", closed)
    return closed


def _end_process(instance: DagsterInstance, run_id: str) -> None:
    """Wait until the run's process is gone; kill it in the end. One pid that now belongs to something else stays."""
    import psutil
    from dagster import DagsterEventType

    for entry in instance.all_logs(run_id, of_type=DagsterEventType.ENGINE_EVENT):
        found = entry.get_dagster_event().engine_event_data.metadata.get("pid")
        pid = str(found.value) if found is not None else ""
        if not pid.isdigit():
            continue
        try:
            process = psutil.Process(int(pid))
            if process.create_time() > entry.timestamp or "--multiprocessing-fork" not in process.cmdline():
                continue
            process.wait(ABANDONED_WAIT_S)
        except psutil.TimeoutExpired:
            process.kill()
        except psutil.Error:
            continue
