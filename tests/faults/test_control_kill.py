"""kill -9 of the control consumer between two writes of one transition, on the real log and store."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from infra.endpoints import Endpoints
from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.index.store import WeaviateStore
from pipeline.operate import control
from pipeline.settings import Settings
from schemas.generation import BackendChoice, Generation, VerificationSummary
from tests.product import until


class Installation:
    """Two generations in the store, and one control consumer at a time that may die."""

    def __init__(self, settings: Settings, services: Endpoints, folder: Path) -> None:
        self.settings = settings
        self.armed = folder / "armed"
        self.log = folder / "control.log"
        config = folder / "headwater.toml"
        config.write_text(
            tomli_w.dumps(
                {
                    "namespace": settings.namespace,
                    "kafka": {"partitions": 3, "index_session_s": 3.0, "heartbeat_s": 0.5},
                    "state_dir": str(folder),
                    "cache_dir": str(settings.cache_dir),
                    "generation": "g1",
                }
            )
        )
        self.env = {
            "PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **services.environment(),
            "HEADWATER_CONFIG": str(config), "HEADWATER_DYING_ARMED": str(self.armed), "HEADWATER_HEALTH_PORT": "0",
        }  # fmt: skip
        ensure_topics(settings)
        self.store = WeaviateStore(settings)
        self.store.ensure_base()
        now = time.time_ns() // 1000
        self._put("g1", state="active", activated_at=now)
        report = VerificationSummary(report_id="v", passed=True, against="g1", finished_at=now)
        self._put("g2", state="ready", report=report)
        self._put("g3", state="retired", drop_after=now)
        self.store.set_active_generation("g1")

    def _put(self, name: str, **fields: Any) -> None:
        backend = BackendChoice(name="stub", agreement=1.0)
        made = Generation(name=name, backend=backend, created_at=time.time_ns() // 1000, **fields)
        self.store.ensure_generation(made)
        self.store.write_generation(made)

    @contextmanager
    def control(self, point: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The consumer; with ``point`` it kills itself there."""
        if point is not None:
            self.armed.touch()
        line = [sys.executable, "-m", "tests.faults.dying", "control", "kill", point or "never"]
        with self.log.open("ab") as out:
            process = subprocess.Popen(line, env=self.env, stdout=out, stderr=out)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)
            self.armed.unlink(missing_ok=True)

    def states(self) -> dict[str, str]:
        return {name: g.state for name, g in sorted(self.store.read_generations().items())}

    def close(self) -> None:
        for name in ("g1", "g2", "g3"):
            self.store.drop_generation(name)
        self.store.close()
        delete_topics(self.settings)


@pytest.fixture
def installation(settings: Settings, services: Endpoints, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(settings, services, tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("I7", "A10")
@pytest.mark.parametrize("point", ["switched", "answered"])
def test_a_switch_survives_the_death_of_who_made_it(installation: Installation, point: str) -> None:
    seconds = 40 if point == "switched" else 120  # an answer comes only where it dies after it
    with installation.control(point) as dying:
        told = pytest.raises(control.Unanswered) if point == "switched" else nullcontext()
        with told:
            control.send(installation.settings, "activate", "g2", requested_by="test", timeout_s=seconds)
        assert dying.wait(120) == -9, installation.log.read_text()[-2000:]
    assert installation.store.active_generation() == "g2"
    if point == "switched":
        assert installation.states() == {"g1": "active", "g2": "ready", "g3": "retired"}
    with installation.control():
        until(lambda: installation.states()["g1"] == "standby", 120, "the records follow the switch")
        assert installation.states() == {"g1": "standby", "g2": "active", "g3": "retired"}
        back = control.send(installation.settings, "rollback", "g1", requested_by="test", expected_active="g2")
        assert back.outcome == "done"
    assert installation.store.active_generation() == "g1"
    assert installation.states() == {"g1": "active", "g2": "standby", "g3": "retired"}
    assert installation.store.read_generations()["g2"].requested_by == "test"


@pytest.mark.requirement("I7", "A10")
def test_what_a_drop_freed_is_known_after_a_death_in_its_middle(installation: Installation) -> None:
    with installation.control("dropped") as dying:  # sent by control itself: the retention time is over
        assert dying.wait(120) == -9, installation.log.read_text()[-2000:]
    half = installation.store.read_generations()["g3"]
    assert half.dropped_at is None and half.freed is not None
    with installation.control():
        until(lambda: installation.store.read_generations()["g3"].dropped_at, 120, "the drop is finished")
    done = installation.store.read_generations()["g3"]
    assert done.freed == half.freed
    assert installation.states() == {"g1": "active", "g2": "ready", "g3": "retired"}
