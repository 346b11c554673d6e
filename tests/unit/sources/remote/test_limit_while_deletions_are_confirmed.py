"""A limit while told deletions are confirmed leaves what was confirmed."""

from __future__ import annotations

import pytest

from pipeline.sources.remote.contract import Changes, RateLimited, Touched
from schemas.keys import DocumentRef
from tests.unit.sources.remote.scripted import Owned, ref


@pytest.mark.requirement("A8", "I8")
def test_deletions_are_confirmed_across_a_limit() -> None:
    kb = Owned()
    for number in range(15):
        kb.script.put(f"p{number:02}", "text")
    for number in range(300):
        kb.script.put(f"q{number:03}", "text")
    kb.start()
    kb.settle(600)
    gone = tuple(ref(f"p{number:02}") for number in range(15))
    for one in gone:
        del kb.script.pages[one.id]
    kb.script.put("q000", "edited")
    real = Changes("c1", (Touched(ref("q000")),), gone)
    kb.script.changes = lambda cursor: Changes(cursor) if cursor == "c1" else real  # type: ignore[method-assign]
    window, used = [kb.clock.elapsed()], [0]

    def limited(document: DocumentRef) -> None:
        """Ten requests a minute."""
        now = kb.clock.elapsed()
        if now - window[0] >= 60:
            window[0], used[0] = now, 0
        used[0] += 1
        if used[0] > 10:
            raise RateLimited("429", 60 - (now - window[0]))

    kb.script.before_fetch = limited
    for _ in range(20):  # twenty minutes
        kb.passes(60.1, 20)
    assert kb.texts()["q000"] == "edited"
    assert {kb.texts()[one.id] for one in gone} == {None}
