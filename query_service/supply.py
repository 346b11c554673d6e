"""The last step before hits leave: texts, permissions once more, copies of a passage under the best of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from pipeline.clock import Clock
from pipeline.ports import ChunkText, IndexReader
from query_service import fold
from query_service.admit import admit_document
from query_service.legs import Plan
from query_service.overlay import Overlay
from query_service.retrieve import Outcome, Ranked, Twin
from query_service.scope import Narrowing
from schemas.access import Closure
from schemas.documents import AccessRecord

ResolveClosure = Callable[[], Awaitable[Closure]]


@dataclass
class Supplied:
    """A chunk that leaves: its ranks, the record that admitted it last, its text, and where else the passage stands."""

    ranked: Ranked
    record: AccessRecord
    text: ChunkText
    also: list[Twin] = field(default_factory=list)


class Supplier:
    """One for the process; each call serves one request."""

    def __init__(self, reader: IndexReader, overlay: Overlay, clock: Clock) -> None:
        self._reader = reader
        self._overlay = overlay
        self._clock = clock

    async def supply(
        self, plan: Plan, narrowing: Narrowing, outcome: Outcome, k: int, resolve: ResolveClosure
    ) -> list[Supplied]:
        """Texts of the first k passages, admitted once more with records read after ranking, each with the documents
        in which it stands as well. Raises StoreUnavailable.

        The manifest stays the request's own: its version is whole, and a newer record still hides it where it must.
        """
        supplied: list[Supplied] = []
        passages: list[fold.Passage] = []
        places: list[int] = []  # in the ranking, of each that leaves
        rest = deque(enumerate(outcome.ranked))
        outcome.judged_at = self._clock.now()
        while rest and len(supplied) < k:
            batch = [rest.popleft() for _ in range(min(k, len(rest)))]
            texts, allowed = await self._read(plan, narrowing, [ranked for _, ranked in batch], resolve)
            again: list[tuple[int, Ranked]] = []
            for place, ranked in batch:
                chunk_id, uid = ranked.candidate.chunk_id, ranked.candidate.document_uid
                text, record = texts.get(chunk_id), allowed.get(chunk_id)
                if record is None or text is None or text.document_uid != uid:
                    again += [(place, other) for other in _next_of(ranked)]
                    continue
                also = [twin for twin in ranked.twins if twin.candidate.chunk_id in allowed]
                if outcome.fold:
                    passage = fold.Passage.of(text.text)
                    better = next((s for s, p in zip(supplied, passages, strict=True) if fold.same(p, passage)), None)
                    if better is not None:
                        better.also.extend([Twin(ranked.candidate, ranked.manifest, ranked.place), *also])
                        continue
                    if len(supplied) < k:
                        passages.append(passage)
                if len(supplied) < k:
                    supplied.append(Supplied(ranked, record, text, also))
                    places.append(place)
            rest.extendleft(reversed(again))
        # One that took a refused copy's place was read after those behind it, and stands where the copy stood.
        return [one for _, one in sorted(zip(places, supplied, strict=True), key=lambda pair: pair[0])]

    async def _read(
        self, plan: Plan, narrowing: Narrowing, batch: list[Ranked], resolve: ResolveClosure
    ) -> tuple[dict[str, ChunkText], dict[str, AccessRecord]]:
        """Texts of the batch, and by chunk id the records under which it and its twins may be read now."""
        members = [m for r in batch for m in (Twin(r.candidate, r.manifest, r.place), *r.twins)]
        texts, records, closure = await asyncio.gather(
            self._reader.chunks(plan.generation, plan.tenant, [r.candidate.chunk_id for r in batch]),
            self._reader.access(plan.tenant, sorted({m.candidate.document_uid for m in members})),
            resolve(),
        )
        now = self._clock.now()
        allowed: dict[str, AccessRecord] = {}
        for candidate, manifest, _ in members:
            record = self._overlay.access(candidate.document_uid, records.get(candidate.document_uid))
            if record is not None and admit_document(manifest, record, closure, narrowing, now) is None:
                allowed[candidate.chunk_id] = record
        return texts, allowed


def _next_of(ranked: Ranked) -> list[Ranked]:
    """Who stands for the equal passages after the one that was refused."""
    if not ranked.twins:
        return []
    first, *others = ranked.twins
    return [
        replace(
            ranked, candidate=first.candidate, manifest=first.manifest, place=first.place,
            twins=tuple(others),
        )
    ]  # fmt: skip
