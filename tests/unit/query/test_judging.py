"""How many candidates of a search are judged: as many as are ranked, and on as long as some are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.query.world import World, anyone

pytestmark = pytest.mark.anyio
DEPTH = 10


def wide(tmp_path: Path) -> World:
    """A caller whose searches go unfiltered, 2 x DEPTH a leg and tier."""
    world = World(tmp_path, filter_principals=5, candidates=DEPTH)
    world.principal("user:ann", *(f"audience:wiki/{i}" for i in range(10)))
    return world


def watched(run: Any) -> list[Sequence[str]]:
    """Documents whose manifests are read from now on, by call."""
    asked: list[Sequence[str]] = []
    real = run.parts.reader.manifests

    async def noting(generation: str, tenant: str, uids: Sequence[str]) -> Any:
        asked.append(uids)
        return await real(generation, tenant, uids)

    run.parts.reader.manifests = noting
    return asked


@pytest.mark.requirement("D1")
async def test_no_more_is_judged_than_is_ranked(tmp_path: Path) -> None:
    world = wide(tmp_path)
    for i in range(60):
        world.document(f"d{i:02}", "plan " * (1 + i % 7) + f"number {i} of them", tier="hot" if i % 2 else "cold")
    async with world.running() as run:
        asked = watched(run)
        reply = await run.search("plan", k=DEPTH)
    assert len(reply["hits"]) == DEPTH and reply["counts"]["sparse"] == DEPTH
    assert len(asked) == 1 and len(asked[0]) <= 2 * (DEPTH + 1) * 1.25
    assert reply["next_cursor"], "one more than is ranked was admitted"


@pytest.mark.requirement("D1", "I4")
@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
async def test_farther_ones_are_judged_where_nearer_ones_are_refused(tmp_path: Path, mode: str) -> None:
    world = wide(tmp_path)
    for i in range(15):
        world.document(f"hidden{i:02}", "plan plan plan plan", f"word{i}", rule=anyone("user:bob"))
    for i in range(5):
        world.document(f"open{i}", f"plan with several words more, number {i}")
    async with world.running() as run:
        asked = watched(run)
        ids = await run.ids("plan", k=5, mode=mode)
    assert ids and all(name.startswith("open") for name in ids) and len(ids) == 5
    assert len(asked) >= 2


@pytest.mark.requirement("I2")
async def test_nothing_about_what_is_refused_is_told(tmp_path: Path) -> None:
    """A last page has no cursor, whether or not documents lie behind it that the caller may not read."""
    replies = []
    for hidden in (0, 9):
        world = wide(tmp_path / str(hidden))
        for i in range(DEPTH):
            world.document(f"open{i}", f"plan plan number {i}")
        for i in range(hidden):
            world.document(f"hidden{i}", f"plan {i} and a good many other words around it", rule=anyone("user:bob"))
        async with world.running() as run:
            replies.append(await run.search("plan", k=DEPTH, mode="sparse"))
    bare, guarded = replies
    assert bare["next_cursor"] is None and guarded["next_cursor"] is None
    assert bare["counts"] == guarded["counts"] and len(guarded["hits"]) == DEPTH
