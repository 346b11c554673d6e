"""Texts of ranked passages, admitted once more as they are read, with copies of a passage under the best of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.clock import Clock
from pipeline.ports import ChunkText, IndexReader, Vectors
from query_service import fold
from query_service.admit import admit_document
from query_service.diversify import unit_rows
from query_service.legs import Plan
from query_service.outcome import Ranked, Twin
from query_service.overlay import Overlay
from query_service.scope import Narrowing
from schemas.access import Closure
from schemas.documents import AccessRecord, Tier

ResolveClosure = Callable[[], Awaitable[Closure]]


@dataclass
class Supplied:
    """A passage whose text was read and admitted: its ranks, the record that admitted it last, where else it stands."""

    ranked: Ranked
    record: AccessRecord
    text: ChunkText
    also: list[Twin] = field(default_factory=list)
    place: int = 0  # in the ranking
    round: int = 0  # of the check that admitted it last
    vector: Vectors | None = None  # shape (dimension,)
    first: float = 0.0  # of the first stage, diversity included
    rerank: float | None = None
    final: float = 0.0

    @property
    def chunk_id(self) -> str:
        """Of the passage."""
        return self.ranked.candidate.chunk_id

    def told(self) -> str:
        """What a model reads of it: title and headings over the passage."""
        headings = [self.ranked.manifest.title, *self.text.heading_path]
        return " > ".join(dict.fromkeys(h for h in headings if h)) + "\n" + self.text.text


@dataclass(frozen=True)
class Folding:
    """``copies``: passages nearly equal stand under the best; ``near``: the cosine from which two may be; ``vectors``:
    whether vectors are read."""

    copies: bool = True
    near: float = 0.97
    vectors: bool = False


class Supplier:
    """One for the process."""

    def __init__(self, reader: IndexReader, overlay: Overlay, clock: Clock) -> None:
        self._reader = reader
        self._overlay = overlay
        self._clock = clock

    def shelf(
        self, plan: Plan, narrowing: Narrowing, ranked: Sequence[Ranked], resolve: ResolveClosure, folding: Folding
    ) -> Shelf:
        """Of one request; nothing is read yet."""
        return Shelf(self._reader, self._overlay, self._clock, plan, narrowing, ranked, resolve, folding)


class Shelf:
    """The passages of one ranking, read from its top as far as somebody asks.

    The manifest stays the request's own: its version is whole, and a newer record still hides it where it must.
    """

    def __init__(
        self, reader: IndexReader, overlay: Overlay, clock: Clock, plan: Plan, narrowing: Narrowing,
        ranked: Sequence[Ranked], resolve: ResolveClosure, folding: Folding,
    ) -> None:  # fmt: skip
        """``resolve`` gives the caller's closure with every change applied before the call."""
        self._reader = reader
        self._overlay = overlay
        self._clock = clock
        self._plan = plan
        self._narrowing = narrowing
        self._resolve = resolve
        self._folding = folding
        self._rest = deque(enumerate(ranked))
        self._passages: dict[str, fold.Passage] = {}
        self._before: list[Supplied] = []  # on earlier pages
        self.items: list[Supplied] = []  # in the order of the ranking, as far as it was read
        self.round = 0
        self.low = 1.0  # final score of the last one, once all were given scores: what is read later stands behind
        self.judged_at = clock.now()  # the checks of the present round began then, µs

    @property
    def unread(self) -> list[Ranked]:
        """What was not read, in order, each with its final score."""
        return [replace(ranked, final=self._final(ranked)) for _, ranked in self._rest]

    async def fill(self, want: int, enough: int | None = None) -> list[Supplied]:
        """Read the next ``want`` passages, then on until ``enough`` different ones stand; returns the new ones.

        Raises StoreUnavailable.
        """
        new: list[Supplied] = []
        first = True
        while self._rest and want > 0 and (first or len(self.items) + len(new) < (enough or 0)):
            first = False
            batch = [self._rest.popleft() for _ in range(min(want, len(self._rest)))]
            texts, allowed, vectors = await self._read([ranked for _, ranked in batch])
            again: list[tuple[int, Ranked]] = []
            read: list[Supplied] = []
            for place, ranked in batch:
                item = self._item(place, ranked, texts, allowed, vectors)
                if item is not None:
                    read.append(item)
                else:
                    again += [(place, other) for other in _next_of(ranked)]
            new += self._without_copies([*self._before, *self.items, *new], read) if self._folding.copies else read
            self._rest.extendleft(reversed(again))
        # One that took a refused copy's place was read after those behind it, and stands where the copy stood.
        self.items = sorted([*self.items, *new], key=lambda item: item.place)
        return sorted(new, key=lambda item: item.place)

    async def stand(self, shown: Sequence[Ranked]) -> None:
        """Let passages of earlier pages take part in the folding: what is a copy of one does not come any more.

        Raises StoreUnavailable.
        """
        if shown and self._folding.copies:
            found = await self._read(list(shown))
            self._before = [item for ranked in shown if (item := self._item(-1, ranked, *found)) is not None]

    def _item(
        self, place: int, ranked: Ranked, texts: Mapping[str, ChunkText], allowed: Mapping[str, AccessRecord],
        vectors: Mapping[str, Vectors],
    ) -> Supplied | None:  # fmt: skip
        """None where the passage may not be read any more or is gone."""
        chunk_id = ranked.candidate.chunk_id
        text, record = texts.get(chunk_id), allowed.get(chunk_id)
        if record is None or text is None or text.document_uid != ranked.candidate.document_uid:
            return None
        also = [twin for twin in ranked.twins if twin.candidate.chunk_id in allowed]
        return Supplied(
            ranked, record, text, also, place, self.round, vectors.get(chunk_id), ranked.first, ranked.rerank,
            self._final(ranked),
        )  # fmt: skip

    def _final(self, ranked: Ranked) -> float:
        return self.low * ranked.first if ranked.final is None else ranked.final

    def arrange(self, order: Sequence[Supplied]) -> None:
        """Put all items that were read in this order; what is read later goes on behind them."""
        places = sorted(item.place for item in self.items)
        for place, item in zip(places, order, strict=True):
            item.place = place
        self.items = list(order)

    def begin_round(self) -> None:
        """What was admitted so far has to be admitted again before it leaves."""
        self.round += 1
        self.judged_at = self._clock.now()

    async def recheck(self, items: Sequence[Supplied]) -> None:
        """Admit items of an earlier round again, with records read now; the refused leave the shelf, and the copies
        under them are looked at in their place. Raises StoreUnavailable."""
        members = [m for item in items for m in (itself(item.ranked), *item.also)]
        allowed = await self._allowed(members)
        again: list[tuple[int, Ranked]] = []
        for item in items:
            record = allowed.get(item.chunk_id)
            if record is None:
                self.items.remove(item)
                standing = replace(item.ranked, twins=tuple(item.also), final=item.final)
                again += [(item.place, other) for other in _next_of(standing)]
                continue
            item.record, item.round = record, self.round
            item.also = [twin for twin in item.also if twin.candidate.chunk_id in allowed]
        self._rest.extendleft(reversed(again))

    async def give_way(self, chosen: Sequence[tuple[Supplied, Twin]]) -> None:
        """Let a copy that stands under an item take the item's place, which goes under it. Raises StoreUnavailable."""
        for item, _ in chosen:
            self.items.remove(item)
        self._rest.extendleft(
            (item.place, standing_for(replace(item.ranked, twins=tuple(item.also), final=item.final), twin))
            for item, twin in reversed(chosen)
        )
        await self.fill(len(chosen))

    async def _read(
        self, batch: list[Ranked]
    ) -> tuple[dict[str, ChunkText], dict[str, AccessRecord], dict[str, Vectors]]:
        """Texts and vectors of the batch, and by chunk id the records under which it and its twins may be read now."""
        members = [m for r in batch for m in (itself(r), *r.twins)]
        plan = self._plan
        tiers: dict[Tier, list[str]] = {}
        for ranked in batch:
            tiers.setdefault(ranked.candidate.tier, []).append(ranked.candidate.chunk_id)
        (texts, vectors), allowed = await asyncio.gather(
            self._reader.passages(plan.generation, plan.tenant, tiers, vectors=self._folding.vectors),
            self._allowed(members),
        )
        return texts, allowed, vectors

    async def _allowed(self, members: Sequence[Twin]) -> dict[str, AccessRecord]:
        uids = sorted({m.candidate.document_uid for m in members})
        records, closure = await asyncio.gather(self._reader.access(self._plan.tenant, uids), self._resolve())
        now = self._clock.now()
        allowed: dict[str, AccessRecord] = {}
        for candidate, manifest, _ in members:
            record = self._overlay.access(candidate.document_uid, records.get(candidate.document_uid))
            if record is not None and admit_document(manifest, record, closure, self._narrowing, now) is None:
                allowed[candidate.chunk_id] = record
        return allowed

    # ------------------------------------------------------------ copies

    def _without_copies(self, standing: Sequence[Supplied], read: Sequence[Supplied]) -> list[Supplied]:
        """Those of ``read`` that say something of their own; the others go under the best that says the same."""
        everything = [*standing, *read]
        dimension = next((v.shape[0] for item in everything if (v := item.vector) is not None), 1)
        rows = unit_rows([item.vector for item in everything], dimension)
        close = rows @ rows.T >= self._folding.near
        # Without a vector the words alone decide; equal texts under different headings need no close vectors.
        unknown = np.array([item.vector is None for item in everything])
        kept = list(range(len(standing)))
        for i in range(len(standing), len(everything)):
            item = everything[i]
            better = next(
                (
                    everything[j]
                    for j in kept
                    if (close[i, j] or unknown[i] or unknown[j] or _words(everything[j]) == _words(item))
                    and fold.same(self._passage(everything[j]), self._passage(item))
                ),
                None,
            )
            if better is None:
                kept.append(i)
            else:
                better.also.extend([itself(item.ranked), *item.also])
        return [everything[i] for i in kept[len(standing) :]]

    def _passage(self, item: Supplied) -> fold.Passage:
        found = self._passages.get(item.chunk_id)
        if found is None:
            found = self._passages[item.chunk_id] = fold.Passage.of(item.text.text)
        return found


def _words(item: Supplied) -> list[str]:
    return item.text.text.split()


def standing_for(ranked: Ranked, twin: Twin) -> Ranked:
    """One of the twins in the place of the passage, which is a twin of it then."""
    others = (t for t in ranked.twins if t.candidate.chunk_id != twin.candidate.chunk_id)
    return replace(
        ranked, candidate=twin.candidate, manifest=twin.manifest, place=twin.place,
        twins=(*others, itself(ranked)),
    )  # fmt: skip


def itself(ranked: Ranked) -> Twin:
    """The passage as one of those that are equal."""
    return Twin(ranked.candidate, ranked.manifest, ranked.place)


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
