"""The OpenAPI document is complete: every operation is described, every example is what its model says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from query_service.app import create_app
from query_service.openapi import OPERATIONS, PARAMETERS, TAGS
from schemas import api, api_answer, api_changes, api_feedback, api_neighbours, api_why, deletion
from schemas.api_examples_operations import BY_MODEL, PROBLEMS
from tests.unit.query.world import World

pytestmark = pytest.mark.anyio
MODULES: tuple[Any, ...] = (api, api_answer, api_changes, api_feedback, api_neighbours, api_why, deletion)


@pytest.fixture
def document(world: World) -> dict[str, Any]:
    made: dict[str, Any] = create_app(world.dependencies()).openapi()
    return made


def operations(document: dict[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for path, found in document["paths"].items():
        for method, operation in found.items():
            yield (method, path), operation


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    found = dict(operations(document))
    assert set(found) == set(OPERATIONS), "query_service/openapi.py lists every operation, and no other"
    tags = {t["name"] for t in TAGS}
    for key, operation in found.items():
        assert operation["operationId"] == OPERATIONS[key].id
        assert operation.get("deprecated", False) is (operation["operationId"] == "getTraceOld")
        assert operation["summary"] and operation["description"], key
        assert len(operation["tags"]) == 1 and operation["tags"][0] in tags
        assert not re.search(r"[А-я]|TODO", operation["description"])
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (key, parameter["name"])
            assert parameter["in"] != "path" or parameter["name"] in PARAMETERS
    ids = [o.id for o in OPERATIONS.values()]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z][A-Za-z]+", i) for i in ids)
    assert {o.tag for o in OPERATIONS.values()} == tags


def test_servers_are_relative_and_callers_are_known(document: dict[str, Any]) -> None:
    assert [s["url"] for s in document["servers"]] == ["/"]
    schemes = document["components"]["securitySchemes"]
    assert (schemes["bearer"]["type"], schemes["bearer"]["scheme"]) == ("http", "bearer")
    assert (schemes["apiKey"]["type"], schemes["apiKey"]["in"], schemes["apiKey"]["name"]) == (
        "apiKey", "header", "X-API-Key",
    )  # fmt: skip
    for (_, path), operation in operations(document):
        assert bool(operation.get("security")) is path.startswith("/v1/"), path


def test_every_body_has_an_example_that_its_schema_takes(document: dict[str, Any]) -> None:
    shown = 0
    for key, operation in operations(document):
        holders = [("request", operation["requestBody"])] if "requestBody" in operation else []
        for name, holder in [*holders, *operation["responses"].items()]:
            for media, content in holder.get("content", {}).items():
                assert "example" in content, (key, name, media)
                schema = {**content["schema"], "components": document["components"]}
                jsonschema.Draft202012Validator(schema).validate(content["example"])
                shown += 1
                if content["schema"].get("$ref", "").endswith("/Problem"):
                    assert media == "application/problem+json"
                    assert content["example"]["status"] == int(name)
    assert shown > 100


def test_examples_are_read_by_their_models() -> None:
    for name, example in BY_MODEL.items():
        (model,) = {getattr(m, name) for m in MODULES if hasattr(m, name)}
        read = model.model_validate(example)
        assert set(example) <= set(read.model_dump(mode="json")), name
    for status, example in PROBLEMS.items():
        assert api.Problem.model_validate(example).status == status


def test_later_and_limits_are_told_in_headers(document: dict[str, Any]) -> None:
    answers = document["paths"]["/v1/search"]["post"]["responses"]
    assert "Retry-After" in answers["503"]["headers"]
    limits = {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
    assert limits | {"Retry-After"} <= set(answers["429"]["headers"])
    assert "WWW-Authenticate" in answers["401"]["headers"]


async def test_document_and_page_need_no_token_and_nothing_from_elsewhere(world: World) -> None:
    async with world.running() as run:
        spec = await run.client.get("/openapi.json")
        assert spec.status_code == 200 and spec.json()["openapi"].startswith("3.1")
        page = await run.client.get("/docs")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert {"docs.js", "swagger-ui-bundle.js", "swagger-ui.css"} <= {n.rpartition("/")[2] for n in named}
        for address in named:
            assert address.startswith("/") and not address.startswith("//")
            reply: httpx.Response = await run.client.get(address)
            assert reply.status_code == 200, address
        assert "<script>" not in page.text and "style=" not in page.text, "the policy refuses what stands inline"
