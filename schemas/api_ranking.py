"""How a search was ranked, shown and continued: reranking, snippets, suggestions, evidence and the steps behind it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from schemas.base import ClosedModel, Micros, Version

RerankMode = Literal["off", "fast", "full"]
Expansion = Literal["none", "decompose", "multi_query", "hyde", "iterative"]
Sort = Literal["relevance", "newest", "oldest"]
EvidenceMode = Literal["none", "sections", "all"]
MAX_CURSOR = 16_384


class Snippet(ClosedModel):
    """The part of a hit's text to show, and where in it the query's words stand."""

    text: str
    highlights: tuple[tuple[int, int], ...] = Field(
        default=(), description="Offsets in the snippet's text, in Unicode code points, end exclusive, ascending."
    )
    cut_before: bool = Field(default=False, description="The hit's text begins before the snippet.")
    cut_after: bool = Field(default=False, description="The hit's text goes on after it.")


class RerankReport(ClosedModel):
    """What the reranker did."""

    asked: RerankMode
    done: RerankMode = Field(description="'off' where the fused order is served.")
    candidates: int = Field(ge=0, description="Passages that were scored.")
    model: str | None = None
    ms: float = Field(default=0.0, ge=0)
    late: bool = Field(default=False, description="Its deadline passed, so the fused order is served.")
    reason: str | None = Field(default=None, description="Why it did less than asked.")


class Suggestion(ClosedModel):
    """What to try where nothing was found. It is made of the request and of what the caller may read alone."""

    kind: Literal["spelling", "filter", "quotes", "mode", "words"]
    text: str = Field(description="In plain words.")
    query: str | None = Field(default=None, description="A query to try instead.")
    drop_filters: tuple[str, ...] = Field(default=(), description="Filters without which something is found.")


class EvidencePassage(ClosedModel):
    """A section to hand to a generator, whole or cut at its budget."""

    section_id: str
    document_uid: str
    document_id: str
    source: str
    title: str
    url: str | None
    version: Version
    updated_at: Micros | None
    effective_from: Micros | None = Field(default=None, description="Inclusive; null is an open beginning.")
    effective_until: Micros | None = Field(default=None, description="Exclusive; null is an open end.")
    in_effect: bool = Field(default=True, description="As hits have it.")
    heading_path: tuple[str, ...]
    text: str
    tokens: int = Field(ge=0)
    cut: bool = Field(default=False, description="Only the part around the hit fitted.")
    rank: int = Field(ge=1, description="One-based, by relevance. Passages stand best first, second best last.")
    chunk_ids: tuple[str, ...] = Field(description="The hits that it stands for.")


class Evidence(ClosedModel):
    """Sections of the hits, each once, under a token budget."""

    mode: EvidenceMode
    passages: tuple[EvidencePassage, ...]
    tokens: int = Field(ge=0)
    budget: int = Field(ge=1)
    complete: bool = Field(description="Nothing that belongs here was left out for want of room.")
    left_out: int = Field(default=0, ge=0, description="Sections that did not fit.")


class Step(ClosedModel):
    """One step of a request that was expanded: what was asked, by whom it was thought of, and what it brought."""

    kind: Literal["original", "decomposed", "multi_query", "hyde", "followup", "stop"]
    query: str = Field(description="Generated text is only ever a query: never evidence, never cited.")
    generated: bool
    admitted: int = Field(ge=0, description="Passages that it found and the caller may read.")
    new: int = Field(ge=0, description="Of them, those that no earlier step found.")
    ms: float = Field(ge=0)
    tokens: int = Field(default=0, ge=0, description="Tokens that its generator used.")
    reason: str | None = None


Cursor = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CURSOR)]
