"""The whole product for one test module: its own namespace, ports, folder source and processes on shared services."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import tomli_w
import yaml

from infra import ports
from infra.commands.tokens import issue
from infra.endpoints import Endpoints
from infra.supervisor import TABLE, Supervisor
from pipeline.settings import Settings, load

GATEWAY_SECRET = "gateway-secret-of-this-test"
JWT_SECRET = "jwt-secret-of-this-test-which-is-long-enough"


def until(holds: Callable[[], Any], seconds: float = 20.0, what: str = "") -> Any:
    """Poll until ``holds`` gives something true, and give it; fails naming ``what``."""
    end = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what or holds}"
        time.sleep(0.02)


class Product:
    """Starts, stops and asks. ``folder`` is the watched tree; ``extra`` overrides settings by section."""

    def __init__(
        self, endpoints: Endpoints, namespace: str, base: Path, cache: Path, extra: dict[str, Any] | None = None
    ) -> None:
        self.endpoints = endpoints
        self.base = base
        self.folder = base / "wiki"
        self.folder.mkdir(parents=True, exist_ok=True)
        chosen = ports.choose({"query": 1, "gateway": 1}, {}, [])
        document: dict[str, Any] = {
            "namespace": namespace,
            "state_dir": str(base / "state"),
            "cache_dir": str(cache),
            "kafka": {"partitions": 3},
            "bodies": {"store": f"file://{base / 'bodies'}"},
            "auth": {"jwt_secret": JWT_SECRET},
            "gateway": {"port": chosen["gateway"], "secret": GATEWAY_SECRET},
            "query": {"port": chosen["query"], "receipts_path": str(base / "receipts.sqlite")},
            "canary": {"enabled": False},
            "dagster": {"enabled": False},
            "sources": [{"name": "wiki", "tenant": "acme", "type": "folder", "path": str(self.folder), "walk_s": 5.0}],
        }
        for section, values in (extra or {}).items():
            if isinstance(values, dict):
                document[section] = {**document.get(section, {}), **values}
            else:
                document[section] = values
        self.config = base / "headwater.toml"
        self.config.write_text(tomli_w.dumps(document), encoding="utf-8")
        for name in [n for n in os.environ if n.startswith("HEADWATER_")]:
            del os.environ[name]
        os.environ["HEADWATER_CONFIG"] = str(self.config)
        self.settings: Settings = endpoints.apply(load())
        self.supervisor = Supervisor(self.settings, TABLE)
        self._client = httpx.Client(timeout=30)

    # ------------------------------------------------------------------ processes

    def up(self) -> None:
        """Start every process and wait until each is healthy and the query service is ready."""
        self.supervisor.up(self.endpoints)
        self.ready()

    def start(self, name: str) -> None:
        """Start one process."""
        self.supervisor.start(name, self.endpoints)

    def signal(self, name: str, number: int) -> int:
        """Send a signal to one process; its pid."""
        process = self.supervisor.managed(name).process()
        assert process is not None, f"{name} does not run"
        os.kill(process.pid, number)
        return int(process.pid)

    def kill(self, name: str) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(name, 9)
        until(lambda: not self.supervisor.managed(name).alive(), 10, f"{name} dies")

    def down(self) -> None:
        """Stop everything."""
        self._client.close()
        self.supervisor.down()

    def ready(self, seconds: float = 60) -> None:
        """Wait for /readyz."""
        until(self._ready, seconds, "the query service is ready")

    def _ready(self) -> bool:
        try:
            return self._client.get(f"{self.query}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    # ------------------------------------------------------------------ addresses and people

    @property
    def query(self) -> str:
        """Base of the query API."""
        return f"http://127.0.0.1:{self.settings.query.port}"

    @property
    def gateway(self) -> str:
        """Base of the change gateway."""
        return f"http://127.0.0.1:{self.settings.gateway.port}"

    def token(self, user: str, tenant: str = "acme", **claims: Any) -> str:
        """A signed token."""
        return issue(self.settings, user, tenant, 3600, **claims)[0]

    # ------------------------------------------------------------------ asking

    def get(self, path: str, user: str, tenant: str = "acme") -> httpx.Response:
        """GET as a person."""
        return self._client.get(f"{self.query}{path}", headers=self._bearer(user, tenant))

    def ask(self, user: str, query: str, tenant: str = "acme", **body: Any) -> httpx.Response:
        """POST /v1/search as a person."""
        # Tests ask which documents are met; most hold the same few words. A reranker would order by what fits its time.
        payload = {"query": query, "k": 10, "duplicates": "keep", "rerank": "off", "cache": False, **body}
        return self._client.post(f"{self.query}/v1/search", json=payload, headers=self._bearer(user, tenant))

    def _bearer(self, user: str, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(user, tenant)}"}

    def hits(self, user: str, query: str, tenant: str = "acme", **body: Any) -> list[dict[str, Any]]:
        """Hits of a search that succeeds."""
        answer = self.ask(user, query, tenant, **body)
        assert answer.status_code == 200, answer.text
        found = answer.json()["hits"]
        assert isinstance(found, list)
        return found

    def found(self, user: str, query: str, tenant: str = "acme", **body: Any) -> set[str]:
        """Document ids of the hits."""
        return {hit["document_id"] for hit in self.hits(user, query, tenant, **body)}

    # ------------------------------------------------------------------ changing

    def write(self, path: str, text: str) -> None:
        """Write a page of the folder source."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def access(self, folder: str, *allow: str, deny: tuple[str, ...] = ()) -> None:
        """Write a folder's access file."""
        self.write(
            f"{folder}/.access.yaml" if folder else ".access.yaml",
            yaml.safe_dump({"allow": list(allow), "deny": list(deny)}),
        )

    def groups(self, users: list[str], **groups: list[str]) -> None:
        """Write groups.yaml."""
        self.write("groups.yaml", yaml.safe_dump({"users": users, "groups": groups}))

    def change(self, *changes: dict[str, Any], wait: str | None = None, secret: str = GATEWAY_SECRET) -> httpx.Response:
        """POST /v1/changes, signed."""
        body = json.dumps(changes[0] if len(changes) == 1 else list(changes)).encode()
        headers = {
            "Content-Type": "application/json",
            "X-Headwater-Timestamp": str(int(time.time())),
            "X-Headwater-Signature": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
        }
        params = {"wait": wait} if wait else {}
        return self._client.post(f"{self.gateway}/v1/changes", content=body, headers=headers, params=params)
