"""Golden payloads: what was once written must be read for ever, and be written again as it was read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import schemas.api
import schemas.api_changes
from schemas.base import ClosedModel, OpenModel
from schemas.events import HoldChanged
from schemas.export import PAYLOADS, Contract, contracts
from schemas.topics import TOPICS, Topic

GOLDEN = Path(__file__).parents[3] / "schemas" / "golden"
FILES = sorted(GOLDEN.rglob("*.json"))
NAMES = [str(f.relative_to(GOLDEN)) for f in FILES]
CLOSED = (Topic.ACCESS, Topic.MEMBERSHIP, Topic.CURSORS, Topic.MAINTENANCE, Topic.REQUESTS, Topic.CONTROL)
OPEN = (Topic.CONTENT, Topic.RECEIPTS, Topic.DEAD_LETTER, Topic.INSTANCES, Topic.QUERIES)

# Every kind of event that a topic can carry; a new kind fails here until it has a golden payload.
KINDS: dict[Topic, set[str]] = {
    Topic.CONTENT: {"upserted", "deleted"},
    Topic.ACCESS: {"rule", "tombstone", "hold"},
    Topic.MEMBERSHIP: {"membership"},
    Topic.CURSORS: {"document", "cursor"},
    Topic.MAINTENANCE: {"reprocess", "recheck", "move"},
    Topic.REQUESTS: {"listing", "document", "backfill", "lift_hold", "undo", "notify", "pause", "resume", "reset"},
    Topic.QUERIES: {"query", "feedback", "purge"},
    Topic.CONTROL: {"create", "ready", "report", "activate", "rollback", "retire", "drop"},
}


def topic_of(file: Path) -> Topic:
    return Topic(file.relative_to(GOLDEN).parts[0])


def load(file: Path) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return payload


def decode(topic: Topic, payload: Any) -> BaseModel:
    model: BaseModel = PAYLOADS[topic].validate_json(json.dumps(payload))
    return model


@pytest.mark.requirement("A1", "I12")
@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_golden_payload_is_read_and_written_again_the_same(file: Path) -> None:
    payload = load(file)
    again = json.loads(decode(topic_of(file), payload).model_dump_json())
    if "minimal" in file.stem:  # what an earlier producer left out is filled in, what it wrote is kept
        assert _within(payload, again), again
    else:
        assert again == payload


def _within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and _within(v, whole[k]) for k, v in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(_within(a, b) for a, b in zip(part, whole, strict=True))
    return bool(part == whole)


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("topic", list(Topic))
def test_every_topic_has_a_schema_a_specification_and_golden_payloads(topic: Topic) -> None:
    assert topic in PAYLOADS
    assert topic in {spec.topic for spec in TOPICS}
    assert [f for f in FILES if topic_of(f) is topic], f"schemas/golden/{topic}/v1 has no payload"


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("topic", list(Topic))
def test_golden_payloads_cover_every_kind_of_event(topic: Topic) -> None:
    schema = PAYLOADS[topic].json_schema()
    declared = _declared_kinds(schema)
    if topic in KINDS:
        assert declared == KINDS[topic]
        assert {load(f).get("type", next(iter(declared))) for f in FILES if topic_of(f) is topic} == declared
    else:
        assert not declared


def _declared_kinds(schema: dict[str, Any]) -> set[str]:
    """Values of ``type`` in the payload's own models (its variants), not in what they contain."""
    variants = [*schema.get("oneOf", ()), *schema.get("anyOf", ())] or [schema]
    kinds: set[str] = set()
    for variant in variants:
        model = schema["$defs"][variant["$ref"].rsplit("/", 1)[-1]] if "$ref" in variant else variant
        field = model["properties"].get("type", {})
        kinds |= {field["const"]} if "const" in field else set(field.get("enum", ()))
    return kinds


