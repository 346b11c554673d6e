"""The index contract runs on the in-memory store and on Weaviate; tests keep apart by tenant."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import cast
from uuid import uuid4

import pytest

from infra.endpoints import Endpoints
from pipeline.index.connection import SyncConnection
from pipeline.index.objects import record_object
from pipeline.index.reader import WeaviateReader
from pipeline.index.schema import Collections
from pipeline.index.store import WeaviateStore
from pipeline.settings import Settings
from tests.contract.index.helpers import GENERATION, Index, generation
from tests.fakes.store import FakeStore


@pytest.fixture(scope="session")
def index_settings(services: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of the session's services in a namespace of their own; its collections are dropped at the end."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
            patch.delenv(name)
        patch.setenv("HEADWATER_CONFIG", str(tmp_path_factory.mktemp("settings") / "absent.toml"))
        settings = services.apply(Settings(namespace=f"c{uuid4().hex[:12]}"))
    yield settings
    connection = SyncConnection(settings.weaviate)
    prefix = Collections(settings.namespace).access.removesuffix("Access")
    for name in connection.client().collections.list_all():
        if name.startswith(prefix):
            connection.client().collections.delete(name)
    connection.close()


def _fake() -> Iterator[Index]:
    store = FakeStore()
    with asyncio.Runner() as runner:
        yield Index(store, store.reader(), runner, store.put_raw)


def _real(settings: Settings) -> Iterator[Index]:
    store, reader = WeaviateStore(settings), WeaviateReader(settings)
    names = Collections(settings.namespace)

    def put_raw(kind: str, tenant: str, uid: str, record: str) -> None:
        collection = names.records(kind[8:]) if kind.startswith("records:") else cast(str, getattr(names, kind))
        store._upsert(collection, tenant, [record_object(uid, "raw", record, 0)], None)

    with asyncio.Runner() as runner:
        yield Index(store, reader, runner, put_raw)
        runner.run(reader.close())
    store.close()


@pytest.fixture(scope="session", params=["fake", "weaviate"])
def index(request: pytest.FixtureRequest) -> Iterator[Index]:
    """Each implementation, with the base collections and one generation."""
    source = _fake() if request.param == "fake" else _real(request.getfixturevalue("index_settings"))
    for found in source:
        found.store.ensure_base()
        found.store.ensure_generation(generation())
        found.store.write_generation(generation())
        yield found
        found.store.drop_generation(GENERATION)


@pytest.fixture
def tenant() -> str:
    """A tenant of this test's own."""
    return f"t-{uuid4().hex[:12]}"
