"""Webhooks: a system says that something happened, and the owner of its source is asked to look.

What a body says is never believed: it is only a hint of where to look first. Whoever does not hold the secret of a
source learns nothing, not even whether there is one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from consumers.gateway_errors import Refused, unavailable
from consumers.gateway_service import SIGNATURE, TIMESTAMP, GatewayDeps, verify_with
from pipeline.errors import HeadwaterError
from pipeline.ports import Outgoing
from pipeline.settings_sources import AnySource
from schemas.events import SourceRequest
from schemas.keys import DocumentRef
from schemas.topics import Topic

log = logging.getLogger("headwater.gateway")

INTERVAL_S = 0.2
"""At most one request for each source in this time; what comes meanwhile goes with the next."""
DELIVERIES = 10_000
DELIVERY_S = 3600.0
_DELIVERY = (
    "x-github-delivery",
    "x-gitea-delivery",
    "x-forgejo-delivery",
    "idempotency-key",
    "x-gitlab-event-uuid",
    "x-atlassian-webhook-identifier",
)


class Hooks:
    """All configured sources that may notify. Belongs to one event loop."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._sources: dict[tuple[str, str], tuple[AnySource, str]] = {}
        for source in deps.settings.sources:
            secret = getattr(source, "webhook_secret", None)
            if secret is not None and secret.get_secret_value():
                self._sources[(source.tenant, source.name)] = (source, secret.get_secret_value())
        self._nobodys = secrets.token_hex(32)
        self._told_at = float("-inf")
        self._errands = {key: _Errand(deps, source) for key, (source, _) in self._sources.items()}
        self._deliveries: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def check(self, tenant: str, name: str, body: bytes, headers: Mapping[str, str]) -> AnySource:
        """The source that this comes from. Raises Refused (404), the same for whatever is wrong."""
        source, secret = self._sources.get((tenant, name), (None, self._nobodys))
        good = self._signed(secret, body, headers)
        if source is None or not good:
            self._refused(tenant, name, "no source with a webhook_secret" if source is None else "a wrong signature")
            raise Refused(404, "Not found", "Nothing is served here.")
        return source

    def _refused(self, tenant: str, name: str, why: str) -> None:
        """The sender learns nothing; the log does, a line a minute."""
        now = time.monotonic()
        if now - self._told_at >= 60:
            self._told_at = now
            log.warning("a webhook for source %.80r of %.80r was refused: %s", name, tenant, why)

    def _signed(self, secret: str, body: bytes, headers: Mapping[str, str]) -> bool:
        """By the first of the ways that the request names; that one must fit."""
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        ways = (
            ("x-hub-signature-256", f"sha256={digest}"),
            ("x-gitea-signature", digest),
            ("x-hub-signature", f"sha256={digest}"),
            ("x-gitlab-token", secret),
            ("authorization", f"Bearer {secret}"),
        )
        for name, expected in ways:
            given = headers.get(name)
            if given is not None:
                return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
        tolerance = self._deps.settings.gateway.tolerance_s
        try:
            verify_with(secret, tolerance, self._deps.clock, body, headers.get(SIGNATURE), headers.get(TIMESTAMP))
        except Refused:
            return False
        return True

    async def notify(self, source: AnySource, body: bytes, headers: Mapping[str, str]) -> None:
        """Returns when the owner's request is on the log. Raises Refused (503)."""
        delivery = next((headers[name] for name in _DELIVERY if name in headers), None)
        key = (source.tenant, source.name, delivery) if delivery is not None else None
        if key is not None and self._known(key):
            return
        if not await self._errands[(source.tenant, source.name)].run(self._named(source, body)):
            raise unavailable("The log did not acknowledge the notification; send it again.")
        if key is not None:
            self._deliveries[key] = self._deps.clock.elapsed()

    def _known(self, key: tuple[str, str, str]) -> bool:
        oldest = self._deps.clock.elapsed() - DELIVERY_S
        while self._deliveries and (
            next(iter(self._deliveries.values())) < oldest or len(self._deliveries) > DELIVERIES
        ):
            self._deliveries.popitem(last=False)
        return key in self._deliveries

    def _named(self, source: AnySource, body: bytes) -> Sequence[DocumentRef]:
        try:
            named = self._deps.refs_of(source, body)
        except Exception as error:
            log.warning("source %s: a notification is not understood: %s", source.name, type(error).__name__)
            return ()
        return [d for d in named if (d.tenant, d.source) == (source.tenant, source.name)]


class _Next:
    """The request that goes next, and who waits for it."""

    def __init__(self) -> None:
        self.documents: set[DocumentRef | None] = set()
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class _Errand:
    """Notifications of one source on their way to its owner."""

    def __init__(self, deps: GatewayDeps, source: AnySource) -> None:
        self._deps, self._source = deps, source
        self._next: _Next | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent_at = -INTERVAL_S

    async def run(self, documents: Sequence[DocumentRef]) -> bool:
        """Whether it is on the log, with others that came at the time."""
        if self._next is None:
            self._next = _Next()
            task = asyncio.create_task(self._send(self._next))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        mine = self._next
        mine.documents.update(documents or (None,))
        return await asyncio.shield(mine.done)

    async def _send(self, request: _Next) -> None:
        wait = self._sent_at + INTERVAL_S - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        self._next, self._sent_at = None, time.monotonic()  # whoever comes from now on waits for another request
        try:
            await asyncio.to_thread(self._deps.publisher.publish, [self._record(request.documents)])
        except HeadwaterError as error:
            log.warning("source %s: a notification is not on the log: %s", self._source.name, error)
        except Exception:
            log.exception("source %s: a notification is not on the log", self._source.name)
        else:
            request.done.set_result(True)
        finally:
            if not request.done.done():
                request.done.set_result(False)

    def _record(self, documents: set[DocumentRef | None]) -> Outgoing:
        """One request, with the document where all spoke of the same."""
        request = SourceRequest(
            type="notify",
            tenant=self._source.tenant,
            source=self._source.name,
            document=next(iter(documents)) if len(documents) == 1 else None,
            request_id=f"notify-{uuid.uuid4().hex}",
            requested_at=self._deps.clock.now(),
            requested_by="webhook",
        )
        return Outgoing(Topic.REQUESTS, self._source.name, request.model_dump_json().encode())
