"""What operators do with dead letters: look into one, have it processed again, release a parked source, discard.

A replay appends nothing to ``content``: it tells the generation's consumer to read the event again where it lies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from pipeline.errors import HeadwaterError
from pipeline.operate.letters import Letter, ParkedSource
from pipeline.ports import Outgoing, ProgressBar, Publisher
from pipeline.settings import Settings
from schemas.events import ContentUpserted, InlineBody, MaintenanceCommand, SourceRequest
from schemas.receipts import Coordinates, DeadLetter, Receipt
from schemas.topics import Topic

LIVE_AT_MOST = 100  # more than this go in bulk, behind live edits

Result = Literal["processed", "failed", "superseded", "gone", "refused", "unanswered"]


class NotFound(HeadwaterError):
    """No unsettled letter has these coordinates. ``remedy`` says what to do."""

    def __init__(self, name: str) -> None:
        self.problem = f"no unsettled dead letter lies at {name}"
        self.remedy = "Take the coordinates from `headwater letters show`; it may have been settled meanwhile."
        super().__init__(f"{self.problem}. {self.remedy}")


@dataclass(frozen=True)
class Replayed:
    """What became of one letter's replay."""

    letter: Letter
    result: Result
    reason: str | None = None


@dataclass(frozen=True)
class Event:
    """The event behind a letter: its head, and its body where that was asked for."""

    head: dict[str, object]
    body: str | None = None


def select(
    letters: Sequence[Letter],
    names: Sequence[str] = (),
    *,
    tenant: str | None = None,
    source: str | None = None,
    kind: str | None = None,
    stage: str | None = None,
    generation: str | None = None,
    parked: bool | None = None,
) -> list[Letter]:
    """Letters with these coordinates, or all that fit the narrowing. Raises NotFound for coordinates of none."""
    found = [
        letter
        for letter in letters
        if (tenant is None or letter.tenant == tenant)
        and (source is None or letter.source == source)
        and (kind is None or letter.newest.error_kind == kind)
        and (stage is None or letter.newest.stage == stage)
        and (generation is None or letter.newest.generation == generation)
        and (parked is None or letter.newest.parked == parked)
        and (not names or letter.name in names)
    ]
    for name in names:
        if all(letter.name != name for letter in found):
            raise NotFound(name)
    return found


def look(settings: Settings, letter: Letter, *, body: bool = False) -> Event | None:
    """The content event where it lies; None where it is gone from the log, or the letter is of another topic.

    Raises BusUnavailable.
    """
    from pipeline.bus.codec import Undecodable, decode_content
    from pipeline.bus.fetch import RecordFetcher

    at = letter.newest.coordinates
    if at.topic != Topic.CONTENT:
        return None
    with closing(RecordFetcher(settings, Topic.CONTENT)) as fetch:
        record = fetch(at.partition, at.offset)
    if record is None:
        return None
    event = decode_content(record)
    if isinstance(event, Undecodable):
        raw = (record.value or b"").decode("utf-8", "replace")
        return Event({"bytes": len(record.value or b""), "unreadable": event.reason}, raw if body else None)
    head = event.model_dump(mode="json", exclude={"body"}, exclude_none=True)
    if not isinstance(event, ContentUpserted):
        return Event(head)
    if isinstance(event.body, InlineBody):
        text = event.body.text if event.body.text is not None else f"base64: {event.body.base64}"
        head["body"] = f"inline, {len(text.encode())} bytes"
        return Event(head, text if body else None)
    head["body"] = f"in the body store, {event.body.size} bytes"
    return Event(head, _stored(settings, event.body.path, event.body.sha256) if body else None)


def _stored(settings: Settings, path: str, sha256: str) -> str:
    from pipeline.bus.bodies import FsspecBodyStore
    from pipeline.errors import BodyGone

    try:
        return FsspecBodyStore.of(settings).get(path, sha256).decode("utf-8", "replace")
    except BodyGone:
        return "(the body is gone from its store)"


