"""CloudEvents at the gateway: the three modes, repeats, what is refused and how."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from consumers.gateway_events import BATCH, REMEMBERED_S, STRUCTURED
from consumers.gateway_seen import REMEMBERED, SeenKeys
from pipeline.errors import BusUnavailable
from schemas.cloudevents import EXAMPLE, MAX_EVENTS, TYPES, CloudEvent
from schemas.events import AccessSet, AccessTombstone, ContentUpserted
from tests.unit.gateway.conftest import Door

UPSERTED, DELETED, ACCESS, MEMBERSHIP = TYPES
_DATA: dict[str, Any] = {"tenant": "acme", "id": "a", "title": "T", "text": "hello", "access": {"allow": ["user:ann"]}}


def event(id_: str = "1", type_: str = UPSERTED, data: Any = None, **more: Any) -> dict[str, Any]:
    made = {
        "specversion": "1.0",
        "id": id_,
        "source": "/editor",
        "type": type_,
        "data": _DATA if data is None else data,
    }
    return {name: value for name, value in (made | more).items() if value is not None}


def one(door: Door, sent: dict[str, Any]) -> Any:
    return door.post("/v1/events", sent, STRUCTURED)


def many(door: Door, *sent: Any) -> Any:
    return door.post("/v1/events", list(sent), BATCH)


def text(id_: str, words: str, document: str = "a") -> dict[str, Any]:
    return event(id_, data=_DATA | {"id": document, "text": words})


def texts(door: Door, document: str = "a") -> list[str | None]:
    found = [e for e in door.log.content() if isinstance(e, ContentUpserted) and e.document.id == document]
    return [e.body.text for e in found]  # type: ignore[union-attr]


@pytest.mark.requirement("A1")
def test_an_event_of_each_type_is_its_change(door: Door) -> None:
    answer = one(door, event())
    assert answer.status_code == 200 and answer.json()["result"]["changed"] and answer.json()["token"]
    assert texts(door) == ["hello"]
    assert one(door, event("2", ACCESS, {"tenant": "acme", "id": "a", "access": {"allow": ["user:bob"]}})).is_success
    rule = door.log.access()[-1]
    assert isinstance(rule, AccessSet) and rule.rule.clauses[0].names() == ["user:bob"]
    member = {
        "tenant": "acme",
        "principal": "user:ann",
        "parents": ["group:gateway/x"],
        "until": {"group:gateway/x": 1_900_000_000_000_009},
    }
    assert one(door, event("3", MEMBERSHIP, member)).is_success
    assert door.log.membership()[-1].until == {"group:gateway/x": 1_900_000_000_000_009}
    assert one(door, event("4", DELETED, {"tenant": "acme", "id": "a"})).is_success
    assert isinstance(door.log.access()[-1], AccessTombstone)


@pytest.mark.requirement("A1")
def test_binary_mode_has_its_attributes_in_headers(door: Door) -> None:
    sent: dict[str, Any] = {
        "ce_specversion": "1.0",
        "ce_id": "%C3%A4%20%22",
        "ce_source": "/editor",
        "ce_type": UPSERTED,
    }
    answer = door.post("/v1/events", _DATA, "application/json; charset=utf-8", ce_time="not even a time", **sent)
    assert answer.status_code == 200 and answer.json()["id"] == 'ä "'
    assert texts(door) == ["hello"]
    again = one(door, event('ä "'))
    assert again.json() == answer.json() and texts(door) == ["hello"], "a mode is no part of an event's name"


@pytest.mark.requirement("A1")
def test_data_in_base64_and_a_subject_for_the_id(door: Door) -> None:
    data = {name: value for name, value in _DATA.items() if name != "id"}
    packed = base64.b64encode(json.dumps(data).encode()).decode()
    sent = event(data=None, data_base64=packed, subject="a/b", datacontenttype="application/json")
    del sent["data"]
    assert one(door, sent).json()["result"]["document_id"] == "a/b"
    assert one(door, event("2", data=data | {"id": "c"}, subject="a/b")).json()["result"]["document_id"] == "c"


@pytest.mark.requirement("A8")
def test_an_unsigned_subject_names_no_document(door: Door) -> None:
    sent = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/editor", "ce_type": DELETED, "ce_subject": "b"}
    answer = door.post("/v1/events", {"tenant": "acme"}, "application/json", **sent)
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "data.id"
    assert door.log.records == []


@pytest.mark.requirement("A6", "F24")
def test_a_repeat_is_answered_as_the_first_was_and_changes_nothing(door: Door) -> None:
    first = one(door, text("1", "old"))
    assert one(door, text("2", "new")).is_success
    again = one(door, text("1", "old"))
    assert again.json() == first.json() and again.json()["result"]["changed"]
    assert texts(door) == ["old", "new"]
    assert one(door, text("1", "old") | {"source": "/other"}).is_success
    assert texts(door) == ["old", "new", "old"], "ids are distinct within a source only"


@pytest.mark.requirement("A6", "A8", "F24")
def test_a_late_repeat_brings_nothing_back_after_a_restart(tmp_path: Path) -> None:
    first = Door(tmp_path)
    with TestClient(first.app) as first.client:
        one(first, text("1", "old"))
        one(first, event("r", ACCESS, {"tenant": "acme", "id": "a", "access": {"allow": ["user:bob"]}}))
        one(first, text("2", "new") | {"data": _DATA | {"text": "new", "access": {"allow": ["user:bob"]}}})
        events = first.log.events()
    second = Door(tmp_path)
    second.log = first.log
    with TestClient(second.app) as second.client:
        answer = one(second, text("1", "old"))
        assert answer.status_code == 200 and not answer.json()["result"]["changed"]
        assert second.log.events() == events, "neither the old text nor its readers"
        assert one(second, text("3", "newer")).json()["result"]["changed"]


@pytest.mark.requirement("A6")
def test_what_changed_nothing_is_remembered_too(tmp_path: Path) -> None:
    first = Door(tmp_path)
    with TestClient(first.app) as first.client:
        one(first, text("1", "same"))
        one(first, text("2", "same"))
    second = Door(tmp_path)
    second.log = first.log
    with TestClient(second.app) as second.client:
        one(second, text("3", "other"))
        one(second, text("2", "same"))
        assert texts(second) == ["same", "other"]


@pytest.mark.requirement("I9")
def test_no_event_counts_as_done_by_its_neighbours_transaction(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two events are appended together: a deletion goes first, and the log fails before the other."""
    write, count = door.log.write, 0

    def failing(*given: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            raise BusUnavailable("told to fail")
        return write(*given)

    monkeypatch.setattr(door.log, "write", failing)
    door.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        opening = pool.submit(one, door, text("0", "first"))
        assert door.at_gate.wait(5)  # the writer has taken it and opens the log
        pair = pool.submit(many, door, event("1", DELETED, {"tenant": "acme", "id": "a"}), text("2", "other", "b"))
        wait_for(lambda: door.gateway.writer("acme", "gateway").waiting() == 2)
        door.gate.set()
        assert opening.result().status_code == 200
        assert [r["status"] for r in pair.result().json()["results"]] == [503, 503]
    assert isinstance(door.log.access()[-1], AccessTombstone) and texts(door, "b") == []
    assert one(door, text("2", "other", "b")).json()["result"]["changed"] and texts(door, "b") == ["other"]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.requirement("A6")
def test_the_memory_of_events_is_bounded(door: Door) -> None:
    seen = SeenKeys()
    for number in range(REMEMBERED + 5):
        seen = seen.with_key(str(number))
    assert len(seen.keys) == REMEMBERED and "4" not in seen and "5" in seen
    assert SeenKeys.read(seen.position()) == seen and SeenKeys.read("") == SeenKeys.read("something") == SeenKeys()
    one(door, text("1", "old"))
    door.clock.advance(REMEMBERED_S + 1)
    one(door, text("2", "new"))
    one(door, text("1", "old"))
    assert texts(door) == ["old", "new"], "the source's own memory goes on"


@pytest.mark.requirement("I9")
def test_an_event_counts_as_done_with_its_last_transaction_only(door: Door) -> None:
    """Its tombstone is written, then the log fails: the repeat must write the rest."""
    one(door, text("1", "x" * 2000))
    sent = event("2", UPSERTED, _DATA | {"text": "y" * 2000, "access": {"allow": ["user:bob"]}})
    door.bodies.down = True  # the narrower rule goes first, its content fails
    assert one(door, sent).status_code == 503
    assert isinstance(door.log.access()[-1], AccessSet) and len(door.log.content()) == 1
    door.bodies.down = False
    assert one(door, sent).status_code == 200
    assert len(door.log.content()) == 2


@pytest.mark.requirement("A6", "I8")
def test_an_event_that_failed_may_come_again(door: Door) -> None:
    door.log.fail_next = 1
    failed = one(door, event())
    assert failed.status_code == 503 and failed.headers["retry-after"] and door.log.events() == 0
    assert one(door, event()).json()["result"]["changed"]
    door.log.lose_next = True  # on the log, and its writer does not know
    assert one(door, text("2", "new")).status_code == 503
    assert one(door, text("2", "new")).status_code == 200
    assert texts(door) == ["hello", "new"]


@pytest.mark.requirement("A6")
def test_repeats_at_the_same_time_are_one(door: Door) -> None:
    door.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(one, door, event()) for _ in range(4)]
        threading.Timer(0.3, door.gate.set).start()
        answers = [s.result().json() for s in sent]
    assert all(a == answers[0] for a in answers) and len(texts(door)) == 1


