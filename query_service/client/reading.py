"""How a reply is read: within bounds of size and time, whoever answers."""

from __future__ import annotations

import time

import httpx

from query_service.client.errors import UnexpectedReply
from query_service.client.exchange import Received

MAX_REPLY = 64 * 1024 * 1024
"""Bytes of a reply; no reply of this API comes near it."""


class Reading:
    """A reply as its parts come in, within MAX_REPLY and the attempt's time: a server that sends a byte now and then
    ends no timeout of a single read."""

    def __init__(self, reply: httpx.Response, until: float) -> None:
        self._reply, self._until = reply, until
        self._content = bytearray()

    def take(self, part: bytes) -> None:
        """Raises UnexpectedReply or httpx.ReadTimeout."""
        self._content += part
        if len(self._content) > MAX_REPLY:
            raise UnexpectedReply(f"The reply has more than {MAX_REPLY} bytes.", status=self._reply.status_code)
        if time.monotonic() > self._until:
            raise httpx.ReadTimeout("the reply did not end in time")

    def received(self) -> Received:
        """The whole reply."""
        headers = {k.lower(): v for k, v in self._reply.headers.items()}
        return Received(self._reply.status_code, headers, bytes(self._content))
