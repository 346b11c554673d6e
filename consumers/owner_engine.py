"""The owner of one polled or watched source: looks, asks the ledger what is new, appends it.

One thread. A step takes what the watch saw first, then requests, then one slice of bulk work: a live edit waits for one
slice at most. Bulk stops while the index consumers' backlog exceeds the window: the source is the queue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from consumers.owner_writer import OwnerWriter
from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.ports import (
    Appender,
    Outgoing,
    Publisher,
    Record,
    SourceDeletion,
    SourceDocument,
    SourceMembership,
)
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Change, Limits, cursor_record, forgotten_record
from pipeline.sources.connector import Connector, Look, Seen, SourceHidden
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.ledger import Ledger
from schemas.events import Priority, SourceCursor, SourceRequest
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.topics import Topic

log = logging.getLogger("headwater.owner")

REQUESTS = "requests"


class OwnerLog(Protocol):
    """The log as one owner uses it. Making one fences the source's older owner."""

    appender: Appender
    publisher: Publisher

    def states(self) -> Iterator[Record]:
        """Everything in ``cursors`` that may concern the source, in order. Raises BusUnavailable."""
        ...

    def memberships(self) -> Iterator[Record]:
        """Everything in ``membership`` that may concern the source, in order. Raises BusUnavailable."""
        ...

    def content_ends(self) -> dict[int, int]:
        """Next offset of ``content`` by partition. Raises BusUnavailable."""
        ...

    def close(self) -> None: ...


class Requests(Protocol):
    """Requests to one source."""

    def take(self, position: int) -> list[tuple[int, SourceRequest]]:
        """Requests at ``position`` or later that were not taken yet, with their offsets."""
        ...


@dataclass(frozen=True)
class Pace:
    """Times in seconds; ``window`` and ``slice`` in documents."""

    walk_s: float = 30.0
    idle_s: float = 1.0
    heartbeat_s: float = 5.0
    second_look_s: float = 1.0
    window: int = 2000
    slice: int = 50
    live_at_most: int = 100  # a look with more documents than this goes in bulk


@dataclass
class _Job:
    """Documents still to be read, and what they complete."""

    look: Look
    priority: Priority


@dataclass
class _Due:
    """When what is next (``Clock.elapsed``)."""

    walk: float = 0.0
    heartbeat: float = 0.0
    condemned: dict[DocumentRef, float] = field(default_factory=dict)  # seen going, to be deleted at a second look
    confirmed: bool = False


@dataclass
class _Grants:
    """What principals gain, as the newest access state says. It waits for the documents that were seen with it.

    A folder that opens shows at once what the index holds of its documents. So their new places and texts are on the
    log first, and texts that replace older ones are indexed: an old text was meant for the readers of its day.
    """

    memberships: list[SourceMembership]
    undecided: frozenset[str]
    ends: dict[int, int] | None = None  # by partition: content that must be applied; None while documents are read