def replay(
    settings: Settings,
    letters: Sequence[Letter],
    *,
    requested_by: str,
    timeout_s: float = 120.0,
    progress: ProgressBar | None = None,
) -> list[Replayed]:
    """Have the letters processed again and wait for what becomes of each; a success settles its letter.

    Raises BusUnavailable. Those without an answer in time stay: their replay may still succeed, and then they count
    no longer either.
    """
    from pipeline.bus.fetch import RecordFetcher
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.tail import KafkaTail

    done: dict[str, Replayed] = {}
    possible: list[Letter] = []
    with closing(RecordFetcher(settings, Topic.CONTENT)) as fetch:
        for letter in letters:
            at, why = letter.newest.coordinates, impossible(letter.newest)
            if why is not None:
                done[_id(letter)] = Replayed(letter, "refused", why)
            elif at.topic == Topic.CONTENT and fetch(at.partition, at.offset) is None:
                done[_id(letter)] = Replayed(letter, "gone", "the log no longer holds the event: discard the letter")
            else:
                possible.append(letter)
    tell = progress or (lambda step, count, total: None)
    with (
        closing(KafkaTail(settings, [Topic.RECEIPTS], since="end")) as tail,
        closing(KafkaPublisher(settings, "letters")) as publisher,
    ):
        waiting = _ask(publisher, possible, requested_by)
        end = time.monotonic() + timeout_s
        while waiting and time.monotonic() < end:
            for record in tail.poll(200):
                receipt = _receipt(record.value)
                asked = _answers(receipt) if receipt is not None else None
                letter_ = waiting.pop(asked, None) if asked is not None else None
                if letter_ is None or receipt is None:
                    continue
                result = _result(receipt)
                done[_id(letter_)] = Replayed(letter_, result, receipt.reason)
                if result in ("processed", "superseded"):
                    settle(publisher, letter_, "replayed", requested_by, receipt.reason or receipt.outcome)
                tell("replay", len(possible) - len(waiting), len(possible))
    for letter in waiting.values():
        done[_id(letter)] = Replayed(
            letter, "unanswered", f"no receipt within {timeout_s:.0f} s; does its consumer run?"
        )
    return [done[_id(letter)] for letter in letters]


def impossible(letter: DeadLetter) -> str | None:
    """Why a letter cannot be replayed, or None."""
    if letter.document is None:
        return "the record names no document that could be processed again"
    if letter.coordinates.topic == Topic.CONTENT:
        return None if letter.generation is not None else "it belongs to no generation"
    if letter.coordinates.topic == Topic.CURSORS:
        return None
    if letter.lane in ("access", "membership"):
        return "an access record that cannot be read closes its document until its owner writes a readable one"
    return f"records of {letter.coordinates.topic} are not processed again: send the command anew"


def _ask(publisher: Publisher, letters: Sequence[Letter], requested_by: str) -> dict[tuple[str, str], Letter]:
    """Publish the commands; what their receipts will name -> letter."""
    from pipeline.clock import SystemClock

    now = SystemClock().now()
    waiting: dict[tuple[str, str], Letter] = {}
    outgoing: list[tuple[Letter, Outgoing]] = []
    for number, letter in enumerate(letters):
        newest, document = letter.newest, letter.newest.document
        assert document is not None
        if newest.coordinates.topic == Topic.CURSORS:
            request = SourceRequest(
                type="document",
                tenant=document.tenant,
                source=document.source,
                document=document,
                request_id=f"letter-{now}-{number}",
                requested_at=now,
                requested_by=requested_by,
            )
            waiting[("request", request.request_id)] = letter
            asked = Outgoing(Topic.REQUESTS, document.source, request.model_dump_json().encode())
            outgoing.append((letter, asked))
            continue
        command = MaintenanceCommand(
            type="reprocess",
            document=document,
            generation=newest.generation,
            offset=newest.coordinates.offset,
            requested_at=now,
            priority="live" if len(letters) <= LIVE_AT_MOST else "bulk",
        )
        outgoing.append((letter, Outgoing(Topic.MAINTENANCE, document.key, command.model_dump_json().encode())))
    places = publisher.publish([record for _, record in outgoing]) if outgoing else []
    for (letter, record), place in zip(outgoing, places, strict=True):
        if record.topic == Topic.MAINTENANCE:
            where = Coordinates(topic=str(place.topic), partition=place.partition, offset=place.offset)
            waiting[("place", f"{letter.newest.generation}:{where.partition}/{where.offset}")] = letter
    return waiting


