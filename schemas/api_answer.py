"""Contracts of answers: what is asked, sentences with citations, refusals and their reasons, events of a stream."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from schemas import api_examples_answers as examples
from schemas.api import MAX_QUERY, MAX_WAIT_MS, Mode, SearchFilters, asked, waiting
from schemas.api_ranking import Expansion, RerankMode, Suggestion
from schemas.base import ClosedModel, Micros, Version

Style = Literal["auto", "generated", "extractive"]
Unsupported = Literal["withhold", "qualify", "refuse"]
Refused = Literal["nothing_found", "weak_evidence", "stale", "unsupported", "contradictory"]
Cached = Literal["none", "exact", "semantic"]
MAX_TURNS = 40
MAX_TURN = 32_768


class Turn(ClosedModel):
    """An earlier message of the conversation. It helps to understand the question and is never evidence."""

    role: Literal["user", "assistant"]
    content: Annotated[str, StringConstraints(max_length=MAX_TURN)]


class AnswerRequest(ClosedModel):
    """A question. Who asks comes from the token alone; the answer rests on what that person may read now."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.ANSWER_REQUEST]})

    question: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY)]
    history: Annotated[tuple[Turn, ...], Field(max_length=MAX_TURNS)] = ()
    style: Style = Field(
        default="auto",
        description="'generated': a model writes, each sentence is checked. 'extractive': sentences of the sources, "
        "word for word. 'auto': generated where a generator is configured.",
    )
    unsupported: Unsupported | None = Field(
        default=None,
        description="What becomes of a sentence that the sources do not support: left out, marked as unsure (only "
        "where nothing speaks against it), or the whole answer is refused. The service's default where absent.",
    )
    context: int | None = Field(default=None, ge=1, le=50, description="Passages to answer from, at most.")
    token_budget: int | None = Field(default=None, ge=64, le=1_000_000, description="Of the passages.")
    evidence: Literal["sections", "all"] = Field(
        default="sections", description="'all': everything that the caller may read within the filters, if it fits."
    )
    max_tokens: int | None = Field(default=None, ge=16, le=32_768, description="Of the answer.")
    max_staleness_s: float | None = Field(
        default=None, gt=0, description="Refuse where a source of the answer is not complete up to so long ago."
    )
    mode: Mode = "hybrid"
    filters: SearchFilters = SearchFilters()
    rerank: RerankMode | None = Field(default=None, description="As a search has it; answers have their own default.")
    expand: Expansion = "none"
    after: str | None = Field(
        default=None, min_length=1, max_length=16_384, description="Freshness token of a write that has to be in it."
    )
    wait_ms: int = Field(default=0, ge=0, le=MAX_WAIT_MS, description="How long to wait for that write.")
    language: str | None = Field(
        default=None, min_length=2, max_length=35, description="Of the refusal; the question's where absent."
    )
    cache: bool = Field(default=True, description="An answer that was given before may be given again.")
    explain: bool = Field(default=False, description="The reply shows what was withheld, and why.")
    stream: bool = Field(default=False, description="Server-sent events; so does 'Accept: text/event-stream'.")

    @field_validator("question")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        return asked(value, "must hold a question")

    @model_validator(mode="after")
    def _wait_needs_token(self) -> AnswerRequest:
        waiting(self.wait_ms, self.after)
        return self


class Citation(ClosedModel):
    """A passage that a sentence rests on: it was supplied, and may be read, at ``judged_at``."""

    number: int = Field(ge=1, description="n of [^n].")
    document_uid: str
    document_id: str
    source: str
    title: str
    url: str | None
    section_id: str
    chunk_ids: tuple[str, ...]
    heading_path: tuple[str, ...]
    quote: str = Field(description="Words of the passage that the sentences rest on, verbatim.")
    version: Version
    updated_at: Micros | None = Field(description="Last update at the source.")
    age_s: float = Field(ge=0, description="Seconds since then, else since it was observed.")
    effective_from: Micros | None = None
    effective_until: Micros | None = None
    in_effect: bool = True


class AnswerSentence(ClosedModel):
    """A released sentence. Its words without the footnotes; these are in ``citations``."""

    text: str
    citations: Annotated[tuple[int, ...], Field(min_length=1)]
    support: float = Field(ge=0, le=1, description="Estimated probability that the cited passages say this.")
    qualified: bool = Field(default=False, description="Marked as unsure: the passages do not say it plainly.")


class WithheldSentence(ClosedModel):
    """A sentence that was not released."""

    text: str
    reason: str = Field(description="A fixed word: no_citation, wrong_citation, not_supported, number, negation, …")
    support: float = Field(ge=0, le=1)


class Side(ClosedModel):
    """What one passage says in a contradiction."""

    citation: int
    text: str


class Contradiction(ClosedModel):
    """Passages that do not agree on what was asked."""

    kind: Literal["number", "negation", "value"]
    sides: Annotated[tuple[Side, ...], Field(min_length=2)]


class Refusal(ClosedModel):
    """Why there is no answer. It tells nothing of documents that the caller may not read."""

    reason: Refused
    detail: str = Field(description="In plain words, with what to try.")


class AnswerUsage(ClosedModel):
    """What the answer cost. Zero without a generator, and for one that was given before."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost: float = Field(default=0.0, ge=0)
    currency: str | None = None
    estimated: bool = Field(default=False, description="The generator's server did not say; counted here.")


class AnswerResponse(ClosedModel):
    """A checked answer, or a refusal with its reason."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.ANSWER_RESPONSE]})

    query_id: str
    answered: bool
    kind: Literal["generated", "extractive", "refusal"]
    text: str = Field(description="Sentences with footnotes [^n], or the refusal.")
    sentences: tuple[AnswerSentence, ...] = ()
    citations: tuple[Citation, ...] = ()
    refusal: Refusal | None = None
    needs_review: bool = Field(default=False, description="Sources contradict each other on what was asked.")
    contradictions: tuple[Contradiction, ...] = ()
    withheld: int = Field(default=0, ge=0, description="Sentences that were written and not released.")
    withheld_sentences: tuple[WithheldSentence, ...] = Field(default=(), description="With 'explain' alone.")
    support: float | None = Field(default=None, description="Of the weakest released sentence.")
    supplied: int = Field(default=0, ge=0, description="Passages that the answer could rest on.")
    complete_evidence: bool = Field(default=False, description="They are all that the caller may read here.")
    complete_until: dict[str, Micros | None] = Field(default_factory=dict, description="As a search has it.")
    fresh: bool | None = None
    generation: str | None = None
    model: str | None = Field(default=None, description="Of the generator, where one wrote.")
    fallback: str | None = Field(
        default=None, description="Why sentences were taken from the sources although a generator was wanted."
    )
    incomplete: bool = Field(default=False, description="The generator stopped in the middle.")
    usage: AnswerUsage = AnswerUsage()
    cached: Cached = "none"
    suggestion: Suggestion | None = None
    judged_at: Micros = Field(description="The last check of permissions and versions began then.")
    timings_ms: dict[str, float] = Field(default_factory=dict)


class SentenceEvent(ClosedModel):
    """``event: sentence``: one that passed its check, with the citations that were not sent before."""

    index: int = Field(ge=0)
    sentence: AnswerSentence
    citations: tuple[Citation, ...] = ()


class StepEvent(ClosedModel):
    """``event: step``: what happens now, for people who wait."""

    step: Literal["searching", "reading", "writing", "checking"]
    passages: int | None = None
