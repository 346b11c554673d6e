"""Dagster's three processes, each around the entry point of Dagster's own command.

The code server starts every run as its child, so a run has its environment: addresses, keys and settings. Web server
and daemon reach it by its socket and wait for it when they start.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from dagster_project import home
from pipeline.errors import Crash
from pipeline.health import PORT_VARIABLE, HealthServer, Report
from pipeline.settings import Settings

NAMES = ("code", "daemon", "webserver")
LEAVE_S = 7.0  # runs that have not ended by then are killed; whoever sent SIGTERM waits a little longer
CODE_READY_S = 150.0
HEARTBEAT_AGE_S = 180.0
WATCH_S = 10.0

log = logging.getLogger("headwater.dagster")


def start(name: str, settings: Settings) -> int:
    """Run one process until a signal ends it; the exit status. Raises ConfigError, Crash."""
    home.prepare(settings)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    return {"code": _code, "daemon": _daemon, "webserver": _webserver}[name](settings)


def _code(settings: Settings) -> int:
    from dagster._cli.api import grpc_command

    from dagster_project.orphans import close_abandoned_runs

    socket = home.socket_path(settings)
    close_abandoned_runs()
    health = HealthServer.from_environment(_watched(lambda: _serving(socket), "definitions are not served yet"))
    os.environ.pop(PORT_VARIABLE, None)  # what runs start has ports of its own
    signal.signal(signal.SIGTERM, _leave_with_runs)
    arguments = [
        "--module-name", home.MODULE, "--socket", str(socket), "--location-name", home.LOCATION,
        "--lazy-load-user-code", "--log-level", "warning",
    ]  # fmt: skip
    try:
        return _command(grpc_command, arguments)
    finally:
        if health is not None:
            health.close()


def _daemon(settings: Settings) -> int:
    from dagster._daemon.cli import run_command

    _wait_for_code(settings)
    began = time.time()
    health = HealthServer.from_environment(_watched(lambda: _beating(began), "daemons have not reported yet"))
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        return _command(run_command, ["--workspace", _workspace(settings), "--log-level", "warning"])
    finally:
        if health is not None:
            health.close()


def _webserver(settings: Settings) -> int:
    from dagster_webserver.cli import cli

    _wait_for_code(settings)
    arguments = [
        "--workspace", _workspace(settings), "--host", settings.dagster.host, "--port", str(settings.dagster.port),
        "--dagster-log-level", "warning",
    ]  # fmt: skip
    return _command(cli, arguments)


def _command(command: Callable[..., object], arguments: list[str]) -> int:
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of libraries; Dagster would log each
    with contextlib.suppress(KeyboardInterrupt):
        command(arguments, standalone_mode=False, obj={})
    log.info("left in order")
    return 0


def _workspace(settings: Settings) -> str:
    return str(home.folder(settings) / "workspace.yaml")


def _watched(well: Callable[[], bool], problem: str) -> Report:
    """A page that answers at once: what is asked takes too long on a busy machine, so a thread asks."""
    page: dict[str, object] = {"state": "failed", "problem": problem}

    def watch() -> None:
        nonlocal page
        while True:
            try:
                holds = well()
            except Exception as error:  # storage may be locked for a moment
                log.warning("health could not be told: %s", error)
                holds = False
            page = {"state": "running"} if holds else {"state": "failed", "problem": problem}
            time.sleep(WATCH_S if holds else 1.0)

    threading.Thread(target=watch, name="health", daemon=True).start()
    return lambda: page


def _serving(socket: Path) -> bool:
    from dagster._core.errors import DagsterUserCodeUnreachableError
    from dagster._grpc.client import DagsterGrpcClient

    try:
        DagsterGrpcClient(socket=str(socket)).ping("")
    except DagsterUserCodeUnreachableError:
        return False
    return True


def _beating(since: float) -> bool:
    """Whether every daemon thread of this process has reported lately."""
    from dagster import DagsterInstance
    from dagster._daemon.controller import get_daemon_statuses

    oldest = max(since, time.time() - HEARTBEAT_AGE_S)
    with DagsterInstance.get() as instance:
        statuses = get_daemon_statuses(instance, instance.get_required_daemon_types(), ignore_errors=True)
    beats = [status.last_heartbeat for status in statuses.values() if status.required]
    return all(beat is not None and beat.timestamp >= oldest for beat in beats)


def _wait_for_code(settings: Settings) -> None:
    socket, end = home.socket_path(settings), time.monotonic() + CODE_READY_S
    while not _serving(socket):
        if time.monotonic() > end:
            raise Crash(f"the code server does not answer at {socket}; see headwater logs dagster-code")
        time.sleep(0.5)


def _leave_with_runs(number: int, frame: FrameType | None) -> None:
    """Interrupt every run as its cancellation would; kill what has not stopped in time; then end this process."""

    def end() -> None:
        runs = multiprocessing.active_children()
        for run in runs:
            if run.pid is not None and run.is_alive():
                os.kill(run.pid, signal.SIGINT)
        until = time.monotonic() + LEAVE_S
        for run in runs:
            run.join(max(0.0, until - time.monotonic()))
            if run.is_alive():
                run.kill()

    threading.Thread(target=end, name="leave", daemon=True).start()
    raise KeyboardInterrupt
