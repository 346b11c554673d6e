"""What the servers are told: loopback only, keys on, nothing inherited by accident."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra import docker, kafka_server, weaviate_server
from infra.endpoints import Endpoints, external, local
from infra.state import Secrets, State
from infra.supervisor import TABLE, environment
from pipeline.settings import Settings, WeaviateSettings

PORTS = {
    "kafka": 20001,
    "kafka_controller": 20002,
    "weaviate": 20003,
    "weaviate_grpc": 20004,
    "weaviate_gossip": 20005,
    "weaviate_raft": 20007,
}


def _properties() -> dict[str, str]:
    text = kafka_server.properties(PORTS, Path("/data"))
    return dict(line.split("=", 1) for line in text.splitlines())


def test_kafka_listens_on_loopback_only() -> None:
    found = _properties()
    for name in ("listeners", "advertised.listeners"):
        assert found[name] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"


def test_topics_are_never_made_by_accident() -> None:
    assert _properties()["auto.create.topics.enable"] == "false"


def test_weaviate_gets_keys_and_no_anonymous_access() -> None:
    keys = Secrets()
    env = weaviate_server.environment(PORTS, Path("/data"), keys)
    assert env["AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED"] == "false"
    assert env["AUTHENTICATION_APIKEY_ALLOWED_KEYS"] == f"{keys.weaviate_admin},{keys.weaviate_read}"
    assert env["AUTHORIZATION_ADMINLIST_READONLY_USERS"] == "headwater-reader"
    assert env["CLUSTER_BIND_ADDR"] == env["CLUSTER_ADVERTISE_ADDR"] == "127.0.0.1"
    assert env["RAFT_INTERNAL_RPC_PORT"] == "20008"


def test_weaviate_inherits_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED", "true")
    monkeypatch.setenv("OPENAI_APIKEY", "secret")
    env = weaviate_server.environment(PORTS, Path("/data"), Secrets())
    assert env["AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED"] == "false"
    assert "OPENAI_APIKEY" not in env


def test_kafka_inherits_no_java_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx8g")
    assert "JAVA_TOOL_OPTIONS" not in kafka_server.environment()


def test_the_query_service_never_gets_the_key_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_WEAVIATE__API_KEY", "left over")
    keys = Secrets()
    endpoints = local(State(ports=PORTS), keys)
    reading = environment(Settings(), endpoints, keys, read_only=True)
    assert reading["HEADWATER_WEAVIATE__READ_API_KEY"] == keys.weaviate_read
    assert "HEADWATER_WEAVIATE__API_KEY" not in reading
    writing = environment(Settings(), endpoints, keys)
    assert writing["HEADWATER_WEAVIATE__API_KEY"] == keys.weaviate_admin
    assert {spec.name for spec in TABLE if spec.read_only} == {"query"}


def test_made_secrets_reach_the_processes_only_where_none_are_set() -> None:
    keys = Secrets()
    endpoints = local(State(ports=PORTS), keys)
    assert environment(Settings(), endpoints, keys)["HEADWATER_AUTH__JWT_SECRET"] == keys.jwt
    settings = Settings.model_validate({"auth": {"jwt_public_key": "PEM"}, "gateway": {"secret": "x" * 32}})
    env = environment(settings, endpoints, keys)
    assert "HEADWATER_AUTH__JWT_SECRET" not in env
    assert "HEADWATER_GATEWAY__SECRET" not in env


def test_addresses_in_the_settings_are_used_and_nothing_is_started_for_them() -> None:
    assert external(Settings()) == (None, None)
    settings = Settings.model_validate(
        {"kafka": {"bootstrap": "kafka:9092"}, "weaviate": {"url": "http://weaviate", "api_key": "k"}}
    )
    kafka, weaviate = external(settings)
    assert kafka is not None
    assert kafka.bootstrap == "kafka:9092"
    assert weaviate is not None
    assert (weaviate.weaviate_http_url, weaviate.api_key) == ("http://weaviate", "k")


def test_endpoints_survive_the_way_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints = local(State(ports=PORTS), Secrets())
    for name, value in endpoints.environment().items():
        monkeypatch.setenv(name, value)
    read = Settings()
    assert read.kafka.bootstrap == "127.0.0.1:20001"
    assert read.weaviate.grpc_port == 20004
    applied = endpoints.apply(Settings(namespace="other"))
    assert isinstance(applied.weaviate, WeaviateSettings)
    assert applied.weaviate.api_key == read.weaviate.api_key
    assert applied.namespace == "other"


def test_endpoints_without_keys_name_none() -> None:
    plain = Endpoints(bootstrap="b:1", weaviate_http_url="http://w", weaviate_grpc_host="w", grpc_port=1)
    assert not [name for name in plain.environment(read_only=True) if name.endswith("API_KEY")]


def test_the_compose_file_matches_the_launcher() -> None:
    """One set of versions and settings, whichever way the services run."""
    from infra import pins

    compose = yaml.safe_load(docker.COMPOSE_FILE.read_text(encoding="utf-8"))["services"]
    assert compose["kafka"]["image"].endswith(f":{pins.KAFKA_VERSION}")
    assert compose["weaviate"]["image"].endswith(f":{pins.WEAVIATE_VERSION}")
    told = {name: str(value) for name, value in compose["weaviate"]["environment"].items()}
    for name, value in weaviate_server.behaviour().items():
        if name not in ("GOMEMLIMIT", "CORS_ALLOW_ORIGIN"):
            assert told[name] == value, name
    for service in compose.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    kafka = {name: str(value) for name, value in compose["kafka"]["environment"].items()}
    own = _properties()
    machine = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}  # addresses and folders
    for name, value in kafka.items():
        key = name.removeprefix("KAFKA_").lower().replace("_", ".")
        if name.startswith("KAFKA_") and key in own and key not in machine:
            assert value == own[key], name


def test_the_compose_file_gets_all_its_variables(tmp_path: Path) -> None:
    text = docker.COMPOSE_FILE.read_text(encoding="utf-8")
    given = docker.environment(tmp_path, State(ports=PORTS), Secrets())
    for name in given:
        assert f"${{{name}" in text, name
    assert given["HEADWATER_KAFKA_PORT"] == "20001"
