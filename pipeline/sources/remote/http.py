"""HTTP to a source system: paced, bounded in time and size, patient where the system asks for it.

It never sleeps for long and never retries by itself what may be said to somebody else meanwhile: a limit becomes
``RateLimited``, an outage ``SourceUnavailable``, and whoever asked goes on with other work and asks again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from pipeline.clock import Clock
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.remote.contract import RateLimited

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of an answer that is not a document's body."""
FIRST_PATIENCE_S = 2.0
"""How long to wait where a system limits without saying for how long; doubled for each time in a row."""
MOST_PATIENCE_S = 300.0
ANSWERS = frozenset({304, 400, 403, 404, 409, 410, 412, 422})
"""Statuses that say something about what was asked for, rather than about the system."""


class HttpApi:
    """One system's API. ``per_second`` bounds the requests that start in a second."""

    def __init__(
        self,
        base: str,
        clock: Clock,
        *,
        timeout_s: float = 10.0,
        per_second: float = 20.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """``base`` ends where paths begin. Redirects are not followed: credentials stay with the system."""
        self.reach = Reach()
        self._clock, self._gap = clock, 1.0 / per_second
        self._next = 0.0  # when the next request may start
        self._limited_in_a_row = 0
        self._client = httpx.Client(
            base_url=base.rstrip("/"),
            timeout=timeout_s,
            headers={"User-Agent": "headwater", **(headers or {})},
            transport=transport,
        )

    def get(self, path: str, params: Mapping[str, Any] | None = None, **options: Any) -> httpx.Response:
        """A read. Raises RateLimited or SourceUnavailable; see ``ANSWERS`` for the statuses that are given back."""
        return self.ask("GET", path, params=params, **options)

    def post(self, path: str, data: Mapping[str, Any] | None = None, **options: Any) -> httpx.Response:
        """As ``get``. For reads that are too long for an address, and for signing in."""
        return self.ask("POST", path, data=data, **options)

    def body(self, address: str, most: int, params: Mapping[str, Any] | None = None) -> tuple[httpx.Response, bytes]:
        """The bytes of a file, read no further than ``most`` + 1: whoever sees more than ``most`` refuses it."""
        self._may_ask()
        parts: list[bytes] = []
        size = 0
        try:
            with self._client.stream("GET", address, params=params) as response:
                self._judge(response)
                for part in response.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        break
        except httpx.HTTPError as error:
            raise self._failed(error) from error
        return response, b"".join(parts)[: most + 1]

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request. Raises RateLimited or SourceUnavailable."""
        self._may_ask()
        try:
            with self._client.stream(method, path, **options) as response:
                parts: list[bytes] = []
                size = 0
                for part in response.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > MAX_ANSWER:
                        self.reach.failures += 1
                        raise SourceUnavailable(f"the answer to {path or '/'} has more than {MAX_ANSWER} bytes")
        except httpx.HTTPError as error:
            raise self._failed(error) from error
        whole = httpx.Response(
            response.status_code,
            headers=[
                (k, v) for k, v in response.headers.multi_items() if k not in ("content-encoding", "content-length")
            ],
            content=b"".join(parts),
            request=response.request,
        )
        self._judge(whole)
        return whole

    def cookies(self) -> httpx.Cookies:
        """Of the session."""
        return self._client.cookies

    def limit(self, seconds: float | None, why: str) -> RateLimited:
        """The system asked for patience in its own words: what to raise. ``seconds`` None where it did not say."""
        self._limited_in_a_row += 1
        wait = seconds if seconds is not None else FIRST_PATIENCE_S * 2.0 ** min(self._limited_in_a_row - 1, 10)
        wait = min(max(wait, 0.1), MOST_PATIENCE_S)
        self.reach.limited += 1
        self.reach.waiting_until = self._clock.elapsed() + wait
        return RateLimited(f"{why}; asked again in {wait:.0f} s", wait)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _may_ask(self) -> None:
        """Keep the pace. Raises RateLimited while the system's own wish for patience stands."""
        now = self._clock.elapsed()
        if now < self.reach.waiting_until:
            raise RateLimited("the system asked for patience", self.reach.waiting_until - now)
        pause = self._next - now
        if pause > 0:
            time.sleep(min(pause, self._gap))
        self._next = max(now, self._next) + self._gap
        self.reach.requests += 1

    def _judge(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (429, 503) or (status == 403 and "retry-after" in response.headers):
            raise self.limit(_seconds(response.headers.get("retry-after")), f"it answered {status}")
        if status == 401:
            self.reach.failures += 1
            raise SourceUnavailable("the credentials are refused (401): renew them in the settings")
        if status >= 400 and status not in ANSWERS:
            self.reach.failures += 1
            raise SourceUnavailable(f"it answered {status}")
        if 300 <= status < 400 and status != 304:
            where = response.headers.get("location", "")
            self.reach.failures += 1
            raise SourceUnavailable(f"it redirects to {where[:200]}: name that address in the settings if it is right")
        self._limited_in_a_row = 0

    def _failed(self, error: httpx.HTTPError) -> SourceUnavailable:
        self.reach.failures += 1
        return SourceUnavailable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _seconds(header: str | None) -> float | None:
    """Seconds of a ``Retry-After``, which is a number or a date."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
