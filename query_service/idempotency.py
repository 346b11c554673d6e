"""``Idempotency-Key`` on requests that change something: same key, same body, same reply.

A route takes ``once: Once`` and answers with ``await once.run(work)``. Replies are kept in this process, by tenant,
subject, route and key; with several processes behind one address, a repetition may reach another one and be done again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request, Response

from query_service.callers import Caller
from query_service.scope import FieldError, Scope

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MAX_KEY = 128
MAX_REPLY = 64 * 1024
_Place = tuple[str, str, str | None, str, str]


@dataclass(frozen=True)
class Reply:
    """What was answered."""

    status: int
    content: bytes
    media_type: str | None


@dataclass
class _Entry:
    fingerprint: bytes
    until: float
    reply: asyncio.Future[Reply | None]  # None: it failed, the next one does the work


class Replies:
    """Replies kept for a while, the oldest leave first."""

    def __init__(self, most: int, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, hours * 3600, clock
        self._entries: OrderedDict[_Place, _Entry] = OrderedDict()

    async def run(self, place: _Place, fingerprint: bytes, work: Callable[[], Awaitable[Response]]) -> Response:
        """The kept reply, or that of ``work``. Only successes are kept. Raises FieldError for another body."""
        while (entry := self._found(place)) is not None:
            if entry.fingerprint != fingerprint:
                raise FieldError(HEADER, "was used for another request; send a new key with each new request")
            kept = await asyncio.shield(entry.reply)
            if kept is not None:
                return Response(kept.content, kept.status, {REPLAYED: "true"}, kept.media_type)
        entry = _Entry(fingerprint, self._clock() + self._seconds, asyncio.get_running_loop().create_future())
        self._entries[place] = entry
        self._bound()
        kept = None
        try:
            response = await work()
            content = bytes(response.body)
            if 200 <= response.status_code < 300 and len(content) <= MAX_REPLY:
                kept = Reply(response.status_code, content, response.media_type or response.headers.get("content-type"))
            return response
        finally:
            if kept is None and self._entries.get(place) is entry:
                del self._entries[place]
            if not entry.reply.done():
                entry.reply.set_result(kept)

    def _found(self, place: _Place) -> _Entry | None:
        entry = self._entries.get(place)
        if entry is not None and entry.reply.done() and entry.until <= self._clock():
            del self._entries[place]
            return None
        return entry

    def _bound(self) -> None:
        """At most so many besides those whose work is under way; those that have run out lie at the front."""
        now, over = self._clock(), len(self._entries) - self._most
        leaving: list[_Place] = []
        for place, entry in self._entries.items():
            if over <= 0 and entry.until > now:
                break
            if entry.reply.done():
                leaving.append(place)
                over -= 1
        for place in leaving:
            del self._entries[place]


@dataclass(frozen=True)
class OnceOnly:
    """One request's way to its reply."""

    replies: Replies
    place: _Place | None
    fingerprint: bytes

    async def run(self, work: Callable[[], Awaitable[Response]]) -> Response:
        """The reply of ``work``, which is done once for each key. Without the header it is simply done.

        Raises FieldError where the key was used with another body.
        """
        if self.place is None:
            return await work()
        return await self.replies.run(self.place, self.fingerprint, work)


async def _once(
    request: Request,
    caller: Caller,
    key: Annotated[
        str | None,
        Header(
            alias=HEADER,
            min_length=1,
            max_length=MAX_KEY,
            pattern=r"^[\x21-\x7e]+$",
            description="A repetition with the same key and body gets the same reply and changes nothing.",
        ),
    ] = None,
) -> OnceOnly:
    replies: Replies = request.app.state.replies
    if key is None:
        return OnceOnly(replies, None, b"")
    route = f"{request.method} {request.url.path}?{request.url.query}"
    return OnceOnly(replies, place(caller, route, key), hashlib.sha256(await request.body()).digest())


def place(caller: Scope, route: str, key: str) -> _Place:
    """Where a reply is kept: nobody else's key leads there."""
    return caller.tenant, caller.subject, caller.key_id, route, key


Once = Annotated[OnceOnly, Depends(_once)]
