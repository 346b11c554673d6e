"""Answers through both clients: whole and streamed, and every way in which a stream may end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from query_service.client import (
    HeadwaterClient,
    HeadwaterError,
    InvalidRequest,
    Retry,
    TooManyRequests,
    Unavailable,
    UnexpectedReply,
)
from query_service.client.answered import (
    AnswerArguments,
    AnswerText,
    answer_tool,
    arun_answer_call,
    run_answer_call,
)
from schemas.api import SearchFilters
from schemas.api_answer import AnswerResponse, SentenceEvent, StepEvent
from tests.unit.answer.scripted import answer, events_of
from tests.unit.client.both import KINDS, Both, Kind

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kind", KINDS)]
AWAY = 'event: error\ndata: {"title": "t", "status": 503, "detail": "the index is away"}\n\n'
NAMES: dict[Any, str] = {StepEvent: "step", SentenceEvent: "sentence", AnswerResponse: "done"}


class Server(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Replies in order, the last one for ever; notes what was asked."""

    def __init__(self, *replies: httpx.Response | Exception) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(json.loads(request.read()))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self.handle_request(request)


def sent(*more: str, events: Any = None) -> httpx.Response:
    """A stream of the usual answer, with a comment, an event of a newer service, and both kinds of line end."""
    parts = [": still at work\r\n\r\n", "event: news\ndata: {}\n\n"]
    for event in events_of(answer()) if events is None else events:
        parts.append(f"event: {NAMES[type(event)]}\r\ndata: {event.model_dump_json()}\r\n\r\n")
    content = "".join([*parts, *more]).encode()
    return httpx.Response(200, headers={"Content-Type": "text/event-stream; charset=utf-8"}, stream=Pieces(content))


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Seven bytes at a time, in the midst of letters too."""

    def __init__(self, content: bytes) -> None:
        self.parts = [content[i : i + 7] for i in range(0, len(content), 7)]

    def __iter__(self) -> Any:
        yield from self.parts

    async def __aiter__(self) -> Any:
        for part in self.parts:
            yield part


def problem(status: int, detail: str = "not now", **headers: str) -> httpx.Response:
    body = {"title": "t", "status": status, "detail": detail}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json", **headers})


def both(kind: Kind, server: Server) -> Both:
    return Both(kind, server, token="t", retry=Retry(attempts=2, first_s=0.001))


@pytest.mark.requirement("E3", "B8")
async def test_a_whole_answer(kind: Kind) -> None:
    server = Server(httpx.Response(200, json={**answer().model_dump(mode="json"), "later": 1}))
    found = await both(kind, server).ask(
        "answer", "How long?", style="extractive", filters={"sources": ["wiki"]},
        history=[{"role": "user", "content": "Refunds"}],
    )  # fmt: skip
    assert found == answer()
    assert server.asked == [
        {
            "question": "How long?", "style": "extractive", "filters": {"sources": ["wiki"]},
            "history": [{"role": "user", "content": "Refunds"}],
        }
    ]  # fmt: skip
    for given in ({"question": " "}, {"question": "x", "style": "poem"}, {"question": "x", "wait_ms": 5}):
        with pytest.raises(InvalidRequest):
            await both(kind, server).ask("answer", **given)
    assert len(server.asked) == 1


@pytest.mark.requirement("E3", "B8")
async def test_a_stream_gives_steps_sentences_and_the_answer(kind: Kind) -> None:
    server = Server(problem(503), sent())
    heard = await both(kind, server).ask("stream_answer", "How long?")
    assert heard == events_of(answer())
    assert server.asked == [{"question": "How long?", "stream": True}] * 2, "tried again before anything was said"


@pytest.mark.requirement("E3")
@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (lambda: sent(events=[]), Unavailable, "broke off"),
        (lambda: sent(events=events_of(answer())[:3]), Unavailable, "broke off"),
        (lambda: sent(AWAY, events=events_of(answer())[:3]), Unavailable, "index is away"),
        (lambda: sent('event: done\ndata: {"no": 1}\n\n', events=[]), UnexpectedReply, "lacks"),
        (lambda: httpx.Response(200, json=answer().model_dump(mode="json")), UnexpectedReply, "no events"),
        (lambda: problem(429, "slow down", **{"Retry-After": "60"}), TooManyRequests, "slow down"),
        (lambda: problem(422, "named"), InvalidRequest, "named"),
        (lambda: httpx.ConnectError("away"), Unavailable, "does not answer"),
    ],
    ids=["nothing", "half", "error", "another", "json", "limit", "invalid", "away"],
)
async def test_how_a_stream_may_end(kind: Kind, reply: Any, error: type[HeadwaterError], said: str) -> None:
    with pytest.raises(error, match=said):
        await both(kind, Server(reply(), reply())).ask("stream_answer", "How long?")


@pytest.mark.requirement("E3", "B8")
async def test_a_model_may_ask_by_a_tool_call(kind: Kind) -> None:
    definition = answer_tool(strict=True)["function"]
    assert next(iter(definition["parameters"]["properties"])) == "question"
    assert set(definition["parameters"]["required"]) == set(AnswerArguments.model_fields)
    server = Server(httpx.Response(200, json=answer().model_dump(mode="json")))
    made = both(kind, server)

    async def ran(arguments: dict[str, Any], name: str = "answer_from_documents", **more: Any) -> Any:
        call = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        if isinstance(made.client, HeadwaterClient):
            return json.loads(await asyncio.to_thread(run_answer_call, made.client, call, **more))
        return json.loads(await arun_answer_call(made.client, call, **more))

    within = SearchFilters(sources=("wiki", "faq"))
    told = AnswerText.model_validate(await ran({"question": "How long?", "sources": ["wiki"]}, filters=within))
    assert told.answered and told.citations[1].number == 2
    assert server.asked[0]["filters"]["sources"] == ["wiki"] and server.asked[0]["style"] == "auto"
    assert "choose from" in (await ran({"question": "x", "sources": ["hr"]}, filters=within))["error"]
    assert "question" in (await ran({}))["error"]
    with pytest.raises(ValueError, match="another tool"):
        await ran({"question": "x"}, name="search_documents")
    server.replies = [problem(503), problem(503)]
    assert "try" not in (said := (await ran({"question": "x"}))["error"]) and "not answer" in said
