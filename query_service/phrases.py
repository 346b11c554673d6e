"""Quoted words of a query: the passage must hold them next to each other, in their order."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline import analysis

Phrase = tuple[str, ...]
MAX_PHRASES = 8
MAX_WORDS = 32  # of all phrases together: what the store is asked for
# A plain mark opens before a word and after a gap, and closes after a word: 5" and 7" are inches, key="x" is code.
_QUOTED = re.compile(
    r"(?<![^\s(\[{,;:/])\"(?P<plain>[^\"]*?\S)\"(?!\w)"
    r"|[\u201c\u201d\u201e](?P<curly>[^\u201c\u201d\u201e]*?\S)[\u201c\u201d]"
    r"|\u00ab(?P<guillemets>[^\u00ab\u00bb]*?\S)\u00bb"
)


def of_query(query: str) -> tuple[Phrase, ...]:
    """The quoted parts as analysed tokens, distinct, in order; quotes that hold no word or do not close are none."""
    found: dict[Phrase, None] = {}
    for match in _QUOTED.finditer(query):
        quoted = next(g for g in match.groups() if g is not None)
        phrase = tuple(analysis.tokens(quoted))
        if phrase and not (match["plain"] and quoted[0].isspace()):
            found.setdefault(phrase)
    return tuple(found)[:MAX_PHRASES]


def words(phrases: Sequence[Phrase]) -> tuple[str, ...]:
    """Distinct words of all phrases, MAX_WORDS at most: any passage that holds the phrases holds them."""
    return tuple(dict.fromkeys(word for phrase in phrases for word in phrase))[:MAX_WORDS]


def holds(lexical: str, phrases: Sequence[Phrase]) -> bool:
    """Whether an analysed text (space-joined tokens) holds every phrase."""
    text = f" {lexical} "
    return all(f" {' '.join(phrase)} " in text for phrase in phrases)