@pytest.mark.requirement("A6")
def test_an_id_with_other_content_is_refused_not_lost(door: Door) -> None:
    one(door, text("1", "old"))
    answer = one(door, text("1", "new"))
    assert answer.status_code == 409 and answer.json()["errors"][0]["field"] == "id"
    assert many(door, text("1", "new"), text("2", "new")).status_code == 409
    assert texts(door) == ["old", "new"]


@pytest.mark.requirement("A1", "A6")
def test_a_batch_is_answered_for_each_event_and_keeps_their_order(door: Door) -> None:
    sent = [text("1", "one"), text("2", "two"), text("1", "one"), text("3", "three"), text("4", "x", "b")]
    reply = many(door, *sent)
    assert reply.status_code == 200
    results = reply.json()["results"]
    assert [r["id"] for r in results] == ["1", "2", "1", "3", "4"] and results[0] == results[2]
    assert texts(door) == ["one", "two", "three"] and texts(door, "b") == ["x"]
    assert many(door).json() == {"results": []}


@pytest.mark.requirement("A1", "I8")
def test_one_bad_event_fails_alone_and_the_batch_is_not_acknowledged(door: Door) -> None:
    other = event("3", data=_DATA)
    reply = many(door, text("1", "good"), event("2", data=_DATA | {"titel": "x"}), other, 7, text("5", "x" * 6000))
    assert reply.status_code == 422
    results = reply.json()["results"]
    assert [r["status"] for r in results] == [200, 422, 200, 422, 422]
    assert results[1]["errors"][0]["field"] == "data.titel" and results[4]["errors"][0]["field"] == "data.text"
    assert texts(door) == ["good", "hello"]
    door.log.fail_next = 9
    reply = many(door, text("6", "more"), event("2", data=7))
    assert reply.status_code == 503 and reply.headers["retry-after"]
    assert [r["status"] for r in reply.json()["results"]] == [503, 422]


