"""What keeps people out is told from the start, and a listing does not clear what still stands."""

from __future__ import annotations

import pytest

from pipeline.sources.remote.contract import Readership
from tests.unit.sources.remote.scripted import Owned

ALARM, PROBLEM = "namespace 3000 is restricted", "accounts x belong to no known person"


def alarmed() -> Owned:
    kb = Owned()
    kb.script.put("a", "a")
    kb.script.readers = lambda: Readership(kb.script.members, problems=(PROBLEM,), alarms=(ALARM,))  # type: ignore[method-assign]
    return kb


@pytest.mark.requirement("A8", "I12")
def test_what_keeps_readers_out_is_told_from_the_start() -> None:
    kb = alarmed()
    kb.start()
    kb.passes(20)
    assert ALARM in kb.engine.alarms and PROBLEM in kb.engine.problems


@pytest.mark.requirement("A8", "I12")
def test_a_listing_forgets_no_alarm_that_stands() -> None:
    kb = Owned()
    kb.script.put("a", "a")
    kb.start()
    kb.script.members = ()
    kb.script.readers = lambda: Readership(kb.script.members, alarms=(ALARM,))  # type: ignore[method-assign]
    kb.passes(6)
    assert ALARM in kb.engine.alarms
    kb.asked.ask("listing")
    kb.passes(1)
    assert ALARM in kb.engine.alarms
