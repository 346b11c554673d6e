"""What retrieval hands on: admitted passages with their ranks, and how the search went."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from query_service.legs import Candidate
from schemas.documents import ChunkEntry, Manifest


class Stopwatch:
    """Milliseconds by stage; a stage entered twice adds up."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._start = time.perf_counter()
        self._last = self._start

    def lap(self, stage: str) -> None:
        """Book the time since the last lap on ``stage``."""
        now = time.perf_counter()
        self.ms[stage] = self.ms.get(stage, 0.0) + (now - self._last) * 1000
        self._last = now

    def total(self) -> float:
        """Milliseconds since the start."""
        return (time.perf_counter() - self._start) * 1000


@dataclass(frozen=True)
class Limits:
    """Depths of a request: ``candidates`` a leg and tier, when to go unfiltered, and until when (monotonic s)."""

    candidates: int
    filter_principals: int
    deadline: float
    fusion: Literal["rrf", "convex"] = "rrf"
    dense_share: float = 0.5
    fold: bool = True


class Place(NamedTuple):
    """Where a listed chunk stands in its document now; what the chunk itself remembers may be older."""

    ordinal: int
    entry: ChunkEntry

    @property
    def section_ordinal(self) -> int:
        """Place of its section."""
        return self.entry.section_ordinal


class Twin(NamedTuple):
    """Another document's chunk with the passage of a hit."""

    candidate: Candidate
    manifest: Manifest
    place: Place


@dataclass(frozen=True)
class Ranked:
    """An admitted chunk with its ranks, and the equal passages for which it stands."""

    candidate: Candidate
    manifest: Manifest
    place: Place
    fused: float
    first: float = 0.0  # of the first stage, 0 to 1, after boosts
    rerank: float | None = None  # given on an earlier page, as is final
    final: float | None = None
    dense_rank: int | None = None
    sparse_rank: int | None = None
    sparse_score: float | None = None
    twins: tuple[Twin, ...] = ()

    @property
    def section_id(self) -> str:
        """Id of the section that holds the chunk now, by the manifest; empty where a damaged manifest lacks it."""
        sections = self.manifest.sections
        return sections[self.place.section_ordinal] if self.place.section_ordinal < len(sections) else ""


@dataclass
class Outcome:
    """What a request found. ``refused`` and raw counts are for metrics and the query log only."""

    ranked: list[Ranked] = field(default_factory=list)
    raw: Counter[str] = field(default_factory=Counter)
    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    starved: bool = False
    refills: int = 0
    repaired: int = 0
    fold: bool = True
    more: bool = False  # a deeper search may find more
    shown: list[Ranked] = field(default_factory=list)  # found again, on earlier pages already
    judged_at: int = 0  # the last check of permissions began then, µs
