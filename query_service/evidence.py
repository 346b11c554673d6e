"""Evidence for a generator (B6, B14): the sections of the hits, or all that the caller may read, under a token budget.

Sections are read after their hits were admitted, and their documents are admitted once more after the read, so nothing
leaves that was taken away meanwhile (invariant 3). Only what the caller may read is counted anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pipeline.ports import IndexReader, TokenCounter
from pipeline.settings import QuerySettings
from query_service.assemble import in_effect
from query_service.counters import Counters
from query_service.cutting import Part, cut, joined, locate, measure
from query_service.everything import Everything, Standing
from query_service.gate import Asked, Gate, version_of
from query_service.scope import FieldError
from schemas.api import SearchRequest
from schemas.api_ranking import Evidence, EvidenceMode, EvidencePassage
from schemas.documents import Manifest, Section

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """A hit as evidence needs it. ``section_id`` is empty where its document has no sections."""

    chunk_id: str
    ordinal: int
    text: str
    section_id: str
    manifest: Manifest
    heading_path: tuple[str, ...] = ()

    @property
    def uid(self) -> str:
        """Of its document."""
        return self.manifest.document.uid


@dataclass
class Wanted:
    """A section to hand on, with its hits, best first. Without a section the hits' own texts stand for it."""

    manifest: Manifest
    section_id: str
    section: Section | None = None
    hits: list[Found] = field(default_factory=list)


def budget_of(request: SearchRequest, settings: QuerySettings) -> int:
    """Tokens that the evidence of a request may have. Raises FieldError above the configured limit."""
    if request.token_budget is None:
        return min(settings.evidence_tokens, settings.evidence_max_tokens)
    if request.token_budget > settings.evidence_max_tokens:
        raise FieldError("token_budget", f"must be {settings.evidence_max_tokens} or less here; ask for less")
    return request.token_budget


def ends_first(ranked: Sequence[T]) -> list[T]:
    """Best first, second best last: odd ranks fill from the front, even ranks from the back."""
    return [*ranked[0::2], *reversed(ranked[1::2])]


class Gatherer:
    """One for the process; each call serves one request."""

    def __init__(self, reader: IndexReader, gate: Gate, counters: Counters) -> None:
        self._reader = reader
        self._gate = gate
        self._counters = counters
        self._everything = Everything(reader, gate)

    async def gather(self, mode: EvidenceMode, asked: Asked, found: Sequence[Found], budget: int) -> Evidence:
        """Evidence of the hits, which stand best first, in ``budget`` tokens. Raises StoreUnavailable.

        ``all`` that does not fit is answered with the hits' sections, and said to be incomplete.
        """
        counter = await self._counters.of(asked.generation)
        if mode == "all":
            standing = await self._everything.read(asked, [hit.uid for hit in found], counter, budget)
            if standing is not None:
                return dated(whole(standing, found, budget), self._gate.moment(asked))
        wanted = await self._wanted(asked, found)
        evidence = dated(await asyncio.to_thread(fitted, wanted, counter, budget), self._gate.moment(asked))
        return evidence.model_copy(update={"complete": False}) if mode == "all" else evidence

    async def _wanted(self, asked: Asked, found: Sequence[Found]) -> list[Wanted]:
        """The hits' sections in the order of their best hits, whole versions only, admitted after they were read."""
        groups = _grouped(found)
        await self._fill(asked, groups)
        moved = {group.manifest.document.uid for group in groups if group.section is None and group.section_id}
        if moved:
            # A newer version stands by now and the old sections are gone: all hits of the document go by the new one.
            groups = _grouped(await self._resolved(asked, found, moved))
            await self._fill(asked, groups)
        readable = await self._gate.readable(asked, [group.manifest for group in groups])
        return [group for group in groups if version_of(group.manifest) in readable]

    async def _fill(self, asked: Asked, groups: Iterable[Wanted]) -> None:
        open_ = {group.section_id: group for group in groups if group.section_id}
        if open_:
            read = await self._reader.sections(asked.generation.name, asked.tenant, list(open_))
            for section_id, group in open_.items():
                group.section = read.get(section_id)

    async def _resolved(self, asked: Asked, found: Sequence[Found], moved: set[str]) -> list[Found]:
        """The hits with those of the moved documents under their new manifests; a hit that the new version lacks is
        dropped, and where it lacks all of them their own texts, of the version that was found, stand alone."""
        name, tenant = asked.generation.name, asked.tenant
        manifests = await self._reader.manifests(name, tenant, sorted(moved))
        new: dict[str, Found] = {}
        for uid, manifest in manifests.items():
            hits = {hit.chunk_id: hit for hit in found if hit.uid == uid}
            if manifest.pages:
                entries = await self._reader.page_entries(name, manifest, list(hits))
                places = {c: (e.ordinal, e.section_ordinal) for c, e in entries.items()}
            else:
                places = {
                    e.chunk_id: (at, e.section_ordinal) for at, e in enumerate(manifest.chunks) if e.chunk_id in hits
                }
            for chunk_id, (ordinal, section) in places.items():
                named = manifest.sections[section] if section < len(manifest.sections) else ""
                new[chunk_id] = replace(hits[chunk_id], ordinal=ordinal, section_id=named, manifest=manifest)
        kept = {hit.uid for hit in new.values()}
        out: list[Found] = []
        for hit in found:
            if hit.uid not in moved:
                out.append(hit)
            elif hit.chunk_id in new:
                out.append(new[hit.chunk_id])
            elif hit.uid not in kept:
                out.append(replace(hit, section_id=""))
        return out


