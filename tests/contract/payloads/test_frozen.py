"""Frozen contracts: the code keeps them, and the check would notice if it did not."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas import export
from schemas.compat import breaks
from schemas.export import ROOT, broken_promises, contracts, drift, freeze, main, write
from schemas.topics import Topic

pytestmark = pytest.mark.requirement("A1", "I12")
FROZEN = ROOT / "v1"


def frozen(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((FROZEN / f"{name}.json").read_text(encoding="utf-8"))
    return schema


def test_exported_schemas_are_those_of_the_code() -> None:
    assert drift() == []


def test_the_code_keeps_every_frozen_contract() -> None:
    assert broken_promises() == []


@pytest.mark.parametrize("topic", list(Topic))
def test_every_topic_is_frozen(topic: Topic) -> None:
    assert frozen(f"topics/{topic}")["title"]


@pytest.mark.parametrize("contract", contracts(), ids=lambda c: str(c.path))
def test_a_contract_does_not_break_itself(contract: export.Contract) -> None:
    schema = contract.schema()
    assert breaks(schema, schema) == []
    assert breaks(schema, schema, unknown_ignored=True) == []


# ---------------------------------------------------------------- changes that break, on the real schemas


def _model(schema: dict[str, Any], name: str) -> dict[str, Any]:
    model: dict[str, Any] = schema["$defs"][name]
    return model


def _remove(schema: dict[str, Any]) -> None:
    del _model(schema, "ContentUpserted")["properties"]["url"]


def _rename(schema: dict[str, Any]) -> None:
    properties = _model(schema, "ContentUpserted")["properties"]
    properties["heading"] = properties.pop("title")


def _add_required(schema: dict[str, Any]) -> None:
    model = _model(schema, "ContentUpserted")
    model["properties"]["author"] = {"type": "string"}
    model["required"].append("author")


def _make_required(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["required"].append("language")


def _narrow_type(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["title"] = {"type": "integer"}


def _narrow_null(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["url"] = {"type": "string", "default": None}


def _narrow_length(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["title"]["maxLength"] = 100


def _raise_minimum(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["access_version"]["minimum"] = 1


def _narrow_enum(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["priority"]["enum"] = ["live"]


def _narrow_to_enum(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["title"]["enum"] = ["a"]


def _narrow_pattern(schema: dict[str, Any]) -> None:
    _model(schema, "ClaimCheck")["properties"]["sha256"]["pattern"] = "^[0-9]{64}$"


def _close(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["additionalProperties"] = False


def _remove_variant(schema: dict[str, Any]) -> None:
    schema["oneOf"] = [v for v in schema["oneOf"] if "Deleted" not in v["$ref"]]


def _change_default(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["content_type"]["default"] = "text/markdown"


def _next_version(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["schema_version"] = {"const": 2, "type": "integer", "default": 2}


def _narrow_below(schema: dict[str, Any]) -> None:
    del _model(schema, "DocumentRef")["properties"]["kind"]


BREAKING: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (_remove, "$.url: removed or renamed"),
    (_rename, "$.title: removed or renamed"),
    (_add_required, "$.author: added as required"),
    (_make_required, "$.language: is now required"),
    (_narrow_type, "$.title: was string, now integer"),
    (_narrow_null, "$.url: was null, now string"),
    (_narrow_length, "$.title: maxLength fell from 8192 to 100"),
    (_raise_minimum, "$.access_version: minimum rose from 0 to 1"),
    (_narrow_enum, "$.priority: no longer allows ['bulk']"),
    (_narrow_to_enum, "$.title: any value was allowed, now only ['a']"),
    (_narrow_pattern, "$.body.sha256: pattern changed"),
    (_close, "$: unknown fields were ignored, now they are refused"),
    (_remove_variant, "$.type: no longer allows ['deleted']"),
    (_change_default, "$.content_type: the default changed"),
    (_next_version, "$.schema_version: no longer allows [1]"),
    (_narrow_below, "$.document.kind: removed or renamed"),
]


@pytest.mark.parametrize(("change", "says"), BREAKING, ids=[c.__name__.strip("_") for c, _ in BREAKING])
def test_a_breaking_change_is_noticed(change: Callable[[dict[str, Any]], None], says: str) -> None:
    before = frozen("topics/content")
    after = copy.deepcopy(before)
    change(after)
    found = breaks(before, after)
    assert any(says in reason for reason in found), found


def _add_optional(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["properties"]["author"] = {"type": "string", "default": ""}


def _widen(schema: dict[str, Any]) -> None:
    properties = _model(schema, "ContentUpserted")["properties"]
    properties["priority"]["enum"] = ["live", "bulk", "idle"]
    properties["title"]["maxLength"] = 10_000
    properties["observed_at"]["type"] = "number"
    properties["product"] = {"default": None}


def _relax(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["required"].remove("access_version")


def _new_variant(schema: dict[str, Any]) -> None:
    schema["$defs"]["ContentArchived"] = {"type": "object", "properties": {"type": {"const": "archived"}}}
    schema["oneOf"].append({"$ref": "#/$defs/ContentArchived"})


def _describe(schema: dict[str, Any]) -> None:
    _model(schema, "ContentUpserted")["description"] = "In other words."


@pytest.mark.parametrize("change", [_add_optional, _widen, _relax, _new_variant, _describe])
def test_a_harmless_change_passes(change: Callable[[dict[str, Any]], None]) -> None:
    before = frozen("topics/content")
    after = copy.deepcopy(before)
    change(after)
    assert breaks(before, after) == []


def test_a_removed_reader_field_is_noticed_in_access_rules() -> None:
    before = frozen("topics/access")
    after = copy.deepcopy(before)
    del _model(after, "AccessRule")["properties"]["deny"]
    assert "$.rule.deny: removed or renamed" in breaks(before, after)


def test_dictionaries_and_recursive_models_are_compared() -> None:
    tree = {
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
                },
            }
        },
        "$ref": "#/$defs/Node",
    }
    after = copy.deepcopy(tree)
    assert breaks(tree, after) == []
    _model(after, "Node")["properties"]["sizes"]["additionalProperties"] = {"type": "string"}
    assert breaks(tree, after) == ["$.sizes.*: was integer, now string"]


# ---------------------------------------------------------------- responses are judged from the client's side


def test_a_response_may_gain_fields_but_not_lose_or_loosen_them() -> None:
    before = frozen("api/search-response")
    gained = copy.deepcopy(before)
    gained["properties"]["hint"] = {"type": "string"}
    gained["required"].append("hint")
    assert breaks(gained, before, unknown_ignored=True) == []
    lost = copy.deepcopy(before)
    lost["required"].remove("query_id")
    del lost["properties"]["query_id"]
    assert breaks(lost, before, unknown_ignored=True) == ["$.query_id: added as required"]
    loosened = copy.deepcopy(before)
    loosened["properties"]["starved"] = {"type": "string"}
    assert breaks(loosened, before, unknown_ignored=True) == ["$.starved: was string, now boolean"]


# ---------------------------------------------------------------- the command


def test_drift_names_the_file_that_differs_is_missing_or_belongs_to_nothing(tmp_path: Path) -> None:
    assert write(tmp_path) == len(contracts())
    assert write(tmp_path) == 0, "writing twice changes nothing"
    assert drift(tmp_path) == []
    (tmp_path / "topics" / "access.json").unlink()
    (tmp_path / "topics" / "content.json").write_text("{}")
    (tmp_path / "topics" / "gossip.json").write_text("{}")
    assert drift(tmp_path) == [
        "topics/access.json: is missing",
        "topics/content.json: differs from the code",
        "topics/gossip.json: belongs to no contract",
    ]


def test_a_promise_that_is_missing_gone_or_broken_is_named(tmp_path: Path) -> None:
    shutil.copytree(FROZEN, tmp_path / "v1")
    assert broken_promises(tmp_path) == []
    (tmp_path / "v1" / "topics" / "access.json").unlink()
    (tmp_path / "v1" / "topics" / "gossip.json").write_text("{}")
    promised = frozen("topics/content")
    _model(promised, "ContentUpserted")["properties"]["author"] = {"type": "string"}
    (tmp_path / "v1" / "topics" / "content.json").write_text(json.dumps(promised))
    problems = broken_promises(tmp_path)
    assert [p.split(": ")[0] for p in problems] == [
        "v1/topics/access.json",
        "topics/content.json",
        "v1/topics/gossip.json",
    ]
    assert "$.author: removed or renamed" in problems[1]


def test_freezing_extends_but_never_breaks(tmp_path: Path) -> None:
    changed, refused = freeze(tmp_path)
    assert (changed, refused) == (len(contracts()), [])
    file = tmp_path / "v1" / "topics" / "content.json"
    promised = frozen("topics/content")
    _model(promised, "ContentUpserted")["properties"]["author"] = {"type": "string"}
    file.write_text(json.dumps(promised))
    changed, refused = freeze(tmp_path)
    assert changed == 0
    assert refused == ["topics/content: $.author: removed or renamed"]
    assert "author" in file.read_text()


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    monkeypatch.setattr(export, "drift", lambda: ["topics/access.json: differs from the code"])
    assert main(["--check"]) == 1
    assert "topics/access.json: differs from the code" in capsys.readouterr().err
