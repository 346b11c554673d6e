"""What is measured between a sentence and a window of a source, and what speaks against support whatever else agrees.

words aligned ▸ features, each 0 to 1 and larger where more speaks for support ▸ logistic weights
             └▸ vetoes: another number, the opposite, a dropped hedge or condition, another subject
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from query_service.answer.interface import Reason
from query_service.support.text import Unit, Window, Word
from query_service.support.vetoes import PASSIVE, Pair, veto
from query_service.text import claims as w

FEATURES = ("coverage", "novelty", "order", "pairs", "dense", "focus", "polarity", "extent", "kept", "local")
COSINE, LOGIT = "cosine", "logit"
_CONTEXT = 0.7  # what a word that only stands in title, heading or header counts
_WEIGHT = {"content": 1.0, "name": 2.0, "light": 0.2}
_NEAR = 4
_HALF, _MOVED = 0.6, 0.7  # of coverage and "local": too little is here, and something of it in another sentence


@dataclass(frozen=True)
class Measured:
    """Of one sentence and window. ``veto``: why it cannot be support, whatever the features say."""

    window: Window
    features: Mapping[str, float]
    veto: Reason | None
    identical: bool = False

    @property
    def rough(self) -> float:
        """Orders windows before a model is asked."""
        if self.identical:
            return 3.0
        f = self.features
        return (
            f["coverage"]
            + 0.3 * f["focus"]
            + 0.2 * f["order"]
            - 0.2 * (1 - f["novelty"])
            - 0.15 * (self.veto is not None)
        )


def rarities(units: Sequence[Unit]) -> dict[str, float]:
    """Weight of each stem among the sentences supplied: log((n + 1) / (df + 0.5)), between 0.5 and 2, and so for words
    of none (after Robertson and Spärck Jones' inverse document frequency)."""
    counts: dict[str, int] = {}
    for unit in units:
        for stem in unit.stems:
            counts[stem] = counts.get(stem, 0) + 1
    n = len(units)
    return {stem: min(2.0, max(0.5, math.log((n + 1) / (count + 0.5)))) for stem, count in counts.items()}


def measure(claim: Unit, window: Window, rare: Mapping[str, float], whole: Unit, question: Unit) -> Measured:
    """``claim`` is the sentence or a joined part of ``whole``; conditions may stand there or in the question."""
    if claim.identity and claim.identity == window.base.identity:
        return Measured(window, dict.fromkeys(FEATURES, 1.0), None, identical=True)
    pairs = _aligned(claim, window, rare)
    features = {**_features(claim, window, pairs), "local": 1.0 - min(1.0, _foreign(claim, pairs, rare) / 2.0)}
    against = veto(claim, window, pairs, whole, question, rare)
    if against is None and features["coverage"] < _HALF and features["local"] < _MOVED:
        against = "not_supported"  # half of it is elsewhere
    return Measured(window, features, against)


def _aligned(claim: Unit, window: Window, rare: Mapping[str, float]) -> list[Pair]:
    """Twice: the second time words of the part in which most were found go before equal ones elsewhere."""
    first = _align(claim, window, rare, None)
    weights: dict[int, float] = {}
    for pair in first:
        if pair.theirs >= 0:
            clause = window.base.words[pair.theirs].clause
            weights[clause] = weights.get(clause, 0.0) + pair.weight
    return _align(claim, window, rare, max(weights, key=lambda c: weights[c])) if len(weights) > 1 else first


def _align(claim: Unit, window: Window, rare: Mapping[str, float], main: int | None) -> list[Pair]:
    found: list[Pair] = []
    last = -1
    used: set[int] = set()
    base = window.base.words
    for i in claim.content:
        mine = claim.words[i]
        weight = _WEIGHT[mine.kind] * rare.get(mine.stem, 2.0)
        best, at = 0.0, -1
        for j, theirs in enumerate(base):
            share = _same(mine, theirs)
            if not share:
                continue
            # Of equal words the same form, then the one after the last match that is not yet taken.
            rank = share + 0.02 * (mine.text == theirs.text) + 0.03 * (theirs.clause == main)
            rank -= 0.01 * (j in used) + 0.0005 * abs(j - last - 1)
            if rank > best:
                best, at = rank, j
        if at >= 0:
            used.add(at)
            last = at
            found.append(Pair(i, at, _same(mine, base[at]), weight))
            continue
        if window.before is not None:
            share = max((_same(mine, theirs) for theirs in window.before.words), default=0.0)
            if share:
                found.append(Pair(i, -2, 0.9 * share, weight))
                continue
        share = max((_over(mine, stem) for stem in window.context), default=0.0)
        found.append(Pair(i, -1, (1.0 if window.header is not None else _CONTEXT) * share, weight))
    return found


def _over(mine: Word, stem: str) -> float:
    return float(mine.stem == stem) if mine.kind == "name" else w.alike(mine.stem, stem)


def _same(mine: Word, theirs: Word) -> float:
    if mine.kind == "name" or theirs.kind == "name":
        return 1.0 if mine.text == theirs.text else 0.0
    if theirs.quantity is not None:
        return 0.0
    return 1.0 if mine.text == theirs.text else w.alike(mine.stem, theirs.stem)


def _features(claim: Unit, window: Window, pairs: Sequence[Pair]) -> dict[str, float]:
    base = window.base.words
    total = sum(pair.weight for pair in pairs) or 1.0
    matched = [pair for pair in pairs if pair.share >= 0.5 and pair.theirs >= 0]
    held = sum(pair.weight for pair in matched) or 1e-9
    coverage = sum(pair.weight * pair.share for pair in pairs) / total
    missing = max((pair.weight * (1 - pair.share) for pair in pairs), default=0.0)
    places = [pair.theirs for pair in matched]
    steps = list(itertools.pairwise(places))
    passive = bool(claim.texts & PASSIVE) != bool(window.base.texts & PASSIVE)
    order = sum(b > a for a, b in steps) / len(steps) if steps else 1.0
    near = sum(0 < b - a <= _NEAR or abs(b - a) <= 2 for a, b in steps) / len(steps) if steps else 0.5
    extent = len(matched) / max(1, sum(word.kind in ("content", "name") for word in base))
    stretch = max(places) - min(places) + 1 if places else 1
    inside = sum(base[j].kind in ("content", "name") for j in range(min(places), max(places) + 1)) if places else 1
    segments: dict[int, float] = {}
    for pair in matched:
        segments[base[pair.theirs].segment] = segments.get(base[pair.theirs].segment, 0.0) + pair.weight
    same = sum(p.weight for p in matched if claim.words[p.mine].negated == base[p.theirs].negated)
    return {
        "coverage": coverage,
        "novelty": 1.0 - min(1.0, missing / 2.0),
        "order": max(order, 0.8) if passive else order,
        "pairs": near,
        "dense": min(1.0, len(set(places)) / max(1, inside)) if stretch else 0.0,
        "focus": max(segments.values(), default=0.0) / held,
        "polarity": same / held if matched else 0.5,
        "extent": min(1.0, extent),
        "kept": max(0.0, 1.0 - _exchanged(base, pairs) / 2.0),
    }


def _foreign(claim: Unit, pairs: Sequence[Pair], rare: Mapping[str, float]) -> float:
    """Weight of the heaviest word that is not here, but in another sentence of the sources: it may have been moved."""
    return max(
        (p.weight for p in pairs if p.theirs == -1 and not p.share and claim.words[p.mine].stem in rare), default=0.0
    )


def _exchanged(base: Sequence[Word], pairs: Sequence[Pair]) -> float:
    """Weight of the sentence's words in whose place, between the same neighbours, the base has another word."""
    found = 0.0
    taken = {pair.theirs for pair in pairs}
    for k, pair in enumerate(pairs):
        if pair.share >= 0.5:
            continue
        left = next((p.theirs for p in reversed(pairs[:k]) if p.theirs >= 0 and p.share >= 0.5), None)
        right = next((p.theirs for p in pairs[k + 1 :] if p.theirs >= 0 and p.share >= 0.5), None)
        low = left + 1 if left is not None else max(0, (right or 0) - 3)
        high = right if right is not None and right > low else low + 3
        gap = [j for j in range(low, min(high, len(base))) if j not in taken and base[j].kind in ("content", "name")]
        if gap and len(gap) <= 3:
            found += pair.weight
    return found
