"""Dagster's home: what is written from the settings, and what is refused."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.instance.config import dagster_instance_config
from dagster._core.run_coordinator import QueuedRunCoordinator

from dagster_project import home
from pipeline.errors import ConfigError
from pipeline.settings import Settings


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in [name for name in os.environ if name.startswith(("HEADWATER_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    calls = [f"DAGSTER_{call}_TIMEOUT_SECONDS" for call in ("GRPC", "SENSOR_GRPC", "SCHEDULE_GRPC")]
    for name in ("DAGSTER_HOME", "DAGSTER_DISABLE_TELEMETRY", home.POSTGRES_VARIABLE, *calls):
        monkeypatch.setenv(name, "restored afterwards")
        monkeypatch.delenv(name)
    return Settings.model_validate({"state_dir": tmp_path / "state"})


def test_dagster_reads_what_is_written(own: Settings) -> None:
    made = home.prepare(own)
    assert os.environ["DAGSTER_HOME"] == str(made)
    with DagsterInstance.get() as instance:
        assert instance.run_monitoring_enabled and instance.run_retries_enabled and not instance.telemetry_enabled
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
        limits = instance.get_concurrency_config().run_queue_config
        assert limits is not None and limits.max_concurrent_runs == home.MOST_RUNS
        assert "SENSOR" in instance.get_required_daemon_types() and "FRESHNESS_DAEMON" in (
            instance.get_required_daemon_types()
        )
    assert (made / "storage").is_dir()
    assert made.stat().st_mode & 0o077 == 0


def test_preparing_again_touches_nothing(own: Settings) -> None:
    made = home.prepare(own)
    before = (made / "dagster.yaml").stat().st_mtime_ns
    home.prepare(own)
    assert (made / "dagster.yaml").stat().st_mtime_ns == before


def test_postgres_keeps_its_password_out_of_the_file(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: ModuleSpec(n, None) if n == "dagster_postgres" else find(n)
    )
    url = "postgresql://dagster:very-secret@db.example/dagster"
    settings = own.model_copy(update={"dagster": own.dagster.model_validate({"postgres_url": url})})
    made = home.prepare(settings)
    text = (made / "dagster.yaml").read_text()
    assert "very-secret" not in text
    assert yaml.safe_load(text)["storage"] == {"postgres": {"postgres_url": {"env": home.POSTGRES_VARIABLE}}}
    assert os.environ[home.POSTGRES_VARIABLE] == url
    dagster_instance_config(str(made))  # raises where Dagster does not understand it


def test_postgres_without_its_package_is_refused(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "dagster_postgres" else find(n))
    settings = own.model_copy(update={"dagster": own.dagster.model_validate({"postgres_url": "postgresql://db"})})
    with pytest.raises(ConfigError, match=r"dagster\.postgres_url.*headwater\[postgres\]"):
        home.prepare(settings)


def test_a_deep_state_directory_has_its_socket_elsewhere(own: Settings, tmp_path: Path) -> None:
    deep = own.model_copy(update={"state_dir": tmp_path / ("d" * 120)})
    assert len(os.fsencode(home.socket_path(deep))) <= 107
    assert home.socket_path(deep) != home.socket_path(own.model_copy(update={"state_dir": tmp_path / ("e" * 120)}))
    assert home.socket_path(own).is_relative_to(own.state_dir) or len(os.fsencode(tmp_path)) > 80
