"""CloudEvents as changes: the three modes of HTTP, and each event done once.

A repeat (same tenant, ``source`` and ``id``) is answered as the first was: from memory for an hour, and after a restart
by the writer, which knows the last events of each source. An id that comes again with other content is refused, since
either of the two would be lost.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pydantic import JsonValue, ValidationError

from consumers.gateway_errors import Refused, field_problem, invalid, of_validation, unavailable
from consumers.gateway_reading import read_json
from consumers.gateway_seen import key_of
from consumers.gateway_service import Accepted, Gateway
from consumers.gateway_writer import AnyChange
from pipeline.clock import Clock
from schemas.api_changes import CHANGES
from schemas.cloudevents import MAX_EVENTS, TYPES, CloudEvent, EventResult

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
PREFIX = "ce-"
REMEMBERED = 20_000
REMEMBERED_S = 3600.0
_ATTRIBUTES = frozenset(CloudEvent.model_fields) - {"data", "data_base64", "datacontenttype"}


@dataclass(frozen=True)
class Event:
    """An event that was understood."""

    id: str
    source: str
    change: AnyChange

    @property
    def digest(self) -> str:
        """Of what it says."""
        return hashlib.sha256(self.change.model_dump_json().encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class NotRead:
    """An event that was not, and why; with its names as far as they are known."""

    refused: Refused
    id: str | None = None
    source: str | None = None


Read = Event | NotRead
Outcome = EventResult | Refused


def read_events(content_type: str, headers: Sequence[tuple[str, str]], body: bytes) -> tuple[list[Read], bool]:
    """The events of a request, and whether it is a batch. Raises Refused (400, 413, 415) for the request as a whole."""
    media = content_type.partition(";")[0].strip().lower()
    if media == BATCH:
        items = read_json(body)
        if not isinstance(items, list):
            raise Refused(400, "Not understood", f"A body of {BATCH} is an array of events.")
        if len(items) > MAX_EVENTS:
            raise Refused(413, "Too large", f"A batch has at most {MAX_EVENTS} events; send fewer at once.")
        return [_read(item) for item in items], True
    if media == STRUCTURED:
        return [_read(read_json(body))], False
    attributes = _attributes(headers)
    if media.startswith("application/cloudevents") or "specversion" not in attributes:
        problem = f"Send {STRUCTURED}, {BATCH}, or an event whose attributes are {PREFIX}* headers, with JSON as data."
        raise Refused(415, "Not an event", problem)
    if not _is_json(content_type):
        return [NotRead(_not_json("Content-Type"))], False
    # The signature does not cover headers: an id that only stands there must not say which document is meant.
    named = {name: value for name, value in attributes.items() if name in _ATTRIBUTES and name != "subject"}
    return [_read({**named, "data": read_json(body)})], False


def _attributes(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if not name.lower().startswith(PREFIX):
            continue
        attribute = name.lower().removeprefix(PREFIX)
        if attribute in found:
            raise Refused(400, "Not understood", f"A header {PREFIX}* is there twice; say which of the two is meant.")
        try:
            found[attribute] = unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise Refused(400, "Not understood", f"A header {PREFIX}* is not percent-encoded UTF-8.") from None
    return found


def _is_json(content_type: str | None) -> bool:
    media = (content_type or "application/json").partition(";")[0].strip().lower()
    return media in ("application/json", "text/json") or media.endswith("+json")


def _not_json(field: str) -> Refused:
    return invalid([field_problem(field, "the data of an event is a change in JSON: application/json")])


def _read(item: JsonValue) -> Read:
    names = {n: v for n in ("id", "source") if isinstance(item, dict) and isinstance(v := item.get(n), str)}
    try:
        return _event(item)
    except ValidationError as error:
        refused = of_validation(error, single=True)
    except Refused as problem:
        refused = problem
    return NotRead(refused, **names)


def _event(item: JsonValue) -> Event:
    event = CloudEvent.model_validate(item)
    if event.specversion != "1.0":
        raise invalid([field_problem("specversion", "is not spoken here; send 1.0")])
    if event.type not in TYPES:
        name = event.type if len(event.type) <= 200 and event.type.isascii() and event.type.isprintable() else "this"
        raise invalid([field_problem("type", f"{name} is not known here; it is one of {', '.join(TYPES)}")])
    if not _is_json(event.datacontenttype):
        raise _not_json("datacontenttype")
    return Event(event.id, event.source, _change(event, _data(event)))


def _data(event: CloudEvent) -> JsonValue:
    if event.data_base64 is None:
        return event.data
    try:
        return read_json(base64.b64decode(event.data_base64, validate=True), "data_base64")
    except (binascii.Error, ValueError):
        raise invalid([field_problem("data_base64", "is not valid base64")]) from None


def _change(event: CloudEvent, data: JsonValue) -> AnyChange:
    if not isinstance(data, dict):
        raise invalid([field_problem("data", "is a change, an object")])
    if "type" in data:
        raise invalid([field_problem("data.type", "the event's own type tells it; remove it")])
    kind = TYPES[event.type]
    if kind != "membership" and "id" not in data and event.subject is not None:
        data = {**data, "id": event.subject}
    try:
        return CHANGES.validate_python([{**data, "type": kind}])[0]
    except ValidationError as error:
        raise in_data(of_validation(error, single=True)) from None


def in_data(refused: Refused) -> Refused:
    """The same with its fields where they are in an event."""
    if refused.problem.status != 422:
        return refused
    return invalid([field_problem(f"data.{e.field}", e.problem) for e in refused.problem.errors])


@dataclass
class _Known:
    digest: str
    answer: asyncio.Future[Outcome]
    at: float


class Events:
    """Does each event once. Belongs to one event loop."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._gateway, self._clock = gateway, clock
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()

    async def serve(self, events: Sequence[Read]) -> list[Outcome]:
        """What became of each, in order: it is on the log, or why it is not."""
        answers: list[Outcome | asyncio.Future[Outcome]] = []
        fresh: dict[str, list[tuple[Event, asyncio.Future[Outcome]]]] = {}
        self._forget_old()
        for event in events:
            if isinstance(event, NotRead):
                answers.append(event.refused)
                continue
            known = self._known.get(_name(event))
            if known is None:
                answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
                self._known[_name(event)] = _Known(event.digest, answer, self._clock.elapsed())
                fresh.setdefault(event.change.tenant, []).append((event, answer))
                answers.append(answer)
            else:
                answers.append(known.answer if known.digest == event.digest else _other_content())
        await asyncio.gather(*(self._append(tenant, items) for tenant, items in fresh.items()))
        # Shielded: another request may wait for the same answer.
        return [await asyncio.shield(a) if isinstance(a, asyncio.Future) else a for a in answers]

    async def _append(self, tenant: str, items: Sequence[tuple[Event, asyncio.Future[Outcome]]]) -> None:
        try:
            ready = [(event, answer) for event, answer in items if self._checked(event, answer)]
            try:
                keyed = [(event.change, key_of(event.source, event.id, event.digest)) for event, _ in ready]
                done: Sequence[Accepted | BaseException] = await self._gateway.append_each(tenant, keyed)
            except Refused as refused:
                done = [refused] * len(ready)
            for (event, answer), outcome in zip(ready, done, strict=True):
                if isinstance(outcome, Accepted):
                    answer.set_result(_result(event, outcome))
                elif isinstance(outcome, Refused):
                    self._refuse(event, answer, outcome)
                else:
                    raise outcome
        finally:  # whatever happened, nobody waits for ever
            for event, answer in items:
                if not answer.done():
                    self._refuse(event, answer, unavailable("The event may not be on the log; send it again."))

    def _checked(self, event: Event, answer: asyncio.Future[Outcome]) -> bool:
        try:
            self._gateway.check([event.change])
        except Refused as refused:
            self._refuse(event, answer, in_data(refused))
            return False
        return True

    def _refuse(self, event: Event, answer: asyncio.Future[Outcome], refused: Refused) -> None:
        """It is not done, so the same event may be sent again."""
        self._known.pop(_name(event), None)
        answer.set_result(refused)

    def _forget_old(self) -> None:
        oldest = self._clock.elapsed() - REMEMBERED_S
        while self._known:
            name, known = next(iter(self._known.items()))
            if not known.answer.done() or (known.at > oldest and len(self._known) <= REMEMBERED):
                break
            del self._known[name]


def _name(event: Event) -> tuple[str, str, str]:
    return event.change.tenant, event.source, event.id


def _result(event: Event, accepted: Accepted) -> EventResult:
    return EventResult(id=event.id, source=event.source, status=200, token=accepted.token, result=accepted.results[0])


def _other_content() -> Refused:
    problem = "came before with other content; the ids of a source are distinct"
    detail = "Nothing was written. Give the event an id of its own and send it again."
    return Refused(409, "Id taken", detail, errors=[field_problem("id", problem)])


def result_of(event: Read, outcome: Outcome) -> EventResult:
    """An outcome as a line of a batch's answer."""
    if isinstance(outcome, EventResult):
        return outcome
    problem = outcome.problem
    return EventResult(
        id=event.id, source=event.source, status=problem.status, detail=problem.detail, errors=problem.errors
    )


def status_of(outcomes: Sequence[Outcome]) -> tuple[int, int | None]:
    """Status of a batch and seconds to wait: 200 where all is on the log, else what most asks for another try."""
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    by_status: dict[int, Refused] = {}
    for one in refused:
        by_status.setdefault(one.problem.status, one)
    for status in (503, 429, *by_status):
        if status in by_status:
            return status, by_status[status].retry_after
    return 200, None
