"""How well each piece of the sources answers a question, between about 0 and 1.

A weighted sum of what can be told without a model (words of the question by their rarity among the pieces, in the piece
and in the headings above it; exact identifiers; whether it holds the kind of thing that is asked for; the rank of its
passage) and of what models say, where they said it in time: the cosine to the question, and a cross-encoder's score.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pipeline import analysis
from query_service.answer.asked_for import asked_for, holds
from query_service.answer.units import Unit
from query_service.expansion.words import content

STEM = 6  # letters of a word that are compared: endings differ
# The month, the country, the department: what else is a word that says nothing.
_NAMED = re.compile(r"(?<=[a-z0-9,;] )(?:May|US|IT|WHO)\b")
_PLAIN = frozenset(
    ["the", "a", "an", "is", "are", "was", "were", "do", "does", "did", "der", "die", "das", "ein", "eine"]
)
_ENDING = re.compile(r"(?:ings?|ed|es|s|e|en|er|ly)$")


@dataclass(frozen=True)
class Weights:
    """Of the parts; those of models that did not answer are shared out among the others."""

    words: float = 0.38
    headings: float = 0.30
    identifiers: float = 0.50
    kind: float = 0.10
    rank: float = 0.04
    cosine: float = 0.30
    cross: float = 0.62


def stem(token: str) -> str:
    """The beginning of a word, without a usual ending. Numbers and words of other scripts stay whole."""
    if not token.isalpha() or len(token) < 4:
        return token
    bare = _ENDING.sub("", token) if token.isascii() else token
    return (bare if len(bare) >= 3 else token)[:STEM]


def stems(text: str) -> list[str]:
    """Of its words that say something, each once, in order."""
    named = [match.group().casefold() for match in _NAMED.finditer(text)]
    return list(dict.fromkeys([*(stem(token) for token in content(text)), *named]))


@dataclass(frozen=True)
class Known:
    """A piece as it is compared: stems of it and of its headings, its identifiers, and its passage's rank from 1."""

    unit: Unit
    words: frozenset[str]
    headings: frozenset[str]
    near: frozenset[str]  # stems of the nearest heading alone
    identifiers: frozenset[str]
    rank: int
    in_effect: bool
    title: str = ""


def known(unit: Unit, title: str, rank: int, in_effect: bool) -> Known:
    """Its words are found once, however often it is compared."""
    above = " ".join((title, *unit.headings, unit.lead))
    nearest = unit.lead or (unit.headings[-1] if unit.headings else "")
    names = frozenset(analysis.identifiers(unit.text))
    return Known(
        unit, frozenset(stems(unit.text)), frozenset(stems(above)),
        frozenset(stems(nearest)), names, rank, in_effect, title,
    )  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A question as pieces are compared with it. ``rarity`` weighs each of its words; they sum to 1."""

    text: str
    words: tuple[str, ...]
    rarity: Mapping[str, float]
    identifiers: frozenset[str]


def question_of(text: str, pieces: Sequence[Known]) -> Question:
    """Rare among the pieces is what tells them apart (Robertson and Spärck Jones' idf, as BM25 has it)."""
    words = tuple(stems(text))
    among = Counter(word for one in pieces for word in set(words) & (one.words | one.headings))
    count = max(1, len(pieces))
    raw = {word: math.log(1 + (count - among[word] + 0.5) / (among[word] + 0.5)) for word in words}
    # a word that none of them has tells nothing about them, yet its absence does: half
    raw = {word: value if among[word] else value * 0.5 for word, value in raw.items()}
    total = sum(raw.values()) or 1.0
    return Question(text, words, {w: v / total for w, v in raw.items()}, frozenset(analysis.identifiers(text)))


def cheap(question: Question, pieces: Sequence[Known], weights: Weights) -> list[float]:
    """Sum of the parts that need no model, in the order of the pieces."""
    kinds = asked_for(question.text)
    return [_cheap(question, one, kinds, weights) for one in pieces]


def _cheap(question: Question, one: Known, kinds: Sequence[str], weights: Weights) -> float:
    own = sum(question.rarity[word] for word in question.words if word in one.words)
    above = sum(
        question.rarity[word] * (1.0 if word in one.near else 0.6)
        for word in question.words
        if word in one.headings and word not in one.words
    )
    held = max((holds(one.unit, kind) * (1.0, 0.6)[n] for n, kind in enumerate(kinds)), default=0.0)  # type: ignore[arg-type]
    names = _names(question, one)
    touched = own + above
    # The kind alone makes no answer: every number would answer every "how many".
    return (
        weights.words * own + weights.headings * above + weights.identifiers * names
        + weights.kind * held * min(1.0, 0.3 + 2 * touched) + weights.rank / one.rank
    )  # fmt: skip


def _names(question: Question, one: Known) -> float:
    """The share of the question's identifiers that the piece has, half of it where only its headings have them."""
    if not question.identifiers:
        return 0.0
    above = " ".join(one.unit.headings).casefold()
    found = sum(1.0 if name in one.identifiers else 0.5 if name in above else 0.0 for name in question.identifiers)
    return found / len(question.identifiers)


def whole(
    parts: Sequence[float], cosines: Sequence[float | None], crosses: Sequence[float | None], weights: Weights
) -> list[float]:
    """All parts together, divided by what they could be. ``crosses`` are logits."""
    told = [cosine for cosine in cosines if cosine is not None]
    usual = min(0.95, median(told)) if told else 0.0  # encoders differ in what they give for texts of no relation
    most = weights.words + weights.headings + weights.kind + weights.rank
    scores = []
    for part, cosine, cross in zip(parts, cosines, crosses, strict=True):
        score, of = part, most
        if cosine is not None:
            score, of = score + weights.cosine * max(0.0, (cosine - usual) / (1 - usual)), of + weights.cosine
        if cross is not None:
            score, of = score + weights.cross * logistic(cross), of + weights.cross
        scores.append(score / of)
    return scores


def logistic(value: float) -> float:
    """A logit as a share of 1; flattened, since logits of a sentence alone are extreme."""
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, value / 2))))


def repeats(question: Question, one: Known) -> bool:
    """Whether the piece only says the question again, or asks something itself.

    Where yes or no is asked, the question's words in a statement are the answer. Elsewhere every word counts, also
    those that say little: "in May" and "not" are no part of "When does it begin?".
    """
    text = one.unit.text.rstrip()
    if text.endswith(("?", "？")):
        return True
    if one.unit.kind != "sentence" or not one.words or not one.words <= set(question.words):
        return False
    if "yes_no" in asked_for(question.text):
        return False
    asked = {stem(token) for token in analysis.tokens(question.text)}
    return {stem(token) for token in analysis.tokens(text) if token not in _PLAIN} <= asked
