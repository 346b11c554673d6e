"""What the clients do with each kind of reply: errors by type, pauses, tokens that are renewed and never shown."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, get_type_hints

import httpx
import pytest

from query_service.client import (
    AsyncHeadwaterClient,
    HeadwaterClient,
    HeadwaterError,
    InvalidRequest,
    NotFound,
    Retry,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedReply,
)
from query_service.client.calls import AnswerFields, SearchFields
from query_service.client.exchange import Credentials
from schemas.api import FieldProblem, Problem, SearchRequest
from schemas.api_answer import AnswerRequest
from schemas.api_examples import FRESHNESS_RESPONSE, SEARCH_RESPONSE
from schemas.api_examples_operations import FEEDBACK_RESPONSE
from tests.unit.client.both import BASE, KINDS, Both, Kind

pytestmark = pytest.mark.anyio
TOKEN = "eyJ-a-secret-token"


class Script(httpx.MockTransport):
    """Replies in the order given, the last one for ever; keeps what it was sent."""

    def __init__(self, *replies: httpx.Response | Exception | Callable[[], httpx.Response]) -> None:
        super().__init__(self._next)
        self._replies = list(replies)
        self.seen: list[httpx.Request] = []

    def _next(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Exception):
            raise reply
        return (
            httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)
            if isinstance(reply, httpx.Response)
            else reply()
        )


def problem(status: int, detail: str = "No.", headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    body = Problem(title="x", status=status, detail=detail, **more)
    return httpx.Response(status, content=body.model_dump_json(), headers=headers)


def ok(body: Any = FRESHNESS_RESPONSE) -> httpx.Response:
    return httpx.Response(200, json=body)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that were asked for; none is taken."""
    pauses: list[float] = []

    async def passing(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("query_service.client.running.time.sleep", pauses.append)
    monkeypatch.setattr("query_service.client.running.asyncio.sleep", passing)
    return pauses


# ---------------------------------------------------------------- errors


@pytest.mark.requirement("E3")
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (problem(401), Unauthorized), (problem(404), NotFound), (problem(422), InvalidRequest),
        (problem(409), InvalidRequest), (problem(413), InvalidRequest), (problem(500), HeadwaterError),
        (problem(403), HeadwaterError), (httpx.Response(200, text="<html>"), UnexpectedReply),
        (httpx.Response(200, json={"other": 1}), UnexpectedReply),
        (httpx.Response(404, text="<html>"), UnexpectedReply), (problem(405), UnexpectedReply),
        (httpx.Response(405, json={"detail": "Method Not Allowed"}), UnexpectedReply),
        (httpx.Response(307, headers={"location": "http://elsewhere.test/"}), UnexpectedReply),
    ],
)  # fmt: skip
async def test_replies_become_errors_of_their_kind(kind: Kind, reply: httpx.Response, error: type[Exception]) -> None:
    script = Script(reply)
    with pytest.raises(error) as caught:
        await Both(kind, script, token=TOKEN).ask("freshness")
    assert type(caught.value) is error
    assert getattr(caught.value, "status", None) == reply.status_code
    assert len(script.seen) == 1, "none of these is better the second time"
    assert TOKEN not in repr(caught.value) + str(caught.value)
    assert (BASE in str(caught.value)) == (error is UnexpectedReply)


@pytest.mark.requirement("E3")
async def test_what_is_wrong_reads_as_the_service_says_it(kind: Kind) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await Both(kind, Script(ok())).ask("search", "x", filters={"sources": "wiki"}, tenant="other")
    assert {f.field: f.problem for f in caught.value.fields} == {
        "filters.sources": 'give a list, as in ["…"]', "tenant": "this field is not known here; remove it",
    }  # fmt: skip


@pytest.mark.requirement("E3")
async def test_fields_are_named(kind: Kind) -> None:
    fields = (FieldProblem(field="filters.as_of", problem="the token does not allow this date"),)
    with pytest.raises(InvalidRequest, match=r"filters\.as_of: the token does not allow") as caught:
        await Both(kind, Script(problem(422, errors=fields, query_id="q1"))).ask("search", "x")
    assert (caught.value.fields, caught.value.query_id) == (fields, "q1")


@pytest.mark.requirement("E3")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"k": 0}, "k"), ({"mode": "magic"}, "mode"), ({"wait_ms": 5}, "request"), ({"tenant": "other"}, "tenant"),
        ({"filters": {"sources": []}}, "filters.sources"), ({"token_budget": 1}, "token_budget"),
    ],
)  # fmt: skip
async def test_what_cannot_be_used_is_said_before_it_is_sent(kind: Kind, fields: Any, named: str) -> None:
    script = Script(ok())
    with pytest.raises(InvalidRequest) as caught:
        await Both(kind, script).ask("search", "very private words", **fields)
    assert [f.field for f in caught.value.fields] == [named]
    assert script.seen == []
    assert "private" not in str(caught.value) and caught.value.__context__ is None


# ---------------------------------------------------------------- later


