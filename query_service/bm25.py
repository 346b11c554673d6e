"""BM25 of candidates of both tiers from one table of statistics, so that hot and cold scores can be compared.

Raw scores of the store are tier-local (each tier has its own N and document frequencies) and bury fresh answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from pipeline.ports import TermStatistics

K1 = 1.2
B = 0.75
MAX_TERMS = 64


def idf(chunks: int, frequency: int) -> float:
    """ln(1 + (N - n + 0.5) / (n + 0.5)); a word that no chunk holds has the highest, it is never skipped."""
    n = min(frequency, chunks)
    return math.log(1.0 + (chunks - n + 0.5) / (n + 0.5))


def score(query: Sequence[str], lexical: str, statistics: TermStatistics) -> float:
    """Score of one chunk's analysed text. A word twice in the query counts twice; no (k1 + 1) factor."""
    return scorer(query, statistics)(lexical)


def scorer(query: Sequence[str], statistics: TermStatistics) -> Callable[[str], float]:
    """``score`` of one query, for many chunks."""
    weights = [
        (term, f" {term} ", often * idf(statistics.chunks, statistics.document_frequency.get(term, 0)))
        for term, often in Counter(query).items()
    ]
    average = statistics.average_length or 1.0

    def scored(lexical: str) -> float:
        # Only the query's words are counted. Each word with blanks of its own, so that neighbours are both found.
        present = [(whole, weight) for term, whole, weight in weights if term in lexical]
        if not present:
            return 0.0
        apart = f" {lexical.replace(' ', '  ')} "
        norm = K1 * (1.0 - B + B * (lexical.count(" ") + 1) / average)
        return sum((weight * tf / (tf + norm) for whole, weight in present if (tf := apart.count(whole))), 0.0)

    return scored


def query_terms(tokens: Sequence[str]) -> list[str]:
    """The query's tokens with at most MAX_TERMS distinct ones: the first keep their repetitions."""
    kept: dict[str, None] = {}
    terms: list[str] = []
    for token in tokens:
        if token in kept or len(kept) < MAX_TERMS:
            kept.setdefault(token)
            terms.append(token)
    return terms
