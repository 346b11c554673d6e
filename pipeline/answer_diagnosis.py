"""Where a failed question was lost: corpus, candidate pool, context, answerer, citation. Pure; the runner finds out.

The stages are passed in this order, so the first one that did not hold is where to look. The answerer is asked once
more with nothing but the labelled passages, the oracle context. That run localises and proves nothing: an answerer that
succeeds there may have failed on what else was in the context, or on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.golden import Hit, Label, Question
from pipeline.quality import MayRead

Stage = Literal["corpus", "pool", "context", "answerer", "citation", "refusal", "nothing"]
_SAID: dict[Stage, str] = {
    "corpus": "no page that this person may read holds the labelled passage: mend the label or the page",
    "pool": "the corpus holds it, the first {pool} candidates do not: retrieval",
    "context": "the candidates hold it, the passages supplied do not: ranking, or the context is too small",
    "answerer": "it was supplied, and with it alone the answerer does not say it either: the answerer or the check",
    "citation": "the answer says it and cites no labelled passage",
    "refusal": "an answer to what nothing answers: the threshold of weak evidence, or the check",
    "nothing": "it was supplied, and with it alone the answerer says it: what else was supplied, or the selection",
}


@dataclass(frozen=True)
class Looked:
    """What was found on one question. ``oracle`` is None where it was not asked."""

    corpus: bool
    pool: bool
    context: bool
    oracle: bool | None
    cited: bool
    complete: bool


@dataclass(frozen=True)
class Diagnosis:
    """The first stage that lost a question, in words too."""

    question: str
    stage: Stage
    said: str
    looked: Looked | None = None


def diagnose(question: Question, looked: Looked | None, *, pool: int = 100) -> Diagnosis | None:
    """Why a question is not right; None where it is. ``looked`` is not needed where nothing answers.

    Raises ValueError: an answerable question without ``looked``.
    """
    stage = _stage(question, looked)
    return None if stage is None else Diagnosis(question.id, stage, _SAID[stage].format(pool=pool), looked)


def _stage(question: Question, looked: Looked | None) -> Stage | None:
    if not question.answerable:
        return "refusal"
    if looked is None:
        raise ValueError(f"{question.id}: say what was found")
    if looked.complete:
        return None if looked.cited else "citation"
    if not looked.corpus:
        return "corpus"
    if not looked.pool:
        return "pool"
    if not looked.context:
        return "context"
    return "answerer" if looked.oracle is False else "nothing"


def essential(question: Question) -> list[Label]:
    """Labels of the highest grade: what an answer cannot do without."""
    best = max((label.grade for label in question.relevant), default=0)
    return [label for label in question.relevant if label.grade == best]


def held(question: Question, hits: Sequence[Hit]) -> bool:
    """Whether the hits show every essential passage."""
    return all(any(label.matches(hit) for hit in hits) for label in essential(question))


def in_corpus(question: Question, pages: dict[str, str], may_read: MayRead) -> bool:
    """Whether each essential passage stands in a page, given as text by path, that the person may read."""
    return all(
        label.document in pages
        and may_read(question.user, label.document)
        and label.matches(Hit(label.document, pages[label.document]))
        for label in essential(question)
    )
