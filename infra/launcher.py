"""Kafka and Weaviate for one state directory: where the settings point, or started here as child processes.

State directory::

    services.json  secrets.json      addresses; keys (mode 0600)
    data/kafka  data/weaviate        the services' own files
    run/*.pid  logs/*.log            of every process
"""

from __future__ import annotations

import shutil
import signal
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from infra import docker, endpoints, kafka_server, pins, ports, weaviate_server
from infra.endpoints import Endpoints
from infra.errors import InfraError, StartError
from infra.files import disk_errors, exclusive, require_space, used_percent
from infra.obtain import kafka as obtain_kafka
from infra.obtain import weaviate as obtain_weaviate
from infra.obtain.tools import find_java, obtain_java
from infra.process import Managed
from infra.progress import Quiet, Reporter
from infra.state import Mode, Secrets, State, Store
from pipeline.settings import Settings

KAFKA, WEAVIATE = kafka_server.NAME, weaviate_server.NAME
NAMES = (KAFKA, WEAVIATE)
READY_SECONDS = 120.0
EXTERNAL_SECONDS = 10.0
START_MIB = 512
_EXTERNAL_REMEDY = {
    KAFKA: "Check HEADWATER_KAFKA__BOOTSTRAP, or unset it to let Headwater start its own.",
    WEAVIATE: "Check HEADWATER_WEAVIATE__URL and its key, or unset them to let Headwater start its own.",
}


@dataclass(frozen=True)
class ServiceStatus:
    """One line of ``headwater status``."""

    name: str
    state: str  # "up", "down", "starting", "external", "unreachable"
    address: str
    pid: int | None = None
    memory_mib: int | None = None
    version: str | None = None


