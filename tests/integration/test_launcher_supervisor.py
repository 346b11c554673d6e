"""Supervising processes: small real ones that serve ``/healthz`` as Headwater's do."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra import ports, supervisor
from infra.endpoints import Endpoints
from infra.errors import InfraError, StartError
from infra.supervisor import Spec, Supervisor
from pipeline.settings import Settings
from pipeline.settings_sources import FolderSettings

SERVER = """
import http.server, json, os, sys, time
port = int(sys.argv[2]) if len(sys.argv) > 2 else int(os.environ["HEADWATER_HEALTH_PORT"])
born = time.time()
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if time.time() - born > 0.5 else 503)
        self.end_headers()
        shown = {k: v for k, v in os.environ.items() if k.startswith("HEADWATER_")}
        self.wfile.write(json.dumps({"argv": sys.argv[1:], "env": shown}).encode())
    def log_message(self, *a): pass
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", port), H).serve_forever()
"""
ENDPOINTS = Endpoints(
    bootstrap="127.0.0.1:1",
    weaviate_http_url="http://127.0.0.1:2",
    weaviate_grpc_host="127.0.0.1",
    grpc_port=3,
    api_key="writes",
    read_api_key="reads",
)


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    query = {"port": ports.free_port()}
    return Settings.model_validate({"state_dir": tmp_path / "state", "query": query})


@pytest.fixture
def supervised(own_settings: Settings) -> Iterator[Supervisor]:
    query = str(own_settings.query.port)
    made = Supervisor(
        own_settings,
        (
            Spec("lane", ("-c", SERVER, "lane")),
            Spec("query", ("-c", SERVER, "query", query), True, lambda s: s.query.port, "HEADWATER_QUERY__PORT"),
            Spec("absent", ("-c", "raise SystemExit(9)"), wanted=lambda s: bool(s.sources)),
        ),
    )
    yield made
    made.down()


def _page(made: Supervisor, name: str, settings: Settings) -> dict[str, dict[str, str]]:
    state = json.loads((made.state_dir / "services.json").read_text())
    port = settings.query.port if name == "query" else state["ports"][f"health_{name}"]
    return dict(httpx.get(f"http://127.0.0.1:{port}/healthz").json())


def test_processes_start_become_healthy_and_know_where_things_are(
    supervised: Supervisor, own_settings: Settings
) -> None:
    supervised.up(ENDPOINTS)
    assert {line.name: line.state for line in supervised.status()} == {"lane": "up", "query": "up"}
    lane, query = (_page(supervised, name, own_settings)["env"] for name in ("lane", "query"))
    assert lane["HEADWATER_KAFKA__BOOTSTRAP"] == "127.0.0.1:1"
    assert lane["HEADWATER_WEAVIATE__API_KEY"] == "writes"
    assert query["HEADWATER_WEAVIATE__READ_API_KEY"] == "reads"
    assert "HEADWATER_WEAVIATE__API_KEY" not in query
    assert lane["HEADWATER_AUTH__JWT_SECRET"] == query["HEADWATER_AUTH__JWT_SECRET"]
    assert Path(lane["HEADWATER_STATE_DIR"]).is_absolute()


def test_up_again_starts_only_what_died(supervised: Supervisor) -> None:
    supervised.up(ENDPOINTS)
    before = {line.name: line.pid for line in supervised.status()}
    supervised.managed("lane").kill()
    assert {line.name: line.state for line in supervised.status()}["lane"] == "down"
    supervised.up(ENDPOINTS)
    after = {line.name: line.pid for line in supervised.status()}
    assert after["query"] == before["query"]
    assert after["lane"] not in (None, before["lane"])


def test_up_again_starts_anew_what_follows_sources_where_those_changed(own_settings: Settings, tmp_path: Path) -> None:
    table = (Spec("owner", ("-c", SERVER, "owner"), sources=True), Spec("lane", ("-c", SERVER, "lane")))
    source = FolderSettings(name="docs", path=tmp_path)
    more = own_settings.model_copy(update={"sources": (source,)})
    first, second = Supervisor(own_settings, table), Supervisor(more, table)
    try:
        first.up(ENDPOINTS)
        before = {line.name: line.pid for line in first.status()}
        first.up(ENDPOINTS)
        assert {line.name: line.pid for line in first.status()} == before
        second.up(ENDPOINTS)
        after = {line.name: line.pid for line in second.status()}
        assert after["owner"] not in (None, before["owner"]) and after["lane"] == before["lane"]
    finally:
        second.down()


def test_a_suspended_process_is_not_called_healthy(supervised: Supervisor) -> None:
    supervised.up(ENDPOINTS)
    supervised.managed("lane").send(signal.SIGSTOP)
    assert {line.name: line.state for line in supervised.status()}["lane"] == "starting"


def test_down_leaves_no_process(supervised: Supervisor) -> None:
    supervised.up(ENDPOINTS)
    pids = [line.pid for line in supervised.status()]
    supervised.down()
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    assert {line.state for line in supervised.status()} == {"down"}


def test_a_taken_port_names_the_setting(supervised: Supervisor, own_settings: Settings) -> None:
    with socket.socket() as squatter:
        squatter.bind((ports.LOOPBACK, own_settings.query.port))
        squatter.listen()
        with pytest.raises(StartError, match=f"port {own_settings.query.port} is taken") as caught:
            supervised.up(ENDPOINTS)
    assert "HEADWATER_QUERY__PORT" in caught.value.remedy


def test_a_process_that_ends_while_starting_shows_its_log(own_settings: Settings) -> None:
    made = Supervisor(own_settings, (Spec("broken", ("-c", "raise SystemExit('no such tenant')")),))
    begin = time.monotonic()
    with pytest.raises(StartError, match="no such tenant"):
        made.up(ENDPOINTS)
    assert time.monotonic() - begin < 20
    made.down()


def test_a_process_that_never_becomes_healthy_is_given_up(
    own_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "READY_SECONDS", 1.0)
    made = Supervisor(own_settings, (Spec("mute", ("-c", "import time; time.sleep(60)")),))
    with pytest.raises(StartError, match="mute was not healthy within 1 s"):
        made.up(ENDPOINTS)
    made.down()
    assert made.status()[0].state == "down"


def test_what_the_settings_no_longer_want_is_still_stopped(own_settings: Settings) -> None:
    wanted = [True]
    table = (Spec("canary", ("-c", SERVER, "canary"), wanted=lambda s: wanted[0]),)
    Supervisor(own_settings, table).up(ENDPOINTS)
    pid = Supervisor(own_settings, table).managed("canary").process()
    assert pid is not None
    wanted[0] = False
    Supervisor(own_settings, table).down()
    assert not psutil.pid_exists(pid.pid)


def test_an_unknown_name_lists_the_known_ones(supervised: Supervisor) -> None:
    with pytest.raises(InfraError, match="nobody") as caught:
        supervised.managed("nobody")
    assert "lane" in caught.value.remedy
