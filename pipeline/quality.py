"""Retrieval quality over a golden set: ranking, abstention, exposure, and comparison with a stored baseline.

Conventions, the same everywhere:

* precision@k divides by the number of hits returned (at most k), and is 0 where nothing was returned;
* recall@k divides by the number of labels; several hits of one passage find it once;
* nDCG@k takes grades as linear gains over log2(rank + 1); a passage gains at its first hit only, and labels that
  one hit shows together count as one passage;
* MRR is cut at the largest k;
* questions nobody could answer for this asker are left out of all of these and counted in abstention.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.golden import KINDS, GoldenError, Hit, Question, Retrieved

CUTS = (5, 10)
SAMPLES = 2000
SEED = 20260101
LEVEL = 0.95
SMALLEST_DROP = 0.01

Search = Callable[[Question], Retrieved]
MayRead = Callable[[str, str], bool]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ranking(_Frozen):
    """Ranking figures of one question, or their means; each between 0 and 1. Keys of the maps are the cuts k."""

    precision: dict[int, float]
    recall: dict[int, float]
    hit_rate: dict[int, float]
    ndcg: dict[int, float]
    mrr: float


class Group(_Frozen):
    """Means over the answerable questions of one kind. `ranking` is absent where the kind has none."""

    questions: int
    answerable: int
    ranking: Ranking | None


class Abstention(_Frozen):
    """How well "nothing sufficiently relevant" is said. A figure is absent where its denominator is 0."""

    expected: int
    abstained: int
    right: int
    precision: float | None
    recall: float | None
    f1: float | None


class Interval(_Frozen):
    """Percentile bootstrap interval of a mean."""

    mean: float
    low: float
    high: float


class Report(_Frozen):
    """Everything that one run over the golden set says. Exposures and wrong editions are `question: document`."""

    questions: int
    overall: Ranking
    kinds: dict[str, Group]
    abstention: Abstention
    interval: Interval
    identifier_first: float | None = Field(description="Share of twin questions whose page comes before its twin.")
    exposures: tuple[str, ...]
    wrong_editions: tuple[str, ...]
    per_question: dict[str, float] = Field(description="nDCG at the largest cut, by question id.")

    @property
    def forbidden(self) -> int:
        """Number of hits that the asker must not see; anything but 0 fails."""
        return len(self.exposures)


class Baseline(_Frozen):
    """A stored run to compare with."""

    ndcg: float
    per_question: dict[str, float] = Field(min_length=1)


class Comparison(_Frozen):
    """A run against its baseline over the questions that both have. `change` is the bootstrap of the difference."""

    compared: int
    missing: tuple[str, ...]
    baseline: float
    current: float
    change: Interval
    dropped: bool


def evaluate(
    search: Search, questions: Sequence[Question], *, may_read: MayRead | None = None, seed: int = SEED
) -> Report:
    """Ask every question once, in order, and score the answers.

    Args:
        search: gives the hits for a question, best first, as its `user` and on its `as_of` day would get them.
        questions: the golden set.
        may_read: (user, document) -> bool; with it every hit is checked, else only the documents named `forbidden`.
        seed: of the bootstrap.

    Raises:
        GoldenError: no question can be answered, so there is nothing to rank.
    """
    return score(questions, [search(question) for question in questions], may_read=may_read, seed=seed)


def score(
    questions: Sequence[Question],
    results: Sequence[Retrieved],
    *,
    may_read: MayRead | None = None,
    seed: int = SEED,
) -> Report:
    """Score results given in the order of the questions; a pure function.

    Raises:
        GoldenError: the lengths differ, or no question can be answered.
    """
    if len(questions) != len(results):
        raise GoldenError(f"{len(results)} results for {len(questions)} questions: give one for each, in order")
    rankings = {
        question.id: rank(question, result.hits)
        for question, result in zip(questions, results, strict=True)
        if question.answerable
    }
    if not rankings:
        raise GoldenError("no question of the set has a relevant passage, so there is nothing to rank")
    deepest = max(CUTS)
    per_question = {name: ranking.ndcg[deepest] for name, ranking in rankings.items()}
    return Report(
        questions=len(questions),
        overall=_mean(list(rankings.values())),
        kinds=_by_kind(questions, rankings),
        abstention=abstention(questions, results),
        interval=bootstrap(list(per_question.values()), seed=seed),
        identifier_first=_identifier_first(questions, results),
        exposures=_exposures(questions, results, may_read),
        wrong_editions=_found(questions, results, lambda question, document: document in question.excluded),
        per_question=per_question,
    )


def rank(question: Question, hits: Sequence[Hit]) -> Ranking:
    """Ranking figures of one answerable question."""
    figures = {k: _at(question, hits[:k], k) for k in CUTS}
    return Ranking(
        precision={k: figures[k]["SetP"] for k in CUTS},
        recall={k: figures[k]["SetR"] for k in CUTS},
        hit_rate={k: figures[k]["Success"] for k in CUTS},
        ndcg={k: figures[k]["nDCG"] for k in CUTS},
        mrr=figures[max(CUTS)]["RR"],
    )


def _at(question: Question, hits: Sequence[Hit], k: int) -> dict[str, float]:
    """Figures over these hits, already cut to k, from three views of them: hits, labels, passages."""
    import ir_measures as ir

    shown = [{n for n, label in enumerate(question.relevant) if label.matches(hit)} for hit in hits]
    grades = {f"label-{n}": label.grade for n, label in enumerate(question.relevant)}
    relevant_hits = {f"hit-{at}": 1 for at, labels in enumerate(shown) if labels}
    unfound = {f"label-{n}": 1 for n in set(range(len(grades))) - set().union(*shown)}
    found = [f"label-{n}" for n in sorted(set().union(*shown))]
    passages, merged = _passages(question, shown)
    all_hits = [f"hit-{at}" for at in range(len(hits))]
    separate = {name: grade for name, grade in grades.items() if name not in merged}
    return {
        **_measure([ir.SetP, ir.RR, ir.Success @ k], relevant_hits | unfound, all_hits),
        **_measure([ir.SetR], grades, found),
        **_measure([ir.nDCG @ k], separate, passages),
    }


def _passages(question: Question, shown: Sequence[set[int]]) -> tuple[list[str], set[str]]:
    """The hits as passages: the best label that a hit shows for the first time, else filler; and the labels merged."""
    seen: set[int] = set()
    run: list[str] = []
    merged: set[str] = set()
    for at, labels in enumerate(shown):
        fresh = sorted(labels - seen, key=lambda n: (-question.relevant[n].grade, n))
        seen |= labels
        run.append(f"label-{fresh[0]}" if fresh else f"hit-{at}")
        merged |= {f"label-{n}" for n in fresh[1:]}
    return run, merged


def _measure(measures: list[Any], grades: dict[str, int], run: Sequence[str]) -> dict[str, float]:
    import ir_measures as ir

    if not run:
        return {str(measure.NAME): 0.0 for measure in measures}
    qrels = [ir.Qrel("q", name, grade) for name, grade in grades.items()]
    scored = [ir.ScoredDoc("q", name, float(len(run) - at)) for at, name in enumerate(run)]
    return {str(measure.NAME): float(value) for measure, value in ir.calc_aggregate(measures, qrels, scored).items()}


def abstention(questions: Sequence[Question], results: Sequence[Retrieved]) -> Abstention:
    """Precision, recall and F1 of abstaining, over all questions."""
    pairs = list(zip(questions, results, strict=True))
    expected = sum(not question.answerable for question, _ in pairs)
    abstained = sum(result.declined for _, result in pairs)
    right = sum(result.declined and not question.answerable for question, result in pairs)
    return Abstention(
        expected=expected,
        abstained=abstained,
        right=right,
        precision=right / abstained if abstained else None,
        recall=right / expected if expected else None,
        f1=2 * right / (expected + abstained) if expected + abstained else None,
    )


def bootstrap(values: Sequence[float], *, seed: int = SEED, samples: int = SAMPLES) -> Interval:
    """Percentile interval (95 %) of the mean by resampling questions; the same seed gives the same interval."""
    if not values:
        raise GoldenError("an interval needs at least one value")
    data = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(data), size=(samples, len(data)))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(data[drawn].mean(axis=1), [tail, 1 - tail])
    return Interval(mean=float(data.mean()), low=float(low), high=float(high))


def compare(report: Report, baseline: Baseline, *, seed: int = SEED) -> Comparison:
    """Whether nDCG fell: the paired difference lies below 0 with its whole interval and exceeds SMALLEST_DROP.

    Pairing by question takes the spread between easy and hard questions out, so that a real drop of two or three
    hundredths is seen in a hundred questions; the smallest drop keeps rounding between machines from failing a build.

    Raises:
        GoldenError: fewer than half of the baseline's questions are still asked; store a new baseline.
    """
    return paired(report.per_question, baseline, seed=seed)


def paired(scores: Mapping[str, float], baseline: Baseline, *, seed: int = SEED) -> Comparison:
    """The same for any score by question id. Raises GoldenError as ``compare`` does."""
    common = [name for name in baseline.per_question if name in scores]
    missing = tuple(sorted(set(baseline.per_question) - set(common)))
    if 2 * len(common) < len(baseline.per_question):
        raise GoldenError(
            f"only {len(common)} of the baseline's {len(baseline.per_question)} questions are still asked: "
            "store a new baseline for the changed golden set"
        )
    before = [baseline.per_question[name] for name in common]
    now = [scores[name] for name in common]
    change = bootstrap([b - a for a, b in zip(before, now, strict=True)], seed=seed)
    return Comparison(
        compared=len(common),
        missing=missing,
        baseline=float(np.mean(before)),
        current=float(np.mean(now)),
        change=change,
        dropped=change.high < 0 and change.mean < -SMALLEST_DROP,
    )


def passes(report: Report, comparison: Comparison | None) -> tuple[bool, tuple[str, ...]]:
    """The gate: whether the run is good enough, and if not, each reason in a sentence."""
    reasons = []
    if report.forbidden:
        reasons.append(f"{report.forbidden} hits shown to people who may not read them, first {report.exposures[0]}")
    if report.wrong_editions:
        count = len(report.wrong_editions)
        reasons.append(f"{count} hits not in effect on the day asked for, first {report.wrong_editions[0]}")
    if comparison is not None and comparison.dropped:
        reasons.append(
            f"nDCG@{max(CUTS)} fell from {comparison.baseline:.3f} to {comparison.current:.3f}, "
            f"interval of the change {comparison.change.low:+.3f} to {comparison.change.high:+.3f}"
        )
    return not reasons, tuple(reasons)


def load_baseline(path: Path, name: str) -> Baseline | None:
    """The baseline stored under a name (for instance the search mode), or None where there is none yet.

    Raises:
        GoldenError: the file is there but cannot be read.
    """
    stored = _stored(path).get(name)
    if stored is None:
        return None
    try:
        return Baseline.model_validate(stored)
    except ValidationError as error:
        raise GoldenError(f"{path}, baseline {name}: {error.errors()[0]['msg']}; store it anew") from error


def store_baseline(path: Path, name: str, report: Report) -> None:
    """Write this run as the baseline of that name; the others in the file stay."""
    store_named(path, name, report.interval.mean, report.per_question)


def store_named(path: Path, name: str, mean: float, scores: Mapping[str, float]) -> None:
    """The same for any score by question id; its mean is kept as ``ndcg``, whatever the score is."""
    stored = _stored(path)
    per_question = {key: round(value, 4) for key, value in sorted(scores.items())}
    stored[name] = {"ndcg": round(mean, 4), "per_question": per_question}
    text = json.dumps(stored, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _stored(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GoldenError(f"baseline file {path} cannot be read: {error}; repair it or remove it") from error
    if not isinstance(stored, dict):
        raise GoldenError(f"baseline file {path} must hold an object with a baseline for each name")
    return stored


def table(report: Report) -> list[dict[str, str]]:
    """Rows for printing: one for each kind, the last one over all answerable questions."""
    rows = [_row(kind, group.questions, group.ranking) for kind, group in report.kinds.items()]
    return [*rows, _row("all", report.questions, report.overall)]


def _row(name: str, questions: int, ranking: Ranking | None) -> dict[str, str]:
    row = {"kind": name, "questions": str(questions)}
    for k in CUTS:
        for title, figure in (("P", "precision"), ("R", "recall"), ("hit", "hit_rate"), ("nDCG", "ndcg")):
            row[f"{title}@{k}"] = "–" if ranking is None else f"{getattr(ranking, figure)[k]:.3f}"
    return row | {"MRR": "–" if ranking is None else f"{ranking.mrr:.3f}"}


def _mean(rankings: Sequence[Ranking]) -> Ranking:
    def over(figure: str) -> dict[int, float]:
        return {k: float(np.mean([getattr(ranking, figure)[k] for ranking in rankings])) for k in CUTS}

    return Ranking(
        precision=over("precision"),
        recall=over("recall"),
        hit_rate=over("hit_rate"),
        ndcg=over("ndcg"),
        mrr=float(np.mean([ranking.mrr for ranking in rankings])),
    )


def _by_kind(questions: Sequence[Question], rankings: dict[str, Ranking]) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    for kind in KINDS:
        asked = [question for question in questions if question.kind == kind]
        ranked = [rankings[question.id] for question in asked if question.id in rankings]
        if asked:
            mean = _mean(ranked) if ranked else None
            groups[kind] = Group(questions=len(asked), answerable=len(ranked), ranking=mean)
    return groups


def _identifier_first(questions: Sequence[Question], results: Sequence[Retrieved]) -> float | None:
    """Share of the questions with twins whose page was returned, and before any hit of a twin."""
    outcomes = []
    for question, result in zip(questions, results, strict=True):
        if not question.twins:
            continue
        wanted = {label.document for label in question.relevant}
        deciding = [hit.document for hit in result.hits if hit.document in wanted or hit.document in question.twins]
        outcomes.append(bool(deciding) and deciding[0] in wanted)
    return sum(outcomes) / len(outcomes) if outcomes else None


def _exposures(
    questions: Sequence[Question], results: Sequence[Retrieved], may_read: MayRead | None
) -> tuple[str, ...]:
    def exposed(question: Question, document: str) -> bool:
        return document in question.forbidden or (may_read is not None and not may_read(question.user, document))

    return _found(questions, results, exposed)


def _found(
    questions: Sequence[Question], results: Sequence[Retrieved], wanted: Callable[[Question, str], bool]
) -> tuple[str, ...]:
    """`question: document` for each hit, abstained or not, that the predicate names."""
    return tuple(
        f"{question.id}: {hit.document}"
        for question, result in zip(questions, results, strict=True)
        for hit in result.hits
        if wanted(question, hit.document)
    )
