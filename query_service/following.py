"""The ranking of a later page: what the pages before left over, then what a deeper search finds, and nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from query_service.legs import Candidate, Plan
from query_service.outcome import Limits, Outcome, Ranked, Stopwatch
from query_service.paging import Page
from query_service.retrieve import GROWTH, MAX_LIMIT, Retriever
from query_service.scope import Narrowing
from schemas.access import Closure

Weighted = Callable[[Sequence[Ranked]], list[Ranked]]


class Following:
    """One for the process; each call serves one request."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever

    async def retrieve(
        self, plan: Plan, narrowing: Narrowing, closure: Closure, k: int, limits: Limits, watch: Stopwatch, page: Page,
        weighted: Weighted, *, deeper: bool = True,
    ) -> Outcome:  # fmt: skip
        """All admitted candidates that no earlier page showed, in the order of the first page and then by rank.

        Each is admitted at this moment. A passage whose document changed meanwhile is replaced by that document's best
        one. Without ``deeper`` the list ends with what the first page ranked. Raises StoreUnavailable.
        """
        depth = min(MAX_LIMIT, max(limits.candidates, len(page.shown) + 2 * k))
        while True:
            at = replace(limits, candidates=depth)
            outcome = await self._retriever.retrieve(plan, narrowing, closure, k, at, watch)
            ranked = weighted(outcome.ranked)
            kept, used = await self._kept(plan, narrowing, closure, page, ranked, limits)
            low = min([page.low, *(r.final for r in kept if r.final is not None)])
            rest = [
                replace(r, final=low * r.first)
                for r in ranked
                if (deeper or page.cut) and r.candidate.chunk_id not in used and not _shown(r, page)
            ]
            outcome.shown = [r for r in ranked if _shown(r, page)]
            outcome.ranked = [*kept, *rest]
            watch.lap("follow")
            outcome.more = deeper and outcome.more and depth < MAX_LIMIT
            if len(outcome.ranked) > k or not outcome.more or time.monotonic() >= limits.deadline:
                return outcome
            depth = min(MAX_LIMIT, depth * GROWTH)

    async def _kept(
        self, plan: Plan, narrowing: Narrowing, closure: Closure, page: Page, ranked: Sequence[Ranked], limits: Limits
    ) -> tuple[list[Ranked], set[str]]:
        """What is left of the first ranking, and the chunk ids that it takes up."""
        at = {m: r for r in reversed(ranked) for m in (*(t.candidate.chunk_id for t in r.twins), r.candidate.chunk_id)}
        missing = [
            Candidate(k.chunk_id, k.document_uid, "hot", exact=k.exact) for k in page.kept if k.chunk_id not in at
        ]
        waiting = {k.chunk_id for k in page.kept}
        again = await self._retriever.again(
            plan, narrowing, closure, missing, limits, lambda chunk_id: chunk_id in waiting or page.showed(chunk_id)
        )
        found: list[Ranked] = []
        used: set[str] = set()
        for one in page.kept:
            now = at.get(one.chunk_id) or again.get(one.chunk_id)
            if now is None or now.candidate.chunk_id in used or _shown(now, page):
                continue
            used.add(now.candidate.chunk_id)
            found.append(one.onto(now))
        return found, used


def _shown(ranked: Ranked, page: Page) -> bool:
    """Whether an earlier page showed the passage, or one equal to it."""
    return page.showed(ranked.candidate.chunk_id) or any(page.showed(t.candidate.chunk_id) for t in ranked.twins)
