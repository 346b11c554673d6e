"""What was taken back while an answer is made: its words are nowhere in the reply, not even among those that are shown
as withheld."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.llm import Says
from tests.unit.answer.test_service import asking
from tests.unit.query.test_every_await import GROUP, Interrupted
from tests.unit.query.world import World, anyone

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("B9", "B8")
@pytest.mark.parametrize("how", ["rule", "membership"])
async def test_what_is_shown_as_withheld_holds_nothing_that_was_revoked(tmp_path: Path, how: str) -> None:
    world = World(tmp_path)
    world.principal("user:ann", GROUP)
    world.principal(GROUP)
    world.document(
        "hidden", "The zebra plan of the harbour begins with the eastern crane.", rule=anyone(GROUP), title="zebra"
    )
    world.document("open", "The harbour plan needs the permit of the northern lock.")
    words = (
        "The zebra plan of the harbour begins with the eastern crane.[^1][^2] "
        "The zebra plan begins with 17 cranes.[^1] "
        "The harbour plan needs the permit of the northern lock."
    )
    shown = gone = 0
    async with asking(world, otherwise=Says(words)) as run:
        cut = Interrupted(run, how)  # type: ignore[arg-type]
        for at in range(100):
            cut.begin(at)
            reply = await run.ask("With what does the zebra plan of the harbour begin?", explain=True)
            withheld = json.dumps(reply["withheld_sentences"])
            if cut.revoked_at is None:
                shown += "17 cranes" in withheld
                break
            if reply["judged_at"] > cut.revoked_at and reply["supplied"] == 2:  # the model read it
                gone += 1
                assert "crane" not in withheld, at
        else:
            raise AssertionError("more reads than expected")
    assert shown == 1 and gone
