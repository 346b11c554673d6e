"""Scope comes from the token; requests only narrow it."""

from __future__ import annotations

import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from pydantic import SecretStr

from pipeline.errors import ConfigError
from pipeline.settings import AuthSettings
from query_service.scope import FieldError, Scope, TokenVerifier, Unauthorized, narrow
from schemas.api import SearchFilters
from schemas.api_moments import EARLIEST
from tests.unit.query.world import SECRET

NOW = 1_700_000_000_000_000


def claims(**changes: Any) -> dict[str, Any]:
    base = {"sub": "ann", "tenant": "acme", "aud": "headwater", "exp": int(time.time()) + 60}
    return {k: v for k, v in {**base, **changes}.items() if v is not None}


def verifier(**settings: Any) -> TokenVerifier:
    return TokenVerifier(AuthSettings(jwt_secret=SecretStr(SECRET), **settings))


def verify(v: TokenVerifier | None = None, key: Any = SECRET, algorithm: str = "HS256", **changes: Any) -> Scope:
    return (v or verifier()).verify(jwt.encode(claims(**changes), key, algorithm=algorithm))


@pytest.mark.requirement("B1")
def test_a_valid_token() -> None:
    scope = verify(products=["p1"], as_of=NOW)
    assert scope == Scope("acme", "ann", (), NOW, NOW, frozenset({"p1"}))
    assert scope.user == "user:ann"


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    "changes",
    [
        {"sub": None}, {"sub": ""}, {"sub": 7}, {"sub": " ann"}, {"sub": "ann "}, {"sub": "a\nb"}, {"sub": "ann\u200b"},
        {"tenant": None}, {"tenant": ""}, {"tenant": "a/b"}, {"tenant": ["acme"]}, {"tenant": "аcme"},
        {"aud": None}, {"aud": "other"}, {"exp": None}, {"exp": int(time.time()) - 1}, {"exp": "soon"},
        {"as_of": "2024"}, {"as_of": 1.5}, {"as_of": True}, {"as_of": -1}, {"as_of": [1]}, {"as_of": [2, 1]},
        {"as_of": [None, None]}, {"products": "p1"}, {"products": [1]}, {"products": [""]},
        {"nbf": int(time.time()) + 600},
    ],
)  # fmt: skip
def test_claims_that_are_missing_or_cannot_be_read_are_refused(changes: dict[str, Any]) -> None:
    token = {k: v for k, v in {**claims(), **changes}.items() if v is not None}
    with pytest.raises(Unauthorized):
        if isinstance(token.get("sub"), int) or isinstance(token.get("exp"), str):
            # the library refuses to make these; another issuer would not
            verifier().verify(_raw(token))
        else:
            verify(**changes)


def _raw(payload: dict[str, Any]) -> str:
    import base64
    import hashlib
    import hmac
    import json

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + "." + part(json.dumps(payload).encode())
    return head + "." + part(hmac.new(SECRET.encode(), head.encode(), hashlib.sha256).digest())


@pytest.mark.requirement("B1")
def test_expiry_is_said_but_nothing_else_is() -> None:
    with pytest.raises(Unauthorized) as expired:
        verify(exp=int(time.time()) - 5)
    with pytest.raises(Unauthorized) as wrong:
        verify(key="x" * 40)
    assert expired.value.reason == "the token has expired"
    assert wrong.value.reason == "the token is not valid here"


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("token", ["", "x", "a.b.c", "e30.e30.", "é.é.é", "a" * 10_000])
def test_garbage_is_refused(token: str) -> None:
    with pytest.raises(Unauthorized):
        verifier().verify(token)


@pytest.mark.requirement("B1")
def test_the_algorithm_is_pinned() -> None:
    with pytest.raises(Unauthorized):
        verify(key="", algorithm="none")
    with pytest.raises(Unauthorized):
        verify(key=SECRET * 2, algorithm="HS512")
    with pytest.raises(Unauthorized):
        verify(key=SECRET, algorithm="HS384")


def _pem(key: Any) -> tuple[str, str]:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_public_keys_and_no_confusion_with_a_secret(algorithm: str) -> None:
    key = rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    private, public = _pem(key)
    v = TokenVerifier(AuthSettings(jwt_public_key=public))
    assert verify(v, private, algorithm).subject == "ann"
    forged = _hmac_with(public.encode())
    with pytest.raises(Unauthorized):
        v.verify(forged)


def _hmac_with(secret: bytes) -> str:
    import base64
    import hashlib
    import hmac
    import json

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + "." + part(json.dumps(claims()).encode())
    return head + "." + part(hmac.new(secret, head.encode(), hashlib.sha256).digest())


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "auth"),
        ({"jwt_secret": SecretStr("short")}, "auth.jwt_secret"),
        ({"jwt_public_key": "not a key"}, "auth.jwt_public_key"),
        ({"jwt_public_key": "x", "jwt_secret": SecretStr(SECRET)}, "auth"),
        ({"jwt_public_key": _pem(ec.generate_private_key(ec.SECP384R1()))[1]}, "auth.jwt_public_key"),
    ],
)
def test_keys_that_cannot_work_are_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        TokenVerifier(AuthSettings(**settings))
    assert error.value.field == field
    assert error.value.remedy


