"""Walls on every route: the table has a case for each, and a route without one fails here."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pipeline.settings import AuthSettings
from pipeline.settings_query import LimitSettings
from query_service.app import create_app
from query_service.middleware import is_open
from schemas.access import EVERYONE, SUSPENDED
from schemas.api import Problem
from tests.unit.query.logged import LoggedWorld
from tests.unit.query.test_keys import made, written
from tests.unit.query.world import GENERATION, SECRET, World, anyone, chunk_id, ref

pytestmark = pytest.mark.anyio
ABSENT = "00000000-0000-5000-8000-000000000000"
REFERENCE = "0" * 32
SECRETS = ("sesame", "Walrus", "vault")
ROLES = ["operator", "evaluator"]


@dataclass(frozen=True)
class Target:
    """What a request is about: something of ann's, or nothing that ever was."""

    uid: str
    chunk: str
    query: str
    reference: str


NOTHING = Target(ABSENT, ABSENT, ABSENT, REFERENCE)


@dataclass(frozen=True)
class Case:
    """How to ask a route for a target. ``role``: without it the route is not there. ``named``: for one thing."""

    path: str = ""
    body: Callable[[Target], Any] | None = None
    role: bool = False
    named: bool = True


def _mcp(target: Target) -> dict[str, Any]:
    call = {"name": "fetch_document", "arguments": {"document_uid": target.uid}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}


SEARCH = {"query": "recipe", "evidence": "all", "snippets": True}
OPENAI = ("/v1/chat/", "/v1/models")
ANSWER = {"question": "Which recipe is it?", "evidence": "all", "explain": True, "cache": False}
CHAT = {"model": "headwater", "messages": [{"role": "user", "content": "Which recipe is it?"}]}
CASES: dict[tuple[str, str], Case] = {
    ("POST", "/v1/search"): Case("/v1/search", lambda t: SEARCH, named=False),
    ("POST", "/v1/answer"): Case("/v1/answer", lambda t: ANSWER, named=False),
    ("POST", "/v1/chat/completions"): Case("/v1/chat/completions", lambda t: CHAT, named=False),
    ("GET", "/v1/models"): Case("/v1/models", named=False),
    ("GET", "/v1/models/{name}"): Case("/v1/models/headwater", named=False),
    ("GET", "/v1/documents/{document_uid}"): Case("/v1/documents/{uid}"),
    ("GET", "/v1/trace/{document_uid}"): Case("/v1/trace/{uid}"),
    ("GET", "/v1/documents/{document_uid}/trace"): Case("/v1/documents/{uid}/trace"),
    ("GET", "/v1/freshness"): Case("/v1/freshness", named=False),
    ("GET", "/v1/documents/{document_uid}/chunks/{chunk_id}/neighbours"): Case(
        "/v1/documents/{uid}/chunks/{chunk}/neighbours"
    ),
    ("GET", "/v1/documents/{document_uid}/deletion"): Case("/v1/documents/{uid}/deletion", role=True),
    ("POST", "/v1/operator/search"): Case(
        "/v1/operator/search",
        lambda t: {"seen_as": "ann", "generation": GENERATION, "request": {"query": "recipe"}},
        role=True,
        named=False,
    ),
    ("POST", "/v1/feedback"): Case("/v1/feedback", lambda t: {"query_id": t.query, "verdict": "helpful"}),
    ("GET", "/v1/queries"): Case("/v1/queries", role=True, named=False),
    ("GET", "/v1/queries/{query_id}"): Case("/v1/queries/{query}", role=True),
    ("GET", "/v1/queries/who/{reference}"): Case("/v1/queries/who/{reference}", role=True, named=False),
    ("POST", "/v1/queries/purge"): Case("/v1/queries/purge", lambda t: {"before": 1}, role=True, named=False),
    ("GET", "/v1/why"): Case("/v1/why?user=ann&document={uid}", role=True, named=False),
    ("POST", "/mcp"): Case("/mcp", _mcp, named=False),
}


def routes(app: Any) -> Iterator[tuple[str, str]]:
    """Method and path of every route of the application, hidden ones included."""

    def walk(found: Any) -> Iterator[tuple[str, str]]:
        for route in found:
            if hasattr(route, "effective_candidates"):
                yield from walk(route.effective_candidates())
            elif getattr(route, "methods", None) is None:
                yield "*", route.path  # a mount
            else:
                for method in route.methods - {"HEAD"}:
                    yield method, route.path

    yield from walk(app.routes)


