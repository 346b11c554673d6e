"""The caches of a query service, put together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.ports import IndexReader
from pipeline.settings_query import CacheSettings
from query_service.barrier import Barrier
from query_service.cache.answers import AnswerCache
from query_service.cache.kept import Keeper
from query_service.cache.searches import Searches
from query_service.closure import Closures
from query_service.encoders import Encoders
from query_service.flights import Flights
from query_service.freshness import Changes, Freshness
from query_service.overlay import Overlay
from query_service.state import ServiceState
from query_service.tail import TailFactory
from schemas.topics import Topic

WAIT_S = 0.02  # a search would take no longer


@dataclass(frozen=True)
class Caches:
    """Answers and searches on one shelf, and what asks the log for its end."""

    keeper: Keeper
    answers: AnswerCache
    searches: Searches
    barrier: Barrier

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.to_thread(self.barrier.close)


def build(
    settings: CacheSettings, reader: IndexReader, overlay: Overlay, closures: Closures, freshness: Freshness,
    open_tail: TailFactory, changes: Changes, state: ServiceState, flights: Flights, encoders: Encoders, clock: Clock,
    metrics: Metrics,
) -> Caches:  # fmt: skip
    """Opens nothing."""
    barrier = Barrier(open_tail, freshness, changes, Topic.RECEIPTS, WAIT_S)
    keeper = Keeper(settings, reader, overlay, closures, freshness, clock, metrics, barrier.passed)
    return Caches(keeper, AnswerCache(keeper, state, flights, encoders), Searches(keeper), barrier)