@pytest.mark.requirement("B1")
def test_the_issuer_is_checked_where_one_is_configured() -> None:
    v = verifier(issuer="https://id.example")
    assert verify(v, iss="https://id.example").subject == "ann"
    for iss in (None, "https://other.example"):
        with pytest.raises(Unauthorized):
            verify(v, iss=iss)


@pytest.mark.requirement("I12", "B1")
def test_claimed_groups_count_only_for_a_trusted_issuer() -> None:
    assert verify(groups=["group:wiki/eng"]).groups == ()
    assert verify(groups=["group:wiki/eng"], iss="https://id.example").groups == ()
    trusting = verifier(trusted_group_issuers=("https://id.example",))
    assert verify(trusting, groups=["group:b", "group:a", "group:a"], iss="https://id.example").groups == (
        "group:a",
        "group:b",
    )
    assert verify(trusting, groups=["group:b"], iss="https://evil.example").groups == ()
    for groups in (["user:bob"], ["audience:wiki/x"], ["everyone"], "group:a", [1], ["group:"], ["group: a"]):
        with pytest.raises(Unauthorized):
            verify(trusting, groups=groups, iss="https://id.example")


@pytest.mark.requirement("B1")
def test_products_of_a_request_only_narrow() -> None:
    scope = Scope("acme", "ann", products=frozenset({"a", "b"}))
    assert narrow(scope, SearchFilters(), NOW).products == frozenset({"a", "b"})
    assert narrow(scope, SearchFilters(products=("b", "c")), NOW).products == frozenset({"b"})
    nothing = narrow(scope, SearchFilters(products=("c",)), NOW)
    assert nothing.products == frozenset() and nothing.empty
    assert narrow(Scope("acme", "ann", products=frozenset()), SearchFilters(), NOW).empty
    assert narrow(Scope("acme", "ann"), SearchFilters(products=("c",)), NOW).products == frozenset({"c"})


@pytest.mark.requirement("B1")
def test_the_applicable_date_stays_within_the_token() -> None:
    free = Scope("acme", "ann")
    assert narrow(free, SearchFilters(), NOW).as_of is None
    assert narrow(free, SearchFilters(as_of=EARLIEST), NOW).as_of == EARLIEST
    day = EARLIEST + 7
    pinned = Scope("acme", "ann", as_of_from=day, as_of_until=day)
    assert narrow(pinned, SearchFilters(), NOW).as_of == day
    assert narrow(pinned, SearchFilters(as_of=day), NOW).as_of == day
    since = Scope("acme", "ann", as_of_from=day)
    assert narrow(since, SearchFilters(), NOW).as_of == NOW
    until = Scope("acme", "ann", as_of_until=day)
    assert narrow(until, SearchFilters(), NOW).as_of == day
    for scope, wanted in ((pinned, day + 1), (since, day - 1), (until, day + 1)):
        with pytest.raises(FieldError) as error:
            narrow(scope, SearchFilters(as_of=wanted), NOW)
        assert error.value.field == "filters.as_of"


@pytest.mark.requirement("B1")
def test_clocks_may_differ_by_the_leeway() -> None:
    now = int(time.time())
    lenient = verifier(leeway_s=60)
    within: list[dict[str, Any]] = [{"exp": now - 30}, {"nbf": now + 30}, {"iat": now + 30}]
    beyond: list[dict[str, Any]] = [{"exp": now - 90}, {"nbf": now + 90}, {"iat": now + 90}]
    for changes in within:
        assert verify(lenient, **changes).subject == "ann"
        with pytest.raises(Unauthorized):
            verify(**changes)
    for changes in beyond:
        with pytest.raises(Unauthorized):
            verify(lenient, **changes)


@pytest.mark.requirement("B1")
def test_audiences_length_and_further_claims() -> None:
    several = verifier(audience=("headwater", "search"))
    for audience in ("search", ["other", "headwater"]):
        assert verify(several, aud=audience).subject == "ann"
    for wrong in ("other", [], ["other"], ["search", 7], {"search": 1}, ""):
        with pytest.raises(Unauthorized):
            several.verify(_raw({**claims(), "aud": wrong}))
    with pytest.raises(Unauthorized):
        verify(verifier(max_token_chars=1000), note="x" * 1000)
    assert verify(verifier(required_claims=("jti",)), jti="a").subject == "ann"
    with pytest.raises(Unauthorized):
        verify(verifier(required_claims=("jti",)))


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("exp", [1e400, -(10**400), True, None, [], "9" * 5000])
def test_times_that_are_no_times_are_refused(exp: Any) -> None:
    with pytest.raises(Unauthorized):
        verifier().verify(_raw({**claims(), "exp": exp}))


@pytest.mark.requirement("B1")
def test_roles() -> None:
    assert not verify().operator and not verify().evaluator
    assert verify(roles=["operator"]).operator and not verify(roles=["operator"]).evaluator
    assert verify(roles=["evaluator", "else"]).evaluator
    for roles in ("operator", [["operator"]], {"operator": True}, 1):
        with pytest.raises(Unauthorized):
            verify(roles=roles)
