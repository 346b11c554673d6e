"""What became of a document's events: steps with the time between stages, moves between tiers, what is still awaited.

Receipts hold no text. Whoever may read a document sees its steps and where it stands in the active generation;
operators are shown how it stands in the others as well, and deleted documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pipeline.ports import IndexReader
from query_service.freshness import Freshness
from query_service.receipts import TIMES
from schemas.api import TraceGeneration, TraceLane, TraceMove, TraceResponse, TraceStep
from schemas.documents import Manifest


def step(row: Mapping[str, Any]) -> TraceStep:
    """A receipt's row as a step."""
    times = {name: row[name] for name in TIMES if row[name] is not None}
    return TraceStep(
        lane=row["lane"],
        generation=row["generation"] or None,
        event_type=row["event_type"],
        version=row["version"],
        outcome=row["outcome"],
        priority=row["priority"],
        reason=row["reason"],
        times=times,
        stages_ms=between(times),
        logged_at=row["at"],
        tokens=row["tokens"],
        chunks_total=row["chunks_total"],
        chunks_embedded=row["chunks_embedded"],
        chunks_written=row["chunks_written"],
        chunks_removed=row["chunks_removed"],
    )


def between(times: Mapping[str, int]) -> dict[str, float]:
    """Milliseconds from the stage before to each stage that was passed, in the order of ``TIMES``."""
    passed = [(name.removesuffix("_at"), times[name]) for name in TIMES if name in times]
    return {name: round((at - before) / 1000, 3) for (_, before), (name, at) in pairwise(passed)}


def moves(steps: Sequence[TraceStep]) -> tuple[TraceMove, ...]:
    """The moves between the tiers among the steps, oldest first."""
    found = [
        TraceMove(generation=s.generation, at=s.times.get("visible_at", s.logged_at), chunks=s.chunks_written)
        for s in steps
        if s.outcome == "moved"
    ]
    return tuple(sorted(found, key=lambda move: (move.at or 0, move.generation or "")))


def standing(name: str, manifest: Manifest, *, active: bool) -> TraceGeneration:
    """Where a document stands in a generation."""
    return TraceGeneration(
        name=name,
        active=active,
        deleted=manifest.deleted,
        content_version=manifest.content_version,
        tier=manifest.tier,
        moving_from=manifest.moving,
        chunk_total=manifest.chunk_total,
        indexed_at=manifest.indexed_at or None,
        changed_at=manifest.changed_at or None,
    )


async def traced(
    reader: IndexReader, freshness: Freshness, tenant: str, uid: str, active: str, *, everywhere: bool, deleted: bool
) -> TraceResponse:
    """The trace of a document that the caller may be told of. ``everywhere``: of all generations. Raises
    StoreUnavailable."""
    rows = await asyncio.to_thread(freshness.trace, tenant, uid)
    lanes = await asyncio.to_thread(freshness.standing, tenant, uid, active)
    names = [active]
    if everywhere:
        known = await reader.generations()
        names += sorted(n for n, g in known.items() if n != active and g.state != "retired")
    found = await asyncio.gather(*(reader.manifests(name, tenant, [uid]) for name in names))
    steps = tuple(step(row) for row in rows)
    return TraceResponse(
        document_uid=uid,
        deleted=deleted,
        steps=steps,
        lanes=tuple(
            TraceLane(lane=lane, written=written, settled=settled, pending=(settled or 0) < written)
            for lane, written, settled in lanes
        ),
        generations=tuple(
            standing(name, manifests[uid], active=name == active)
            for name, manifests in zip(names, found, strict=True)
            if uid in manifests
        ),
        moves=moves(steps),
    )
