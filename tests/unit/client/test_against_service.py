"""Both clients on the real application: the same answers as the routes give."""

from __future__ import annotations

import subprocess
import sys

import pytest

from query_service.client import NotFound, Unauthorized
from schemas.tokens import FreshnessToken, TokenDocument
from tests.unit.client.both import KINDS, Both, Kind, Through
from tests.unit.query.world import Running, World, anyone, chunk_id, ref

TEXTS = ["the plan of the pump", "its second step"]
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kind", KINDS)]


def both(run: Running, kind: Kind, sub: str = "ann") -> Both:
    return Both(kind, Through(run.client), token=run.world.token(sub))


@pytest.mark.requirement("E3", "B1")
async def test_every_call(world: World, kind: Kind) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("a", *TEXTS, rule=anyone("user:ann"))
    world.document("b", "another plan")
    uid = ref("a").uid
    async with world.running() as run:
        ann, bob = both(run, kind), both(run, kind, "bob")
        found = await ann.ask("search", "plan", k=5, duplicates="keep")
        assert {h.document_id for h in found.hits} == {"a", "b"}
        assert {h.document_id for h in (await bob.ask("search", "plan")).hits} == {"b"}
        assert [s.text for s in (await ann.ask("document", uid)).sections] == TEXTS
        assert [s.text for s in await ann.ask("sections", uid, page=1)] == TEXTS
        around = await ann.ask("neighbours", uid, chunk_id(ref("a"), "its second step"))
        assert [p.text for p in around.passages] == TEXTS
        assert (await ann.ask("trace", uid)).document_uid == uid
        assert (await ann.ask("freshness")).tenant == "acme"
        for method, args in (("document", (uid,)), ("trace", (uid,)), ("neighbours", (uid, found.hits[0].chunk_id))):
            with pytest.raises(NotFound):
                await bob.ask(method, *args)
        with pytest.raises(Unauthorized):
            await Both(kind, Through(run.client), token="wrong").ask("freshness")


@pytest.mark.requirement("E3")
async def test_waiting_for_a_write(world: World, kind: Kind) -> None:
    world.principal("user:ann")
    made = world.document("a", "plan")
    document = ref("a")
    there = TokenDocument(
        kind=document.kind, id=document.id, source=document.source, content=made.content_version,
        access=made.access_version,
    )  # fmt: skip
    later = there.model_copy(update={"content": made.content_version + 10})
    async with world.running() as run:
        ann = both(run, kind)
        token = FreshnessToken(tenant="acme", documents=(there,)).encode()
        assert await ann.ask("wait_for", token, timeout_s=5) is True
        token = FreshnessToken(tenant="acme", documents=(later,)).encode()
        assert await ann.ask("wait_for", token, timeout_s=0.05) is False


@pytest.mark.requirement("E3")
def test_the_client_needs_nothing_of_the_service(kind: Kind) -> None:
    script = (
        "import sys, query_service.client\n"
        "known = {m.partition('.')[0] for m in sys.modules}\n"
        "print(sorted(known & {'pipeline', 'consumers', 'infra', 'fastapi', 'starlette', 'weaviate', 'kafka', 'numpy',"
        " 'mcp', 'langchain_core', 'llama_index', 'jwt', 'uvicorn'}))\n"
        "print(sorted(m for m in sys.modules if m.startswith('query_service.') and '.client' not in m))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