@pytest.mark.requirement("A1", "I12")
@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"specversion": "0.3"}, "specversion", "send 1.0"),
        ({"specversion": None}, "specversion", "required"),
        ({"id": ""}, "id", "at least 1"),
        ({"id": 7}, "id", "string"),
        ({"source": None}, "source", "required"),
        ({"type": "com.example.gone"}, "type", "com.example.gone is not known"),
        ({"type": "x\ny"}, "type", "this is not known"),
        ({"data": None}, "data", "an object"),
        ({"data": [1]}, "data", "an object"),
        ({"data": {**_DATA, "type": "delete"}}, "data.type", "remove it"),
        ({"data": {**_DATA, "source": "wiki"}}, "data.source", "owner of its own"),
        ({"data": {**_DATA, "access": {"allow": ["ann"]}}}, "data.access.allow[0].principal", "starts with"),
        ({"datacontenttype": "text/xml"}, "datacontenttype", "application/json"),
        ({"data": None, "data_base64": "?"}, "data_base64", "base64"),
        ({"data_base64": "e30="}, "change", "either"),
    ],
)
def test_what_cannot_be_accepted_names_its_field_and_writes_nothing(
    door: Door, change: dict[str, Any], field: str, says: str
) -> None:
    sent = {name: value for name, value in (event() | change).items() if value is not None}
    answer = one(door, sent)
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
    (error,) = answer.json()["errors"]
    assert error["field"] == field and says in error["problem"]
    assert door.log.records == []


