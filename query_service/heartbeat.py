"""Heartbeats of this process: which encoders are warm, what serves, what runs. Control decides by them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from pipeline.clock import Clock
from pipeline.errors import HeadwaterError
from query_service.flights import Flights
from query_service.state import ServiceState
from schemas.instances import HEARTBEAT_S, InstanceHeartbeat

log = logging.getLogger("headwater.query.heartbeat")

FAREWELL_S = 2.0


class Pulse(Protocol):
    """Where heartbeats go; used by one thread."""

    def send(self, beat: InstanceHeartbeat) -> None:
        """Append it to the log. Raises BusUnavailable."""
        ...

    def close(self) -> None: ...


class Heart:
    """Beats every HEARTBEAT_S and at once when something changes; the last beat says that the process stops."""

    def __init__(self, pulse: Pulse, state: ServiceState, flights: Flights, clock: Clock) -> None:
        self.instance = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._pulse = pulse
        self._state = state
        self._flights = flights
        self._clock = clock
        self._started_at = clock.now()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="heartbeat")
        self._wake = asyncio.Event()
        self._failing = False
        state.subscribe(self._wake.set)

    def beat(self, *, stopping: bool = False) -> InstanceHeartbeat:
        """The process as it is now; taken in the event loop, so that all of it belongs to one moment."""
        return InstanceHeartbeat(
            instance=self.instance,
            warm=self._state.warm(),
            active=self._state.active,
            in_flight=self._flights.counts(),
            stopping=stopping,
            started_at=self._started_at,
            at=self._clock.now(),
        )

    async def run(self) -> None:
        """Beat until cancelled; a log that is away is waited for."""
        while True:
            self._wake.clear()
            await self._send(self.beat())
            try:
                await asyncio.wait_for(self._wake.wait(), HEARTBEAT_S)
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """The last beat, as far as the log takes it soon."""
        try:
            await asyncio.wait_for(self._send(self.beat(stopping=True)), FAREWELL_S)
        except TimeoutError:
            log.warning("the last heartbeat was not taken in time")
        self._executor.submit(self._pulse.close)
        self._executor.shutdown(wait=False)

    async def _send(self, beat: InstanceHeartbeat) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._pulse.send, beat)
        except HeadwaterError as error:
            if not self._failing:
                log.warning("heartbeats are not taken: %s", error)
            self._failing = True
            return
        if self._failing:
            log.info("heartbeats are taken again")
        self._failing = False
