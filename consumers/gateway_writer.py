"""One writer a source behind the gateway: takes requests from a queue and appends each group in few transactions.

A request is planned whole. Requests that wait together share transactions, so throughput grows with concurrency while
a lone request goes at once. After a failure the ledger is in doubt: it is built again from the log before the next.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from consumers.gateway_seen import SeenKeys
from consumers.owner_engine import OwnerLog
from consumers.owner_writer import OwnerWriter
from consumers.superseded import SupersededBodies
from pipeline.clock import Clock
from pipeline.errors import BusUnavailable, Crash, HeadwaterError, Reject
from pipeline.observe import Metrics
from pipeline.ports import (
    Appended,
    Observation,
    SourceMembership,
)
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Change, Limits, Transaction, cursor_record
from pipeline.sources.ledger import Ledger
from pipeline.sources.stated import observation
from schemas.access import AccessRule
from schemas.api_changes import (
    AccessChange,
    ChangeResult,
    DeleteChange,
    MembershipChange,
    UpsertChange,
)
from schemas.events import Priority, SourceCursor
from schemas.keys import DocumentRef

log = logging.getLogger("headwater.gateway")

HEARTBEAT_S = 10.0
AnyChange = UpsertChange | DeleteChange | AccessChange | MembershipChange


@dataclass(frozen=True)
class Planned:
    """One change as an observation."""

    seen: Observation
    priority: Priority = "live"


@dataclass
class Written:
    """What became of one request's changes for one source."""

    results: list[ChangeResult] = field(default_factory=list)
    documents: dict[DocumentRef, tuple[int, int]] = field(default_factory=dict)  # content and access version
    rules: dict[DocumentRef, AccessRule] = field(default_factory=dict)  # where not deleted
    principals: dict[str, int] = field(default_factory=dict)  # version
    places: list[Appended] = field(default_factory=list)  # where its records are, cursors and states left out


def plan(change: AnyChange, source: str) -> Planned:
    """A change as what its source shows now; ``source`` is the gateway's own name."""
    priority: Priority = change.priority if isinstance(change, UpsertChange) else "live"
    return Planned(observation(change, source), priority)


@dataclass(frozen=True)
class Job:
    """One request. Under a key it is done at most once, also by a later writer of the source."""

    planned: list[Planned]
    future: Future[Written]
    key: str | None = None


