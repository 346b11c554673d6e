"""How well what a search found fits its question: silent retrieval collapse, told from admitted passages alone.

A search by meaning finds something always. Whether it is of use is told by a few signals of the best hits, joined by a
logistic regression (weights in ``strength.json``, made by ``headwater bench strength``). Words of a question are
weighed by what they are, not by how rare they are in the corpus: that would tell of documents the caller may not read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipeline import analysis
from query_service.outcome import Ranked
from query_service.text.topics import NAME, stem, weighed
from schemas.api import SearchHit, SearchResponse

LOOKED_AT = 5  # hits
NAMES = ("cosine", "single", "joint", "heaviest", "names")
FAR_COSINE, FAR_SPARSE = 0.7, 0.4  # of the best passage's: below both a passage is far weaker than the best
NEUTRAL = 0.45  # cosine where nothing was searched by meaning
ALIKE = 5  # letters in common at the beginning, for words that are no other form of each other


@dataclass(frozen=True)
class Strength:
    """``score`` is an estimated probability that the hits answer the question; ``signals`` by name, each 0 to 1."""

    score: float
    signals: Mapping[str, float]


def strength(query: str, response: SearchResponse) -> Strength:
    """Of a reply's hits, whatever their order; 0 without hits. Pure.

    The reranker's logit of the best hit counts where one was given.
    """
    if not response.hits:
        return Strength(0.0, dict.fromkeys(NAMES, 0.0))
    found = signals(query, response.hits)
    logits = [hit.scores.rerank for hit in response.hits if hit.scores.rerank is not None]
    model = _models()["reranked" if logits else "plain"]
    if logits:
        found["reranker"] = logistic(max(logits) / 2)
    total = model["intercept"] + sum(model[name] * value for name, value in found.items())
    return Strength(logistic(total), found)


def weak(found: Strength, threshold: float) -> bool:
    """Whether too little fits for an answer; never at threshold 0."""
    return found.score < threshold


def near_best(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Those that are not far weaker than the best, in their order, and holders of all identifiers. Of use where another
    order than relevance would bring the rest to the front."""
    cosines = [_cosine(one) for one in ranked]
    sparse = [one.sparse_score or 0.0 for one in ranked]
    nearest, most = max(cosines, default=0.0), max(sparse, default=0.0)

    def stands(at: int) -> bool:
        by_meaning = nearest > 0 and cosines[at] >= FAR_COSINE * nearest
        return by_meaning or (most > 0 and sparse[at] >= FAR_SPARSE * most) or ranked[at].candidate.exact

    if nearest <= 0 and most <= 0:
        return list(ranked)
    return [one for at, one in enumerate(ranked) if stands(at)]


def _cosine(one: Ranked) -> float:
    return 1.0 - one.candidate.distance if one.candidate.distance is not None else 0.0


def logistic(value: float) -> float:
    """Of log odds."""
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, value))))


@cache
def _models() -> dict[str, dict[str, float]]:
    loaded: dict[str, dict[str, float]] = json.loads(Path(__file__).with_name("strength.json").read_text("utf-8"))
    return {name: loaded[name] for name in ("plain", "reranked")}


# ---------------------------------------------------------------- signals


def signals(query: str, hits: Sequence[SearchHit]) -> dict[str, float]:
    """The signals that need no reranker.

    ``cosine``: of the nearest hit. ``single``: share of the question's words, by weight, that one hit holds at most.
    ``joint``: share that the best hits hold together. ``heaviest``: whether they hold the heaviest words of all.
    ``names``: share of its identifiers that one hit holds whole (1 without any).
    """
    best = sorted(hits, key=_standing, reverse=True)[:LOOKED_AT]
    distances = [hit.scores.dense_distance for hit in hits if hit.scores.dense_distance is not None]
    cosine = 1.0 - min(distances) if distances else NEUTRAL
    wanted = weighed(query)
    names = [word for word, weight in wanted.items() if weight == NAME]
    texts = [_Text(hit, names) for hit in best]
    held = [{word: text.holds(word) for word in wanted} for text in texts]
    joint = {word: max(of[word] for of in held) for word in wanted}
    heaviest = max(wanted.values(), default=0.0)
    heavy = [word for word, weight in wanted.items() if weight == heaviest]
    return {
        "cosine": max(0.0, min(1.0, cosine)),
        "single": max(_share(wanted, of) for of in held),
        "joint": _share(wanted, joint),
        "heaviest": sum(joint[word] for word in heavy) / len(heavy) if heavy else 1.0,
        "names": max((sum(of[n] for n in names) / len(names) for of in held), default=1.0) if names else 1.0,
    }


def _standing(hit: SearchHit) -> tuple[bool, float]:
    """Sorts by relevance, whatever order was asked for."""
    scores = hit.scores
    return scores.exact, scores.final if scores.final is not None else scores.fused


def _share(wanted: Mapping[str, float], held: Mapping[str, float]) -> float:
    """By weight; a question of stop words alone asks for nothing that could be missed."""
    total = sum(wanted.values())
    return sum(weight * held[word] for word, weight in wanted.items()) / total if total else 1.0


class _Text:
    """A hit's words, as far as a question may ask for them: of its text, title and headings."""

    def __init__(self, hit: SearchHit, names: Sequence[str]) -> None:
        text = "\n".join((hit.title, *hit.heading_path, hit.text))
        self._words = {stem(token) for token in set(analysis.tokens(text))}
        self._beginnings = {word[:ALIKE] for word in self._words}
        folded = text.casefold() if names else ""
        self._names = frozenset(analysis.identifiers(text)) if any(n in folded for n in names) else frozenset()

    def holds(self, word: str) -> float:
        """1 for the word in any form; less for one that only begins alike, as compounds and derived words do."""
        if word in self._words or word in self._names:
            return 1.0
        return 0.6 if len(word) >= ALIKE and word.isalpha() and word[:ALIKE] in self._beginnings else 0.0
