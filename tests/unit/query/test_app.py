"""Every endpoint: fields, units, errors, and that errors say nothing of what the caller may not know."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from pipeline.errors import EncoderUnavailable
from pipeline.ports import Vectors
from query_service.app import create_app
from schemas.access import AccessRule
from schemas.api import (
    DocumentResponse,
    FreshnessResponse,
    HealthResponse,
    Problem,
    SearchRequest,
    SearchResponse,
    TraceResponse,
)
from schemas.documents import Section
from schemas.topics import Topic
from tests.unit.query.world import GENERATION, TENANT, World, anyone, ref

pytestmark = pytest.mark.anyio
ABSENT = "00000000-0000-5000-8000-000000000000"


def problem(reply: Any, status: int) -> Problem:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    found = Problem.model_validate_json(reply.content)
    assert found.status == status and found.title and found.detail
    return found


# ---------------------------------------------------------------- tokens


@pytest.mark.requirement("B1")
async def test_without_a_valid_token_nothing_is_answered(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    headers: list[dict[str, str]] = [
        {}, {"Authorization": "Bearer x"}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {world.token(key='another-secret-another-secret-another')}"},
        {"Authorization": f"Bearer {world.token(exp=int(time.time()) - 10)}"},
        {"Authorization": f"Bearer {world.token(aud='other')}"},
    ]  # fmt: skip
    async with world.running() as run:
        for given in headers:
            for method, path in (
                ("POST", "/v1/search"), ("GET", f"/v1/documents/{ref('a').uid}"),
                ("GET", f"/v1/trace/{ref('a').uid}"), ("GET", "/v1/freshness"),
            ):  # fmt: skip
                body = {"query": "plan"} if method == "POST" else None
                reply = await run.client.request(method, path, json=body, headers=given)
                found = problem(reply, 401)
                assert reply.headers["www-authenticate"].startswith("Bearer")
                assert "ann" not in found.detail
        expired = await run.post({"query": "plan"}, exp=int(time.time()) - 10)
        assert "expired" in problem(expired, 401).detail


# ---------------------------------------------------------------- requests that cannot be used


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "query"), ({"query": ""}, "query"), ({"query": "  \n"}, "query"), ({"query": "x" * 4097}, "query"),
        ({"query": 7}, "query"), ({"query": "x", "k": 0}, "k"), ({"query": "x", "k": 101}, "k"),
        ({"query": "x", "k": "many"}, "k"), ({"query": "x", "mode": "magic"}, "mode"),
        ({"query": "x", "tenant": "other"}, "tenant"), ({"query": "x", "principals": ["everyone"]}, "principals"),
        ({"query": "x", "filters": {"tenant": "other"}}, "filters.tenant"),
        ({"query": "x", "filters": {"sources": []}}, "filters.sources"),
        ({"query": "x", "filters": {"sources": "wiki"}}, "filters.sources"),
        ({"query": "x", "filters": {"languages": [""]}}, "filters.languages.0"),
        ({"query": "x", "filters": {"updated_after": -1}}, "filters.updated_after"),
        ({"query": "x", "filters": {"updated_after": "2026-01-01", "updated_before": "2026-01-01"}}, "filters"),
        ({"query": "x", "filters": {"as_of": "yesterday"}}, "filters.as_of"),
        ({"query": "x", "filters": {"as_of": 1_767_225_600}}, "filters.as_of"),
        ({"query": "x", "filters": {"updated_before": "1767225600000000"}}, "filters.updated_before"),
        ({"query": "x", "after": "not a token"}, "after"), ({"query": "x", "after": ""}, "after"),
        ({"query": "x", "wait_ms": 5}, "body"), ({"query": "x", "after": "x", "wait_ms": 30_001}, "wait_ms"),
        ([], "body"), ("plan", "body"),
    ],
)  # fmt: skip
async def test_the_field_is_named(world: World, body: Any, field: str) -> None:
    world.principal("user:ann")
    async with world.running() as run:
        found = problem(await run.post(body), 422)
    assert field in [e.field for e in found.errors]
    assert all(e.problem for e in found.errors)


async def test_what_was_sent_is_not_repeated(world: World) -> None:
    world.principal("user:ann")
    async with world.running() as run:
        reply = await run.post({"query": "x", "mode": "sesame", "filters": {"languages": [12345]}})
        assert problem(reply, 422).errors and "sesame" not in reply.text and "12345" not in reply.text
        headers = {**run.headers(), "content-type": "application/json"}
        reply = await run.client.post("/v1/search", content=b'{"query": "sesame', headers=headers)
        assert problem(reply, 422).errors[0].problem == "the body is not valid JSON" and "sesame" not in reply.text
        reply = await run.client.post("/v1/search", content=b'{"query": "\\ud800"}', headers=headers)
        assert problem(reply, 422).errors[0].field == "query"
        reply = await run.client.post("/v1/search", content=b"\xff\xfe", headers=headers)
        assert problem(reply, 422)
        reply = await run.client.post("/v1/search", content=b"x" * 70_000, headers=headers)
        problem(reply, 413)


async def test_unknown_routes_and_methods(world: World) -> None:
    async with world.running() as run:
        problem(await run.get("/v1/nothing"), 404)
        problem(await run.get("/v1/search"), 405)


@pytest.mark.requirement("B1")
async def test_a_date_outside_the_token_is_named(world: World) -> None:
    world.principal("user:ann")
    async with world.running() as run:
        reply = await run.post({"query": "x", "filters": {"as_of": "2026-01-02"}}, as_of=5)
        assert problem(reply, 422).errors[0].field == "filters.as_of"


# ---------------------------------------------------------------- things that are down


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("call", ["dense", "sparse", "access", "manifests", "chunks", "principals", "statistics"])
async def test_a_store_that_is_down_is_503_with_retry_after(world: World, call: str) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    async with world.running() as run:
        world.store.fail_next(f"reader.{call}", 5)
        reply = await run.post({"query": "plan"})
        assert "injected" not in reply.text
        problem(reply, 503)
        assert int(reply.headers["retry-after"]) > 0
        world.store._failures.clear()
        assert await run.ids("plan") == ["a"]


@pytest.mark.requirement("I8")
async def test_an_encoder_that_is_down_is_503_and_words_still_work(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    async with world.running() as run:

        def broken(text: str) -> Vectors:
            raise EncoderUnavailable("cannot")

        for encoder in world.encoders:
            encoder.embed_query = broken  # type: ignore[method-assign]
        problem(await run.post({"query": "plan"}), 503)
        assert await run.ids("plan", mode="sparse") == ["a"]


@pytest.mark.requirement("I8")
async def test_an_unexpected_error_says_nothing_of_itself(world: World) -> None:
    world.principal("user:ann")
    async with world.running() as run:

        async def broken(*arguments: Any) -> Any:
            raise RuntimeError("secret detail")

        run.parts.service._closures.resolve = broken
        reply = await run.post({"query": "plan"})
    assert "secret" not in problem(reply, 500).model_dump_json()


@pytest.mark.requirement("I11")
async def test_a_search_past_its_deadline_is_503(world: World) -> None:
    import asyncio

    world.principal("user:ann")
    world.settings = world.settings.model_copy(
        update={"query": world.settings.query.model_copy(update={"deadline_s": 0.05})}
    )
    async with world.running() as run:

        async def slow(*arguments: Any) -> Any:
            await asyncio.sleep(5)

        run.parts.reader.dense = slow
        problem(await run.post({"query": "plan"}), 503)


# ---------------------------------------------------------------- documents


@pytest.mark.requirement("A3", "I3", "F25")
async def test_a_document_with_its_sections_by_pages(world: World) -> None:
    world.principal("user:ann")
    m = world.document("a", "one", "two", "three", language="en", tier="cold")
    async with world.running() as run:
        whole = await run.get(f"/v1/documents/{m.document.uid}")
        assert whole.status_code == 200
        body = whole.json()
        DocumentResponse.model_validate(body)
        assert body == {
            "document_uid": m.document.uid, "document_id": "a", "source": "wiki", "kind": "page", "tenant": TENANT,
            "title": "a", "url": "https://wiki.example/a", "path": None, "version": m.content_version,
            "content_type": "text/markdown", "language": "en", "product": None, "effective_from": None,
            "effective_until": None, "in_effect": True, "updated_at": m.updated_at, "warnings": [], "tier": "cold",
            "access": {"clauses": [["everyone"]], "has_deny": False, "version": m.access_version, "named": True},
            "age_s": 60.0,
            "deleted": False, "generation": GENERATION, "chunk_total": 3, "sections_total": 3, "offset": 0,
            "next_offset": None,
            "sections": [
                {"section_id": s, "ordinal": i, "heading_path": ["Top", f"Part {i}"], "text": t, "page": None}
                for i, (s, t) in enumerate(zip(m.sections, ("one", "two", "three"), strict=True))
            ],
            "complete_until": None,
        }  # fmt: skip
        page = (await run.get(f"/v1/documents/{m.document.uid}?offset=1&limit=1")).json()
        assert [s["text"] for s in page["sections"]] == ["two"] and page["next_offset"] == 2
        end = (await run.get(f"/v1/documents/{m.document.uid}?offset=9")).json()
        assert end["sections"] == [] and end["next_offset"] is None
        for query in ("offset=-1", "limit=0", "limit=501", "offset=x"):
            reply = await run.get(f"/v1/documents/{m.document.uid}?{query}")
            assert problem(reply, 422).errors[0].field == query.partition("=")[0]


@pytest.mark.requirement("F25", "I3", "B1")
async def test_not_readable_is_not_found_to_the_byte(world: World) -> None:
    world.principal("user:ann")
    secret = world.document("secret", "plan", rule=anyone("user:bob"))
    gone = world.document("gone", "plan")
    world.access(gone.document, tombstone=True, not_before=gone.content_version + 1)
    other = world.document(ref("theirs", tenant="other"), "plan")
    dated = world.document("dated", "plan", effective_until=10)
    async with world.running() as run:
        absent = await run.get(f"/v1/documents/{ABSENT}")
        problem(absent, 404)
        paths = [f"/v1/{what}/{uid}" for what in ("documents", "trace") for uid in (
            secret.document.uid, gone.document.uid, other.document.uid, "not-a-uid", ABSENT.upper().replace("0", "A"),
        )]  # fmt: skip
        for path in paths:
            reply = await run.get(path)
            assert reply.status_code == 404 and reply.content == absent.content, path
            assert {k for k in reply.headers if k != "date"} == {k for k in absent.headers if k != "date"}
        reply = await run.get(f"/v1/documents/{dated.document.uid}", as_of=20)
        assert reply.status_code == 404 and reply.content == absent.content
        assert (await run.get(f"/v1/documents/{dated.document.uid}")).status_code == 200


@pytest.mark.requirement("B9", "F25")
async def test_a_document_revoked_while_it_is_read_is_not_found(world: World) -> None:
    world.principal("user:ann")
    m = world.document("a", "plan")
    async with world.running() as run:
        real = run.parts.reader.sections

        async def revoking(*arguments: Any) -> dict[str, Section]:
            found: dict[str, Section] = await real(*arguments)
            world.access(m.document, anyone("user:bob"))
            return found

        run.parts.reader.sections = revoking
        problem(await run.get(f"/v1/documents/{m.document.uid}"), 404)


# ---------------------------------------------------------------- operations


@pytest.mark.requirement("I11")
async def test_health_and_readiness(world: World) -> None:
    world.log.append(Topic.ACCESS, ref("a").key, b"{}")  # not yet applied by the access lane
    async with world.running(ready=False) as run:
        assert (await run.client.get("/healthz")).json() == {"ok": True, "reasons": []}
        reply = await run.client.get("/readyz")
        assert reply.status_code == 503 and HealthResponse.model_validate(reply.json()).reasons
        world.progress()
        world.clock.advance(1)
        await run.until_ready()
        reply = await run.client.get("/readyz")
        assert reply.status_code == 200 and reply.json() == {"ok": True, "reasons": []}


@pytest.mark.requirement("A11", "C5")
async def test_metrics(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    async with world.running() as run:
        await run.ids("plan")
        await run.get(f"/v1/documents/{ref('a').uid}")
        text = (await run.client.get("/metrics")).text
    for line in (
        'headwater_requests_total{route="/v1/search",status="200"} 1.0',
        'headwater_requests_total{route="/v1/documents/{document_uid}",status="200"} 1.0',
        'headwater_search_stage_seconds_count{stage="search"} 1.0',
        'headwater_search_stage_seconds_count{stage="embed"} 1.0',
        'headwater_search_stage_seconds_count{stage="total"} 1.0',
        "headwater_ready 1.0",
    ):
        assert line in text, line
    assert ref("a").uid not in text


async def test_the_page_and_its_headers(world: World) -> None:
    async with world.running(ready=False) as run:
        page = await run.client.get("/")
        assert page.status_code == 200 and "Headwater" in page.text
        assert "script-src" not in page.text and "default-src 'self'" in page.headers["content-security-policy"]
        assert "onclick" not in page.text and "<script>" not in page.text and "style=" not in page.text
        for name in ("app.js", "events.js", "answer.js", "ask.js", "style.css", "icon.svg"):
            assert f"/static/{name}" in page.text
            assert (await run.client.get(f"/static/{name}")).status_code == 200
        assert (await run.client.get("/static/%2e%2e/app.py")).status_code == 404
        assert (await run.client.get("/v1/freshness")).headers["cache-control"] == "no-store"


async def test_openapi_has_examples_and_problems(world: World) -> None:
    app = create_app(world.dependencies())
    spec = app.openapi()
    by_id = {"/v1/documents/{document_uid}", "/v1/trace/{document_uid}"}
    assert set(spec["paths"]) >= {"/v1/search", "/v1/freshness", "/healthz", "/readyz", *by_id}
    search = spec["paths"]["/v1/search"]["post"]
    assert {"200", "401", "422", "503"} <= set(search["responses"])
    assert search["security"] == [{"bearer": []}, {"apiKey": []}]
    schemas = spec["components"]["schemas"]
    shown = (SearchRequest, SearchResponse, DocumentResponse, FreshnessResponse, TraceResponse, Problem, HealthResponse)
    for model in shown:
        assert schemas[model.__name__]["examples"], model


@pytest.mark.parametrize(
    "model",
    [SearchRequest, SearchResponse, DocumentResponse, FreshnessResponse, TraceResponse, Problem, HealthResponse],
)
def test_examples_are_valid(model: Any) -> None:
    for example in model.model_json_schema()["examples"]:
        model.model_validate(example)


# ---------------------------------------------------------------- waiting for a write


@pytest.mark.requirement("B1", "A11")
async def test_a_freshness_token_is_waited_for(world: World) -> None:
    import asyncio

    from schemas.tokens import FreshnessToken, TokenDocument

    world.principal("user:ann")
    m = world.document("a", "plan")

    def token(content: int, access: int, tenant: str = TENANT) -> str:
        line = TokenDocument(kind="page", id="a", source="wiki", content=content, access=access)
        return FreshnessToken(tenant=tenant, documents=(line,)).encode()

    async with world.running() as run:
        now = await run.search("plan", after=token(m.content_version, m.access_version))
        assert now["fresh"] is True
        later = await run.search("plan", after=token(m.content_version + 10**6, 0), wait_ms=80)
        assert later["fresh"] is False and later["hits"]
        reply = await run.post({"query": "plan", "after": token(1, 1, tenant="other")})
        assert problem(reply, 422).errors[0].field == "after"

        waiting = asyncio.create_task(run.search("plan", after=token(m.content_version + 1, 0), wait_ms=5000))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        newer = world.document("a", "plan anew")
        reply = await waiting
        assert reply["fresh"] is True and reply["hits"][0]["version"] == newer.content_version


@pytest.mark.requirement("B1", "A8")
async def test_a_made_up_token_does_not_tell_whether_a_hidden_document_exists(world: World) -> None:
    from schemas.tokens import FreshnessToken, TokenDocument

    world.principal("user:ann")
    world.principal("user:bob")
    hidden = world.document("hidden", "plan", rule=AccessRule.any_of("user:bob"))

    async def fresh(id_: str, content: int, access: int, sub: str = "ann") -> bool:
        line = TokenDocument(kind="page", id=id_, source="wiki", content=content, access=access)
        token = FreshnessToken(tenant=TENANT, documents=(line,)).encode()
        return bool((await run.search("plan", sub, after=token))["fresh"])

    async with world.running() as run:
        for content, access in ((1, 0), (0, 1), (1, 1), (hidden.content_version, 1), (1, hidden.access_version)):
            assert not await fresh("hidden", content, access) and not await fresh("absent", content, access)
            assert await fresh("hidden", content, access, "bob")
        assert await fresh("hidden", hidden.content_version, hidden.access_version), "its writer was given these"
        assert await fresh("hidden", 0, 0) and await fresh("absent", 0, 0)


@pytest.mark.requirement("A11")
async def test_a_token_of_positions_waits_for_both_lanes(world: World) -> None:
    from schemas.receipts import Progress
    from schemas.tokens import FreshnessToken, TokenPosition

    world.principal("user:ann")
    world.document("a", "plan")

    def token(topic: Topic, offset: int) -> str:
        return FreshnessToken(
            tenant=TENANT, positions=(TokenPosition(topic=topic, partition=1, offset=offset),)
        ).encode()

    def indexed(generation: str, offset: int) -> None:
        line = Progress(lane="index", generation=generation, topic="content", partition=1, offset=offset)
        world.store.write_progress([line])

    async with world.running() as run:

        async def fresh(topic: Topic, offset: int) -> bool:
            return bool((await run.search("plan", after=token(topic, offset)))["fresh"])

        assert not await fresh(Topic.CONTENT, 4)
        indexed("g2", 9)
        assert not await fresh(Topic.CONTENT, 4), "another generation does not count"
        indexed(GENERATION, 4)
        assert not await fresh(Topic.CONTENT, 4), "the record itself is not yet applied"
        indexed(GENERATION, 5)
        assert await fresh(Topic.CONTENT, 4)
        assert not await fresh(Topic.ACCESS, 4)
        world.progress(offset=5)
        assert await fresh(Topic.ACCESS, 4) and not await fresh(Topic.ACCESS, 5)
        for i in range(60):
            world.log.append(Topic.ACCESS, ref(f"x{i}").key, b"{}")
        await run.until(lambda: run.parts.tail.partitions()[("access", 1)] > 5)
        assert await fresh(Topic.ACCESS, 5), "what the tail has read is in force here"


async def test_json_of_a_search_is_its_contract(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    async with world.running() as run:
        reply = await run.post({"query": "plan"})
    assert json.loads(SearchResponse.model_validate_json(reply.content).model_dump_json()) == reply.json()