@pytest.mark.parametrize(
    ("content_type", "raw", "status"),
    [
        ("application/json", b"{}", 415),
        ("", b"{}", 415),
        ("application/cloudevents+avro", b"{}", 415),
        (STRUCTURED, b"{", 400),
        (STRUCTURED, b'{"id": "1", "id": "2"}', 400),
        (STRUCTURED, b"\xff", 400),
        (STRUCTURED, b"[]", 422),
        (BATCH, b"{}", 400),
        (BATCH, b"[" + b",".join([b"{}"] * (MAX_EVENTS + 1)) + b"]", 413),
        (STRUCTURED, b" " * 20_001, 413),
    ],
)
def test_what_is_no_event(door: Door, content_type: str, raw: bytes, status: int) -> None:
    assert door.post("/v1/events", raw, content_type).status_code == status
    assert door.log.records == []


@pytest.mark.parametrize("content_type", ["text/xml", "application/octet-stream"])
def test_binary_data_is_json(door: Door, content_type: str) -> None:
    sent = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/editor", "ce_type": UPSERTED}
    assert door.post("/v1/events", _DATA, content_type, **sent).status_code == 422
    twice = [("ce-id", "2"), *((n.replace("_", "-"), v) for n, v in sent.items())]
    raw = json.dumps(_DATA).encode()
    signed = [("X-Headwater-Signature", door.sign(raw)), ("X-Headwater-Timestamp", str(door.clock.now() // 1_000_000))]
    response = door.client.post("/v1/events", content=raw, headers=[*signed, *twice, ("content-type", "text/json")])
    assert response.status_code == 400 and door.log.records == []


@pytest.mark.requirement("A8")
def test_who_did_not_sign_or_signed_long_ago_is_refused(door: Door) -> None:
    for headers in (
        {"X_Headwater_Signature": None},
        {"X_Headwater_Signature": door.sign(b"something else")},
        {"X_Headwater_Timestamp": str(door.clock.now() // 1_000_000 - 301)},
    ):
        assert door.post("/v1/events", event(), STRUCTURED, **headers).status_code == 401
    assert door.log.records == []
    assert one(door, event()).status_code == 200


def test_the_abuse_check_answers_who_asks(door: Door) -> None:
    asked = {"WebHook-Request-Origin": "editor.example", "WebHook-Request-Rate": "120"}
    answer = door.client.options("/v1/events", headers=asked)
    assert answer.status_code == 200 and "POST" in answer.headers["allow"]
    assert answer.headers["webhook-allowed-origin"] == "editor.example"
    assert answer.headers["webhook-allowed-rate"] == "120"
    plain = door.client.options("/v1/events")
    assert plain.status_code == 200 and "webhook-allowed-origin" not in plain.headers
    assert door.client.options("/v1/events", headers={"WebHook-Request-Origin": "a b"}).status_code == 400


def test_the_documented_example_is_accepted_and_the_interface_names_its_schemas(door: Door) -> None:
    CloudEvent.model_validate(EXAMPLE)
    assert one(door, event()).is_success and one(door, EXAMPLE | {"subject": "a"}).is_success
    schema = door.client.get("/openapi.json").json()
    references = [part.split('"')[0] for part in json.dumps(schema).split("#/components/schemas/")[1:]]
    assert set(references) <= set(schema["components"]["schemas"]) and "CloudEvent" in references
    assert 'route="/v1/events",status="200"} 2.0' in door.client.get("/metrics").text
