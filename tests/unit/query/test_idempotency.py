"""Idempotency keys: one key, one piece of work; nobody else's key leads to a reply."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from query_service import problems
from query_service.callers import Caller
from query_service.idempotency import HEADER, MAX_REPLY, REPLAYED, Once, Replies
from query_service.scope import FieldError, Scope
from schemas.api import Problem

pytestmark = pytest.mark.anyio
PLACE = ("acme", "ann", None, "POST /x?", "k")


class Work:
    def __init__(self, status: int = 200, content: bytes = b"", error: Exception | None = None) -> None:
        self.done, self.status, self.content, self.error = 0, status, content, error
        self.gate: asyncio.Event | None = None

    async def __call__(self) -> Response:
        self.done += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Response(self.content or f"reply {self.done}".encode(), self.status, media_type="text/plain")


async def test_the_same_key_gets_the_same_reply_once() -> None:
    replies, work = Replies(10, 24), Work(status=201)
    first = await replies.run(PLACE, b"f", work)
    again = await replies.run(PLACE, b"f", work)
    assert work.done == 1 and (again.status_code, again.body) == (first.status_code, first.body)
    assert again.headers[REPLAYED] == "true" and again.media_type == "text/plain"
    with pytest.raises(FieldError) as other:
        await replies.run(PLACE, b"g", work)
    assert other.value.field == HEADER
    for changed in range(5):
        place: Any = tuple("else" if i == changed else part for i, part in enumerate(PLACE))
        await replies.run(place, b"f", work)
    assert work.done == 6


async def test_two_at_once_do_the_work_once() -> None:
    replies, work = Replies(10, 24), Work()
    work.gate = asyncio.Event()
    both = [asyncio.ensure_future(replies.run(PLACE, b"f", work)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(FieldError):
        await replies.run(PLACE, b"g", work)
    work.gate.set()
    assert len({r.body for r in await asyncio.gather(*both)}) == 1 and work.done == 1


@pytest.mark.parametrize(
    "work", [Work(status=503), Work(status=404), Work(error=RuntimeError()), Work(content=b"x" * (MAX_REPLY + 1))]
)
async def test_failures_are_not_kept(work: Work) -> None:
    replies = Replies(10, 24)
    for _ in range(2):
        try:
            await replies.run(PLACE, b"f", work)
        except RuntimeError:
            continue
    assert work.done == 2


async def test_who_waited_for_one_that_was_cancelled_does_it() -> None:
    replies, work = Replies(10, 24), Work()
    work.gate = asyncio.Event()
    first = asyncio.ensure_future(replies.run(PLACE, b"f", work))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(replies.run(PLACE, b"f", work))
    await asyncio.sleep(0)
    first.cancel()
    work.gate.set()
    assert (await second).body == b"reply 2"


async def test_replies_run_out_and_are_bounded() -> None:
    now = 0.0
    replies, work = Replies(3, 1, lambda: now), Work()
    await replies.run(PLACE, b"f", work)
    now = 3599.0
    await replies.run(PLACE, b"f", work)
    assert work.done == 1
    now = 3600.0
    await replies.run(PLACE, b"g", work)  # a new request by then
    assert work.done == 2
    for number in range(10):
        await replies.run(("acme", "ann", None, "POST /x?", str(number)), b"f", work)
    assert len(replies._entries) == 3


@pytest.mark.requirement("B1")
async def test_as_a_dependency_of_a_route() -> None:
    app, calls = FastAPI(), list[str]()
    problems.install(app)
    app.state.replies = Replies(10, 24)

    @app.middleware("http")
    async def _who(request: Request, call_next: Any) -> Any:
        request.state.caller = Scope("acme", request.headers.get("who", "ann"))
        return await call_next(request)

    @app.post("/v1/do")
    async def do(body: dict[str, int], caller: Caller, once: Once) -> Response:
        async def work() -> Response:
            calls.append(caller.subject)
            return Response(f"{body['n']} {len(calls)}")

        return await once.run(work)

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:

        async def ask(n: int, who: str = "ann", **headers: str) -> httpx.Response:
            return await client.post("/v1/do", json={"n": n}, headers={"who": who, **headers})

        key = {HEADER: "a-1"}
        assert [(await ask(1, **key)).text for _ in range(2)] == ["1 1", "1 1"]
        assert (await ask(1, who="bob", **key)).text == "1 2"
        assert [(await ask(1)).text for _ in range(2)] == ["1 3", "1 4"]  # without a key each is done
        for reply in (await ask(2, **key), await ask(1, **{HEADER: "a b"}), await ask(1, **{HEADER: "x" * 129})):
            assert reply.status_code == 422
            assert Problem.model_validate_json(reply.content).errors[0].field.lower() == HEADER.lower()


async def test_work_under_way_is_not_forgotten_however_many_keys_come() -> None:
    replies, work, other = Replies(2, 24), Work(), Work()
    work.gate = asyncio.Event()
    first = asyncio.ensure_future(replies.run(PLACE, b"f", work))
    await asyncio.sleep(0)
    for number in range(10):
        await replies.run((*PLACE[:4], str(number)), b"f", other)
    again = asyncio.ensure_future(replies.run(PLACE, b"f", work))
    await asyncio.sleep(0)
    work.gate.set()
    assert (await first).body == (await again).body and work.done == 1
    assert len(replies._entries) <= 3
