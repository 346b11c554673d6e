"""What the broker knows of topics' ends and of groups' committed offsets, for people who look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipeline.bus.interface import Slot
from pipeline.bus.tail import KafkaTail
from pipeline.bus.topics import administrator
from pipeline.settings import Settings
from schemas.topics import TOPICS, Topic


def log_ends(settings: Settings, topics: Sequence[Topic]) -> tuple[dict[Slot, int], dict[Slot, int]]:
    """First and next offset of each slot. Raises BusUnavailable.

    Their difference bounds the records from above: compaction and the marks of transactions leave gaps.
    """
    return _positions(settings, topics, "beginning"), _positions(settings, topics, "end")


def _positions(settings: Settings, topics: Sequence[Topic], since: Literal["beginning", "end"]) -> dict[Slot, int]:
    tail = KafkaTail(settings, topics, since=since)
    try:
        return tail.positions()
    finally:
        tail.close()


def committed_offsets(settings: Settings) -> dict[str, dict[Slot, int]]:
    """Committed offsets of the namespace's groups, named without the namespace. Raises BusUnavailable."""
    prefix = f"{settings.namespace}."
    logical = {spec.topic.physical(settings.namespace): str(spec.topic) for spec in TOPICS}
    with administrator(settings) as admin:
        names = sorted(str(group["group_id"]) for group in admin.list_groups())
        ours = [name for name in names if name.startswith(prefix)]
        found = admin.list_group_offsets(ours) if ours else {}
    return {
        group.removeprefix(prefix): {
            Slot(logical[tp.topic], tp.partition): int(committed.offset)
            for tp, committed in offsets.items()
            if tp.topic in logical and committed.offset >= 0
        }
        for group, offsets in sorted(found.items())
    }
