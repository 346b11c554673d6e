"""The access consumer as a process: health, signals, kill -9, wrong settings."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.settings import Settings
from schemas.access import AccessRule
from schemas.events import AccessSet
from schemas.keys import DocumentRef
from tests.integration.bus.conftest import Lane, wait_until

ROOT = Path(__file__).parents[3]
DOC = DocumentRef(tenant="acme", source="wiki", id="1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Access:
    """One access process."""

    def __init__(self, settings: Settings, folder: Path, *arguments: str, **changes: str) -> None:
        self.port = free_port()
        kafka, weaviate = settings.kafka, settings.weaviate
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
        environment |= {
            "HEADWATER_NAMESPACE": settings.namespace,
            "HEADWATER_KAFKA__BOOTSTRAP": kafka.bootstrap,
            "HEADWATER_KAFKA__PARTITIONS": str(kafka.partitions),
            "HEADWATER_WEAVIATE__URL": weaviate.url,
            "HEADWATER_WEAVIATE__GRPC_HOST": weaviate.grpc_host,
            "HEADWATER_WEAVIATE__GRPC_PORT": str(weaviate.grpc_port),
            "HEADWATER_HEALTH_PORT": str(self.port),
        } | changes
        if weaviate.api_key is not None:
            environment["HEADWATER_WEAVIATE__API_KEY"] = weaviate.api_key.get_secret_value()
        self.log = folder / f"access-{self.port}.log"
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "consumers", "access", *arguments], cwd=ROOT, env=environment, stderr=stream
            )

    def page(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as reply:
            return bytes(reply.read())

    def health(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.page("/healthz"))
        except OSError:
            return {"state": "starting"}
        return found

    def await_running(self) -> float:
        """Seconds until its partitions are open."""
        began = time.monotonic()
        wait_until(lambda: self.process.poll() is not None or self.health()["state"] == "running", 90)
        assert self.process.poll() is None, self.log.read_text()
        return time.monotonic() - began

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def processes() -> Iterator[list[Access]]:
    """Whatever a test starts is ended."""
    started: list[Access] = []
    yield started
    for access in started:
        if access.process.poll() is None:
            access.process.send_signal(signal.SIGCONT)
            access.process.kill()
        access.process.wait(20)


def rule(version: int, *principals: str) -> AccessSet:
    return AccessSet(
        document=DOC, version=version, content_version=1, observed_at=1, rule=AccessRule.any_of(*principals)
    )


def version(lane: Lane) -> int:
    record = lane.record(DOC)
    return record.version if record is not None else -1


@pytest.mark.requirement("I11", "A8")
def test_it_serves_its_health_and_leaves_in_order_on_sigterm(
    lane: Lane, processes: list[Access], tmp_path: Path
) -> None:
    access = Access(lane.settings, tmp_path)
    processes.append(access)
    access.await_running()
    lane.send(rule(1, "user:ann"))
    wait_until(lambda: version(lane) == 1)
    health = access.health()
    assert health["lane"] == "access" and set(health["partitions"]) == {"0", "1", "2"} and health["lease_s"] > 0
    wait_until(lambda: b'headwater_outcomes_total{lane="access",outcome="applied"} 1.0' in access.page("/metrics"))
    access.process.send_signal(signal.SIGTERM)
    assert access.process.wait(20) == 0
    assert all(p.clean for p in lane.store.read_progress("access", "", "access").values())
    lines = access.lines()
    assert lines[-1]["message"] == "left in order" and all(line["process"] == "access" for line in lines)


@pytest.mark.requirement("I1", "I11")
def test_after_kill_9_its_successor_waits_one_lease_and_goes_on(
    lane: Lane, processes: list[Access], tmp_path: Path
) -> None:
    first = Access(lane.settings, tmp_path, "--member", "a")
    processes.append(first)
    first.await_running()
    lane.send(rule(1, "user:ann"))
    wait_until(lambda: version(lane) == 1)
    first.process.kill()
    first.process.wait(20)
    lane.send(rule(2, "user:bob"))
    second = Access(lane.settings, tmp_path, "--member", "a")
    processes.append(second)
    wait_until(lambda: second.health()["state"] == "waiting", 90)
    assert second.await_running() > 3, "it waited for the dead owner's lease"
    wait_until(lambda: version(lane) == 2)
    starts = {t["start"] for p in second.health()["partitions"].values() for t in p["topics"].values()}
    assert "unclean stop" in starts


@pytest.mark.requirement("I1")
def test_a_process_that_was_stopped_longer_than_its_session_writes_nothing_when_it_wakes(
    lane: Lane, processes: list[Access], tmp_path: Path
) -> None:
    first = Access(lane.settings, tmp_path)
    processes.append(first)
    first.await_running()
    second = Access(lane.settings, tmp_path)
    processes.append(second)
    second.await_running()
    first.process.send_signal(signal.SIGSTOP)
    try:
        lane.send(rule(1, "user:ann"))
        wait_until(lambda: version(lane) == 1 and len(second.health()["partitions"]) == 3, 60)
        wait_until(lambda: second.health()["state"] == "running", 60)
        lane.send(rule(2, "user:bob"))
        wait_until(lambda: version(lane) == 2)
    finally:
        first.process.send_signal(signal.SIGCONT)
    wait_until(lambda: len(first.health()["partitions"]) + len(second.health()["partitions"]) == 3, 60)
    wait_until(lambda: {first.health()["state"], second.health()["state"]} == {"running"}, 60)
    assert version(lane) == 2
    lane.send(rule(3, "user:carl"))
    wait_until(lambda: version(lane) == 3)


def test_wrong_settings_and_names_end_with_status_2(lane: Lane, processes: list[Access], tmp_path: Path) -> None:
    wrong = Access(lane.settings, tmp_path, HEADWATER_KAFKA__PARTITIONS="4")
    processes.append(wrong)
    assert wrong.process.wait(60) == 2
    last = wrong.lines()[-1]
    assert last["field"] == "kafka.partitions" and "log's life" in last["remedy"]
    nobody = subprocess.run(
        [sys.executable, "-m", "consumers", "nobody"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert nobody.returncode == 2 and "access,index,fleet,owner" in nobody.stderr
