"""One call from beginning to end, without I/O: credentials, attempts, pauses, and what a reply means.

A client drives the generator: it does what each step says and sends back what came of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

from pydantic import ValidationError

from query_service.client import errors
from query_service.client.calls import Call, Reply
from schemas.api import Problem

LATER = (429, 502, 503, 504)
INVALID = (400, 409, 413, 414, 415, 422)
FOREIGN = (400, 403, 404, 409, 415, 422, 501)
"""Of another server where they come without a problem; proxies send 413, 414, 429 and 5xx in a service's stead."""


@dataclass(frozen=True)
class Retry:
    """How often and how patiently a call is tried again: after 429, 502, 503, 504 and lost connections.

    All calls of this API can be repeated without harm. Pauses grow from ``first_s`` by doubling, with a random part so
    that clients do not return all at once; the service's ``Retry-After`` is honoured. A service that asks for more than
    ``longest_s`` seconds is not waited for: the error comes at once and says how long it asked for.
    """

    attempts: int = 4
    first_s: float = 0.2
    longest_s: float = 20.0

    def pause(self, attempt: int, asked: float | None) -> float | None:
        """Seconds before the attempt after the ``attempt``-th (from 1); None to give up."""
        if attempt >= self.attempts or (asked is not None and asked > self.longest_s):
            return None
        grown = min(self.longest_s, self.first_s * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        return grown if asked is None else asked + grown * 0.25


@dataclass(frozen=True, repr=False)
class Send:
    """Send the request; the answer is a Received or a Lost. Its headers hold credentials."""

    call: Call[Any]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True)
class AskToken:
    """Ask the caller's function for a token; the answer is the token."""


@dataclass(frozen=True)
class Received:
    """A reply."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Lost:
    """No reply. ``again`` says whether another attempt may help."""

    what: str
    again: bool


class Credentials:
    """A token, a function that gives tokens, or an API key. Shows none of them.

    A function is asked at the first call and again when the service no longer accepts what it gave. Raises ValueError.
    """

    def __init__(
        self, token: str | Callable[[], str] | Callable[[], Awaitable[str]] | None, api_key: str | None
    ) -> None:
        if token is not None and api_key is not None:
            raise ValueError("token, api_key: give one of them")
        self.source = token if callable(token) else None
        self._api_key = _header_value("api_key", api_key) if api_key is not None else None
        self._token = _header_value("token", token) if isinstance(token, str) else None

    def __repr__(self) -> str:
        return f"Credentials({'api key' if self._api_key else 'token' if self._token or self.source else 'none'})"

    @property
    def wanting(self) -> bool:
        """Whether the function must be asked before anything can be sent."""
        return self.source is not None and self._token is None

    def accept(self, token: str) -> bool:
        """Take a token from the function; whether it is another one than before."""
        before, self._token = self._token, _header_value("token", token)
        return before != self._token

    def headers(self) -> dict[str, str]:
        """Headers of a request."""
        if self._api_key is not None:
            return {"X-API-Key": self._api_key}
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}


def _header_value(name: str, value: object) -> str:
    """Blanks at the ends (a file's last line end) are dropped; what no header can hold is refused, and not shown."""
    cleaned = value.strip() if isinstance(value, str) else ""
    if not cleaned or not cleaned.isascii() or not cleaned.isprintable() or " " in cleaned:
        raise ValueError(f"{name}: is empty or holds characters that no token has")
    return cleaned


Step = Send | Pause | AskToken


def exchange(call: Call[Reply], credentials: Credentials, retry: Retry, address: str) -> Generator[Step, Any, Reply]:
    """The steps of one call to the service at ``address``, which errors name; returns its reply.

    Raises HeadwaterError.
    """
    return read((yield from attempts(call, credentials, retry, address)).content, call.reply, address)


def attempts(call: Call[Any], credentials: Credentials, retry: Retry, address: str) -> Generator[Step, Any, Received]:
    """``exchange`` up to the reply that succeeds, which is not read. Raises HeadwaterError."""
    attempt, refreshed = 0, False
    if credentials.wanting:
        credentials.accept((yield AskToken()))
    while True:
        attempt += 1
        answer = yield Send(call, credentials.headers())
        if isinstance(answer, Received):
            if answer.status == 401 and credentials.source is not None and not refreshed:
                refreshed = True
                if credentials.accept((yield AskToken())):
                    attempt -= 1
                    continue
            if 200 <= answer.status < 300:
                return answer
            if answer.status not in LATER:
                refuse(answer, None, address)
        asked = _retry_after(answer.headers.get("retry-after")) if isinstance(answer, Received) else None
        again = isinstance(answer, Received) or answer.again
        pause = retry.pause(attempt, asked) if again else None
        if pause is not None:
            yield Pause(pause)
        elif isinstance(answer, Received):
            refuse(answer, asked, address)
        else:
            raise errors.Unavailable(f"The service at {address} does not answer ({answer.what}).")


def read(content: bytes | str, model: type[Reply], address: str) -> Reply:
    """A document of the API. Raises UnexpectedReply."""
    try:
        # Fields that a newer service adds are passed over.
        return model.model_validate_json(content, extra="ignore")
    except ValidationError as error:
        where = ", ".join(sorted({".".join(map(str, e["loc"][:2])) or "body" for e in error.errors()})[:5])
    raise errors.UnexpectedReply(f"What answers at {address} is not this API: its reply lacks {where}.", status=200)


def refuse(answer: Received, asked: float | None, address: str) -> NoReturn:
    """Raise what the reply stands for. All that the API itself refuses says so in its own form."""
    status, ours = answer.status, True
    try:
        problem = Problem.model_validate_json(answer.content, extra="ignore")
    except ValidationError:
        ours = False
        problem = Problem(title="", status=min(max(status, 400), 599), detail=f"The service answers {status}.")
    detail, query_id = problem.detail, problem.query_id
    if status == 401:
        raise errors.Unauthorized(detail, status=status, query_id=query_id)
    if status == 405 or (status in FOREIGN and not ours):
        raise errors.UnexpectedReply(
            f"What answers {status} at {address} is not this API; is it the query service's address?", status=status
        )
    if status == 404:
        raise errors.NotFound(detail, status=status, query_id=query_id)
    if status in INVALID:
        raise errors.InvalidRequest(detail, fields=problem.errors, status=status, query_id=query_id)
    if status == 429:
        raise errors.TooManyRequests(detail, retry_after=asked, status=status, query_id=query_id)
    if status in LATER:
        raise errors.Unavailable(detail, retry_after=asked, status=status, query_id=query_id)
    if 300 <= status < 400:
        raise errors.UnexpectedReply(f"{address} leads elsewhere; redirects are not followed.", status=status)
    raise errors.HeadwaterError(detail, status=status, query_id=query_id)


def _retry_after(value: str | None) -> float | None:
    """Seconds, from a number or an HTTP date; None where there is none that can be read."""
    if value is None:
        return None
    try:
        seconds = float(value) if value.strip().isdigit() else parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, seconds)