def _receipt(value: bytes | None) -> Receipt | None:
    from pydantic import ValidationError

    try:
        return Receipt.model_validate_json(value or b"")
    except ValidationError:
        return None


def _answers(receipt: Receipt) -> tuple[str, str] | None:
    at = receipt.coordinates
    if receipt.lane == "index" and at is not None and at.topic == Topic.MAINTENANCE:
        return "place", f"{receipt.generation}:{at.partition}/{at.offset}"
    return ("request", receipt.request_id) if receipt.request_id is not None else None


def _result(receipt: Receipt) -> Result:
    if receipt.outcome in ("dead_letter", "parked"):
        return "failed"
    if receipt.outcome == "body_gone":
        return "gone"
    if receipt.outcome == "refused":
        return "refused"
    return "superseded" if receipt.outcome == "superseded" else "processed"


def _id(letter: Letter) -> str:
    return f"{letter.newest.lane} {letter.newest.generation} {letter.name}"


def release(
    settings: Settings,
    source: ParkedSource,
    read: Callable[[], Sequence[Letter]],
    *,
    requested_by: str,
    timeout_s: float = 600.0,
    progress: ProgressBar | None = None,
) -> list[Replayed]:
    """Have everything processed again that was set aside while the source was parked.

    The first success takes the source up again in the consumer that parked it. What came in meanwhile was set aside
    too, so the letters are ``read`` again until none is new. A source whose fault is not mended stays parked.
    """
    done: dict[str, Replayed] = {}
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = select(read(), tenant=source.tenant, source=source.source, generation=source.generation, parked=True)
        new = [letter for letter in found if _id(letter) not in done]
        if not new:
            break
        left = max(1.0, end - time.monotonic())
        outcome = replay(settings, new, requested_by=requested_by, timeout_s=left, progress=progress)
        done.update((_id(replayed.letter), replayed) for replayed in outcome)
        if not any(replayed.result == "processed" for replayed in outcome):
            break
    return list(done.values())


def settle(
    publisher: Publisher, letter: Letter, how: Literal["replayed", "discarded"], by: str, reason: str
) -> DeadLetter:
    """Append that the letter counts no longer, next to the letter itself. Raises BusUnavailable."""
    from pipeline.clock import SystemClock

    newest, at = letter.newest, letter.newest.coordinates
    settled = newest.model_copy(
        update={"settled": how, "settled_at": SystemClock().now(), "settled_by": by, "settled_reason": reason[:2000]}
    )
    key = newest.key if newest.key is not None else f"{at.topic}/{at.partition}/{at.offset}"
    place = newest.document.key if newest.document is not None else key
    publisher.publish([Outgoing(str(Topic.DEAD_LETTER), key, settled.model_dump_json().encode(), partition_key=place)])
    return settled


def discard(settings: Settings, letters: Sequence[Letter], *, by: str, reason: str) -> None:
    """Settle letters without processing them; the reason is kept with them. Raises BusUnavailable."""
    from pipeline.bus.producer import KafkaPublisher

    with closing(KafkaPublisher(settings, "letters")) as publisher:
        for letter in letters:
            settle(publisher, letter, "discarded", by, reason)
