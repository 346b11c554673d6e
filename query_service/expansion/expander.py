"""Picks the strategy of a request and counts what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from pipeline.observe import Metrics
from pipeline.settings_query import ExpansionSettings
from query_service.expansion.decompose import parts
from query_service.expansion.hyde import hyde
from query_service.expansion.interface import Expanded, Ground
from query_service.expansion.iterative import iterative
from query_service.expansion.merge import merged
from query_service.expansion.multi_query import multi_query
from query_service.expansion.run import Run
from query_service.generate.interface import Generator
from query_service.outcome import Outcome
from schemas.api_ranking import Expansion

PART_WEIGHT = 0.5


async def decompose(run: Run) -> Outcome:
    """The question and its parts, side by side. Raises what the original search raises."""
    queries = parts(run.query, run.settings.queries)
    first = asyncio.ensure_future(run.original())
    others = [
        asyncio.ensure_future(
            run.searched("decomposed", part, run.ground.retrieve, generated=False, weight=PART_WEIGHT)
        )
        for part in queries
    ]
    try:
        original = await first
        found = await asyncio.gather(*others)
    finally:
        for task in (first, *others):
            task.cancel()
    if not queries:
        run.note("stop", "the question has no parts")
    return merged(original, [(f.outcome, f.weight) for f in found if f.outcome is not None])


_STRATEGIES: Mapping[str, Callable[[Run], Awaitable[Outcome]]] = {
    "decompose": decompose,
    "multi_query": multi_query,
    "hyde": hyde,
    "iterative": iterative,
}


class Expander:
    """One for the process; each call serves one request."""

    def __init__(self, settings: ExpansionSettings, generator: Generator | None, metrics: Metrics) -> None:
        self._settings = settings
        self._generator = generator
        self._metrics = metrics

    @property
    def budget_s(self) -> float:
        """Seconds that an expanded search may take besides its deadline."""
        return self._settings.budget_s

    async def expand(self, kind: Expansion, query: str, ground: Ground) -> Expanded:
        """The merged list of the query and of what was thought of besides. ``none`` searches once and has no steps.

        Raises what a search without expansion raises. A generator that is absent or fails is said in the steps.
        """
        if kind == "none":
            return Expanded(await ground.retrieve(query))
        run = Run(query, ground, self._settings, self._generator)
        outcome = await _STRATEGIES[kind](run)
        found = run.steps()
        less = any(f.step.reason is not None and f.step.kind != "stop" for f in found)
        self._metrics.count("headwater_expansions_total", kind=kind, outcome="less" if less else "whole")
        return Expanded(outcome, found, run.usage)
