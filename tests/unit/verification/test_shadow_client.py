"""The client of the shadow route: operator's tokens, patience, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import jwt
import pytest
from pydantic import SecretStr

from pipeline.errors import ConfigError, Retry
from pipeline.operate.verification import shadow
from pipeline.operate.verification.shadow import ShadowClient
from pipeline.settings import AuthSettings, Settings
from schemas.api import SearchRequest
from schemas.api_examples import SEARCH_RESPONSE
from schemas.api_operator import OperatorSearch

SECRET = "0123456789abcdef0123456789abcdef-test"
Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer, auth: AuthSettings | None = None) -> ShadowClient:
    settings = Settings(auth=auth or AuthSettings(jwt_secret=SecretStr(SECRET)))
    return ShadowClient(settings, transport=httpx.MockTransport(answer))


def ask(made: ShadowClient) -> object:
    return made.search("acme", "ann", "g2", SearchRequest(query="plan", k=3))


@pytest.mark.requirement("A10", "B1")
def test_the_token_is_an_operators_of_the_tenant_and_the_person_is_named() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=SEARCH_RESPONSE)

    made = client(answer)
    ask(made)
    ask(made)
    claims = jwt.decode(
        asked[0].headers["authorization"].removeprefix("Bearer "), SECRET, algorithms=["HS256"], audience="headwater"
    )
    assert claims["tenant"] == "acme" and claims["roles"] == ["operator"] and claims["sub"] == "verification"
    body = OperatorSearch.model_validate_json(asked[0].content)
    assert (body.seen_as, body.generation, body.request.k) == ("ann", "g2", 3)
    assert asked[0].headers["authorization"] == asked[1].headers["authorization"]


@pytest.mark.requirement("A10")
def test_an_identity_providers_token_is_used_as_given_and_its_lack_is_named() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        return httpx.Response(200, json=SEARCH_RESPONSE)

    ask(client(answer, AuthSettings(operator_tokens={"acme": SecretStr("given")})))
    assert asked == ["Bearer given"]
    with pytest.raises(ConfigError) as error:
        ask(client(answer, AuthSettings(operator_tokens={"other": SecretStr("given")})))
    assert error.value.field == "auth.operator_tokens.acme"


@pytest.mark.requirement("A10")
@pytest.mark.parametrize("status", [401, 404])
def test_a_refused_token_says_what_to_set(status: int) -> None:
    with pytest.raises(ConfigError, match="operator"):
        ask(client(lambda request: httpx.Response(status, json={})))


@pytest.mark.requirement("A10")
def test_while_the_service_is_not_ready_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "PAUSE_S", 0.01)
    answers = [httpx.Response(503, json={}), httpx.Response(503, json={}), httpx.Response(200, json=SEARCH_RESPONSE)]
    ask(client(lambda request: answers.pop(0)))
    assert not answers
    monkeypatch.setattr(shadow, "UNAVAILABLE_S", 0.05)
    with pytest.raises(Retry, match="503"):
        ask(client(lambda request: httpx.Response(503, json={})))


@pytest.mark.requirement("A10")
def test_a_service_that_is_away_or_refuses_is_named() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no")

    with pytest.raises(Retry, match=r"does not answer \(ConnectError\).*headwater up"):
        ask(client(away))
    problem = {
        "title": "x",
        "status": 422,
        "detail": "Correct it.",
        "errors": [{"field": "generation", "problem": "n"}],
    }
    with pytest.raises(Retry, match="generation: n"):
        ask(client(lambda request: httpx.Response(422, json=problem)))
