"""The change gateway without HTTP: who may send, what is valid, which writer takes it, what the token says."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from consumers.erasing import Erasing
from consumers.gateway_errors import Refused, field_problem, invalid, unauthorized, unavailable
from consumers.gateway_tokens import token_of
from consumers.gateway_wait import Pending, ReceiptWatch, StoreCheck, nobody
from consumers.gateway_writer import AnyChange, SourceWriter, Written, plan
from consumers.owner_engine import OwnerLog
from pipeline.clock import Clock
from pipeline.errors import ConfigError, Crash, Reject, Retry
from pipeline.observe import Metrics
from pipeline.ports import BodyStore, BodyTree, Publisher
from pipeline.settings import Settings
from pipeline.settings_sources import AnySource
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Limits
from schemas.api_changes import ChangeResult, DeleteChange, MembershipChange, UpsertChange
from schemas.keys import DocumentRef

log = logging.getLogger("headwater.gateway")

SIGNATURE = "X-Headwater-Signature"
TIMESTAMP = "X-Headwater-Timestamp"
MAX_WRITERS = 32
MAX_WAITING = 1000
BULK_WINDOW = 2000
ASK_STORE_S = 0.25
MAX_READERS_BYTES = 750_000
"""Longest list of readers or parents: a record on the log takes 2 MiB, and an index's manifest holds a rule twice."""


def nothing_named(source: AnySource, body: bytes) -> Sequence[DocumentRef]:
    """A notification names no document: everything that changed is looked for."""
    return ()


@dataclass
class GatewayDeps:
    """What the gateway is made of. ``check`` and ``applied`` are None where no store can be asked.

    ``refs_of`` gives the documents that a notification's body names, as hints of where to look first.
    """

    settings: Settings
    clock: Clock
    metrics: Metrics
    open_log: Callable[[str, str], OwnerLog]  # tenant and source; fences the older owner
    bodies: BodyStore | None
    receipts: ReceiptWatch
    publisher: Publisher
    check: StoreCheck | None = None
    applied: Callable[[], dict[int, int] | None] | None = None
    tree: BodyTree | None = None
    passed: Callable[[], dict[int, int] | None] | None = None
    erasing: Erasing | None = None
    refs_of: Callable[[AnySource, bytes], Sequence[DocumentRef]] = nothing_named


@dataclass(frozen=True)
class Accepted:
    """A request that is on the log."""

    tenant: str
    changes: tuple[AnyChange, ...]
    written: Mapping[str, Written]
    results: tuple[ChangeResult, ...]
    token: str


def verify(settings: Settings, clock: Clock, body: bytes, signature: str | None, timestamp: str | None) -> None:
    """Check signature and timestamp in constant time. Raises Refused (401), or ConfigError without a secret."""
    secret = settings.gateway.secret
    if secret is None or not secret.get_secret_value():
        raise ConfigError("gateway.secret", "is not set", "Set HEADWATER_GATEWAY__SECRET to a long random string.")
    verify_with(secret.get_secret_value(), settings.gateway.tolerance_s, clock, body, signature, timestamp)


def verify_with(
    secret: str, tolerance_s: int, clock: Clock, body: bytes, signature: str | None, timestamp: str | None
) -> None:
    """The same with a secret at hand. Raises Refused (401)."""
    if signature is None or timestamp is None:
        raise unauthorized(f"Send {SIGNATURE}: sha256=<HMAC of the raw body> and {TIMESTAMP}: <seconds since 1970>.")
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), signature.strip().lower().encode("utf-8", "replace")):
        raise unauthorized(f"{SIGNATURE} does not fit the body; sign the raw bytes with the shared secret.")
    try:
        sent = float(timestamp)
    except ValueError:
        raise unauthorized(f"{TIMESTAMP} is not a number of seconds since 1970.") from None
    if not abs(sent - clock.now() / 1_000_000) <= tolerance_s:  # so written, NaN is refused too
        raise unauthorized(f"{TIMESTAMP} is more than {tolerance_s} s away from this server's clock; sign anew.")


def _readers(change: AnyChange) -> tuple[str, int]:
    """The field that lists principals, and its bytes on the log."""
    if isinstance(change, MembershipChange):
        named = [(p, 3) for p in change.parents] + [(p, 21) for p in change.until]  # with quotes, commas and the moment
        return "parents", sum(len(p.encode()) + more for p, more in named)
    if isinstance(change, DeleteChange) or change.access is None:
        return "access", 0
    return "access", len(change.access.rule().model_dump_json(exclude_none=True).encode())


