"""The change gateway: who may send, what is refused and how it is said, what is written, what is awaited."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers import gateway_service
from consumers.erasing import Erasing
from consumers.gateway import create_app
from consumers.gateway_errors import Refused
from consumers.gateway_service import Gateway, GatewayDeps
from consumers.gateway_wait import ReceiptWatch
from consumers.gateway_writer import plan
from pipeline.clock import ManualClock
from pipeline.errors import ConfigError, Reject
from pipeline.observe import Metrics
from pipeline.settings import Settings
from schemas.access import ERASING, EVERYONE
from schemas.api_changes import CHANGES, EXAMPLES, ChangesReply
from schemas.documents import PrincipalPart, PrincipalRecord
from schemas.events import AccessSet, AccessTombstone, ContentUpserted
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.tokens import FreshnessToken
from schemas.topics import Topic
from tests.fakes.bus import MemoryBroker, MemoryPublisher
from tests.fakes.store import FakeStore
from tests.unit.gateway.conftest import Door, upsert

PROBLEM = "application/problem+json"


def fields(response: Any) -> list[str]:
    assert response.headers["content-type"] == PROBLEM
    return [e["field"] for e in response.json()["errors"]]


@pytest.mark.requirement("A1")
def test_an_upsert_is_on_the_log_when_it_is_answered(door: Door) -> None:
    answer = door.ok(upsert())
    rule, content = door.log.access()[0], door.log.content()[0]
    assert isinstance(rule, AccessSet) and isinstance(content, ContentUpserted)
    assert content.document == DocumentRef(tenant="acme", source="gateway", id="a") and content.body.text == "hello"  # type: ignore[union-attr]
    (result,) = answer["results"]
    assert (result["content_version"], result["access_version"]) == (content.version, rule.version)
    assert result["document_uid"] == content.document.uid and result["changed"] is True
    token = FreshnessToken.decode(answer["token"])
    assert [(d.id, d.content, d.access) for d in token.documents] == [("a", content.version, rule.version)]


@pytest.mark.requirement("A6")
def test_the_same_again_appends_nothing_and_tells_the_versions(door: Door) -> None:
    first = door.ok(upsert())
    events = door.log.events()
    second = door.ok(upsert())
    assert door.log.events() == events and second["token"] == first["token"]
    assert second["results"][0]["changed"] is False


@pytest.mark.requirement("A1", "A8")
def test_every_kind_of_change(door: Door) -> None:
    door.ok(upsert())
    door.ok({"type": "access", "tenant": "acme", "id": "a", "access": {"allow": ["user:bob"], "deny": ["user:eve"]}})
    rule = door.log.access()[-1]
    assert isinstance(rule, AccessSet) and rule.rule.deny == ("user:eve",)
    door.ok({"type": "membership", "tenant": "acme", "principal": "user:ann", "parents": ["group:gateway/x"]})
    assert door.log.parents() == {"user:ann": ("group:gateway/x",)}
    door.ok({"type": "membership", "tenant": "acme", "principal": "user:ann", "removed": True})
    assert door.log.parents() == {}
    door.ok({"type": "delete", "tenant": "acme", "id": "a", "reason": "gone"})
    tombstone = door.log.access()[-1]
    assert isinstance(tombstone, AccessTombstone) and tombstone.reason == "gone"


@pytest.mark.requirement("I3")
def test_clauses_grants_with_an_end_and_redaction(door: Door) -> None:
    access = {"all_of": [["user:ann", {"principal": "user:bob", "until": 5}], ["everyone"]]}
    door.ok(upsert(access=access))
    rule = door.log.access()[-1]
    assert isinstance(rule, AccessSet) and len(rule.rule.clauses) == 2
    assert rule.rule.clauses[0].any_of[1].until == 5
    answer = door.ok(upsert(text="clean", access=access, redacted=True))
    last = door.log.access()[-1]
    assert isinstance(last, AccessSet) and last.not_before == answer["results"][0]["content_version"]


@pytest.mark.requirement("I12")
def test_a_document_without_readers_is_for_nobody(door: Door) -> None:
    change = upsert()
    del change["access"]
    door.ok(change)
    rule = door.log.access()[-1]
    assert isinstance(rule, AccessSet) and rule.rule.clauses[0].names() == ["nobody"] and rule.rule.reason


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ({"signature": None}, "Send"),
        ({"timestamp": None}, "Send"),
        ({"signature": "sha256=00"}, "does not fit"),
        ({"signature": "déjà".encode()}, "does not fit"),
        ({"timestamp": "soon"}, "seconds"),
        ({"timestamp": "nan"}, "300 s"),
        ({"timestamp": "1000"}, "300 s"),
        ({"timestamp": "inf"}, "300 s"),
    ],
)
def test_who_did_not_sign_is_refused(door: Door, headers: dict[str, Any], word: str) -> None:
    response = door.send(upsert(), **headers)
    assert response.status_code == 401 and word in response.json()["detail"]
    assert door.log.records == [] and "hello" not in response.text


def test_timestamps_are_good_for_five_minutes_either_way(door: Door) -> None:
    now = door.clock.now() // 1_000_000 + 1
    assert door.send(upsert(), timestamp=str(now - 300)).status_code == 200
    now = door.clock.now() // 1_000_000 + 1
    assert door.send(upsert(), timestamp=str(now + 300)).status_code == 200
    now = door.clock.now() // 1_000_000 + 1
    assert door.send(upsert(), timestamp=str(now - 301)).status_code == 401


def test_a_changed_body_does_not_fit_its_signature(door: Door) -> None:
    raw = json.dumps(upsert()).encode()
    response = door.send(raw + b" ", signature=door.sign(raw))
    assert response.status_code == 401


@pytest.mark.requirement("F22")
def test_too_much_is_413_whether_it_says_so_or_not(door: Door) -> None:
    large = json.dumps([upsert(f"d{n}", "x" * 900) for n in range(30)]).encode()
    assert door.send(large).status_code == 413

    def parts() -> Any:
        yield large

    headers = {"X-Headwater-Signature": door.sign(large), "X-Headwater-Timestamp": "1"}
    response = door.client.post("/v1/changes", content=parts(), headers=headers)
    assert response.status_code == 413 and response.headers["content-type"] == PROBLEM


@pytest.mark.requirement("F22")
def test_readers_that_no_record_holds_are_refused_before_anything_is_written(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_service, "MAX_READERS_BYTES", 5000)
    many = [f"group:kb/{'x' * 900}{n}" for n in range(6)]
    response = door.send([upsert(), {"type": "membership", "tenant": "acme", "principal": "user:ann", "parents": many}])
    assert response.status_code == 422 and fields(response) == ["changes[1].parents"]
    for access in ({"allow": many}, {"all_of": [many[:3], many[3:]]}):
        for change in (upsert(access=access), {"type": "access", "tenant": "acme", "id": "a", "access": access}):
            response = door.send(change)
            assert response.status_code == 422 and fields(response) == ["access"]
    assert not door.log.events()


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"delete","tenant":"acme","id":"a","id":"b"}',
        b'[{"type":"access","tenant":"acme","id":"a","access":{"allow":["user:ann"],"allow":["everyone"]}}]',
    ],
)
def test_a_field_that_is_there_twice_is_refused(door: Door, body: bytes) -> None:
    response = door.send(body)
    assert response.status_code == 400 and "twice" in response.json()["detail"]
    assert not door.log.events()


@pytest.mark.requirement("A11")
def test_long_ids_give_a_token_that_a_search_takes(door: Door) -> None:
    answer = door.ok([upsert(f"{n}" + "x" * 1800) for n in range(9)])
    token = FreshnessToken.decode(answer["token"])
    assert not token.documents and {p.topic for p in token.positions} == {Topic.ACCESS, Topic.CONTENT}


def test_a_request_that_the_log_does_not_take_fails_alone(door: Door) -> None:
    taken = door.log.write

    def refuse(outgoing: Any, now: int) -> Any:
        if any("bad" in out.key for out in outgoing):
            raise Reject("too large", stage="append", kind="too_large")
        return taken(outgoing, now)

    door.log.write = refuse  # type: ignore[method-assign]
    door.gate.clear()  # all three wait for the log and go together
    writer = door.gateway.writer("acme", "gateway")
    jobs = [[plan(CHANGES.validate_python([upsert(id_)])[0], "gateway")] for id_ in ("first", "good", "bad", "better")]
    futures = [writer.submit(job) for job in jobs]
    door.gate.set()
    assert [f.exception(10) is None for f in futures] == [True, True, False, True]
    response = door.send(upsert("bad"))
    assert response.status_code == 413 and "bad" not in response.text


@pytest.mark.requirement("I12")
def test_one_body_too_large_refuses_the_request_whole(door: Door) -> None:
    response = door.send([upsert("a"), upsert("b", "x" * 5_001)])
    assert response.status_code == 422 and fields(response) == ["changes[1].text"]
    assert door.log.records == []


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "upsert", "tenant": "acme", "title": "T", "text": "x"}, "id"),
        (upsert(title=""), "title"),
        (upsert(tenant="a b"), "tenant"),
        (upsert(id_="a\u0000b"), "id"),
        (upsert(base64="eA=="), "change"),
        ({**upsert(), "text": None, "base64": "%%%"}, "change"),
        (upsert(effective_from=5, effective_until=5), "change"),
        (upsert(access={"allow": ["ann"]}), "access.allow[0].principal"),
        (upsert(access={"allow": ["USER:ann"]}), "access.allow[0].principal"),
        (upsert(access={"allow": []}), "access.allow"),
        (upsert(access={}), "access"),
        (upsert(access={"allow": ["user:a"], "denied": ["user:b"]}), "access.denied"),
        (upsert(acess={"allow": ["everyone"]}), "acess"),
        (upsert(source="wiki"), "source"),
        ({"type": "membership", "tenant": "acme", "principal": "nobody"}, "change"),
        ({"type": "membership", "tenant": "acme", "principal": "user:a", "parents": ["x"]}, "parents[0]"),
        ({"type": "rename", "tenant": "acme", "id": "a"}, "type"),
        ({"tenant": "acme", "id": "a"}, "type"),
        (7, "change"),
        ([], "changes"),
    ],
)
def test_what_cannot_be_accepted_names_its_field_and_writes_nothing(door: Door, change: Any, field: str) -> None:
    response = door.send(change)
    assert response.status_code == 422 and fields(response) == [field]
    several = [upsert("good"), change] if isinstance(change, dict) else change
    again = door.send(several)
    assert again.status_code == 422
    if isinstance(change, dict):
        assert fields(again) == [f"changes[1].{field}" if field != "change" else "changes[1]"]
    assert door.log.records == []


def test_errors_repeat_nothing_of_what_was_sent(door: Door) -> None:
    marked = "zebra-secret"
    bad = upsert(marked, title="", access={"allow": [marked]}, language=marked * 9, extra=marked)
    texts = [door.send(bad).text.replace('"extra"', ""), door.send({**bad, "type": marked}).text]
    texts += [door.send(marked.encode()).text, door.send(upsert(), f"?wait={marked}").text]
    assert all(marked not in text for text in texts)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"a": NaN}'])
def test_what_is_no_json_is_400(door: Door, raw: bytes) -> None:
    response = door.send(raw)
    assert response.status_code in (400, 422) and response.headers["content-type"] == PROBLEM
    assert door.log.records == []


def test_one_request_speaks_of_one_tenant(door: Door) -> None:
    response = door.send([upsert("a"), upsert("b", tenant="other")])
    assert response.status_code == 422 and fields(response) == ["changes[1].tenant"]


@pytest.mark.requirement("I9")
def test_a_large_request_is_cut_into_transactions_and_its_token_names_positions(door: Door) -> None:
    changes = [upsert(f"d{n}", "x") for n in range(120)]
    answer = door.ok(changes)
    assert [r["document_id"] for r in answer["results"]] == [f"d{n}" for n in range(120)]
    assert max(len(t) for t in door.log.transactions) <= 200 and len(door.log.transactions) == 2
    token = FreshnessToken.decode(answer["token"])
    assert token.documents == () and {p.topic for p in token.positions} == {Topic.ACCESS, Topic.CONTENT}
    for position in token.positions:
        last = max(r.offset for r in door.log.topic(position.topic) if r.partition == position.partition)
        assert position.offset == last


@pytest.mark.requirement("A8", "I9")
def test_order_within_a_request_is_kept_for_each_document(door: Door) -> None:
    door.ok([upsert("a", "one"), upsert("a", "two"), {"type": "delete", "tenant": "acme", "id": "a"}, upsert("b")])
    versions = [e.version for e in door.log.access() if e.document.id == "a"]  # type: ignore[attr-defined]
    assert versions == sorted(versions)
    assert isinstance([e for e in door.log.access() if e.document.id == "a"][-1], AccessTombstone)  # type: ignore[attr-defined]


@pytest.mark.requirement("I1", "A1")
def test_sources_are_owned_apart_and_a_restart_knows_the_versions(door: Door) -> None:
    door.ok([upsert("a"), upsert("a", source="kb")])
    assert sorted(door.opened) == [("acme", "gateway"), ("acme", "kb")]
    assert len({e.document.uid for e in door.log.content()}) == 2  # type: ignore[attr-defined]


@pytest.mark.requirement("I9", "A6")
def test_a_failed_append_is_503_and_the_same_request_again_succeeds(door: Door) -> None:
    door.ok(upsert("a"))
    door.log.lose_next = True  # on the log, but nobody was told
    response = door.send(upsert("a", "two"))
    assert response.status_code == 503 and response.headers["retry-after"]
    events = door.log.events()
    answer = door.ok(upsert("a", "two"))
    assert door.log.events() == events and answer["results"][0]["changed"] is False
    door.log.fail_next = 1
    assert door.send(upsert("a", "three")).status_code == 503
    assert door.ok(upsert("a", "three"))["results"][0]["changed"] is True


@pytest.mark.requirement("I1")
def test_a_source_that_was_taken_over_answers_409_once_and_takes_it_back(door: Door) -> None:
    door.ok(upsert("a"))
    door.log.epoch += 1
    assert door.send(upsert("b")).status_code == 409
    assert door.ok(upsert("b"))["results"][0]["changed"] is True


@pytest.mark.requirement("I9")
def test_requests_that_wait_together_share_transactions(door: Door) -> None:
    door.gate.clear()  # the first of them opens the log, which takes a while
    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(door.gateway.writer("acme", "gateway").submit, []) for _ in range(1)]
        futures = [pool.submit(door.send, upsert(f"d{n}")) for n in range(12)]
        while door.gateway.writer("acme", "gateway").waiting() < 12:
            threading.Event().wait(0.01)
        door.gate.set()
        assert all(f.result().status_code == 200 for f in futures) and answers
    assert len(door.log.transactions) == 1 and len(door.log.content()) == 12


@pytest.mark.requirement("I13")
def test_bulk_waits_for_the_index_and_live_does_not(door: Door) -> None:
    door.ok([upsert(f"d{n}", priority="bulk") for n in range(50)])
    door.log._offsets.update({("content", p): 9_000 for p in range(3)})
    door.ok(upsert("far", priority="live"))
    response = door.send(upsert("more", priority="bulk"))
    assert response.status_code == 429 and response.headers["retry-after"] == "1"
    door.ok(upsert("live"))
    door.applied = dict.fromkeys(range(3), 10_000)
    assert door.ok(upsert("more", priority="bulk"))["results"][0]["changed"] is True


def receipt(door: Door, lane: str, version: int, outcome: str = "applied", **more: Any) -> None:
    document = DocumentRef(tenant="acme", source="gateway", id="a")
    named = {"document": document, "document_uid": document.uid} if lane != "membership" else {}
    base = {"lane": lane, "tenant": "acme", "source": "gateway", "event_type": "x", "version": version}
    door.watch.note(Receipt.model_validate({**base, "outcome": outcome, **named, **more}))


@pytest.mark.requirement("A8")
def test_wait_applied_answers_when_the_receipts_are_there(door: Door) -> None:
    response = door.send(upsert(), "?wait=applied&wait_ms=50")
    assert response.status_code == 504
    token = response.json()["token"]
    versions = FreshnessToken.decode(token).documents[0]
    receipt(door, "access", versions.access - 1)
    assert door.send(upsert(), "?wait=applied&wait_ms=50").status_code == 504  # an older one says nothing
    threading.Timer(0.1, lambda: receipt(door, "access", versions.access)).start()
    answer = door.ok(upsert(), "?wait=applied&wait_ms=5000")
    assert answer["applied"] and not answer["searchable"] and answer["token"] == token


@pytest.mark.requirement("A8")
def test_wait_applied_covers_memberships_of_this_source(door: Door) -> None:
    change = {"type": "membership", "tenant": "acme", "principal": "user:ann", "parents": ["group:gateway/x"]}
    assert door.send(change, "?wait=applied&wait_ms=50").status_code == 504
    version = door.log.membership()[0].version
    receipt(door, "membership", version + 5, principal="user:ann", source="other")
    assert door.send(change, "?wait=applied&wait_ms=50").status_code == 504
    receipt(door, "membership", version, principal="user:ann", source="gateway")
    assert door.ok(change, "?wait=applied&wait_ms=1000")["applied"]


@pytest.mark.requirement("A11")
def test_wait_searchable_needs_the_active_generation_and_tells_what_became_of_it(door: Door) -> None:
    assert door.send(upsert(), "?wait=searchable&wait_ms=50").status_code == 504
    versions = FreshnessToken.decode(door.ok(upsert())["token"]).documents[0]
    receipt(door, "access", versions.access)
    receipt(door, "index", versions.content, "indexed", generation="another")
    assert door.send(upsert(), "?wait=searchable&wait_ms=50").status_code == 504
    receipt(door, "index", versions.content + 9, "moved", generation="minilm")
    assert door.send(upsert(), "?wait=searchable&wait_ms=50").status_code == 504
    receipt(door, "index", versions.content, "dead_letter", generation="minilm", reason="a reason")
    answer = door.ok(upsert(), "?wait=searchable&wait_ms=1000")
    assert answer["indexed"] and not answer["searchable"] and answer["results"][0]["outcome"] == "dead_letter"
    assert answer["results"][0]["reason"] == "a reason"


def searchable(door: Door, change: dict[str, Any]) -> dict[str, Any]:
    """The answer to ``wait=searchable`` once both lanes are done with the document "a"."""
    versions = FreshnessToken.decode(door.ok(change)["token"]).documents[0]
    receipt(door, "access", versions.access)
    receipt(door, "index", versions.content, "indexed", generation="minilm")
    return door.ok(change, "?wait=searchable&wait_ms=1000")


@pytest.mark.requirement("A11", "I12")
@pytest.mark.parametrize(
    ("access", "why"),
    [
        (None, "no access rule was given"),
        ({"allow": ["nobody"]}, "lets nobody in"),
        ({"all_of": [["everyone"], ["nobody"]]}, "lets nobody in"),
        ({"allow": ["user:ann"], "deny": ["user:ann"]}, "lets nobody in"),
        ({"allow": ["user:ann"], "deny": ["everyone"]}, "denies everyone"),
        ({"allow": [{"principal": "user:ann", "until": 10**14}]}, "lets nobody in"),
        ({"allow": ["user:ann", "user:bob"]}, "no source knows user:ann, user:bob"),
    ],
)
def test_wait_searchable_says_that_nobody_may_read_it(door: Door, access: Any, why: str) -> None:
    door.check(FakeStore())
    answer = searchable(door, upsert(access=access))
    result = answer["results"][0]
    assert answer["applied"] and answer["indexed"] and not answer["searchable"]
    assert result["outcome"] == "indexed" and result["readable"] is False and why in result["reason"]


@pytest.mark.requirement("A11")
@pytest.mark.parametrize("allow", ["user:ann", "group:gateway/support", "everyone"])
def test_wait_searchable_is_true_where_somebody_may_read_it(door: Door, allow: str) -> None:
    store = FakeStore()
    door.check(store)
    store.write_principals("acme", [PrincipalRecord.of("acme", "user:ann", {"gateway": PrincipalPart(version=1)})])
    answer = searchable(door, upsert(access={"allow": [allow, "user:ghost"]}))
    assert answer["searchable"] and answer["results"][0]["readable"] is True and answer["results"][0]["reason"] is None


@pytest.mark.requirement("A11")
def test_a_store_that_is_away_leaves_open_whether_people_are_known(door: Door) -> None:
    store = FakeStore()
    door.check(store)
    store.fail_next("read_principals", 99)
    assert searchable(door, upsert())["results"][0]["readable"] is None
    assert searchable(door, upsert(access={"allow": ["nobody"]}))["results"][0]["readable"] is False


def test_a_deleted_document_has_no_readers_to_speak_of(door: Door) -> None:
    door.check(FakeStore())
    door.ok(upsert(access={"allow": ["nobody"]}))
    result = searchable(door, {"type": "delete", "tenant": "acme", "id": "a"})["results"][0]
    assert result["readable"] is None and result["reason"] is None


def test_a_large_body_goes_by_claim_check(door: Door) -> None:
    door.ok(upsert(text="x" * 2_000))
    content = door.log.content()[0]
    assert isinstance(content, ContentUpserted) and content.body.where == "store"
    door.bodies.down = True
    assert door.send(upsert("b", "x" * 2_000)).status_code == 503
    assert door.ok(upsert("c"))["results"][0]["changed"]


@pytest.mark.parametrize(("method", "path", "status"), [("get", "/v1/changes", 405), ("post", "/v1/none", 404)])
def test_other_ways_are_problems_too(door: Door, method: str, path: str, status: int) -> None:
    response = door.client.request(method, path)
    assert response.status_code == status and response.headers["content-type"] == PROBLEM


@pytest.mark.parametrize("query", ["?wait=never", "?wait_ms=0", "?wait_ms=x", "?wait_ms=600000"])
def test_wrong_parameters_are_named(door: Door, query: str) -> None:
    response = door.send(upsert(), query)
    assert response.status_code == 422 and fields(response) == [query[1:].partition("=")[0]]
    assert door.log.records == []


def test_health_metrics_and_openapi(door: Door) -> None:
    door.ok(upsert())
    assert door.client.get("/healthz").json() == {"state": "running", "sources": {"acme/gateway": "running"}}
    text = door.client.get("/metrics").text
    assert 'headwater_requests_total{route="/v1/changes",status="200"} 1.0' in text
    schema = door.client.get("/openapi.json").json()
    operation = schema["paths"]["/v1/changes"]["post"]
    assert set(operation["requestBody"]["content"]["application/json"]["examples"]) == set(EXAMPLES)
    references = [part.split('"')[0] for part in json.dumps(schema).split("#/components/schemas/")[1:]]
    assert references and set(references) <= set(schema["components"]["schemas"])
    assert "401" in operation["responses"] and "504" in operation["responses"]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_examples_are_accepted(door: Door, name: str) -> None:
    ChangesReply.model_validate(door.ok(EXAMPLES[name]))


def test_without_a_secret_there_is_no_gateway() -> None:
    deps = GatewayDeps(
        settings=Settings(),
        clock=ManualClock(),
        metrics=Metrics(),
        open_log=lambda tenant, source: pytest.fail("must not be opened"),
        bodies=None,
        receipts=ReceiptWatch(),
        publisher=MemoryPublisher(MemoryBroker()),
    )
    with pytest.raises(ConfigError, match=r"gateway\.secret"):
        create_app(deps)


def test_an_array_is_bounded() -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError, match="at most 1000"):
        CHANGES.validate_python([{"type": "delete", "tenant": "t", "id": str(n)} for n in range(1001)])


@pytest.mark.requirement("E1")
def test_a_tenant_that_is_being_erased_takes_no_changes(tmp_path: Path) -> None:
    store = FakeStore()
    store.ensure_base()
    part = PrincipalPart(parents=(ERASING,), version=1)
    store.write_principals("acme", [PrincipalRecord.of("acme", EVERYONE, {"headwater": part})])
    clock = ManualClock()
    erasing = Erasing(store, clock.elapsed)
    assert erasing.fresh("acme") is None and erasing("acme") and erasing.fresh("acme") and not erasing("globex")
    store.fail_next("read_principals", 9)
    clock.advance(3)
    assert erasing("acme"), "a store that is away opens nothing"
    door = Door(tmp_path)
    gateway = Gateway(replace(door.gateway._deps, erasing=erasing))
    with pytest.raises(Refused) as refused:
        asyncio.run(gateway.append("acme", []))
    assert refused.value.problem.status == 403 and door.opened == []
    asyncio.run(gateway.append("globex", []))
    gateway.close()
