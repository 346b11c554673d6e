"""Retrieval in rounds: look at what was found, ask for the piece that is missing, stop when there is none.

With a generator it reads the best passages and names one query or STOP; without one, or where it fails, the names that
the best passages hold and the question lacks are asked for. It stops when a round brings no new passage among
its best, when the same is asked again, or at a budget.
"""

from __future__ import annotations

import json

from query_service.expansion import names, prompts
from query_service.expansion.interface import Found, Seen, standing_of
from query_service.expansion.merge import merged
from query_service.expansion.run import OutOfBudget, Run
from query_service.expansion.words import query_of, same
from query_service.generate.interface import GeneratorUnavailable
from query_service.outcome import Outcome

WEIGHT = 0.5
LOOKED_AT = 4  # passages that a generator reads
NAMED_BY = 3  # passages whose names are followed without one
REPLY_TOKENS = 80


class _Stop(Exception):
    """There is nothing more to ask. ``tokens`` were used to find out."""

    def __init__(self, reason: str, tokens: int = 0, generated: bool = False) -> None:
        super().__init__(reason)
        self.tokens = tokens
        self.generated = generated


async def iterative(run: Run) -> Outcome:
    """Raises what the original search raises, and StoreUnavailable where a look at the passages fails."""
    original = await run.original()
    followups: list[Found] = []
    looked_at = run.found[0].head
    outcome = original
    failed: str | None = None
    for _ in range(run.settings.rounds):
        try:
            if not outcome.ranked:
                raise _Stop("nothing was found")
            if run.queries_left < 1:
                raise _Stop("no queries left")
            if run.left_s <= 0:
                raise _Stop("no time left")
            query: str | None = None
            basis: tuple[Seen, ...] = ()
            tokens, generated = 0, False
            if run.generator is not None and failed is None:
                try:
                    query, basis, tokens = await _generated(run, outcome, followups)
                    generated = True
                except GeneratorUnavailable as error:
                    failed = str(error)
            if query is None:
                query, basis = await _named(run, outcome, followups)
        except _Stop as stop:
            run.note("stop", _reason(str(stop), failed), generated=stop.generated, tokens=stop.tokens)
            break
        found = await run.searched(
            "followup", query, run.ground.retrieve, generated=generated, weight=WEIGHT, basis=basis,
            tokens=tokens,
        )  # fmt: skip
        new = found.head - looked_at
        looked_at |= new
        followups.append(found)
        outcome = merged(original, [(f.outcome, f.weight) for f in followups if f.outcome is not None])
        if found.outcome is None or not new:
            run.note("stop", _reason("no new passages" if found.outcome is not None else "a search failed", failed))
            break
    else:
        run.note("stop", _reason("no rounds left", failed))
    standing = await standing_of(followups, outcome, run.ground.peek)
    kept = [(f.outcome, f.weight) for f in followups if f.outcome is not None and (not f.basis or id(f) in standing)]
    return merged(original, kept)


def _reason(why: str, failed: str | None) -> str:
    return why if failed is None else f"{why}; the generator was not used: {failed}"


async def _generated(run: Run, outcome: Outcome, before: list[Found]) -> tuple[str, tuple[Seen, ...], int]:
    """Query, the passages that were read for it, tokens. Raises _Stop or GeneratorUnavailable."""
    seen = tuple(await run.ground.peek(outcome, LOOKED_AT))
    if not seen:
        raise _Stop("nothing may be read any more")
    # A query that was made of a passage repeats its words: it is told again only while that passage may be read.
    standing = await standing_of(before, outcome, run.ground.peek)
    told = [f for f in before if not f.basis or id(f) in standing]
    try:
        messages = prompts.follow_up(run.query, seen, [f.step.query for f in told])
        reply, tokens = await run.generate(messages, REPLY_TOKENS)
    except OutOfBudget as error:
        raise _Stop(str(error), generated=True) from None
    query = _query_in(reply)
    if query is None:
        stopped = reply.strip().strip(".\"'` ").upper() == prompts.STOP
        raise _Stop("the generator has enough" if stopped else "the reply held no usable query", tokens, True)
    if any(same(query, other) for other in (run.query, *(f.step.query for f in before))):
        raise _Stop("the same was asked again", tokens, True)
    basis = {s.chunk_id: s for s in (*seen, *(s for f in told for s in f.basis))}
    return query, tuple(basis.values()), tokens


def _query_in(reply: str) -> str | None:
    """The one query of a reply: JSON with it, or a single line. STOP and everything else is none."""
    text = reply.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if text.startswith("{"):
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            return None
        query = query_of(told.get("query")) if isinstance(told, dict) else None
    else:
        query = query_of(text)
    return None if query is None or query.upper().startswith(prompts.STOP) else query


async def _named(run: Run, outcome: Outcome, before: list[Found]) -> tuple[str, tuple[Seen, ...]]:
    """The question with a name that it lacks, and the passages that hold the name. Raises _Stop."""
    seen = await run.ground.peek(outcome, NAMED_BY)
    found = names.missing(run.query, seen, [f.step.query for f in before])
    if not found:
        raise _Stop("the passages name nothing new")
    return names.query_with(run.query, found[0]), found[0].basis
