"""How fresh answers are: a tail of ``receipts`` and ``cursors``, and completeness per source."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from pipeline.clock import Clock
from pipeline.errors import BusUnavailable, HeadwaterError
from pipeline.observe import Metrics
from query_service import lag
from query_service.files import damaged
from query_service.receipts import Applied, Pending, ReceiptStore
from query_service.tail import LogTail, MadeAnew, Start, TailFactory, another, close, shorter
from schemas.api import FreshnessResponse, SourceFreshness
from schemas.receipts import Receipt
from schemas.topics import Topic

log = logging.getLogger("headwater.query.freshness")

T = TypeVar("T")

TOPICS = (Topic.RECEIPTS.value, Topic.CURSORS.value)
POLL_MS = 200
PAUSE_S = 0.5
PRUNE_S = 3600.0
MEASURE_S = 1.0
LIVE_US = 60_000_000


class Freshness:
    """Owns the thread that writes the receipt store; everything else may be called from any thread."""

    def __init__(
        self, open_tail: TailFactory, open_store: Callable[[], ReceiptStore], clock: Clock, metrics: Metrics
    ) -> None:
        self._open_tail = open_tail
        self._open_store = open_store
        self._clock = clock
        self._metrics = metrics
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._store: ReceiptStore | None = None
        self._generation: str | None = None
        self._computed_for: str | None = None
        self._pending: dict[str, Pending] = {}
        self._polled: Mapping[tuple[str, str], int | None] = {}
        # The generation in which it was counted with it: both are read at once from other threads.
        self._complete: tuple[str | None, Mapping[str, Mapping[str, int | None]]] = (None, {})
        self._counts: Mapping[tuple[str, str], int] = {}
        self._listeners: list[Callable[[], None]] = []
        self._transitions: list[Callable[[], None]] = []
        self._changed: dict[tuple[str, str | None], int] = {}
        self._reached: Mapping[tuple[str, int], int] = {}

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener()`` after each batch of receipts, from the thread."""
        self._listeners.append(listener)

    def on_transition(self, listener: Callable[[], None]) -> None:
        """Call ``listener()`` when control has decided on a generation, from the thread."""
        self._transitions.append(listener)

    def start(self) -> None:
        """Begin to follow the log."""
        self._thread = threading.Thread(target=self._run, name="receipts-tail", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits a few seconds for it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def use_generation(self, generation: str | None) -> None:
        """Completeness is counted in the active generation."""
        self._generation = generation

    # ------------------------------------------------------------ answers

    def complete_until(self, tenant: str, generation: str | None = None) -> dict[str, int | None]:
        """Per source of the tenant: everything that its owner saw before this moment (µs) is in the answers, those of
        the active generation; None of each for another ``generation`` than the one in which it was counted."""
        counted_in, complete = self._complete
        found = complete.get(tenant, {})
        return dict(found) if generation is None or generation == counted_in else dict.fromkeys(found)

    def changes(self, tenant: str, generation: str) -> tuple[int, int]:
        """Another value after each receipt that tells of a document of the tenant: in the generation, and in the
        access lane, which all generations share. Counted before what a receipt changes is published."""
        return self._changed.get((tenant, generation), 0), self._changed.get((tenant, None), 0)

    def alive(self) -> bool:
        """Whether anything of the log was read."""
        return bool(self._reached)

    def partitions(self) -> dict[tuple[str, int], int]:
        """Next offset per followed (topic, partition): all before it is counted in ``changes``."""
        return dict(self._reached)

    def report(self, tenant: str, window_s: int) -> FreshnessResponse:
        """Completeness, backlog and lag of the tenant's sources over the window. Reads the file: not for the loop."""
        now = self._clock.now()
        rows = self._read(lambda store: store.window(tenant, now - window_s * 1_000_000))
        generation = self._generation
        lags, revocations = lag.by_source(rows, generation), lag.revocations(rows)
        failed = lag.failures(rows, generation)
        complete = self.complete_until(tenant)
        sources: dict[str, SourceFreshness] = {}
        for source in sorted({*complete, *lags, *revocations, *failed}):
            until = complete.get(source)
            sources[source] = SourceFreshness(
                complete_until=until,
                complete_age_s=None if until is None else round(max(0, now - until) / 1e6, 3),
                pending=self._counts.get((tenant, source), 0),
                failed=failed.get(source, 0),
                lag_ms=lags.get(source, {}),
                revocation_ms=revocations.get(source, lag.percentiles([])),
            )
        return FreshnessResponse(tenant=tenant, generation=generation, window_s=window_s, now=now, sources=sources)

    def trace(self, tenant: str, uid: str) -> list[dict[str, object]]:
        """Receipts of a document. Reads the file: not for the loop."""
        return self._read(lambda store: store.trace(tenant, uid))

    def standing(self, tenant: str, uid: str, generation: str) -> list[tuple[str, int, int | None]]:
        """Per lane what was last written of a document and what is settled. Reads the file: not for the loop."""
        return self._read(lambda store: store.standing(tenant, uid, generation))

    def alarms(self, tenant: str, source: str) -> list[str]:
        """What a source's owner says that keeps people out or documents hidden. Reads the file: not for the loop."""
        return self._read(lambda store: store.alarms(tenant, source))

    def _read(self, ask: Callable[[ReceiptStore], list[T]]) -> list[T]:
        """Nothing before the file is open. Raises BusUnavailable where it cannot be read: the log fills it again."""
        store = self._store
        try:
            return ask(store) if store is not None else []
        except sqlite3.Error as error:
            log.warning("the receipt store cannot be read", extra={"fields": {"error": str(error)}})
            raise BusUnavailable("the receipt store cannot be read") from None

    # ------------------------------------------------------------ thread

    def _run(self) -> None:
        store: ReceiptStore | None = None
        while not self._stop.is_set():
            tail: LogTail | None = None
            try:
                if store is None:
                    store = self._open_store()
                    self._store = store
                tail = self._open_tail(TOPICS, Start(offsets=store.positions()))
                if shorter(tail, store.positions()):
                    log.warning("the log is shorter than the receipt store remembers: it is built again")
                    store.reset()
                    self._reached = {}
                    continue
                try:
                    self._follow(tail, store)
                except MadeAnew:
                    log.warning("the log was made anew: the receipt store is built again")
                    store.reset()
                    self._reached = {}
            except HeadwaterError as error:
                log.warning("the receipts tail lost the log", extra={"fields": {"error": type(error).__name__}})
            except sqlite3.Error as error:
                log.warning("the receipt store cannot be used", extra={"fields": {"error": str(error)}})
                if store is not None and damaged(error):
                    self._forget_store()
                    store.discard()
                    store = None
            except Exception:
                log.exception("the receipts tail failed; it starts again from its recorded positions")
            finally:
                if tail is not None:
                    close(tail, "the receipts tail")
            self._stop.wait(PAUSE_S)
        if store is not None:
            store.close()

    def _forget_store(self) -> None:
        """Nothing is known until the log has filled another file."""
        self._store, self._computed_for, self._reached = None, None, {}
        self._pending, self._polled, self._complete, self._counts = {}, {}, (None, {}), {}

    def _follow(self, tail: LogTail, store: ReceiptStore) -> None:
        self._computed_for = None
        ids = tail.ids()
        measured, pruned = time.monotonic(), -PRUNE_S
        while not self._stop.is_set():
            records = tail.poll(POLL_MS)
            if another(ids, tail.ids()):
                raise MadeAnew("a topic has another id")
            applied = Applied([], set())
            if records:
                applied = store.apply(records, {(t, p): o for (t, p), o in tail.positions().items()})
                self._observe(applied.receipts)
                self._count(applied.receipts)
            self._reached = {(t, p): o for (t, p), o in tail.positions().items()}
            # A cursor may be read before its documents' states (other partitions of one transaction): a look counts
            # only once everything on the log was read.
            at_end = not records
            if records and time.monotonic() - measured >= MEASURE_S:
                measured, at_end = time.monotonic(), tail.behind() <= 0
            self._compute(store, applied.documents, at_end)
            if records:
                for listener in self._listeners:
                    listener()
            if any(receipt.lane == "control" for receipt in applied.receipts):
                for listener in self._transitions:
                    listener()
            if time.monotonic() - pruned >= PRUNE_S:
                store.prune(self._clock.now())
                pruned = time.monotonic()

    def _compute(self, store: ReceiptStore, documents: set[str], at_end: bool) -> None:
        """Publish completeness: a look at the source, or what is pending of it if that is earlier."""
        generation, now = self._generation or "", self._clock.now()
        changed = bool(documents)
        if self._computed_for != generation:
            self._pending = store.pending(generation, now)
            self._computed_for, changed = generation, True
        elif documents:
            found = store.pending(generation, now, sorted(documents))
            for uid in documents - found.keys():
                self._pending.pop(uid, None)
            self._pending.update(found)
        if at_end:
            polled = store.polled()
            changed = changed or polled != self._polled
            self._polled = polled
        if changed:
            self._publish()

    def _publish(self) -> None:
        earliest: dict[tuple[str, str], int] = {}
        counts: dict[tuple[str, str], int] = {}
        for p in self._pending.values():
            key = (p.tenant, p.source)
            earliest[key] = min(earliest.get(key, p.version), p.version)
            counts[key] = counts.get(key, 0) + 1
        complete: dict[str, dict[str, int | None]] = {}
        for tenant, source in {*self._polled, *earliest}:
            polled, first = self._polled.get((tenant, source)), earliest.get((tenant, source))
            until = polled if first is None or polled is None else min(polled, first)
            complete.setdefault(tenant, {})[source] = until
        self._counts = counts
        self._complete = self._computed_for, complete

    def _count(self, receipts: list[Receipt]) -> None:
        for receipt in receipts:
            if receipt.lane in ("index", "access") or receipt.document_uid is not None:
                key = receipt.tenant, receipt.generation
                self._changed[key] = self._changed.get(key, 0) + 1

    def _observe(self, receipts: list[Receipt]) -> None:
        """Histograms of what ended just now; a rebuild from the log is no measurement."""
        recent = self._clock.now() - LIVE_US
        for receipt in receipts:
            visible = receipt.times.visible_at
            if receipt.lane not in ("index", "access") or visible is None or visible < recent:
                continue
            start = receipt.times.source_updated_at or receipt.times.observed_at
            if start is not None and receipt.source is not None and receipt.priority == "live":
                self._metrics.observe(
                    "headwater_source_lag_seconds",
                    (visible - start) / 1e6,
                    lane=receipt.lane,
                    source=receipt.source,
                )


class Changes:
    """Wakes waiting requests of one event loop from other threads."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def bind(self) -> None:
        """Remember the running loop."""
        self._loop = asyncio.get_running_loop()

    def notify(self) -> None:
        """Something moved; callable from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Until something moves, at most ``seconds``."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return
