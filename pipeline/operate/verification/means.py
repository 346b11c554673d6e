"""What a verification looks through: the log, the store, the bodies, searches in the shadow, the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.clock import Clock
from pipeline.ports import BodyStore, IndexStore, Record
from pipeline.settings import Settings
from schemas.api import SearchRequest, SearchResponse
from schemas.topics import Topic

Ends = dict[str, dict[int, int]]
"""Next offset by topic and partition."""


class Log(Protocol):
    """Reading the log from outside any group."""

    def ends(self, topics: Sequence[Topic]) -> Ends:
        """The ends now. Raises BusUnavailable."""
        ...

    def read(self, topic: Topic, wanted: Callable[[str | None], bool] | None = None) -> Iterator[Record]:
        """From the beginning to the end of now, in order per partition. Raises BusUnavailable."""
        ...


class Shadow(Protocol):
    """Searches of any generation as any person."""

    def search(self, tenant: str, seen_as: str, generation: str, request: SearchRequest) -> SearchResponse:
        """Raises Retry where no answer comes, ConfigError where none can."""
        ...


@dataclass
class Means:
    """The parts; tests bring their own."""

    log: Log
    store: IndexStore
    bodies: BodyStore
    shadow: Shadow
    clock: Clock
    sleep: Callable[[float], None] = time.sleep


class KafkaLog:
    """``Log`` on Kafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def ends(self, topics: Sequence[Topic]) -> Ends:
        """See ``Log``."""
        from pipeline.bus.groups import log_ends

        _, last = log_ends(self._settings, topics)
        found: Ends = {str(topic): {} for topic in topics}
        for slot, offset in last.items():
            found[slot.topic][slot.partition] = offset
        return found

    def read(self, topic: Topic, wanted: Callable[[str | None], bool] | None = None) -> Iterator[Record]:
        """See ``Log``."""
        from pipeline.bus.tail import read_compacted

        return read_compacted(self._settings, topic, wanted=wanted)
