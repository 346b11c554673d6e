"""One document that cannot be looked for stops no deletion of others."""

from __future__ import annotations

import pytest

from tests.unit.sources.remote.scripted import UNAVAILABLE, Owned, ref


@pytest.mark.requirement("A8", "F06")
def test_one_lacking_document_that_cannot_be_had_stops_no_other_deletion() -> None:
    kb = Owned()
    for id_ in "abcdef":
        kb.script.put(id_, id_)
    kb.start()
    del kb.script.pages["b"], kb.script.pages["c"]  # no event tells it

    def before(document: object) -> None:
        if document == ref("c"):
            raise UNAVAILABLE  # 500, every time; the system answers everything else

    kb.script.before_fetch = before
    for _ in range(4):
        kb.asked.ask("listing") if hasattr(kb.asked, "ask") else setattr(kb.engine._due, "walk", 0.0)
        for _ in range(10):
            kb.passes(3, 10)
    assert kb.texts()["b"] is None
