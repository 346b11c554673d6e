"""The cursor stays before what was left unread, whatever later looks have read."""

from __future__ import annotations

import pytest

from pipeline.sources.remote.contract import Touched
from tests.unit.sources.remote.scripted import UNAVAILABLE, Owned, ref


@pytest.mark.requirement("I9")
def test_the_cursor_waits_for_documents_that_an_outage_left_unread() -> None:
    kb = Owned()
    kb.script.put("a", "old")
    kb.start()
    stands = kb.script.pages["a"]
    stands.text = "new"  # as an edited template: no revision of the page moves, only the feed tells
    kb.script.tell(Touched(ref("a")), cursor="c1")
    kb.script.fails = [UNAVAILABLE] * 1000
    kb.passes(6, 1)  # told; its first fetch fails, the look goes on
    kb.script.tell(cursor="c2")
    kb.passes(6, 1)  # another poll meanwhile, which tells nothing
    kb.script.feed = [UNAVAILABLE] * 1000
    for _ in range(8):
        kb.passes(31, 3)  # the system is away: the first look ends unread
    assert kb.texts()["a"] == "old" and kb.position() not in ("c1", "c2")
