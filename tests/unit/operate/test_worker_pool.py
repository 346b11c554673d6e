"""The pool of bulk workers, over small real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from pipeline.errors import ConfigError, Crash
from pipeline.operate import workers
from pipeline.operate.workers import WorkerPool, environment
from pipeline.settings import Settings, WeaviateSettings, load
from pipeline.settings_sources import FolderSettings
from tests.product import until


class Spawned:
    """What the pool starts: processes that wait, or end at once with a status."""

    def __init__(self) -> None:
        self.members: list[str] = []
        self.status: int | None = None
        self.says = ""

    def __call__(self, member: str, log: Path) -> subprocess.Popen[bytes]:
        self.members.append(member)
        code = "import time; time.sleep(600)" if self.status is None else f"raise SystemExit({self.status})"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(self.says)
        return subprocess.Popen([sys.executable, "-S", "-E", "-c", code])


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Spawned:
    monkeypatch.setattr(workers, "PAUSE_S", 0.0)
    return Spawned()


@pytest.fixture
def pool(spawned: Spawned, tmp_path: Path) -> WorkerPool:
    return WorkerPool(Settings(state_dir=tmp_path), "two", variables={}, spawn=spawned)


@pytest.mark.requirement("A10")
def test_it_scales_both_ways_and_a_restarted_worker_keeps_its_name(pool: WorkerPool, spawned: Spawned) -> None:
    with pool:
        pool.start(2)
        pool.scale(3)
        assert pool.alive() == 3 and len(set(spawned.members)) == 3
        pool.scale(1)
        assert pool.alive() == 1
        os.kill(pool.pids()[0], 9)
        until(lambda: pool.alive() == 0, 5)
        pool.keep()
        pool.keep()
        assert pool.alive() == 1 and pool.restarts == 1 and spawned.members[3] == spawned.members[0]
    assert pool.alive() == 0


def test_two_pools_never_share_a_name(spawned: Spawned, tmp_path: Path) -> None:
    for _ in range(2):
        with WorkerPool(Settings(state_dir=tmp_path), "two", variables={}, spawn=spawned) as pool:
            pool.start(1)
    assert len(set(spawned.members)) == 2


def ended(pool: WorkerPool) -> bool:
    return pool.alive() == 0


@pytest.mark.requirement("I8")
def test_workers_that_end_again_and_again_stop_the_build_with_what_they_said(
    pool: WorkerPool, spawned: Spawned
) -> None:
    spawned.status, spawned.says = 1, json.dumps({"message": "Weaviate is of the wrong colour"})
    pool.start(1)
    with pytest.raises(Crash, match="again and again: Weaviate is of the wrong colour"):
        for _ in range(20):
            until(lambda: ended(pool), 5)
            pool.keep()
    assert len(spawned.members) == workers.FAILURES


@pytest.mark.requirement("F18")
def test_wrong_settings_of_a_worker_are_told_at_once(pool: WorkerPool, spawned: Spawned) -> None:
    spawned.status, spawned.says = 2, json.dumps({"message": "encoder.weights: no model there"})
    pool.start(1)
    until(lambda: ended(pool), 5)
    with pytest.raises(ConfigError, match=r"cannot start: encoder\.weights: no model there"):
        pool.keep()


def test_a_worker_that_left_by_itself_is_not_started_again(pool: WorkerPool, spawned: Spawned) -> None:
    spawned.status = 0
    pool.start(1)
    until(lambda: ended(pool), 5)
    pool.keep()
    pool.keep()
    assert pool.alive() == 0 and len(spawned.members) == 1


def test_a_child_loads_the_very_settings_whatever_its_parents_variables_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADWATER_CONFIG", str(tmp_path / "absent.toml"))
    monkeypatch.setenv("HEADWATER_KAFKA__BOOTSTRAP", "elsewhere:1")
    given = Settings(
        namespace="mine", state_dir=tmp_path, cache_dir=tmp_path / "cache",
        weaviate=WeaviateSettings(api_key=SecretStr("secret"), timeout_s=2),
        sources=(FolderSettings(name="wiki", path=tmp_path),),
    )  # fmt: skip
    variables = environment(given.model_copy(update={"kafka": given.kafka.model_copy(update={"bootstrap": "here:2"})}))
    assert not [value for name, value in variables.items() if "elsewhere" in value and name.startswith("HEADWATER_")]
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    loaded = load()
    assert loaded.kafka.bootstrap == "here:2" and loaded.namespace == "mine" and loaded.sources == given.sources
    assert loaded.weaviate.api_key is not None and loaded.weaviate.api_key.get_secret_value() == "secret"
    assert loaded.model_dump(exclude={"kafka"}) == given.model_dump(exclude={"kafka"})
