"""What payloads refuse: lax numbers, versions out of range, requests that do not say enough."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from schemas.access import AccessRule
from schemas.base import MAX_SAFE_INTEGER
from schemas.events import (
    AccessSet,
    AccessTombstone,
    ClaimCheck,
    ContentDeleted,
    ContentUpserted,
    ControlCommand,
    DocumentState,
    HoldChanged,
    InlineBody,
    MaintenanceCommand,
    MembershipSet,
    SourceCursor,
    SourceRequest,
)
from schemas.generation import BackendChoice, ChunkingSpec, EncoderSpec, Generation
from schemas.keys import DocumentRef

NOW = 1_772_438_400_000_000
DOCUMENT = DocumentRef(tenant="acme", source="wiki", id="17")
OTHER = DocumentRef(tenant="acme", source="tickets", id="17")
EVENTS: dict[str, Any] = {
    "upserted": ContentUpserted(
        document=DOCUMENT, version=NOW, access_version=NOW, title="t", body=InlineBody(text="x"), observed_at=NOW
    ),
    "deleted": ContentDeleted(document=DOCUMENT, version=NOW, access_version=NOW, observed_at=NOW),
    "rule": AccessSet(
        document=DOCUMENT, version=NOW, content_version=0, rule=AccessRule.any_of("user:ann"), observed_at=NOW
    ),
    "tombstone": AccessTombstone(document=DOCUMENT, version=NOW, not_before=NOW, observed_at=NOW),
    "hold": HoldChanged(document=DOCUMENT, hold="legal", active=True, version=NOW, observed_at=NOW),
    "membership": MembershipSet(tenant="acme", principal="user:ann", version=NOW, observed_at=NOW),
}


def read(name: str, **changes: Any) -> Any:
    """The event with fields of its payload replaced, read from the wire."""
    payload = {**json.loads(EVENTS[name].model_dump_json()), **changes}
    return type(EVENTS[name]).model_validate_json(json.dumps(payload))


@pytest.mark.requirement("I5")
@pytest.mark.parametrize("name", EVENTS)
@given(version=st.integers(1, MAX_SAFE_INTEGER))
def test_versions_survive_a_reader_that_knows_only_doubles(name: str, version: int) -> None:
    event = read(name, version=version)
    assert event.version == version == int(float(version))


@pytest.mark.requirement("I5", "I12")
@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("version", [0, -1, 2**53, 2**63, "17", 17.0, True, None, [17]])
def test_other_versions_are_refused(name: str, version: object) -> None:
    with pytest.raises(ValidationError) as caught:
        read(name, version=version)
    assert caught.value.errors()[0]["loc"] == ("version",)


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(("name", "field"), [("membership", "removed"), ("hold", "active")])
@pytest.mark.parametrize("value", ["off", "true", 0, 1, None, "no"])
def test_flags_are_flags(name: str, field: str, value: object) -> None:
    """A reader that takes "off" for false would bring a removed principal back."""
    with pytest.raises(ValidationError):
        read(name, **{field: value})


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    "changes",
    [
        {"principal": "nobody"},
        {"parents": ["nobody"]},
        {"removed": True, "parents": ["group:eng"]},
        {"parents": ["group:eng "]},
        {"parents": "group:eng"},
        {"principal": ""},
        {"tenant": "a/b"},
        {"source": "a/b"},
    ],
)
def test_membership_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read("membership", **changes)


@pytest.mark.parametrize(
    ("start", "end", "fine"),
    [(None, None, True), (1, None, True), (None, 1, True), (1, 2, True), (2, 2, False), (3, 2, False)],
)
def test_effective_interval(start: int | None, end: int | None, fine: bool) -> None:
    if fine:
        assert read("upserted", effective_from=start, effective_until=end).effective_until == end
    else:
        with pytest.raises(ValidationError, match="effective_until must be later"):
            read("upserted", effective_from=start, effective_until=end)


@pytest.mark.parametrize(
    "body",
    [
        {"where": "inline"},
        {"where": "inline", "text": "a", "base64": "YQ=="},
        {"where": "store", "path": "a/b/c/1", "size": 1},
        {"where": "store", "path": "a/b/c/1", "size": -1, "sha256": "0" * 64},
        {"where": "store", "path": "a/b/c/1", "size": 1, "sha256": "F" * 64},
        {"where": "store", "path": "", "size": 1, "sha256": "0" * 64},
        {"where": "elsewhere", "text": "a"},
        {"text": "a"},
    ],
)
def test_a_body_is_inline_or_a_claim_check(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        read("upserted", body=body)
    assert caught.value.errors()[0]["loc"][0] == "body"


@pytest.mark.requirement("F22")
def test_a_claim_check_of_the_longest_source_name_fits() -> None:
    assert ClaimCheck(path="acme/" + "%F0%9F%90%9F" * 256 + "/uid/1", size=1, sha256="0" * 64)


@pytest.mark.requirement("F16")
def test_a_title_of_three_thousand_characters_is_carried_whole() -> None:
    assert len(read("upserted", title="x" * 3000).title) == 3000


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"type": "document"}, "names its document"),
        ({"type": "lift_hold", "hold": "legal"}, "names its document"),
        ({"type": "lift_hold", "document": DOCUMENT}, "'hold' is given"),
        ({"type": "listing", "hold": "legal"}, "'hold' is given"),
        ({"type": "document", "document": OTHER}, "another tenant or source"),
    ],
)
def test_a_request_says_what_it_wants(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SourceRequest(**{"tenant": "acme", "source": "wiki", "request_id": "1", "requested_at": NOW, **changes})


def test_a_reprocess_names_its_offset() -> None:
    with pytest.raises(ValidationError, match="names the offset"):
        MaintenanceCommand(type="reprocess", document=DOCUMENT, requested_at=NOW)


@pytest.mark.parametrize(("kind", "tier"), [("move", None), ("recheck", "cold"), ("reprocess", "hot")])
def test_a_tier_belongs_to_a_move(kind: str, tier: str | None) -> None:
    with pytest.raises(ValidationError, match="'tier' is given"):
        MaintenanceCommand.model_validate({"type": kind, "document": DOCUMENT, "tier": tier, "requested_at": NOW})


@pytest.mark.parametrize(
    "changes",
    [
        {"child_tokens": 64},
        {"child_max_tokens": 150},
        {"parent_tokens": 200},
        {"overlap": 0.5},
        {"child_min_tokens": 0},
    ],
)
@pytest.mark.requirement("A4")
def test_chunk_sizes_are_ordered(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChunkingSpec(**changes)


@pytest.mark.requirement("A4")
def test_a_generation_whose_chunks_would_be_cut_is_refused() -> None:
    backend = BackendChoice(name="stub", agreement=1.0)
    with pytest.raises(ValidationError, match=r"exceeds encoder\.max_tokens"):
        Generation(name="g", state="building", encoder=EncoderSpec(max_tokens=128), backend=backend, created_at=NOW)
    Generation(name="g", state="building", backend=backend, created_at=NOW)


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    "model",
    [
        AccessSet,
        AccessTombstone,
        HoldChanged,
        MembershipSet,
        DocumentState,
        SourceCursor,
        SourceRequest,
        MaintenanceCommand,
        ControlCommand,
    ],
)
def test_closed_models_say_so_in_their_schema(model: type) -> None:
    assert TypeAdapter(model).json_schema()["additionalProperties"] is False
