"""Every code block of docs/api.md is run, as a reader would run it, against a service on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from query_service.client import errors
from query_service.client.exchange import Retry
from query_service.middleware import LONG, LONG_BODY, MAX_BODY
from schemas.api import MAX_QUERY, MAX_WAIT_MS, SearchRequest
from schemas.api_answer import MAX_TURNS
from schemas.tokens import FreshnessToken, TokenDocument
from tests.integration.query.test_clients import serving
from tests.unit.mcp.talk import talking
from tests.unit.query.world import World, ref

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
TEXT = "To reset the probe, hold its button for seven seconds."


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


async def ran(command: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, said.decode()[-2000:]
    return out.decode()


def executed(script: str) -> str:
    """What a script prints. In this process: each of them would load its framework anew."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(script, "docs/api.md", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.mark.requirement("E3")
async def test_every_block_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    made = world.document("probe", "The probe measures pressure.", TEXT, title="Resetting the probe")
    world.document("pump", "Reset the pump by its valve.")
    document = ref("probe")
    written = TokenDocument(
        kind=document.kind, id=document.id, source=document.source, content=made.content_version,
        access=made.access_version,
    )  # fmt: skip
    token = world.token()
    known = set(re.findall(r"^```(\w+)$", PAGE, re.MULTILINE))
    assert known == {"bash", "python", "json"}, "another kind of block needs another way to run it"
    setup, *curls = blocks("bash")
    assert re.match(r"export HEADWATER_URL=http://\S+ .*\n", setup)
    assert re.fullmatch(r".*\nexport HEADWATER_TOKEN=\$\(headwater token --user ann --tenant acme\)\n", setup)
    scripts = blocks("python")
    expected = (
        TEXT, "The probe measures pressure.\n" + TEXT, TEXT + " (1,)\n[1] Resetting the probe",
        TEXT + "[^1]",
        "hits", "True", "k Input should be", "Resetting the probe", TEXT,
        "Resetting the probe", TEXT + "[^1]\n\nSources:\n\n[^1]: [Resetting the probe](",
    )  # fmt: skip
    assert len(scripts) == len(expected)
    async with serving(world) as address:
        environment = {
            "HEADWATER_URL": address, "HEADWATER_TOKEN": token,
            "FRESHNESS_TOKEN": FreshnessToken(tenant="acme", documents=(written,)).encode(),
        }  # fmt: skip
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for curl in curls if shutil.which("curl") else ():
            reply = json.loads(await ran(["bash", "-euc", curl]))
            assert TEXT in {hit["text"] for hit in reply["hits"]}
        for script, words in zip(scripts, expected, strict=True):
            out = await asyncio.to_thread(executed, script)
            assert words in out, script
            assert token not in out
        (configuration,) = blocks("json")
        server = json.loads(configuration.replace("YOUR_TOKEN", token))["mcpServers"]["headwater"]
        assert server["url"] == "http://127.0.0.1:8700/mcp"
        async with talking(None, server["headers"], url=f"{address}/mcp") as client:
            assert {t.name for t in (await client.list_tools()).tools} == {
                "search", "answer", "fetch_document", "freshness",
            }  # fmt: skip


def test_what_the_page_names_is_there() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE.partition("### Errors")[2].partition("##")[0], re.MULTILINE)
    assert named and all(issubclass(getattr(errors, name), errors.HeadwaterError) for name in named)
    assert f"{MAX_QUERY:,} characters" in PAGE and f"a wait {MAX_WAIT_MS // 1000} seconds" in PAGE
    assert f"`history` {MAX_TURNS} messages" in PAGE.replace("\n", " ")
    long = " and ".join(f"`{path}`" for path in sorted(LONG))
    assert f"{MAX_BODY >> 10} KiB ({LONG_BODY >> 20} MiB to {long})" in PAGE.replace("\n", " ")
    assert "a page 100 hits" in PAGE and SearchRequest(query="x", k=100).k == 100
    assert Retry() == Retry(attempts=4, longest_s=20.0)
    assert "`query.hosts`" in PAGE and tomllib.loads('query.hosts = ["search.example"]')
