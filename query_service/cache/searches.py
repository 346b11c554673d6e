"""Results of searches that are kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from query_service.cache import renew, used
from query_service.cache.kept import Keeper
from query_service.scope import Narrowing, Scope
from schemas.api import SearchRequest, SearchResponse
from schemas.generation import Generation


class Searches:
    """One for the process."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def through(
        self, scope: Scope, request: SearchRequest, narrowing: Narrowing, generation: Generation,
        search: Callable[[], Awaitable[SearchResponse]],
    ) -> SearchResponse:  # fmt: skip
        """What is kept, if it may be given now; else what ``search`` brings, which is kept. The generation is the one
        that the search would ask. Raises StoreUnavailable, and as ``search``."""
        started = time.perf_counter()
        ticket = await self._keeper.ticket(scope, request, narrowing, generation)
        if ticket is None:
            return await search()
        entry = self._keeper.shelf.get(ticket.key)
        admitted = await self._keeper.admitted(ticket, entry) if entry is not None else None
        if admitted is not None:
            self._keeper.metrics.count("headwater_cache_total", cache="searches", outcome="hit")
            reply = SearchResponse.model_validate_json(admitted.entry.reply)
            return renew.search(reply, admitted, narrowing.as_of, (time.perf_counter() - started) * 1000)
        self._keeper.metrics.count("headwater_cache_total", cache="searches", outcome="miss")
        found = await search()
        if used.worth_keeping(found) and found.generation == generation.name:
            await self._keeper.keep(ticket, found.model_dump_json().encode(), used.of_search(found))
        else:
            self._keeper.refused(ticket)
        return found