class OwnerEngine:
    """Use ``start`` once, then ``step`` again and again; after any exception make a new one."""

    def __init__(
        self,
        log_: OwnerLog,
        connect: Callable[[Ledger], Connector],
        *,
        tenant: str,
        source: str,
        clock: Clock,
        bodies: BodyPlacer,
        observed: Metrics,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        pace: Pace = Pace(),
        guard: DeletionGuard = DeletionGuard(),  # noqa: B008 (frozen)
        requests: Requests | None = None,
        applied: Callable[[], dict[int, int] | None] | None = None,
    ) -> None:
        """``applied``: the index consumers' next offset by partition of ``content``; without it bulk never waits."""
        self.ledger = Ledger(tenant, source, clock, bodies)
        self._log, self._clock, self._metrics = log_, clock, observed
        self._pace, self._guard, self._requests, self._applied = pace, guard, requests, applied
        self._writer = OwnerWriter(self.ledger, log_.appender, log_.publisher, bodies, clock, observed, limits)
        self._connect = connect
        self._jobs: deque[_Job] = deque()
        self._due = _Due()
        self._grants: _Grants | None = None
        self._behind = (0, 0)  # backlog when it was last known, and content records written until then
        self._polled_at = 0
        self._request_position = 0
        self._told: set[str] = set()
        self._closed: list[str] = []  # what keeps readers out, as of the newest access state
        self._missing: str | None = None  # suspiciously many missing documents, as of the newest listing
        self._problems: dict[str, None] = {}

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Read what the log knows, watch, and begin a listing. Raises BusUnavailable, Crash or ConfigError."""
        for record in self._log.states():
            self.ledger.load_cursor(record)
        for record in self._log.memberships():
            self.ledger.load_membership(record)
        self._polled_at = self.ledger.cursors["changes"].polled_at if "changes" in self.ledger.cursors else 0
        if self.ledger.live():  # what an earlier owner wrote may not be indexed yet
            self._writer.replaced_ends.update(self._log.content_ends())
        if REQUESTS in self.ledger.cursors:
            self._request_position = int(self.ledger.cursors[REQUESTS].position or 0)
        self.connector = self._connect(self.ledger)
        self.connector.restore(self.ledger.states())
        self.connector.watch()
        self._forget_expired()
        self._listing()

    def close(self) -> None:
        """End the watch; what was planned is on the log."""
        if hasattr(self, "connector"):
            self.connector.close()

    def step(self) -> None:
        """One look and one slice; waits where there is nothing to do. Raises as ``start`` does."""
        credit = bool(self._jobs) and self.backlog() < self._pace.window
        asked = self._clock.now()
        look = self.connector.changes(0.0 if credit else self._pause())
        if look is not None:
            self._take(look)
        self._serve_requests()
        if self._jobs:
            if credit or self._jobs[0].priority == "live":
                self._slice()
        elif self._clock.elapsed() >= self._due.walk:
            self._listing()
        elif look is None and self.connector.degraded is None:
            # Nothing happened, and the watch would have said so: complete up to when it was asked.
            self._polled_at = max(self._polled_at, asked)
        self._grant()
        self._heartbeat()

    def _pause(self) -> float:
        if self._jobs or self._grants is not None:
            return 0.1  # bulk waits for the backlog, grants for the index
        now = self._clock.elapsed()
        return max(0.0, min(self._pace.idle_s, self._due.walk - now, self._due.heartbeat - now))

    def backlog(self) -> int:
        """Content records of ours that the index consumers have not applied."""
        if self._applied is None:
            return 0
        applied, out = self._applied(), self._writer.content_records
        if applied is None:  # nobody can say: what went out since then counts as behind
            behind, known = self._behind
            return behind + out - known
        behind = sum(max(0, end - applied.get(p, 0)) for p, end in self._writer.content_ends.items())
        self._behind = (behind, out)
        return behind

    @property
    def problems(self) -> list[str]:
        """What was passed by or put off since the newest listing began, and why."""
        return list(self._problems)

    @property
    def alarms(self) -> list[str]:
        """What someone has to see to: readers kept out, documents missing."""
        return self._closed + ([self._missing] if self._missing is not None else [])

    @property
    def busy(self) -> bool:
        """Whether documents seen are still to be read."""
        return bool(self._jobs)

    # ------------------------------------------------------------ looks

    def _listing(self) -> None:
        self._due.walk = self._clock.elapsed() + self._pace.walk_s
        self._take(self.connector.listing())

    def _take(self, look: Look) -> None:
        """What takes away goes first: memberships, then deletions; documents follow, at once or in slices; then what
        memberships give."""
        if look.listing:  # what a walk no longer says is over
            self._problems, self._missing = {}, None
        if look.memberships is not None:
            self._closed = list(look.alarms)
        self._told &= {*self._problems, *self.alarms, *look.problems}
        self._report(look)
        if look.memberships is not None:
            changes = self.ledger.memberships(look.memberships, whole=True, gains=False, undecided=look.undecided)
            self._write(changes)
            self._grants = _Grants(look.memberships, look.undecided)
        if look.complete and look.gone:
            self._gone(look)
        if look.listing and look.complete:
            self._due.confirmed = False
        bulk = look.expected > self._pace.live_at_most or (look.listing and self._polled_at == 0)
        self._jobs.append(_Job(look, "bulk" if bulk else "live"))
        if not bulk and len(self._jobs) == 1:
            self._slice()
        elif not bulk:  # before the bulk work that waits
            self._jobs.rotate(1)
            self._slice()
        self._grant()

    def _grant(self) -> None:
        """Write what memberships give, once no older state of a document stands that it would open."""
        grants = self._grants
        if grants is None or any(job.look.replaced for job in self._jobs):
            return
        if grants.ends is None:
            grants.ends = dict(self._writer.replaced_ends)
        if grants.ends and self._applied is not None:
            applied = self._applied()
            if applied is None or any(applied.get(partition, 0) < end for partition, end in grants.ends.items()):
                return
        self._grants = None
        self._write(self.ledger.memberships(grants.memberships, whole=True, undecided=grants.undecided))

    def _slice(self) -> None:
        """The next documents of the first job."""
        job = self._jobs[0]
        changes: list[Change] = []
        taken = self._pace.slice if job.priority == "bulk" else self._pace.live_at_most + 1
        for _ in range(taken):
            seen = next(job.look.seen, None)
            if seen is None:
                self._jobs.popleft()
                self._finished(job, changes)
                return
            changes = self._observe(seen, job.priority, changes)
        self._write(changes)

    def _finished(self, job: _Job, changes: list[Change]) -> None:
        self._report(job.look)
        if job.look.complete and not self._jobs and (job.look.listing or self.connector.degraded is None):
            self._polled_at = max(self._polled_at, job.look.began)
        if self._write(changes) == 0 and job.look.listing:
            self._write_cursor()

    def _observe(self, seen: Seen, priority: Priority, changes: list[Change], *, force: bool = False) -> list[Change]:
        """Add what an observation changes; a revocation that may not wait is written on the spot."""
        if isinstance(seen, SourceHidden):
            self.connector.held(seen.document)
            return changes + self.ledger.hold(seen.document, active=True, reason=seen.reason)
        self._due.condemned.pop(seen.document, None)  # it came back: its going says nothing of another time
        new = self.ledger.observe(seen, priority=priority, force=force)
        if not any(change.again for change in new):
            return changes + new
        self._write(changes + new)
        return self.ledger.observe(seen, priority=priority)

    # ------------------------------------------------------------ deletions

    def _gone(self, look: Look) -> None:
        now = self._clock.elapsed()
        certain: list[SourceDeletion] = []
        missing: list[SourceDeletion] = []
        for gone in look.gone:
            at = self._due.condemned.get(gone.document)
            (certain if at is not None and now >= at else missing).append(gone)
        if self._due.confirmed or not self._guard.suspicious(len(missing), self.ledger.live()):
            certain, missing = certain + missing, []
        self._delete(certain)
        self._hide(missing, look)

    def _delete(self, gone: list[SourceDeletion]) -> None:
        changes: list[Change] = []
        for deletion in gone:
            changes += self.ledger.deletion(deletion)
            self.connector.deleted(deletion.document)
            self._due.condemned.pop(deletion.document, None)
        self._write(changes)

    def _hide(self, missing: list[SourceDeletion], look: Look) -> None:
        """Suspiciously many: hidden at once, deleted at a second look where their going was seen, else by request."""
        if not missing:
            return
        changes: list[Change] = []
        for deletion in missing:
            changes += self.ledger.hold(deletion.document, active=True, reason="missing at the source")
            self.connector.held(deletion.document)
            if look.watched:
                self._due.condemned[deletion.document] = self._clock.elapsed() + self._pace.second_look_s
        self._write(changes)
        if look.watched:
            self._due.walk = min(self._due.walk, self._clock.elapsed() + self._pace.second_look_s + 0.05)
            return
        self._missing = (
            f"{len(missing)} of {self.ledger.live()} documents are missing: hidden, not deleted; bring them back, "
            "or request a listing that confirms the deletions"
        )
        self._tell(self._missing, "alarm")

    # ------------------------------------------------------------ requests

    def _serve_requests(self) -> None:
        if self._requests is None:
            return
        for offset, request in self._requests.take(self._request_position):
            done = self._serve(request)
            self._request_position = offset + 1
            self._write_cursor(self._request_cursor())
            receipt = Receipt(
                lane="control",
                tenant=request.tenant,
                source=request.source,
                document=request.document,
                event_type=request.type,
                version=self.ledger.last_version,
                outcome="done" if done is None else "refused",
                reason=done,
                request_id=request.request_id,
            )
            record = Outgoing(Topic.RECEIPTS, request.request_id, receipt.model_dump_json().encode())
            self._log.publisher.publish([record])

    def _serve(self, request: SourceRequest) -> str | None:
        """Do what is asked; why it is refused, None where it is done."""
        if request.type == "listing":
            self._due.confirmed |= request.confirm_deletions
            self._listing()
            return None
        document = request.document
        if document is None or (document.tenant, document.source) != (self.ledger.tenant, self.ledger.source):
            return "document: must name a document of this source"
        if request.type == "lift_hold":
            if request.hold is None:
                return "hold: must say which"
            reason = f"lifted by request {request.request_id}"
            self._write(self.ledger.hold(document, active=False, reason=reason, name=request.hold))
            return None
        seen = self.connector.read(document)
        if seen is None:
            return "document: is not known at the source"
        if isinstance(seen, SourceDeletion):
            self._delete([seen])
        else:
            self._write(self._observe(seen, "live", [], force=isinstance(seen, SourceDocument)))
        return None

    # ------------------------------------------------------------ writing

    def _write(self, changes: list[Change]) -> int:
        return len(self._writer.write(changes, self._cursor)) if changes else 0

    def _cursor(self) -> SourceCursor:
        self._due.heartbeat = self._clock.elapsed() + self._pace.heartbeat_s
        return self.ledger.cursor(polled_at=self._polled_at, pending=bool(self._jobs))

    def _request_cursor(self) -> SourceCursor:
        return self.ledger.cursor(
            polled_at=self._clock.now(), pending=False, position=str(self._request_position), stream=REQUESTS
        )

    def _write_cursor(self, cursor: SourceCursor | None = None) -> None:
        self._writer.append([cursor_record(cursor or self._cursor())])

    def _heartbeat(self) -> None:
        """A cursor every few seconds, whatever else happens: it tells how complete the source is, and who lives."""
        age = max(0, self._clock.now() - self._polled_at) / 1e6
        self._metrics.set("headwater_poll_age_seconds", age, source=self.ledger.source)
        if self._clock.elapsed() >= self._due.heartbeat:
            self._write_cursor()

    def _forget_expired(self) -> None:
        records = [forgotten_record(document) for document in self.ledger.expired()]
        if records:
            self._writer.append(records)

    # ------------------------------------------------------------ telling

    def _report(self, look: Look) -> None:
        self._problems |= dict.fromkeys(look.problems)
        for alarm in look.alarms:
            self._tell(alarm, "alarm")
        for problem in look.problems:
            self._tell(problem, "problem")

    def _tell(self, text: str, kind: str) -> None:
        """Once, until it is over."""
        if text in self._told:
            return
        self._told.add(text)
        self._metrics.count("headwater_source_errors_total", source=self.ledger.source, kind=kind)
        log.log(logging.ERROR if kind == "alarm" else logging.WARNING, "source %s: %s", self.ledger.source, text)
