"""Server-sent events of an answer, from bytes to what they say."""

from __future__ import annotations

import time

import httpx

from query_service.client.errors import UnexpectedReply
from query_service.client.exchange import Received, read, refuse
from query_service.client.reading import MAX_REPLY
from schemas.api import Problem
from schemas.api_answer import AnswerResponse, SentenceEvent, StepEvent

EVENTS = "text/event-stream"
AnswerEvent = StepEvent | SentenceEvent | AnswerResponse


class EventReader:
    """Takes the bytes of a stream as they come and gives its events. ``until`` by the monotonic clock."""

    def __init__(self, reply: httpx.Response, until: float, address: str) -> None:
        self._until, self._address = until, address
        self._left = bytearray()
        self._taken = 0
        self._name, self._data = "", list[str]()
        self.ended = False
        if not reply.headers.get("content-type", "").startswith(EVENTS):
            raise UnexpectedReply(
                f"What answers at {address} is not this API: it sends no events.", status=reply.status_code
            )

    def take(self, part: bytes) -> list[AnswerEvent]:
        """The events that are whole now; the AnswerResponse is the last. Raises HeadwaterError: what the service tells
        in an event ``error``, too. Raises httpx.ReadTimeout past the time."""
        self._taken += len(part)
        if self._taken > MAX_REPLY:
            raise UnexpectedReply(f"The reply has more than {MAX_REPLY} bytes.")
        if time.monotonic() > self._until:
            raise httpx.ReadTimeout("the answer did not end in time")
        self._left += part
        *lines, rest = bytes(self._left).split(b"\n")
        self._left = bytearray(rest)
        found = [event for line in lines if (event := self._line(line.decode("utf-8", "replace"))) is not None]
        self.ended = self.ended or any(isinstance(event, AnswerResponse) for event in found)
        return found

    def _line(self, line: str) -> AnswerEvent | None:
        line = line.removesuffix("\r")
        if line:
            field, _, value = line.partition(":")  # one that begins with a colon is a comment
            if field == "event":
                self._name = value.removeprefix(" ")
            elif field == "data":
                self._data.append(value.removeprefix(" "))
            return None
        name, data = self._name, "\n".join(self._data)
        self._name, self._data = "", []
        return self._event(name, data) if data else None

    def _event(self, name: str, data: str) -> AnswerEvent | None:
        if name == "step":
            return read(data, StepEvent, self._address)
        if name == "sentence":
            return read(data, SentenceEvent, self._address)
        if name == "done":
            return read(data, AnswerResponse, self._address)
        if name == "error":
            problem = read(data, Problem, self._address)
            refuse(Received(problem.status, {}, data.encode()), None, self._address)
        return None  # of a newer service
