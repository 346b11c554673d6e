"""Requests made from the OpenAPI document, right and wrong ones: the service does what the document says, and no more.

Schemathesis makes the requests and checks the replies; the application runs in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from pipeline.settings_query import LimitSettings
from tests.unit.query.logged import LoggedWorld, seen
from tests.unit.query.world import anyone, chunk_id, ref

EXAMPLES = 6
"""Of each operation and kind: all together stay within seconds."""


class Asked:
    """A running application in a thread of its own, and its document."""

    def __init__(self, run: Any, portal: BlockingPortal, query_id: str) -> None:
        import schemathesis

        chunk = chunk_id(ref("a"), "plan one")
        self.known = {"document_uid": ref("a").uid, "chunk_id": chunk, "query_id": query_id}

        self.run, self.portal = run, portal
        self.document: dict[str, Any] = portal.call(run.client.get, "/openapi.json").json()
        self.schema = schemathesis.openapi.from_dict(self.document)
        self.schema.config.update(base_url="http://query.test")
        self.token = run.world.token(roles=["operator", "evaluator"])

    def send(self, case: Any, token: str | None) -> httpx.Response:
        sent = case.as_transport_kwargs(base_url="http://query.test")
        headers = {k: v for k, v in dict(sent.get("headers") or {}).items() if k.lower() not in _CREDENTIALS}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        body = {k: sent[k] for k in ("json", "data", "content", "params", "cookies") if sent.get(k) is not None}
        if isinstance(body.get("data"), (bytes, str)):
            body["content"] = body.pop("data")

        async def ask() -> httpx.Response:
            client: httpx.AsyncClient = self.run.client
            return await client.request(sent["method"], sent["url"], headers=headers, **body)

        try:
            return self.portal.call(ask)
        except (httpx.InvalidURL, UnicodeEncodeError):  # cannot be sent, and so is no test
            return httpx.Response(0)


_CREDENTIALS = {"authorization", "x-api-key"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    world = LoggedWorld(Path(tmp_path_factory.mktemp("schema")))
    limits = LimitSettings(requests_per_minute=0, refused_per_minute=0)
    world.settings = world.settings.model_copy(update={"limits": limits})
    world.principal("user:ann")
    world.document("a", "plan one", "plan two", rule=anyone("user:ann"))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(world.running()) as run:
        reply = portal.call(run.search, "plan")
        portal.call(seen, run, 1)
        yield Asked(run, portal, reply["query_id"])


def _checks() -> list[Any]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    return [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.response_headers_conformance,
    ]


def _operations(asked: Asked) -> list[Any]:
    found: list[Any] = list(asked.schema.get_all_operations())
    return [operation.ok() for operation in found]


def _walk(asked: Asked, strategy: Any, checks: list[Any], met: set[int]) -> None:
    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data: Any) -> None:
        case = data.draw(strategy)
        for name in case.path_parameters or {}:
            if name in asked.known and data.draw(st.booleans()):
                case.path_parameters[name] = asked.known[name]
        reply = asked.send(case, asked.token)
        if reply.status_code:
            met.add(reply.status_code)
            case.validate_response(reply, checks=checks)

    check()


@pytest.mark.requirement("E3", "B1")
@pytest.mark.parametrize("kind", ["positive", "negative"])
def test_every_operation_answers_as_documented(asked: Asked, kind: str) -> None:
    from schemathesis.generation.modes import GenerationMode

    checks, statuses, wrong = _checks(), dict[str, set[int]](), list[str]()
    for operation in _operations(asked):
        strategy = operation.as_strategy(GenerationMode(kind))
        met = statuses.setdefault(operation.label, set())

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                _walk(asked, strategy, checks, met)
            except Unsatisfiable:
                continue  # nothing can be wrong with a request that takes nothing
            except Exception as error:  # many kinds; the operation is what one wants to know first
                wrong.append(f"{operation.label}: {error}")
    assert not wrong, "\n\n".join(wrong)
    assert set().union(*statuses.values()) >= ({200, 404} if kind == "positive" else {422}), statuses


@pytest.mark.requirement("E3")
def test_the_document_names_every_refusal(asked: Asked) -> None:
    for path, operations in asked.document["paths"].items():
        for method, operation in operations.items():
            if not path.startswith("/v1/"):
                continue
            assert operation["security"], (path, method)
            for status in ("400", "401", "405", "408", "413", "422", "429", "500", "503"):
                content = operation["responses"][status]["content"]
                assert list(content) == ["application/problem+json"], (path, method, status)


@pytest.mark.requirement("E3", "B1")
def test_without_a_token_every_documented_operation_is_401(asked: Asked) -> None:
    for operation in _operations(asked):
        if not operation.path.startswith("/v1/"):
            continue
        path = operation.path
        for name, value in {**asked.known, "reference": "0" * 32}.items():
            path = path.replace(f"{{{name}}}", value)
        reply = asked.portal.call(asked.run.client.request, operation.method.upper(), path)
        assert reply.status_code == 401, operation.label
