"""A withdrawn text stays withdrawn, whoever reads its document next."""

from __future__ import annotations

import pytest

from pipeline.sources.remote.contract import Touched
from schemas.events import AccessSet, ContentUpserted, HoldChanged
from tests.unit.sources.remote.scripted import UNAVAILABLE, Owned, ref


def shown_again(kb: Owned, id_: str = "a") -> bool:
    """Whether the newest hold is lifted while no ``not_before`` keeps the first content (with the secret) back."""
    first = next(e.version for e in kb.log.content() if isinstance(e, ContentUpserted) and e.document.id == id_)
    held, not_before = False, 0
    for event in kb.log.access():
        if event.document.id != id_:  # type: ignore[attr-defined]
            continue
        if isinstance(event, HoldChanged):
            if held and not event.active and not_before <= first:
                return True
            held = event.active
        elif isinstance(event, AccessSet):
            not_before = max(not_before, event.not_before)
    return False


def withdrawn() -> Owned:
    kb = Owned()
    kb.script.put("a", "the password is hunter2")
    kb.script.put("b", "b")
    kb.start()
    kb.script.put("a", "text without it")
    return kb


@pytest.mark.requirement("A8", "I3")
def test_a_stuck_document_that_the_sweep_reads_first_stays_withdrawn() -> None:
    """The system fails to give it for a moment, so it is hidden; then it is notified, edited or swept."""
    kb = withdrawn()
    kb.script.tell(Touched(ref("a"), None, redacted=True), cursor="c1")
    kb.script.fails = [UNAVAILABLE] * 6
    for _ in range(8):
        kb.passes(8, 5)
        if kb.hidden():
            break
    assert kb.hidden() == {"a"}
    kb.engine.connector.notify(ref("a"))  # a webhook that names it
    kb.passes(1)
    assert kb.texts()["a"] == "text without it" and not shown_again(kb)


@pytest.mark.requirement("A8", "I3")
def test_a_stuck_document_stays_withdrawn_over_a_restart() -> None:
    """The cursor went on, so nobody tells the owner again."""
    kb = withdrawn()
    kb.script.tell(Touched(ref("a"), None, redacted=True), cursor="c1")
    kb.script.fails = [UNAVAILABLE] * 6
    for _ in range(8):
        kb.passes(8, 5)
        if kb.hidden():
            break
    assert kb.hidden() == {"a"}
    kb.start()
    kb.passes(1)
    assert kb.texts()["a"] == "text without it" and not shown_again(kb)


@pytest.mark.requirement("A8", "I3")
def test_a_withdrawn_document_that_cannot_be_read_stays_withdrawn_when_it_can() -> None:
    kb = withdrawn()
    kb.script.forbidden.add("a")
    kb.script.tell(Touched(ref("a"), None, redacted=True), cursor="c1")
    kb.passes(6)
    assert kb.hidden() == {"a"}
    kb.script.forbidden.clear()
    kb.script.tell(Touched(ref("a")), cursor="c2")
    kb.passes(6)
    assert kb.texts()["a"] == "text without it" and not shown_again(kb)


@pytest.mark.requirement("A8", "I3")
def test_a_withdrawn_document_that_is_deleted_and_restored_stays_withdrawn() -> None:
    kb = withdrawn()
    stands = kb.script.pages.pop("a")
    kb.script.tell(Touched(ref("a"), None, redacted=True), cursor="c1")
    kb.passes(6, 1)
    assert kb.hidden() == {"a"}
    kb.script.pages["a"] = stands
    kb.passes(1.1)  # the second look
    assert kb.texts()["a"] == "text without it" and not shown_again(kb)
