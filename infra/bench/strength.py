"""``strength``: which replies have too little to answer from, on questions that can and cannot be answered.

The golden questions are asked as their own persons, and those on encyclopaedia articles where they lie beside the
checkout, each without and with the reranker. Weights and their place are fitted on one half of the golden questions and
told for the other; further lines judge the weights that are packaged, and carry those that this run would package. The
last line says which golden questions have sources that count as contradicting each other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any

import numpy as np
import numpy.typing as npt

from infra import corpus
from infra.asking import QueryApi
from infra.bench.report import Result, rounded
from infra.bench.session import Session
from infra.bench.tier_split import ARTICLE_TENANT, ARTICLES, READER, articles_of, indexed
from infra.bench.world import FOLDER_TENANT, World
from infra.golden_run import checkout, questions_of
from pipeline.golden import Question
from pipeline.settings_query import AnswerSettings
from query_service.answer.contradiction import contradictions
from query_service.answer.interface import Source
from query_service.answer.strength import NAMES, logistic, strength
from schemas.api import SearchFilters, SearchResponse
from schemas.api_ranking import RerankMode

NAME = "strength"
PROCESSES = ("control", "access", "index", "query", "owner")
MODELS: dict[str, RerankMode] = {"plain": "off", "reranked": "full"}
RIDGE = 1.0  # of the weights, not of the intercept
REFUSED = 0.02  # share of answerable questions that may count as weak
FOLDS = 10
K = 10
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reply:
    """One question's signals, whether it can be answered, and the score that the packaged weights give."""

    id: str
    answerable: bool
    signals: tuple[float, ...]
    score: float

    @staticmethod
    def of(name: str, answerable: bool, question: str, response: SearchResponse, model: str) -> Reply:
        """Of a search's reply."""
        found = strength(question, response)
        return Reply(name, answerable, tuple(found.signals.get(n, 0.0) for n in names_of(model)), found.score)

    @property
    def half(self) -> int:
        """0 or 1, by the id alone."""
        return hashlib.sha256(self.id.encode()).digest()[0] % 2


def names_of(model: str) -> tuple[str, ...]:
    """The signals of a model, in order."""
    return (*NAMES, "reranker") if model == "reranked" else NAMES


# ---------------------------------------------------------------- fitting


def regression(x: Matrix, y: Matrix) -> Matrix:
    """Weights of a logistic regression with a ridge penalty, the intercept last; Newton's method."""
    rows = np.hstack([x, np.ones((len(x), 1))])
    penalty = np.diag([RIDGE] * x.shape[1] + [1e-6])
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-rows @ weights))
        gradient = rows.T @ (y - p) - penalty @ weights
        curvature = (rows * (p * (1 - p))[:, None]).T @ rows + penalty
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step
        if np.abs(step).max() < 1e-8:
            break
    return np.asarray(weights, dtype=np.float64)


def fitted(replies: Sequence[Reply], model: str) -> dict[str, float]:
    """Weights by name. The intercept is moved so that at score 0.5 a share REFUSED of the answerable questions counts
    as weak, in cross-validation; one threshold then serves both models."""
    x = np.array([r.signals for r in replies], dtype=np.float64)
    y = np.array([float(r.answerable) for r in replies])
    weights = regression(x, y)
    outside = np.zeros(len(y))
    fold = np.array([hashlib.sha256(f"fold {r.id}".encode()).digest()[0] % FOLDS for r in replies])
    for n in range(FOLDS):
        if (fold == n).any():
            without = regression(x[fold != n], y[fold != n])
            outside[fold == n] = x[fold == n] @ without[:-1] + without[-1]
    lowest = np.quantile(outside[y > 0], REFUSED)
    found = dict(zip(names_of(model), (float(w) for w in weights[:-1]), strict=True))
    return {**found, "intercept": float(weights[-1] - lowest)}


def scores(replies: Sequence[Reply], model: str, weights: dict[str, float]) -> list[float]:
    """Each reply's score by these weights."""
    names = names_of(model)
    return [
        logistic(weights["intercept"] + sum(weights[n] * v for n, v in zip(names, r.signals, strict=True)))
        for r in replies
    ]


def figures(replies: Sequence[Reply], given: Sequence[float], threshold: float) -> dict[str, Any]:
    """Abstention: precision, recall, F1, and the share of answerable questions that were refused."""
    weak = [score < threshold for score in given]
    right = sum(w and not r.answerable for w, r in zip(weak, replies, strict=True))
    cannot = sum(not r.answerable for r in replies)
    wrong = sum(weak) - right
    can = len(replies) - cannot
    return {
        "unanswerable": cannot, "noticed": right, "answerable": can, "refused_wrongly": wrong,
        "precision": rounded(right / sum(weak)) if any(weak) else None,
        "recall": rounded(right / cannot) if cannot else None,
        "f1": rounded(2 * right / (sum(weak) + cannot)) if sum(weak) + cannot else None,
        "false_refusals": rounded(wrong / can, 4) if can else None,
    }  # fmt: skip


# ---------------------------------------------------------------- asking