class Services:
    """The services of one state directory. Methods may be called from several processes; a lock orders them."""

    def __init__(
        self,
        state_dir: Path,
        *,
        cache_dir: Path | None = None,
        mode: Mode | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.state_dir = state_dir.absolute()
        self.cache_dir = (cache_dir or Path("~/.cache/headwater")).expanduser().absolute()
        self._wanted_mode = mode
        pairs = zip(NAMES, endpoints.external(settings), strict=True)
        self._external = {name: where for name, where in pairs if where is not None}
        self._store = Store(self.state_dir)
        self._managed = {name: Managed(name, self.state_dir) for name in NAMES}

    @classmethod
    def of(cls, settings: Settings) -> Services:
        """The services that the settings ask for."""
        return cls(settings.state_dir, cache_dir=settings.cache_dir, settings=settings)

    # -- starting and stopping -------------------------------------------------------------------------------------

    def obtain(self, progress: Reporter | None = None) -> None:
        """Bring everything that must run here into the cache, and start nothing. Raises InfraError."""
        report = progress or Quiet()
        if KAFKA not in self._external:
            obtain_java(self.cache_dir, report)
            obtain_kafka.obtain(self.cache_dir, report)
        if WEAVIATE not in self._external:
            obtain_weaviate.obtain(self.cache_dir, report)

    def up(self, progress: Reporter | None = None) -> Endpoints:
        """Start what is not running and wait until each service answers. Safe to repeat. Raises InfraError."""
        report = progress or Quiet()
        with self._lock():
            self._check_disk()
            names = [name for name in NAMES if name not in self._external]
            state = self._store.state()
            state.mode = self._mode(state, names)
            self._store.save(state)
            if names and state.mode == "docker":
                # A container that answers holds its port itself: only the others may need new ones.
                state = self._choose_ports(state, [name for name in names if not self.healthy(name)])
                docker.up(self.state_dir, state, self._store.secrets(), names, report)
            elif names:
                self.obtain(report)
                for name in names:
                    state = self._start(name, state, report)
            for name in NAMES:
                self._wait(name, report)
        return self.endpoints()

    def down(self) -> None:
        """Stop what was started here, in order; nothing else. Data stays."""
        with self._lock():
            if self._uses_docker():
                docker.down(self.state_dir, self._store.state(), self._store.secrets())
            for name in NAMES:
                self._managed[name].send(signal.SIGCONT)
                self._managed[name].send(signal.SIGTERM)
            for name in NAMES:
                self._managed[name].stop()

    def start(self, name: str) -> None:
        """Start one stopped service at its old address and wait until it answers."""
        with self._lock():
            self._native(name)
            self._start(name, self._store.state(), Quiet())
            self._wait(name, Quiet())

    def stop(self, name: str) -> None:
        """Stop one service in order."""
        with self._lock():
            self._native(name).stop()

    def restart(self, name: str) -> None:
        """Stop one service in order and start it again."""
        self.stop(name)
        self.start(name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one service (SIGKILL, SIGSTOP, SIGCONT, SIGTERM); a killed one is waited for."""
        managed = self._native(name)
        if number is signal.SIGKILL:
            managed.kill()
        else:
            managed.send(number)

    # -- copies of Weaviate's data ---------------------------------------------------------------------------------

    def snapshot(self, target: Path) -> None:
        """Copy Weaviate's data to ``target`` while it is stopped, then start it again."""
        self._swap(self._data(WEAVIATE), target)

    def restore(self, source: Path) -> None:
        """Replace Weaviate's data by a copy made with ``snapshot`` and start it again."""
        if not source.is_dir():
            raise InfraError(f"There is no copy at {source}.", "Name a folder made by snapshot.")
        self._swap(source, self._data(WEAVIATE))

    def _swap(self, source: Path, target: Path) -> None:
        with self._lock():
            self._native(WEAVIATE).stop()
            partial = target.with_name(f".{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            with disk_errors(target):
                shutil.copytree(source, partial)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
            self._start(WEAVIATE, self._store.state(), Quiet())
            self._wait(WEAVIATE, Quiet())

    # -- asking ----------------------------------------------------------------------------------------------------

    def endpoints(self) -> Endpoints:
        """Where the services are, running or not. Raises InfraError before the first ``up``."""
        state = self._store.state()
        missing = [n for n in NAMES if n not in self._external and n not in state.ports]
        if missing:
            raise InfraError(f"{' and '.join(missing)} was never started here.", "Run `headwater up`.")
        here = endpoints.local(state, self._store.secrets(), self._data(WEAVIATE))
        bootstrap = self._external.get(KAFKA, here).bootstrap
        return self._external.get(WEAVIATE, here).model_copy(update={"bootstrap": bootstrap})

    def secrets(self) -> Secrets:
        """The keys of this state directory, made on first use."""
        return self._store.secrets()

    def ports(self) -> dict[str, int]:
        """Every port of the services started here, by purpose."""
        return dict(self._store.state().ports)

    def healthy(self, name: str) -> bool:
        """Whether the service answers now."""
        return self._answer(name) is not None

    def status(self) -> list[ServiceStatus]:
        """One line a service."""
        return [self._status(name) for name in NAMES]

    def pid(self, name: str) -> int | None:
        """Process id of a service started here, None where it is not running."""
        found = self._managed[name].process()
        return found.pid if found else None

    def log_file(self, name: str) -> Path:
        """Where the service logs."""
        return self._managed[name].log_file

    # -- inside ----------------------------------------------------------------------------------------------------

    def _lock(self) -> AbstractContextManager[None]:
        return exclusive(self.state_dir / "launcher.lock", "state directory")

    def _data(self, name: str) -> Path:
        return self.state_dir / "data" / name

    def _native(self, name: str) -> Managed:
        if name in self._external or self._store.state().mode != "native":
            raise InfraError(
                f"{name} does not run as a child process of this state directory.",
                "This works on services that the launcher started without Docker.",
            )
        return self._managed[name]

    def _uses_docker(self) -> bool:
        try:
            return self._store.state().mode == "docker"
        except InfraError:  # a damaged file: what runs as a child can still be stopped by its pid file
            return False

    def _check_disk(self) -> None:
        require_space(self.state_dir, START_MIB, "the services' data", "HEADWATER_STATE_DIR")
        used = used_percent(self.state_dir)
        if WEAVIATE not in self._external and used >= weaviate_server.READONLY_PERCENT:
            raise InfraError(
                f"The disk of {self.state_dir} is {used:.0f} % full; Weaviate refuses writes at "
                f"{weaviate_server.READONLY_PERCENT} %.",
                "Free some space, or set HEADWATER_STATE_DIR to a folder on another disk.",
            )

    def _mode(self, state: State, names: list[str]) -> Mode:
        """How to run: as before, else natively where all is present, else by Docker where a daemon answers."""
        wanted = self._wanted_mode or state.mode
        if wanted:
            return wanted
        cached = {
            KAFKA: lambda: obtain_kafka.present(self.cache_dir) and find_java(self.cache_dir) is not None,
            WEAVIATE: lambda: obtain_weaviate.present(self.cache_dir),
        }
        if all(cached[name]() for name in names) or not docker.answers():
            return "native"
        return "docker"

    def _choose_ports(self, state: State, names: list[str]) -> State:
        table = {KAFKA: kafka_server.PORTS, WEAVIATE: weaviate_server.PORTS}
        for name in names:
            needed = table[name]
            others = {k: v for k, v in state.ports.items() if k not in needed}
            own = {k: v for k, v in state.ports.items() if k in needed}
            state.ports = others | ports.choose(needed, own, taken=others.values())
        self._store.save(state)
        return state

    def _start(self, name: str, state: State, report: Reporter) -> State:
        managed = self._managed[name]
        if managed.alive():
            return state
        report.step(name, "starting")
        state = self._choose_ports(state, [name])
        data = self._data(name)
        if name == KAFKA:
            java = obtain_java(self.cache_dir, report)
            libs = obtain_kafka.folder(self.cache_dir)
            kafka_server.format_storage(java, libs, state.cluster_id, state.ports, data)
            config = data.with_name("kafka.properties")
            config.write_text(kafka_server.properties(state.ports, data), encoding="utf-8")
            command = kafka_server.argv(java, libs, "kafka.Kafka", str(config))
            managed.start(command, kafka_server.environment())
        else:
            data.mkdir(parents=True, exist_ok=True)
            command = weaviate_server.argv(obtain_weaviate.binary(self.cache_dir), state.ports)
            managed.start(command, weaviate_server.environment(state.ports, data, self._store.secrets()))
        return state

    def _wait(self, name: str, report: Reporter) -> None:
        begin = time.monotonic()
        external = name in self._external
        limit = EXTERNAL_SECONDS if external else READY_SECONDS
        while (version := self._answer(name)) is None:
            waited = time.monotonic() - begin
            if not external and self._store.state().mode == "native" and not self._managed[name].alive():
                raise StartError(
                    f"{name} ended while starting. Its log ends with:\n{self._managed[name].log_tail()}\n",
                    f"Read {self._managed[name].log_file}; `headwater doctor` checks memory, disk and limits.",
                )
            if waited > limit:
                raise StartError(
                    f"{name} at {self._address(name)} did not answer within {limit:.0f} s.",
                    _EXTERNAL_REMEDY[name] if external else f"Read {self._managed[name].log_file}.",
                )
            report.step(name, "waiting for an answer")
            time.sleep(0.1)
        self._check_version(name, version, external)
        report.finish(name, f"answers at {self._address(name)}")

    def _check_version(self, name: str, version: str, external: bool) -> None:
        if name == WEAVIATE and not external and version != pins.WEAVIATE_VERSION:
            raise StartError(
                f"Weaviate is {version}, not {pins.WEAVIATE_VERSION}.",
                f"Delete {obtain_weaviate.binary(self.cache_dir)} and run `headwater up`.",
            )

    def _answer(self, name: str) -> str | None:
        try:
            where = self.endpoints()
        except InfraError:
            return None
        if name == KAFKA:
            return _kafka_answer(where.bootstrap)
        return weaviate_server.answers(
            where.weaviate_http_url, where.api_key, where.weaviate_grpc_host, where.grpc_port
        )

    def _address(self, name: str) -> str:
        try:
            where = self.endpoints()
        except InfraError:
            return ""
        return where.bootstrap if name == KAFKA else where.weaviate_http_url

    def _status(self, name: str) -> ServiceStatus:
        version, address = self._answer(name), self._address(name)
        if name in self._external:
            return ServiceStatus(name, "external" if version else "unreachable", address, version=version)
        found = self._managed[name].process()
        if found is None and not version:
            return ServiceStatus(name, "down", address)
        memory = found.memory_info().rss // (1024 * 1024) if found else None
        pid = found.pid if found else None
        return ServiceStatus(name, "up" if version else "starting", address, pid, memory, version)


def _kafka_answer(bootstrap: str) -> str | None:
    """ "answers" where one of the servers of ``host:port,host:port`` does."""
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        if host and port.isdigit() and kafka_server.answers(host, int(port)):
            return "answers"
    return None
