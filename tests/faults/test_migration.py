"""An encoder replaced while whatever takes part in it is killed: every answer that is given is right all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.bench.migration.run import NEW, OLD, PROCESSES, migrate
from infra.bench.world import World
from infra.launcher import Services
from infra.progress import Quiet


@pytest.fixture(scope="module")
def own(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services of this module's own: one of them is killed."""
    launcher = Services(tmp_path_factory.mktemp("migration-services"), cache_dir=cache_dir, mode="native")
    try:
        launcher.up()
        yield launcher
    finally:
        launcher.down()


class Killer:
    """Kills what the phase is about, a moment after it began, and starts it again where nobody else does."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._threads: list[threading.Thread] = []
        self.killed: list[str] = []
        self.errors: list[BaseException] = []

    def __call__(self, phase: str, world: World) -> None:
        """As ``run.Chaos``."""
        plan: dict[str, tuple[float, Callable[[World], None]]] = {
            "create": (0.5, lambda w: self._restart(w, "control")),
            "build": (4.0, self._workers),
            "dual writing": (1.0, self._consumers),
            "verify": (1.0, lambda w: self._restart(w, "control")),
            "activate": (0.02, lambda w: self._restart(w, "control")),
            "new active": (1.0, self._store),
            "rollback": (0.02, lambda w: self._restart(w, "control")),
            "old active": (0.5, lambda w: self._restart(w, "access")),
            "retire": (0.02, lambda w: self._restart(w, "index")),
        }
        if phase not in plan or phase in self.killed:
            return
        self.killed.append(phase)
        wait, kill = plan[phase]

        def later() -> None:
            try:
                time.sleep(wait)
                kill(world)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=later, name=f"kill-{phase}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self._threads:
            thread.join(180)
        assert self.errors == []

    @staticmethod
    def _restart(world: World, name: str) -> None:
        """kill -9 of a process of the table; of ``index`` that is the fleet."""
        process = _managed(world, name)
        process.kill()
        process.wait(30)
        world.start(name)

    @staticmethod
    def _workers(world: World) -> None:
        """The bulk workers; whoever builds starts them again."""
        bulk = [p for p in psutil.Process().children(recursive=True) if "--bulk" in _command(p)]
        for process in bulk:
            process.kill()

    @staticmethod
    def _consumers(world: World) -> None:
        """The consumers of both generations; the fleet starts them again."""
        for process in _managed(world, "index").children():
            process.kill()

    def _store(self, world: World) -> None:
        """Weaviate, in the middle of writes and queries."""
        self._services.kill("weaviate")
        self._services.up()


def _managed(world: World, name: str) -> psutil.Process:
    process = world.supervisor.managed(name).process()
    assert process is not None, f"{name} does not run"
    return process


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.requirement("A10", "I1", "I2", "I7", "I8", "I11")
def test_a_migration_survives_the_death_of_each_of_its_parts(own: Services, tmp_path: Path) -> None:
    world = World(own.endpoints(), tmp_path / "world", PROCESSES)
    killer = Killer(own)
    world.open(Quiet())
    try:
        found = migrate(world, documents=24, soak_s=10.0, per_s=3.0, say=print, chaos=killer)
        killer.join()
        left = world.store.read_generations()
        active = world.store.active_generation()
    finally:
        world.close()
    assert len(killer.killed) == 9
    assert found.verdict.right, found.verdict.examples
    assert found.verdict.queries > 100, found.line()
    assert active == NEW and left[NEW].state == "active" and left[OLD].state == "retired"
