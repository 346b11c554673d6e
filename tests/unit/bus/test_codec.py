"""What can be read of a record, and what is still known of one that cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bus import codec
from pipeline.bus.codec import Undecodable
from pipeline.errors import Reject
from pipeline.ports import Record
from schemas.access import AccessRule
from schemas.events import AccessSet, ContentDeleted, ContentUpserted, HoldChanged, InlineBody, MaintenanceCommand
from schemas.keys import DocumentRef, membership_key

DOC = DocumentRef(tenant="acme", source="wiki", id="1")


def record(value: bytes | None, key: str | None = DOC.key, topic: str = "content") -> Record:
    return Record(topic, 0, 7, 1, key, value)


def upserted(**fields: Any) -> ContentUpserted:
    options: dict[str, Any] = {"title": "T", "body": InlineBody(text="x"), "observed_at": 1} | fields
    return ContentUpserted(document=DOC, version=2, access_version=2, **options)


def broken(found: object) -> Undecodable:
    assert isinstance(found, Undecodable)
    return found


@pytest.mark.requirement("A1")
def test_events_survive_the_wire() -> None:
    event = upserted()
    assert codec.decode_content(record(codec.encode(event))) == event
    deleted = ContentDeleted(document=DOC, version=3, access_version=3, observed_at=1)
    assert codec.decode_content(record(codec.encode(deleted))) == deleted


@pytest.mark.requirement("I12")
def test_content_ignores_unknown_fields_and_access_does_not() -> None:
    content = json.loads(codec.encode(upserted())) | {"colour": "red"}
    assert isinstance(codec.decode_content(record(json.dumps(content).encode())), ContentUpserted)
    rule = AccessSet(document=DOC, version=2, content_version=1, observed_at=1, rule=AccessRule.any_of("everyone"))
    access = json.loads(codec.encode(rule)) | {"colour": "red"}
    found = broken(codec.decode_access(record(json.dumps(access).encode(), topic="access")))
    assert (found.kind, found.document, found.version) == ("invalid", DOC, 2)
    assert "colour" in found.reason


@pytest.mark.requirement("I8")
def test_a_deletion_is_recognised_in_a_payload_that_is_not_understood() -> None:
    value = json.dumps({"type": "deleted", "schema_version": 9, "version": 5, "document": "?"}).encode()
    found = broken(codec.decode_content(record(value)))
    assert found.deletion and found.document == DOC and found.version == 5
    assert found.reject().stage == "decode"
    assert not broken(codec.decode_content(record(b'{"type":"upserted"}'))).deletion
    assert not broken(codec.decode_content(record(b"\x00deleted"))).deletion


@pytest.mark.requirement("F20", "F23")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "empty"),
        (b"", "not_json"),
        (b"\xff\xfe\x00", "not_json"),
        (b"[" * 100_000, "not_json"),
        (b"[]", "invalid"),
        (b"null", "invalid"),
        (b"{}", "invalid"),
        (b'{"type":"renamed"}', "invalid"),
    ],
)
def test_nothing_unreadable_raises(value: bytes | None, kind: str) -> None:
    for decode in (codec.decode_content, codec.decode_access):
        found = broken(decode(record(value)))
        assert (found.kind, found.document) == (kind, DOC)
        assert len(found.reason) <= 500


@pytest.mark.requirement("I1")
def test_the_key_decides_whose_record_it_is() -> None:
    other = DocumentRef(tenant="acme", source="wiki", id="2")
    found = broken(codec.decode_content(record(codec.encode(upserted()), key=other.key)))
    assert (found.kind, found.document) == ("key_mismatch", other)
    without = broken(codec.decode_content(record(codec.encode(upserted()), key=None)))
    assert (without.kind, without.document) == ("no_key", DOC)
    nonsense = broken(codec.decode_content(record(b"?", key="nonsense")))
    assert nonsense.document is None


def test_a_hold_is_read_under_its_own_key_only() -> None:
    hold = HoldChanged(document=DOC, hold="legal", active=True, version=1, observed_at=1)
    value = codec.encode(hold)
    assert codec.decode_access(record(value, DOC.hold_key("legal"), "access")) == hold
    assert broken(codec.decode_access(record(value, DOC.key, "access"))).kind == "key_mismatch"
    wrong = broken(codec.decode_access(record(value, DOC.hold_key("quarantine"), "access")))
    assert (wrong.kind, wrong.hold) == ("key_mismatch", "quarantine")


def test_membership_names_its_principal_by_the_key_even_when_unreadable() -> None:
    key = membership_key("acme", "user:ann", "wiki")
    found = broken(codec.decode_membership(record(b"?", key, "membership")))
    assert (found.principal, found.membership_source) == (("acme", "user:ann"), "wiki")
    for bad in (None, "[]", '["acme"]', '["acme", "user:ann"]', '["acme",1]', "[" * 100_000):
        assert broken(codec.decode_membership(record(b"?", bad, "membership"))).principal is None


def test_other_models_reject_with_stage_and_kind() -> None:
    for value, kind in ((None, "empty"), (b"{", "not_json"), (b"{}", "invalid")):
        with pytest.raises(Reject) as rejected:
            codec.decode(record(value), MaintenanceCommand)
        assert (rejected.value.stage, rejected.value.kind) == ("decode", kind)


@given(st.binary(max_size=200), st.text(max_size=40) | st.none())
@pytest.mark.requirement("F20")
def test_no_bytes_and_no_key_make_a_decoder_raise(value: bytes, key: str | None) -> None:
    for decode in (codec.decode_content, codec.decode_access, codec.decode_membership):
        decode(record(value, key))


def test_the_reason_never_quotes_the_body() -> None:
    secret = "the secret text of a page"
    value = json.dumps(json.loads(codec.encode(upserted())) | {"body": {"where": secret}, "title": [secret]}).encode()
    found = broken(codec.decode_content(record(value)))
    assert secret not in found.reason
