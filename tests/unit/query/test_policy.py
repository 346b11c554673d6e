"""Whom replies tell of a document's readers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.query.logged import OPERATOR
from tests.unit.query.world import World, anyone

pytestmark = pytest.mark.anyio
SECRET_GROUP = "group:wiki/merger"


@pytest.mark.requirement("A3")
@pytest.mark.parametrize("show", [True, False])
async def test_names_of_readers_are_shown_as_the_setting_says(world: World, show: bool) -> None:
    settings = world.settings
    world.settings = settings.model_copy(update={"query": settings.query.model_copy(update={"show_policy": show})})
    world.principal("user:ann")
    m = world.document("a", "the walrus plan", rule=anyone("user:ann", SECRET_GROUP, deny=["user:eve"]))
    async with world.running() as run:

        async def replies(**claims: Any) -> list[dict[str, Any]]:
            headers, found = run.headers("ann", **claims), []
            for _ in range(2):  # the second may come from the cache
                found.append((await run.post({"query": "walrus"}, **claims)).json()["hits"][0])
            at = f"/v1/documents/{m.document.uid}"
            found.append((await run.client.get(at, headers=headers)).json())
            chunk = found[0]["chunk_id"]
            found.append((await run.client.get(f"{at}/chunks/{chunk}/neighbours", headers=headers)).json())
            return found

        for reply in await replies(**OPERATOR):
            assert SECRET_GROUP in reply["access"]["clauses"][0] and reply["access"]["named"]
        for reply in await replies():
            assert (SECRET_GROUP in str(reply)) is show and reply["access"]["named"] is show
            assert len(reply["access"]["clauses"]) == 1 and reply["access"]["has_deny"]
            assert "user:eve" not in str(reply)
