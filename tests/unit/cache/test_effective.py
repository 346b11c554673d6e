"""An answer was written of what held when it was written: it is not given when something came into effect since."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cache.kept import Asking
from tests.unit.cache.test_kept import passes, prepared, read
from tests.unit.query.world import World

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("B10", "B9")
@pytest.mark.parametrize("bound", ["effective_from", "effective_until"])
async def test_an_answer_is_not_given_when_a_source_came_into_effect_or_ended(world: World, bound: str) -> None:
    prepared(world)
    moment: dict[str, Any] = {bound: world.clock.now() + 30_000_000}
    world.document("rule", "the secret plan by rule", **moment)
    async with world.running() as run:
        asking = Asking(run)
        question = "What is the secret plan by rule?"
        await asking.answer(question)
        passes(world, 20)
        await read(run)
        assert (await asking.answer(question)).cached == "exact"
        passes(world, 20)
        await read(run)
        assert (await asking.answer(question)).cached == "none"
        assert (await asking.answer(question)).cached == "exact", "what was written since is kept"


@pytest.mark.requirement("B10")
async def test_an_answer_of_a_day_that_is_named_does_not_move_with_the_clock(world: World) -> None:
    prepared(world)
    world.document("rule", "the secret plan by rule", effective_until=world.clock.now() + 30_000_000)
    async with world.running() as run:
        asking = Asking(run)
        asked = {"question": "What is the secret plan by rule?", "filters": {"as_of": world.clock.now()}}
        await asking.answer(**asked)  # type: ignore[arg-type]
        passes(world, 40)
        await read(run)
        assert (await asking.answer(**asked)).cached == "exact"  # type: ignore[arg-type]
