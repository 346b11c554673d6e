"""A text that was withdrawn stays so though its page is deleted and restored before the next poll."""

from __future__ import annotations

import pytest

from pipeline.settings_sources import MediaWikiSettings
from pipeline.sources.mediawiki.rows import Row, Story
from pipeline.sources.mediawiki.site import Scope


@pytest.mark.requirement("A8", "I3")
def test_a_withdrawn_text_stays_withdrawn_past_a_deletion_and_a_restoration() -> None:
    settings = MediaWikiSettings.model_validate(
        {"name": "wiki", "tenant": "acme", "type": "mediawiki", "url": "https://wiki.example/w"}
    )
    story = Story(Scope("acme", settings), frozenset({0}))
    hidden = {"old": {"bitmask": 0}, "new": {"bitmask": 1}, "ids": [7]}
    story.tell(
        [
            Row("l1", "2026-11-30T10:00:00Z", 0, "Plan", 5, "delete", "revision", hidden),
            Row("l2", "2026-11-30T10:00:01Z", 0, "Plan", 5, "delete", "delete"),
            Row("l3", "2026-11-30T10:00:02Z", 0, "Plan", 5, "delete", "restore"),
        ]
    )
    (touched,) = story.touched
    assert touched.redacted
