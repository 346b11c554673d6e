"""What operators ask of the control consumer: a command and its answer; the generations as they stand."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from pipeline.bus.interface import Tail
from pipeline.clock import Clock, SystemClock
from pipeline.errors import BusUnavailable, ConfigError, HeadwaterError, Retry
from pipeline.ports import IndexStore, Outgoing, Publisher, Record
from pipeline.settings import Settings
from schemas.events import ControlCommand
from schemas.generation import Generation
from schemas.receipts import Receipt
from schemas.topics import Topic

CommandType = Literal["create", "ready", "report", "activate", "rollback", "retire", "drop"]
TIMEOUT_S = 60.0
CREATE_TIMEOUT_S = 600.0  # the encoder's trial may convert a model
TRIES, PAUSE_S = 5, 0.5

T = TypeVar("T")


class Refused(HeadwaterError):
    """Control refused a command. ``reason`` says why; ``details`` hold what was checked."""

    def __init__(self, what: str, reason: str, details: dict[str, object] | None = None) -> None:
        super().__init__(f"{what} was refused: {reason}")
        self.reason = reason
        self.details = details or {}
        self.problem = f"{what} was refused: {reason}."
        self.remedy = "`headwater generation show` says how things stand."


class Unanswered(BusUnavailable):
    """No answer came in time. The command is on the log and may still be decided."""

    def __init__(self, what: str, seconds: float) -> None:
        self.problem = f"{what} was not answered within {seconds:.0f} s; it is on the log and may still be decided."
        self.remedy = "Look whether the control consumer runs (`headwater status`, `headwater logs control`)."
        super().__init__(f"{self.problem} {self.remedy}")


@dataclass(frozen=True)
class Known:
    """The generations by name, and which one serves."""

    generations: dict[str, Generation]
    active: str | None

    def one(self, name: str) -> Generation:
        """A generation. Raises ConfigError naming the others."""
        if name not in self.generations:
            known = ", ".join(sorted(self.generations)) or "none"
            raise ConfigError("generation", f"there is no generation {name}", f"Known: {known}.")
        return self.generations[name]


def send(
    settings: Settings,
    type: CommandType,
    generation: str,
    *,
    requested_by: str | None,
    timeout_s: float | None = None,
    **fields: Any,
) -> Receipt:
    """Publish a command and wait for its receipt.

    ``fields`` are the command's own (declaration, report, expected_active, override). Raises Refused, Unanswered,
    ConfigError for a field that the command cannot have, BusUnavailable.
    """
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.tail import KafkaTail

    clock = SystemClock()
    command = command_of(type, generation, requested_by=requested_by, now=clock.now(), **fields)
    seconds = timeout_s if timeout_s is not None else CREATE_TIMEOUT_S if type == "create" else TIMEOUT_S
    tail = KafkaTail(settings, [Topic.RECEIPTS], since="end")
    try:
        publisher = KafkaPublisher(settings, "operator")
        try:
            return ask(command, publisher, tail, clock, seconds)
        finally:
            publisher.close()
    finally:
        tail.close()


def command_of(
    type: CommandType, generation: str, *, requested_by: str | None, now: int, **fields: Any
) -> ControlCommand:
    """The command as it goes on the log. Raises ConfigError naming the field."""
    try:
        return ControlCommand.model_validate(
            {"type": type, "generation": generation, "request_id": str(uuid.uuid4()), "requested_at": now,
             "requested_by": requested_by, **fields}
        )  # fmt: skip
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        remedy = (
            "A name has letters, digits and '_', and begins with a letter." if name == "generation" else "Correct it."
        )
        raise ConfigError(name, first["msg"], remedy) from error


def ask(command: ControlCommand, publisher: Publisher, receipts: Tail, clock: Clock, seconds: float) -> Receipt:
    """``send`` on clients that are open; ``receipts`` stands at its end already."""
    what = f"{command.type} {command.generation}"
    publisher.publish(
        [Outgoing(str(Topic.CONTROL), command.generation, command.model_dump_json().encode("utf-8"))]
    )  # fmt: skip
    limit = clock.elapsed() + seconds
    while clock.elapsed() < limit:
        for record in receipts.poll(200):
            receipt = _answer(record, command.request_id)
            if receipt is None:
                continue
            if receipt.outcome == "refused":
                raise Refused(what, receipt.reason or "no reason given", receipt.details)
            return receipt
    raise Unanswered(what, seconds)


def _answer(record: Record, request_id: str) -> Receipt | None:
    if record.value is None or request_id.encode() not in record.value:
        return None
    try:
        receipt = Receipt.model_validate_json(record.value)
    except ValidationError:
        return None
    return receipt if receipt.lane == "control" and receipt.request_id == request_id else None


def known(settings: Settings) -> Known:
    """All generations and the active one. Raises StoreUnavailable."""
    return _reading(settings, lambda store: Known(store.read_generations(), store.active_generation()))


def generations(settings: Settings) -> list[Generation]:
    """All generations, the newest last. Raises StoreUnavailable."""
    return sorted(known(settings).generations.values(), key=lambda g: (g.created_at, g.name))


def standby(found: Known) -> Generation:
    """The generation that a rollback goes back to: the standby one that served last. Raises ConfigError."""
    served = [g for g in found.generations.values() if g.state == "standby"]
    if not served:
        raise ConfigError("generation", "no generation stands by", "There is nothing to go back to.")
    return max(served, key=lambda g: (g.activated_at or 0, g.name))


def _reading(settings: Settings, read: Callable[[IndexStore], T]) -> T:
    from pipeline.index.store import WeaviateStore

    store = WeaviateStore(settings)
    try:
        for _ in range(TRIES - 1):
            try:
                return read(store)
            except Retry:
                time.sleep(PAUSE_S)
        return read(store)
    finally:
        store.close()
