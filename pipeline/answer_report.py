"""Answers over a golden set: what became of each question, the figures of all, the gate. Pure.

A question is *right* where everything that was asked for stands in an answer, or where nothing can be answered and
nothing is. Its mean is what is compared with the stored baseline, paired by question, as ranking is in ``quality``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from pipeline.answer_judge import Standing
from pipeline.answer_quality import (
    FLOOR,
    Relevance,
    faithfulness,
    lacking,
    says,
    section_of,
    share,
    supported_by_words,
)
from pipeline.golden import KINDS, GoldenError, Hit, Label, Question, level
from pipeline.quality import (
    Abstention,
    Baseline,
    Comparison,
    Interval,
    MayRead,
    bootstrap,
    load_baseline,
    paired,
    store_named,
)

PREFIX = "answers-"  # of the baselines' names
Facts = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Claim:
    """A released sentence. ``by_words`` is what the measure of words says of the pages that it cites, whole."""

    text: str
    support: float  # the service's checker
    by_words: bool
    judged: float | None = None  # a judge's score, 0.2 to 1


@dataclass(frozen=True)
class Answered:
    """What one question got. ``citations`` show the quoted words, with document path and headings."""

    question: Question
    facts: Facts
    answered: bool
    text: str = ""
    claims: tuple[Claim, ...] = ()
    citations: tuple[Hit, ...] = ()
    refused: str | None = None
    needs_review: bool = False
    withheld: int = 0
    words: int = 0
    ms: float | None = None
    tokens: int = 0
    fallback: str | None = None
    relevance: Relevance | None = None
    pages: Mapping[str, str] = field(default_factory=dict, repr=False)  # texts by path

    @property
    def missing(self) -> tuple[str, ...]:
        """Asked facts that the answer lacks; all of them where there is none."""
        if not self.answered:
            return tuple(spellings[0] for spellings in self.facts)
        return lacking(self.facts, " \n".join(claim.text for claim in self.claims))

    def cited(self, citation: Hit) -> list[Label]:
        """Labelled passages that a citation is of."""
        page = self.pages.get(citation.document, "")
        return [label for label in self.question.relevant if points_at(citation, label, page)]

    @property
    def right(self) -> bool:
        """Complete, or rightly refused."""
        if not self.question.answerable:
            return not self.answered
        return self.answered and not self.missing


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figures(_Frozen):
    """Of one kind of question, or of all. A share whose denominator is 0 is absent."""

    questions: int
    answered: int
    right: float
    complete: float | None  # of the answerable questions, whether answered or not
    complete_answered: float | None  # of those that were answered
    faithful_words: float | None  # sentences that a cited page says, by words
    citations_right: float | None  # citations of a labelled passage / citations
    labels_cited: float | None  # labelled passages of grade 3 that are cited / such passages
    reviewed: float | None  # answers that are marked as contradicting each other
    words: float | None
    p50_ms: float | None


class AnswerReport(_Frozen):
    """One run. ``exposures`` are citations of, or facts from, what the person may not read."""

    style: str
    questions: int
    claims: int
    overall: Figures
    kinds: dict[str, Figures]
    abstention: Abstention
    checker_lowest: float | None
    unsupported_by_words: tuple[str, ...]
    exposures: tuple[str, ...]
    wrong_editions: tuple[str, ...]
    withheld: int
    fallbacks: int
    relevance: float | None = None  # mean over the answers of which it is known
    relevance_by: str | None = None  # two measures, never mixed
    relevance_of: int = 0
    judge: str | None = None  # whether a judge's scores count, and why
    judge_counts: bool = False
    judged: float | None = None  # its mean score of a claim
    judged_claims: int = 0
    interval: Interval
    per_question: dict[str, float]


@dataclass
class _Totals:
    labels: int = 0
    cited: int = 0
    citations: int = 0
    right: int = 0
    words: list[int] = field(default_factory=list)


def score_answers(
    answers: Sequence[Answered], style: str, *, may_read: MayRead | None = None, judge: Standing | None = None
) -> AnswerReport:
    """All figures of a run. Raises GoldenError where nothing was asked, ValueError where answers come with relevance
    measured in two ways."""
    if not answers:
        raise GoldenError("no question was asked, so there is nothing to score")
    per_question = {a.question.id: float(a.right) for a in answers}
    claims = [(a, claim) for a in answers for claim in a.claims]
    kinds = {kind: [a for a in answers if a.question.kind == kind] for kind in KINDS}
    relevances = [a.relevance for a in answers if a.relevance is not None]
    ways = {one.by for one in relevances}
    if len(ways) > 1:
        raise ValueError("relevance was measured in two ways, which have no common mean")
    scores = [claim.judged for _, claim in claims if claim.judged is not None]
    return AnswerReport(
        style=style,
        questions=len(answers),
        claims=len(claims),
        overall=figures(answers),
        kinds={kind: figures(found) for kind, found in kinds.items() if found},
        abstention=abstention(answers),
        checker_lowest=min((claim.support for _, claim in claims), default=None),
        unsupported_by_words=tuple(f"{a.question.id}: {claim.text}" for a, claim in claims if not claim.by_words),
        exposures=_exposures(answers, may_read),
        wrong_editions=tuple(
            f"{a.question.id}: {hit.document}"
            for a in answers
            for hit in a.citations
            if hit.document in a.question.excluded
        ),
        withheld=sum(a.withheld for a in answers),
        fallbacks=sum(a.fallback is not None for a in answers),
        relevance=float(np.mean([one.value for one in relevances])) if relevances else None,
        relevance_by=next(iter(ways), None),
        relevance_of=len(relevances),
        judge=judge.why if judge is not None else None,
        judge_counts=judge is not None and judge.counts,
        judged=float(np.mean(scores)) if scores else None,
        judged_claims=len(scores),
        interval=bootstrap(list(per_question.values())),
        per_question=per_question,
    )


def figures(answers: Sequence[Answered]) -> Figures:
    """Of these answers."""
    answered = [a for a in answers if a.answered]
    answerable = [a for a in answers if a.question.answerable]
    judged = [a for a in answerable if a.facts]
    totals = _Totals()
    for one in answered:
        _count(one, totals)
    times = [a.ms for a in answers if a.ms is not None]
    return Figures(
        questions=len(answers),
        answered=len(answered),
        right=sum(a.right for a in answers) / len(answers) if answers else 0.0,
        complete=share(sum(a.right for a in judged), len(judged)),
        complete_answered=share(sum(a.right for a in judged), sum(a.answered for a in judged)),
        faithful_words=faithfulness([claim.by_words for a in answered for claim in a.claims]),
        citations_right=share(totals.right, totals.citations),
        labels_cited=share(totals.cited, totals.labels),
        reviewed=share(sum(a.needs_review for a in answered), len(answered)),
        words=float(np.mean(totals.words)) if totals.words else None,
        p50_ms=float(np.median(times)) if times else None,
    )


def _count(one: Answered, totals: _Totals) -> None:
    labels = one.question.relevant
    best = [label for label in labels if label.grade == max((x.grade for x in labels), default=0)]
    totals.words.append(one.words)
    totals.citations += len(one.citations)
    totals.right += sum(any(label in one.cited(hit) for label in labels) for hit in one.citations)
    totals.labels += len(best)
    totals.cited += sum(any(label in one.cited(hit) for hit in one.citations) for label in best)


def points_at(citation: Hit, label: Label, page: str = "") -> bool:
    """Whether a citation is of the labelled passage. Its quote may be a part of the label's span, or stand below the
    label's heading in the ``page``, where sections share a passage."""
    if label.matches(citation):
        return True
    if citation.document != label.document or not level(citation.text):
        return False
    if label.span is not None:
        return level(citation.text) in level(label.span)
    section = section_of(page, label.heading or "")
    return bool(section) and supported_by_words(citation.text, section)