def _grouped(found: Iterable[Found]) -> list[Wanted]:
    """One item a section, in the order of the first hit of each; hits without a section are one item a document."""
    groups: dict[tuple[str, str], Wanted] = {}
    for hit in found:
        group = groups.setdefault((hit.uid, hit.section_id), Wanted(hit.manifest, hit.section_id))
        if all(other.chunk_id != hit.chunk_id for other in group.hits):
            group.hits.append(hit)
    return list(groups.values())


# ---------------------------------------------------------------- under the budget (CPU only)


def fitted(wanted: Sequence[Wanted], counter: TokenCounter, budget: int) -> Evidence:
    """As many sections as fit, best first: whole where there is room, else the part around the best hit; one of which
    not even that fits is left out and the next is tried."""
    left, left_out, any_cut = budget, 0, False
    passages: list[EvidencePassage] = []
    for item in wanted:
        made = _whole(item, counter, left) or _part(item, counter, left)
        if made is None:
            left_out += 1
            continue
        part, hits, was_cut = made
        if not part.text.strip():
            continue
        left -= part.tokens
        any_cut = any_cut or was_cut
        passages.append(_passage(item, part, hits, was_cut, len(passages) + 1))
    return Evidence(
        mode="sections",
        passages=tuple(ends_first(passages)),
        tokens=budget - left,
        budget=budget,
        complete=not (left_out or any_cut),
        left_out=left_out,
    )


def whole(standing: Sequence[Standing], found: Sequence[Found], budget: int) -> Evidence:
    """Everything, in the order given."""
    hits: dict[tuple[str, str], list[Found]] = {}
    for hit in found:
        hits.setdefault((hit.uid, hit.section_id), []).append(hit)
    passages = [
        _passage(
            Wanted(manifest, section.section_id, section),
            Part(section.text, tokens, 0, len(section.text)),
            hits.get((manifest.document.uid, section.section_id), []),
            False,
            rank,
        )
        for rank, (manifest, section, tokens) in enumerate(standing, start=1)
    ]
    total = sum(passage.tokens for passage in passages)
    return Evidence(mode="all", passages=tuple(passages), tokens=total, budget=budget, complete=True)


def dated(evidence: Evidence, at: int) -> Evidence:
    """The evidence, its passages saying whether their documents are in effect at a moment (µs)."""
    judged = tuple(
        p.model_copy(update={"in_effect": in_effect(p.effective_from, p.effective_until, at)})
        for p in evidence.passages
    )
    return evidence.model_copy(update={"passages": judged})


Made = tuple[Part, list[Found], bool]


def _whole(item: Wanted, counter: TokenCounter, room: int) -> Made | None:
    text = item.section.text if item.section is not None else _own(item.hits)
    tokens = measure(counter, text)
    return (Part(text, tokens, 0, len(text)), item.hits, False) if tokens <= room else None


def _part(item: Wanted, counter: TokenCounter, room: int) -> Made | None:
    """Around the best hit that fits, with the hits that it shows."""
    if item.section is None:
        return _fewer(item.hits, counter, room)
    text = item.section.text
    places = {hit.chunk_id: locate(text, hit.text) for hit in item.hits}
    for hit in item.hits:
        at = places[hit.chunk_id]
        part = cut(text, at, room, counter) if at is not None else None
        if part is not None:
            shown = [h for h in item.hits if (p := places[h.chunk_id]) and part.start <= p[0] and p[1] <= part.end]
            return part, shown or [hit], True
    if all(place is None for place in places.values()):
        return _fewer(item.hits, counter, room, cut_off=True)
    return None


def _fewer(hits: Sequence[Found], counter: TokenCounter, room: int, *, cut_off: bool = False) -> Made | None:
    """The hits' own texts, as many of the best as fit."""
    for count in range(len(hits), 0, -1):
        text = _own(hits[:count])
        tokens = measure(counter, text)
        if tokens <= room:
            return Part(text, tokens, 0, len(text)), list(hits[:count]), cut_off or count < len(hits)
    return None


def _own(hits: Sequence[Found]) -> str:
    return joined([hit.text for hit in sorted(hits, key=lambda hit: hit.ordinal)])


def _passage(item: Wanted, part: Part, hits: Sequence[Found], was_cut: bool, rank: int) -> EvidencePassage:
    manifest, document = item.manifest, item.manifest.document
    return EvidencePassage(
        section_id=item.section_id,
        document_uid=document.uid,
        document_id=document.id,
        source=document.source,
        title=manifest.title,
        url=manifest.url,
        version=manifest.content_version,
        updated_at=manifest.updated_at,
        effective_from=manifest.effective_from,
        effective_until=manifest.effective_until,
        heading_path=item.section.heading_path if item.section is not None else hits[0].heading_path,
        text=part.text,
        tokens=part.tokens,
        cut=was_cut,
        rank=rank,
        chunk_ids=tuple(hit.chunk_id for hit in hits),
    )
