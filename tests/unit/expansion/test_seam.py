"""The seam that a generator sees."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import ValidationError

from query_service.scope import Scope
from query_service.seam import CallerSearch, Passage, Search
from tests.unit.query.world import TENANT, World, anyone

ROOT = Path(__file__).parents[3]


@pytest.mark.anyio
@pytest.mark.requirement("B13", "B1")
async def test_passages_of_one_caller(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("open", "the pump stops at low pressure", rule=anyone("everyone"), title="Pumps")
    world.document("closed", "the secret pump never stops", rule=anyone("user:bob"))
    async with world.running() as run:
        ann: Search = CallerSearch(run.parts.service, Scope(tenant=TENANT, subject="ann"))
        found = await ann.search("pump", 5)
        assert [p.document_id for p in found] == ["open"]
        first = found[0]
        assert (first.title, first.text, first.source) == ("Pumps", "the pump stops at low pressure", "wiki")
        assert 0 <= first.score <= 1
        bob = CallerSearch(run.parts.service, Scope(tenant=TENANT, subject="bob"), expand="decompose")
        assert {p.document_id for p in await bob.search("pump", 5)} == {"open", "closed"}
        assert len(await bob.search("pump", 1)) == 1
        for query, k in (("", 5), ("pump", 0), ("pump", 101)):
            with pytest.raises(ValidationError):  # a ValueError that names the field
                await ann.search(query, k)


@pytest.mark.requirement("B13")
def test_nothing_of_the_store_comes_with_it() -> None:
    code = (
        "import sys, query_service.seam, query_service.generate.interface, query_service.generate.openai_server\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('weaviate', 'kafka', 'fastapi', 'openai')"
        " or m.startswith(('pipeline.index', 'pipeline.bus', 'pipeline.ports', 'query_service.retrieve',"
        " 'query_service.service', 'query_service.supply', 'query_service.outcome', 'query_service.legs'))]\n"
        "print(bad); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {f.name for f in fields(Passage)}
    assert not names & {"chunk_id", "section_id", "tier", "generation", "access", "tenant", "vector"}
