"""Asks a source's owner for work and waits for its receipt, telling how far it is."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pipeline.bus.interface import Tail
from pipeline.clock import Clock
from pipeline.errors import HeadwaterError
from pipeline.operate.owned import of_source
from pipeline.ports import Outgoing, ProgressBar, Publisher, Record
from pipeline.settings import Settings
from schemas.events import REQUESTS_STREAM, SourceCursor, SourceRequest
from schemas.keys import cursor_key
from schemas.receipts import Receipt
from schemas.reconciliation import OpenRequest, ReconciliationReport, RequestsPosition
from schemas.topics import Topic

POLL_MS = 200
ANSWER_S = 30.0
"""How long an owner may take to note a request, restarts of its process not included."""
SILENT_S = 60.0
"""How long an owner that works on a request may write nothing: it writes every few seconds."""
CREDIT = 100


class Unanswered(HeadwaterError):
    """No answer came in time. The request stands: its owner answers it later."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem, self.remedy = problem, remedy


class Declined(HeadwaterError):
    """The owner refused, or nobody could do what was asked."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem, self.remedy = problem, remedy


@dataclass(frozen=True)
class Answer:
    """A receipt and the report in it."""

    receipt: Receipt
    report: ReconciliationReport

    @property
    def refused(self) -> str | None:
        """Why the owner refused; None where it did what was asked."""
        if self.receipt.outcome != "refused":
            return None
        return self.receipt.reason or "; ".join(self.report.why) or "no reason was given"

    def accepted(self) -> ReconciliationReport:
        """The report. Raises Declined where the request was refused."""
        if self.refused is not None:
            raise Declined(f"The owner of {self.report.source} refused: {self.refused}.", "Correct that and ask again.")
        return self.report


def request(
    type_: str, tenant: str, source: str, *, clock: Clock, requested_by: str | None, **more: Any
) -> SourceRequest:
    """A request with an id of its own. Raises ValidationError where its fields do not fit."""
    return SourceRequest.model_validate(
        {
            "type": type_, "tenant": tenant, "source": source, "request_id": uuid.uuid4().hex,
            "requested_at": clock.now(), "requested_by": requested_by, **more,
        }
    )  # fmt: skip


class Owners:
    """One conversation. ``tail`` reads receipts and cursors from before the first request on."""

    def __init__(self, publisher: Publisher, tail: Tail, clock: Clock) -> None:
        self._publisher, self._tail, self.clock = publisher, tail, clock

    def ask(
        self,
        asked: SourceRequest,
        *,
        timeout_s: float = 3600.0,
        answer_s: float = ANSWER_S,
        progress: ProgressBar = lambda step, done, total: None,
    ) -> Answer:
        """Send it and wait. Raises Unanswered or BusUnavailable."""
        return self.ask_all([asked], timeout_s=timeout_s, answer_s=answer_s, progress=progress)[0]

    def ask_all(
        self,
        requests: Sequence[SourceRequest],
        *,
        timeout_s: float = 3600.0,
        answer_s: float = ANSWER_S,
        progress: ProgressBar = lambda step, done, total: None,
    ) -> list[Answer]:
        """Send requests to one source, at most CREDIT unanswered at a time; answers in the order of the requests.

        Raises Unanswered or BusUnavailable; what was sent by then stands.
        """
        left = deque(requests)
        waiting: dict[str, SourceRequest] = {}
        answers: dict[str, Answer] = {}
        began = heard = self.clock.elapsed()
        noted = False
        while left or waiting:
            sent = [left.popleft() for _ in range(min(len(left), CREDIT - len(waiting)))]
            if sent:
                self._send(sent)
                waiting |= {asked.request_id: asked for asked in sent}
            first = next(iter(waiting.values()))
            belongs = of_source(first.tenant, first.source)
            for record in self._tail.poll(POLL_MS):
                answer = _answer(record, waiting)
                if answer is not None:
                    del waiting[answer.report.request_id]
                    answers[answer.report.request_id] = answer
                    heard = self.clock.elapsed()
                elif record.topic == Topic.CURSORS and belongs(record.key):
                    open_ = _open(record, first)
                    noted |= any(item.request_id in waiting for item in open_)
                    heard = self.clock.elapsed() if noted else heard
                    if len(requests) == 1:
                        _show(open_, first, progress)
            if len(requests) > 1:
                progress(f"{first.source}: asking", len(answers), len(requests))
            if waiting:
                self._check(first, self.clock.elapsed(), began, heard, noted or bool(answers), timeout_s, answer_s)
        return [answers[asked.request_id] for asked in requests]

    def _send(self, requests: Sequence[SourceRequest]) -> None:
        self._publisher.publish(
            [Outgoing(Topic.REQUESTS, asked.source, asked.model_dump_json().encode()) for asked in requests]
        )

    def _check(
        self,
        asked: SourceRequest,
        now: float,
        began: float,
        heard: float,
        noted: bool,
        timeout_s: float,
        answer_s: float,
    ) -> None:
        name = f"source {asked.source} of {asked.tenant}"
        stands = f"The request {asked.request_id} stands and is answered when its owner is there."
        if not noted and now - began > answer_s:
            raise Unanswered(
                f"No owner of {name} answers within {answer_s:.0f} s.",
                f"Start it (`headwater up`), see its log and `headwater sources list`. {stands}",
            )
        if noted and now - heard > SILENT_S:
            raise Unanswered(f"The owner of {name} fell silent {SILENT_S:.0f} s ago.", f"See its log. {stands}")
        if now - began > timeout_s:
            raise Unanswered(
                f"The owner of {name} is still at work after {timeout_s:.0f} s.",
                f"Wait longer; `headwater sources list` shows how far it is. {stands}",
            )


@contextmanager
def conversation(settings: Settings) -> Iterator[Owners]:
    """On Kafka. Raises BusUnavailable."""
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.tail import KafkaTail
    from pipeline.clock import SystemClock

    with (
        closing(KafkaTail(settings, [Topic.RECEIPTS, Topic.CURSORS], since="end")) as tail,
        closing(KafkaPublisher(settings, "operate")) as publisher,
    ):
        yield Owners(publisher, tail, SystemClock())


def _answer(record: Record, waiting: dict[str, SourceRequest]) -> Answer | None:
    if record.topic != Topic.RECEIPTS or record.key not in waiting:
        return None
    try:
        receipt = Receipt.model_validate_json(record.value or b"")
        return Answer(receipt, ReconciliationReport.model_validate(receipt.details))
    except ValidationError:
        return None


def _open(record: Record, asked: SourceRequest) -> Sequence[OpenRequest]:
    if record.key != cursor_key(asked.tenant, asked.source, REQUESTS_STREAM) or record.value is None:
        return ()
    return RequestsPosition.read(SourceCursor.model_validate_json(record.value).position).open


def _show(open_: Sequence[OpenRequest], asked: SourceRequest, progress: ProgressBar) -> None:
    for item in open_:
        if item.request_id == asked.request_id:
            what = f"{asked.source}: {asked.type}" + (" (waits)" if item.state == "queued" else "")
            progress(what, item.done, item.expected or None)