@pytest.mark.requirement("E3")
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_busy_service_is_asked_again_when_it_says(kind: Kind, status: int, slept: list[float]) -> None:
    script = Script(problem(status, headers={"Retry-After": "3"}), problem(status), ok())
    found = await Both(kind, script).ask("freshness")
    assert found.tenant == "acme"
    assert 3.0 < slept[0] < 3.1 and 0.2 <= slept[1] <= 0.4
    assert len(script.seen) == 3


@pytest.mark.requirement("E3")
async def test_patience_has_a_bound(kind: Kind, slept: list[float]) -> None:
    script = Script(problem(503))
    with pytest.raises(Unavailable) as caught:
        await Both(kind, script, retry=Retry(attempts=3)).ask("freshness")
    assert (len(script.seen), len(slept), caught.value.status) == (3, 2, 503)
    script = Script(problem(429, headers={"Retry-After": "3600"}))
    with pytest.raises(TooManyRequests) as limited:
        await Both(kind, script).ask("freshness")
    assert (len(script.seen), limited.value.retry_after) == (1, 3600.0), "told at once, not waited for"


def test_pauses_grow_and_differ() -> None:
    retry = Retry(attempts=20, first_s=0.5, longest_s=8)
    for attempt in range(1, 19):
        pauses = {retry.pause(attempt, None) for _ in range(20)}
        full = min(8.0, 0.5 * 2 ** (attempt - 1))
        assert len(pauses) > 1 and all(p is not None and full / 2 <= p <= full for p in pauses)
    assert retry.pause(20, None) is None and retry.pause(1, 8.1) is None
    assert (retry.pause(1, 8.0) or 0) >= 8.0


async def test_retry_after_as_a_date_and_as_nonsense(kind: Kind, slept: list[float]) -> None:
    date = formatdate(time.time() + 5, usegmt=True)
    for value in (date, "soon", "-3", formatdate(time.time() - 50, usegmt=True)):
        await Both(kind, Script(problem(503, headers={"Retry-After": value}), ok())).ask("freshness")
    assert 3 < slept[0] < 5.2 and all(s < 0.5 for s in slept[1:])


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (httpx.ConnectError("x"), 4), (httpx.RemoteProtocolError("x"), 4), (httpx.PoolTimeout("x"), 4),
        (httpx.ReadTimeout("x"), 1),
    ],
)  # fmt: skip
async def test_lost_connections(kind: Kind, error: Exception, attempts: int, slept: list[float]) -> None:
    script = Script(error)
    with pytest.raises(Unavailable, match=type(error).__name__) as caught:
        await Both(kind, script, token=TOKEN).ask("freshness")
    assert caught.value.status is None and len(script.seen) == attempts
    assert caught.value.__context__ is None, "httpx's error holds the request with its headers"


# ---------------------------------------------------------------- credentials


@pytest.mark.requirement("E3")
async def test_a_function_gives_the_token_and_is_asked_again_when_it_is_refused(kind: Kind) -> None:
    given = iter(["first", "second", "third"])
    script = Script(ok(), problem(401), ok(), ok())
    both = Both(kind, script, token=lambda: next(given))
    for _ in range(3):
        await both.ask("freshness")
    assert [r.headers["authorization"] for r in script.seen] == [
        "Bearer first", "Bearer first", "Bearer second", "Bearer second",
    ]  # fmt: skip
    both = Both(kind, Script(problem(401)), token=lambda: "the-same")
    with pytest.raises(Unauthorized):
        await both.ask("freshness")
    for_ever = Script(problem(401))
    counted = iter(range(100))
    with pytest.raises(Unauthorized):
        await Both(kind, for_ever, token=lambda: f"t{next(counted)}").ask("freshness")
    assert len(for_ever.seen) == 2


async def test_a_coroutine_may_give_it() -> None:
    async def fetch() -> str:
        await asyncio.sleep(0)
        return " from afar\n".replace(" from ", "")

    script = Script(ok())
    async with AsyncHeadwaterClient(BASE, token=fetch, http=httpx.AsyncClient(transport=script)) as client:
        await client.freshness()
    assert script.seen[0].headers["authorization"] == "Bearer afar"


async def test_an_api_key_has_a_header_of_its_own(kind: Kind) -> None:
    script = Script(ok())
    await Both(kind, script, api_key="hw_1_secret").ask("freshness")
    assert script.seen[0].headers["x-api-key"] == "hw_1_secret" and "authorization" not in script.seen[0].headers


@pytest.mark.requirement("E3")
def test_nothing_shows_a_credential() -> None:
    for options in ({"token": TOKEN}, {"api_key": TOKEN}, {"token": lambda: TOKEN}):
        for client in (HeadwaterClient(BASE, **options), AsyncHeadwaterClient(BASE, **options)):
            assert TOKEN not in repr(client) + str(client)
    shown = Credentials(TOKEN, None)
    assert TOKEN not in f"{shown!r}{shown}"
    for wrong in ("two words", "line\nend", "ключ", "", " "):
        with pytest.raises(ValueError, match="token") as caught:
            HeadwaterClient(BASE, token=wrong)
        assert not wrong.strip() or wrong not in str(caught.value)
    with pytest.raises(ValueError, match="give one of them"):
        HeadwaterClient(BASE, token="a", api_key="b")


