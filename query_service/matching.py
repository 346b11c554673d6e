"""Where a query's words stand in a text: matched by the analysis of the sparse leg, told in the text's own offsets.

What is marked is what scored: the same folding of case, accents, widths and spellings, the same bigrams of scripts
written without spaces. An identifier or a quoted phrase counts as such only where it stands whole.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from typing import NamedTuple

from pipeline import analysis
from query_service import bm25, phrases

MAX_MATCHES = 400  # single words of one text that are looked at
# Words that stand everywhere: marked only where the query has no others.
_COMMON = """
a about all an and any are as at be been but by can could did do does for from had has have how i if in into is it its
may me must my no not of on or our should so than that the their them then there these they this those to us was we were
what when where which who whom why will with would you your
der die das den dem des ein eine einen einem einer und oder ist sind war wie was wer wo wann warum zu im in auf von mit
für an am bei nach aus es ich wir sie man nicht
le la les un une des du de et ou est sont que qui quoi dans sur pour par avec ce cette je nous vous il elle on ne pas
el los las una unos unas y o es son que quien como donde cuando por para con en al del se no
"""


class Match(NamedTuple):
    """A place in the text, in code points, and what stands there. ``strong`` is a phrase or a whole identifier."""

    start: int
    end: int
    what: str
    strong: bool


@dataclass(frozen=True)
class Words:
    """What is looked for: single tokens, rows of tokens (phrases), identifiers as they are folded."""

    tokens: frozenset[str]
    phrases: tuple[phrases.Phrase, ...] = ()
    identifiers: tuple[str, ...] = ()

    @staticmethod
    def of(query: str) -> Words:
        """Of a query as it was asked."""
        terms = bm25.query_terms(analysis.tokens(query))
        rare = frozenset(terms) - _common()
        return Words(
            tokens=rare or frozenset(terms),
            phrases=tuple(phrase for phrase in phrases.of_query(query) if len(phrase) > 1),
            identifiers=analysis.identifiers(query),
        )


@cache
def _common() -> frozenset[str]:
    return frozenset(analysis.tokens(_COMMON))


def matches(text: str, words: Words) -> list[Match]:
    """All places of the words, ascending; a token inside a phrase or an identifier is told besides."""
    if not words.tokens:
        return []
    folded = analysis.plain(text)
    spans = islice(analysis.token_spans(folded, words.tokens), MAX_MATCHES)
    found = [(start, end, token, False) for token, start, end in spans]
    if not found:
        return []
    if any(len(what) > 1 for _, _, what, _ in found):
        # A single Han character of a longer word is marked only where the longer word is nowhere.
        longer = {char for _, _, what, _ in found if len(what) > 1 for char in what}
        found = [one for one in found if len(one[2]) > 1 or one[2] not in longer]
    if words.phrases:
        found += _phrases(list(analysis.token_spans(folded)), words.phrases)
    for name in words.identifiers:
        found += [(m.start(), m.end(), name, True) for m in _whole(analysis.plain(name)).finditer(folded)]
    back = _back(text, folded)
    if back is None:
        return []
    return sorted(Match(*back(start, end), what, strong) for start, end, what, strong in found)


def _phrases(
    spans: Sequence[tuple[str, int, int]], wanted: Sequence[phrases.Phrase]
) -> Iterator[tuple[int, int, str, bool]]:
    tokens = [token for token, _, _ in spans]
    for phrase in wanted:
        size, at = len(phrase), -1
        while True:
            try:
                at = tokens.index(phrase[0], at + 1)
            except ValueError:
                break
            if tuple(tokens[at : at + size]) == phrase:
                yield spans[at][1], max(end for _, _, end in spans[at : at + size]), " ".join(phrase), True


@lru_cache(maxsize=1024)
def _whole(name: str) -> re.Pattern[str]:
    """The identifier where no longer one holds it: ``v2.4.18`` is not in ``v2.4.18-rc1``."""
    before = r"(?<![a-z0-9])(?<![a-z0-9][_\-./:\\#+@])"
    return re.compile(rf"{before}{re.escape(name)}(?![a-z0-9]|[_\-./:\\#+@]+[a-z0-9+#])")


# ---------------------------------------------------------------- from folded text back to the text

_JOINING = (range(0x1100, 0x1200), range(0xA960, 0xA980), range(0xD7B0, 0xD800))  # jamo become syllables


@lru_cache(maxsize=16_384)
def _simple(char: str) -> bool:
    """Whether folding makes one character of it, whatever stands before it."""
    if char.isascii():
        return True
    return not _joins(char) and len(analysis.plain(char)) == 1


def _joins(char: str) -> bool:
    """Whether what stands before it may decide what it becomes."""
    return unicodedata.category(char)[0] in "MC" or any(ord(char) in part for part in _JOINING)


@lru_cache(maxsize=16_384)
def _folded_length(piece: str) -> int:
    return len(analysis.plain(piece))


def _back(text: str, folded: str) -> Callable[[int, int], tuple[int, int]] | None:
    """From a span of the folded text to the span of the text; None where the two cannot be aligned (nothing is marked
    then). Between odd characters, each with the one before it, both run alike."""
    odd = [char for char in set(text) if not char.isascii() and not _simple(char)]
    if not odd:
        return (lambda start, end: (start, end)) if len(text) == len(folded) else None
    places = [0]  # in the folded text; ascending, each with its place in the text
    origins = [0]
    shift = 0  # folded minus own offset, behind the last odd piece
    for match in _pieces(odd).finditer(text):
        start, end = match.span()
        length = _folded_length(match.group())
        places.append(start + shift)
        origins.append(start)
        shift += length - (end - start)
        places.append(end + shift)
        origins.append(end)
    if len(text) + shift != len(folded):
        return None

    def back(start: int, end: int) -> tuple[int, int]:
        return _origin(places, origins, start, False), _origin(places, origins, end, True)

    return back


def _pieces(odd: Sequence[str]) -> re.Pattern[str]:
    """Marks and what nobody sees with the character that they stand on; characters that fold to several."""
    joined = "".join(re.escape(char) for char in odd if _joins(char))
    alone = "".join(re.escape(char) for char in odd if not _joins(char))
    patterns = [rf".?[{joined}]+" if joined else "", f"[{alone}]" if alone else ""]
    return re.compile("|".join(pattern for pattern in patterns if pattern), re.DOTALL)


def _origin(places: Sequence[int], origins: Sequence[int], at: int, ending: bool) -> int:
    """The place in the text; inside an odd piece its beginning, or its end where the span ends there."""
    last = bisect_right(places, at) - 1
    inside = last % 2 == 1  # pieces begin at odd numbers of the list and end at even ones
    if not inside:
        return origins[last] + at - places[last]
    if at == places[last]:
        return origins[last]
    return origins[last + 1] if ending else origins[last]
