"""What ``headwater topics`` computes from offsets."""

from __future__ import annotations

import pytest

from infra.commands.topics import Backlog, backlog, kept
from pipeline.bus.interface import Slot
from schemas.topics import Topic


def test_a_backlog_adds_the_partitions_and_names_the_furthest() -> None:
    end = {Slot("content", 0): 10, Slot("content", 1): 50, Slot("access", 0): 7}
    committed = {Slot("content", 0): 8, Slot("content", 1): 20, Slot("access", 0): 7}
    assert backlog("index.minilm", Topic.CONTENT, committed, end) == Backlog("index.minilm", 32, 30, 2)
    assert backlog("index.minilm", Topic.ACCESS, committed, end) == Backlog("index.minilm", 0, 0, 1)
    assert backlog("index.minilm", Topic.CONTROL, committed, end) is None


def test_a_reader_beyond_the_end_that_others_see_is_not_behind() -> None:
    found = backlog("access", Topic.ACCESS, {Slot("access", 0): 12}, {Slot("access", 0): 10})
    assert found is not None
    assert found.records == 0


@pytest.mark.parametrize(
    ("configuration", "shown"),
    [
        ({"cleanup.policy": "compact"}, "last of each key"),
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, "7 days"),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, "for ever"),
    ],
)
def test_retention_in_words(configuration: dict[str, str], shown: str) -> None:
    assert kept(configuration) == shown
