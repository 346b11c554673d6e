"""Answers: whole, and sentence by sentence as they are released."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Unpack

import httpx

from query_service.client import calls
from query_service.client.calls import AnswerFields
from query_service.client.errors import Unavailable
from query_service.client.events import AnswerEvent, EventReader
from query_service.client.running import AsyncRunning, Running
from schemas.api_answer import AnswerResponse

_BROKEN = "The answer broke off; ask again."


class Answers(Running):
    """Blocking."""

    def answer(self, question: str, **fields: Unpack[AnswerFields]) -> AnswerResponse:
        """An answer that rests on what the caller may read, or a refusal: see ``answered``."""
        return self._run(calls.answer(question, fields))

    def stream_answer(self, question: str, **fields: Unpack[AnswerFields]) -> Iterator[AnswerEvent]:
        """Steps and sentences as they are released; the last item is the whole answer.

        The whole answer counts: a sentence whose source was withdrawn meanwhile is not in it. Leaving the loop ends the
        work at the service.
        """
        with self._opened(calls.answer(question, fields, stream=True)) as (reply, until):
            reader = EventReader(reply, until, self._base)
            try:
                for part in reply.iter_bytes():
                    yield from reader.take(part)
                    if reader.ended:
                        return
            except httpx.HTTPError as error:
                raise Unavailable(f"{_BROKEN} ({type(error).__name__})") from None
        raise Unavailable(_BROKEN)


class AsyncAnswers(AsyncRunning):
    """Awaited."""

    async def answer(self, question: str, **fields: Unpack[AnswerFields]) -> AnswerResponse:
        """An answer that rests on what the caller may read, or a refusal: see ``answered``."""
        return await self._run(calls.answer(question, fields))

    async def stream_answer(self, question: str, **fields: Unpack[AnswerFields]) -> AsyncIterator[AnswerEvent]:
        """Steps and sentences as they are released; the last item is the whole answer.

        The whole answer counts: a sentence whose source was withdrawn meanwhile is not in it. Leaving the loop ends the
        work at the service; ``contextlib.aclosing`` ends it at once.
        """
        async with self._opened(calls.answer(question, fields, stream=True)) as (reply, until):
            reader = EventReader(reply, until, self._base)
            try:
                async for part in reply.aiter_bytes():
                    for event in reader.take(part):
                        yield event
                    if reader.ended:
                        return
            except httpx.HTTPError as error:
                raise Unavailable(f"{_BROKEN} ({type(error).__name__})") from None
        raise Unavailable(_BROKEN)
