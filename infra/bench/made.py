"""Answers that were made of sources' sentences, judged by the facts that they have to say, and the weights by which too
little is refused. Pure but for reading the questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from infra.bench.report import rounded
from infra.bench.strength import Matrix, regression
from pipeline.golden import GoldenError, level
from query_service.answer.answerable import NAMES
from query_service.answer.strength import logistic

Part = Literal["golden", "dev", "held"]
FOLDS = 10
CLOSE = 0.02  # places so little worse than the best are as good: the one that refuses least is taken


@dataclass(frozen=True)
class Question:
    """One of ``samples/questions``; ``facts`` are empty where nothing answers."""

    id: str
    question: str
    part: Part
    facts: tuple[tuple[str, ...], ...]
    padding: tuple[str, ...] = ()


def load(path: Path) -> tuple[Question, ...]:
    """Raises GoldenError: the file or a line of it cannot be read."""
    found = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            facts = tuple(tuple(map(str, spellings)) for spellings in row["facts"])
            if row["part"] not in ("dev", "held"):
                raise GoldenError(f"{path}, line {number}: 'part' must be 'dev' or 'held'")
            found.append(Question(row["id"], row["question"], row["part"], facts, tuple(row.get("padding", ()))))
    except OSError as error:
        raise GoldenError(f"{path} cannot be read ({error.strerror})") from error
    except (KeyError, TypeError, ValueError) as error:
        raise GoldenError(f"{path}: every line needs 'id', 'question', 'facts' and 'part' ({error})") from error
    return tuple(found)


@dataclass(frozen=True)
class Made:
    """What would be said to one question. ``signals``: of whether to say it, None where a model did not speak.
    ``missing`` facts; ``padding``: labelled sentences that should not be there; ``supplied``: the sources hold all
    facts; ``weak``: what decides without the models."""

    id: str
    part: Part
    answerable: bool
    signals: Mapping[str, float] | None
    weak: bool
    text: str
    sentences: int
    missing: tuple[str, ...] = ()
    padding: int = 0
    supplied: bool = True

    @property
    def complete(self) -> bool:
        """Whether all is said, if it is."""
        return self.answerable and bool(self.text) and not self.missing


def padded(text: str, padding: Iterable[str]) -> int:
    """How many of the labelled parts stand in the text."""
    shown = level(text)
    return sum(level(part) in shown for part in padding)


Weights = Mapping[str, float]


def score(made: Made, weights: Weights) -> float:
    """Estimated probability that it answers; where a model was silent, all or nothing by the search's own judgement."""
    if not made.text:
        return 0.0
    if made.signals is None:
        return 0.0 if made.weak else 1.0
    return logistic(weights["intercept"] + sum(weights[name] * made.signals[name] for name in NAMES))


def figures(told: Sequence[Made], scores: Sequence[float], least: float) -> dict[str, Any]:
    """``right``: complete where something answers, refused where nothing does. ``complete``: of those answered.
    Abstention's precision, recall and F1 count refusals; ``padding`` is by answer, of the labelled ones."""
    refused = [value < least for value in scores]
    can = [(made, no) for made, no in zip(told, refused, strict=True) if made.answerable]
    cannot = [no for made, no in zip(told, refused, strict=True) if not made.answerable]
    noticed, wrong = sum(cannot), sum(no for _, no in can)
    answered = [made for made, no in can if not no]
    complete = sum(made.complete for made in answered)
    return {
        "questions": len(told),
        "right": rounded((complete + noticed) / len(told)) if told else None,
        "answerable": len(can), "supplied": sum(made.supplied for made, _ in can), "refused_wrongly": wrong,
        "complete": rounded(complete / len(answered)) if answered else None,
        "unanswerable": len(cannot), "noticed": noticed,
        "precision": rounded(noticed / sum(refused)) if any(refused) else None,
        "recall": rounded(noticed / len(cannot)) if cannot else None,
        "f1": rounded(2 * noticed / (sum(refused) + len(cannot))) if sum(refused) + len(cannot) else None,
        "padding": rounded(sum(made.padding for made in answered) / len(answered)) if answered else None,
        "sentences": rounded(sum(made.sentences for made in answered) / len(answered), 2) if answered else None,
    }  # fmt: skip


# ---------------------------------------------------------------- fitting


def fold(made: Made) -> int:
    """0 to FOLDS − 1, by the id alone."""
    return hashlib.sha256(f"fold {made.id}".encode()).digest()[0] % FOLDS


def fitted(told: Sequence[Made], least: float) -> dict[str, float]:
    """Weights by name. The intercept is moved so that ``least`` is the best place to refuse at, in
    cross-validation; of nearly equal places the one that refuses least. Those without signals take no part."""
    used = [made for made in told if made.signals is not None and made.text]
    weights = _plain(used)
    outside = crossed(used, lambda train: _plain(train))
    best = _best_place(used, [_odds(value) for value in outside])
    return {**weights, "intercept": weights["intercept"] - best + float(np.log(least / (1 - least)))}


def _plain(told: Sequence[Made]) -> dict[str, float]:
    x: Matrix = np.array([[made.signals[n] for n in NAMES] for made in told if made.signals], dtype=np.float64)
    y: Matrix = np.array([float(made.answerable) for made in told])
    found = regression(x, y)
    return {**dict(zip(NAMES, (float(w) for w in found[:-1]), strict=True)), "intercept": float(found[-1])}


def crossed(told: Sequence[Made], fit: Callable[[Sequence[Made]], Weights]) -> list[float]:
    """Each one's score by weights that were fitted without its fold."""
    of: dict[int, Weights] = {}
    for number in {fold(made) for made in told}:
        of[number] = fit([made for made in told if fold(made) != number])
    return [score(made, of[fold(made)]) for made in told]


def _odds(value: float) -> float:
    bounded = min(1 - 1e-9, max(1e-9, value))
    return float(np.log(bounded / (1 - bounded)))


def _best_place(told: Sequence[Made], odds: Sequence[float]) -> float:
    """The log odds below which to refuse."""
    places = sorted(odds)
    between = [(a + b) / 2 for a, b in pairwise(places)]
    cannot = sum(not made.answerable for made in told)

    def worth(place: float) -> float:
        """Share of right replies plus the F1 of refusing: alone the one refuses little, the other much."""
        refused = [value < place for value in odds]
        noticed = sum(no and not made.answerable for made, no in zip(told, refused, strict=True))
        complete = sum(made.complete and not no for made, no in zip(told, refused, strict=True))
        return (noticed + complete) / len(told) + 2 * noticed / max(1, sum(refused) + cannot)

    best = max((worth(place) for place in between), default=0.0)
    top = [place for place in between if worth(place) >= best - CLOSE]
    return min(top, default=0.0)
