"""How changes come in: through the change gateway, or as the owner of a source writes them."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from consumers.owner_log import KafkaOwnerLog
from consumers.owner_writer import OwnerWriter
from infra.bench.receipts import Key
from infra.errors import InfraError
from pipeline.bus.bodies import FsspecBodyStore
from pipeline.clock import SystemClock
from pipeline.observe import Metrics
from pipeline.ports import Observation
from pipeline.settings import Settings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Change, Limits
from pipeline.sources.ledger import Ledger
from schemas.api_changes import ChangesReply
from schemas.events import Priority, SourceCursor

PATIENCE_S = 60.0
_TOGETHER = 50  # observations planned before they are written


class Gateway:
    """``POST /v1/changes``, signed. Used by one thread."""

    def __init__(self, base: str, secret: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(base_url=base, timeout=PATIENCE_S, trust_env=False, transport=transport)
        self._secret = secret.encode()

    def send(
        self, changes: Sequence[dict[str, Any]], *, wait: Literal["applied", "searchable"] | None = None
    ) -> ChangesReply:
        """Send; asked to come again, it does so. Raises InfraError where the gateway refuses."""
        body = json.dumps(changes[0] if len(changes) == 1 else list(changes)).encode()
        params = {"wait": wait, "wait_ms": str(int(PATIENCE_S * 1000))} if wait else {}
        end = time.monotonic() + PATIENCE_S
        while True:
            headers = {
                "Content-Type": "application/json",
                "X-Headwater-Timestamp": str(int(time.time())),
                "X-Headwater-Signature": "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest(),
            }
            try:
                answer = self._http.post("/v1/changes", content=body, headers=headers, params=params)
            except httpx.HTTPError as error:
                raise InfraError(f"The gateway does not answer ({type(error).__name__}).", "Run it again.") from error
            if answer.is_success:
                return ChangesReply.model_validate_json(answer.content)
            if answer.status_code not in (429, 503) or time.monotonic() > end:
                raise InfraError(f"The gateway answers {answer.status_code}: {answer.text[:300]}", "Run it again.")
            time.sleep(float(answer.headers.get("Retry-After", "1")))

    def close(self) -> None:
        """Disconnect."""
        self._http.close()


@dataclass(frozen=True)
class Fed:
    """Events that were appended, as receipts will name them."""

    content: tuple[Key, ...] = ()
    access: tuple[Key, ...] = ()


class Feeder:
    """Owns one source: the same ledger and the same fenced transactions as the owner process. Used by one thread."""

    def __init__(self, settings: Settings, tenant: str, source: str) -> None:
        clock = SystemClock()
        bodies = BodyPlacer(FsspecBodyStore.of(settings), settings.bodies.inline_limit, settings.bodies.max_bytes)
        self._clock = clock
        self._log = KafkaOwnerLog(settings, tenant, source)
        self._ledger = Ledger(tenant, source, clock, bodies)
        for record in self._log.states():
            self._ledger.load_cursor(record)
        for record in self._log.memberships():
            self._ledger.load_membership(record)
        self._writer = OwnerWriter(
            self._ledger, self._log.appender, self._log.publisher, bodies, clock, Metrics(),
            Limits(events=settings.kafka.transaction_events),
        )  # fmt: skip

    def write(self, seen: Iterable[Observation], *, priority: Priority = "live", force: bool = False) -> Fed:
        """Append what the observations change, in their order for each document. ``force``: unchanged content too."""
        content: list[Key] = []
        access: list[Key] = []
        pending: list[Change] = []

        def flush() -> None:
            self._writer.write(pending, self._cursor)
            for change in pending:
                content.extend(Key("index", e.document.tenant, e.document.uid, e.version) for e in change.content)
                access.extend(Key("access", e.document.tenant, e.document.uid, e.version) for e in change.access)
            pending.clear()

        for one in seen:
            made = self._ledger.observe(one, priority=priority, force=force)
            pending += made
            if any(change.again for change in made):  # a rule went ahead of its large body
                flush()
                pending += self._ledger.observe(one, priority=priority)
            if len(pending) >= _TOGETHER:
                flush()
        if pending:
            flush()
        return Fed(tuple(content), tuple(access))

    def _cursor(self) -> SourceCursor:
        return self._ledger.cursor(polled_at=self._clock.now(), pending=False)

    def close(self) -> None:
        """Disconnect."""
        self._log.close()
