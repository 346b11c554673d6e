"""Other wordings by a generator: the best passage of each document over all of them, fused with the original list."""

from __future__ import annotations

import asyncio

from query_service.expansion import prompts
from query_service.expansion.interface import Found
from query_service.expansion.merge import best_of_documents, merged
from query_service.expansion.run import Run
from query_service.expansion.words import distinct, queries_of
from query_service.outcome import Outcome

WORDINGS_WEIGHT = 0.7  # of all wordings together: the question as it was asked counts most
REPLY_TOKENS = 300
TEMPERATURE = 0.5


async def multi_query(run: Run) -> Outcome:
    """Raises what the original search raises; without a usable reply the original list is served."""
    original, reply, reason = await run.with_reply(_wordings(run))
    queries, tokens = reply if reply is not None else ([], 0)
    if not queries:
        run.note("multi_query", reason or "the reply held no usable query", generated=True, tokens=tokens)
        return original
    searches = [
        run.searched(
            "multi_query", query, run.ground.retrieve, generated=True, weight=WORDINGS_WEIGHT,
            tokens=tokens if number == 0 else 0,
        )
        for number, query in enumerate(queries)
    ]  # fmt: skip
    found: list[Found] = await asyncio.gather(*searches)
    best = best_of_documents([f.outcome for f in found if f.outcome is not None])
    return original if best is None else merged(original, [(best, WORDINGS_WEIGHT)])


async def _wordings(run: Run) -> tuple[list[str], int]:
    """Raises GeneratorUnavailable or OutOfBudget."""
    limit = run.queries_left
    text, tokens = await run.generate(prompts.paraphrases(run.query, limit), REPLY_TOKENS, TEMPERATURE)
    return distinct(queries_of(text), run.query)[:limit], tokens