@pytest.mark.parametrize("base", ["", "search.test", "ftp://search.test", "http://", "http://user:pw@search.test"])
def test_addresses_that_cannot_be(base: str) -> None:
    with pytest.raises(ValueError, match="base_url") as caught:
        HeadwaterClient(base)
    assert "pw" not in str(caught.value)


# ---------------------------------------------------------------- what is sent and read


@pytest.mark.requirement("E3")
def test_every_field_of_a_search_is_an_argument() -> None:
    model = {n: f for n, f in SearchRequest.model_fields.items() if n != "query"}
    assert set(get_type_hints(SearchFields)) == set(model)
    assert set(get_type_hints(AnswerFields)) == set(AnswerRequest.model_fields) - {"question", "stream"}


async def test_only_what_was_given_is_sent(kind: Kind) -> None:
    script = Script(ok(SEARCH_RESPONSE))
    found = await Both(kind, script).ask("search", "refunds", k=3, filters={"sources": ["wiki"]})
    assert found.hits[0].document_id == "sales/refunds.md"
    assert json.loads(script.seen[0].content) == {"query": "refunds", "k": 3, "filters": {"sources": ["wiki"]}}
    assert script.seen[0].url == f"{BASE}/v1/search"


@pytest.mark.requirement("E3")
async def test_feedback(kind: Kind) -> None:
    reply = {**FEEDBACK_RESPONSE, "verdict": "wrong"}
    script = Script(ok(reply))
    query_id, chunk = str(reply["query_id"]), str(reply["chunk_id"])
    said = await Both(kind, script).ask("feedback", query_id, "wrong", chunk_id=chunk, comment="It takes ten days.")
    assert said.verdict == "wrong"
    sent = {"query_id": query_id, "chunk_id": chunk, "verdict": "wrong", "comment": "It takes ten days."}
    assert (script.seen[0].url.path, json.loads(script.seen[0].content)) == ("/v1/feedback", sent)
    for fields, named in (({"verdict": "nice"}, "verdict"), ({"chunk_id": "x"}, "chunk_id")):
        with pytest.raises(InvalidRequest) as caught:
            await Both(kind, script).ask("feedback", query_id, **{"verdict": "wrong", **fields})
        assert [f.field for f in caught.value.fields] == [named]


async def test_a_newer_service_may_say_more(kind: Kind) -> None:
    newer = json.loads(json.dumps(SEARCH_RESPONSE))
    newer["hits"][0]["mood"], newer["weather"] = "good", {"sky": "blue"}
    assert (await Both(kind, Script(ok(newer))).ask("search", "x")).hits[0].title == "Refunds"


async def test_waiting_is_allowed_its_time(kind: Kind) -> None:
    script = Script(ok({**SEARCH_RESPONSE, "fresh": True}))
    assert await Both(kind, script, timeout_s=2).ask("wait_for", "token", timeout_s=10) is True
    sent = json.loads(script.seen[0].content)
    assert sent["after"] == "token" and 9_000 < sent["wait_ms"] <= 10_000
    assert script.seen[0].extensions["timeout"]["read"] == pytest.approx(2 + sent["wait_ms"] / 1000)
    assert script.seen[0].extensions["timeout"]["connect"] == 2
    script = Script(ok({**SEARCH_RESPONSE, "fresh": False}))
    assert await Both(kind, script).ask("wait_for", "token", timeout_s=0) is False
    assert len(script.seen) == 1


@pytest.mark.requirement("E3")
async def test_pages_end(kind: Kind) -> None:
    def page(cursor: str | None) -> httpx.Response:
        return ok({**SEARCH_RESPONSE, "next_cursor": cursor})

    script = Script(page("c1"), page("c2"), page(None))
    assert len(await Both(kind, script).ask("pages", "x", k=1)) == 3
    assert [json.loads(r.content).get("cursor") for r in script.seen] == [None, "c1", "c2"]
    assert len(await Both(kind, Script(page("same"))).ask("search_all", "x")) == 2, "a cursor that leads to itself"
    script = Script(page("c1"), page("c2"), page("c3"), page(None))
    assert len(await Both(kind, script).ask("search_all", "x", limit=2)) == 2
    assert len(script.seen) == 2


@pytest.mark.parametrize("uid", ["", ".", ".."])
async def test_ids_stay_within_their_part_of_the_path(kind: Kind, uid: str) -> None:
    script = Script(problem(404))
    with pytest.raises(InvalidRequest):
        await Both(kind, script).ask("document", uid)
    with pytest.raises(NotFound):
        await Both(kind, script).ask("document", "../v1/freshness?x#y")
    assert script.seen[0].url.raw_path == b"/v1/documents/..%2Fv1%2Ffreshness%3Fx%23y?offset=0&limit=100"
