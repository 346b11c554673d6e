"""``extractive``: what answers say that are taken from the sources: golden set, and questions about articles.

In this process and without services: pages are cut, embedded and ranked as the default generation does it, and the
writer is the product's, with its encoder and, where it is on this machine, its reranker. Half of the golden questions
were used to choose the writer's weights; figures are of the other half (``held_out``), and of both.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from infra.bench.quality.retrieval import Encoder, Page
from infra.bench.quality.run import Places
from infra.bench.report import Result, rounded
from infra.bench.session import Session
from infra.bench.supplied import Asked, Limits, Supply, article_questions, day_of, golden_pages
from infra.golden_run import checkout, questions_of
from pipeline import settings as config
from pipeline.golden import FolderReaders, Question, level
from pipeline.observe import Metrics
from pipeline.settings import Settings
from query_service.answer import wording
from query_service.answer.extractive import ExtractiveWriter
from query_service.answer.interface import Ask, Source
from query_service.answer.relevance import stems
from query_service.encoders import Encoders
from query_service.rerank.service import TimedReranking
from schemas.generation import ChunkingSpec, EncoderSpec, Generation

NAME = "extractive"
SENTENCES = (1, 3, 5)
PATIENCE_S = 60.0  # for one answer: no figure here is a time
HALF = 0.5  # of a reference answer's words, from which it counts as told
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


@dataclass(frozen=True)
class Told:
    """One answer. ``words``: share of the reference answer's words in it; ``numbers``: whether all of its numbers are
    (None without any); ``fact``: whether the labelled fact is, or the gold answer (None without a label)."""

    text: str
    sentences: int
    held_out: bool
    words: float | None = None
    numbers: bool | None = None
    fact: bool | None = None
    span: bool | None = None


class Writers:
    """Writers of the product by number of sentences, with one encoder and one reranker."""

    def __init__(self, settings: Settings, encoders: Encoders, reranking: TimedReranking | None) -> None:
        self._settings = settings
        self._encoders = encoders
        self._reranking = reranking
        self.generation: Generation | None = None
        self.usual = settings.answer.sentences

    async def ask(self, question: str, sources: tuple[Source, ...], most: Sequence[int]) -> list[tuple[str, int]]:
        """For each number of sentences: the text without footnotes, and how many pieces it has."""
        writer = ExtractiveWriter(self._encoders, self._reranking, lambda: self.generation)
        end = time.monotonic() + PATIENCE_S
        language = wording.language_of(question)
        weighed = await writer.weighed(Ask(question, (), sources, self._settings.answer.max_tokens, end, language))
        if weighed is None:
            return [("", 0)] * len(most)
        chosen = [weighed.chosen(sentences) for sentences in most]
        return [(" ".join(unit.text for unit in units), len(units)) for units in chosen]


def extractive(session: Session) -> Iterable[Result]:
    """A line for the golden set, one for its unanswerable questions, and one for the articles at each length."""
    yield from asyncio.run(_measured(session, config.load()))


async def _measured(session: Session, settings: Settings) -> list[Result]:
    from pipeline.bootstrap import choose_backend
    from pipeline.chunk import chunker_for
    from pipeline.embed import load_encoder, token_counter
    from query_service.rerank.load import load_reranker

    spec = EncoderSpec()
    backend = choose_backend(settings, spec)
    embedder, counter = load_encoder(spec, backend, settings), token_counter(spec, settings)
    encoder = Encoder(embedder, spec)
    generation = Generation(name="bench", state="active", encoder=spec, backend=backend, created_at=0)
    encoders = Encoders(lambda wanted: embedder, settings.inference)
    reranking = None
    if settings.rerank.backend != "off":
        metrics = Metrics()
        reranking = TimedReranking(
            lambda: load_reranker(settings, metrics), settings.rerank, settings.inference, metrics
        )
        reranking.start()
        if not await reranking.loaded():
            session.report.finish("reranker", "is not there: measured without it")
            reranking = None
    writers = Writers(settings, encoders, reranking)
    limits = Limits(settings.answer.context, settings.answer.token_budget)
    try:
        await encoders.prepare(generation)
        writers.generation = generation
        chunker = chunker_for(ChunkingSpec(), counter, spec, encoder.documents)

        def supply(pages: Sequence[Page]) -> Supply:
            return Supply(pages, chunker, counter, encoder)

        results = list(_golden_lines(*await _golden(session, writers, supply, limits)))
        places = Places.of_checkout()
        if places.articles.is_dir():
            pages, asked = article_questions(places.articles, session.sizes.split_questions)
            made = supply(pages)
            results += await _articles(session, writers, made, asked, limits)
        return [_marked(result, reranking is not None) for result in results]
    finally:
        encoders.close()
        if reranking is not None:
            reranking.close()


def _marked(result: Result, reranked: bool) -> Result:
    return Result(result.bench, result.value, result.unit, extra={**result.extra, "reranker": reranked})


# ---------------------------------------------------------------- golden set


async def _golden(
    session: Session, writers: Writers, supply: Callable[[Sequence[Page]], Supply], limits: Limits
) -> tuple[list[Told], list[Told]]:
    """Answers to what can be answered, and to what cannot."""
    paths = checkout()
    made, readers = supply(golden_pages(paths.samples)), FolderReaders(paths.wiki)
    questions = questions_of(paths)[0]
    most = session.sizes.split_questions
    chosen = [n * len(questions) // most for n in range(most)] if most < len(questions) else range(len(questions))
    answered: list[Told] = []
    others: list[Told] = []
    for done, number in enumerate(chosen, 1):
        question = questions[number]
        sources = made.sources(question.question, made.admitted(question, readers), limits, day_of(question))
        [(text, count)] = await writers.ask(question.question, sources, [writers.usual])
        (answered if question.answerable else others).append(judged(question, text, count, held_out=number % 2 == 1))
        session.progress(NAME, done, len(chosen))
    return answered, others


def judged(question: Question, text: str, sentences: int, *, held_out: bool) -> Told:
    """An answer against the labels of its question."""
    reference, own = stems(question.answer or ""), set(stems(text))
    wanted, numbers = _NUMBER.findall(question.answer or ""), set(_NUMBER.findall(text))
    shown = level(text)
    spans = [level(label.span) for label in question.relevant if label.span is not None and label.grade == 3]
    return Told(
        text, sentences, held_out,
        words=sum(word in own for word in reference) / len(reference) if reference else None,
        numbers=all(one in numbers for one in wanted) if wanted else None,
        fact=level(question.fact) in shown if question.fact is not None and question.answerable else None,
        span=any(_within(span, shown) for span in spans) if spans else None,
    )  # fmt: skip


def _within(span: str, shown: str) -> bool:
    """Whether most words of a labelled span are shown; a row of a table is shown with its columns."""
    words = set(stems(span))
    return span in shown or (bool(words) and len(words & set(stems(shown))) >= 0.8 * len(words))


def _golden_lines(answered: Sequence[Told], others: Sequence[Told]) -> Iterator[Result]:
    held = [told for told in answered if told.held_out]
    yield Result(
        NAME, _share(t.words >= HALF for t in held if t.words is not None),
        "share of golden questions with at least half of the reference answer's words",
        extra={"set": "golden", "held_out": figures(held), "all": figures(answered)},
    )  # fmt: skip
    silent = [told for told in others if told.held_out]
    yield Result(
        NAME, _share(not told.text for told in silent), "share of unanswerable questions without any sentence",
        extra={"set": "unanswerable", "held_out": figures(silent), "all": figures(others)},
    )  # fmt: skip


def figures(told: Sequence[Told]) -> dict[str, object]:
    """Means and shares; None where no question has that label."""
    words = [one.words for one in told if one.words is not None]
    return {
        "questions": len(told),
        "words_told": rounded(sum(words) / len(words)) if words else None,
        "half_told": rounded(_share(value >= HALF for value in words)),
        "numbers": rounded(_share(one.numbers for one in told if one.numbers is not None)),
        "fact": rounded(_share(one.fact for one in told if one.fact is not None)),
        "facts": sum(one.fact is not None for one in told),
        "span": rounded(_share(one.span for one in told if one.span is not None)),
        "silent": sum(not one.text for one in told),
        "sentences": rounded(sum(one.sentences for one in told) / len(told), 2) if told else None,
        "words": rounded(sum(len(one.text.split()) for one in told) / len(told), 1) if told else None,
    }


def _share(values: Iterable[bool | None]) -> float | None:
    found = [bool(value) for value in values]
    return sum(found) / len(found) if found else None


# ---------------------------------------------------------------- articles


async def _articles(
    session: Session, writers: Writers, supply: Supply, asked: Sequence[Asked], limits: Limits
) -> list[Result]:
    everything = supply.everything()
    told: dict[int, list[Told]] = {sentences: [] for sentences in SENTENCES}
    supplied = 0
    for number, question in enumerate(asked):
        sources = supply.sources(question.text, everything, limits)
        gold = [level(answer) for answer in question.answers]
        supplied += any(one in level(source.text) for one in gold for source in sources)
        found = await writers.ask(question.text, sources, SENTENCES)
        for sentences, (text, count) in zip(SENTENCES, found, strict=True):
            fact = any(one in level(text) for one in gold)
            told[sentences].append(Told(text, count, held_out=number % 2 == 1, fact=fact))
        session.progress(f"{NAME}, articles", number + 1, len(asked))
    return [_article_line(sentences, told[sentences], supplied) for sentences in SENTENCES]


def _article_line(most: int, told: Sequence[Told], supplied: int) -> Result:
    count = max(1, len(told))
    return Result(
        NAME, _share(one.fact for one in told), "share of article questions whose gold answer is told",
        extra={
            "set": "squad2-articles", "most_sentences": most, "questions": len(told),
            "supplied": rounded(supplied / count),
            "sentences": rounded(sum(one.sentences for one in told) / count, 2),
            "words": rounded(sum(len(one.text.split()) for one in told) / count, 1),
        },
    )  # fmt: skip
