"""The gateway over a log in memory."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from consumers.gateway import create_app
from consumers.gateway_service import Gateway, GatewayDeps
from consumers.gateway_wait import ReceiptWatch, StoreCheck
from consumers.owner_engine import OwnerLog
from pipeline.clock import ManualClock
from pipeline.observe import Metrics
from pipeline.settings import Settings
from pipeline.settings_sources import AnySource
from schemas.events import SourceRequest
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.fakes.bus import MemoryBroker, MemoryPublisher
from tests.fakes.store import FakeStore
from tests.unit.owner.support import MemoryBodies, MemoryLog, MemoryOwnerLog

SECRET = "a long and random string"
HOOK = "a secret between us and them"


class Door:
    """Sends signed requests."""

    def __init__(self, tmp_path: Path) -> None:
        self.settings = Settings(
            gateway={"secret": SECRET, "max_bytes": 20_000},
            bodies={"max_bytes": 5_000, "inline_limit": 1_000},
            sources=[
                {"name": "wiki", "tenant": "acme", "path": tmp_path},
                {"name": "code", "tenant": "acme", "type": "git", "url": "x", "webhook_secret": HOOK},
                {"name": "files", "tenant": "acme", "type": "s3", "bucket": "b", "webhook_secret": HOOK},
                {"name": "quiet", "tenant": "acme", "type": "git", "url": "y"},
            ],
        )
        self.broker = MemoryBroker()
        self.refs: list[DocumentRef] = []
        self.log, self.clock, self.bodies = MemoryLog(), ManualClock(), MemoryBodies()
        self.watch = ReceiptWatch()
        self.metrics = Metrics()
        self.opened: list[tuple[str, str]] = []
        self.applied: dict[int, int] | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Event()
        deps = GatewayDeps(
            settings=self.settings,
            clock=self.clock,
            metrics=self.metrics,
            open_log=self._open,
            bodies=self.bodies,
            receipts=self.watch,
            publisher=MemoryPublisher(self.broker),
            refs_of=self._named,
            applied=lambda: self.applied,
        )
        self.app = create_app(deps)
        self.gateway: Gateway = self.app.state.gateway
        self.client: TestClient

    def check(self, store: FakeStore) -> None:
        """From now on the gateway may ask this store."""
        store.ensure_base()
        self.gateway._deps = replace(self.gateway._deps, check=StoreCheck(store, self.settings.generation))

    def _open(self, tenant: str, source: str) -> OwnerLog:
        self.at_gate.set()
        self.gate.wait(10)
        self.opened.append((tenant, source))
        return MemoryOwnerLog(self.log, self.clock)

    def _named(self, source: AnySource, body: bytes) -> list[DocumentRef]:
        if body == b"bad":
            raise ValueError("not understood")
        return list(self.refs) if source.type == "s3" else []

    def sign(self, raw: bytes, secret: str = SECRET) -> str:
        return "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()

    def requests(self) -> list[SourceRequest]:
        """What owners were asked for."""
        return [SourceRequest.model_validate_json(r.value or b"") for r in self.broker.records(Topic.REQUESTS)]

    def post(self, path: str, body: Any, content_type: str, **headers: Any) -> Any:
        """A signed request of any media type; headers are spelt with _ for -."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        now = str(self.clock.now() // 1_000_000)
        sent: dict[str, Any] = {"X-Headwater-Signature": self.sign(raw), "X-Headwater-Timestamp": now}
        sent |= {"Content-Type": content_type} | {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, content=raw, headers={n: v for n, v in sent.items() if v is not None})

    def send(self, body: Any, query: str = "", **headers: Any) -> Any:
        """A signed request; headers given replace the right ones, None leaves one out."""
        self.clock.advance(1)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: dict[str, Any] = {
            "X-Headwater-Signature": self.sign(raw),
            "X-Headwater-Timestamp": str(self.clock.now() // 1_000_000),
        }
        sent |= {f"X-Headwater-{name.capitalize()}": value for name, value in headers.items()}
        kept = {name: value for name, value in sent.items() if value is not None}
        return self.client.post(f"/v1/changes{query}", content=raw, headers=kept)

    def ok(self, body: Any, query: str = "") -> dict[str, Any]:
        """The answer of a request that must succeed."""
        response = self.send(body, query)
        assert response.status_code == 200, response.text
        return dict(response.json())


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path)
    with TestClient(made.app, raise_server_exceptions=False) as client:
        made.client = client
        yield made


def upsert(id_: str = "a", text: str = "hello", **more: Any) -> dict[str, Any]:
    """An upsert that ann may read."""
    base = {"type": "upsert", "tenant": "acme", "id": id_, "title": "T", "text": text}
    return {**base, "access": {"allow": ["user:ann"]}, **more}
