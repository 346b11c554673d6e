"""What a strategy gets and gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from query_service.generate.interface import Usage
from query_service.outcome import Outcome, Ranked
from schemas.api_ranking import Step

ORIGINAL_WEIGHT = 1.0
HEAD = 10
WITHHELD = "what it was made of may not be read any more"


@dataclass(frozen=True)
class Seen:
    """A passage whose text the caller may read at the moment of the look."""

    ranked: Ranked
    title: str
    heading_path: tuple[str, ...]
    text: str

    @property
    def chunk_id(self) -> str:
        """Of the chunk."""
        return self.ranked.candidate.chunk_id


Retrieve = Callable[[str], Awaitable[Outcome]]
Peek = Callable[[Outcome, int], Awaitable[Sequence[Seen]]]


@dataclass(frozen=True)
class Ground:
    """One caller's way to the index, scope, filters and generation included; a strategy has no other.

    ``retrieve(query)`` gives the admitted candidates of a query; phrases that the original query quotes are demanded of
    every list, others are not. ``near(text)`` gives those near a hypothetical passage, from the dense leg alone; None
    where the request has no dense leg. ``peek(outcome, n)`` reads the texts of the best n passages, admitted anew by
    records read then. All raise StoreUnavailable or EncoderUnavailable.
    """

    retrieve: Retrieve
    near: Retrieve | None
    peek: Peek


@dataclass
class Found:
    """The list of one query. ``basis`` are the passages that the query was made of: where one of them may not be read
    any more, neither the query nor its list may be used."""

    step: Step
    outcome: Outcome | None = None
    weight: float = ORIGINAL_WEIGHT
    basis: tuple[Seen, ...] = ()
    number: int = 0  # in the order in which they were begun

    @property
    def ids(self) -> set[str]:
        """Chunk ids of its list."""
        return set() if self.outcome is None else {r.candidate.chunk_id for r in self.outcome.ranked}

    @property
    def head(self) -> set[str]:
        """Chunk ids of the best of its list: the rest of it is whatever lay near."""
        return set() if self.outcome is None else {r.candidate.chunk_id for r in self.outcome.ranked[:HEAD]}


@dataclass
class Expanded:
    """The merged list, what was done for it, and what it cost."""

    outcome: Outcome
    found: list[Found] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    @property
    def steps(self) -> tuple[Step, ...]:
        """As they were taken; to be shown, they go through ``told``."""
        return tuple(f.step for f in self.found)

    async def told(self, peek: Peek) -> tuple[Step, ...]:
        """The steps as they may be shown now: without queries made of passages that the caller may no longer read."""
        standing = await standing_of([f for f in self.found if f.basis], self.outcome, peek)
        return tuple(
            f.step if not f.basis or id(f) in standing else f.step.model_copy(update={"query": "", "reason": WITHHELD})
            for f in self.found
        )


async def standing_of(found: Sequence[Found], outcome: Outcome, peek: Peek) -> set[int]:
    """Ids (of the objects) of those whose whole basis may be read now, by one look at all of it."""
    basis = {s.chunk_id: s.ranked for f in found for s in f.basis}
    if not basis:
        return {id(f) for f in found}
    seen = await peek(replace(outcome, ranked=list(basis.values()), fold=False), len(basis))
    readable = {s.chunk_id for s in seen}
    return {id(f) for f in found if all(s.chunk_id in readable for s in f.basis)}
