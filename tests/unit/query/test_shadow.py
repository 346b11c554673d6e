"""Shadow searches: absent without the role, bound to the person's own rights, answered by the stated generation."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from schemas.api import SearchResponse
from tests.unit.query.test_app import problem
from tests.unit.query.world import GENERATION, TENANT, Running, World, anyone, ref

pytestmark = pytest.mark.anyio
OPERATOR = {"roles": ["operator"]}
NO_ROLE: tuple[dict[str, Any], ...] = ({}, {"roles": []}, {"roles": ["reader"]})


async def shadow(
    run: Running, body: dict[str, Any], sub: str = "olga", claims: dict[str, Any] | None = None
) -> httpx.Response:
    headers = run.headers(sub, **(OPERATOR if claims is None else claims))
    return await run.client.post("/v1/operator/search", json=body, headers=headers)


def ask(seen_as: str = "ann", query: str = "plan", generation: str = GENERATION, **request: Any) -> dict[str, Any]:
    return {"seen_as": seen_as, "generation": generation, "request": {"query": query, "duplicates": "keep", **request}}


def found(reply: httpx.Response) -> set[str]:
    assert reply.status_code == 200, reply.text
    return {hit.document_id for hit in SearchResponse.model_validate_json(reply.content).hits}


def people(world: World) -> None:
    world.principal("user:ann", "group:wiki/eng")
    world.principal("user:olga", "group:wiki/boss")
    for name in ("group:wiki/eng", "group:wiki/boss"):
        world.principal(name)
    world.document("eng", "the plan of engineering", rule=anyone("group:wiki/eng"))
    world.document("boss", "the plan of the board", rule=anyone("group:wiki/boss"))
    world.document("all", "the plan for everyone")


@pytest.mark.requirement("A10", "B1")
async def test_without_the_role_there_is_nothing_here(world: World) -> None:
    people(world)
    async with world.running() as run:
        absent = await run.client.post("/v1/operator/other", json={}, headers=run.headers("ann"))
        for claims in NO_ROLE:
            for body in (ask(), {"not": "a request"}):
                reply = await shadow(run, body, "ann", claims)
                assert (reply.status_code, reply.content) == (404, absent.content)
        reply = await run.client.post("/v1/operator/search", content=b"{no json", headers=run.headers("ann"))
        assert (reply.status_code, reply.content) == (404, absent.content)
        problem(await run.client.post("/v1/operator/search", json=ask()), 401)
        problem(await shadow(run, ask(), "ann", {"roles": "operator"}), 401)


@pytest.mark.requirement("A10", "B1", "I3")
async def test_it_sees_as_the_person_and_never_as_the_operator(world: World) -> None:
    people(world)
    async with world.running() as run:
        assert found(await shadow(run, ask("ann"))) == {"eng", "all"}
        assert found(await shadow(run, ask("olga"))) == {"boss", "all"}
        assert found(await shadow(run, ask("stranger"))) == set()
        # groups claimed by the operator's token are the operator's, and one tenant's role ends at its tenant
        claims = {**OPERATOR, "groups": ["group:wiki/eng"], "iss": "trusted"}
        assert found(await shadow(run, ask("olga"), claims=claims)) == {"boss", "all"}
        assert found(await shadow(run, ask("ann"), claims={**OPERATOR, "tenant": "other"})) == set()


@pytest.mark.requirement("A10", "B1")
async def test_dates_and_products_of_the_operators_token_bound_it(world: World) -> None:
    world.principal("user:ann")
    world.document("old", "the plan", effective_until=1_000)
    world.document("x", "the plan", product="x-500")
    async with world.running() as run:
        assert found(await shadow(run, ask())) == {"old", "x"}
        assert found(await shadow(run, ask(), claims={**OPERATOR, "products": ["x-500"]})) == {"x"}
        assert found(await shadow(run, ask(), claims={**OPERATOR, "as_of": 2_000})) == {"x"}
        reply = await shadow(run, ask(filters={"as_of": 0}), claims={**OPERATOR, "as_of": 2_000})
        assert [e.field for e in problem(reply, 422).errors] == ["filters.as_of"]


@pytest.mark.requirement("A10", "I7")
async def test_the_stated_generation_answers_with_its_own_encoder(world: World) -> None:
    world.principal("user:ann")
    world.document("only-old", "the plan")
    made = world.generation("g2")
    world.document("only-new", "the plan", generation="g2")
    async with world.running() as run:
        before = len(world.encoders)
        reply = await shadow(run, ask(generation="g2"))
        assert found(reply) == {"only-new"} and reply.json()["generation"] == "g2"
        assert found(await shadow(run, ask())) == {"only-old"}
        assert (await run.post({"query": "plan"})).json()["generation"] == GENERATION  # nobody else notices
        assert all(e.spec == made.encoder for e in world.encoders[before:])
        world.store.write_generation(made.model_copy(update={"state": "retired"}))
        for name in ("g2", "g3"):
            assert [e.field for e in problem(await shadow(run, ask(generation=name)), 422).errors] == ["generation"]


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "seen_as"), (ask(""), "seen_as"), (ask(" ann"), "seen_as"), (ask(query=""), "request.query"),
        (ask(generation="G 2"), "generation"), ({**ask(), "tenant": "other"}, "tenant"),
        (ask(after="x"), "request.after"), ({**ask(), "groups": ["group:wiki/boss"]}, "groups"),
    ],
)  # fmt: skip
async def test_the_field_is_named(world: World, body: dict[str, Any], field: str) -> None:
    async with world.running() as run:
        assert field in [e.field for e in problem(await shadow(run, body), 422).errors]


@pytest.mark.requirement("A10", "B1")
async def test_the_log_says_who_asked_and_as_whom_and_the_metrics_do_not_count_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    people(world)
    async with world.running() as run:
        with caplog.at_level(logging.INFO, logger="headwater.query"):
            await run.post({"query": "plan"}, "ann")
            await run.post({"query": "plan"}, "olga")
            measured = world.metrics.render()
            await shadow(run, ask("ann"))
        ann, olga, seen = [r.fields for r in caplog.records if r.message == "query"]  # type: ignore[attr-defined]
        assert seen["scope"] == ann["scope"] and seen["seen_by_operator"] == olga["scope"]
        assert ann["seen_by_operator"] is None and "plan" not in str(seen)

        def stages(text: bytes) -> list[str]:
            lines = text.decode().splitlines()
            return [x for x in lines if x.startswith("headwater_search_stage_seconds_count") and "total" in x]

        assert stages(world.metrics.render()) == stages(measured)


@pytest.mark.requirement("I11")
async def test_it_is_refused_while_permissions_are_not_known(world: World) -> None:
    world.principal("user:ann")
    world.document(ref("a", tenant=TENANT), "plan")
    world.log.down = True  # with a log that answers, even an empty one, they are known a moment after the start
    async with world.running(ready=False) as run:
        problem(await shadow(run, ask()), 503)
