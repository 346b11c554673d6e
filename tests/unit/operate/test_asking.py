"""Asking an owner: its answer, its refusal, how far it is, and what is said when nobody answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pipeline.bus.interface import Slot
from pipeline.clock import ManualClock
from pipeline.operate.asking import ANSWER_S, CREDIT, SILENT_S, Declined, Owners, Unanswered, request
from pipeline.ports import Appended, Outgoing, Record
from pipeline.sources.changes import cursor_record
from schemas.events import REQUESTS_STREAM, SourceCursor, SourceRequest
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.reconciliation import OpenRequest, ReconciliationReport, RequestsPosition
from schemas.topics import Topic


class Line:
    """Publisher and tail of one conversation; ``owner`` is called with each request, ``ticks`` at every poll."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[SourceRequest] = []
        self.coming: list[Record] = []
        self.owner: Callable[[SourceRequest], None] = lambda asked: None
        self.tick: Callable[[int], None] = lambda number: None
        self.polls = 0
        self.most_unanswered = 0

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        for record in records:
            asked = SourceRequest.model_validate_json(record.value or b"")
            self.sent.append(asked)
            self.owner(asked)
        return [Appended(str(r.topic), 0, n, 0) for n, r in enumerate(records)]

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        self.clock.advance(timeout_ms / 1000)
        self.polls += 1
        self.tick(self.polls)
        come, self.coming = self.coming, []
        return come

    def positions(self) -> dict[Slot, int]:
        return {}

    def caught_up(self) -> bool:
        return True

    def behind(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to close."""

    # what an owner writes

    def answer(self, asked: SourceRequest, outcome: str = "done", reason: str | None = None) -> None:
        report = ReconciliationReport(
            type=asked.type, tenant=asked.tenant, source=asked.source, request_id=asked.request_id, began_at=1,
            finished_at=2_000_001, listed=7,
        )  # fmt: skip
        receipt = Receipt(
            lane="source", tenant=asked.tenant, event_type=f"request.{asked.type}", version=1, outcome=outcome,
            reason=reason, request_id=asked.request_id, details=report.model_dump(mode="json"),
        )  # fmt: skip
        self.coming.append(Record(str(Topic.RECEIPTS), 0, 0, 0, asked.request_id, receipt.model_dump_json().encode()))

    def cursor(self, *open_: OpenRequest, source: str = "wiki", stream: str = REQUESTS_STREAM) -> None:
        position = RequestsPosition(open=open_).model_dump_json() if stream == REQUESTS_STREAM else ""
        record = cursor_record(
            SourceCursor(
                tenant="acme",
                source=source,
                stream=stream,
                position=position,
                last_version=1,
                polled_at=self.clock.now(),
            )
        )
        self.coming.append(Record(str(Topic.CURSORS), 0, 0, 0, record.key, record.value))


@pytest.fixture
def line() -> Line:
    return Line()


def ask(line: Line, type_: str = "listing", **more: object) -> SourceRequest:
    return request(type_, "acme", "wiki", clock=line.clock, requested_by="ann", **more)


def test_the_answer_is_the_receipt_of_this_request(line: Line) -> None:
    stranger = ask(line)

    def owner(asked: SourceRequest) -> None:
        line.answer(stranger, "refused")
        line.answer(asked)

    line.owner = owner
    answer = Owners(line, line, line.clock).ask(ask(line))
    assert answer.accepted().listed == 7 and answer.report.seconds == 2.0
    assert [asked.requested_by for asked in line.sent] == ["ann"]


def test_a_refusal_says_why(line: Line) -> None:
    line.owner = lambda asked: line.answer(asked, "refused", "the source cannot be listed: 503")
    with pytest.raises(Declined, match="503"):
        Owners(line, line, line.clock).ask(ask(line)).accepted()


def test_nobody_answers(line: Line) -> None:
    line.tick = lambda number: line.cursor(source="other")  # others live
    asked = ask(line)
    with pytest.raises(Unanswered, match="No owner of source wiki of acme") as error:
        Owners(line, line, line.clock).ask(asked)
    assert asked.request_id in error.value.remedy and "headwater up" in error.value.remedy
    assert ANSWER_S <= line.clock.elapsed() < ANSWER_S + 1


def test_progress_is_what_the_owner_notes_and_an_owner_at_work_is_waited_for(line: Line) -> None:
    told: list[tuple[str, int, int | None]] = []
    asked = ask(line, "backfill")

    def work(number: int) -> None:
        state = "queued" if number < 10 else "begun"
        note = OpenRequest(
            offset=1, request_id=asked.request_id, type="backfill", state=state, done=number, expected=1000
        )
        if number % 10 == 0 or number == 1:
            line.cursor(note)
        if number == 1000:
            line.answer(asked)

    line.tick = work
    Owners(line, line, line.clock).ask(asked, progress=lambda *step: told.append(step))
    assert line.clock.elapsed() > ANSWER_S
    assert told[0] == ("wiki: backfill (waits)", 1, 1000) and told[-1] == ("wiki: backfill", 1000, 1000)


def test_an_owner_that_falls_silent_and_one_that_takes_too_long_are_told_apart(line: Line) -> None:
    asked = ask(line)
    note = OpenRequest(offset=1, request_id=asked.request_id, type="listing", state="begun")
    line.tick = lambda number: line.cursor(note) if number == 1 else None
    with pytest.raises(Unanswered, match="fell silent"):
        Owners(line, line, line.clock).ask(asked)
    assert SILENT_S <= line.clock.elapsed() < SILENT_S + 1
    line.tick = lambda number: line.cursor(note) if number % 25 == 0 else None
    with pytest.raises(Unanswered, match="still at work after 300 s"):
        Owners(line, line, line.clock).ask(asked, timeout_s=300)


def test_many_requests_go_with_credit_and_are_answered_in_order(line: Line) -> None:
    waiting: list[SourceRequest] = []
    line.owner = waiting.append

    def serve(number: int) -> None:
        line.most_unanswered = max(line.most_unanswered, len(waiting))
        for asked in reversed(waiting[:30]):
            line.answer(asked)
        del waiting[:30]

    line.tick = serve
    document = DocumentRef(tenant="acme", source="wiki", id="a")
    requests = [ask(line, "document", document=document) for _ in range(250)]
    answers = Owners(line, line, line.clock).ask_all(requests)
    assert [a.report.request_id for a in answers] == [r.request_id for r in requests]
    assert line.most_unanswered == CREDIT