class _Batch:
    """Requests that are appended together."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.pending: list[Change] = []
        self.owners: dict[int, int] = {}  # id of a change -> number of its job


class SourceWriter:
    """Owns one source. ``submit`` may be called from any thread."""

    def __init__(
        self,
        tenant: str,
        source: str,
        *,
        open_log: Callable[[], OwnerLog],
        bodies: BodyPlacer,
        clock: Clock,
        observed: Metrics,
        limits: Limits,
        passed: Callable[[], dict[int, int] | None] | None = None,
        closed: Callable[[], bool] = lambda: False,
    ) -> None:
        """``passed``: content offsets that every generation has passed; without it superseded bodies stay.
        ``closed``: whether the source must be given up, as its tenant is being erased."""
        self.tenant, self.source = tenant, source
        self._open_log, self._bodies, self._clock = open_log, bodies, clock
        self._metrics, self._limits, self._passed = observed, limits, passed
        self._closed_by_operator = closed
        self._superseded: SupersededBodies | None = None
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._log: OwnerLog | None = None
        self._ledger: Ledger | None = None
        self._writer: OwnerWriter | None = None
        self._seen = SeenKeys()
        self.ended: str | None = None
        self._door = threading.Lock()
        self._closed = False  # nothing that is queued from now on would be served
        self._thread = threading.Thread(target=self._run, name=f"gateway-{source}", daemon=True)
        self._thread.start()

    def submit(self, planned: Sequence[Planned], key: str | None = None) -> Future[Written]:
        """Append a request's changes, unless that was done under this key.

        The future raises BusUnavailable, or Crash where another owner took over.
        """
        future: Future[Written] = Future()
        with self._door:
            if not self._closed:
                self._queue.put(Job(list(planned), future, key))
                return future
        future.set_exception(self._refusal())
        return future

    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._queue.qsize()

    def content_ends(self) -> dict[int, int]:
        """By partition: the offset after our last content event."""
        return dict(self._writer.content_ends) if self._writer is not None else {}

    def close(self) -> None:
        """Finish what is queued, then disconnect."""
        self._queue.put(None)
        self._thread.join(10)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            try:
                first = self._queue.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                self._heartbeat()
                if self.ended is not None:
                    break
                continue
            batch = _Batch()
            stop = not self._collect(first, batch)
            if batch.jobs:
                self._serve(batch)
            if stop or self.ended is not None:
                break
        with self._door:
            self._closed = True
        self._drop()
        self._refuse_rest()

    def _collect(self, first: Job | None, batch: _Batch) -> bool:
        """Everything that waits, up to a bound; False where the end was asked for."""
        item, count = first, 0
        while item is not None:
            batch.jobs.append(item)
            count += len(item.planned)
            if count >= self._limits.events:
                return True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return True
        return False

    def _serve(self, batch: _Batch) -> None:
        try:
            written = self._append(batch)
        except Exception as error:  # whatever it is, each caller hears of it and the ledger is in doubt
            self._drop()
            if isinstance(error, Reject) and len(batch.jobs) > 1:  # one request's fault is not its neighbours'
                for job in batch.jobs:
                    alone = _Batch()
                    alone.jobs.append(job)
                    self._serve(alone)
                return
            if isinstance(error, Crash):
                self.ended = str(error)
            if not isinstance(error, HeadwaterError):
                log.exception("source %s: a request failed", self.source)
            for job in batch.jobs:
                job.future.set_exception(error if isinstance(error, HeadwaterError) else BusUnavailable(str(error)))
            return
        for job, result in zip(batch.jobs, written, strict=True):
            job.future.set_result(result)
        if self._superseded is not None and self._queue.empty():
            self._superseded.step()

    def _append(self, batch: _Batch) -> list[Written]:
        ledger, writer = self._opened()
        written = [Written() for _ in batch.jobs]
        seen = self._seen
        for number, job in enumerate(batch.jobs):
            if job.key is not None and job.key in seen:
                written[number].results += [_result(item.seen, ()) for item in job.planned]
                continue
            seen = seen.with_key(job.key) if job.key is not None else seen
            for item in job.planned:
                made = ledger.observe(item.seen, priority=item.priority)
                self._add(batch, number, made)
                result = _result(item.seen, made)
                if any(change.again for change in made):  # the rule must not wait for a large body to be stored
                    self._flush(writer, batch, written, self._seen)
                    self._add(batch, number, ledger.observe(item.seen, priority=item.priority))
                written[number].results.append(result)
        self._flush(writer, batch, written, seen)
        self._seen = seen
        for job, result_of in zip(batch.jobs, written, strict=True):
            _versions(ledger, job.planned, result_of)
        return written

    def _add(self, batch: _Batch, number: int, made: Sequence[Change]) -> None:
        for change in made:
            batch.pending.append(change)
            batch.owners[id(change)] = number

    def _flush(self, writer: OwnerWriter, batch: _Batch, written: list[Written], seen: SeenKeys) -> None:
        """Append what is pending. The keys go with the last transaction: what they stand for is written then."""
        for transaction, appended in writer.write(batch.pending, self._cursor, lambda: self._cursor(seen)):
            for job, places in _by_job(transaction, appended, batch).items():
                written[job].places += places
        if not batch.pending and seen != self._seen:
            writer.append([cursor_record(self._cursor(seen))])
        batch.pending.clear()

    def _cursor(self, seen: SeenKeys | None = None) -> SourceCursor:
        assert self._ledger is not None
        position = (seen if seen is not None else self._seen).position()
        return self._ledger.cursor(polled_at=self._clock.now(), pending=False, position=position)

    def _opened(self) -> tuple[Ledger, OwnerWriter]:
        """The ledger as the log says, taking the source over where that is not done yet."""
        if self._ledger is None or self._writer is None:
            opened = self._log = self._open_log()
            ledger = Ledger(self.tenant, self.source, self._clock, self._bodies)
            for record in opened.states():
                ledger.load_cursor(record)
            for record in opened.memberships():
                ledger.load_membership(record)
            self._ledger = ledger
            cursor = ledger.cursors.get("changes")
            self._seen = SeenKeys.read(cursor.position if cursor is not None else "")
            self._writer = OwnerWriter(
                ledger, opened.appender, opened.publisher, self._bodies, self._clock, self._metrics, self._limits
            )
            if self._bodies.tree is not None and self._passed is not None:
                self._superseded = SupersededBodies(
                    ledger, self._bodies.tree, opened.content_ends, self._passed, self._clock, self._metrics
                )
        return self._ledger, self._writer

    def _drop(self) -> None:
        self._ledger = self._writer = self._superseded = None
        opened, self._log = self._log, None
        if opened is not None:
            opened.close()

    def _heartbeat(self) -> None:
        """A source that pushes is complete up to now when nothing waits."""
        if self._closed_by_operator():
            self.ended = "the tenant is being erased"
            return
        try:
            _, writer = self._opened()
            writer.append([cursor_record(self._cursor())])
            if self._superseded is not None:
                self._superseded.step()
        except Crash as error:
            self.ended = str(error)
        except HeadwaterError as error:
            log.warning("source %s: %s", self.source, error)
            self._drop()

    def _refuse_rest(self) -> None:
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                item.future.set_exception(self._refusal())

    def _refusal(self) -> HeadwaterError:
        return Crash(self.ended) if self.ended else BusUnavailable("the gateway is stopping")


def _by_job(transaction: Transaction, appended: Sequence[Appended], batch: _Batch) -> dict[int, list[Appended]]:
    """Which of a transaction's records belong to which request."""
    owner_of: dict[int, int] = {}
    for change in transaction.changes:
        owner_of.update(dict.fromkeys(change.versions(), batch.owners[id(change)]))
    places: dict[int, list[Appended]] = {}
    for version, place in zip(transaction.versions(), appended, strict=True):
        if version is not None:
            places.setdefault(owner_of[version], []).append(place)
    return places


