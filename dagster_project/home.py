"""Dagster's home: ``dagster.yaml`` and ``workspace.yaml`` under the state directory, written from the settings.

Storage is SQLite in that folder, or PostgreSQL where ``dagster.postgres_url`` is set; the address with its password
stays in the environment. Code is served on a socket that only this user can open.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import ConfigError
from pipeline.settings import Settings

LOCATION = "headwater"
MODULE = "dagster_project.definitions"
POSTGRES_VARIABLE = "HEADWATER_DAGSTER__POSTGRES_URL"
MOST_RUNS = 6
RUNS_OF_A_POOL = 1  # another limit can be set for a pool on the page
RETRIES = 2
ANSWER_S = 300
_SOCKET_LENGTH = 100  # the system's limit is 107 bytes


def folder(settings: Settings) -> Path:
    """DAGSTER_HOME."""
    return settings.state_dir.absolute() / "dagster"


def socket_path(settings: Settings) -> Path:
    """Where code is served. A deep state directory has its socket in the system's folder for temporary files."""
    wanted = folder(settings) / "code.sock"
    if len(os.fsencode(wanted)) <= _SOCKET_LENGTH:
        return wanted
    name = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"headwater-{os.getuid()}" / f"{name}.sock"


def prepare(settings: Settings) -> Path:
    """Write both files and point this process and its children there. Raises ConfigError."""
    home, socket = folder(settings), socket_path(settings)
    for needed in (home, socket.parent):
        needed.mkdir(parents=True, exist_ok=True, mode=0o700)
    if socket.parent.stat().st_uid != os.getuid():
        raise ConfigError("state_dir", f"{socket.parent} belongs to another user", "Choose a shorter state_dir.")
    _write(home / "dagster.yaml", instance(settings))
    server = {"socket": str(socket), "location_name": LOCATION}
    _write(home / "workspace.yaml", {"load_from": [{"grpc_server": server}]})
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
    for call in ("GRPC", "SENSOR_GRPC", "SCHEDULE_GRPC"):  # a busy machine starts a run in more than a minute
        os.environ.setdefault(f"DAGSTER_{call}_TIMEOUT_SECONDS", str(ANSWER_S))
    if settings.dagster.postgres_url is not None:
        os.environ[POSTGRES_VARIABLE] = settings.dagster.postgres_url.get_secret_value()
    return home


def instance(settings: Settings) -> dict[str, Any]:
    """The content of ``dagster.yaml``. Raises ConfigError where PostgreSQL is named and its package is missing."""
    home = folder(settings)
    return {
        "storage": _storage(settings),
        "local_artifact_storage": {
            "module": "dagster._core.storage.root",
            "class": "LocalArtifactStorage",
            "config": {"base_dir": str(home)},
        },
        "compute_logs": {
            "module": "dagster._core.storage.local_compute_log_manager",
            "class": "LocalComputeLogManager",
            "config": {"base_dir": str(home / "compute_logs")},
        },
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "run_coordinator": {
            "module": "dagster.core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 2},
        },
        "concurrency": {
            "runs": {"max_concurrent_runs": MOST_RUNS},
            # what embeds, copies or walks much has a pool: one run of it at a time, the next waits in the queue
            "pools": {"granularity": "run", "default_limit": RUNS_OF_A_POOL},
        },
        "run_monitoring": {
            "enabled": True,
            "start_timeout_seconds": 300,
            "cancel_timeout_seconds": 120,
            "poll_interval_seconds": 30,
        },
        # a run whose process died is started again and goes on where it was; what failed by itself is not
        "run_retries": {"enabled": True, "max_retries": RETRIES, "retry_on_asset_or_op_failure": False},
        "retention": {
            "schedule": {"purge_after_days": 90},
            "sensor": {"purge_after_days": {"skipped": 1, "success": 14, "failure": 30, "started": 14}},
            "auto_materialize": {"purge_after_days": {"skipped": 1, "success": 14, "failure": 30, "started": 14}},
        },
        "auto_materialize": {"enabled": True, "use_sensors": True},
        "freshness": {"enabled": True},
    }


def _storage(settings: Settings) -> dict[str, Any]:
    if settings.dagster.postgres_url is None:
        return {"sqlite": {"base_dir": str(folder(settings) / "storage")}}
    import importlib.util

    if importlib.util.find_spec("dagster_postgres") is None:
        raise ConfigError(
            "dagster.postgres_url",
            "the package dagster-postgres is not installed",
            "Install headwater[postgres], or unset it to store in SQLite.",
        )
    return {"postgres": {"postgres_url": {"env": POSTGRES_VARIABLE}}}


def _write(path: Path, content: dict[str, Any]) -> None:
    text = yaml.safe_dump(content, sort_keys=False)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
