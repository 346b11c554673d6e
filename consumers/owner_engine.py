"""The owner of one polled or watched source: looks, asks the ledger what is new, appends it.

One thread. A step takes what the watch saw first, then requests, then one slice of bulk work: a live edit waits for one
slice at most. Bulk stops while the index consumers' backlog exceeds the window: the source is the queue. A backfill, or
a listing that only counts, is done on the side: looks and walks go before it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from consumers.owner_absence import Absences
from consumers.owner_errands import Errands
from consumers.owner_grants import Grants
from consumers.owner_jobs import Job, Pace
from consumers.owner_requests import LONG, SWITCHES, RequestDesk, Requests, Task
from consumers.owner_status import Telling
from consumers.owner_writer import OwnerWriter
from consumers.superseded import SupersededBodies
from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.ports import (
    Appender,
    Publisher,
    Record,
    SourceAccess,
    SourceDeletion,
    SourceDocument,
    SourceMembership,
)
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Change, Limits, cursor_record, forgotten_record
from pipeline.sources.compare import compare
from pipeline.sources.connector import Connector, Look, Mark, Seen, SourceHidden, SourceUnavailable
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.ledger import Ledger
from pipeline.sources.tally import Tally
from schemas.events import Quarantine, SourceCursor
from schemas.reconciliation import ReconciliationReport

log = logging.getLogger("headwater.owner")


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


@dataclass
class _Due:
    """When what is next (``Clock.elapsed``)."""

    walk: float = 0.0
    heartbeat: float = 0.0


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
        pace: Pace = Pace(),  # noqa: B008 (frozen)
        guard: DeletionGuard = DeletionGuard(),  # noqa: B008 (frozen)
        quarantine_s: float = 7 * 86_400,
        requests: Requests | None = None,
        applied: Callable[[], dict[int, int] | None] | None = None,
        passed: Callable[[], dict[int, int] | None] | None = None,
    ) -> None:
        """``quarantine_s``: how long what is missing stays hidden before it is deleted. ``applied``: the index
        consumers' next offset by partition of ``content``; without it bulk never waits. ``passed``: the same that
        every generation has reached; without it superseded bodies stay."""
        self.ledger = Ledger(tenant, source, clock, bodies)
        self._log, self._clock, self._metrics = log_, clock, observed
        self._pace, self._requests, self._applied = pace, requests, applied
        self._absences = Absences(
            self.ledger, clock, guard, quarantine_s=quarantine_s, second_look_s=pace.second_look_s
        )
        self._writer = OwnerWriter(self.ledger, log_.appender, log_.publisher, bodies, clock, observed, limits)
        self._connect = connect
        self._jobs: deque[Job] = deque()
        self._side: Job | None = None
        self._desk: RequestDesk | None = None
        self._telling = Telling(self, clock, observed)
        self.listed: ReconciliationReport | None = None  # what the newest listing found
        self.starved = False  # bulk work waits for the index
        self._due = _Due()
        self._grants = Grants(self.ledger, applied)
        self._superseded: SupersededBodies | None = None
        if bodies.tree is not None and passed is not None:
            self._superseded = SupersededBodies(self.ledger, bodies.tree, log_.content_ends, passed, clock, observed)
        self._behind = (0, 0)  # backlog when it was last known, and content records written until then
        self._polled_at = 0
        self._position = ""  # the cursor on the log
        self._positions: deque[Job] = deque()  # jobs whose looks have a cursor, in the order of the looks
        self._woken = threading.Event()
        self._resting = False  # the job in hand waits for its source
        self._listing_failed = 0  # times in a row
        self._told: set[str] = set()
        self._closed: list[str] = []  # what keeps readers out, as of the newest access state
        self._problems: dict[str, None] = {}

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Read what the log knows, watch, and begin a listing. Raises BusUnavailable, Crash or ConfigError."""
        for record in self._log.states():
            self.ledger.load_cursor(record)
        for record in self._log.memberships():
            self.ledger.load_membership(record)
        if (cursor := self.ledger.cursors.get("changes")) is not None:
            self._polled_at, self._position = cursor.polled_at, cursor.position
        if self.ledger.live():  # what an earlier owner wrote may not be indexed yet
            self._writer.replaced_ends.update(self._log.content_ends())
        if self._requests is not None:
            self._desk = RequestDesk(self.ledger, self._requests, self._clock, self._writer.append)
            self._telling.restore(self._desk.status)
        self._connected()
        self._forget_expired()
        if not self.paused:
            self._listing()

    def _connected(self) -> None:
        """A connector that knows what the log knows."""
        self.connector = self._connect(self.ledger)
        self._errands = Errands(self.ledger, self.connector, self._absences, self._clock, self._observe, self._write)
        self.connector.restore(self.ledger.states(), self._position)
        self.connector.watch()

    def close(self) -> None:
        """End the watch; what was planned is on the log."""
        if self._side is not None and self._side.connector is not None:
            self._side.connector.close()
        if hasattr(self, "connector"):
            self.connector.close()

    def step(self) -> None:
        """One look and one slice; waits where there is nothing to do. Raises as ``start`` does."""
        if self.paused:
            self._rest()
            return
        counting = self._side is not None and self._side.mode == "count"
        bulk = bool(self._jobs) or self._side is not None
        credit = bulk and self.backlog() < self._pace.window
        self.starved = bulk and not credit
        asked = self._clock.now()
        rest = self._pace.rest_s if self._resting else 0.0
        self._resting = False
        look = self.connector.changes(rest if credit or counting else self._pause())
        if look is not None:
            self._take(look, Tally(f"watch-{asked}", "listing", asked))
        self._serve_requests()
        if self._jobs:
            if credit or self._jobs[0].priority == "live" or self._jobs[0].look.free:
                self._slice(self._jobs[0])
        elif self._clock.elapsed() >= self._due.walk:
            self._listing()
        else:
            if look is None and self.connector.watched:
                # Nothing happened, and the watch would have said so: complete up to when it was asked.
                self._polled_at = max(self._polled_at, asked)
            if self._side is not None and (credit or counting):
                self._slice(self._side)
        self._grant()
        self._heartbeat()

    def wake(self) -> None:
        """Look for requests at once (any thread)."""
        self._woken.set()
        if hasattr(self, "connector"):
            self.connector.wake()

    def _rest(self) -> None:
        """A paused source: only requests are served, and a sign of life is given."""
        self._woken.wait(self._pace.idle_s)
        self._woken.clear()
        self._serve_requests()
        self._heartbeat()

    def _pause(self) -> float:
        if self._jobs or self._side is not None or self._grants.waiting:
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
    def paused(self) -> bool:
        """Whether nothing is to be read, by request."""
        return self._desk is not None and self._desk.paused

    @property
    def problems(self) -> list[str]:
        """What was passed by or put off since the newest listing began, and why."""
        return list(self._problems)

    @property
    def alarms(self) -> list[str]:
        """What someone has to see to: readers kept out, documents missing."""
        return self._closed + ([self._absences.alarm] if self._absences.alarm is not None else [])

    @property
    def busy(self) -> bool:
        """Whether documents seen are still to be read."""
        return bool(self._jobs)

    # ------------------------------------------------------------ looks

    def _listing(self, task: Task | None = None) -> None:
        """Begin a look at everything; ``task`` is the request that asks for it."""
        self._due.walk = self._clock.elapsed() + self._pace.walk_s
        now = self._clock.now()
        tally = task.tally if task is not None and task.tally is not None else Tally(f"walk-{now}", "listing", now)
        tally.known = self.ledger.live()
        try:
            look = self.connector.listing()
        except (SourceUnavailable, OSError) as error:
            look = self._failed(error)
        self._take(look, tally, task)

    def _failed(self, error: Exception) -> Look:
        """A listing that could not begin."""
        problem = f"the source cannot be listed: {error}"
        return Look(self._clock.now(), iter(()), complete=False, listing=True, problems=[problem])

    def _take(self, look: Look, tally: Tally, task: Task | None = None) -> None:
        """What takes away goes first: memberships, then deletions; documents follow, at once or in slices; then what
        memberships give."""
        if look.listing:  # what a walk no longer says is over
            self._problems, self._absences.alarm = {}, None
        if look.memberships is not None:
            self._closed = list(look.alarms)
        self._told &= {*self._problems, *self.alarms, *look.problems}
        self._report(look)
        if look.memberships is not None:
            if look.listing:
                tally.memberships = self.ledger.differing(look.memberships, look.undecided)
            changes = self.ledger.memberships(look.memberships, whole=True, gains=False, undecided=look.undecided)
            self._write(changes)
            self._grants.take(look.memberships, look.undecided)
        bulk = look.bulk
        if bulk is None:
            bulk = look.expected > self._pace.live_at_most or (look.listing and self._polled_at == 0)
        job = Job(look, "bulk" if bulk else "live", tally, task=task)
        job.confirmed = task is not None and task.request.confirm_deletions
        tally.expected = look.expected
        self._settle_found(job, missing=False)
        if look.position is not None:
            self._positions.append(job)
        self._jobs.append(job)
        if not bulk:
            self._jobs.rotate(1)  # before the bulk work that waits
            self._slice(job)
        self._grant()

    def _grant(self) -> None:
        """Write what memberships give, once no older state of a document stands that it would open."""
        if not (self.connector.behind or any(job.look.replaced for job in self._jobs)):
            self._write(self._grants.ready(self._writer.replaced_ends))

    def _slice(self, job: Job) -> None:
        """The next documents of a job, for about a tenth of a second at most."""
        changes: list[Change] = []
        taken = self._pace.live_at_most + 1 if job.priority == "live" else self._pace.slice
        end = self._clock.elapsed() + self._pace.slice_s
        for _ in range(taken):
            try:
                seen = next(job.look.seen, None)
            except (SourceUnavailable, OSError) as error:
                job.look.complete, seen = False, None
                job.look.problems.append(f"the source stopped answering: {error}")
            if seen is None:
                self._finished(job, changes)
                return
            if seen is Mark.SETTLE:
                self._write(changes)
                changes = []
                self._settle_found(job, missing=True)
            elif isinstance(seen, Mark):
                self._resting = seen is Mark.WAIT
                break
            else:
                changes = self._observe(seen, job, changes)
            if self._clock.elapsed() >= end:
                break
        self._write(changes)
        self._report(job.look)

    def _finished(self, job: Job, changes: list[Change]) -> None:
        look, tally = job.look, job.tally
        self._report(look)
        if job is self._side:
            self._side = None
        else:
            self._jobs.remove(job)
            if look.missing and self._jobs and not job.put_off:
                job.put_off = True
                self._jobs.append(job)
                self._write(changes)
                return
            if look.complete and not self._jobs and (look.listing or look.whole or self.connector.watched):
                self._polled_at = max(self._polled_at, look.began)
        if look.position is not None and not look.complete:
            self._write(changes)
            raise SourceUnavailable("; ".join(look.problems[:3]))  # to begin anew from the cursor on the log
        position = self._advanced(job)
        written = self._write(changes, position)
        if not look.complete:
            tally.incomplete(look.problems)
        else:
            self._settle_found(job, missing=True)
        tally.listed = look.listed
        if look.listing and job.mode == "publish":
            self._list_again(look.complete)
            self.listed = tally.report(self.ledger.tenant, self.ledger.source, self._clock.now())
            if written == 0 and not position:
                self._write_cursor()
        if job.connector is not None:
            job.connector.close()
        if job.task is not None and self._desk is not None:
            failed = not look.complete and not look.listed and tally.done == 0
            reason = "; ".join(look.problems[:3]) or "the source could not be listed" if failed else None
            self._desk.answer(job.task, "refused" if failed else "done", reason)

    def _list_again(self, complete: bool) -> None:
        """A listing that broke off is not left for as long as one that met everything: soon, then ever later."""
        self._listing_failed = 0 if complete else self._listing_failed + 1
        if not complete:
            pause = self._pace.relist_s * 2.0 ** min(self._listing_failed - 1, 20)
            self._due.walk = min(self._due.walk, self._clock.elapsed() + pause)

    def _advanced(self, job: Job) -> str | None:
        """The cursor that may go to the log now that a job is read to its end; None where it stays."""
        job.read = True
        reached: str | None = None
        while self._positions and self._positions[0].read:
            position = self._positions.popleft().look.position
            if position is None:  # it was left unread: later looks were asked from beyond it
                for later in self._positions:
                    later.look.position = None
            reached = position or reached
        return reached if reached != self._position else None

    def _observe(self, seen: Seen, job: Job, changes: list[Change]) -> list[Change]:
        """Add what an observation changes; a revocation that may not wait is written on the spot."""
        if isinstance(seen, SourceMembership):
            return changes + self.ledger.observe(seen)
        document, tally = seen.document, job.tally
        if isinstance(seen, SourceDeletion | SourceAccess):
            return changes + self._stated(seen, job)
        if job.mode == "count":
            if isinstance(seen, SourceDocument):
                tally.compared(document, compare(seen, self.ledger.state(document)))
            return changes
        for other in self._jobs:
            if other is not job and other.look.listing:
                other.met.add(document)
        if isinstance(seen, SourceHidden):
            return changes + self._unreadable(seen, tally)
        self._absences.seen(document)
        again = job.mode == "again"
        known = self.ledger.state(document) if again else None
        if known is not None and job.task is not None and known.content_version > job.task.version:
            tally.done += 1
            return changes  # appended since the request was begun first
        new = self.ledger.document(seen, priority=job.priority, force=again, restate=again)
        tally.compared(document, next((change.verdict for change in new), None))
        if new:
            tally.note("repaired", document)
        if not any(change.again for change in new):
            return changes + new
        self._write(changes + new)
        return self.ledger.document(seen, priority=job.priority)

    def _stated(self, seen: SourceDeletion | SourceAccess, job: Job) -> list[Change]:
        """What a source says in one order with its documents: a deletion, or a rule alone."""
        if job.mode == "count":
            return []
        job.tally.done += 1
        new = self.ledger.observe(seen)
        if new:
            job.tally.note("repaired", seen.document)
        if new and isinstance(seen, SourceDeletion):
            job.tally.note("purged", seen.document)
            self.connector.deleted(seen.document)
        return new

    def _unreadable(self, seen: SourceHidden, tally: Tally) -> list[Change]:
        tally.done += 1
        state = self.ledger.state(seen.document)
        if state is not None and state.quarantine is not None and state.quarantine.overruled:
            return []
        self.connector.held(seen.document)
        cause = Quarantine(since=self._clock.now(), by=tally.id)
        changes = self.ledger.hold(seen.document, active=True, reason=seen.reason, quarantine=cause)
        if changes:
            tally.note("held", seen.document)
            tally.note("repaired", seen.document)
        return changes

    # ------------------------------------------------------------ deletions

    def _settle_found(self, job: Job, *, missing: bool) -> None:
        """What a look found gone so far, and with ``missing`` what it did not meet."""
        look = job.look
        if not look.complete:
            return
        gone, look.gone = look.gone, []
        if gone:
            self._settle(job, gone, proven=True)
        if missing and look.missing:  # what another look met meanwhile is there
            lacking, look.missing = [d for d in look.missing if d.document not in job.met], []
            self._settle(job, lacking, proven=False)

    def _settle(self, job: Job, lacking: list[SourceDeletion], *, proven: bool) -> None:
        if job.mode == "count":
            self._absences.count(lacking, job.tally)
            return
        settled = self._absences.settle(job.look, lacking, job.tally, proven=proven, confirmed=job.confirmed)
        settled.tell(self.connector)
        self._write(settled.changes)
        if settled.again:
            self._due.walk = min(self._due.walk, self._clock.elapsed() + self._pace.second_look_s + 0.05)
        if self._absences.alarm is not None:
            self._tell(self._absences.alarm, "alarm")

    # ------------------------------------------------------------ requests

    def _serve_requests(self) -> None:
        desk = self._desk
        if desk is None:
            return
        for request in desk.notified():
            if not desk.paused:  # the listing after the pause sees whatever happened
                self.connector.notify(request.document)
        for task in desk.ready(long=not self._jobs and self._side is None):
            if desk.spent(task):
                desk.answer(task, "refused", f"the owner began it {task.attempts} times and ended each time")
                continue
            tally = desk.begin(task)
            if task.request.type in SWITCHES:
                self._switch(desk, task)
                continue
            if task.request.type in LONG:
                self._begin(task, tally)
                continue
            refused = self._errands.serve(task.request, tally)
            desk.answer(task, "done" if refused is None else "refused", refused)
        desk.beat()

    def _switch(self, desk: RequestDesk, task: Task) -> None:
        """Pause or resume. What was being read is read again by the listing after the pause."""
        resumes = desk.paused and task.request.type == "resume"
        desk.paused = task.request.type == "pause"
        desk.answer(task, "done")
        if desk.paused:
            self._break_off(desk)
        elif resumes:
            self._begin_anew()
            self._listing()

    def _break_off(self, desk: RequestDesk) -> None:
        """Drop what is being read; requests that asked for it are begun once more."""
        side = [self._side] if self._side is not None else []
        for job in [*self._jobs, *side]:
            if job.task is not None:
                desk.again(job.task)
            if job.connector is not None:
                job.connector.close()
        self._side = None
        self._jobs.clear()
        self._positions.clear()

    def _begin_anew(self) -> None:
        """With a connector that knows what the log knows, and nothing of what was told since."""
        self.connector.close()
        self._grants.forget()
        self._connected()

    def _begin(self, task: Task, tally: Tally) -> None:
        """A request that takes its time."""
        request = task.request
        if request.type == "reset":
            self.ledger.doubt()
            self._position = ""
            self._positions.clear()
            self._begin_anew()
            self._listing(task)
            return
        if request.type == "listing" and request.repair:
            self._listing(task)
            return
        again = request.type == "backfill"
        own: Connector | None = None
        try:
            if again:
                until = request.updated_until if request.updated_until is not None else self._clock.now() + 1
                look = self.connector.updated(request.updated_from or 0, until)
            else:  # a connector that nobody else uses: what it has met does not count as met
                own = self._connect(self.ledger)
                own.restore(self.ledger.states(), "")
                look = own.listing()
        except (SourceUnavailable, OSError, ConfigError) as error:
            look = self._failed(error)
        job = Job(look, "bulk", tally, "again" if again else "count", task=task, connector=own)
        tally.expected = look.expected
        if look.listing and look.memberships is not None:
            tally.memberships = self.ledger.differing(look.memberships, look.undecided)
        if look.listing:
            self._settle_found(job, missing=False)
        self._side = job

    # ------------------------------------------------------------ writing

    def _write(self, changes: list[Change], position: str | None = None) -> int:
        """Append; the number of transactions. ``position`` is the cursor to go with the last of them (invariant 9)."""
        if not changes and position is None:
            return 0

        def last() -> SourceCursor:
            if position is not None:
                self._position = position
            return self._cursor()

        written = len(self._writer.write(changes, self._cursor, last))
        if written == 0:
            self._writer.append([cursor_record(last())])
        if position is not None:
            self.connector.committed(position)
        return written

    def _cursor(self) -> SourceCursor:
        self._due.heartbeat = self._clock.elapsed() + self._pace.heartbeat_s
        return self.ledger.cursor(polled_at=self._polled_at, pending=bool(self._jobs), position=self._position)

    def _write_cursor(self) -> None:
        self._writer.append([cursor_record(self._cursor())])

    def _heartbeat(self) -> None:
        """A cursor every few seconds, whatever else happens: it tells how complete the source is, and who lives."""
        age = max(0, self._clock.now() - self._polled_at) / 1e6
        self._metrics.set("headwater_poll_age_seconds", age, source=self.ledger.source)
        if self._clock.elapsed() >= self._due.heartbeat:
            self._write_cursor()
        if self._desk is not None:
            self._telling.step(self._desk.tell)
        if self._superseded is not None:
            self._superseded.step()

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