def _result(seen: Observation, made: Sequence[Change]) -> ChangeResult:
    refused = next((c.refusal for c in made if c.refusal is not None), None)
    changed = bool(made)
    if isinstance(seen, SourceMembership):
        version = made[0].membership[0].version if made else 0
        return ChangeResult(principal=seen.principal, changed=changed, version=version)
    return ChangeResult(
        document_uid=seen.document.uid,
        document_id=seen.document.id,
        changed=changed,
        outcome="refused" if refused is not None else None,
        reason=refused.reason if refused is not None else None,
    )


def _versions(ledger: Ledger, planned: Sequence[Planned], written: Written) -> None:
    """Fill in the versions that hold now, of unchanged things too."""
    for number, item in enumerate(planned):
        if isinstance(item.seen, SourceMembership):
            part = ledger.members.get(item.seen.principal)
            newest = part.version if part is not None else 0
            written.principals[item.seen.principal] = newest
            written.results[number] = written.results[number].model_copy(update={"version": newest})
            continue
        state = ledger.state(item.seen.document)
        content, access = (state.content_version, state.access_version) if state is not None else (0, 0)
        written.documents[item.seen.document] = (content, access)
        if state is not None and state.rule is not None and not state.deleted:
            written.rules[item.seen.document] = state.rule
        update = {"content_version": content, "access_version": access}
        written.results[number] = written.results[number].model_copy(update=update)
