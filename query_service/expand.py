"""A summary's hit stands for the best sections of its document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from query_service.retrieve import Ranked

SECTIONS = 3  # that take a summary's place
DOCUMENTS = 5  # whose summaries are expanded, the best ones


def expanded(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The list with each summary replaced, at its place, by its document's best passages of different sections.

    They take over the summary's fused score where theirs is lower, so that scores go on falling. A summary whose
    document has no other passage in the list stays.
    """
    out: list[Ranked] = []
    placed: set[str] = set()
    for item in ranked:
        if item.candidate.chunk_id in placed:
            continue
        if not item.place.entry.summary:
            placed.add(item.candidate.chunk_id)
            out.append(item)
            continue
        own = [
            r for r in ranked if r.candidate.document_uid == item.candidate.document_uid and not r.place.entry.summary
        ]
        best: dict[int, Ranked] = {}
        for passage in own:
            best.setdefault(passage.place.section_ordinal, passage)
        chosen = [r for r in list(best.values())[:SECTIONS] if r.candidate.chunk_id not in placed]
        if not own:
            out.append(item)
        for passage in chosen:
            placed.add(passage.candidate.chunk_id)
            out.append(replace(passage, fused=max(passage.fused, item.fused)))
    return out
