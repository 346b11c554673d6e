"""What a page of hits is given besides its ranking: snippets, evidence, and a suggestion where there is no hit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.clock import Clock
from pipeline.ports import IndexReader
from pipeline.settings import QuerySettings
from query_service.counters import Counters, LoadCounter
from query_service.evidence import Found, Gatherer, budget_of
from query_service.gate import Asked, Gate
from query_service.highlight import snippet
from query_service.matching import Words
from query_service.overlay import Overlay
from query_service.suggest import Suggester, Trials
from query_service.supply import Supplied
from schemas.api import SearchHit, SearchRequest
from schemas.api_ranking import Evidence, Suggestion


@dataclass(frozen=True)
class Extra:
    """What the reply shows."""

    hits: tuple[SearchHit, ...]
    evidence: Evidence | None
    suggestion: Suggestion | None


class Extras:
    """One for the process."""

    def __init__(
        self, settings: QuerySettings, reader: IndexReader, overlay: Overlay, clock: Clock, load: LoadCounter
    ) -> None:
        gate = Gate(reader, overlay, clock)
        self._settings = settings
        self._gate = gate
        self._gatherer = Gatherer(reader, gate, Counters(load))
        self._suggester = Suggester(reader, gate)

    def check(self, request: SearchRequest) -> None:
        """Raises FieldError for what cannot be asked for here."""
        budget_of(request, self._settings)

    async def of(
        self, request: SearchRequest, asked: Asked, page: Sequence[Supplied], hits: Sequence[SearchHit], trials: Trials
    ) -> Extra:
        """``hits`` are those of ``page``, in its order. Raises FieldError or StoreUnavailable."""
        evidence = suggestion = None
        if request.evidence != "none":
            found = [found_of(item) for item in page]
            # Half of the time that is left: what cannot be looked through by then is answered with the hits' sections.
            half = (time.monotonic() + asked.deadline) / 2
            asked = replace(asked, deadline=half)
            budget = budget_of(request, self._settings)
            evidence = await self._gatherer.gather(request.evidence, asked, found, budget)
            hits = await self._still(asked, page, hits)
        if not hits and request.cursor is None:  # after the last page nothing is missing
            suggestion = await self._suggester.suggest(request, asked, trials)
        return Extra(self._with_snippets(request, hits), evidence, suggestion)

    async def _still(self, asked: Asked, page: Sequence[Supplied], hits: Sequence[SearchHit]) -> list[SearchHit]:
        """The hits after the time that evidence took: one that was taken away meanwhile does not leave beside it."""
        manifests = [m for item in page for m in (item.ranked.manifest, *(twin.manifest for twin in item.also))]
        readable = {uid for uid, _ in await self._gate.readable(asked, manifests)}
        return [
            hit.model_copy(update={"also": tuple(a for a in hit.also if a.document_uid in readable)})
            for hit in hits
            if hit.document_uid in readable
        ]

    def _with_snippets(self, request: SearchRequest, hits: Sequence[SearchHit]) -> tuple[SearchHit, ...]:
        if not request.snippets:
            return tuple(hits)
        words = Words.of(request.query)
        limit = self._settings.snippet_chars
        return tuple(hit.model_copy(update={"snippet": snippet(hit.text, words, limit)}) for hit in hits)


def found_of(item: Supplied) -> Found:
    """A hit that leaves, as evidence needs it."""
    ranked, text = item.ranked, item.text
    return Found(
        chunk_id=text.chunk_id,
        ordinal=ranked.place.ordinal,
        text=text.text,
        section_id=ranked.section_id,
        manifest=ranked.manifest,
        heading_path=text.heading_path,
    )