def abstention(answers: Sequence[Answered]) -> Abstention:
    """Of refusing, over all questions: those that this person cannot get an answer to should be refused."""
    expected = sum(not a.question.answerable for a in answers)
    abstained = sum(not a.answered for a in answers)
    right = sum(not a.answered and not a.question.answerable for a in answers)
    return Abstention(
        expected=expected,
        abstained=abstained,
        right=right,
        precision=share(right, abstained),
        recall=share(right, expected),
        f1=2 * right / (expected + abstained) if expected + abstained else None,
    )


def _exposures(answers: Sequence[Answered], may_read: MayRead | None) -> tuple[str, ...]:
    found = []
    for one in answers:
        question = one.question
        for hit in one.citations:
            if hit.document in question.forbidden or (may_read and not may_read(question.user, hit.document)):
                found.append(f"{question.id}: {hit.document}")
        if not question.answerable and question.fact and says(one.text, question.fact):
            found.append(f"{question.id}: the fact itself")
    return tuple(found)


# -- gate --------------------------------------------------------------------------------------------------------------


def compare_answers(report: AnswerReport, baseline: Baseline) -> Comparison:
    """Whether fewer questions come out right, by the rule of ``quality.compare``. Raises GoldenError."""
    return paired(report.per_question, baseline)


def passes(report: AnswerReport, comparison: Comparison | None) -> tuple[bool, tuple[str, ...]]:
    """The gate: whether the run is good enough, and if not, each reason in a sentence."""
    reasons = []
    if report.exposures:
        count, first = len(report.exposures), report.exposures[0]
        reasons.append(f"{count} answers rest on what their reader may not read, first {first}")
    if report.wrong_editions:
        count, first = len(report.wrong_editions), report.wrong_editions[0]
        reasons.append(f"{count} citations not in effect on the day asked for, first {first}")
    faithful = report.overall.faithful_words
    if faithful is not None and faithful < FLOOR:
        reasons.append(f"faithfulness by words {faithful:.3f} is below {FLOOR}")
    if comparison is not None and comparison.dropped:
        reasons.append(
            f"questions that come out right fell from {comparison.baseline:.3f} to {comparison.current:.3f}, "
            f"interval of the change {comparison.change.low:+.3f} to {comparison.change.high:+.3f}"
        )
    return not reasons, tuple(reasons)


def load(path: Path, style: str) -> Baseline | None:
    """The stored run of this style. Raises GoldenError."""
    return load_baseline(path, PREFIX + style)


def store(path: Path, report: AnswerReport) -> None:
    """Keep this run as the baseline of its style; all others in the file stay."""
    store_named(path, PREFIX + report.style, report.interval.mean, report.per_question)


# -- facts -------------------------------------------------------------------------------------------------------------


def load_facts(path: Path, questions: Sequence[Question]) -> dict[str, Facts]:
    """``facts.jsonl``: what an answer to each answerable question has to say, each fact in any of its spellings.

    Raises GoldenError: a line cannot be read, or an answerable question has no facts.
    """
    found: dict[str, Facts] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise GoldenError(f"facts {path} cannot be read ({error.strerror}): name an existing file") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            facts = tuple(tuple(map(str, spellings)) for spellings in row["facts"])
            name = str(row["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise GoldenError(f"{path.name} line {number}: needs 'id' and 'facts', a list of lists") from error
        if not facts or not all(facts):
            raise GoldenError(f"{path.name} line {number}, facts: give each fact at least one spelling")
        found[name] = facts
    without = [q.id for q in questions if q.answerable and q.id not in found]
    if without:
        raise GoldenError(f"{path.name}: no facts for {', '.join(without[:5])}; add a line for each")
    return found
