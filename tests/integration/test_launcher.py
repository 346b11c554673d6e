"""The launcher on real Kafka and Weaviate: started, healthy, killed, started again, stopped without a trace.

One state directory of its own; the tests of this file build on each other only through ``up``, which repairs.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra import kafka_server, pins, ports, weaviate_server
from infra.endpoints import Endpoints
from infra.errors import InfraError
from infra.launcher import KAFKA, NAMES, WEAVIATE, Services
from pipeline.settings import Settings


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Services]:
    services = Services(tmp_path_factory.mktemp("launcher"), cache_dir=cache_dir, mode="native")
    yield services
    services.down()


@pytest.fixture
def running(launcher: Services) -> Endpoints:
    """Both services up, whatever the test before did to them."""
    return launcher.up()


def _states(launcher: Services) -> dict[str, str]:
    return {line.name: line.state for line in launcher.status()}


def _weaviate(where: Endpoints, *, reader: bool = False) -> httpx.Client:
    key = where.read_api_key if reader else where.api_key
    return httpx.Client(base_url=where.weaviate_http_url, headers={"Authorization": f"Bearer {key}"}, timeout=10)


def _listening(pid: int) -> set[tuple[str, int]]:
    found = psutil.Process(pid).net_connections(kind="tcp")
    return {(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN}


def test_up_means_answering(launcher: Services, running: Endpoints) -> None:
    assert _states(launcher) == {KAFKA: "up", WEAVIATE: "up"}
    host, port = running.bootstrap.split(":")
    assert kafka_server.answers(host, int(port))
    with _weaviate(running) as client:
        assert client.get("/v1/meta").json()["version"] == pins.WEAVIATE_VERSION


def test_up_again_changes_nothing(launcher: Services, running: Endpoints) -> None:
    before = {name: launcher.pid(name) for name in NAMES}
    assert launcher.up() == running
    assert {name: launcher.pid(name) for name in NAMES} == before


def test_only_loopback_is_bound_where_the_server_allows(launcher: Services, running: Endpoints) -> None:
    loopback = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    for name in NAMES:
        pid = launcher.pid(name)
        assert pid is not None
        others = {(ip, port) for ip, port in _listening(pid) if ip not in loopback}
        # Two ports of Weaviate have no setting for their address: gRPC and the one between nodes. Both ask for a key.
        between = launcher.ports()["weaviate_gossip"] + 1
        assert {port for _, port in others} <= ({running.grpc_port, between} if name == WEAVIATE else set())
        if name == WEAVIATE:
            assert httpx.get(f"http://127.0.0.1:{between}/nodes/status").status_code == 401


def test_nothing_is_answered_without_a_key_and_the_reader_cannot_write(running: Endpoints) -> None:
    schema = {"class": "Keys", "vectorizer": "none"}
    assert httpx.get(f"{running.weaviate_http_url}/v1/schema").status_code == 401
    with _weaviate(running, reader=True) as reader:
        assert reader.get("/v1/schema").status_code == 200
        assert reader.post("/v1/schema", json=schema).status_code == 403
    with _weaviate(running) as writer:
        assert writer.post("/v1/schema", json=schema).status_code == 200
        assert writer.post("/v1/objects", json={"class": "Keys", "properties": {}}).status_code == 200
        with _weaviate(running, reader=True) as reader:
            assert reader.post("/v1/objects", json={"class": "Keys", "properties": {}}).status_code == 403
            assert reader.delete("/v1/schema/Keys").status_code == 403
        assert writer.delete("/v1/schema/Keys").status_code == 200


def test_keys_stay_with_their_owner(launcher: Services, running: Endpoints) -> None:
    secrets = launcher.state_dir / "secrets.json"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    for name in NAMES:
        pid = launcher.pid(name)
        assert pid is not None
        shown = " ".join(psutil.Process(pid).cmdline())
        assert running.api_key is not None
        assert running.api_key not in shown


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("name", NAMES)
def test_a_killed_service_comes_back_at_the_same_address_with_its_data(
    launcher: Services, running: Endpoints, name: str
) -> None:
    with _weaviate(running) as client:
        client.post("/v1/schema", json={"class": "Kept", "vectorizer": "none"})
    before = launcher.pid(name)
    launcher.kill(name)
    assert _states(launcher)[name] == "down"
    assert not launcher.healthy(name)
    assert launcher.up() == running
    assert launcher.pid(name) not in (None, before)
    with _weaviate(running) as client:
        assert client.get("/v1/schema/Kept").status_code == 200


@pytest.mark.requirement("I8")
def test_a_suspended_service_is_seen_and_goes_on(launcher: Services, running: Endpoints) -> None:
    launcher.kill(KAFKA, signal.SIGSTOP)
    try:
        assert _states(launcher)[KAFKA] == "starting"
    finally:
        launcher.kill(KAFKA, signal.SIGCONT)
    launcher.up()
    assert launcher.healthy(KAFKA)


def test_a_taken_port_is_replaced(launcher: Services, running: Endpoints) -> None:
    launcher.down()
    taken = int(running.bootstrap.split(":")[1])
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind((ports.LOOPBACK, taken))
        squatter.listen()
        moved = launcher.up()
    assert moved.bootstrap != running.bootstrap
    assert moved.weaviate_http_url == running.weaviate_http_url
    assert launcher.healthy(KAFKA)


def test_weaviate_keeps_its_data_when_all_its_ports_move(launcher: Services, running: Endpoints) -> None:
    with _weaviate(running) as client:
        client.post("/v1/schema", json={"class": "Moved", "vectorizer": "none"})
    launcher.down()
    state_file = launcher.state_dir / "services.json"
    state = json.loads(state_file.read_text())
    state["ports"] = {}
    state_file.write_text(json.dumps(state))
    moved = launcher.up()
    assert moved.weaviate_http_url != running.weaviate_http_url
    with _weaviate(moved) as client:
        assert client.get("/v1/schema/Moved").status_code == 200
        assert client.post("/v1/schema", json={"class": "Afterwards", "vectorizer": "none"}).status_code == 200


def test_a_stale_pid_file_hurts_nobody(launcher: Services, running: Endpoints) -> None:
    """After a reboot the pid may belong to anybody."""
    launcher.down()
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        pid_file = launcher.state_dir / "run" / "weaviate.pid"
        record = {"pid": bystander.pid, "started": time.time(), "argv": ["weaviate-server", "--host", "127.0.0.1"]}
        pid_file.write_text(json.dumps(record))
        assert _states(launcher)[WEAVIATE] == "down"
        launcher.up()
        launcher.down()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_half_prepared_kafka_is_prepared_again(launcher: Services, tmp_path: Path, cache_dir: Path) -> None:
    half = tmp_path / "data" / ".kafka.partial"
    half.mkdir(parents=True)
    (half / "bootstrap.checkpoint").write_bytes(b"half")
    own = Services(tmp_path, cache_dir=cache_dir, mode="native", settings=_elsewhere(launcher.up()))
    try:
        own.up()
        assert own.healthy(KAFKA)
        assert not half.exists()
    finally:
        own.down()


def _elsewhere(running: Endpoints) -> Settings:
    """Settings that name a Weaviate that runs already."""
    return Settings.model_validate(
        {"weaviate": {"url": running.weaviate_http_url, "grpc_port": running.grpc_port, "api_key": running.api_key}}
    )


def test_services_named_by_the_settings_are_used_and_never_stopped(
    launcher: Services, running: Endpoints, tmp_path: Path, cache_dir: Path
) -> None:
    settings = _elsewhere(running)
    settings = settings.model_copy(
        update={"kafka": settings.kafka.model_validate({"bootstrap": running.bootstrap})},
    )
    pointed = Services(tmp_path, cache_dir=cache_dir, settings=settings)
    assert pointed.up().bootstrap == running.bootstrap
    assert _states(pointed) == {KAFKA: "external", WEAVIATE: "external"}
    pointed.down()
    assert _states(launcher) == {KAFKA: "up", WEAVIATE: "up"}
    with pytest.raises(InfraError, match="does not run as a child process"):
        pointed.kill(KAFKA)


def test_an_address_where_nobody_answers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.launcher.EXTERNAL_SECONDS", 0.5)
    settings = Settings.model_validate(
        {"kafka": {"bootstrap": "127.0.0.1:9"}, "weaviate": {"url": "http://127.0.0.1:9"}}
    )
    with pytest.raises(InfraError, match=r"127\.0\.0\.1:9 did not answer") as caught:
        Services(tmp_path, settings=settings).up()
    assert "HEADWATER_KAFKA__BOOTSTRAP" in caught.value.remedy


def test_a_service_that_cannot_start_shows_its_log(tmp_path: Path, launcher: Services, cache_dir: Path) -> None:
    own = Services(tmp_path, cache_dir=cache_dir, mode="native", settings=_elsewhere(launcher.up()))
    data = tmp_path / "data" / "kafka"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("cluster.id=another\nversion=1\nnode.id=7\n")
    with pytest.raises(InfraError, match="kafka ended while starting") as caught:
        own.up()
    assert "node" in caught.value.problem.lower()
    assert own.pid(KAFKA) is None
    own.down()


@pytest.mark.requirement("I11")
def test_weaviate_is_restored_from_a_copy(launcher: Services, running: Endpoints, tmp_path: Path) -> None:
    copy = tmp_path / "yesterday"
    with _weaviate(running) as client:
        client.post("/v1/schema", json={"class": "Old", "vectorizer": "none"})
    launcher.snapshot(copy)
    with _weaviate(running) as client:
        assert client.post("/v1/schema", json={"class": "New", "vectorizer": "none"}).status_code == 200
    launcher.restore(copy)
    with _weaviate(running) as client:
        assert client.get("/v1/schema/Old").status_code == 200
        assert client.get("/v1/schema/New").status_code == 404
    with pytest.raises(InfraError, match="There is no copy"):
        launcher.restore(tmp_path / "never")


def test_both_stop_in_order_and_leave_no_process(launcher: Services, running: Endpoints) -> None:
    pids = [launcher.pid(name) for name in NAMES]
    launcher.down()
    assert _states(launcher) == {KAFKA: "down", WEAVIATE: "down"}
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    left = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(str(launcher.state_dir) in word for word in process.info["cmdline"] or [])
    ]
    assert left == []
    assert list((launcher.state_dir / "run").glob("*.pid")) == []
    launcher.down()  # safe to repeat


def test_a_damaged_state_file_does_not_stop_the_stopping(launcher: Services, running: Endpoints) -> None:
    state_file = launcher.state_dir / "services.json"
    whole = state_file.read_text()
    state_file.write_text("{")
    launcher.down()
    assert launcher.pid(KAFKA) is launcher.pid(WEAVIATE) is None
    state_file.write_text(whole)


def test_two_launchers_at_once_start_each_service_once(launcher: Services, cache_dir: Path) -> None:
    launcher.down()
    code = (
        "import sys; from pathlib import Path; from infra.launcher import Services; "
        "print(Services(Path(sys.argv[1]), cache_dir=Path(sys.argv[2]), mode='native').up().bootstrap)"
    )
    argv = [sys.executable, "-c", code, str(launcher.state_dir), str(cache_dir)]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1] == f"{launcher.endpoints().bootstrap}\n"
    assert _states(launcher) == {KAFKA: "up", WEAVIATE: "up"}


def test_health_is_more_than_an_open_port() -> None:
    with socket.socket() as mute:
        mute.bind((ports.LOOPBACK, 0))
        mute.listen()
        port = mute.getsockname()[1]
        assert not kafka_server.answers(ports.LOOPBACK, port, timeout=0.2)
        url = f"http://{ports.LOOPBACK}:{port}"
        assert weaviate_server.answers(url, None, ports.LOOPBACK, port, timeout=0.2) is None
