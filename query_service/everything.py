"""All that a caller may read within the filters, where it fits a token budget (B14).

The work is bounded: documents are looked at in batches, and reading ends as soon as the budget is exceeded. What is
hidden is passed over and counted nowhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipeline.ports import IndexReader, TokenCounter
from query_service.cutting import joined, measure
from query_service.gate import Asked, Gate, version_of
from query_service.legs import TIERS, search_filter
from schemas.documents import Manifest, Section

FIRST = 500  # chunks of a tier that are listed at first: most scopes that fit are that small
MOST = 10_000  # then; what the store returns at once
DOCUMENTS = 100  # a batch
SECTIONS = 100  # read at once


class Standing(NamedTuple):
    """A section that belongs to the evidence, and its tokens."""

    manifest: Manifest
    section: Section
    tokens: int


class Everything:
    """One for the process; each call serves one request."""

    def __init__(self, reader: IndexReader, gate: Gate) -> None:
        self._reader = reader
        self._gate = gate

    async def read(
        self, asked: Asked, first: Sequence[str], counter: TokenCounter, budget: int
    ) -> list[Standing] | None:
        """Every section of every document in document order, the documents of ``first`` (uids) before the others; None
        where it is more than ``budget`` tokens or could not be looked through in time. Raises StoreUnavailable."""
        if not asked.closure.principals or asked.narrowing.empty:
            return []
        by_document: dict[str, list[Standing]] = {}
        seen: set[str] = set()
        left = budget
        for limit in (FIRST, MOST):
            uids, complete = await self._listed(asked, limit)
            for batch in _batches([uid for uid in uids if uid not in seen], DOCUMENTS):
                seen.update(batch)
                standing = await self._batch(asked, batch, counter, left)
                if standing is None:
                    return None
                for one in standing:
                    by_document.setdefault(one.manifest.document.uid, []).append(one)
                    left -= one.tokens
            if complete:
                break
        else:
            return None
        readable = await self._gate.readable(asked, [standing[0].manifest for standing in by_document.values()])
        kept = [standing for standing in by_document.values() if version_of(standing[0].manifest) in readable]
        places = {uid: place for place, uid in reversed(list(enumerate(first)))}

        def order(standing: list[Standing]) -> tuple[int, str, str, str]:
            manifest = standing[0].manifest
            document = manifest.document
            return places.get(document.uid, len(first)), document.source, manifest.path or manifest.title, document.id

        return [one for standing in sorted(kept, key=order) for one in standing]

    async def _listed(self, asked: Asked, limit: int) -> tuple[list[str], bool]:
        """Documents that may be in scope, and whether that is all of them."""
        where = search_filter(asked.narrowing, asked.closure)
        found = await asyncio.gather(
            *(self._reader.listing(asked.generation.name, tier, asked.tenant, where, limit) for tier in TIERS)
        )
        uids = dict.fromkeys(hit.document_uid for hits in found for hit in hits)
        return list(uids), all(len(hits) < limit for hits in found)

    async def _batch(
        self, asked: Asked, uids: Sequence[str], counter: TokenCounter, left: int
    ) -> list[Standing] | None:
        """Sections of those of the documents that the caller may read; None where they exceed what is left."""
        read = await self._reader.manifests(asked.generation.name, asked.tenant, uids)
        admitted = await self._gate.readable(asked, read.values(), asked.closure)
        manifests = [manifest for manifest in read.values() if version_of(manifest) in admitted]
        if sum(manifest.chunk_total for manifest in manifests) > left:  # each has a token at least
            return None
        out: list[Standing] = []
        for manifest in manifests:
            if time.monotonic() >= asked.deadline:
                return None
            standing = await self._document(asked, manifest, counter, left)
            if standing is None:
                return None
            out += standing
            left -= sum(one.tokens for one in standing)
        return out

    async def _document(
        self, asked: Asked, manifest: Manifest, counter: TokenCounter, left: int
    ) -> list[Standing] | None:
        out = await self._sections(asked, manifest, counter, left)
        if out is None and left > 0:
            # Its sections were gone: a newer version stands by now.
            newer = (await self._reader.manifests(asked.generation.name, asked.tenant, [manifest.document.uid])).get(
                manifest.document.uid
            )
            if newer is None or version_of(newer) == version_of(manifest):
                return None
            if not await self._gate.readable(asked, [newer], asked.closure):
                return []
            out = await self._sections(asked, newer, counter, left)
        return out

    async def _sections(
        self, asked: Asked, manifest: Manifest, counter: TokenCounter, left: int
    ) -> list[Standing] | None:
        if not manifest.sections:
            return await self._own_text(asked, manifest, counter, left)
        out: list[Standing] = []
        for ids in _batches(manifest.sections, SECTIONS):
            read = await self._reader.sections(asked.generation.name, asked.tenant, ids)
            if any(section_id not in read for section_id in ids):
                return None
            sections = [read[section_id] for section_id in ids]
            tokens = await asyncio.to_thread(_sizes, counter, [section.text for section in sections])
            out += [Standing(manifest, section, size) for section, size in zip(sections, tokens, strict=True)]
            left -= sum(tokens)
            if left < 0:
                return None
        return out

    async def _own_text(
        self, asked: Asked, manifest: Manifest, counter: TokenCounter, left: int
    ) -> list[Standing] | None:
        """A document without sections: its chunks in order, as one."""
        name = asked.generation.name
        entries = list(manifest.chunks)
        if manifest.pages:
            entries += await self._reader.page_span(name, manifest, 0, manifest.chunk_total)
        ids = [entry.chunk_id for entry in entries if not entry.summary]
        if not ids:
            return []
        texts = await self._reader.chunks(name, asked.tenant, ids)
        if any(chunk_id not in texts for chunk_id in ids):
            return None
        text = joined([texts[chunk_id].text for chunk_id in ids])
        tokens = await asyncio.to_thread(measure, counter, text)
        section = Section(section_id="", ordinal=0, heading_path=texts[ids[0]].heading_path, text=text)
        return [Standing(manifest, section, tokens)] if tokens <= left else None


def _sizes(counter: TokenCounter, texts: Sequence[str]) -> list[int]:
    return [measure(counter, text) for text in texts]


def _batches(items: Sequence[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
