"""The questions of the ablation: each with who asks, what is right, and how a reply is scored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Literal, TypeVar

from infra.bench.tier_split import ARTICLE_TENANT, READER, Article
from infra.golden_run import answer
from pipeline import quality
from pipeline.golden import Question
from query_service.scope import Scope
from schemas.api import SearchFilters, SearchResponse

K = 10
GOLDEN, ARTICLES = "golden", "articles"
Measure = Literal["ndcg", "recall", "mrr"]
_T = TypeVar("_T")
MEASURES: tuple[Measure, ...] = ("ndcg", "recall", "mrr")


@dataclass(frozen=True)
class Figures:
    """Of one reply, each between 0 and 1: nDCG@10, recall@10, reciprocal rank of the first right hit."""

    ndcg: float
    recall: float
    mrr: float


@dataclass(frozen=True)
class Item:
    """A question of the set ``of``, asked as ``scope``. Exactly one of ``golden`` and ``wanted`` is given."""

    of: str
    text: str
    scope: Scope
    filters: SearchFilters
    golden: Question | None = None
    wanted: str | None = None  # the only right document

    @property
    def name(self) -> tuple[str, str]:
        """Tells it from every other question; the same words may be asked on two days."""
        return self.of, self.golden.id if self.golden is not None else self.text

    def score(self, response: SearchResponse) -> Figures:
        """Raises ImportError without the extra ``quality``."""
        if self.golden is not None:
            ranking = quality.rank(self.golden, answer(self.golden, response, "hybrid").retrieved.hits)
            return Figures(ranking.ndcg[K], ranking.recall[K], ranking.mrr)
        return single([hit.document_id for hit in response.hits[:K]], self.wanted or "")


def single(documents: Sequence[str], wanted: str) -> Figures:
    """Where one document alone is right, its first rank is the whole measure."""
    if wanted not in documents:
        return Figures(0.0, 0.0, 0.0)
    rank = documents.index(wanted) + 1
    return Figures(1 / math.log2(rank + 1), 1.0, 1 / rank)


def golden_items(questions: Sequence[Question], tenant: str, most: int) -> list[Item]:
    """The answerable ones, each as its own person on its own day; ``most`` of them, spread over the set."""
    return [_golden(q, tenant) for q in spread([q for q in questions if q.answerable and q.relevant], most)]


def _golden(question: Question, tenant: str) -> Item:
    as_of = None
    if question.as_of is not None:
        as_of = int(datetime.combine(question.as_of, time(), UTC).timestamp()) * 1_000_000
    scope = Scope(tenant=tenant, subject=question.user.removeprefix("user:"))
    return Item(GOLDEN, question.question, scope, SearchFilters(as_of=as_of), golden=question)


def article_items(articles: Sequence[Article], most: int) -> list[Item]:
    """Questions on articles, as the one reader of all of them."""
    scope = Scope(tenant=ARTICLE_TENANT, subject=READER.removeprefix("user:"))
    return [Item(ARTICLES, a.text, scope, SearchFilters(), wanted=a.wanted) for a in spread(articles, most)]


def spread(found: Sequence[_T], most: int) -> list[_T]:
    """At most so many, at equal distances."""
    if len(found) <= most:
        return list(found)
    return [found[n * len(found) // most] for n in range(most)]
