"""A closed parent closes its children before any of them is read."""

from __future__ import annotations

import pytest

from pipeline.sources.remote.contract import RateLimited, Touched, child
from pipeline.sources.rules import is_within
from tests.unit.sources.remote.scripted import ANN, UNAVAILABLE, Owned, ref

FILE = child(ref("a"), "file", "f")


def closed_while(fails: list[Exception]) -> Owned:
    kb = Owned()
    kb.script.put("a", "a", f="attached")
    kb.start()
    kb.script.put("a", "a", ANN, f="attached")
    kb.script.tell(Touched(ref("a")), cursor="c1")
    later = list(fails)

    def before(document: object) -> None:
        if document == FILE and later:
            raise later.pop(0)

    kb.script.before_fetch = before
    return kb


def closed(kb: Owned) -> bool:
    """Whether the attachment is hidden, or its readers are surely among those of its parent."""
    known = kb.engine.ledger.state(FILE)
    assert known is not None and known.rule is not None
    return bool(known.holds) or is_within(known.rule, ANN)


@pytest.mark.requirement("A8", "F26")
def test_a_limit_after_the_parent_closed_leaves_no_attachment_open() -> None:
    kb = closed_while([RateLimited("429", 300)])
    kb.passes(6)
    kb.passes(100)
    parent = kb.engine.ledger.state(ref("a"))
    assert parent is not None and parent.rule == ANN  # the parent is closed ...
    assert closed(kb)  # ... and its attachment is read by everyone


@pytest.mark.requirement("A8", "F26")
def test_an_outage_after_the_parent_closed_leaves_no_attachment_open() -> None:
    kb = closed_while([UNAVAILABLE] * 1000)
    for _ in range(6):
        kb.passes(8, 5)
        kb.script.feed = [UNAVAILABLE] * 5
    assert closed(kb)