class Walled(LoggedWorld):
    """ann's document in two tenants, one of them suspended; others who may not read it."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.settings = self.settings.model_copy(
            update={"limits": LimitSettings(requests_per_minute=0, refused_per_minute=0)}
        )
        self.settings.auth.keys_file = tmp_path / "keys.json"
        for tenant in ("acme", "asleep"):
            document = ref("a", source="vault", tenant=tenant)
            for name in ("ann", "bob", "ops"):
                self.principal(f"user:{name}", tenant=tenant)
            self.document(
                document, "recipe sesame one", "recipe sesame two", rule=anyone("user:ann"), title="Walrus", product="p"
            )
        self.principal("user:ann", tenant="other")
        self.principal("user:ops", tenant="other")
        self.principal("user:gone", removed=True)
        self.principal(EVERYONE, SUSPENDED, tenant="asleep", source="#headwater")

    @staticmethod
    def target(tenant: str = "acme", query: str = ABSENT) -> Target:
        document = ref("a", source="vault", tenant=tenant)
        return Target(document.uid, chunk_id(document, "recipe sesame one"), query, REFERENCE)


@pytest.fixture
def walled(tmp_path: Path) -> Walled:
    return Walled(tmp_path)


async def ask(
    run: Any, route: tuple[str, str], case: Case, target: Target, headers: dict[str, str], **more: Any
) -> httpx.Response:
    path = case.path.format(uid=target.uid, chunk=target.chunk, query=target.query, reference=target.reference)
    if case.body is not None:
        more.setdefault("json", case.body(target))
    if path == "/mcp":
        headers = {**headers, "Accept": "application/json, text/event-stream", "Host": "127.0.0.1:8700"}
    reply: httpx.Response = await run.client.request(route[0], path, headers=headers, **more)
    return reply


def whole(reply: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """All of a reply that its reader can tell apart."""
    kept = {k: v for k, v in reply.headers.items() if k not in ("date", "allow")}
    return reply.status_code, kept, reply.content


def present(run: Any, app: Any) -> dict[tuple[str, str], Case]:
    found = set(routes(app))
    return {route: case for route, case in CASES.items() if route in found}


@pytest.mark.requirement("F25", "B1")
async def test_every_route_has_a_case(walled: Walled) -> None:
    app = create_app(walled.dependencies())
    missing = {route for route in routes(app) if not is_open(route[1]) and route not in CASES}
    missing -= {("*", "/static")}
    assert not missing, f"give each of these a case in CASES: {sorted(missing)}"
    opened = {path for _, path in routes(app) if is_open(path) and not path.startswith("/static/")}
    assert opened <= {"/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"}
    assert len(set(routes(app))) > 10  # the walk finds them


# ---------------------------------------------------------------- without a valid token


def bad_tokens(world: World) -> dict[str, dict[str, str]]:
    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    claims = jwt.decode(world.token(), options={"verify_signature": False})
    key = rsa.generate_private_key(65537, 2048)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    revoked, sent = made(revoked_at=1)
    assert world.settings.auth.keys_file is not None
    written(world.settings.auth.keys_file, revoked)
    good = world.token(roles=ROLES)
    head, payload, signature = good.split(".")
    return {
        "nothing": {},
        "no scheme": {"Authorization": good},
        "basic": {"Authorization": "Basic YW5uOmFubg=="},
        "empty": {"Authorization": "Bearer "},
        "twice": {"Authorization": f"Bearer {good}", "X-API-Key": sent},
        "garbage": bearer("x"),
        "long": bearer("x" * 20_000),
        "expired": bearer(world.token(exp=int(time.time()) - 5)),
        "not yet": bearer(world.token(nbf=int(time.time()) + 600)),
        "other audience": bearer(world.token(aud="other")),
        "other secret": bearer(world.token(key="x" * 40)),
        "other algorithm": bearer(jwt.encode(claims, SECRET * 2, algorithm="HS512")),
        "none": bearer(jwt.encode(claims, "", algorithm="none")),
        "unsigned": bearer(f"{head}.{payload}."),
        "other payload": bearer(f"{head}.{payload[:-2]}AA.{signature}"),
        "key id": bearer(jwt.encode(claims, "y" * 40, algorithm="HS256", headers={"kid": "../../dev/null"})),
        "own key": bearer(jwt.encode(claims, key, algorithm="RS256", headers={"jwk": {"kty": "oct", "k": "eQ"}})),
        "public key as secret": bearer(world.token(key=pem.hex()[:64])),
        "no tenant": bearer(jwt.encode({k: v for k, v in claims.items() if k != "tenant"}, SECRET)),
        "tenant with a wildcard": bearer(world.token(tenant="*")),
        "revoked key": bearer(sent),
        "unknown key": {"X-API-Key": made()[1]},
    }


@pytest.mark.requirement("F25", "B1", "I12")
async def test_without_a_valid_token_every_route_is_as_one_that_is_not_there(walled: Walled) -> None:
    bad = bad_tokens(walled)
    async with walled.running() as run:
        app = run.client._transport.app
        for name, headers in bad.items():
            absent = await run.client.get("/v1/not/there", headers=headers)
            assert absent.status_code == 401 and absent.headers["www-authenticate"].startswith("Bearer"), name
            for route, case in present(run, app).items():
                wrong: tuple[Any, ...] = ({"params": {"limit": "x"}}, {"content": b"[" * 9, "json": None})
                for more in ({}, *(wrong if name in ("nothing", "expired") else ())):
                    reply = await ask(run, route, case, walled.target(), headers, **more)
                    if route[1].startswith(OPENAI):  # errors in the form that its clients read, all of them alike
                        error = reply.json()["error"]
                        assert (reply.status_code, error["code"]) == (401, "invalid_api_key"), (name, route)
                        assert reply.headers["www-authenticate"] == absent.headers["www-authenticate"]
                        continue
                    assert whole(reply) == whole(absent), (name, route)


# ---------------------------------------------------------------- with somebody else's


def strangers(world: World) -> dict[str, tuple[str, dict[str, str]]]:
    """Tenant of the target, and headers of somebody who may not read it."""

    def bearer(sub: str, **claims: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {world.token(sub, **claims)}"}

    entry, key = made(tenant="other", subject="ann", roles=("operator", "evaluator"))
    narrow, narrow_key = made(products=("q",))
    assert world.settings.auth.keys_file is not None
    written(world.settings.auth.keys_file, entry, narrow)
    return {
        "another tenant": ("acme", bearer("ann", tenant="other")),
        "operator of another tenant": ("acme", bearer("ops", tenant="other", roles=ROLES)),
        "a key of another tenant": ("acme", {"X-API-Key": key}),
        "a key for another product": ("acme", {"X-API-Key": narrow_key}),
        "not allowed": ("acme", bearer("bob")),
        "an operator who may not read": ("acme", bearer("ops", roles=["operator"])),
        "nobody": ("acme", bearer("who")),
        "removed": ("acme", bearer("gone")),
        "another product": ("acme", bearer("ann", products=["q"])),
        "no product": ("acme", bearer("ann", products=[])),
        "groups that nobody trusts": ("acme", bearer("bob", groups=["group:wiki/eng"], iss="https://evil.example")),
        "suspended": ("asleep", bearer("ann", tenant="asleep")),
        "in the name of a marker": ("acme", bearer("*")),
    }


@pytest.mark.requirement("F25", "B1", "I12", "I3")
async def test_what_a_stranger_gets_is_what_everybody_gets_for_nothing(walled: Walled) -> None:
    async with walled.running() as run:
        app = run.client._transport.app
        mine = (await run.post(SEARCH)).json()
        assert mine["hits"] and mine["query_id"]
        shown = await ask(
            run, ("GET", ""), CASES["GET", "/v1/documents/{document_uid}"], walled.target(), run.headers()
        )
        assert shown.status_code == 200 and "Walrus" in shown.text  # ann may: what follows is no empty promise
        for name, (tenant, headers) in strangers(walled).items():
            target = walled.target(tenant, mine["query_id"] if tenant == "acme" else ABSENT)
            for route, case in present(run, app).items():
                if case.role and name.startswith("an operator"):
                    continue  # has the right to it: the tests of those routes say to what
                if route[1] == "/v1/feedback" and name.endswith("product"):
                    continue  # the same person with less: the query is theirs
                if route[1] == "/mcp" and name not in ("another tenant", "not allowed", "nobody"):
                    continue  # the same services behind it, and slow
                reply = await ask(run, route, case, target, headers)
                if case.named:
                    absent = await ask(run, route, case, NOTHING, headers)
                    assert whole(reply)[0] == 404 and whole(reply) == whole(absent), (name, route, reply.text)
                for secret in SECRETS:
                    assert secret not in reply.text, (name, route, secret)


@pytest.mark.requirement("B1")
async def test_a_cursor_of_somebody_else_tells_nothing(walled: Walled) -> None:
    for name in ("b", "c"):
        walled.document(ref(name), f"recipe {name}", rule=anyone("user:ann", "user:bob"))
    async with walled.running() as run:
        body = {"query": "recipe", "k": 1}
        cursor = (await run.post(body)).json()["next_cursor"]
        assert cursor and (await run.post({**body, "cursor": cursor})).status_code == 200
        seen = set()
        for sub, claims in (("bob", {}), ("ann", {"tenant": "other"}), ("who", {}), ("ops", {"roles": ROLES})):
            reply = await run.post({**body, "cursor": cursor}, sub, **claims)
            assert reply.status_code == 422
            assert [e.field for e in Problem.model_validate_json(reply.content).errors] == ["cursor"]
            seen.add(reply.content)
        assert len(seen) == 1


@pytest.mark.requirement("F25", "B1")
async def test_without_the_role_a_route_is_not_there(walled: Walled) -> None:
    async with walled.running() as run:
        app = run.client._transport.app
        for headers in (run.headers(), run.headers(roles=[]), run.headers(roles=["operators", "Operator"])):
            absent = await run.client.get("/v1/not/there", headers=headers)
            assert absent.status_code == 404
            assert (await run.client.get("/v1/operator/search", headers=headers)).status_code == 404
            for route, case in present(run, app).items():
                if not case.role:
                    continue
                for more in ({}, {"params": {"limit": "x", "thorough": "x"}}, {"content": b"{", "json": None}):
                    reply = await ask(run, route, case, walled.target(), headers, **more)
                    assert whole(_but_allowance(reply)) == whole(_but_allowance(absent)), route


def _but_allowance(reply: httpx.Response) -> httpx.Response:
    for name in [n for n in reply.headers if n.startswith("ratelimit-")]:
        del reply.headers[name]
    return reply


# ---------------------------------------------------------------- nothing of a credential is kept


@pytest.mark.requirement("B1", "C5")
async def test_no_token_and_no_key_is_logged_counted_or_repeated(walled: Walled, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    bad, others = bad_tokens(walled), strangers(walled)
    entry, key = made()
    assert walled.settings.auth.keys_file is not None
    sent = [*bad.values(), *(h for _, h in others.values()), {"X-API-Key": key}, {"Authorization": f"Bearer {key}"}]
    written(walled.settings.auth.keys_file, entry)
    said = ""
    async with walled.running() as run:
        app = run.client._transport.app
        sent.append(run.headers())
        cases = present(run, app)
        for headers in sent:
            for route in (("POST", "/v1/search"), ("GET", "/v1/documents/{document_uid}")):
                said += (await ask(run, route, cases[route], walled.target(), headers)).text
        for route, case in cases.items():
            for headers in (run.headers(roles=ROLES), bad["other secret"]):
                said += (await ask(run, route, case, walled.target(), headers)).text
        said += (await run.client.get("/metrics")).text + (await run.client.get("/openapi.json")).text
    said += "".join(repr(vars(record)) for record in caplog.records)
    said += "".join(repr(record) for line in walled.log.records.values() for record in line)
    for headers in sent:
        for value in headers.values():
            for part in (value.removeprefix("Bearer "), value.rpartition(".")[2], value.rpartition("_")[2]):
                assert len(part) < 20 or part not in said


# ---------------------------------------------------------------- headers, browsers, bodies


async def test_security_headers_are_everywhere(walled: Walled, monkeypatch: pytest.MonkeyPatch) -> None:
    async with walled.running() as run:

        async def broken(*args: Any, **more: Any) -> None:
            raise RuntimeError("walrus")

        monkeypatch.setattr(run.parts.service, "document", broken)
        replies = [
            await run.client.get("/v1/not/there"), await run.get("/v1/not/there"), await run.get("/v1/search"),
            await run.post({}), await run.post({"query": "x" * 70_000}), await run.get("/v1/freshness"),
            await run.get(f"/v1/documents/{ABSENT}"), await run.client.get("/healthz"), await run.client.get("/"),
            await run.client.get("/openapi.json"), await run.client.get("/static/none"),
            await run.client.get("/metrics"),
        ]  # fmt: skip
        assert [r.status_code for r in replies] == [401, 404, 405, 422, 413, 200, 500, 200, 200, 200, 404, 200]
        for reply in replies:
            assert reply.headers["x-content-type-options"] == "nosniff", reply.url
            assert "default-src 'self'" in reply.headers["content-security-policy"]
            assert reply.headers["x-frame-options"] == "DENY" and reply.headers["referrer-policy"] == "no-referrer"
            assert "strict-transport-security" not in reply.headers and "server" not in reply.headers
            assert "walrus" not in reply.text
            if reply.url.path != "/":
                assert reply.headers["cache-control"] == "no-store", reply.url
        secure = await run.client.get("https://query.test/healthz")
        assert "max-age" in secure.headers["strict-transport-security"]


@pytest.mark.requirement("B1")
async def test_browsers_of_other_origins_are_closed_out_unless_named(walled: Walled) -> None:
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type"
    async with walled.running() as run:
        for reply in (
            await run.client.options("/v1/search", headers=asked),
            await run.client.get("/v1/freshness", headers={**run.headers(), "Origin": "https://app.example"}),
        ):
            assert not any(name.startswith("access-control") for name in reply.headers)
    walled.settings.auth.cors_origins = ("https://app.example",)
    async with walled.running() as run:
        reply = await run.client.options("/v1/search", headers=asked)
        assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == "https://app.example"
        assert "access-control-allow-credentials" not in reply.headers
        for origin in ("https://app.example.evil", "http://app.example", "null"):
            other = await run.client.options("/v1/search", headers={**asked, "Origin": origin})
            assert other.status_code == 400 and "access-control-allow-origin" not in other.headers
        refused = await run.client.get("/v1/freshness", headers={"Origin": "https://app.example"})
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == "https://app.example"


BOMBS = (
    b"[" * 60_000, b'{"a":' * 12_000, b'{"query": "x", "k": ' + b"9" * 60_000 + b"}", b'{"query": "x", "k": 1e999}',
    b'{"query": "x", "\\ud800": 1}', b'{"query": "x", "' + b"k" * 60_000 + b'": 1}',
    b'{"query": "x", "k": NaN}', b'{"query": "x", "k": Infinity}', b'{"query": ' + b"[" * 30_000 + b"]" * 30_000,
    b"\x00" * 100, b"\xff" * 100, b"", b"null", b'{"query": "x"}' * 2, b'{"query": "' + b"\\u0000" * 5000 + b'"}',
    json.dumps({"query": "x", "filters": {"sources": ["s"] * 101}}).encode(),
    json.dumps({"query": "x", "k": 100, "filters": {"kinds": ["k" * 257]}}).encode(),
    json.dumps({"query": "x", **{f"f{n}": n for n in range(4000)}}).encode(),
)  # fmt: skip


async def test_bodies_made_to_break_a_parser_are_refused(walled: Walled) -> None:
    async with walled.running() as run:
        for path, claims in (("/v1/search", {}), ("/v1/feedback", {}), ("/v1/operator/search", {"roles": ROLES})):
            headers = {**run.headers(**claims), "Content-Type": "application/json"}
            for number, body in enumerate(BOMBS):
                begun = time.perf_counter()
                reply = await run.client.post(path, content=body, headers=headers)
                assert reply.status_code in (400, 422), (path, number, reply.text)
                assert reply.headers["content-type"] == "application/problem+json"
                assert len(reply.content) < 20_000 and time.perf_counter() - begun < 2, (path, number)


async def test_a_key_set_that_is_not_there_yet_is_503_for_tokens_and_401_for_none(walled: Walled) -> None:
    walled.settings.auth = AuthSettings(jwks_file=Path("/nonexistent/keys.json"))
    async with walled.running() as run:
        key = rsa.generate_private_key(65537, 2048)
        token = jwt.encode({"sub": "ann"}, key, algorithm="RS256", headers={"kid": "a"})
        reply = await run.client.get("/v1/freshness", headers={"Authorization": f"Bearer {token}"})
        assert reply.status_code == 503 and reply.headers["retry-after"]
        assert (await run.client.get("/v1/freshness")).status_code == 401
        assert (await run.client.get("/v1/freshness", headers=run.headers())).status_code == 401  # HS256, no key id
