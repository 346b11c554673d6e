"""An answer made of the sources' own sentences: for those who have no generator, and for when it fails.

    sources ▸ pieces ▸ cheap measures ▸ the best by cosine ▸ the best of these by cross-encoder ▸ chosen ▸ in order

Models are asked as far as they are loaded and answer in time; without them the cheap measures decide. Each piece is
followed by the footnote of the passage that it was taken from.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

import numpy as np

from pipeline.errors import HeadwaterError
from pipeline.ports import Vectors
from query_service.answer.choosing import Fall, choose
from query_service.answer.insisted import About, Near, insisted
from query_service.answer.interface import Ask, Source, Written
from query_service.answer.relevance import Known, Question, Weights, cheap, known, question_of, whole
from query_service.answer.units import Unit, units
from query_service.rerank.interface import Reranking
from schemas.generation import Generation

log = logging.getLogger("headwater.query.answer")
T = TypeVar("T")

EMBEDDED = 40  # pieces that are compared by cosine
LOOKED_AT = 3  # of the best, for whether they answer at all
CROSSED = 16  # of these, that the cross-encoder scores
COSINE_S = 1.0  # models get so long, and no more than half of what is left
CROSS_S = 1.5
CHARS_PER_TOKEN = 4
FOREIGN = 0.25  # of its weight is left to a cross-encoder in other languages than English: most read no other
SHOWN_CHARS = 400  # of a piece that a model reads


class Embedding(Protocol):
    """What the writer needs of ``query_service.encoders.Encoders``."""

    def warm(self, generation: Generation) -> bool: ...

    async def embed(self, generation: Generation, text: str) -> Vectors:
        """Of a query, shape (1, dimension). Raises EncoderUnavailable."""
        ...

    async def embed_passage(self, generation: Generation, text: str) -> Vectors:
        """Of a passage, shape (1, dimension). Raises EncoderUnavailable."""
        ...


@dataclass(frozen=True)
class Weighed:
    """All pieces with their scores, and where an answer of them ends."""

    question: Question
    pieces: Sequence[Known]
    scores: Sequence[float]
    fall: Fall
    cross: float | None = None  # the reranker's largest score of the best pieces, where it spoke
    signals: Mapping[str, float] = field(default_factory=dict)  # of the best pieces (``About.signals``)

    def chosen(self, most: int) -> list[Unit]:
        """At most so many sentences, in order."""
        return choose(self.question, self.pieces, self.scores, most, self.fall)


class ExtractiveWriter:
    """``Writer`` without a generator. One for the process; it holds nothing of a request.

    ``generation`` gives the one that answers now, None where there is none yet: its encoder is used only where it is
    loaded already. ``sentences`` is the most that an answer has; a whole list of steps counts as one.
    """

    kind: Literal["generated", "extractive"] = "extractive"
    model: str | None = None

    def __init__(
        self,
        encoders: Embedding | None,
        reranking: Reranking | None,
        generation: Callable[[], Generation | None],
        sentences: int = 5,
        *,
        weights: Weights | None = None,
        fall: Fall | None = None,
    ) -> None:
        self._encoders = encoders
        self._reranking = reranking
        self._generation = generation
        self._sentences = sentences
        self._weights = weights or Weights()
        self._fall = fall or Fall()

    async def write(self, ask: Ask) -> AsyncIterator[Written]:
        """The chosen pieces one by one; nothing where none of the sources answers. Raises nothing of models."""
        async for part in self.written(ask, await self.weighed(ask)):
            yield part

    async def written(self, ask: Ask, weighed: Weighed | None) -> AsyncIterator[Written]:
        """As ``write``, of pieces that were weighed before."""
        chosen = weighed.chosen(self._sentences) if weighed is not None else []
        room = ask.max_tokens * CHARS_PER_TOKEN
        before: Unit | None = None
        for unit in chosen:
            text = _joined(before, unit)
            if before is not None and len(text) > room:
                yield Written("", finish="length")
                return
            room -= len(text)
            before = unit
            yield Written(text)

    async def weighed(self, ask: Ask) -> Weighed | None:
        """Every piece of the sources with its score; None where there is none."""
        pieces = await asyncio.to_thread(pieces_of, ask.sources)
        if not pieces:
            return None
        question = question_of(ask.query or ask.question, pieces)
        english = primary(ask.language) in (None, "en")
        weights = self._weights if english else replace(self._weights, cross=FOREIGN * self._weights.cross)
        about = await asyncio.to_thread(About, insisted(question.text, ask.language), pieces)
        scores, crosses = await self._scores(question, pieces, weights, about, ask.deadline)
        best = _best(scores, LOOKED_AT)
        cross = max((value for n in best if (value := crosses[n]) is not None), default=None)
        fall = self._fall if crosses[0] is not None else replace(self._fall, share=self._fall.plain)
        near = await self._near(*about.unsaid(best), ask.deadline)
        return Weighed(question, pieces, scores, fall, cross, about.signals(best, near))

    async def _scores(
        self, question: Question, pieces: Sequence[Known], weights: Weights, about: About, deadline: float
    ) -> tuple[list[float], list[float | None]]:
        """In the order of the pieces, and what a cross-encoder said of each."""
        parts = cheap(question, pieces, weights)
        none: list[float | None] = [None] * len(pieces)
        factors = [about.factor(n) for n in range(len(pieces))]

        def told(cosines: Sequence[float | None], crosses: Sequence[float | None]) -> list[float]:
            found = whole(parts, cosines, crosses, weights)
            return [score * factor for score, factor in zip(found, factors, strict=True)]

        scores = told(none, none)
        nearest = _best(scores, EMBEDDED)
        cosines = _spread(await self._cosines(question, [pieces[n] for n in nearest], deadline), nearest, len(pieces))
        scores = told(cosines, none)
        nearest = _best(scores, CROSSED)
        crosses = _spread(await self._crosses(question, [pieces[n] for n in nearest], deadline), nearest, len(pieces))
        return told(cosines, crosses), crosses

    async def _cosines(self, question: Question, pieces: Sequence[Known], deadline: float) -> list[float]:
        """In the order of the pieces; empty where the encoder did not say in time."""

        async def compared(encoders: Embedding, generation: Generation) -> list[float]:
            asked = await encoders.embed(generation, question.text)
            found = await asyncio.gather(*(encoders.embed_passage(generation, in_context(one.unit)) for one in pieces))
            return [float(value) for value in np.concatenate(found) @ asked.reshape(-1)]

        return await self._embedded(compared, deadline) or []

    async def _near(self, asked: Sequence[str], said: Sequence[str], deadline: float) -> Near:
        """Cosines of words to words; empty where the encoder did not say in time."""
        if not asked or not said:
            return {}

        async def compared(encoders: Embedding, generation: Generation) -> Near:
            words = dict.fromkeys((*asked, *said))
            found = await asyncio.gather(*(encoders.embed_passage(generation, word) for word in words))
            of = {word: vector.reshape(-1) for word, vector in zip(words, found, strict=True)}
            return {one: {other: float(of[one] @ of[other]) for other in said} for one in asked}

        return await self._embedded(compared, deadline) or {}

    async def _embedded(self, work: Callable[[Embedding, Generation], Awaitable[T]], deadline: float) -> T | None:
        generation = self._generation()
        if self._encoders is None or generation is None or not self._encoders.warm(generation):
            return None
        try:
            return await asyncio.wait_for(work(self._encoders, generation), _patience(COSINE_S, deadline))
        except TimeoutError:
            return None
        except HeadwaterError as error:
            log.warning("sentences were not compared by cosine", extra={"fields": {"error": type(error).__name__}})
            return None

    async def _crosses(self, question: Question, pieces: Sequence[Known], deadline: float) -> list[float]:
        """Of the first pieces, as many as were scored."""
        if self._reranking is None:
            return []
        until = time.monotonic() + _patience(CROSS_S, deadline)
        texts = [in_context(one.unit) for one in pieces]
        found = await self._reranking.rank(question.text, texts, "full", wanted=len(texts), deadline=until)
        return list(found.scores)


def pieces_of(sources: Sequence[Source]) -> list[Known]:
    """All pieces of all sources, passage by passage."""
    found: list[Known] = []
    for source in sources:
        passage = source.passage
        for unit in units(source.text, source.number, passage.heading_path):
            found.append(known(unit, passage.title, passage.rank, source.holds))
    return found


def primary(language: str | None) -> str | None:
    """``de`` of ``de-AT``."""
    return language.split("-")[0].lower() if language else None


def in_context(unit: Unit) -> str:
    """A piece as a model reads it: alone it may not say what it speaks of."""
    headings = dict.fromkeys((*unit.headings[-2:], *((unit.lead,) if unit.lead else ())))
    return ". ".join((*headings, unit.text[:SHOWN_CHARS]))


def _joined(before: Unit | None, unit: Unit) -> str:
    """The piece with its footnote and what stands between it and the one before."""
    note = f"[^{unit.source}]"
    if unit.kind == "code":
        if "\n" in unit.text:
            return f"{'' if before is None else chr(10)}{unit.shown}\n{note}"
        return f"{'' if before is None else ' '}`{unit.text.strip()}`{note}"
    if unit.opens or unit.kind == "row":
        return f"{'' if before is None else chr(10)}{unit.mark or '-'} {unit.text}{note}"
    if before is None:
        return f"{unit.text}{note}"
    apart = before.source != unit.source or before.kind == "row" or (before.group != unit.group and before.group >= 0)
    return f"{chr(10) if apart else ' '}{unit.text}{note}"


def _best(scores: Sequence[float], most: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda n: (-scores[n], n))[:most]


def _spread(found: Sequence[float], places: Sequence[int], count: int) -> list[float | None]:
    """Values at their places; what was not asked about gets the smallest value, so that all are on one scale. Nothing
    where nothing was found."""
    if not found:
        return [None] * count
    values: list[float | None] = [min(found)] * count
    for place, value in zip(places, found, strict=False):
        values[place] = value
    return values


def _patience(most: float, deadline: float) -> float:
    return max(0.0, min(most, (deadline - time.monotonic()) / 2))
