"""What of an answer was released: sentences that were checked, their citations, and the last look at permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.clock import Clock
from query_service.answer.interface import Draft, Source, Verdict
from query_service.gate import Version
from query_service.scope import Scope
from schemas.api import SearchFilters, SearchResponse
from schemas.api_answer import AnswerSentence, Citation, SentenceEvent, WithheldSentence


class Admits(Protocol):
    """What tells which documents may be read now in the version in which they were read."""

    async def standing(
        self, scope: Scope, versions: set[Version], generation: str | None, filters: SearchFilters
    ) -> set[Version]:
        """Raises StoreUnavailable."""
        ...


@dataclass
class _Passed:
    draft: Draft
    verdict: Verdict
    qualified: bool


@dataclass
class Released:
    """Of one answer. Numbers of citations count from 1 in the order in which sentences use them."""

    scope: Scope
    admits: Admits
    sources: tuple[Source, ...]
    found: SearchResponse | None
    clock: Clock
    filters: SearchFilters = field(default_factory=SearchFilters)
    explain: bool = False  # what is withheld is shown
    sentences: list[AnswerSentence] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)
    told: list[WithheldSentence] = field(default_factory=list)
    withheld: int = 0
    unsupported: int = 0  # of them, for want of support
    withdrawn: int = 0  # sentences whose passage may not be read any more
    incomplete: bool = False
    judged_at: int = 0
    _waiting: list[_Passed] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)  # source's number to citation's
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.judged_at = self.found.judged_at if self.found is not None else self.clock.now()

    def judge(self, draft: Draft, verdict: Verdict, *, qualified: bool) -> None:
        """Take a sentence with what the checker says of it; it is released by ``admit``."""
        if not verdict.supported:
            self._withhold(draft, verdict.reason or "not_supported", verdict.score)
            self.unsupported += 1
            return
        words = " ".join(draft.text.casefold().split())
        if words in self._seen:  # said already
            return
        self._seen.add(words)
        self._waiting.append(_Passed(draft, verdict, qualified))

    async def admit(self) -> None:
        """Release the sentences that wait, those whose passages may be read now. Raises StoreUnavailable."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        standing = await self._standing({n for passed in waiting for n in passed.verdict.cited})
        for passed in waiting:
            cited = tuple(n for n in passed.verdict.cited if n in standing)
            if len(cited) < len(passed.verdict.cited):  # what supported it together is not all there any more
                self.withdrawn += 1
                self._withhold(passed.draft, "revoked", passed.verdict.score)
                continue
            numbers = tuple(self._number(n, passed.verdict.quotes.get(n, "")) for n in cited)
            self.sentences.append(
                AnswerSentence(
                    text=passed.draft.text, citations=tuple(dict.fromkeys(numbers)),
                    support=round(min(1.0, max(0.0, passed.verdict.score)), 4), qualified=passed.qualified,
                )
            )  # fmt: skip

    async def recheck(self) -> None:
        """The last check of everything that was released, and of what is shown of the rest. Raises StoreUnavailable."""
        self.judged_at = self.clock.now()
        by_citation = {citation: source for source, citation in self._numbers.items()}
        # Words that were withheld may come from any passage that the writer read, whatever they cite.
        read = {source.number for source in self.sources} if self.explain and self.told else set()
        standing = await self._standing(read | set(self._numbers))
        if read - standing:
            self.told = []
        gone = {number for number, source in by_citation.items() if source not in standing}
        if not gone:
            return
        kept = [s for s in self.sentences if not gone & set(s.citations)]
        self.withdrawn += len(self.sentences) - len(kept)
        self.withheld += len(self.sentences) - len(kept)
        used = {n for s in kept for n in s.citations}
        self.sentences, self.citations = kept, [c for c in self.citations if c.number in used]

    async def _standing(self, numbers: set[int]) -> set[int]:
        by_number = {source.number: source for source in self.sources}
        versions = {by_number[n].version for n in numbers if n in by_number}
        if not versions:
            return set()
        generation = self.found.generation if self.found is not None else None
        standing = await self.admits.standing(self.scope, versions, generation, self.filters)
        return {n for n in numbers if n in by_number and by_number[n].version in standing}

    def _withhold(self, draft: Draft, reason: str, score: float) -> None:
        self.withheld += 1
        self.told.append(WithheldSentence(text=draft.text, reason=reason, support=min(1.0, max(0.0, score))))

    # ------------------------------------------------------------ citations

    def number_of(self, source: int) -> int | None:
        """Number of the citation that stands for a source, while it is in the answer."""
        number = self._numbers.get(source)
        return number if number is not None and any(c.number == number for c in self.citations) else None

    def _number(self, source: int, quote: str) -> int:
        number = self._numbers.get(source)
        if number is None:
            number = self._numbers[source] = len(self._numbers) + 1
            self.citations.append(self._citation(number, source, quote))
        elif quote:
            self.citations = [_quoting(c, quote) if c.number == number else c for c in self.citations]
        return number

    def _citation(self, number: int, source: int, quote: str) -> Citation:
        passage = next(s.passage for s in self.sources if s.number == source)
        since = passage.updated_at if passage.updated_at is not None else passage.version
        return Citation(
            number=number, document_uid=passage.document_uid, document_id=passage.document_id, source=passage.source,
            title=passage.title, url=passage.url, section_id=passage.section_id, chunk_ids=passage.chunk_ids,
            heading_path=passage.heading_path, quote=quote, version=passage.version, updated_at=passage.updated_at,
            age_s=round(max(0, self.clock.now() - since) / 1e6, 3), effective_from=passage.effective_from,
            effective_until=passage.effective_until, in_effect=passage.in_effect,
        )  # fmt: skip

    def event(self, index: int) -> SentenceEvent:
        """The released sentence, with citations that no earlier one had."""
        return event_of(index, self.sentences, self.citations)

    def text(self, unsure: str) -> str:
        """The answer as text, footnotes behind each sentence; what is marked as unsure says so by these words."""
        parts: list[str] = []
        for sentence in self.sentences:
            marks = "".join(f"[^{n}]" for n in sentence.citations)
            lead = f"{unsure} " if sentence.qualified else ""
            joint = "" if not parts else ("\n" if _own_line(sentence.text) or _own_line(parts[-1]) else " ")
            parts.append(f"{joint}{lead}{sentence.text}{marks}")
        return "".join(parts)


def event_of(index: int, sentences: Sequence[AnswerSentence], citations: Sequence[Citation]) -> SentenceEvent:
    """A sentence of an answer, with the citations that no earlier one has."""
    sentence = sentences[index]
    before = {n for s in sentences[:index] for n in s.citations}
    new = tuple(c for c in citations if c.number in set(sentence.citations) - before)
    return SentenceEvent(index=index, sentence=sentence, citations=new)


def _own_line(text: str) -> bool:
    words = text.lstrip()
    return "\n" in words or words.startswith(("- ", "* ", "• ")) or words[:3].rstrip(". )").isdigit()


def _quoting(citation: Citation, quote: str) -> Citation:
    """With further words of the passage behind those that stand there."""
    if quote in citation.quote:
        return citation
    return citation.model_copy(update={"quote": f"{citation.quote} … {quote}" if citation.quote else quote})
