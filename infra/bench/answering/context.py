"""``context``: how many passages an answer should rest on, and whether it matters where the right one stands.

Each answerable golden question is asked with 1, 3, 5, 10 and 15 passages. Then the passages of some questions are given
to the answerer with the labelled one at each position among others. The second part is only worth something for an
answerer that reads its context in order: one that takes sentences from the sources must not notice, a model may.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from infra.answer_run import EVERYTHING, Style, answered, passages, request_of
from infra.asking import QueryApi
from infra.bench.answering.wiki import Wiki, opened, spread
from infra.bench.report import Result, percentile, rounded
from infra.bench.session import Session
from infra.bench.sizes import QUICK
from infra.oracle import Answerer, scope_of
from pipeline.answer_quality import (
    answer_relevance,
    context_precision,
    context_recall,
    context_relevance,
    faithfulness,
    lacking,
)
from pipeline.answer_report import Answered, points_at
from pipeline.chunk.sentences import sentence_spans
from pipeline.errors import DocumentError
from pipeline.golden import Hit, Question
from schemas.api_ranking import EvidencePassage

NAME = "context"
SIZES = (1, 3, 5, 10, 15)
POOL = 50
QUESTIONS, POSITION_QUESTIONS = 145, 16


@dataclass(frozen=True)
class Asked:
    """One question at one size."""

    one: Answered
    supplied: tuple[EvidencePassage, ...]
    relevant: tuple[bool, ...]
    found: tuple[bool, ...]  # essential passages
    tokens: int
    ms: float
    relevance: float | None


def context(session: Session) -> Iterable[Result]:
    """Lines by size, then by position. Raises InfraError."""
    wiki = opened(session, NAME)
    style: Style = "generated" if wiki.world.settings.generator.url else "extractive"
    quick = session.sizes == QUICK
    questions = spread(wiki.answerable, 6 if quick else QUESTIONS)
    with QueryApi(wiki.world.settings) as api:
        for k in SIZES:
            asked = []
            for question in questions:
                asked.append(_ask(session, wiki, api, question, k, style))
                session.progress(f"{k} passages", len(asked), len(questions))
            yield _of_size(k, asked, style)
        placed = list(
            _placeable(api, spread(wiki.answerable, len(wiki.answerable)), 2 if quick else POSITION_QUESTIONS)
        )
    with Answerer(wiki.world.settings) as answerer:
        for k in SIZES[1:]:
            yield from _positions(session, wiki, answerer, placed, k, style)
    session.close_world()


# -- sizes -------------------------------------------------------------------------------------------------------------


def _ask(session: Session, wiki: Wiki, api: QueryApi, question: Question, k: int, style: Style) -> Asked:
    supplied = passages(api, question, k)
    request = request_of(question, style, context=k, budget=EVERYTHING)
    reply = api.answer(question.user, question.tenant, request)
    one = answered(question, wiki.facts[question.id], reply, wiki.corpus)
    hits = [Hit(p.document_id, p.text, p.heading_path) for p in supplied]
    return Asked(
        one,
        supplied,
        tuple(any(points_at(hit, label) for label in question.relevant) for hit in hits),
        tuple(any(points_at(hit, label) for hit in hits) for label in question.relevant),
        sum(p.tokens for p in supplied),
        one.ms or 0.0,
        _relevance(session, wiki, one),
    )


def _relevance(session: Session, wiki: Wiki, one: Answered) -> float | None:
    """Cosine of question and answer: no question is regenerated here, and the line says so."""
    if not one.claims:
        return None
    encoder = session.encoder(wiki.world)
    asked = encoder.embed_query(one.question.question).reshape(-1)
    words = " ".join(claim.text for claim in one.claims).split()
    while True:
        try:
            said = encoder.embed_documents([" ".join(words)])[0]
            break
        except DocumentError:  # longer than the encoder reads: its beginning stands for it
            words = words[: len(words) // 2]
    found = answer_relevance(asked, answer=said)
    return found.value if found is not None else None


def _of_size(k: int, asked: Sequence[Asked], style: Style) -> Result:
    relevant, sentences = 0, 0
    for one in asked:
        for passage, is_relevant in zip(one.supplied, one.relevant, strict=True):
            count = len(sentence_spans(passage.text))
            sentences += count
            relevant += count if is_relevant else 0
    said = [one for one in asked if one.one.answered]
    complete = [not one.one.missing for one in asked]
    return Result(
        NAME, sum(complete) / len(asked), f"share of questions answered completely with {k} passages",
        extra={
            "k": k, "style": style, "questions": len(asked), "answered": len(said),
            "context_precision": _mean([context_precision(one.relevant) for one in asked]),
            "context_recall": _mean([context_recall(one.found) for one in asked]),
            "context_relevance": rounded(context_relevance(relevant, sentences)),
            "faithfulness_by_words": _mean([faithfulness([c.by_words for c in one.one.claims]) for one in said]),
            "relevance_by_answer_itself": _mean([one.relevance for one in said]),
            "complete": rounded(sum(complete) / len(asked)),
            "words": _mean([float(one.one.words) for one in said]),
            "tokens": rounded(statistics.fmean(one.tokens for one in asked), 1),
            "p50_ms": rounded(percentile([one.ms for one in asked], 0.5), 1),
            "p95_ms": rounded(percentile([one.ms for one in asked], 0.95), 1),
        },
    )  # fmt: skip


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return rounded(statistics.fmean(known)) if known else None


# -- positions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A question with its one labelled passage and others, best first, that are none."""

    question: Question
    right: EvidencePassage
    others: tuple[EvidencePassage, ...]


def _placeable(api: QueryApi, questions: Sequence[Question], most: int) -> Iterator[Placed]:
    """Questions that one passage answers and that have enough others beside it."""
    count = 0
    for question in questions:
        if count == most:
            return
        if len(question.relevant) != 1 or question.kind == "contradictory":
            continue
        pool = passages(api, question, POOL)
        right = [p for p in pool if points_at(Hit(p.document_id, p.text, p.heading_path), question.relevant[0])]
        others = tuple(p for p in pool if p not in right)
        if right and len(others) >= max(SIZES) - 1:
            count += 1
            yield Placed(question, right[0], others)


def placed_at(one: Placed, k: int, position: int) -> list[EvidencePassage]:
    """``k`` passages with the labelled one at ``position``, counted from 1. Their own ranks stay as they are."""
    made = list(one.others[: k - 1])
    made.insert(position - 1, one.right)
    return made


def _positions(
    session: Session, wiki: Wiki, answerer: Answerer, placed: Sequence[Placed], k: int, style: Style
) -> Iterator[Result]:
    if not placed:
        return
    first: dict[str, frozenset[str]] = {}
    for position in range(1, k + 1):
        complete, same = [], []
        for one in placed:
            name = one.question.id
            request = request_of(one.question, style, context=k, budget=EVERYTHING)
            reply = answerer.answer(scope_of(one.question), request, placed_at(one, k, position))
            said = frozenset(sentence.text for sentence in reply.sentences)
            complete.append(not lacking(wiki.facts[name], " \n".join(said)))
            same.append(first.setdefault(name, said) == said)
        session.progress(f"position among {k}", position, k)
        yield Result(
            f"{NAME}_position", sum(complete) / len(placed), f"share complete with the passage {position} of {k}",
            extra={
                "k": k, "position": position, "style": style, "questions": len(placed),
                "complete": rounded(sum(complete) / len(placed)),
                "same_sentences_as_first": rounded(sum(same) / len(placed)),
            },
        )  # fmt: skip
