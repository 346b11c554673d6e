"""One version of each document in a list that several looks at the index came to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipeline.ports import IndexReader
from query_service.outcome import Place, Ranked, Twin
from schemas.documents import Manifest


async def one_version(reader: IndexReader, generation: str, ranked: Sequence[Ranked]) -> list[Ranked]:
    """The list with every document in the newest of its manifests in it. A passage that this one does not list is left
    out, or an equal passage elsewhere stands in its place. Raises StoreUnavailable.

    Each look admits by the manifests that it reads itself, and a document may be changed between two of them.
    """
    newest: dict[str, Manifest] = {}
    mixed: set[str] = set()
    for member in _members(ranked):
        uid, manifest = member.candidate.document_uid, member.manifest
        known = newest.setdefault(uid, manifest)
        if known.content_version != manifest.content_version:
            mixed.add(uid)
            if manifest.content_version > known.content_version:
                newest[uid] = manifest
    if not mixed:
        return list(ranked)
    wanted: dict[str, set[str]] = {}
    for member in _members(ranked):
        if member.candidate.document_uid in mixed:
            wanted.setdefault(member.candidate.document_uid, set()).add(member.candidate.chunk_id)
    places = {uid: await _places(reader, generation, newest[uid], ids) for uid, ids in wanted.items()}

    def current(member: Twin) -> Twin | None:
        uid = member.candidate.document_uid
        if uid not in mixed or member.manifest is newest[uid]:
            return member
        place = places[uid].get(member.candidate.chunk_id)
        return None if place is None else Twin(member.candidate, newest[uid], place)

    out: list[Ranked] = []
    for r in ranked:
        standing = [m for m in map(current, (Twin(r.candidate, r.manifest, r.place), *r.twins)) if m is not None]
        if standing:
            best, *rest = standing
            out.append(
                replace(r, candidate=best.candidate, manifest=best.manifest, place=best.place, twins=tuple(rest))
            )
    return out


def _members(ranked: Sequence[Ranked]) -> Iterable[Twin]:
    for r in ranked:
        yield Twin(r.candidate, r.manifest, r.place)
        yield from r.twins


async def _places(reader: IndexReader, generation: str, manifest: Manifest, ids: set[str]) -> dict[str, Place]:
    if manifest.pages:
        entries = await reader.page_entries(generation, manifest, sorted(ids))
        return {chunk_id: Place(entry.ordinal, entry) for chunk_id, entry in entries.items()}
    return {e.chunk_id: Place(at, e) for at, e in enumerate(manifest.chunks) if e.chunk_id in ids}
