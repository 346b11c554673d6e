"""The passages around a hit: its own version, its own permissions, nothing else."""

from __future__ import annotations

import pytest

from schemas.access import AccessRule
from schemas.api_neighbours import NeighboursResponse
from schemas.documents import PageEntry, page_of
from schemas.keys import DocumentRef
from tests.unit.query.world import GENERATION, World, anyone, chunk_id, ref

pytestmark = pytest.mark.anyio
TEXTS = [f"step {i} of the plan" for i in range(6)]


def path(document: DocumentRef, text: str, **params: int) -> str:
    asked = "&".join(f"{k}={v}" for k, v in params.items())
    return f"/v1/documents/{document.uid}/chunks/{chunk_id(document, text)}/neighbours" + (f"?{asked}" if asked else "")


@pytest.mark.requirement("B6", "A3")
async def test_passages_stand_in_document_order_with_their_places(world: World) -> None:
    world.principal("user:ann")
    world.document("a", *TEXTS, summary="a plan of six steps")
    async with world.running() as run:
        reply = await run.get(path(ref("a"), TEXTS[2], before=1, after=2))
        found = NeighboursResponse.model_validate_json(reply.content)
        assert [p.text for p in found.passages] == TEXTS[1:5]
        assert [(p.chunk_index, p.start, p.page) for p in found.passages] == [(i, 100 * i, i + 1) for i in range(1, 5)]
        assert found.chunk_id == chunk_id(ref("a"), TEXTS[2]) and found.chunk_total == 7

        reply = await run.get(path(ref("a"), TEXTS[5], before=0, after=9))
        ends = NeighboursResponse.model_validate_json(reply.content)
        assert [p.text for p in ends.passages] == [TEXTS[5]], "the summary is nobody's neighbour"
        alone = NeighboursResponse.model_validate_json(
            (await run.get(path(ref("a"), "a plan of six steps", before=5, after=5))).content
        )
        assert [p.text for p in alone.passages] == ["a plan of six steps"]


@pytest.mark.requirement("F25", "I3")
async def test_what_may_not_be_read_and_what_is_absent_are_answered_alike(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("a", *TEXTS, rule=anyone("user:ann"))
    world.document("b", *TEXTS)
    other = ref("c", tenant="other")
    world.document(other, *TEXTS)
    async with world.running() as run:
        assert (await run.get(path(ref("a"), TEXTS[0]))).status_code == 200
        absent = await run.get(path(ref("nothing"), TEXTS[0]), "bob")
        for asked in (
            path(ref("a"), TEXTS[0]),  # not for bob
            path(ref("b"), "no such passage"),  # not in the document
            path(ref("b"), TEXTS[0]).replace(chunk_id(ref("b"), TEXTS[0]), chunk_id(ref("a"), TEXTS[0])),
            path(other, TEXTS[0]),
            "/v1/documents/x/chunks/y/neighbours",
            path(ref("b"), TEXTS[0]).replace(chunk_id(ref("b"), TEXTS[0]), "x"),
        ):
            reply = await run.get(asked, "bob")
            assert (reply.status_code, reply.content) == (404, absent.content), asked
        world.access(ref("b"), AccessRule.any_of("user:ann"))
        assert (await run.get(path(ref("b"), TEXTS[0]), "bob")).content == absent.content


@pytest.mark.requirement("I2")
async def test_a_passage_of_an_older_version_has_no_neighbours_any_more(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "the old text", "kept")
    async with world.running() as run:
        assert (await run.get(path(ref("a"), "the old text"))).status_code == 200
        world.document("a", "the new text", "kept")
        assert (await run.get(path(ref("a"), "the old text"))).status_code == 404
        found = NeighboursResponse.model_validate_json((await run.get(path(ref("a"), "kept"))).content)
        assert [p.text for p in found.passages] == ["the new text", "kept"]


@pytest.mark.requirement("B6")
async def test_huge_documents_whose_lists_are_paged(world: World) -> None:
    world.principal("user:ann")
    whole = world.document("a", *TEXTS)
    for number in range(3):
        lines = [PageEntry(**e.model_dump(), ordinal=i) for i, e in enumerate(whole.chunks)]
        listed = [line for line in lines if page_of(line.chunk_id, 3) == number]
        world.store.write_manifest_page(GENERATION, ref("a"), whole.content_version, number, 3, listed)
    world.store.write_manifest(GENERATION, whole.model_copy(update={"pages": 3, "chunks": ()}))
    async with world.running() as run:
        reply = await run.get(path(ref("a"), TEXTS[3], before=2, after=1))
        found = NeighboursResponse.model_validate_json(reply.content)
        assert [(p.chunk_index, p.text) for p in found.passages] == list(enumerate(TEXTS))[1:5]
        assert (await run.get(path(ref("a"), "another text"))).status_code == 404


@pytest.mark.parametrize("params", [{"before": -1}, {"after": 21}])
async def test_bounds(world: World, params: dict[str, int]) -> None:
    world.principal("user:ann")
    world.document("a", *TEXTS)
    async with world.running() as run:
        reply = await run.get(path(ref("a"), TEXTS[0], **params))
        assert reply.status_code == 422
        assert [e["field"] for e in reply.json()["errors"]] == list(params)
