"""Answers that are kept: ``query_service.answer.cached.KeptAnswers``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Literal

import numpy as np

from pipeline.errors import Retry
from query_service.answer.stale import behind
from query_service.cache import renew, used
from query_service.cache.kept import Admitted, Keeper, Ticket
from query_service.cache.shelf import Asked, Kept
from query_service.cache.signature import Signature
from query_service.encoders import Encoders
from query_service.flights import Flights
from query_service.scope import Scope, narrow
from query_service.state import ServiceState
from schemas.api import SearchResponse
from schemas.api_answer import AnswerRequest, AnswerResponse
from schemas.generation import Generation

# The ticket of the request that is being answered, from ``find`` to ``keep``: both run in the task of the request.
_ticket: ContextVar[tuple[Ticket, Asked | None] | None] = ContextVar("answer_ticket", default=None)


class AnswerCache:
    """One for the process."""

    def __init__(self, keeper: Keeper, state: ServiceState, flights: Flights, encoders: Encoders) -> None:
        self._keeper, self._state, self._flights, self._encoders = keeper, state, flights, encoders

    async def find(self, scope: Scope, request: AnswerRequest) -> AnswerResponse | None:
        """An answer that was given before to the same question, or to one that means the same, if every document it
        was made from may be read now in that version. Raises FieldError, NotReady or StoreUnavailable."""
        started = time.perf_counter()
        _ticket.set(None)
        generation = await self._state.current()
        with self._flights.on(generation.name):
            narrowing = narrow(scope, request.filters, self._keeper.clock.now())
            ticket = await self._keeper.ticket(scope, request, narrowing, generation)
            if ticket is None:
                return None
            reply = await self._exact(ticket, started)
            asked: Asked | None = None
            if reply is None and self._keeper.settings.semantic and request.mode != "sparse":
                asked = await self._asked(generation, request.question)
                reply = await self._near(ticket, asked, started) if asked is not None else None
        if reply is None:
            self._count("miss")
            _ticket.set((ticket, asked))
        return reply

    async def keep(self, scope: Scope, request: AnswerRequest, answer: AnswerResponse, found: SearchResponse) -> None:
        """Keep the answer to a request that ``find`` had nothing for, in the same task. ``found`` is the search that it
        rests on. Nothing is kept where anything changed since ``find``. Raises StoreUnavailable."""
        held = _ticket.get()
        _ticket.set(None)
        if held is None or held[0].scope != scope or held[0].request != request:
            return
        ticket, asked = held
        if found.generation == ticket.key.generation and used.answer_worth_keeping(answer, found):
            await self._keeper.keep(ticket, answer.model_dump_json().encode(), used.of_answer(answer, found), asked)
        else:
            self._keeper.refused(ticket)

    # ------------------------------------------------------------ looking

    async def _exact(self, ticket: Ticket, started: float) -> AnswerResponse | None:
        entry = self._keeper.shelf.get(ticket.key)
        return await self._given(ticket, entry, started, "exact") if entry is not None else None

    async def _near(self, ticket: Ticket, asked: Asked, started: float) -> AnswerResponse | None:
        entry = nearest(asked, self._keeper.shelf.group(ticket.key), self._keeper.settings.semantic_threshold)
        if entry is None:
            return None
        self._keeper.shelf.get(entry.key)  # it was used
        return await self._given(ticket, entry, started, "semantic")

    async def _given(
        self, ticket: Ticket, entry: Kept, started: float, cached: Literal["exact", "semantic"]
    ) -> AnswerResponse | None:
        admitted = await self._keeper.admitted(ticket, entry)
        if admitted is None or self._behind(ticket, admitted):
            return None
        self._count("hit")
        if cached == "semantic":
            self._keeper.metrics.count("headwater_cache_total", cache="semantic", outcome="hit")
        reply = AnswerResponse.model_validate_json(entry.reply)
        took = (time.perf_counter() - started) * 1000
        return renew.answer(reply, admitted, ticket.narrowing.as_of, took, cached)

    def _behind(self, ticket: Ticket, admitted: Admitted) -> bool:
        """Whether a source is further behind than the request accepts: whether to refuse is the service's matter."""
        limit = ticket.request.max_staleness_s if isinstance(ticket.request, AnswerRequest) else None
        if limit is None:
            return False
        sources = {u.source for u in admitted.entry.used} | set(ticket.request.filters.sources or ())
        named = [source for source in sources if source is not None]
        return behind(limit, named, admitted.complete_until, admitted.now)

    async def _asked(self, generation: Generation, question: str) -> Asked | None:
        """None where the encoder is away: the search will say so. Its vector is remembered for the search."""
        signature = Signature.of(question)
        if not signature.words:
            return None
        try:
            return Asked(await self._encoders.embed(generation, question), signature)
        except Retry:
            return None

    def _count(self, outcome: str) -> None:
        self._keeper.metrics.count("headwater_cache_total", cache="answers", outcome=outcome)


def nearest(asked: Asked, entries: Sequence[Kept], threshold: float) -> Kept | None:
    """Of the entries whose question has an equal signature and a cosine of ``threshold`` or more the nearest one."""
    alike = [(e.asked.vector, e) for e in entries if e.asked is not None and e.asked.signature == asked.signature]
    if not alike:
        return None
    cosines = np.vstack([vector for vector, _ in alike]) @ asked.vector[0]  # unit vectors, shape (n,)
    best = int(np.argmax(cosines))
    return alike[best][1] if float(cosines[best]) >= threshold else None
