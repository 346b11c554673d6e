"""``POST /v1/answer``: one JSON reply, or server-sent events.

event: step       what happens now
event: sentence   one that passed its checks, with the citations that are new
event: done       the whole answer; it counts
event: error      a problem, where something failed after the first event
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from query_service.answer.face import EventStream, paced, problem_of
from query_service.answer.service import AnswerService, Event
from query_service.callers import Caller
from schemas.api import Problem
from schemas.api_answer import AnswerRequest, AnswerResponse, SentenceEvent

EVENTS = "text/event-stream"
KEEP_ALIVE_S = 10.0
_EXAMPLE = 'event: step\ndata: {"step":"searching","passages":null}\n\n'
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer, or with 'stream' its events: step, sentence, done, error.",
        "content": {EVENTS: {"schema": {"type": "string"}, "example": _EXAMPLE}},
    },
    401: {"model": Problem, "description": "The token is missing, expired or not valid here."},
    422: {"model": Problem, "description": "Fields that cannot be used, by name."},
    429: {"model": Problem, "description": "Over a limit of requests, or the budget for generated text is used up."},
    503: {"model": Problem, "description": "Something below is down or not ready; Retry-After says when to ask again."},
}


def router(service: AnswerService) -> APIRouter:
    """The route."""
    made = APIRouter(prefix="/v1")

    @made.post(
        "/answer", response_model=AnswerResponse, responses=_STREAM, summary="Answer from what the caller may read"
    )
    async def answer(request: AnswerRequest, caller: Caller, http: Request) -> Response:
        if not request.stream and EVENTS not in http.headers.get("accept", ""):
            found = await service.answer(caller, request)
            return Response(found.model_dump_json(), media_type="application/json")
        events = service.stream(caller, request)
        first = await anext(events)  # what is wrong with the request is told by a status
        return EventStream(_sent(first, events), headers={"X-Accel-Buffering": "no"})

    return made


async def _sent(first: Event, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    yield _event(first)
    try:
        async with aclosing(paced(events, KEEP_ALIVE_S)) as paces:
            async for found in paces:
                yield b": still at work\n\n" if found is None else _event(found)
    except Exception as error:
        yield sse("error", problem_of(error))


def _event(event: Event) -> bytes:
    name = "step"
    if isinstance(event, SentenceEvent):
        name = "sentence"
    elif isinstance(event, AnswerResponse):
        name = "done"
    return sse(name, event)


def sse(name: str, data: BaseModel) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {data.model_dump_json()}\n\n".encode()
