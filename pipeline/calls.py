"""Calls of other servers with one deadline for the whole of each, for code that is not asynchronous.

The timeouts of HTTP libraries hold for each read: a server that sends a byte now and then, in its headers too, outlasts
them. Here a call is a coroutine on an event loop of its own, cancelled when its time is over, in whatever it waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
CLOSE_S = 3.0


class Calls:
    """An event loop in a thread, begun with the first call. Used from any number of threads."""

    def __init__(self, name: str) -> None:
        """``name`` of the thread."""
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """What ``work`` gives. Raises TimeoutError where that takes longer, and whatever it raises itself."""

        async def bounded() -> T:
            async with asyncio.timeout(timeout_s):
                return await work()

        return asyncio.run_coroutine_threadsafe(bounded(), self._running()).result()

    def close(self, last: Callable[[], Awaitable[object]]) -> None:
        """Do ``last`` (closing connections) and end the thread; nothing is waited for longer than a few seconds."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return

        async def bounded() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await last()

        try:
            asyncio.run_coroutine_threadsafe(bounded(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_forever, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
