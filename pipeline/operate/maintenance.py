"""Asks the owners of documents for work on them, with bounded credit, and waits for their receipts (invariant 1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from pipeline.bus.interface import Tail
from pipeline.clock import Clock
from pipeline.ports import Outgoing, Publisher, Record
from pipeline.settings import Settings
from schemas.events import ACCESS_ONLY, MaintenanceCommand
from schemas.receipts import Outcome, Receipt
from schemas.topics import Topic

CREDIT = 64
ANSWER_S = 60.0  # without any answer for this long, what is asked for counts as unanswered
POLL_MS = 100

Place = tuple[int, int]  # partition and offset of a command


@dataclass(frozen=True)
class Answer:
    """What became of a command. ``outcome`` None: no receipt came in time; the command may still be carried out."""

    command: MaintenanceCommand
    outcome: Outcome | None
    reason: str | None = None
    chunks_written: int = 0
    chunks_removed: int = 0

    @property
    def done(self) -> bool:
        """Whether the owner did what was asked."""
        return self.outcome in ("rechecked", "moved", "unchanged", "done")


class Maintenance:
    """One conversation with the owners. ``tail`` reads receipts from before the first command on."""

    def __init__(self, publisher: Publisher, tail: Tail, clock: Clock) -> None:
        self._publisher = publisher
        self._tail = tail
        self._clock = clock

    def carry_out(
        self,
        commands: Sequence[MaintenanceCommand],
        *,
        credit: int = CREDIT,
        weight: Callable[[MaintenanceCommand], int] = lambda command: 1,
        answer_s: float = ANSWER_S,
        on_answer: Callable[[Answer], None] = lambda answer: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Answer]:
        """Send the commands, at most ``credit`` of ``weight`` unanswered at a time; the answers as they came.

        A command names its generation (or ``ACCESS_ONLY``): that one's receipt is its answer. After ``stop`` nothing
        more is sent and what is under way is awaited; commands never sent have no answer. Raises BusUnavailable.
        """
        waiting: dict[Place, MaintenanceCommand] = {}
        left = deque(commands)
        answers: list[Answer] = []
        heard = self._clock.elapsed()

        def answered(answer: Answer) -> None:
            answers.append(answer)
            on_answer(answer)

        while left or waiting:
            stopped = stop()
            if stopped and not waiting:
                break
            out = sum(weight(command) for command in waiting.values())
            if left and not stopped and (not waiting or out + weight(left[0]) <= credit):
                self._send(left, waiting, credit - out, weight)
                heard = max(heard, self._clock.elapsed())
            for record in self._tail.poll(POLL_MS):
                found = _answer(record, waiting)
                if found is not None:
                    heard = self._clock.elapsed()
                    answered(found)
            if waiting and self._clock.elapsed() - heard > answer_s:
                reason = f"no receipt within {answer_s:.0f} s; does the consumer run?"
                for command in [*waiting.values(), *left]:
                    answered(Answer(command, None, reason))
                break
        return answers

    def _send(
        self, left: deque[MaintenanceCommand], waiting: dict[Place, MaintenanceCommand], credit: int,
        weight: Callable[[MaintenanceCommand], int],
    ) -> None:  # fmt: skip
        batch = [left.popleft()]  # one heavier than the whole credit travels alone
        credit -= weight(batch[0])
        while left and weight(left[0]) <= credit:
            credit -= weight(left[0])
            batch.append(left.popleft())
        outgoing = [Outgoing(str(Topic.MAINTENANCE), c.document.key, c.model_dump_json().encode()) for c in batch]
        for command, place in zip(batch, self._publisher.publish(outgoing), strict=True):
            waiting[(place.partition, place.offset)] = command


def _answer(record: Record, waiting: dict[Place, MaintenanceCommand]) -> Answer | None:
    """The answer that a receipt is to one of the commands, which waits no longer then."""
    receipt = receipt_of(record)
    at = receipt.coordinates if receipt is not None else None
    if receipt is None or at is None or at.topic != Topic.MAINTENANCE:
        return None
    place = (at.partition, at.offset)
    command = waiting.get(place)
    if command is None:
        return None
    addressed = receipt.lane == "access" if command.generation == ACCESS_ONLY else receipt.lane == "index"
    if not addressed or command.generation not in (receipt.generation, ACCESS_ONLY):
        return None
    del waiting[place]
    return Answer(command, receipt.outcome, receipt.reason, receipt.chunks_written, receipt.chunks_removed)


def receipt_of(record: Record) -> Receipt | None:
    """A receipt, or None for a record that is none of this release."""
    try:
        return Receipt.model_validate_json(record.value or b"")
    except ValidationError:
        return None


@contextmanager
def opened(settings: Settings, role: str) -> Iterator[Maintenance]:
    """A conversation over Kafka for the block. Raises BusUnavailable."""
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.tail import KafkaTail
    from pipeline.clock import SystemClock

    with (
        closing(KafkaTail(settings, [Topic.RECEIPTS], since="end")) as tail,
        closing(KafkaPublisher(settings, role)) as publisher,
    ):
        yield Maintenance(publisher, tail, SystemClock())
