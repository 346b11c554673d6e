"""``extractive``: answers that are made of the sources' sentences, and what they refuse: golden set, fresh questions
(``samples/questions``), and questions about articles.

In this process and without services: pages are cut, embedded and ranked as the default generation does it, and the
writer is the product's, with its encoder and, where it is on this machine, its reranker. Only the check of support is
left out: word for word it lets nearly all pass. The line ``fitted`` carries the weights that golden and dev questions
together give; ``held`` ones take no part in anything but the telling.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from infra.bench import made as judging
from infra.bench.made import Made, figures, padded
from infra.bench.quality import retrieval
from infra.bench.quality.readers import OwnReader
from infra.bench.quality.retrieval import Encoder, Page
from infra.bench.quality.run import Places
from infra.bench.replies import Reply, Searching
from infra.bench.report import Result, rounded
from infra.bench.session import Session
from infra.bench.supplied import Asked, Limits, Supply, article_questions, day_of, golden_pages
from infra.golden_run import checkout, questions_of
from pipeline import settings as config
from pipeline.answer_quality import lacking
from pipeline.answer_report import load_facts
from pipeline.golden import FolderReaders, level
from pipeline.observe import Metrics
from pipeline.settings import Settings
from query_service.answer import answerable, contradiction, wording
from query_service.answer.extractive import ExtractiveWriter, Weighed
from query_service.answer.interface import Ask, Draft, Source
from query_service.answer.strength import strength
from query_service.encoders import Encoders
from query_service.rerank.service import TimedReranking
from schemas.generation import ChunkingSpec, EncoderSpec, Generation

NAME = "extractive"
SENTENCES = (1, 3, 5)
PATIENCE_S = 60.0  # for one answer: no figure here is a time


@dataclass(frozen=True)
class Told:
    """One answer about articles. ``fact``: whether the gold answer stands in it."""

    text: str
    sentences: int
    fact: bool


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

    async def judged(self, q: judging.Question, reply: Reply, can: bool) -> Made:
        """What would be said to a question, as the product says it: both sides of what contradicts come first."""
        sources = reply.sources
        writer = ExtractiveWriter(self._encoders, self._reranking, lambda: self.generation)
        language = wording.language_of(q.question)
        end = time.monotonic() + PATIENCE_S
        weighed = await writer.weighed(Ask(q.question, (), sources, self._settings.answer.max_tokens, end, language))
        drafts = drafts_of(q.question, sources, weighed, self.usual)
        text = "\n".join(draft.text for draft in drafts)
        return Made(
            q.id, q.part, can, answerable.signals(q.question, reply.response, weighed),
            strength(q.question, reply.response).score < self._settings.answer.weak, text, len(drafts),
            missing=lacking(q.facts, text), padding=padded(text, q.padding),
            supplied=not lacking(q.facts, "\n".join(source.text for source in sources)),
        )  # fmt: skip


def drafts_of(question: str, sources: Sequence[Source], weighed: Weighed | None, most: int) -> list[Draft]:
    """Sides of contradictions that bear on the question, then the chosen sentences that tell no side alone."""
    disputes = [d for d in contradiction.contradictions(question, sources) if d.essential]
    stated = [draft for dispute in disputes for draft in contradiction.stated(dispute)]
    chosen = [Draft(unit.text, (unit.source,)) for unit in (weighed.chosen(most) if weighed is not None else ())]
    rest = [d for d in chosen if not any(contradiction.one_sided([d], dispute) for dispute in disputes)]
    return [*stated, *(d for d in rest if d.text not in {s.text for s in stated})]


Search = Callable[[Supply], Searching]


def extractive(session: Session) -> Iterable[Result]:
    """A line for each set of questions, one for the fit, and one for the articles at each length."""
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

        def search(corpus: Supply) -> Searching:
            return Searching(corpus, settings, reranking)

        found = [*await _golden(session, writers, supply, search), *await _fresh(session, writers, supply, search)]
        results = list(_told(found, settings.answer.least))
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


# ---------------------------------------------------------------- golden set and fresh questions


async def _golden(
    session: Session, writers: Writers, supply: Callable[[Sequence[Page]], Supply], search: Search
) -> list[Made]:
    paths = checkout()
    corpus, readers = supply(golden_pages(paths.samples)), FolderReaders(paths.wiki)
    questions = questions_of(paths)[0]
    facts = load_facts(paths.samples / "golden" / "facts.jsonl", questions)
    asking = search(corpus)
    most = session.sizes.split_questions
    chosen = [n * len(questions) // most for n in range(most)] if most < len(questions) else range(len(questions))
    found = []
    for done, number in enumerate(chosen, 1):
        q = questions[number]
        reply = await asking.ask(q.question, corpus.admitted(q, readers), day_of(q))
        wanted = facts.get(q.id, ()) if q.answerable else ()
        found.append(await writers.judged(judging.Question(q.id, q.question, "golden", wanted), reply, q.answerable))
        session.progress(f"{NAME}, golden", done, len(chosen))
    return found


async def _fresh(
    session: Session, writers: Writers, supply: Callable[[Sequence[Page]], Supply], search: Search
) -> list[Made]:
    folder = checkout().samples / "questions"
    corpus = supply(tuple(retrieval.wiki(folder / "pages", OwnReader().extract)))
    asking, everything = search(corpus), corpus.everything()
    every, most = judging.load(folder / "questions.jsonl"), session.sizes.split_questions
    questions = [every[n * len(every) // most] for n in range(most)] if most < len(every) else every
    found = []
    for done, q in enumerate(questions, 1):
        reply = await asking.ask(q.question, everything)
        found.append(await writers.judged(q, reply, bool(q.facts)))
        session.progress(f"{NAME}, fresh", done, len(questions))
    return found


def _told(found: Sequence[Made], least: float) -> Iterator[Result]:
    """A line for each part by the packaged weights, then what a fit gives."""
    packaged = answerable.weights()
    for part in ("golden", "dev", "held"):
        own = [made for made in found if made.part == part]
        if own:
            told = figures(own, [judging.score(made, packaged) for made in own], least)
            yield Result(NAME, told["right"], "share of questions answered completely or refused rightly",
                         extra={"set": part, **told})  # fmt: skip
    seen = [made for made in found if made.part != "held"]
    if not any(made.signals is not None for made in seen):
        return
    crossed = judging.crossed(seen, lambda train: judging.fitted(train, least))
    by_part = {
        part: figures(*_of(part, seen, crossed), least) for part in ("golden", "dev") if _of(part, seen, crossed)[0]
    }
    both = figures(seen, crossed, least)
    yield Result(
        NAME, both["f1"], "F1 of refusing, fitted on golden and dev questions, each told by a fit without it",
        extra={
            "set": "fitted", "both": both, "parts": by_part,
            "fitted": {name: round(value, 3) for name, value in judging.fitted(seen, least).items()},
        },
    )  # fmt: skip


def _of(part: str, found: Sequence[Made], scores: Sequence[float]) -> tuple[list[Made], list[float]]:
    pairs = [(made, value) for made, value in zip(found, scores, strict=True) if made.part == part]
    return [made for made, _ in pairs], [value for _, value in pairs]


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
            told[sentences].append(Told(text, count, fact))
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
