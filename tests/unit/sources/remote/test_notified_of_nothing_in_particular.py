"""A system without a feed is listed when it notifies of nothing in particular."""

from __future__ import annotations

import pytest

from pipeline.sources.remote.contract import Capabilities
from tests.unit.sources.remote.scripted import Owned


@pytest.mark.requirement("A1", "D4")
def test_a_notification_of_several_objects_is_looked_at_before_the_next_listing() -> None:
    kb = Owned()
    kb.script.capabilities = Capabilities("listing", push="webhook", access="poll", feed=False, child_kinds=("file",))
    kb.script.put("a", "a")
    kb.script.put("b", "b")
    kb.start()
    kb.passes(1)
    kb.script.put("a", "new")
    kb.script.put("b", "new")
    kb.engine.connector.notify(None)
    kb.passes(2)
    assert kb.texts() == {"a": "new", "b": "new"}
