"""What the faces of answering share: whom they ask, how sentences are shown, and how a stream is kept alive."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from fastapi.responses import StreamingResponse
from starlette.types import Send

from query_service import problems
from query_service.scope import Scope
from schemas.api import Problem
from schemas.api_answer import AnswerRequest, AnswerResponse, AnswerSentence, Citation, SentenceEvent, StepEvent

log = logging.getLogger("headwater.query.answer")

Event = StepEvent | SentenceEvent | AnswerResponse
Item = TypeVar("Item")
KEEP_ALIVE_S = 5.0


class Answering(Protocol):
    """Answers a question within a scope."""

    async def answer(self, scope: Scope, request: AnswerRequest) -> AnswerResponse:
        """The whole answer. Raises FieldError, NotReady, DeadlineExceeded and Retry as a search does."""
        ...

    def stream(self, scope: Scope, request: AnswerRequest) -> AsyncIterator[Event]:
        """The answer as it is released; its last item is the AnswerResponse. Raises as ``answer``, at any point."""
        ...


def footnotes(sentence: AnswerSentence) -> str:
    """``[^1][^3]``."""
    return "".join(f"[^{number}]" for number in sentence.citations)


def shown(sentence: AnswerSentence) -> str:
    """Its words as Markdown. What has several lines is a block of code: prose, items and rows have one each."""
    if "\n" not in sentence.text.strip():
        return sentence.text
    fence = "`" * max(3, *(1 + len(run) for run in re.findall("`+", sentence.text)), 0)
    return f"{fence}\n{sentence.text}\n{fence}\n"


def web_address(citation: Citation) -> str | None:
    """Where the source can be opened, if a browser may follow it."""
    if citation.url is None:
        return None
    try:
        parts = urlsplit(citation.url)
    except ValueError:
        return None
    return citation.url if parts.scheme in ("http", "https") and parts.netloc else None


class _End:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


async def paced(items: AsyncIterator[Item], every_s: float = KEEP_ALIVE_S) -> AsyncGenerator[Item | None, None]:
    """The items, and None whenever ``every_s`` seconds went by without one. Raises what ``items`` raises.

    Closing or cancelling it ends the work behind ``items``, which runs in one task from beginning to end.
    """
    queue: asyncio.Queue[Item | _End] = asyncio.Queue(1)

    async def work() -> None:
        try:
            async for item in items:
                await queue.put(item)
        except Exception as error:
            await queue.put(_End(error))
        else:
            await queue.put(_End())
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    task = asyncio.create_task(work())
    try:
        while True:
            try:
                async with asyncio.timeout(every_s):
                    found = await queue.get()
            except TimeoutError:
                yield None
                continue
            if isinstance(found, _End):
                if found.error is not None:
                    raise found.error
                return
            yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class EventStream(StreamingResponse):
    """Server-sent events. The work behind them ends with the connection, at once."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        """Send the parts; close their source whatever happens."""
        parts = self.body_iterator
        try:
            await super().stream_response(send)
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()


def problem_of(error: Exception) -> Problem:
    """What is told of an error in a stream whose head is sent. Logs what nobody expected."""
    reply = problems.of(error)
    if reply is None:
        log.error("an answer failed", extra={"fields": problems.fault(error)})
        reply = problems.internal()
    return Problem.model_validate_json(bytes(reply.body))
