"""What the broker knows of topics' ends and of groups: their committed offsets, their members, their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipeline.bus.interface import Slot
from pipeline.bus.tail import KafkaTail
from pipeline.bus.topics import administrator
from pipeline.clock import Clock, SystemClock
from pipeline.errors import BusUnavailable
from pipeline.settings import Settings
from schemas.topics import TOPICS, Topic


def log_ends(settings: Settings, topics: Sequence[Topic]) -> tuple[dict[Slot, int], dict[Slot, int]]:
    """First and next offset of each slot. Raises BusUnavailable.

    Their difference bounds the records from above: compaction and the marks of transactions leave gaps.
    """
    return _positions(settings, topics, "beginning"), _positions(settings, topics, "end")


def ends_at(settings: Settings, topics: Sequence[Topic], moment: int, clock: Clock | None = None) -> dict[Slot, int]:
    """Of each slot the end that it had at ``moment`` (µs). Raises BusUnavailable.

    Where compaction removed what came next, that is the first record that still lies behind it.
    """
    clock = clock if clock is not None else SystemClock()
    return _positions(settings, topics, max(0, clock.now() - moment) / 1_000_000)


def _positions(
    settings: Settings, topics: Sequence[Topic], since: float | Literal["beginning", "end"]
) -> dict[Slot, int]:
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


def group_members(settings: Settings, group: str) -> int:
    """Members of a group named without the namespace; 0 where there is no such group. Raises BusUnavailable."""
    name = f"{settings.namespace}.{group}"
    with administrator(settings) as admin:
        found = admin.describe_groups([name]).get(name, {})
    return len(found.get("members") or ())


def delete_group(settings: Settings, group: str) -> bool:
    """Delete a group with its offsets; False while it has members. One that is gone is no error."""
    name = f"{settings.namespace}.{group}"
    with administrator(settings) as admin:
        answer = dict(admin.delete_groups([name])).get(name, "OK")
    if answer in ("OK", "GroupIdNotFoundError"):
        return True
    if answer == "NonEmptyGroupError":
        return False
    raise BusUnavailable(f"Kafka: deleting group {name}: {answer}")
