"""What the README promises exists: settings, commands, targets, links, examples."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from pydantic import BaseModel, SecretStr, TypeAdapter
from pydantic_core import PydanticUndefined

from consumers.gateway_service import verify
from infra.cli import build
from pipeline.clock import ManualClock
from pipeline.settings import GatewaySettings, Settings
from pipeline.settings_sources import AnySource, FolderSettings, Source, SourceSettings
from pipeline.sources.folder.access import parse_access, parse_groups
from schemas.api import SearchRequest
from schemas.api_answer import AnswerRequest
from schemas.api_changes import CHANGES

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


# ---------------------------------------------------------------- settings


def declared() -> Iterator[tuple[str, Any]]:
    """Every setting by its path, with its default."""
    for name, field in Settings.model_fields.items():
        part = field.annotation
        if name == "sources":
            yield from of_sources()
        elif isinstance(part, type) and issubclass(part, BaseModel):
            for inner, inside in part.model_fields.items():
                yield f"{name}.{inner}", inside.get_default(call_default_factory=True)
        else:
            yield name, field.get_default(call_default_factory=True)


def of_sources() -> Iterator[tuple[str, Any]]:
    """Those of every source as ``sources.name``, those of one type as ``sources (git).branch``."""
    common = {n: f for n, f in Source.model_fields.items() if n != "walk_s"}
    for name, field in common.items():
        yield f"sources.{name}", field.get_default(call_default_factory=True)
    for part in get_args(AnySource):
        kind = next(iter(get_args(part.model_fields["type"].annotation)))
        for name, field in part.model_fields.items():
            if name not in common and name != "type":
                yield f"sources ({kind}).{name}", field.get_default(call_default_factory=True)


def spelt(default: Any) -> str:
    if default is PydanticUndefined:
        return "required"
    if default is None or default in ((), {}):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"{default:g}" if isinstance(default, float) else str(default)
    return f"`{str(default).replace(str(Path.home()), '~')}`"


def documented() -> dict[str, str]:
    return dict(re.findall(r"^\| `([a-z0-9_. ()]+)` \| ([^|]+) \|", SETTINGS, re.MULTILINE))


@pytest.mark.requirement("E5")
def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    assert list(documented()) == [name for name, _ in declared()]


@pytest.mark.requirement("E5")
@pytest.mark.parametrize(("name", "default"), list(declared()), ids=[n for n, _ in declared()])
def test_documented_default_is_the_real_one(name: str, default: Any) -> None:
    assert documented()[name].strip() == spelt(default)


# ---------------------------------------------------------------- commands, targets, links


def test_named_commands_exist() -> None:
    group = typer.main.get_command(build())
    assert hasattr(group, "commands")
    known = set(group.commands)
    named = set(re.findall(r"(?:^|[`(/ ])headwater ([a-z]+)", README, re.MULTILINE))
    assert named, "the README names no command"
    assert named <= known | {"command"}, named - known


def test_named_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    spoken = "\n".join([*re.findall(r"`[^`]*`", README), *blocks("bash")])
    named = set(re.findall(r"make ([a-z][a-z0-9-]*)", spoken))
    assert named, "the README names no target"
    assert named <= targets, named - targets


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_named_folders_exist() -> None:
    layout = README.partition("## Layout")[2].partition("## ")[0]
    named = re.findall(r"^([a-z_]+)/", layout, re.MULTILINE)
    assert {"schemas", "pipeline", "consumers", "query_service", "tests"} <= set(named)
    assert [name for name in named if not (ROOT / name).is_dir()] == []


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_packages_and_modules_named_in_docs_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for named in re.findall(r"`((?:schemas|pipeline|consumers|query_service|infra|samples)/[\w./]+)`", text):
        path = ROOT / named.rstrip("/")
        assert path.exists() or path.with_suffix(".py").exists(), named


# ---------------------------------------------------------------- examples


def test_source_example_is_a_source() -> None:
    (example,) = blocks("toml")
    (source,) = tomllib.loads(example)["sources"]
    assert isinstance(TypeAdapter(SourceSettings).validate_python(source), FolderSettings)


@pytest.mark.requirement("A8")
def test_access_examples_are_understood() -> None:
    groups_text, access_text = blocks("yaml")
    groups, problems = parse_groups(groups_text.encode())
    assert problems == []
    assert groups.groups["eng"] == frozenset({"user:ann", "group:ops"})
    assert parse_access(access_text.encode(), ".access.yaml").allow == frozenset({"group:eng", "user:cleo"})


def gateway_script() -> str:
    (script,) = [b for b in blocks("bash") if "X-Headwater-Signature" in b]
    return script


def test_gateway_example_is_valid_and_its_signature_is_accepted() -> None:
    """The shell lines of the README, with the secret given and curl replaced."""
    script = re.sub(r"^SECRET=.*$", "SECRET='s3cret'", gateway_script(), flags=re.MULTILINE)
    script = script.replace("curl -s", "printf '%s\\n'")
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=20)
    out = done.stdout
    signature = re.search(r"X-Headwater-Signature: (\S+)", out)
    timestamp = re.search(r"X-Headwater-Timestamp: (\d+)", out)
    assert signature is not None
    assert timestamp is not None
    body = out[out.index("--data-binary\n") + len("--data-binary\n") :].rstrip("\n").encode()
    changes = CHANGES.validate_python(json.loads(body))
    assert [c.type for c in changes] == ["membership", "upsert"]
    settings = Settings(gateway=GatewaySettings(secret=SecretStr("s3cret")))
    clock = ManualClock(int(timestamp[1]) * 1_000_000)
    verify(settings, clock, body, signature[1], timestamp[1])


def test_search_example_is_valid() -> None:
    bodies: dict[str, type[BaseModel]] = {"search": SearchRequest, "answer": AnswerRequest}
    found = re.findall(r"/v1/(search|answer) [^`]*?-d '(\{.*?\})'", README)
    assert {path for path, _ in found} == set(bodies)
    for path, body in found:
        bodies[path].model_validate_json(body)


def test_named_search_fields_exist() -> None:
    section = README.partition("## Searching")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert named == set(SearchRequest.model_fields)
