"""Bulk workers of a building generation: child processes that are ordinary members of its consumer group.

Nothing of the build is lost with them: what they applied stands in the store, and whoever joins the group goes on
from there. They leave in order when the process that started them is gone.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from pipeline.errors import ConfigError, Crash
from pipeline.settings import Settings, config_path

FAILURES = 5  # ends in a row, each soon after its start, with which the pool gives up
SOON_S = 60.0
PAUSE_S = 2.0
WRONG_SETTINGS = 2  # exit status of a consumer that cannot work with these settings

Spawn = Callable[[str, Path], "subprocess.Popen[bytes]"]  # member, log file


class WorkerPool:
    """Bulk workers of one generation. Used by one thread; a context manager that stops them at its end.

    Each logs to ``state_dir/logs/build-GENERATION-N.log``. A worker that died is started again under its name, so
    its partitions wait for no session to end.
    """

    def __init__(
        self,
        settings: Settings,
        generation: str,
        *,
        variables: Mapping[str, str] | None = None,
        spawn: Spawn | None = None,
    ) -> None:
        """``variables`` is the workers' environment, made from the settings where None."""
        self._generation = generation
        self._variables = dict(variables) if variables is not None else environment(settings)
        self._logs = settings.state_dir.absolute() / "logs"
        self._name = f"bulk-{secrets.token_hex(4)}"  # two pools of one generation do not fence each other
        self._spawn = spawn if spawn is not None else self._process
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._since: dict[int, float] = {}
        self._due: dict[int, float] = {}
        self._failures = 0
        self.restarts = 0

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, workers: int) -> None:
        """Start so many; the same as ``scale`` of an empty pool."""
        self.scale(workers)

    def scale(self, workers: int) -> None:
        """Start or stop until there are so many; the ones that are stopped leave in order."""
        for number in [n for n in sorted(self._workers) if n >= workers]:
            self._end([self._workers.pop(number)], 10.0)
        for number in range(workers):
            if number not in self._workers:
                self._start(number)

    def alive(self) -> int:
        """Workers that run now."""
        return sum(1 for worker in self._workers.values() if worker.poll() is None)

    def pids(self) -> list[int]:
        """Of those that run now."""
        return [worker.pid for worker in self._workers.values() if worker.poll() is None]

    def keep(self) -> None:
        """Start again what died. One that left by itself stays away: its generation is retired.

        Raises ConfigError when a worker cannot work with its settings, Crash when they end again and again.
        """
        now = time.monotonic()
        for number, worker in list(self._workers.items()):
            status = worker.poll()
            if status is None:
                if now - self._since[number] > SOON_S:
                    self._failures = 0
                continue
            if status == 0:
                continue
            if number not in self._due:
                self._failed(number, status)
                self._due[number] = now + PAUSE_S * self._failures
            elif now >= self._due[number]:
                self.restarts += 1
                self._start(number)

    def _failed(self, number: int, status: int) -> None:
        self._failures += 1
        log = self._log(number)
        if status == WRONG_SETTINGS:
            raise ConfigError("generation", f"a worker of {self._generation} cannot start: {_last(log)}", f"See {log}.")
        if self._failures >= FAILURES:
            raise Crash(f"workers of {self._generation} end again and again: {_last(log)}; see {log}")

    def stop(self, seconds: float = 15.0) -> bool:
        """All leave in order, at once; what still runs after ``seconds`` is killed. True where none had to be."""
        workers, self._workers = list(self._workers.values()), {}
        return self._end(workers, seconds)

    # ------------------------------------------------------------ processes

    @staticmethod
    def _end(workers: list[subprocess.Popen[bytes]], seconds: float) -> bool:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
        until = time.monotonic() + seconds
        clean = True
        for worker in workers:
            try:
                worker.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                clean = False
                worker.kill()
                worker.wait()
        return clean

    def _start(self, number: int) -> None:
        self._due.pop(number, None)
        self._workers[number] = self._spawn(f"{self._name}-{number}", self._log(number))
        self._since[number] = time.monotonic()

    def _log(self, number: int) -> Path:
        return self._logs / f"build-{self._generation}-{number}.log"

    def _process(self, member: str, log: Path) -> subprocess.Popen[bytes]:
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "consumers", "index", "--generation", self._generation, "--bulk"]
        with log.open("ab") as stream:
            return subprocess.Popen(
                [*command, "--member", member, "--parent", str(os.getpid())],
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,  # an interrupt at the terminal reaches the builder, which stops them in order
            )


def environment(settings: Settings) -> dict[str, str]:
    """Variables with which a child process loads these very settings, whatever they were made from."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    if "HEADWATER_LOG_LEVEL" in os.environ:
        env["HEADWATER_LOG_LEVEL"] = os.environ["HEADWATER_LOG_LEVEL"]
    if config_path().is_file():
        env["HEADWATER_CONFIG"] = str(config_path().absolute())
    for name, value in settings.model_dump(mode="python").items():
        if value is not None:
            env[f"HEADWATER_{name.upper()}"] = value if isinstance(value, str) else _plain(value)
    return env


def _plain(value: Any) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    return json.dumps(value, default=lambda v: v.get_secret_value() if isinstance(v, SecretStr) else str(v))


def _last(log: Path) -> str:
    """The message of the log's last line."""
    try:
        lines = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
    except OSError:
        lines = []
    for line in lines:
        try:
            return str(json.loads(line)["message"])
        except (ValueError, KeyError, TypeError):
            return line
    return "it logged nothing"
