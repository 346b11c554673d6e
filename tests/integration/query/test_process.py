"""``python -m query_service`` as people run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from infra import ports
from infra.endpoints import Endpoints
from tests.integration.query.real import RealWorld
from tests.unit.query.world import SECRET

ROOT = Path(__file__).parents[3]


def environment(world: RealWorld, services: Endpoints, tmp_path: Path, port: int) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        **services.environment(read_only=True),
        "HEADWATER_CONFIG": "",
        "HEADWATER_NAMESPACE": world.settings.namespace,
        "HEADWATER_KAFKA__PARTITIONS": str(world.settings.kafka.partitions),
        "HEADWATER_STATE_DIR": str(tmp_path / "state"),
        "HEADWATER_CACHE_DIR": str(world.settings.cache_dir),
        "HEADWATER_AUTH__JWT_SECRET": SECRET,
        "HEADWATER_QUERY__PORT": str(port),
    }


@contextmanager
def started(env: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "query.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "query_service"], cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for(client: httpx.Client, path: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 120
    while True:
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        try:
            if client.get(path).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)


@pytest.mark.requirement("I11", "B2", "C5")
def test_it_starts_answers_and_leaves_in_order(world: RealWorld, services: Endpoints, tmp_path: Path) -> None:
    world.principal("user:ann")
    world.document("refunds", "A refund reaches the customer's account within five working days.")
    world.applied(lambda topic, partition: 0)
    port = ports.choose({"query": 1}, {})["query"]
    log = tmp_path / "query.log"
    with (
        started(environment(world, services, tmp_path, port), tmp_path) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client,
    ):
        wait_for(client, "/healthz", process, log)
        wait_for(client, "/readyz", process, log)
        headers = {"Authorization": f"Bearer {world.token()}"}
        reply = client.post("/v1/search", json={"query": "refund walrus"}, headers=headers)
        assert reply.status_code == 200, reply.text
        assert [h["document_id"] for h in reply.json()["hits"]] == ["refunds"]
        assert client.post("/v1/search", json={"query": "refund"}).status_code == 401
        assert "Headwater" in client.get("/").text
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    written = log.read_text()
    assert reply.json()["query_id"] in written
    assert "walrus" not in written and "working days" not in written and SECRET not in written
    assert (tmp_path / "state" / "receipts.sqlite").exists()


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("HEADWATER_AUTH__JWT_SECRET", "", "auth"),
        ("HEADWATER_AUTH__JWT_SECRET", "short", "auth.jwt_secret"),
        ("HEADWATER_QUERY__PORT", "0", "query.port"),
        ("HEADWATER_QUERY__CANDIDATES", "many", "query.candidates"),
    ],
)
def test_settings_that_cannot_work_are_named(tmp_path: Path, variable: str, value: str, named: str) -> None:
    env = {"PATH": os.environ["PATH"], "HEADWATER_AUTH__JWT_SECRET": SECRET, variable: value}
    if not value:
        del env[variable]
    ended = subprocess.run(
        [sys.executable, "-m", "query_service"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"query service: {named}"), ended.stderr
    assert ended.stderr.count("\n") == 1 and "Traceback" not in ended.stderr
