"""What the control consumer looks up on the log before it decides: ends, heartbeats of query services, members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pipeline.bus.instances import Instance
from pipeline.bus.interface import Slot
from pipeline.clock import Clock
from pipeline.ports import IndexStore
from pipeline.settings import Settings
from schemas.topics import Topic

CHANGES = (Topic.CONTENT, Topic.ACCESS)


class Facts(Protocol):
    """All raise BusUnavailable."""

    def ends_at(self, moment: int) -> Mapping[Slot, int]:
        """Ends of content and access as they were at ``moment`` (µs)."""
        ...

    def instances(self) -> tuple[Instance, ...]:
        """Query services that live."""
        ...

    def members(self, generation: str) -> int:
        """Consumers in the generation's group."""
        ...

    def delete_group(self, generation: str) -> bool:
        """Delete the generation's group; False while it has members."""
        ...


class KafkaFacts:
    """``Facts`` on Kafka; connects anew for each question, since they are rare."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def ends_at(self, moment: int) -> Mapping[Slot, int]:
        """See ``Facts``."""
        from pipeline.bus.groups import ends_at

        return ends_at(self._settings, CHANGES, moment, self._clock)

    def instances(self) -> tuple[Instance, ...]:
        """See ``Facts``."""
        from pipeline.bus.instances import living_instances

        return living_instances(self._settings, self._clock)

    def members(self, generation: str) -> int:
        """See ``Facts``."""
        from consumers.index import group_of
        from pipeline.bus.groups import group_members

        return group_members(self._settings, group_of(generation))

    def delete_group(self, generation: str) -> bool:
        """See ``Facts``."""
        from consumers.index import group_of
        from pipeline.bus.groups import delete_group

        return delete_group(self._settings, group_of(generation))


def applied(store: IndexStore, generation: str) -> dict[Slot, int]:
    """How far the generation's index consumers are, by slot of content and access. Raises StoreUnavailable."""
    return {
        Slot(str(topic), partition): progress.offset
        for topic in CHANGES
        for partition, progress in store.read_progress("index", generation, str(topic)).items()
    }


def unapplied(done: Mapping[Slot, int], ends: Mapping[Slot, int]) -> int:
    """Records before ``ends`` that were not applied; a slot without progress has applied nothing."""
    return sum(max(0, end - done.get(slot, 0)) for slot, end in ends.items())