@pytest.mark.requirement("I12")
def test_every_topic_is_either_closed_or_open() -> None:
    assert sorted(CLOSED + OPEN) == sorted(Topic)


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_unknown_field(file: Path) -> None:
    """Closed payloads refuse it, because it may narrow what is allowed; open ones ignore it."""
    topic, payload = topic_of(file), load(file)
    extended = {**payload, "color": "green"}
    if topic in CLOSED:
        with pytest.raises(ValidationError, match="color"):
            decode(topic, extended)
    else:
        assert decode(topic, extended) == decode(topic, payload)


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("file", FILES, ids=NAMES)
@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_unknown_schema_version_is_refused_by_every_topic(file: Path, version: object) -> None:
    with pytest.raises(ValidationError, match="schema_version"):
        decode(topic_of(file), {**load(file), "schema_version": version})


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    "where", [("rule",), ("rule", "clauses", 0), ("rule", "clauses", 0, "any_of", 0), ("document",)]
)
def test_unknown_field_deep_inside_an_access_payload_is_refused(where: tuple[str | int, ...]) -> None:
    payload = load(GOLDEN / "access" / "v1" / "rule.json")
    place: Any = payload
    for step in where:
        place = place[step]
    place["only_on_weekdays"] = True
    with pytest.raises(ValidationError, match="only_on_weekdays"):
        decode(Topic.ACCESS, payload)


@pytest.mark.requirement("I12")
def test_unknown_field_inside_content_is_ignored_but_not_in_its_identity() -> None:
    payload = load(GOLDEN / "content" / "v1" / "upserted-text.json")
    known = decode(Topic.CONTENT, payload)
    payload["body"]["compression"] = "none"
    payload["source_facts"]["author"] = "ann"
    assert decode(Topic.CONTENT, payload) == known
    payload["document"]["edition"] = "2"  # another document, as far as the writer is concerned
    with pytest.raises(ValidationError, match="edition"):
        decode(Topic.CONTENT, payload)


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("topic", [Topic.CONTENT, Topic.ACCESS])
@pytest.mark.parametrize("kind", ["moved", "", None, 1])
def test_unknown_kind_of_event_is_refused(topic: Topic, kind: object) -> None:
    file = next(f for f in FILES if topic_of(f) is topic)
    with pytest.raises(ValidationError):
        decode(topic, {**load(file), "type": kind})


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_each_required_field_is_missed_by_name(file: Path) -> None:
    topic, payload = topic_of(file), load(file)
    for field in _required(PAYLOADS[topic].json_schema(), payload):
        with pytest.raises(ValidationError, match=field):
            decode(topic, {k: v for k, v in payload.items() if k != field})


def _required(schema: dict[str, Any], payload: dict[str, Any]) -> list[str]:
    variants = [*schema.get("oneOf", ()), *schema.get("anyOf", ())] or [schema]
    for variant in variants:
        model: dict[str, Any] = schema["$defs"][variant["$ref"].rsplit("/", 1)[-1]] if "$ref" in variant else variant
        kind = model["properties"].get("type", {}).get("const")
        if kind is None or kind == payload.get("type", kind):
            return list(model["required"])
    raise AssertionError("no variant")


def test_golden_folders_are_topics_and_versions() -> None:
    for file in FILES:
        topic, version, _ = file.relative_to(GOLDEN).parts
        assert Topic(topic)
        assert version == "v1"
        assert load(file).get("schema_version", 1) == 1


def test_a_hold_has_a_golden_payload_in_both_directions() -> None:
    holds = [decode(Topic.ACCESS, load(f)) for f in FILES if topic_of(f) is Topic.ACCESS]
    assert {h.active for h in holds if isinstance(h, HoldChanged)} == {True, False}


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("module", [schemas.api, schemas.api_changes])
def test_every_model_of_the_interfaces_is_part_of_an_exported_schema(module: Any) -> None:
    exported = {name for c in contracts() for name in _titles(c)}
    own = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, BaseModel)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert own - exported - _bases(module) == set()


def _titles(contract: Contract) -> set[str]:
    schema = contract.schema()
    return {*schema.get("$defs", {}), schema.get("title", "").rsplit("/")[-1]}


def _bases(module: Any) -> set[str]:
    """Models that others of the module are made from, which therefore have no schema of their own."""
    models = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, BaseModel)]
    return {m.__name__ for m in models if any(m in other.__mro__[1:] for other in models)} | {
        ClosedModel.__name__,
        OpenModel.__name__,
    }
