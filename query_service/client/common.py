"""What both clients share: address, credentials, timeouts, and a lost connection as a value."""

from __future__ import annotations

import time
from typing import Any

import httpx

from query_service.client.exchange import Credentials, Lost, Retry, Send

TIMEOUT_S = 30.0
CONNECT_S = 5.0
CONNECTIONS = httpx.Limits(max_connections=50, max_keepalive_connections=20, keepalive_expiry=30.0)


class Common:
    """Address, credentials and timeouts of both clients.

    ``base_url`` is the service's address (``http://127.0.0.1:8700``); ``timeout_s`` bounds one attempt, besides what
    the service was asked to wait. Raises ValueError.
    """

    def __init__(
        self, base_url: str, credentials: Credentials, timeout_s: float, retry: Retry | None, headers: dict[str, str]
    ) -> None:
        address = httpx.URL(base_url)
        if address.scheme not in ("http", "https") or not address.host:
            raise ValueError("base_url: needs a whole address, such as https://search.example")
        if address.userinfo:
            raise ValueError("base_url: holds a user or password; give a token or an API key instead")
        if address.query or address.fragment:
            raise ValueError("base_url: holds a query or a fragment; give the address alone")
        self._base = str(address).rstrip("/")
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._retry = retry if retry is not None else Retry()
        self._headers = headers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base!r}, {self._credentials!r})"

    def _until(self, step: Send) -> float:
        """When an attempt that begins now is over, by the monotonic clock."""
        return time.monotonic() + self._timeout_s + step.call.extra_s

    def _options(self, step: Send) -> dict[str, Any]:
        call = step.call
        return {
            "method": call.method,
            "url": self._base + call.path,
            "params": dict(call.params) or None,
            "json": call.body,
            "headers": {"Accept": "application/json", **self._headers, **step.headers},
            "timeout": httpx.Timeout(self._timeout_s + call.extra_s, connect=min(CONNECT_S, self._timeout_s)),
            "follow_redirects": False,  # a token goes to no other address
        }


def lost(error: httpx.HTTPError) -> Lost:
    # A read that timed out did cost the service its work: asking again would cost it more.
    return Lost(type(error).__name__, not isinstance(error, httpx.ReadTimeout | httpx.UnsupportedProtocol))
