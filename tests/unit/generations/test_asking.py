"""A command on the log and its answer, among the answers of others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline.clock import SystemClock
from pipeline.errors import ConfigError, Retry
from pipeline.operate import control
from pipeline.ports import Appended, Outgoing
from schemas.events import ControlCommand
from schemas.receipts import Outcome, Receipt
from schemas.topics import Topic
from tests.fakes.bus import MemoryBroker, MemoryPublisher, MemoryTail
from tests.unit.generations.support import generation


class Answering(MemoryPublisher):
    """Publishes, and answers commands as control would; ``outcome`` None means that nobody decides."""

    def __init__(self, broker: MemoryBroker, outcome: Outcome | None, reason: str | None = None) -> None:
        super().__init__(broker)
        self.outcome, self.reason = outcome, reason

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        appended = super().publish(records)
        command = ControlCommand.model_validate_json(records[0].value or b"")
        if self.outcome is not None:
            mine = Receipt(
                lane="control", generation=command.generation, tenant="", version=1,
                event_type=f"control.{command.type}", outcome=self.outcome, reason=self.reason,
                request_id=command.request_id, details={"checks": {}},
            )  # fmt: skip
            other = mine.model_copy(update={"request_id": "of another", "outcome": "refused"})
            values = [b"?", b'"' + command.request_id.encode(), other.model_dump_json().encode()]
            values.append(mine.model_dump_json().encode())
            super().publish([Outgoing(str(Topic.RECEIPTS), "k", value) for value in values])
        return appended


def ask(outcome: Outcome | None, reason: str | None = None, seconds: float = 5.0) -> Receipt:
    broker = MemoryBroker()
    command = control.command_of("activate", "g2", requested_by="ops", now=7, expected_active="g1")
    tail = MemoryTail(broker, [Topic.RECEIPTS])
    return control.ask(command, Answering(broker, outcome, reason), tail, SystemClock(), seconds)


@pytest.mark.requirement("I7")
def test_the_own_answer_is_found() -> None:
    receipt = ask("done", "it lags")
    assert (receipt.outcome, receipt.reason, receipt.generation) == ("done", "it lags", "g2")


@pytest.mark.requirement("I7")
def test_a_refusal_says_why() -> None:
    with pytest.raises(control.Refused) as caught:
        ask("refused", "g3 is active by now")
    assert caught.value.reason == "g3 is active by now" and caught.value.details == {"checks": {}}
    assert "activate g2 was refused: g3 is active by now" in str(caught.value)


@pytest.mark.requirement("I7", "I8")
def test_where_nobody_decides_the_command_is_said_to_be_on_the_log() -> None:
    with pytest.raises(control.Unanswered, match="still be decided") as caught:
        ask(None, seconds=0.3)
    assert isinstance(caught.value, Retry) and "headwater status" in caught.value.remedy


def test_a_name_that_cannot_be_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ConfigError) as caught:
        control.command_of("create", "Two Words", requested_by=None, now=1)
    assert caught.value.field == "generation"


@pytest.mark.requirement("I7")
def test_the_way_back_leads_to_the_standby_that_served_last() -> None:
    known = {
        "a": generation("a", "standby", activated_at=5), "b": generation("b", "standby", activated_at=9),
        "c": generation("c", "ready"), "d": generation("d", "active", activated_at=10),
    }  # fmt: skip
    assert control.standby(control.Known(known, "d")).name == "b"
    with pytest.raises(ConfigError, match="stands by"):
        control.standby(control.Known({"d": known["d"]}, "d"))
    with pytest.raises(ConfigError, match="Known: a, b, c, d"):
        control.Known(known, "d").one("e")
