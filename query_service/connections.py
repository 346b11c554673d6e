"""HTTP connections of the query service: how many, how long a request's head may take, and how large it may be."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.settings_query import LimitSettings

MAX_HEAD = 32 * 1024
"""Bytes of a request's line and headers together."""
STALLED_S = 20.0
"""A client that takes nothing of its reply for so long has left."""


def protocol(limits: LimitSettings) -> type[asyncio.Protocol]:
    """The protocol class for a server with these limits.

    A connection above ``limits.connections`` is closed at once. One whose request line and headers are not complete
    within ``limits.header_s`` of their first byte (of the connection, for the first request) is closed too: a client
    that sends a byte now and then would hold it for ever. Bodies have their own time (``middleware.Attended``).
    So does one whose client takes nothing of a waiting reply for STALLED_S: neither the server's keep-alive nor its
    close ends while bytes wait, and a handler that has more to send would hold its caller's place meanwhile.
    """

    class Bounded(H11Protocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._head_timer: asyncio.TimerHandle | None = None
            self._reply_timer: asyncio.TimerHandle | None = None
            self._unsent = 0

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
            self._reply_waits()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._reply_waits()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_head()
            if self._reply_timer is not None:
                self._reply_timer.cancel()
            super().connection_lost(exc)

        def _reply_waits(self) -> None:
            if self._reply_timer is None and self._left():
                self._unsent = self._left()
                self._reply_timer = self.loop.call_later(STALLED_S, self._stalled)

        def _stalled(self) -> None:
            """Abort where nothing moved; whoever reads slowly gets a further term."""
            self._reply_timer = None
            if self._left() and self._left() == self._unsent:
                self.transport.abort()
            else:
                self._reply_waits()

        def _left(self) -> int:
            return self.transport.get_write_buffer_size()

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
