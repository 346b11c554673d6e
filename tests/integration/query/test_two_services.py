"""Two query services beside each other on one state folder, and one that is killed."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from infra import ports
from infra.endpoints import Endpoints
from tests.integration.query.real import RealWorld
from tests.integration.query.test_process import environment, started, wait_for


@pytest.mark.requirement("C5", "B2")
def test_two_services_share_a_state_folder_and_a_killed_one_starts_again(
    world: RealWorld, services: Endpoints, tmp_path: Path
) -> None:
    world.principal("user:ann")
    world.document("all", "the plan for everyone")
    world.applied(lambda topic, partition: 0)
    logs = [tmp_path / "one", tmp_path / "two"]
    for folder in logs:
        folder.mkdir()
    free = [ports.choose({name: 1}, {})[name] for name in ("query", "gateway")]
    envs = [environment(world, services, tmp_path, port) for port in free]
    clients = [httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) for port in free]

    headers = {"Authorization": f"Bearer {world.token()}"}

    def asked(client: httpx.Client) -> str:
        reply = client.post("/v1/search", json={"query": "plan"}, headers=headers)
        assert reply.status_code == 200 and reply.json()["hits"]
        return str(reply.json()["query_id"])

    def known(query_id: str) -> None:
        """Each service takes feedback on it, once its view has read so far."""
        for client in clients:
            end, status = time.monotonic() + 20, 0
            while status != 200:
                assert time.monotonic() < end, (query_id, status)
                reply = client.post("/v1/feedback", json={"query_id": query_id, "verdict": "helpful"}, headers=headers)
                status = reply.status_code
                time.sleep(0.0 if status == 200 else 0.1)

    with started(envs[0], logs[0]) as first, started(envs[1], logs[1]) as second:
        for client, process, folder in zip(clients, (first, second), logs, strict=True):
            wait_for(client, "/readyz", process, folder / "query.log")
        ids = [asked(client) for client in clients]
        for query_id in ids:
            known(query_id)
        first.kill()
        first.wait()
        ids.append(asked(clients[1]))
        with started(envs[0], logs[0]) as again:
            wait_for(clients[0], "/readyz", again, logs[0] / "query.log")
            for query_id in ids:
                known(query_id)
    for client in clients:
        client.close()
    for folder in logs:
        assert '"level": "error"' not in (folder / "query.log").read_text()
