"""HTTP connections of the query service: how many, how long a request's head may take, and how large it may be."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.settings_query import LimitSettings

MAX_HEAD = 32 * 1024
"""Bytes of a request's line and headers together."""


def protocol(limits: LimitSettings) -> type[asyncio.Protocol]:
    """The protocol class for a server with these limits.

    A connection above ``limits.connections`` is closed at once. One whose request line and headers are not complete
    within ``limits.header_s`` of their first byte (of the connection, for the first request) is closed too: a client
    that sends a byte now and then would hold it for ever. Bodies have their own time (``middleware.Attended``).
    """

    class Bounded(H11Protocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._head_moved()

        def on_response_complete(self) -> None:
            super().on_response_complete()  # goes on with what came meanwhile
            self._head_moved()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_head()
            super().connection_lost(exc)

        def _head_moved(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self._forget_head()
            elif self._head_timer is None and self.conn.trailing_data[0]:
                self._expect_head()  # a further request has begun

        def _expect_head(self) -> None:
            self._head_timer = self.loop.call_later(limits.header_s, self._too_slow)

        def _forget_head(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _too_slow(self) -> None:
            self._head_timer = None
            if not self.transport.is_closing():
                self.transport.abort()

    return Bounded


def server_options(limits: LimitSettings) -> dict[str, Any]:
    """Options of ``uvicorn.Config`` that every start of the service has in common."""
    return {
        "http": protocol(limits),
        "ws": "none",
        "h11_max_incomplete_event_size": MAX_HEAD,
        "timeout_keep_alive": 5,
        "timeout_graceful_shutdown": 5,
        "log_config": None,
        "access_log": False,
        "server_header": False,
    }