def strength_bench(session: Session) -> Iterable[Result]:
    """Two lines a model: halves of the golden questions, and the packaged weights on both sets."""
    paths = checkout()
    session.close_world()
    world = World(session.endpoints, session.folder / "worlds" / NAME, PROCESSES)
    shutil.copytree(paths.wiki, world.wiki, dirs_exist_ok=True)
    made = session.world(NAME, lambda: world)
    generation = made.generation().name
    indexed(session, made, generation, FOLDER_TENANT, sum(1 for _ in corpus.pages(made.wiki)))
    with_articles = bool(articles_of(session, made))
    if with_articles:
        indexed(session, made, generation, ARTICLE_TENANT, session.sizes.split_articles)
    for model, rerank in MODELS.items():
        golden = list(_golden(session, made, model, rerank))
        articles = list(_articles(session, made, model, rerank)) if with_articles else []
        yield from lines(model, golden, articles)
    yield _disputed(session, made)
    session.close_world()


def _disputed(session: Session, world: World) -> Result:
    """Recall on the contradictory questions, and false alarms on the others, over the sources an answer would get."""
    questions = questions_of(checkout())[0]
    context = AnswerSettings().context
    found: list[str] = []
    with QueryApi(world.settings) as api:
        for number, q in enumerate(questions, 1):
            reply = api.search(
                q.user, FOLDER_TENANT, q.question, k=context, filters=SearchFilters(as_of=_moment(q)), rerank="off",
                evidence="sections", token_budget=AnswerSettings().token_budget,
            )  # fmt: skip
            passages = reply.evidence.passages if reply.evidence is not None else ()
            if contradictions(q.question, [Source(n, passage) for n, passage in enumerate(passages, 1)]):
                found.append(q.id)
            session.progress("contradictions", number, len(questions))
    wanted = {q.id for q in questions if q.kind == "contradictory"}
    false = [name for name in found if name not in wanted]
    right = len(found) - len(false)
    return Result(
        NAME, right / len(wanted), "share of contradictory questions found",
        extra={
            "contradictory": len(wanted), "found": right, "missed": sorted(wanted - set(found)),
            "others": len(questions) - len(wanted), "false_alarms": false,
        },
    )  # fmt: skip


def _moment(question: Question) -> int | None:
    if question.as_of is None:
        return None
    return int(datetime.combine(question.as_of, time(), UTC).timestamp()) * 1_000_000


def _golden(session: Session, world: World, model: str, rerank: RerankMode) -> Iterator[Reply]:
    questions = questions_of(checkout())[0]
    with QueryApi(world.settings) as api:
        for number, q in enumerate(questions, 1):
            found = api.search(
                q.user, FOLDER_TENANT, q.question, k=K, filters=SearchFilters(as_of=_moment(q)), rerank=rerank
            )
            yield Reply.of(q.id, q.answerable, q.question, found, model)
            session.progress(f"golden questions, {model}", number, len(questions))


def _articles(session: Session, world: World, model: str, rerank: RerankMode) -> Iterator[Reply]:
    """All of them: a question that nothing answers was written against a passage that holds its words."""
    listed = [json.loads(line) for line in (ARTICLES / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    listed = listed[:: max(1, -(-len(listed) // session.sizes.split_questions))] if len(listed) > 400 else listed
    with QueryApi(world.settings) as api:
        for number, q in enumerate(listed, 1):
            found = api.search(READER.removeprefix("user:"), ARTICLE_TENANT, q["text"], k=K, rerank=rerank)
            yield Reply.of(q["_id"], q["answerable"], q["text"], found, model)
            session.progress(f"articles, {model}", number, len(listed))


def lines(model: str, golden: Sequence[Reply], articles: Sequence[Reply]) -> Iterator[Result]:
    """The halves crossed, then what is packaged."""
    threshold = AnswerSettings().weak
    crossed: list[tuple[Reply, float]] = []
    for half in (0, 1):
        train = [r for r in golden if r.half == half]
        told = [r for r in golden if r.half != half]
        crossed += zip(told, scores(told, model, fitted(train, model)), strict=True)
    by_half = {
        f"half {half}": figures(*_split([(r, s) for r, s in crossed if r.half == half]), threshold) for half in (0, 1)
    }
    both = figures(*_split(crossed), threshold)
    yield Result(
        NAME, both["f1"], "F1 of abstention, fitted on the other half",
        extra={"model": model, "threshold": threshold, "golden": both, "halves": by_half},
    )  # fmt: skip
    packaged = [r.score for r in golden]
    yield Result(
        NAME, figures(golden, packaged, threshold)["f1"], "F1 of abstention, packaged weights",
        extra={
            "model": model, "threshold": threshold, "golden": figures(golden, packaged, threshold),
            "articles": figures(articles, [r.score for r in articles], threshold) if articles else None,
            "thresholds": {f"{t:g}": figures(golden, packaged, t) for t in (0.3, 0.4, 0.5, 0.6, 0.7)},
            "fitted": {name: round(value, 3) for name, value in fitted(golden, model).items()},
        },
    )  # fmt: skip


def _split(pairs: Sequence[tuple[Reply, float]]) -> tuple[list[Reply], list[float]]:
    return [r for r, _ in pairs], [s for _, s in pairs]
