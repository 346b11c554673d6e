"""Webhooks at the gateway: who is believed, how often an owner is asked, and that nobody else learns anything."""

from __future__ import annotations

import hashlib
import hmac
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from consumers.erasing import Erasing
from consumers.gateway_hooks import INTERVAL_S
from pipeline.errors import BusUnavailable
from schemas.access import ERASING, EVERYONE
from schemas.documents import PrincipalPart, PrincipalRecord
from schemas.keys import DocumentRef
from tests.fakes.store import FakeStore
from tests.unit.gateway.conftest import HOOK, Door

PUSH = b'{"ref": "refs/heads/main"}'


def mac(raw: bytes, secret: str = HOOK) -> str:
    return hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()


def knock(door: Door, path: str = "acme/code", raw: bytes = PUSH, /, **headers: Any) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return door.client.post(f"/v1/hooks/{path}", content=raw, headers=sent)


def github(door: Door, delivery: str, raw: bytes = PUSH, path: str = "acme/code") -> Any:
    return knock(door, path, raw, X_Hub_Signature_256=f"sha256={mac(raw)}", X_GitHub_Delivery=delivery)


WAYS: list[dict[str, Any]] = [
    {"X_Hub_Signature_256": f"sha256={mac(PUSH)}", "X_Hub_Signature": "sha1=0"},
    {"X_Hub_Signature": f"sha256={mac(PUSH)}"},
    {"X_Gitea_Signature": mac(PUSH)},
    {"X_Gitlab_Token": HOOK},
    {"Authorization": f"Bearer {HOOK}"},
]


@pytest.mark.requirement("A1", "I1")
@pytest.mark.parametrize("headers", WAYS, ids=lambda h: next(iter(h)))
def test_a_signed_notification_asks_the_owner_to_look(door: Door, headers: dict[str, Any]) -> None:
    answer = knock(door, **headers)
    assert answer.status_code == 202 and answer.content == b""
    (request,) = door.requests()
    assert (request.type, request.tenant, request.source, request.document) == ("notify", "acme", "code", None)
    assert door.log.records == [], "only the owner appends"


@pytest.mark.requirement("A1", "A8")
def test_our_own_signature_has_a_time(door: Door) -> None:
    def own(age_s: int) -> Any:
        sent = str(door.clock.now() // 1_000_000 - age_s)
        return knock(door, X_Headwater_Signature=door.sign(PUSH, HOOK), X_Headwater_Timestamp=sent)

    assert own(299).status_code == 202 and own(301).status_code == 404
    assert len(door.requests()) == 1


@pytest.mark.requirement("A8")
def test_whoever_does_not_hold_the_secret_learns_nothing(door: Door) -> None:
    forged: list[tuple[str, dict[str, Any]]] = [
        ("acme/code", {"X_Hub_Signature_256": f"sha256={mac(PUSH, 'another secret of theirs')}"}),
        ("acme/code", {"X_Hub_Signature_256": f"sha256={mac(b'another body')}"}),
        ("acme/code", {"X_Hub_Signature_256": mac(PUSH)}),
        ("acme/code", {"X_Hub_Signature_256": "sha256=x", "X_Gitlab_Token": HOOK}),
        ("acme/code", {"X_Hub_Signature": "sha1=" + hmac.new(HOOK.encode(), PUSH, hashlib.sha1).hexdigest()}),
        ("acme/code", {"X_Gitea_Signature": ""}),
        ("acme/code", {"X_Gitlab_Token": "é".encode()}),
        ("acme/code", {"X_Headwater_Signature": door.sign(PUSH, HOOK)}),
        ("acme/code", {}),
        ("acme/quiet", {"X_Gitlab_Token": HOOK}),
        ("acme/wiki", {"X_Gitlab_Token": HOOK}),
        ("acme/none", {"X_Gitlab_Token": HOOK}),
        ("globex/code", {"X_Gitlab_Token": HOOK}),
    ]
    answers = [knock(door, path, **headers) for path, headers in forged]
    assert {(a.status_code, a.content) for a in answers} == {(404, answers[0].content)}
    kept = {"content-type", "content-length"}
    assert {tuple(sorted((n, v) for n, v in a.headers.items())) for a in answers} == {
        tuple(sorted((n, answers[0].headers[n]) for n in kept))
    }
    assert door.requests() == []


@pytest.mark.requirement("A6", "F24")
def test_a_delivery_that_comes_again_asks_once(door: Door) -> None:
    assert [github(door, "d1").status_code for _ in range(3)] == [202] * 3
    assert len(door.requests()) == 1
    assert github(door, "d2").status_code == 202
    assert len(door.requests()) == 2
    assert github(door, "d1", path="acme/files").status_code == 202, "an id is a source's own"
    door.clock.advance(3601)
    assert github(door, "d1").status_code == 202
    assert len(door.requests()) == 4


@pytest.mark.requirement("I8")
def test_what_the_log_did_not_take_is_503_and_may_come_again(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(records: Any) -> Any:
        raise BusUnavailable("told to fail")

    with monkeypatch.context() as patched:
        patched.setattr(door.gateway._deps.publisher, "publish", fail)
        answer = github(door, "d1")
        assert answer.status_code == 503 and answer.headers["retry-after"]
    assert github(door, "d1").status_code == 202 and len(door.requests()) == 1


@pytest.mark.requirement("I13")
def test_many_become_few_and_the_last_is_not_lost(door: Door) -> None:
    """Each is answered only by a request that was written after it came."""
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: (n, github(door, f"d{n}").status_code, len(door.requests())), range(60)))
    took = time.monotonic() - began
    assert all(status == 202 for _, status, _ in answers)
    assert 2 <= len(door.requests()) <= took / INTERVAL_S + 2
    before = len(door.requests())
    github(door, "last")
    assert len(door.requests()) == before + 1, "it came after those, so it asks again"


@pytest.mark.requirement("A1")
def test_a_body_is_a_hint_of_the_document_at_most(door: Door) -> None:
    mine, other = (DocumentRef(tenant="acme", source="files", kind="page", id=n) for n in ("a", "b"))
    foreign = DocumentRef(tenant="globex", source="files", kind="page", id="a")
    door.refs = [mine, foreign]
    assert github(door, "1", path="acme/files").status_code == 202
    door.refs = [mine, other]
    assert github(door, "2", path="acme/files").status_code == 202
    door.refs = [foreign]
    assert github(door, "3", path="acme/files").status_code == 202
    assert github(door, "4", b"bad", "acme/files").status_code == 202
    assert [r.document for r in door.requests()] == [mine, None, None, None]


def test_too_much_is_413_before_anything_is_looked_up(door: Door) -> None:
    for path in ("acme/code", "acme/none"):
        assert knock(door, path, b"x" * 20_001).status_code == 413


@pytest.mark.requirement("E1")
def test_a_tenant_that_is_being_erased_is_not_asked_for(door: Door) -> None:
    store = FakeStore()
    store.ensure_base()
    part = PrincipalPart(parents=(ERASING,), version=1)
    store.write_principals("acme", [PrincipalRecord.of("acme", EVERYONE, {"headwater": part})])
    door.gateway._deps.erasing = Erasing(store, door.clock.elapsed)
    assert github(door, "d1").status_code == 403 and door.requests() == []
    assert knock(door, X_Gitlab_Token="guessed").status_code == 404
