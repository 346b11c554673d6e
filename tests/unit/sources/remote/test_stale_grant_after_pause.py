"""What waited before a pause is not given before the source was asked again."""

from __future__ import annotations

import pytest

from pipeline.ports import SourceMembership
from pipeline.sources.remote.contract import Readership, Touched
from schemas.access import AccessRule
from tests.unit.sources.remote.scripted import UNAVAILABLE, Owned, ref

TEAM = "audience:kb/team"


@pytest.mark.requirement("A8", "I12")
def test_what_waited_before_a_pause_is_not_given_after_it_unseen() -> None:
    kb = Owned()
    kb.throttled, kb.applied = True, dict.fromkeys(range(64), 10000)
    kb.script.put("a", "a", AccessRule.any_of(TEAM))
    kb.script.members = (SourceMembership("acme", "user:ann", (TEAM,)), SourceMembership("acme", "user:bob", ()))
    kb.start()
    kb.applied = {}
    kb.script.put("a", "another text", AccessRule.any_of(TEAM))
    kb.script.tell(Touched(ref("a")), cursor="c1")
    kb.script.members = (SourceMembership("acme", "user:ann", (TEAM,)), SourceMembership("acme", "user:bob", (TEAM,)))
    kb.passes(6)
    assert kb.log.parents()["user:bob"] == (), "it waits for the index"
    kb.asked.ask("pause")
    kb.settle(3)
    kb.script.members = (SourceMembership("acme", "user:ann", (TEAM,)), SourceMembership("acme", "user:bob", ()))

    def away() -> Readership:
        raise UNAVAILABLE

    kb.script.readers = away  # type: ignore[method-assign]
    kb.applied = dict.fromkeys(range(64), 10000)
    kb.asked.ask("resume")
    kb.settle(20)
    assert kb.log.parents()["user:bob"] == ()