class Gateway:
    """Thread-safe but for the asynchronous methods, which belong to one event loop."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._reserved = {(s.tenant, s.name) for s in deps.settings.sources}
        self._writers: OrderedDict[tuple[str, str], SourceWriter] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, changes: Sequence[AnyChange]) -> str:
        """What the model alone cannot say; the request's tenant. Raises Refused (413, 422, 503)."""
        single, errors = len(changes) == 1, []
        tenant = changes[0].tenant
        limit = self._deps.settings.bodies.max_bytes
        for number, change in enumerate(changes):
            where = "" if single else f"changes[{number}]."
            if change.tenant != tenant:
                problem = "a request speaks of one tenant; send another for this one"
                errors.append(field_problem(f"{where}tenant", problem))
            if (change.tenant, self._source(change)) in self._reserved:
                problem = "this source has an owner of its own; name another, or leave it out"
                errors.append(field_problem(f"{where}source", problem))
            if isinstance(change, UpsertChange) and len(change.body()) > limit:
                problem = f"the body has more than {limit} bytes (bodies.max_bytes); shorten it"
                errors.append(field_problem(f"{where}{'text' if change.text is not None else 'base64'}", problem))
            field, size = _readers(change)
            if size > MAX_READERS_BYTES:
                problem = f"has more than {MAX_READERS_BYTES} bytes; name groups instead of many principals"
                errors.append(field_problem(f"{where}{field}", problem))
        if errors:
            raise invalid(errors)
        if any(isinstance(c, UpsertChange) and c.priority == "bulk" for c in changes):
            self._check_credit()
        return tenant

    def _check_credit(self) -> None:
        if self._deps.applied is None:
            return
        applied = self._deps.applied()
        with self._lock:
            writers = list(self._writers.values())
        ends: dict[int, int] = {}
        for writer in writers:
            for partition, end in writer.content_ends().items():
                ends[partition] = max(ends.get(partition, 0), end)
        known = applied if applied is not None else {}
        if sum(max(0, end - known.get(p, 0)) for p, end in ends.items()) > BULK_WINDOW:
            raise Refused(
                429, "Too many", "Bulk changes wait until the index has caught up; send this again.", retry_after=1
            )

    async def append(self, tenant: str, changes: Sequence[AnyChange]) -> Accepted:
        """Append everything; returns when it is committed. Raises Refused (403, 409, 503)."""
        await self.refuse_erased(tenant)
        return await self._queued(tenant, changes)

    async def append_each(self, tenant: str, events: Sequence[tuple[AnyChange, str]]) -> list[Accepted | BaseException]:
        """Append changes in order, each on its own and at most once under its key (of its source); what became of each.

        Raises Refused (403).
        """
        await self.refuse_erased(tenant)
        waiting: list[Awaitable[Accepted]] = []
        for change, key in events:
            try:
                waiting.append(self._queued(tenant, [change], key))
            except Refused as refused:
                waiting.append(_failing(refused))
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    def _queued(self, tenant: str, changes: Sequence[AnyChange], key: str | None = None) -> Awaitable[Accepted]:
        """Hand everything to its writers at once, so that callers keep their order. Raises Refused (503)."""
        by_source: dict[str, list[int]] = {}
        for number, change in enumerate(changes):
            by_source.setdefault(self._source(change), []).append(number)
        default = self._deps.settings.gateway.source
        futures = {}
        for source, numbers in by_source.items():
            planned = [plan(changes[number], default) for number in numbers]
            futures[source] = asyncio.wrap_future(self.writer(tenant, source).submit(planned, key))
        return self._committed(tenant, changes, by_source, futures)

    async def _committed(
        self,
        tenant: str,
        changes: Sequence[AnyChange],
        by_source: Mapping[str, Sequence[int]],
        futures: Mapping[str, asyncio.Future[Written]],
    ) -> Accepted:
        done = await asyncio.gather(*futures.values(), return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise self._refusal(outcome) from outcome
        written = {source: part for source, part in zip(futures, done, strict=True) if isinstance(part, Written)}
        results: dict[int, ChangeResult] = {}
        for source, numbers in by_source.items():
            results.update(zip(numbers, written[source].results, strict=True))
        ordered = tuple(results[number] for number in range(len(changes)))
        return Accepted(tenant, tuple(changes), written, ordered, token_of(tenant, written).encode())

    async def refuse_erased(self, tenant: str) -> None:
        """Raises Refused (403) for a tenant that is being erased."""
        erasing = self._deps.erasing
        if erasing is None:
            return
        known = erasing.fresh(tenant)
        if known is None:
            known = await asyncio.to_thread(erasing, tenant)
        if known:
            raise Refused(403, "Being erased", "This tenant is being erased: it takes no changes any more.")

    def _refusal(self, error: BaseException) -> BaseException:
        if isinstance(error, Crash):
            log.error("a source was taken over by another owner: %s", error)
            return Refused(409, "Taken over", "Another process owns this source now; send the changes there.")
        if isinstance(error, Reject):
            log.error("the log does not take a change: %s", error)
            return Refused(413, "Too large", "A change makes a record that the log does not take; send less in it.")
        if isinstance(error, Retry):
            return unavailable("The log did not acknowledge the changes; send the same request again.")
        return error

    async def wait(self, accepted: Accepted, wait: str, timeout_s: float) -> tuple[Pending, str]:
        """Until the access lane, or the active index too, has everything. Raises Refused (504) with the token."""
        deadline = time.monotonic() + timeout_s
        pending = Pending.of(accepted.tenant, accepted.written, searchable=wait == "searchable")
        for change, result in zip(accepted.changes, accepted.results, strict=True):
            if isinstance(change, UpsertChange) and result.outcome is not None:
                pending.content.pop(change.ref(self._deps.settings.gateway.source), None)
        generation = await self._generation(pending)
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        end = self._deps.receipts.listen(wake)
        try:
            asked = 0.0
            while True:
                woken.clear()
                pending.strike(self._deps.receipts, generation)
                if not pending.done and time.monotonic() - asked >= ASK_STORE_S:
                    await self._ask_store(pending, generation)
                    asked = time.monotonic()
                if pending.done:
                    return pending, generation
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._late(wait, pending, accepted.token)
                try:
                    await asyncio.wait_for(woken.wait(), min(left, ASK_STORE_S))
                except TimeoutError:
                    continue
        finally:
            end()

    async def unreadable(self, accepted: Accepted) -> dict[str, str | None]:
        """Of the written documents that are not deleted, by uid, why nobody may read them, None where somebody may.

        Where the store cannot be asked who is known, only those that nobody may read in any case.
        """
        rules = {d.uid: rule for part in accepted.written.values() for d, rule in part.rules.items()}
        people = {
            g.principal for rule in rules.values() for c in rule.clauses for g in c.any_of
            if g.principal.startswith("user:")
        }  # fmt: skip
        now, absent = self._deps.clock.now(), set[str]()
        if self._deps.check is not None:
            try:
                absent = await asyncio.to_thread(self._deps.check.absent, accepted.tenant, people)
            except Retry as error:
                log.warning("the store cannot be asked who is known: %s", error)
                return {uid: why for uid, rule in rules.items() if (why := nobody(rule, now)) is not None}
        return {uid: nobody(rule, now, absent) for uid, rule in rules.items()}

    async def _generation(self, pending: Pending) -> str:
        configured = self._deps.settings.generation
        if self._deps.check is None or not pending.content:
            return configured
        try:
            return await asyncio.to_thread(self._deps.check.generation)
        except Retry:
            return configured

    async def _ask_store(self, pending: Pending, generation: str) -> None:
        if self._deps.check is None:
            return
        try:
            await asyncio.to_thread(self._deps.check.strike, pending, generation)
        except Retry as error:
            log.warning("the store cannot be asked: %s", error)

    def _late(self, wait: str, pending: Pending, token: str) -> Refused:
        what = "applied in the access lane" if not pending.applied else "searchable"
        detail = (
            f"The changes are on the log but not yet {what}; nothing is lost. Do not send them again: "
            "pass the token as 'after' to a search, or wait longer."
        )
        return Refused(504, f"Not {wait} in time", detail, token=token)

    # ------------------------------------------------------------ writers

    def _source(self, change: AnyChange) -> str:
        return change.source or self._deps.settings.gateway.source

    def writer(self, tenant: str, source: str) -> SourceWriter:
        """The writer of a source; one that ended is made anew on the next request, which fences whoever ended it."""
        key = (tenant, source)
        idle: SourceWriter | None = None
        with self._lock:
            known = self._writers.get(key)
            if known is not None and known.ended is None:
                self._writers.move_to_end(key)
                if known.waiting() > MAX_WAITING:
                    raise unavailable("Too many requests wait for this source.", 1)
                return known
            if known is None and len(self._writers) >= MAX_WRITERS:
                idle = self._oldest_idle()
            made = self._writers[key] = self._make(tenant, source)
        if idle is not None:
            threading.Thread(target=idle.close, name="gateway-close", daemon=True).start()
        return made

    def _oldest_idle(self) -> SourceWriter:
        for key, writer in self._writers.items():
            if writer.waiting() == 0:
                return self._writers.pop(key)
        raise unavailable("Too many sources are being written at once.")

    def _make(self, tenant: str, source: str) -> SourceWriter:
        settings = self._deps.settings
        return SourceWriter(
            tenant,
            source,
            open_log=lambda: self._deps.open_log(tenant, source),
            bodies=BodyPlacer(
                self._deps.bodies, settings.bodies.inline_limit, settings.bodies.max_bytes, self._deps.tree
            ),
            clock=self._deps.clock,
            observed=self._deps.metrics,
            limits=Limits(events=settings.kafka.transaction_events),
            passed=self._deps.passed,
            closed=lambda: self._deps.erasing is not None and self._deps.erasing(tenant),
        )

    def health(self) -> dict[str, object]:
        """For ``/healthz``."""
        with self._lock:
            sources = {f"{tenant}/{source}": w.ended or "running" for (tenant, source), w in self._writers.items()}
        return {"state": "running", "sources": sources}

    def close(self) -> None:
        """Finish what is queued and disconnect."""
        with self._lock:
            writers, self._writers = list(self._writers.values()), OrderedDict()
        for writer in writers:
            writer.close()


async def _failing(refused: Refused) -> Accepted:
    raise refused
