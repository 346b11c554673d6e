"""A Weaviate of these tests' own, to be killed and stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from infra import ports, weaviate_server
from infra.obtain.weaviate import binary
from infra.process import Managed
from infra.state import Secrets
from pipeline.index.store import WeaviateStore
from pipeline.settings import Settings, WeaviateSettings
from tests.contract.index.helpers import generation

TIMEOUT_S = 2.0


@dataclass
class Server:
    """A node under a temporary directory that keeps its ports over restarts."""

    process: Managed
    argv: list[str]
    env: dict[str, str]
    weaviate: WeaviateSettings

    def up(self) -> None:
        """Start it and wait until it is ready."""
        self.process.start(self.argv, self.env)
        key = self.weaviate.api_key
        end = time.monotonic() + 60
        while not weaviate_server.answers(
            self.weaviate.url, key.get_secret_value() if key else None, "127.0.0.1", self.weaviate.grpc_port
        ):
            assert time.monotonic() < end, self.process.log_tail()
            time.sleep(0.05)

    def settings(self, namespace: str | None = None, **weaviate: object) -> Settings:
        """Settings that point at it."""
        where = WeaviateSettings.model_validate(self.weaviate.model_dump() | weaviate)
        return Settings(namespace=namespace or f"k{uuid4().hex[:10]}", weaviate=where)


@pytest.fixture(scope="module")
def own_server(services: object, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server; ``services`` has seen to it that the binary is there."""
    state = tmp_path_factory.mktemp("weaviate")
    keys = Secrets()
    chosen = ports.choose(weaviate_server.PORTS, {})
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
            patch.delenv(name)
        patch.setenv("HEADWATER_CONFIG", str(state / "absent.toml"))
        server = Server(
            Managed("weaviate", state),
            weaviate_server.argv(binary(cache_dir), chosen),
            weaviate_server.environment(chosen, state / "data", keys),
            WeaviateSettings.model_validate(
                {
                    "url": f"http://127.0.0.1:{chosen['weaviate']}",
                    "grpc_port": chosen["weaviate_grpc"],
                    "api_key": keys.weaviate_admin,
                    "read_api_key": keys.weaviate_read,
                    "timeout_s": TIMEOUT_S,
                }
            ),
        )
        try:
            server.up()
            yield server
        finally:
            server.process.stop()


@pytest.fixture
def server(own_server: Server) -> Server:
    """The server, up."""
    if not own_server.process.alive():
        own_server.up()
    return own_server


@pytest.fixture
def store(server: Server) -> Iterator[WeaviateStore]:
    """A store in a namespace of its own, created."""
    made = WeaviateStore(server.settings())
    made.ensure_base()
    made.ensure_generation(generation())
    made.write_generation(generation())
    yield made
    made.close()
