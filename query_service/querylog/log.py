"""The query log as the service uses it: open a query, note what becomes of it, look up, store feedback, forget."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pipeline.bus.codec import encode
from pipeline.clock import Clock
from pipeline.errors import BusUnavailable
from pipeline.observe import Metrics
from pipeline.ports import Outgoing
from pipeline.settings import Settings
from query_service.querylog.entry import CURRENT, Entry
from query_service.querylog.follow import Follower
from query_service.querylog.records import feedback_kept, line_of, record_of
from query_service.querylog.references import References, references
from query_service.querylog.sender import OpenPublisher, Outlet, Sender, outgoing
from query_service.querylog.view import QueryView, opened
from query_service.scope import Scope
from query_service.tail import TailFactory
from schemas.querylog import FeedbackRecord, Kind, LoggedHit, PurgeRecord, QueryRecord

log = logging.getLogger("headwater.query")

MAX_RECENT = 10_000
MAX_TARGETS = 200_000  # ids that the recent queries hold together; one query may have hundreds
WRITERS, MAX_WRITES = 2, 64

People = Callable[[str], Iterable[str]]  # principals of a tenant; reads the store, not for the loop


class Shown(NamedTuple):
    """Who asked a query (by reference) and what of it feedback may name."""

    tenant: str
    asker: str
    targets: frozenset[str]

    @staticmethod
    def of(record: QueryRecord) -> Shown:
        """Of a query of the view."""
        named = [record.document_uid] if record.document_uid is not None and record.outcome == "answered" else []
        return Shown(record.tenant, record.operator or record.scope, _targets(record.hits, record.evidence, named))


def _targets(hits: Iterable[LoggedHit], evidence: Iterable[str], named: Iterable[str]) -> frozenset[str]:
    return frozenset([*(h.chunk_id for h in hits), *(h.document_uid for h in hits), *evidence, *named])


class QueryLog:
    """One a process. ``watching`` and ``shown`` are for the event loop; what reads or publishes says so."""

    def __init__(
        self, settings: Settings, open_tail: TailFactory, clock: Clock, metrics: Metrics, identity: str,
        open_publisher: OpenPublisher | None = None, people: People | None = None,
    ) -> None:  # fmt: skip
        """Raises ConfigError for a key that cannot be used. Connects to nothing yet."""
        self.settings = settings.querylog
        self._clock = clock
        self._metrics = metrics
        self._people = people
        folder = settings.query.receipts_path.parent
        self.references: References = references(settings, folder)
        path: Path = self.settings.path or folder / "queries.sqlite"
        self.follower = Follower(open_tail, lambda: opened(path, identity, self.settings), clock, metrics)
        self._outlet = Outlet(open_publisher) if open_publisher is not None else None
        self._sender: Sender | None = None
        if self._outlet is not None and self.settings.enabled:
            self._sender = Sender(self._outlet, metrics, self.settings.queue)
        self._recent: OrderedDict[str, Shown] = OrderedDict()
        self._targets = 0
        # Of their own: a broker that does not answer must not hold the threads that others share.
        self._writers = ThreadPoolExecutor(max_workers=WRITERS, thread_name_prefix="query-log-write")
        self._writes = threading.BoundedSemaphore(MAX_WRITES)

    @property
    def enabled(self) -> bool:
        """Whether queries are logged at all."""
        return self.settings.enabled

    @property
    def view(self) -> QueryView | None:
        """What can be asked of the log; None before it is open, or without a log."""
        return self.follower.view

    def start(self) -> None:
        """Begin to send and to follow."""
        if self.enabled:
            self.follower.start()
        if self._sender is not None:
            self._sender.start()

    def stop(self) -> None:
        """Send what waits, for a few seconds, and end. Not for the loop."""
        self._writers.shutdown(wait=False, cancel_futures=True)
        if self._sender is not None:
            self._sender.stop()
        elif self._outlet is not None:
            self._outlet.close()
        self.follower.stop()

    # ------------------------------------------------------------ queries

    @contextmanager
    def watching(
        self, kind: Kind, scope: Scope, *, operator: Scope | None = None, document_uid: str | None = None
    ) -> Iterator[Entry]:
        """Log what happens in the block as one query, however it ends. Inside, ``entry.current`` gives the entry."""
        entry = Entry(kind=kind, scope=scope, at=self._clock.now(), operator=operator, document_uid=document_uid)
        token = CURRENT.set(entry)
        try:
            yield entry
        except BaseException as error:
            entry.failed(error)
            raise
        finally:
            CURRENT.reset(token)
            self._done(entry)

    def _done(self, entry: Entry) -> None:
        if not self.enabled:
            return
        entry.ended()
        named = [entry.document_uid] if entry.document_uid is not None and entry.outcome == "answered" else []
        asker = self.references.scope(entry.operator or entry.scope)
        self._remember(entry.query_id, Shown(entry.scope.tenant, asker, _targets(entry.hits, entry.evidence, named)))
        log.info("query", extra={"fields": line_of(entry, self.references)})
        if self._sender is not None:
            self._sender.put(partial(self._encoded, entry))

    def _remember(self, query_id: str, shown: Shown) -> None:
        self._recent[query_id] = shown
        self._targets += len(shown.targets)
        while len(self._recent) > MAX_RECENT or self._targets > MAX_TARGETS:
            _, oldest = self._recent.popitem(last=False)
            self._targets -= len(oldest.targets)

    def _encoded(self, entry: Entry) -> Outgoing:
        record = record_of(entry, self.references, self.settings)
        return outgoing(record.tenant, encode(record))

    async def shown(self, tenant: str, asker: str, query_id: str) -> Shown | None:
        """A query of this person that was answered here or that the view knows. One of somebody else takes the same
        way as one that never was."""
        found = self._recent.get(query_id)
        if found is not None and (found.tenant, found.asker) == (tenant, asker):
            return found
        view = self.view
        if view is None:
            return None
        record = await asyncio.to_thread(view.query, tenant, query_id, self._clock.now(), asker)
        return None if record is None else Shown.of(record)

    # ------------------------------------------------------------ feedback, forgetting, persons

    async def feedback(self, record: FeedbackRecord) -> FeedbackRecord:
        """Store feedback; what was kept of it. Raises BusUnavailable."""
        kept = feedback_kept(record, self.settings)
        await self._written(outgoing(kept.tenant, encode(kept)))
        return kept

    async def purge(self, record: PurgeRecord) -> int:
        """Have every view forget; how many records this one held. Raises BusUnavailable."""
        view = self.view
        held = await asyncio.to_thread(view.count, record) if view is not None else 0
        await self._written(outgoing(record.tenant, encode(record)))
        for query_id, shown in list(self._recent.items()):
            if shown.tenant == record.tenant and record.scope in (None, shown.asker):
                del self._recent[query_id]
                self._targets -= len(shown.targets)
        return held

    async def _written(self, record: Outgoing) -> None:
        """Returns once the log has it. Raises BusUnavailable, at once where many wait already."""
        if not self._writes.acquire(blocking=False):
            raise BusUnavailable("many records wait for the log already")
        try:
            writing = self._writers.submit(self._publish, record)
        except BaseException:
            self._writes.release()
            raise
        writing.add_done_callback(lambda _: self._writes.release())
        await asyncio.wrap_future(writing)

    def _publish(self, record: Outgoing) -> None:
        if self._outlet is None:
            raise BusUnavailable("this process has no log to write to")
        self._outlet.publish([record])

    async def who(self, tenant: str, reference: str) -> str | None:
        """The user (without ``user:``) behind a reference. Raises StoreUnavailable."""
        people = self._people
        if people is None:
            return None

        def look() -> str | None:
            users = (p.removeprefix("user:") for p in people(tenant) if p.startswith("user:"))
            return self.references.resolve(tenant, reference, users)

        return await asyncio.to_thread(look)
