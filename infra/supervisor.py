"""Headwater's own processes: a table, and starting, watching and stopping what it lists.

To add a process, add a row. Each process serves ``/healthz`` (or what ``health`` names): at its own port where it has
one, else at the port in HEADWATER_HEALTH_PORT.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import httpx
import psutil
from pydantic import SecretStr

from infra import ports
from infra.endpoints import Endpoints
from infra.errors import InfraError, StartError
from infra.files import exclusive
from infra.launcher import ServiceStatus
from infra.process import Managed
from infra.progress import Quiet, Reporter
from infra.state import Secrets, Store
from pipeline.settings import Settings, config_path

READY_SECONDS = 420.0  # the first start tries the backends of the encoder, and may have to convert it


@dataclass(frozen=True)
class Spec:
    """One process. ``port`` is the port that it serves to others, where it does; ``wanted`` says whether to run it."""

    name: str
    arguments: tuple[str, ...]
    read_only: bool = False  # gets only the Weaviate key that cannot write
    port: Callable[[Settings], int] | None = None
    port_variable: str = ""
    wanted: Callable[[Settings], bool] = lambda settings: True
    health: str = "/healthz"
    sources: bool = False  # it reads the settings of sources when it starts: others need another start


# In the order of starting; stopped from the end.
TABLE: tuple[Spec, ...] = (
    Spec("control", ("-m", "consumers", "control")),
    Spec("access", ("-m", "consumers", "access", "--member", "a")),
    Spec("index", ("-m", "consumers", "fleet", "--member", "a")),
    Spec("query", ("-m", "query_service"), True, lambda s: s.query.port, "HEADWATER_QUERY__PORT"),
    Spec(
        "gateway",
        ("-m", "consumers", "gateway"),
        False,
        lambda s: s.gateway.port,
        "HEADWATER_GATEWAY__PORT",
        sources=True,
    ),
    Spec("owner", ("-m", "consumers", "owner"), wanted=lambda s: bool(s.sources), sources=True),
    Spec("canary", ("-m", "consumers", "canary"), wanted=lambda s: s.canary.enabled),
    Spec("dagster-code", ("-m", "dagster_project", "code"), wanted=lambda s: s.dagster.enabled, sources=True),
    Spec("dagster-daemon", ("-m", "dagster_project", "daemon"), wanted=lambda s: s.dagster.enabled),
    Spec(
        "dagster-webserver",
        ("-m", "dagster_project", "webserver"),
        False,
        lambda s: s.dagster.port,
        "HEADWATER_DAGSTER__PORT",
        lambda s: s.dagster.enabled,
        "/server_info",
    ),
)


class Supervisor:
    """The processes of one state directory."""

    def __init__(self, settings: Settings, table: tuple[Spec, ...] = TABLE) -> None:
        self._settings = settings
        self._all = table
        self._table = tuple(spec for spec in table if spec.wanted(settings))
        self.state_dir = settings.state_dir.absolute()
        self._store = Store(self.state_dir)
        self._managed = {spec.name: Managed(spec.name, self.state_dir) for spec in table}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the processes that the settings want, in the order of starting."""
        return tuple(spec.name for spec in self._table)

    def up(self, endpoints: Endpoints, progress: Reporter | None = None) -> None:
        """Start what is not running, again what was started with other sources, then wait until each is healthy.

        Raises InfraError.
        """
        report = progress or Quiet()
        with exclusive(self.state_dir / "launcher.lock", "state directory"):
            health = self._health_ports()
            for spec in self._table:
                if self._outdated(spec):
                    report.step(spec.name, "the settings of sources changed: starting again")
                    self._managed[spec.name].stop()
                if not self._managed[spec.name].alive():
                    report.step(spec.name, "starting")
                    self._start(spec, endpoints, health[spec.name])
            for spec in self._table:
                self._wait(spec, health[spec.name], report)

    def start(self, name: str, endpoints: Endpoints) -> None:
        """Start one process and wait until it is healthy."""
        spec = next(spec for spec in self._table if spec.name == name)
        with exclusive(self.state_dir / "launcher.lock", "state directory"):
            health = self._health_ports()[name]
            if not self._managed[name].alive():
                self._start(spec, endpoints, health)
            self._wait(spec, health, Quiet())

    def down(self) -> None:
        """Stop every process in order, what the settings no longer want included: sources first, then what follows."""
        with exclusive(self.state_dir / "launcher.lock", "state directory"):
            for spec in reversed(self._all):
                self._managed[spec.name].stop()

    def managed(self, name: str) -> Managed:
        """One process, for signals and logs. Raises InfraError for an unknown name."""
        if name not in self._managed:
            raise InfraError(f"There is no process named {name}.", f"Known: {', '.join(self.names)}.")
        return self._managed[name]

    def status(self) -> list[ServiceStatus]:
        """One line a process."""
        return [self._status(spec) for spec in self._table]

    def _status(self, spec: Spec) -> ServiceStatus:
        found = self._managed[spec.name].process()
        address = self._address(spec)
        if found is None:
            return ServiceStatus(spec.name, "down", address)
        healthy = self._healthy(spec, self._store.state().ports.get(f"health_{spec.name}", 0))
        memory = _memory(found) // (1024 * 1024)
        return ServiceStatus(spec.name, "up" if healthy else "starting", address, found.pid, memory)

    def _healthy(self, spec: Spec, health_port: int) -> bool:
        port = spec.port(self._settings) if spec.port else health_port
        try:
            return httpx.get(f"http://{ports.LOOPBACK}:{port}{spec.health}", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def _address(self, spec: Spec) -> str:
        return f"http://{ports.LOOPBACK}:{spec.port(self._settings)}" if spec.port else ""

    def _health_ports(self) -> dict[str, int]:
        """Remembered health port of each process; a new one where the old is taken by somebody else."""
        state = self._store.state()
        for spec in self._table:
            key = f"health_{spec.name}"
            if key in state.ports and self._managed[spec.name].alive():
                continue
            others = {k: v for k, v in state.ports.items() if k != key}
            own = {k: v for k, v in state.ports.items() if k == key}
            state.ports = others | ports.choose({key: 1}, own, others.values())
        self._store.save(state)
        return {spec.name: state.ports[f"health_{spec.name}"] for spec in self._table}

    def _start(self, spec: Spec, endpoints: Endpoints, health_port: int) -> None:
        if spec.port and not ports.becomes_free(port := spec.port(self._settings)):
            raise StartError(
                f"{spec.name} cannot listen: port {port} is taken by another program.",
                f"Stop that program, or set {spec.port_variable} to a free port.",
            )
        env = environment(self._settings, endpoints, self._store.secrets(), spec.read_only)
        env["HEADWATER_HEALTH_PORT"] = str(health_port)
        self._managed[spec.name].start([sys.executable, *spec.arguments], env)
        state = self._store.state()
        state.begun_with[spec.name] = _of_sources(self._settings)
        self._store.save(state)

    def _outdated(self, spec: Spec) -> bool:
        """Whether it runs with other settings of sources than these."""
        begun = self._store.state().begun_with.get(spec.name)
        return spec.sources and self._managed[spec.name].alive() and begun not in (None, _of_sources(self._settings))

    def _wait(self, spec: Spec, health_port: int, report: Reporter) -> None:
        managed = self._managed[spec.name]
        end = time.monotonic() + READY_SECONDS
        while not self._healthy(spec, health_port):
            if not managed.alive():
                raise StartError(
                    f"{spec.name} ended while starting. Its log ends with:\n{managed.log_tail()}\n",
                    f"Read {managed.log_file}.",
                )
            if time.monotonic() > end:
                raise StartError(
                    f"{spec.name} was not healthy within {READY_SECONDS:.0f} s.", f"Read {managed.log_file}."
                )
            report.step(spec.name, "waiting until it is healthy")
            time.sleep(0.1)
        report.finish(spec.name, self._address(spec) or "healthy")


def _of_sources(settings: Settings) -> str:
    """Names what processes that follow sources read of the settings; secrets count and do not show."""

    def plain(value: object) -> object:
        return value.get_secret_value() if isinstance(value, SecretStr) else str(value)

    read = settings.model_dump(include={"sources", "people", "reconcile", "gateway"})
    return hashlib.sha256(json.dumps(read, default=plain, sort_keys=True).encode()).hexdigest()


def _memory(process: psutil.Process) -> int:
    """Resident bytes of a process and what it started: the index consumers stand below their fleet."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += one.memory_info().rss
    return total


def environment(settings: Settings, endpoints: Endpoints, secrets: Secrets, read_only: bool = False) -> dict[str, str]:
    """Variables of one of Headwater's processes: ours, the addresses, the keys, and absolute folders.

    Variables that name a key of Weaviate are dropped first, so that a reader never inherits the writer's.
    """
    dropped = {"HEADWATER_WEAVIATE__API_KEY", "HEADWATER_WEAVIATE__READ_API_KEY"}
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env |= endpoints.environment(read_only=read_only)
    env["HEADWATER_STATE_DIR"] = str(settings.state_dir.absolute())
    env["HEADWATER_CACHE_DIR"] = str(settings.cache_dir.absolute())
    if config_path().is_file():
        env["HEADWATER_CONFIG"] = str(config_path().absolute())
    if settings.auth.jwt_secret is None and not settings.auth.verifies_foreign:
        env["HEADWATER_AUTH__JWT_SECRET"] = secrets.jwt
    if settings.auth.service_secret is None:
        env["HEADWATER_AUTH__SERVICE_SECRET"] = secrets.service
    if settings.gateway.secret is None:
        env["HEADWATER_GATEWAY__SECRET"] = secrets.gateway
    env["PYTHONUNBUFFERED"] = "1"
    return env
