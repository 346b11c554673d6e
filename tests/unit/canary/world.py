"""A gateway and a query service in memory, over HTTP as the canary speaks it, on a clock that moves by hand."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from pipeline.clock import ManualClock
from pipeline.settings import Settings
from query_service.scope import TokenVerifier
from schemas.api_changes import (
    CHANGES,
    AccessChange,
    AccessInput,
    ChangesReply,
    DeleteChange,
    MembershipChange,
    UpsertChange,
)

GATEWAY_SECRET = "g" * 48
JWT_SECRET = "j" * 48
Timed = tuple[float, Callable[[], None]]


def make_settings() -> Settings:
    """Settings of the canary in this world."""
    return Settings.model_validate(
        {
            "auth": {"jwt_secret": JWT_SECRET},
            "gateway": {"secret": GATEWAY_SECRET},
            "kafka": {"partitions": 3},
            "canary": {"tenant": "birds", "every_s": 60.0},
        }
    )


@dataclass
class Document:
    """What the index holds of a document."""

    text: str
    allow: tuple[str, ...]


@dataclass
class World:
    """Applies each change ``lag`` seconds after it was accepted; ``lost`` names types of change that never apply."""

    settings: Settings = field(default_factory=make_settings)
    clock: ManualClock = field(default_factory=ManualClock)
    lag: float = 0.1
    lost: set[str] = field(default_factory=set)
    status: dict[str, int] = field(default_factory=dict)  # path prefix -> status to answer with
    documents: dict[str, Document] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    accepted: list[Any] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    stop_after: float | None = None  # seconds on the clock
    broken: bool = False
    _due: list[Timed] = field(default_factory=list)

    def wait(self, seconds: float) -> bool:
        """The canary's sleep: moves the clock."""
        self.waits.append(seconds)
        self.clock.advance(seconds)
        return self.stop_after is not None and self.clock.elapsed() >= self.stop_after

    def transport(self) -> httpx.MockTransport:
        """Both services."""
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.broken:
            raise httpx.ConnectError("refused", request=request)
        for prefix, status in self.status.items():
            if request.url.path.startswith(prefix):
                return httpx.Response(status, json={"detail": "as the test says"})
        self._apply_due()
        if request.url.path == "/v1/changes":
            return self._changes(request)
        return self._query(request)

    # ------------------------------------------------------------ gateway

    def _changes(self, request: httpx.Request) -> httpx.Response:
        wanted = "sha256=" + hmac.new(GATEWAY_SECRET.encode(), request.content, hashlib.sha256).hexdigest()
        if request.headers["X-Headwater-Signature"] != wanted or not request.headers["X-Headwater-Timestamp"].isdigit():
            return httpx.Response(401, json={"detail": "the signature does not fit"})
        for change in CHANGES.validate_json(request.content):
            self.accepted.append(change)
            if change.type not in self.lost:
                self._due.append((self.clock.elapsed() + self.lag, self._effect(change)))
        return httpx.Response(200, content=ChangesReply(token="t", results=()).model_dump_json())

    def _effect(self, change: Any) -> Callable[[], None]:
        def apply() -> None:
            if isinstance(change, MembershipChange):
                self.parents[change.principal] = () if change.removed else change.parents
                return
            ref = change.ref(self.settings.gateway.source)
            if isinstance(change, UpsertChange):
                assert change.access is not None
                self.documents[ref.uid] = Document(change.text or "", _readers(change.access))
            elif isinstance(change, AccessChange) and ref.uid in self.documents:
                self.documents[ref.uid].allow = _readers(change.access)
            elif isinstance(change, DeleteChange):
                self.documents.pop(ref.uid, None)

        return apply

    def _apply_due(self) -> None:
        now = self.clock.elapsed()
        for _, effect in [due for due in self._due if due[0] <= now]:
            effect()
        self._due = [due for due in self._due if due[0] > now]

    # ------------------------------------------------------------ query service

    def _query(self, request: httpx.Request) -> httpx.Response:
        scope = TokenVerifier(self.settings.auth).verify(request.headers["Authorization"].removeprefix("Bearer "))
        assert scope.tenant == "birds"
        mine = {scope.user, *self.parents.get(scope.user, ())}
        readable = {uid: d for uid, d in self.documents.items() if mine & set(d.allow)}
        if request.url.path == "/v1/search":
            word = json.loads(request.content)["query"]
            hits = [_hit(uid, d.text) for uid, d in readable.items() if word in d.text]
            return httpx.Response(200, json=_response(hits))
        uid = request.url.path.rpartition("/")[2]
        return httpx.Response(200, json={}) if uid in readable else httpx.Response(404, json={"detail": "nothing"})


def _readers(access: AccessInput) -> tuple[str, ...]:
    (clause,) = access.rule().clauses
    return tuple(clause.names())


def _hit(uid: str, text: str) -> dict[str, Any]:
    return {
        "document_uid": uid, "document_id": "d", "source": "gateway", "kind": "page", "tenant": "birds",
        "title": "Canary", "url": None, "version": 1, "content_type": "text/markdown", "language": None,
        "effective_from": None, "effective_until": None, "updated_at": None, "tier": "hot",
        "access": {"clauses": [["everyone"]], "has_deny": False, "version": 1}, "age_s": 0.0,
        "section_id": "s", "chunk_id": "c", "chunk_index": 0, "chunk_total": 1, "heading_path": [], "text": text,
        "scores": {"fused": 1.0},
    }  # fmt: skip


def _response(hits: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "query_id": "q", "generation": "minilm", "hits": hits, "complete_until": {}, "fresh": None,
        "counts": {"dense": 0, "sparse": 0, "exact": 0, "admitted": len(hits)}, "starved": False,
        "judged_at": 1, "timings_ms": {},
    }  # fmt: skip
