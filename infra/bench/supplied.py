"""Sources as an answer gets them, in this process and without services: pages cut, embedded and ranked exactly, the
sections of the best hits under the answer's own limits, best first and second best last.

Pages that a person may not read, or that are not in effect on the day that is asked for, are left out before ranking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path

import numpy as np

from infra.bench.quality import retrieval
from infra.bench.quality.readers import OwnReader
from infra.bench.quality.retrieval import Encoder, Page
from infra.bench.quality.search import Index, Mask, Measured, Passage
from pipeline.golden import FolderReaders, Question
from pipeline.ports import Chunker, TokenCounter
from query_service.answer.interface import Source
from query_service.cutting import cut, locate
from query_service.evidence import ends_first
from schemas.api_ranking import EvidencePassage
from schemas.documents import Section
from schemas.keys import DocumentRef

VERSION = 1  # nothing here is ever replaced


@dataclass(frozen=True)
class Limits:
    """Of one answer: passages, and their tokens together."""

    context: int
    tokens: int


class Supply:
    """The pages of one corpus, cut as a generation with default settings cuts them."""

    def __init__(self, pages: Sequence[Page], chunker: Chunker, counter: TokenCounter, encoder: Encoder) -> None:
        self._pages = {page.name: page for page in pages}
        self._counter = counter
        self._encoder = encoder
        self._sections: dict[tuple[str, int], Section] = {}
        passages: list[Passage] = []
        for page in pages:
            ref = DocumentRef(tenant="bench", source="pages", id=page.name)
            made = chunker.chunk(ref, page.extracted, title=page.title, facets="")
            self._sections |= {(page.name, section.ordinal): section for section in made.sections}
            passages += [Passage(page.name, chunk) for chunk in made.chunks]
        self._index = Index(passages, encoder.documents([p.chunk.embed_text for p in passages]))

    def everything(self) -> Mask:
        """For a corpus that anybody may read."""
        return np.ones(len(self._index.passages), dtype=np.bool_)

    def sources(self, question: str, admitted: Mask, limits: Limits, day: int | None = None) -> tuple[Source, ...]:
        """At most ``limits.context`` sections within ``limits.tokens``, numbered as they stand. ``day`` in µs says what
        is in effect; without it now does."""
        hits = self._index.search(question, self._encoder.query(question), admitted)
        return self.sources_of(hits, limits, day)

    def measured(self, question: str, admitted: Mask, dense_share: float) -> list[Measured]:
        """Passages best first, with what each leg gave."""
        return self._index.measured(question, self._encoder.query(question), admitted, dense_share)

    def page(self, name: str) -> Page:
        """Of this corpus. Raises KeyError."""
        return self._pages[name]

    def sources_of(self, hits: Sequence[Passage], limits: Limits, day: int | None = None) -> tuple[Source, ...]:
        """As ``sources``, of hits that are ranked already."""
        groups: dict[tuple[str, int], list[Passage]] = {}
        for hit in hits:
            groups.setdefault((hit.document, hit.chunk.section_ordinal), []).append(hit)
        moment = day if day is not None else int(datetime.now(UTC).timestamp()) * 1_000_000
        made: list[EvidencePassage] = []
        left = limits.tokens
        for (name, ordinal), found in list(groups.items())[: limits.context]:
            text, tokens, short = self._fitted(self._sections.get((name, ordinal)), found[0], left)
            if not text:
                continue
            left -= tokens
            made.append(self._passage(name, ordinal, found, (text, tokens, short), len(made) + 1, moment))
        return tuple(Source(number, passage) for number, passage in enumerate(ends_first(made), 1))

    def _fitted(self, section: Section | None, hit: Passage, left: int) -> tuple[str, int, bool]:
        """Text, its tokens, whether it was cut; empty where nothing fits."""
        text = section.text if section is not None else hit.chunk.text
        tokens = self._counter.count(text)
        if tokens <= left:
            return text, tokens, False
        span = locate(text, hit.chunk.text)
        part = cut(text, span, left, self._counter) if span is not None else None
        return (part.text, part.tokens, True) if part is not None else ("", 0, True)

    def _passage(
        self, name: str, ordinal: int, found: Sequence[Passage], cut_text: tuple[str, int, bool], rank: int, moment: int
    ) -> EvidencePassage:
        page = self._pages[name]
        section = self._sections.get((name, ordinal))
        ref = DocumentRef(tenant="bench", source="pages", id=name)
        begun = page.effective_from is None or page.effective_from <= moment
        over = page.effective_until is not None and page.effective_until <= moment
        text, tokens, short = cut_text
        return EvidencePassage(
            section_id=f"{name}#{ordinal}", document_uid=ref.uid, document_id=name, source="pages", title=page.title,
            url=None, version=VERSION, updated_at=None, effective_from=page.effective_from,
            effective_until=page.effective_until, in_effect=begun and not over,
            heading_path=section.heading_path if section is not None else found[0].chunk.heading_path, text=text,
            tokens=tokens, cut=short, rank=rank, chunk_ids=tuple(hit.chunk.chunk_id for hit in found),
        )  # fmt: skip

    def admitted(self, question: Question, readers: FolderReaders) -> Mask:
        """What this person may read, and what is in effect on the day of the question."""
        day = day_of(question)
        verdicts: dict[str, bool] = {}
        for page in self._pages.values():
            begun = day is None or page.effective_from is None or page.effective_from <= day
            over = day is not None and page.effective_until is not None and page.effective_until <= day
            verdicts[page.name] = begun and not over and readers.may_read(question.user, page.name)
        return np.array([verdicts[passage.document] for passage in self._index.passages], dtype=np.bool_)


def day_of(question: Question) -> int | None:
    """The day that is asked for, in µs; None for now."""
    if question.as_of is None:
        return None
    return int(datetime.combine(question.as_of, time(), UTC).timestamp()) * 1_000_000


def golden_pages(samples: Path) -> tuple[Page, ...]:
    """The wiki of the golden set, as its source would send it."""
    return tuple(retrieval.wiki(samples / "wiki", OwnReader().extract))


@dataclass(frozen=True)
class Asked:
    """A question about an article, its gold answers, and the passage (its text) that holds them."""

    text: str
    answers: tuple[str, ...]


def article_questions(folder: Path, most: int) -> tuple[tuple[Page, ...], tuple[Asked, ...]]:
    """squad2-articles: the articles as pages, and at most so many answerable questions, evenly taken. OSError."""
    import json

    found = retrieval.articles(folder, most=1)
    asked: list[Asked] = []
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row: Mapping[str, object] = json.loads(line)
        answers = row["answers"]
        if row["answerable"] and isinstance(answers, list) and answers:
            asked.append(Asked(str(row["text"]), tuple(str(answer) for answer in answers)))
    return found.pages, tuple(asked[n * len(asked) // most] for n in range(most)) if most < len(asked) else tuple(asked)
