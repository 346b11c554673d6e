"""Processes of a benchmark in a namespace of their own: started, restarted, stopped, erased."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from infra import ports
from infra.asking import QueryApi
from infra.bench.feeding import Feeder, Gateway
from infra.bench.receipts import Receipts
from infra.endpoints import Endpoints
from infra.errors import InfraError
from infra.files import write_atomic
from infra.golden_world import environment, erase
from infra.progress import Reporter
from infra.state import Store
from infra.supervisor import TABLE, Supervisor
from infra.supervisor import environment as process_environment
from pipeline import settings as config
from pipeline.errors import Retry
from pipeline.index.store import WeaviateStore
from pipeline.settings import Settings
from schemas.generation import Generation

READY_S = 240.0  # the control consumer may have to try the encoder's backends
MARK = "world.json"
FOLDER_TENANT, FOLDER_SOURCE = "folder", "wiki"


class World:
    """One namespace and its processes. ``close`` erases it, unless it was made to be kept."""

    def __init__(
        self,
        endpoints: Endpoints,
        folder: Path,
        processes: Sequence[str],
        *,
        namespace: str | None = None,
        idle: Sequence[str] = (),
        sources: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        """``namespace`` given: it is kept with all that it holds. ``idle`` processes wait for ``start``. ``sources``
        stand in the place of the folder ``wiki``. Starts nothing yet."""
        self.endpoints = endpoints
        self.folder = folder.absolute()
        self.wiki = self.folder / "wiki"
        self.kept = namespace is not None
        self.namespace = namespace or f"bench-{secrets.token_hex(4)}"
        self._table = tuple(spec for spec in TABLE if spec.name in processes)
        self._first = tuple(spec for spec in self._table if spec.name not in idle)
        self._variables = self._own_variables("owner" in processes, sources)
        with environment(self._variables):
            self.settings = endpoints.apply(config.load())
        self.supervisor = Supervisor(self.settings, self._table)
        self._store: WeaviateStore | None = None
        self._receipts: Receipts | None = None
        self._gateway: Gateway | None = None
        self._feeders: dict[tuple[str, str], Feeder] = {}

    def _own_variables(self, watched: bool, sources: Sequence[Mapping[str, object]] | None) -> dict[str, str]:
        chosen = ports.choose({"query": 1, "gateway": 1}, {})
        wiki = {"name": FOLDER_SOURCE, "tenant": FOLDER_TENANT, "type": "folder", "path": str(self.wiki)}
        given = [wiki] if sources is None else list(sources)
        return {
            "HEADWATER_NAMESPACE": self.namespace,
            "HEADWATER_STATE_DIR": str(self.folder),
            "HEADWATER_QUERY__HOST": ports.LOOPBACK,
            "HEADWATER_QUERY__PORT": str(chosen["query"]),
            "HEADWATER_QUERY__RECEIPTS_PATH": str(self.folder / "receipts.sqlite"),
            "HEADWATER_GATEWAY__HOST": ports.LOOPBACK,
            "HEADWATER_GATEWAY__PORT": str(chosen["gateway"]),
            "HEADWATER_BODIES__STORE": f"file://{self.folder / 'bodies'}",
            "HEADWATER_CANARY__ENABLED": "false",
            "HEADWATER_LIMITS__REQUESTS_PER_MINUTE": "0",  # one person asks as fast as it goes
            "HEADWATER_SOURCES": json.dumps(given if watched else []),
        }

    # ------------------------------------------------------------ life

    def open(self, report: Reporter) -> None:
        """Start everything and wait until it serves. Raises InfraError; then nothing is left running."""
        self.supervisor.down()  # what a killed run of the same place left
        self.wiki.mkdir(parents=True, exist_ok=True)
        if not self.kept:
            write_atomic(self.folder / MARK, json.dumps({"namespace": self.namespace}).encode())
        try:
            with environment(self._variables):
                Supervisor(self.settings, self._first).up(self.endpoints, report)
            self.generation()
            if any(spec.name == "query" for spec in self._first):
                self._await_query()
        except BaseException:
            self.close()
            raise

    def _await_query(self) -> None:
        end = time.monotonic() + READY_S
        with QueryApi(self.settings) as api:
            while not api.ready():
                if time.monotonic() > end:
                    raise InfraError(f"The query service was not ready within {READY_S:.0f} s.", self._see("query"))
                time.sleep(0.1)

    def start(self, name: str) -> None:
        """Start one process again and wait until it is healthy."""
        with environment(self._variables):
            self.supervisor.start(name, self.endpoints)

    def stop(self, name: str) -> None:
        """Stop one process in order."""
        self.supervisor.managed(name).stop()

    def process(self, name: str) -> psutil.Process:
        """One of the processes; of the index fleet its oldest consumer. Raises InfraError where it does not run."""
        found = self.supervisor.managed(name).process()
        if found is not None and name == "index":
            found = min(found.children(), key=lambda child: child.create_time(), default=None)
        if found is None:
            raise InfraError(f"The process {name} of the benchmark does not run.", self._see(name))
        return found

    def _see(self, name: str) -> str:
        return f"Read {self.folder / 'logs' / name}.log."

    def close(self) -> None:
        """Stop everything; erase it unless it is kept. Safe to repeat."""
        for client in (self._gateway, self._receipts, self._store, *self._feeders.values()):
            if client is not None:
                client.close()
        self._gateway = self._receipts = self._store = None
        self._feeders.clear()
        self.supervisor.down()
        if not self.kept:
            _erase(self.settings, self.folder)

    # ------------------------------------------------------------ clients

    @property
    def store(self) -> WeaviateStore:
        """The store as a writer uses it."""
        if self._store is None:
            self._store = WeaviateStore(self.settings)
        return self._store

    @property
    def receipts(self) -> Receipts:
        """All receipts of the namespace."""
        if self._receipts is None:
            self._receipts = Receipts(self.settings)
        return self._receipts

    @property
    def gateway(self) -> Gateway:
        """The change gateway."""
        if self._gateway is None:
            self._gateway = self.new_gateway()
        return self._gateway

    def new_gateway(self) -> Gateway:
        """Another client of it, for a thread of its own; the caller closes it."""
        given = self.settings.gateway.secret
        secret = given.get_secret_value() if given else Store(self.folder).secrets().gateway
        return Gateway(f"http://{ports.LOOPBACK}:{self.settings.gateway.port}", secret)

    def feeder(self, tenant: str, source: str) -> Feeder:
        """The owner of a source, in this process."""
        key = (tenant, source)
        if key not in self._feeders:
            self._feeders[key] = Feeder(self.settings, tenant, source)
        return self._feeders[key]

    def generation(self) -> Generation:
        """The active generation; waits while the control consumer makes it. Raises InfraError."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            with suppress(Retry):
                name = self.store.active_generation()
                found = self.store.read_generations().get(name) if name is not None else None
                if found is not None:
                    return found
            time.sleep(0.1)
        raise InfraError(f"No generation was active within {READY_S:.0f} s.", self._see("control"))

    def process_environment(self) -> dict[str, str]:
        """Variables as the supervised processes get them, for a process beside them."""
        with environment(self._variables):
            secrets_ = Store(self.folder).secrets()
            return process_environment(self.settings, self.endpoints, secrets_) | {"PYTHONPATH": _python_path()}


def _python_path() -> str:
    here = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH")
    return f"{here}{os.pathsep}{before}" if before else here


def remove_leftovers(endpoints: Endpoints, folder: Path) -> None:
    """Processes, topics and collections of worlds under ``folder`` whose run was killed."""
    for mark in sorted(folder.glob(f"*/{MARK}")):
        try:
            namespace = str(json.loads(mark.read_text(encoding="utf-8"))["namespace"])
        except (OSError, ValueError, KeyError, TypeError):
            shutil.rmtree(mark.parent, ignore_errors=True)
            continue
        variables = {"HEADWATER_NAMESPACE": namespace, "HEADWATER_STATE_DIR": str(mark.parent.absolute())}
        with environment(variables | {"HEADWATER_SOURCES": "[]"}):
            settings = endpoints.apply(config.load())
        Supervisor(settings).down()
        _erase(settings, mark.parent)


def _erase(settings: Settings, folder: Path) -> None:
    # The services may be what failed; what is left of the namespace is then removed before the next run.
    with suppress(Retry, InfraError):
        erase(settings)
        shutil.rmtree(folder, ignore_errors=True)
