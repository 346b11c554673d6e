"""A document that changes during a search, and a permission that goes while the reply is being put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from query_service.legs import Candidate
from query_service.outcome import Place, Ranked, Twin
from query_service.state import NotReady
from query_service.versions import one_version
from schemas.documents import Manifest
from schemas.tokens import FreshnessToken, TokenDocument
from tests.unit.query.test_finish import names
from tests.unit.query.test_retrieve import revoke, rule_event
from tests.unit.query.world import GENERATION, TENANT, Running, World, anyone, ref

pytestmark = pytest.mark.anyio


def after(run: Running, name: str, then: Callable[[], Any], *, call: int = 1) -> None:
    """``then`` happens right after the n-th call of a reader's method."""
    reader, count = run.parts.reader, 0
    real = getattr(reader, name)

    async def wrapped(*given: Any, **named: Any) -> Any:
        nonlocal count
        found = await real(*given, **named)
        count += 1
        if count == call:
            made = then()
            if made is not None:
                await made
        return found

    setattr(reader, name, wrapped)


@pytest.mark.requirement("A5", "B6", "I3")
@pytest.mark.parametrize("evidence", ["none", "sections"])
async def test_hits_of_further_queries_are_of_the_same_version(world: World, evidence: str) -> None:
    world.principal("user:ann")
    same = "the seal keys are kept in the vault"
    world.document("page", "who writes seals: the old clerk", same)
    world.document("other", "who writes letters and what are the keys of them")
    async with world.running() as run:
        after(run, "manifests", lambda: world.document("page", "who writes seals: the new clerk", same) and None)
        reply = await run.search(
            "Who writes the seals? Where are the seal keys kept?", expand="decompose", evidence=evidence, explain=True
        )
    assert len(reply["steps"]) > 2, "further queries were asked after the change"
    hits = [hit for hit in reply["hits"] if hit["document_id"] == "page"]
    assert hits and len({hit["version"] for hit in hits}) == 1
    texts = [hit["text"] for hit in hits]
    assert same in texts and not any("old clerk" in text for text in texts)
    if evidence == "sections":
        passages = [p for p in reply["evidence"]["passages"] if p["document_id"] == "page"]
        assert {p["version"] for p in passages} == {hits[0]["version"]}


def ranked(manifest: Manifest, at: int, *twins: Twin) -> Ranked:
    entry = manifest.chunks[at]
    return Ranked(Candidate(entry.chunk_id, manifest.document.uid, "hot"), manifest, Place(at, entry), 0.5, twins=twins)


@pytest.mark.requirement("A5", "I3")
async def test_an_equal_passage_stands_for_one_that_the_newest_version_lacks(world: World) -> None:
    old = world.document("page", "gone", "kept")
    new = world.document("page", "new first", "kept")
    other = world.document("copy", "gone")
    twin = Twin(Candidate(other.chunks[0].chunk_id, other.document.uid, "hot"), other, Place(0, other.chunks[0]))
    found = await one_version(
        world.store.reader(), GENERATION, [ranked(old, 0, twin), ranked(old, 1), ranked(new, 0), ranked(old, 0)]
    )
    assert [(r.manifest.document.id, r.place.ordinal) for r in found] == [("copy", 0), ("page", 1), ("page", 0)]
    assert {r.manifest.content_version for r in found if r.manifest.document.id == "page"} == {new.content_version}
    alone = [ranked(old, 0), ranked(old, 1)]
    assert await one_version(world.store.reader(), GENERATION, alone) == alone


@pytest.mark.requirement("B6", "B9", "I4")
@pytest.mark.parametrize("evidence", ["sections", "all"])
async def test_a_hit_that_is_revoked_while_evidence_is_read_leaves_neither_way(world: World, evidence: str) -> None:
    world.principal("user:ann")
    world.document("secret", "plan of the secret", rule=anyone("everyone"))
    world.document("open", "plan for all")
    world.document("copy", "plan of the secret", title="other")
    async with world.running() as run:

        def gone() -> Any:
            return revoke(run, rule_event(world, "secret", anyone("user:bob")))

        after(run, "sections", gone)
        reply = await run.search("plan", evidence=evidence, duplicates="fold")
    told = str(reply["hits"]) + str(reply["evidence"])
    assert ref("secret").uid not in told and "open" in names(reply)


@pytest.mark.requirement("I11")
async def test_a_search_that_waited_is_refused_where_permissions_are_not_known_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.principal("user:ann")
    made = world.document("plan", "plan")
    line = TokenDocument(
        source="wiki", kind="page", id="plan", content=made.content_version, access=made.access_version
    )
    async with world.running() as run:
        body = {"query": "plan", "after": FreshnessToken(tenant=TENANT, documents=(line,)).encode(), "wait_ms": 100}
        assert (await run.post(body)).json()["fresh"] is True
        real = run.parts.service._waiter.wait

        async def behind_then(*given: Any) -> Any:
            async def behind() -> Any:
                raise NotReady("permissions are too old")

            monkeypatch.setattr(run.parts.state, "current", behind)
            return await real(*given)

        monkeypatch.setattr(run.parts.service._waiter, "wait", behind_then)
        assert (await run.post(body)).status_code == 503


@pytest.mark.requirement("B9", "I4")
async def test_the_trace_of_a_document_that_is_revoked_meanwhile_is_not_told(world: World) -> None:
    world.principal("user:ann")
    made = world.document("plan", "plan")
    path = f"/v1/documents/{made.document.uid}/trace"
    async with world.running() as run:
        assert (await run.get(path)).status_code == 200
        after(run, "manifests", lambda: revoke(run, rule_event(world, "plan", anyone("user:bob"))), call=2)
        assert (await run.get(path)).status_code == 404
