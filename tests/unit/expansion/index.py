"""A few passages in memory, ranked by shared words, and who may read them: a ground without a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from pipeline.errors import StoreUnavailable
from pipeline.settings_query import ExpansionSettings
from query_service.expansion.interface import Ground, Seen
from query_service.expansion.run import Run
from query_service.expansion.words import content
from query_service.generate.interface import Generator
from query_service.legs import Candidate
from query_service.outcome import Outcome, Ranked, Twin


def ranked(name: str, *, fused: float = 1.0, document: str | None = None, **fields: Any) -> Ranked:
    """A ranked passage; only what merging and looking at texts read of it is real."""
    exact, distance = fields.pop("exact", False), fields.pop("distance", 0.5)
    candidate = Candidate(name, document or f"doc-{name}", "hot", distance=distance, sparse=True, exact=exact)
    return Ranked(candidate, cast(Any, SimpleNamespace(title=name)), cast(Any, None), fused=fused, **fields)


def twin(name: str) -> Twin:
    """An equal passage of another document."""
    return Twin(Candidate(name, f"doc-{name}", "hot"), cast(Any, None), cast(Any, None))


def outcome(*items: Ranked | str, **fields: Any) -> Outcome:
    """A list of passages, best first."""
    return Outcome(ranked=[ranked(i) if isinstance(i, str) else i for i in items], **fields)


def names(found: Outcome) -> list[str]:
    """Chunk ids in order."""
    return [r.candidate.chunk_id for r in found.ranked]


@dataclass
class Index:
    """Passages by name. ``hidden`` ones are neither found nor seen; ``fails`` are queries that the store refuses."""

    passages: dict[str, str]
    hidden: set[str] = field(default_factory=set)
    fails: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    peeks: int = 0
    dense: bool = True
    on_retrieve: Any = None

    def _found(self, text: str) -> Outcome:
        words = set(content(text))
        scores = {
            name: len(words & set(content(passage)))
            for name, passage in self.passages.items()
            if name not in self.hidden
        }
        order = sorted((n for n in scores if scores[n]), key=lambda n: (-scores[n], n))
        return outcome(*(ranked(n, dense_rank=r, sparse_rank=r) for r, n in enumerate(order[:3], start=1)))

    async def retrieve(self, query: str) -> Outcome:
        self.asked.append(query)
        if query in self.fails:
            raise StoreUnavailable("down")
        found = self._found(query)
        if self.on_retrieve is not None:
            await self.on_retrieve(len(self.asked))
        return found

    async def near(self, text: str) -> Outcome:
        self.compared.append(text)
        return self._found(text)

    async def peek(self, found: Outcome, n: int) -> Sequence[Seen]:
        self.peeks += 1
        readable = [r for r in found.ranked if r.candidate.chunk_id not in self.hidden]
        return [Seen(r, r.candidate.chunk_id, (), self.passages[r.candidate.chunk_id]) for r in readable[:n]]

    def ground(self) -> Ground:
        return Ground(self.retrieve, self.near if self.dense else None, self.peek)

    def run(self, query: str, generator: Generator | None = None, **settings: Any) -> Run:
        return Run(query, self.ground(), ExpansionSettings(**settings), generator)
