"""The requests to one source: which are answered, which are under way, and how an answer becomes durable.

The position is kept in the source's cursor of stream ``requests`` (``schemas.reconciliation.RequestsPosition``). A
request is noted there before work on it begins, and its receipt is in the transaction that notes it as answered: an
owner that dies in between begins it anew, so it is answered once and never lost. What had been done by then is found
done: documents that the log knows are not appended again, holds that stand are not laid on again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pipeline.clock import Clock
from pipeline.ports import Outgoing
from pipeline.sources.changes import cursor_record
from pipeline.sources.ledger import Ledger
from pipeline.sources.tally import Tally
from schemas.events import REQUESTS_STREAM, SourceRequest
from schemas.receipts import Receipt, StageTimes
from schemas.reconciliation import OpenRequest, OwnerStatus, RequestsPosition
from schemas.topics import Topic

MAX_ATTEMPTS = 5
"""How often a request may be begun: one that ends its owner must not do so for ever."""
BEAT_S = 1.0
"""How often progress is told."""
RECEIPTS = 150
"""Of notifications, in one transaction."""
LONG = ("listing", "backfill", "reset")
SWITCHES = ("pause", "resume")
"""Served before any other: they say whether anything is to be done."""


class Requests(Protocol):
    """Requests to one source."""

    def take(self, position: int) -> list[tuple[int, SourceRequest]]:
        """Requests at ``position`` or later, with their offsets."""
        ...


@dataclass
class Task:
    """A request and how far it is."""

    offset: int
    request: SourceRequest
    attempts: int = 0
    version: int = 0  # the source's last version when it was begun first
    tally: Tally | None = None  # once it is begun

    def open(self) -> OpenRequest:
        """As it is told while it is not answered."""
        tally = self.tally
        return OpenRequest(
            offset=self.offset,
            request_id=self.request.request_id,
            type=self.request.type,
            state="begun" if tally is not None else "queued",
            attempts=self.attempts,
            version=self.version,
            done=tally.done if tally is not None else 0,
            expected=tally.expected if tally is not None else 0,
        )


class RequestDesk:
    """Used by the owner's thread; ``append`` writes records in one transaction."""

    def __init__(
        self, ledger: Ledger, requests: Requests, clock: Clock, append: Callable[[Sequence[Outgoing]], None]
    ) -> None:
        self._ledger, self._requests, self._clock, self._append = ledger, requests, clock, append
        cursor = ledger.cursors.get(REQUESTS_STREAM)
        known = RequestsPosition.read(cursor.position if cursor is not None else "")
        self._next = known.next  # everything before it is answered
        self._answered = set(known.answered)
        self._begun = {item.offset: item for item in known.open}
        self.paused = known.paused
        self.status = known.status  # as it was told last, by an earlier owner too
        self._untaken = known.next
        self._tasks: list[Task] = []
        self._told = (0.0, known.open)  # when, and what of the open ones

    def ready(self, *, long: bool) -> Iterator[Task]:
        """What is to be begun, in order: short requests at once, one of the long ones where ``long`` allows."""
        self._collect()
        waiting = [task for task in self._tasks if task.tally is None]
        yield from [task for task in waiting if task.request.type in SWITCHES]
        if self.paused:
            return
        yield from [task for task in waiting if task.request.type not in (*LONG, *SWITCHES)]
        yield from [task for task in waiting if task.request.type in LONG][: int(long)]

    def _collect(self) -> None:
        for offset, request in self._requests.take(self._untaken):
            if offset < self._untaken:
                continue
            self._untaken = offset + 1
            if offset in self._answered:
                continue
            before = self._begun.get(offset)
            attempts, version = (before.attempts, before.version) if before is not None else (0, 0)
            self._tasks.append(Task(offset, request, attempts, version))

    def notified(self) -> list[SourceRequest]:
        """Notifications that came, all answered together: there may be thousands, as after a pause."""
        self._collect()
        tasks = [task for task in self._tasks if task.request.type == "notify"]
        if not tasks:
            return []
        self._tasks = [task for task in self._tasks if task.request.type != "notify"]
        self._answered.update(task.offset for task in tasks)
        self._next = min((other.offset for other in self._tasks), default=self._untaken)
        self._answered = {offset for offset in self._answered if offset > self._next}
        for first in range(0, len(tasks), RECEIPTS):
            self._tell(*(self._receipt(task, "done", None) for task in tasks[first : first + RECEIPTS]))
        return [task.request for task in tasks]

    def begin(self, task: Task) -> Tally:
        """Note that work on it begins; where its counts are kept. Raises as appending does."""
        task.attempts += 1
        if task.version == 0:
            task.version = self._ledger.last_version
        request = task.request
        task.tally = Tally(request.request_id, request.type, self._clock.now(), attempts=task.attempts)
        task.tally.repair = request.repair
        task.tally.known = self._ledger.live()
        self._tell()
        return task.tally

    def spent(self, task: Task) -> bool:
        """Whether it has been begun as often as may be."""
        return task.attempts >= MAX_ATTEMPTS

    def answer(self, task: Task, outcome: Literal["done", "refused"], reason: str | None = None) -> None:
        """The receipt, and that it is answered, in one transaction."""
        receipt = self._receipt(task, outcome, reason)
        self._tasks.remove(task)
        self._answered.add(task.offset)
        open_ = {other.offset for other in self._tasks}
        self._next = min(open_, default=self._untaken)
        self._answered = {offset for offset in self._answered if offset > self._next}
        self._tell(receipt)

    def _receipt(self, task: Task, outcome: Literal["done", "refused"], reason: str | None) -> Outgoing:
        now, request = self._clock.now(), task.request
        tally = task.tally or Tally(request.request_id, request.type, now, attempts=max(1, task.attempts))
        report = tally.report(self._ledger.tenant, self._ledger.source, now)
        receipt = Receipt(
            lane="source",
            tenant=request.tenant,
            source=request.source,
            document=request.document,
            event_type=f"request.{request.type}",
            version=self._ledger.last_version,
            outcome=outcome,
            reason=reason,
            request_id=request.request_id,
            times=StageTimes(observed_at=request.requested_at, started_at=tally.began_at),
            details=report.model_dump(mode="json"),
        )
        return Outgoing(Topic.RECEIPTS, request.request_id, receipt.model_dump_json().encode())

    def beat(self) -> None:
        """Tell how far the open ones are, where that changed, once a second at most."""
        at, what = self._told
        if self._tasks and self._clock.elapsed() - at >= BEAT_S and self._open() != what:
            self._tell()

    def again(self, task: Task) -> None:
        """A request whose work was broken off: it is begun once more when its turn comes."""
        task.tally = None

    def tell(self, status: OwnerStatus) -> None:
        """How the owner is. Raises as appending does."""
        self.status = status
        self._tell()

    def _open(self) -> tuple[OpenRequest, ...]:
        return tuple(task.open() for task in self._tasks)

    def _tell(self, *more: Outgoing) -> None:
        """The position as it is now, with what belongs to it."""
        self._told = (self._clock.elapsed(), self._open())
        position = RequestsPosition(
            next=self._next,
            answered=tuple(sorted(self._answered)),
            open=self._told[1],
            paused=self.paused,
            status=self.status,
        )
        cursor = self._ledger.cursor(
            polled_at=self._clock.now(),
            pending=False,
            position=position.model_dump_json(exclude_defaults=True),
            stream=REQUESTS_STREAM,
        )
        self._append([*more, cursor_record(cursor)])
