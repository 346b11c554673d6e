"""The query log: every query one record, whatever becomes of it; who may read it, and what it never says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import StoreUnavailable
from query_service.state import NotReady
from schemas.access import AccessRule
from schemas.api_feedback import LoggedQuery
from tests.unit.query.logged import EVALUATOR, OPERATOR, LoggedWorld, listed, seen
from tests.unit.query.test_app import problem
from tests.unit.query.world import GENERATION, TENANT, Running, anyone, ref

pytestmark = pytest.mark.anyio


@pytest.fixture
def logged(tmp_path: Path) -> LoggedWorld:
    made = LoggedWorld(tmp_path)
    made.principal("user:ann", "group:wiki/eng")
    made.principal("user:omar")
    made.principal("group:wiki/eng")
    made.document("eng", "the plan of engineering walrus", rule=anyone("group:wiki/eng"))
    made.document("all", "the plan for everyone narwhal")
    return made


async def records(run: Running, world: LoggedWorld, count: int) -> list[Any]:
    await run.until(lambda: len(world.queries()) >= count)
    return world.queries()


@pytest.mark.requirement("C5")
async def test_a_search_is_one_record_with_ids_scores_counts_and_no_text_of_a_passage(logged: LoggedWorld) -> None:
    logged.document("secret", "the plan nobody but bob sees ocelot", rule=anyone(deny=["user:ann"]))
    async with logged.running() as run:
        reply = await run.search("plan", k=3, filters={"kinds": ["page"], "sources": ["wiki"]})
        (record,) = await records(run, logged, 1)
    assert record.query_id == reply["query_id"] and (record.tenant, record.kind) == (TENANT, "search")
    assert (record.outcome, record.status, record.refusal) == ("answered", 200, None)
    assert [h.chunk_id for h in record.hits] == [h["chunk_id"] for h in reply["hits"]]
    for hit, answered in zip(record.hits, reply["hits"], strict=True):
        assert hit.document_uid == answered["document_uid"]
        shown = {k: v for k, v in answered["scores"].items() if v is not None}
        assert hit.model_dump(include=set(shown)) == shown
    assert record.counts.model_dump(include=set(reply["counts"])) == reply["counts"]
    assert record.counts.shown == 2 and record.counts.refused == {"rule": 1} and record.counts.found["dense"] == 3
    assert record.timings_ms == reply["timings_ms"] and record.total_ms > 0
    assert record.generation == GENERATION and record.principals == 3 and len(record.principals_hash or "") == 32
    assert record.request["k"] == 3 and record.request["filters"] == {"kinds": ["page"], "sources": ["wiki"]}
    assert record.text == "plan" and record.text_mode == "redacted"
    written = record.model_dump_json()
    for word in ("walrus", "narwhal", "ocelot", "user:ann", '"ann"', "group:", ref("secret").uid):
        assert word not in written


@pytest.mark.requirement("C5")
async def test_what_is_refused_late_or_fails_is_logged_with_the_reason_and_nothing_of_the_error(
    logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logged.running() as run:
        service = run.parts.service
        problem(await run.post({"query": "plan", "filters": {"as_of": "2026-01-01"}}, as_of=7), 422)
        problem(await run.get(f"/v1/documents/{ref('eng').uid}", "omar"), 404)
        problem(await run.get("/v1/documents/my-secret-word"), 404)

        async def broken(*parts: Any, **more: Any) -> Any:
            raise StoreUnavailable("no answer about the secret plan")

        async def unready() -> Any:
            raise NotReady("the access lane is behind")

        with monkeypatch.context() as patch:
            patch.setattr(run.parts.state, "current", unready)
            problem(await run.post({"query": "plan"}), 503)
        with monkeypatch.context() as patch:
            patch.setattr(service._retriever, "retrieve", broken)
            problem(await run.post({"query": "plan"}), 503)
        with monkeypatch.context() as patch:
            patch.setattr(service, "_settings", service._settings.model_copy(update={"deadline_s": 1e-9}))
            problem(await run.post({"query": "plan"}), 503)
        found = await records(run, logged, 6)
        assert (await run.get(f"/v1/documents/{ref('eng').uid}")).status_code == 200
        opened = (await records(run, logged, 7))[-1]
        chunk = logged.document("all", "the plan for everyone narwhal").chunks[0].chunk_id
        logged.clock.advance(1)
        reply = await run.get(f"/v1/documents/{ref('all').uid}/chunks/{chunk}/neighbours")
        assert reply.status_code == 200
        around = (await records(run, logged, 8))[-1]
    assert [(r.kind, r.outcome, r.status, r.refusal) for r in found] == [
        ("search", "refused", 422, "field:filters.as_of"),
        ("document", "refused", 404, "not_found"),
        ("document", "refused", 404, "not_found"),
        ("search", "refused", 503, "not_ready"),
        ("search", "failed", 503, "index"),
        ("search", "late", 503, "deadline"),
    ]
    assert [r.document_uid for r in found] == [None, ref("eng").uid, None, None, None, None]
    assert "secret" not in json.dumps([r.model_dump(mode="json") for r in found])
    assert (around.kind, around.document_uid, around.outcome) == ("document", ref("all").uid, "answered")
    assert opened.outcome == "answered" and opened.counts.shown == 1


@pytest.mark.requirement("C5")
async def test_evaluators_and_operators_read_their_tenants_log_and_for_others_it_is_not_there(
    logged: LoggedWorld,
) -> None:
    logged.principal("user:ann", tenant="other")
    async with logged.running() as run:
        await run.search("plan one")
        await run.search("plan other", claims={"tenant": "other"})
        await seen(run, 2)
        absent = (await run.get("/v1/nothing")).content
        for path in ("/v1/queries", f"/v1/queries/{'0' * 36}", f"/v1/queries/who/{'a' * 32}", "/v1/queries?limit=x"):
            reply = await run.get(path, "ann")
            assert (reply.status_code, reply.content) == (404, absent)
            assert (await run.client.get(path)).status_code == 401
        for body in (b"{", b'{"before": 1}'):
            reply = await run.client.post("/v1/queries/purge", content=body, headers=run.headers("ann"))
            assert (reply.status_code, reply.content) == (404, absent)
        for claims in (EVALUATOR, OPERATOR):
            (query,) = (await listed(run, claims=claims))["queries"]
            assert (query["text"], query["tenant"]) == ("plan one", TENANT)
            one = await run.get(f"/v1/queries/{query['query_id']}", "eva", **claims)
            assert LoggedQuery.model_validate_json(one.content) == LoggedQuery.model_validate(query)
            there = await run.get(f"/v1/queries/{query['query_id']}", "eva", **claims, tenant="other")
            assert (there.status_code, there.content) == (404, absent)
            assert len((await listed(run, claims={**claims, "tenant": "third"}))["queries"]) == 0


@pytest.mark.requirement("C5")
async def test_a_reference_is_resolved_for_evaluators_only(logged: LoggedWorld) -> None:
    async with logged.running() as run:
        await run.search("plan", "ann")
        logged.clock.advance(1)
        await run.search("plan", "stranger")
        await seen(run, 2)
        stranger, ann = [q["scope"] for q in (await listed(run))["queries"]]
        assert ann != stranger
        known = await run.get(f"/v1/queries/who/{ann}", "eva", **EVALUATOR)
        assert known.json() == {"scope": ann, "user": "user:ann"}
        assert (await run.get(f"/v1/queries/who/{stranger}", "eva", **EVALUATOR)).json()["user"] is None
        assert (await run.get(f"/v1/queries/who/{ann}", "eva", **EVALUATOR, tenant="other")).json()["user"] is None
        absent = (await run.get("/v1/nothing")).content
        for reply in (
            await run.get(f"/v1/queries/who/{ann}", "olga", **OPERATOR),
            await run.get("/v1/queries/who/ann", "eva", **EVALUATOR),
        ):
            assert (reply.status_code, reply.content) == (404, absent)
        # by name as well: it would be the same as resolving
        assert [q["scope"] for q in (await listed(run, user="ann"))["queries"]] == [ann]
        reply = await run.get("/v1/queries?user=ann", "olga", **OPERATOR)
        assert [e.field for e in problem(reply, 422).errors] == ["user"]
        await seen(run, 5)
        acts = (await listed(run, kind="who"))["queries"]
        assert len(acts) == 2 and {"reference": ann} in [a["request"] for a in acts]


@pytest.mark.requirement("C5", "B1")
async def test_an_operators_look_as_a_person_names_both_and_tells_the_operator_no_reference(
    logged: LoggedWorld,
) -> None:
    body = {"seen_as": "ann", "generation": GENERATION, "request": {"query": "plan"}}
    async with logged.running() as run:
        await run.search("plan", "ann")
        logged.clock.advance(1)
        await run.search("plan", "olga")
        logged.clock.advance(1)
        assert (
            await run.client.post("/v1/operator/search", json=body, headers=run.headers("olga", **OPERATOR))
        ).status_code == 200
        await seen(run, 3)
        act, olga, ann = (await listed(run))["queries"]
        assert (act["kind"], act["scope"], act["operator"]) == ("seen_as", ann["scope"], olga["scope"])
        assert len(act["hits"]) == 2
        masked = (await listed(run, claims=OPERATOR, kind="seen_as"))["queries"][0]
        assert (masked["scope"], masked["principals_hash"], masked["operator"]) == (None, None, olga["scope"])
        by_scope = await listed(run, claims=OPERATOR, scope=ann["scope"])
        assert [q["kind"] for q in by_scope["queries"]] == ["search"]
        assert [q["kind"] for q in (await listed(run, scope=ann["scope"]))["queries"]] == ["seen_as", "search"]


@pytest.mark.requirement("C5")
async def test_filters_and_pages(logged: LoggedWorld) -> None:
    async with logged.running() as run:
        for i in range(5):
            logged.clock.advance(1)
            await run.search(f"plan {'abcde'[i]}")
        logged.clock.advance(1)
        await run.search("plan", "nobody-known")
        problem(await run.get(f"/v1/documents/{ref('gone').uid}"), 404)
        await seen(run, 7)
        everything = (await listed(run))["queries"]
        assert len(everything) == 7
        got: list[str] = []
        cursor: dict[str, Any] = {}
        for _ in range(4):
            page = await listed(run, limit=2, **cursor)
            got += [q["query_id"] for q in page["queries"]]
            cursor = {"cursor": page["next_cursor"]}
        assert page["next_cursor"] is None and got == [q["query_id"] for q in everything]

        async def texts(**params: Any) -> list[str | None]:
            return [q["text"] for q in (await listed(run, **params))["queries"]]

        assert await texts(zero=True) == ["plan"] and len(await texts(zero=False, kind="search")) == 5
        assert await texts(outcome="refused") == [None]
        assert await texts(kind="document") == [None]
        assert await texts(slower_ms=60_000) == [] and len(await texts(slower_ms=0)) == 7
        third = everything[-3]["at"]
        assert await texts(since=third, kind="search", zero=False) == ["plan e", "plan d", "plan c"]
        assert await texts(until=third) == ["plan b", "plan a"]
        assert await texts(any_feedback=True) == []
        for field, value in (("cursor", "x"), ("kind", "x"), ("limit", 0), ("scope", "ann")):
            reply = await run.client.get("/v1/queries", params={field: value}, headers=run.headers("e", **EVALUATOR))
            assert [e.field for e in problem(reply, 422).errors] == [field]


@pytest.mark.requirement("C5")
async def test_a_purge_empties_the_view_also_of_what_comes_late(logged: LoggedWorld) -> None:
    async with logged.running() as run:
        await run.search("plan", "ann")
        await run.search("plan", "omar")
        late = (await records(run, logged, 2))[0]
        logged.clock.advance(10)
        await run.search("later", "ann")
        await seen(run, 3)
        before = logged.clock.now() - 5_000_000

        async def purge(claims: dict[str, Any], **body: Any) -> Any:
            return await run.client.post("/v1/queries/purge", json=body, headers=run.headers("eva", **claims))

        problem(await purge(OPERATOR, before=before, user="ann"), 422)
        assert [e.field for e in problem(await purge(EVALUATOR, before="x"), 422).errors] == ["before"]
        assert [e.field for e in problem(await purge(EVALUATOR, before=2**52), 422).errors] == ["before"]
        reply = (await purge(EVALUATOR, before=before, user="ann")).json()
        assert reply["here"] == 1 and reply["log_until"] > before + 30 * 86_400_000_000
        await seen(run, 4)
        assert [q["text"] for q in (await listed(run, kind="search"))["queries"]] == ["later", "plan"]
        logged.publisher.publish([_again(late)])
        await seen(run, 5)
        assert len((await listed(run, kind="search"))["queries"]) == 2
        assert (await purge(OPERATOR, before=before)).json()["here"] == 1
        await seen(run, 6)
        assert [q["text"] for q in (await listed(run, kind="search"))["queries"]] == ["later"]


def _again(record: Any) -> Any:
    from query_service.querylog.sender import outgoing

    copy = record.model_copy(update={"query_id": "11111111-1111-1111-1111-111111111111"})
    return outgoing(copy.tenant, copy.model_dump_json().encode())


@pytest.mark.requirement("C5")
async def test_without_a_log_nothing_is_kept(tmp_path: Path) -> None:
    world = LoggedWorld(tmp_path, enabled=False)
    world.principal("user:ann")
    world.document("all", "plan", rule=AccessRule.any_of("everyone"))
    async with world.running() as run:
        reply = await run.search("plan")
        said = {"query_id": reply["query_id"], "verdict": "helpful"}
        assert (await run.client.post("/v1/feedback", json=said, headers=run.headers())).status_code == 404
        assert (await run.get("/v1/queries", "eva", **EVALUATOR)).status_code == 404
    assert world.logged() == [] and not (tmp_path / "queries.sqlite").exists()
