"""A request's own way to the index, as strategies get it: its scope, filters, phrases, generation, whatever is asked.

Permissions are looked up anew for each search and each look at texts, so that a revocation counts while an expansion
still runs.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from query_service.expansion.interface import Ground, Seen
from query_service.legs import Plan
from query_service.outcome import Limits, Outcome, Stopwatch
from query_service.retrieve import Retriever
from query_service.scope import Narrowing
from query_service.supply import Folding, ResolveClosure, Supplier


@dataclass(frozen=True)
class Way:
    """What the grounds of a request are made of. ``resolve`` gives the caller's closure now, ``confirmed`` with every
    change that was applied before the call. ``plan_of(query)`` and ``passage_plan(text)`` begin the embedding."""

    retriever: Retriever
    supplier: Supplier
    narrowing: Narrowing
    k: int
    limits: Limits
    search_s: float  # of one further search
    resolve: ResolveClosure
    confirmed: ResolveClosure
    plan_of: Callable[[str], Plan]
    passage_plan: Callable[[str], Plan] | None

    def ground(self, query: str, plan: Plan, search: Callable[[], Awaitable[Outcome]]) -> Ground:
        """``search`` is the search of ``query`` itself, whose plan stands already."""

        async def retrieve(text: str) -> Outcome:
            if text == query:
                return await search()
            return await self._further(replace(self.plan_of(text), phrases=plan.phrases))

        async def near(text: str) -> Outcome:
            assert self.passage_plan is not None
            return await self._further(replace(self.passage_plan(text), phrases=plan.phrases))

        async def peek(outcome: Outcome, n: int) -> Sequence[Seen]:
            if not outcome.ranked or n < 1:
                return []
            shelf = self.supplier.shelf(
                plan, self.narrowing, outcome.ranked, self.confirmed, Folding(outcome.fold, vectors=False)
            )
            read = await shelf.fill(n, n)
            return [Seen(s.ranked, s.ranked.manifest.title, s.text.heading_path, s.text.text) for s in read[:n]]

        return Ground(retrieve, near if self.passage_plan is not None else None, peek)

    async def _further(self, plan: Plan) -> Outcome:
        try:
            closure = await self.resolve()
            limits = replace(self.limits, deadline=time.monotonic() + self.search_s)
            return await self.retriever.retrieve(plan, self.narrowing, closure, self.k, limits, Stopwatch())
        finally:
            if plan.vector is not None:
                plan.vector.cancel()
