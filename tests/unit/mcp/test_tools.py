"""The tools through the SDK's own client: one person's scope, checked at every call, bounded, silent about the rest."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest
from mcp.shared.exceptions import MCPError

from pipeline.errors import StoreUnavailable
from query_service.client.passages import NOTE, Passages, iso
from query_service.mcp.models import MAX_CHARS, DocumentText
from schemas.access import AccessRule
from tests.unit.mcp.talk import MODES, application, talking
from tests.unit.query.world import Running, World, anyone, chunk_id, ref

pytestmark = pytest.mark.anyio


def text_of(result: Any) -> str:
    (block,) = result.content
    text: str = block.text
    return text


def data(result: Any) -> Any:
    """The structured content; the text says the same."""
    assert not result.is_error, result.content
    assert json.loads(text_of(result)) == result.structured_content
    return result.structured_content


def told(result: Any) -> str:
    assert result.is_error and result.structured_content is None
    return text_of(result)


async def posted(run: Running, headers: dict[str, str], body: Any = None, **more: Any) -> httpx.Response:
    asked = body or {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    sent = {"Host": "127.0.0.1:8700", "Accept": "application/json, text/event-stream", **headers}
    return await run.client.post("/mcp", json=asked, headers=sent, **more)


@pytest.mark.requirement("E3")
@pytest.mark.parametrize("mode", MODES)
async def test_tools_say_what_they_take_give_and_permit(world: World, mode: str) -> None:
    world.principal("user:ann")
    world.document("a", "the plan of the pump")
    async with world.running() as run, talking(application(run), run.headers(), mode) as client:
        tools = {t.name: t for t in (await client.list_tools()).tools}
        assert set(tools) == {"search", "answer", "fetch_document", "freshness"}
        given: dict[str, dict[str, Any]] = {
            "search": {"query": "plan", "k": 3}, "fetch_document": {"document_uid": ref("a").uid}, "freshness": {},
        }  # fmt: skip
        for name, tool in tools.items():
            if name == "answer":
                continue  # its text is for people: test_answer
            assert "may read at this moment" in (tool.description or "")
            assert tool.annotations is not None and tool.annotations.read_only_hint
            assert tool.output_schema is not None
            jsonschema.validate(given[name], tool.input_schema)
            jsonschema.validate(data(await client.call_tool(name, given[name])), tool.output_schema)
        assert data(await client.call_tool("search", given["search"]))["note"] == NOTE


@pytest.mark.requirement("E3", "B1", "F25")
async def test_each_token_has_its_own_scope(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.principal("user:ann", tenant="other")
    world.document("secret", "the plan of the pump", rule=anyone("user:ann"))
    world.document("open", "another plan")
    asked = {"document_uid": ref("secret").uid}
    async with world.running() as run:
        app = application(run)
        async with talking(app, run.headers()) as ann, talking(app, run.headers("bob")) as bob:
            found = Passages.model_validate(data(await ann.call_tool("search", {"query": "plan"})))
            assert {p.title for p in found.passages} == {"secret", "open"}
            assert chunk_id(ref("secret"), "the plan of the pump") in {p.id for p in found.passages}
            found = Passages.model_validate(data(await bob.call_tool("search", {"query": "plan"})))
            assert {p.title for p in found.passages} == {"open"}
            assert data(await ann.call_tool("fetch_document", asked))["title"] == "secret"
            absent = told(await bob.call_tool("fetch_document", {"document_uid": ref("nothing").uid}))
            assert told(await bob.call_tool("fetch_document", asked)) == absent
            assert told(await bob.call_tool("fetch_document", {"document_uid": "x"})) == absent
        for headers in (run.headers(tenant="other"), run.headers("ghost")):
            async with talking(app, headers) as stranger:
                assert data(await stranger.call_tool("search", {"query": "plan"}))["passages"] == []
                assert told(await stranger.call_tool("fetch_document", asked)) == absent
                assert data(await stranger.call_tool("freshness"))["sources"] == {}


@pytest.mark.requirement("E3", "A8", "I4")
@pytest.mark.parametrize("mode", MODES)
async def test_revoked_between_two_calls(world: World, mode: str) -> None:
    world.principal("user:ann")
    world.document("a", "the plan of the pump")
    asked = {"document_uid": ref("a").uid}
    async with world.running() as run, talking(application(run), run.headers(), mode) as client:
        assert len(data(await client.call_tool("search", {"query": "plan"}))["passages"]) == 1
        assert data(await client.call_tool("fetch_document", asked))["sections"]
        world.access(ref("a"), AccessRule.any_of("user:bob"))
        assert data(await client.call_tool("search", {"query": "plan"}))["passages"] == []
        assert "nothing here" in told(await client.call_tool("fetch_document", asked))


@pytest.mark.requirement("E3", "B1")
async def test_every_request_needs_its_own_token(world: World) -> None:
    async with world.running() as run:
        for headers in (
            {}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}, run.headers(aud="other"),
            run.headers(exp=1), run.headers(key="another-secret-another-secret-another"), {"X-API-Key": "hw_1_x"},
        ):  # fmt: skip
            reply = await posted(run, headers)
            assert reply.status_code == 401, headers
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert reply.headers["content-type"] == "application/problem+json"
        with pytest.raises(Exception) as caught:
            async with talking(application(run), {"Authorization": "Bearer wrong"}) as client:
                await client.list_tools()
        assert "wrong" not in str(caught.value)
        assert (await posted(run, run.headers())).status_code == 200


@pytest.mark.requirement("E3")
async def test_other_hosts_pages_and_methods_are_refused(world: World) -> None:
    world.settings.query = world.settings.query.model_copy(update={"hosts": ("search.example",)})
    async with world.running() as run:
        ann = run.headers()
        for host, status in (
            ("127.0.0.1:8700", 200), ("localhost", 200), ("search.example", 200), ("search.example:443", 200),
            ("evil.example", 421), ("search.example.evil.example", 421), ("127.0.0.1.evil.example:80", 421),
        ):  # fmt: skip
            assert (await posted(run, {**ann, "Host": host})).status_code == status, host
        for origin in ("http://evil.example", "null", "http://127.0.0.1:8700"):
            assert (await posted(run, {**ann, "Origin": origin})).status_code == 403, origin
        for method in ("GET", "DELETE", "PUT"):
            assert (await run.client.request(method, "/mcp", headers=ann)).status_code == 405
        assert (await posted(run, ann, {"jsonrpc": "2.0", "id": 1, "method": "x" * 70_000})).status_code == 413
        reply = await posted(run, ann)
        assert reply.headers["cache-control"] == "no-store" and "mcp-session-id" not in reply.headers
        assert 'route="/mcp"' in run.world.metrics.render().decode()


@pytest.mark.requirement("E3", "B1")
async def test_results_say_what_is_no_longer_in_effect_and_a_date_narrows_them(world: World) -> None:
    now, day = world.clock.now(), 86_400_000_000
    world.principal("user:ann")
    world.document("old", "the plan of the pump", effective_from=now - 9 * day, effective_until=now - day)
    world.document("new", "the plan of the pump, second edition", effective_from=now - day)
    ended = f"no longer in effect since {iso(now - day)}"
    async with world.running() as run, talking(application(run), run.headers()) as client:
        result = await client.call_tool("search", {"query": "plan"})
        found = {p["title"]: p for p in data(result)["passages"]}
        assert {t: (p["in_effect"], p["effect"]) for t, p in found.items()} == {
            "old": (False, ended),
            "new": (True, None),
        }
        assert ended in text_of(result)
        assert (found["old"]["effective_from"], found["old"]["effective_until"]) == (iso(now - 9 * day), iso(now - day))
        for moment, titles in ((now, {"new"}), (now - 2 * day, {"old"})):
            narrowed = data(await client.call_tool("search", {"query": "plan", "as_of": iso(moment)}))["passages"]
            assert {p["title"] for p in narrowed} == titles and all(p["in_effect"] for p in narrowed)
        document = data(await client.call_tool("fetch_document", {"document_uid": ref("old").uid}))
        assert (document["in_effect"], document["effect"]) == (False, ended)


@pytest.mark.requirement("E3")
async def test_what_a_model_gets_wrong_is_told_with_the_remedy(world: World) -> None:
    world.principal("user:ann")
    async with world.running() as run, talking(application(run), run.headers(as_of=[None, 5])) as client:
        for tool, arguments, said in (
            ("search", {}, "query"), ("search", {"query": "x", "k": 99}, "k"), ("search", {"query": "  "}, "query"),
            ("search", {"query": "x", "tenant": "other"}, "tenant"),
            ("search", {"query": "x", "updated_after": "2026-02-01", "updated_before": "2026-01-01"}, "updated_before"),
            ("fetch_document", {"document_uid": ref("a").uid, "section": -1}, "section"),
            ("freshness", {"window": 1}, "window"),
        ):  # fmt: skip
            text = told(await client.call_tool(tool, arguments))
            assert said in text and "Correct" in text
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("delete_document", {})


@pytest.mark.requirement("E3", "I12")
async def test_faults_say_nothing_of_themselves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.principal("user:ann")
    async with world.running() as run, talking(application(run), run.headers()) as client:
        for error, said in (
            (RuntimeError("the secret plan"), "logged"), (ValueError("the secret plan"), "logged"),
            (StoreUnavailable("the secret plan"), "try again"),
        ):  # fmt: skip

            async def failing(*given: Any, error: Exception = error) -> Any:
                raise error

            monkeypatch.setattr(run.parts.service, "search", failing)
            text = told(await client.call_tool("search", {"query": "x"}))
            assert said in text and "secret" not in text


# ---------------------------------------------------------------- bounds


@pytest.mark.requirement("E3")
@pytest.mark.parametrize("filler", ["word ", '"\n\x01', "ключ "])
async def test_a_big_document_comes_in_pages_that_make_it_whole(world: World, filler: str) -> None:
    world.principal("user:ann")
    sizes = (100, 90_000, 10, 0, 19_500, 70)
    texts = [f"part {i} " + filler * (size // len(filler)) for i, size in enumerate(sizes)]
    world.document("big", *texts, title="T" * 10_000)
    whole: dict[int, str] = {}
    async with world.running() as run, talking(application(run), run.headers()) as client:
        asked: dict[str, Any] = {"document_uid": ref("big").uid}
        for _ in range(60):
            result = await client.call_tool("fetch_document", asked)
            assert len(text_of(result)) <= MAX_CHARS
            page = DocumentText.model_validate(data(result))
            for section in page.sections:
                whole[section.section] = whole.get(section.section, "") + section.text
            if page.next_section is None:
                break
            asked.update(section=page.next_section, start=page.next_start)
    assert [whole[i] for i in sorted(whole)] == texts


@pytest.mark.requirement("E3")
async def test_many_big_hits_are_bounded(world: World) -> None:
    world.principal("user:ann")
    for i in range(8):
        world.document(f"d{i}", f"plan {i} " + "word " * 1_000)
    async with world.running() as run, talking(application(run), run.headers()) as client:
        result = await client.call_tool("search", {"query": "plan", "k": 8})
        found = Passages.model_validate(data(result))
        assert len(text_of(result)) <= MAX_CHARS
        assert len(found.passages) + found.left_out == 8 and found.left_out > 0
