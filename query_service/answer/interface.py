"""What the parts of answering hand to each other.

question ▸ search with evidence ▸ strong enough? ▸ contradictions ▸ writer ▸ drafts ▸ checker ▸ admitted once more ▸ out
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from query_service.gate import Version
from schemas.api_answer import Turn
from schemas.api_ranking import EvidencePassage


@dataclass(frozen=True)
class Source:
    """A passage that was supplied to the writer. ``number`` is the n of its ``[^n]``, from 1."""

    number: int
    passage: EvidencePassage
    applies: bool | None = None  # to the time that the question names; None: to the moment asked for, or now

    @property
    def version(self) -> Version:
        """Document uid and content version: what admission is asked about."""
        return self.passage.document_uid, self.passage.version

    @property
    def holds(self) -> bool:
        """Whether its document was in effect at the time that the question is about."""
        return self.passage.in_effect if self.applies is None else self.applies

    @property
    def text(self) -> str:
        """Of the passage, as it stands in the document."""
        return self.passage.text


@dataclass(frozen=True)
class Draft:
    """A sentence as it was written: its words without footnotes, and the numbers that it cites (as written, so they
    may name no source)."""

    text: str
    cited: tuple[int, ...] = ()


Reason = Literal[
    "no_citation",  # cites nothing, and no source says it
    "wrong_citation",  # cites numbers that were not supplied
    "not_supported",  # nothing says it
    "number",  # says another number, date, amount or unit
    "negation",  # says the opposite
    "stronger",  # drops "normally", "may", a condition or an exception
    "forbidden",  # holds a link, an image, code or words that no source has (exfiltration, injected orders)
    "revoked",  # its source may not be read any more, or was replaced
]


@dataclass(frozen=True)
class Verdict:
    """What the checker says of a draft.

    ``cited`` are the sources that really support it: those it cited, or better ones. ``quotes`` gives for each of them
    verbatim words of ``Source.text``. ``score`` is a calibrated probability. ``doubtful``: not supported enough, yet
    nothing speaks against it, so it may be shown as unsure.
    """

    supported: bool
    score: float
    cited: tuple[int, ...] = ()
    quotes: dict[int, str] = field(default_factory=dict)
    reason: Reason | None = None
    doubtful: bool = False


class Checker(Protocol):
    """Whether sources say what a sentence says. Holds nothing of a request when it returns."""

    async def check(
        self, question: str, drafts: Sequence[Draft], sources: Sequence[Source], *, deadline: float
    ) -> list[Verdict]:
        """One verdict a draft, in order. ``deadline`` by the monotonic clock; past it the cheap measures decide alone,
        strictly. Never raises for a model that fails."""
        ...


@dataclass(frozen=True)
class Ask:
    """What a writer is given."""

    question: str
    history: tuple[Turn, ...]
    sources: tuple[Source, ...]
    max_tokens: int
    deadline: float  # monotonic
    language: str | None = None  # BCP 47, of the question
    query: str | None = None  # the question by itself, where it leans on the history: what was searched for


@dataclass(frozen=True)
class Written:
    """A part of what a writer says. The last one of a generator carries the usage."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    estimated: bool = False
    finish: str | None = None  # 'length' where it was cut
    left_out: int = 0  # sources that did not fit into the prompt


class Writer(Protocol):
    """Writes text with ``[^n]`` footnotes: a generator, or sentences taken from the sources."""

    @property
    def kind(self) -> Literal["generated", "extractive"]: ...

    @property
    def model(self) -> str | None: ...

    def write(self, ask: Ask) -> AsyncIterator[Written]:
        """Raises GeneratorUnavailable, also in the middle."""
        ...
