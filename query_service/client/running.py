"""What runs a call, blocking and awaited: to its reply, or to the beginning of one that is streamed."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx

from query_service.client.calls import Call, Reply
from query_service.client.common import Common, lost
from query_service.client.exchange import AskToken, Pause, Received, Send, Step, attempts, exchange
from query_service.client.reading import Reading


class Running(Common):
    """Blocking."""

    _http: httpx.Client

    def _run(self, call: Call[Reply]) -> Reply:
        steps, answer = exchange(call, self._credentials, self._retry, self._base), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            answer = self._do(step)

    def _do(self, step: Step) -> Any:
        if not isinstance(step, Send):
            return self._beside(step)
        try:
            until = self._until(step)
            with self._http.stream(**self._options(step)) as reply:
                reading = Reading(reply, until)
                for part in reply.iter_bytes():
                    reading.take(part)
            return reading.received()
        except httpx.HTTPError as error:
            return lost(error)

    def _beside(self, step: Pause | AskToken) -> Any:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        assert self._credentials.source is not None
        return self._credentials.source()

    @contextmanager
    def _opened(self, call: Call[Any]) -> Iterator[tuple[httpx.Response, float]]:
        """A reply that succeeded and was not read, and when its time is over. Raises HeadwaterError."""
        steps, answer = attempts(call, self._credentials, self._retry, self._base), None
        while True:
            step = steps.send(answer)
            if not isinstance(step, Send):
                answer = self._beside(step)
                continue
            options = self._options(step)
            until, redirects = self._until(step), options.pop("follow_redirects")
            try:
                reply = self._http.send(self._http.build_request(**options), stream=True, follow_redirects=redirects)
            except httpx.HTTPError as error:
                answer = lost(error)
                continue
            try:
                if reply.is_success:
                    yield reply, until
                    return
                answer = _whole(reply, reply.read(), until)
            except httpx.HTTPError as error:
                if reply.is_success:
                    raise
                answer = lost(error)
            finally:
                reply.close()


class AsyncRunning(Common):
    """Awaited."""

    _http: httpx.AsyncClient

    async def _run(self, call: Call[Reply]) -> Reply:
        steps, answer = exchange(call, self._credentials, self._retry, self._base), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            answer = await self._do(step)

    async def _do(self, step: Step) -> Any:
        if not isinstance(step, Send):
            return await self._beside(step)
        try:
            until = self._until(step)
            async with self._http.stream(**self._options(step)) as reply:
                reading = Reading(reply, until)
                async for part in reply.aiter_bytes():
                    reading.take(part)
            return reading.received()
        except httpx.HTTPError as error:
            return lost(error)

    async def _beside(self, step: Pause | AskToken) -> Any:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        assert self._credentials.source is not None
        given = self._credentials.source()
        return await given if inspect.isawaitable(given) else given

    @asynccontextmanager
    async def _opened(self, call: Call[Any]) -> AsyncIterator[tuple[httpx.Response, float]]:
        """A reply that succeeded and was not read, and when its time is over. Raises HeadwaterError."""
        steps, answer = attempts(call, self._credentials, self._retry, self._base), None
        while True:
            step = steps.send(answer)
            if not isinstance(step, Send):
                answer = await self._beside(step)
                continue
            options = self._options(step)
            until, redirects = self._until(step), options.pop("follow_redirects")
            try:
                request = self._http.build_request(**options)
                reply = await self._http.send(request, stream=True, follow_redirects=redirects)
            except httpx.HTTPError as error:
                answer = lost(error)
                continue
            try:
                if reply.is_success:
                    yield reply, until
                    return
                answer = _whole(reply, await reply.aread(), until)
            except httpx.HTTPError as error:
                if reply.is_success:
                    raise
                answer = lost(error)
            finally:
                await reply.aclose()


def _whole(reply: httpx.Response, content: bytes, until: float) -> Received:
    reading = Reading(reply, until)
    reading.take(content)
    return reading.received()
