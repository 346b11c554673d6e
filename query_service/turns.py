"""Searches take turns: so many are worked on at once, the others wait, each tenant in turn.

A search is bound by the processor. Fifty at once end later than fifty one after another: each passes its deadline, and
the looks at the log's end that spare them reading the store come too late for all. What waits has not begun, so its
deadline runs from its turn. Used from the event loop alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipeline.observe import Metrics
from pipeline.settings_query import LimitSettings
from query_service.limits import Limited

PER_CORE = 2
RETRY_S = 2


class Turns:
    """One for the process. ``at_once`` 0 lets everybody through."""

    def __init__(self, settings: LimitSettings, metrics: Metrics) -> None:
        at_once = settings.searches
        self._at_once = PER_CORE * (os.cpu_count() or 1) if at_once is None else at_once
        self._patience_s = settings.searches_wait_s
        self._metrics = metrics
        self._running = 0
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Searches that wait for their turn."""
        return sum(not place.done() for queue in self._queues.values() for place in queue)

    @asynccontextmanager
    async def of(self, tenant: str, *, idle: bool = False) -> AsyncIterator[float]:
        """Wait for a turn and hold it; gives the milliseconds that were waited. ``idle``: it waits for others most of
        the time, as for a generator, and would keep processors from those behind it; it takes none. Raises Limited
        where none came in ``limits.searches_wait_s``."""
        if idle or not self._at_once:
            yield 0.0
            return
        started = time.perf_counter()
        await self._turn(tenant)
        try:
            yield (time.perf_counter() - started) * 1000
        finally:
            self._running -= 1
            self._call_next()

    async def _turn(self, tenant: str) -> None:
        if self._running < self._at_once and not self._queues:
            self._running += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant, deque()).append(place)
        self._tell()
        try:
            async with asyncio.timeout(self._patience_s):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():  # called in the very moment in which it gave up
                self._running -= 1
            else:
                place.cancel()
                self._leave(tenant, place)
            self._call_next()
            if isinstance(error, TimeoutError):
                detail = "The service is busy: other searches were in front for too long; try again shortly."
                raise Limited(detail, RETRY_S) from None
            raise

    def _leave(self, tenant: str, place: asyncio.Future[None]) -> None:
        queue = self._queues.get(tenant)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self._queues[tenant]

    def _call_next(self) -> None:
        """Let the first of the next tenant in; the tenant goes to the end of the row."""
        while self._queues and self._running < self._at_once:
            tenant, queue = self._queues.popitem(last=False)
            place = queue.popleft()
            if queue:
                self._queues[tenant] = queue
            if not place.done():
                self._running += 1
                place.set_result(None)
        self._tell()

    def _tell(self) -> None:
        self._metrics.set("headwater_searches_waiting", self.waiting)
