"""One passage, one hit: copies of a passage, and copies with small changes, stand under the best of them.

Pages copied from one another, and what every page of a wiki repeats, would fill the results with one text. Equal
passages (same heading path and words, by the hash of what was embedded) are one item already when ranks are given;
passages that are nearly equal are found among the hits themselves. Only what the caller may read takes part, so a
fold tells nobody of a document that is hidden.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from pipeline import analysis

SHINGLE = 3  # words
LEAST_WORDS = 12  # shorter passages count as equal only when all words are
ALIKE = 0.9  # Jaccard similarity of the shingles, as for near-duplicate web pages
_DIGIT = re.compile(r"\d")
_FOREIGN = re.compile(r"[^\W\d_a-z\u00df-\u024f]")  # a letter that is not Latin
# Words that turn a statement round: passages that differ in one say different things, however alike they look.
_TURNING = """
not no never none nobody nothing without unless except only cannot neither nor before after until must may
should shall optional required allowed forbidden deprecated disabled enabled false true yes nicht kein keine
keinen keiner nie niemals ohne außer nur weder darf muss soll kann vor nach bis ja nein ne pas jamais aucun
aucune sans sauf seulement avant après doit peut oui non nunca ningún ninguna sin excepto solo sólo antes
después debe puede sí
niet geen nooit zonder tenzij behalve alleen mai nessuno nessuna senza tranne eccetto prima dopo inte ikke aldrig aldri
utan uten nie nigdy bez tylko oprócz não nunca sem exceto somente ei není jen kromě değil nu fără numai nem soha csak
không chưa đừng tidak bukan jangan belum kecuali
don't can't won't isn't aren't wasn't doesn't didn't shouldn't mustn't couldn't wouldn't hasn't haven't
open opens opened close closes closed on off left right up down above below inside outside more less first last start
starts stop stops add remove increase increases decrease decreases enable enables disable disables accept reject allow
allows deny denies grant revoke public private inbound outbound read write minimum maximum success failure
"""
# Marks between words that say something: the sign of a number, what parts its digits, "!ready", "a || b", "C#".
_MARK = re.compile(
    r"((?<!\w)[-\u2212\u2013](?=[.,]?\d)|(?<=\d)[.,:\u2013-](?=\d)|!(?=[\w=(])|\|\||(?<=\w)\*+(?=\w)|[%\u2030#&/\\@])"
    r"|[^\w\s|`]"
)
_PREFIX = 4  # letters at most of what turns a word round: unlocked, incompatible, nemusí


@dataclass(frozen=True)
class Passage:
    """What two passages are compared by."""

    words: tuple[str, ...]
    shingles: frozenset[tuple[str, ...]]
    weighty: tuple[str, ...]  # numbers, turning words and identifiers, each kind in order: who swaps two says otherwise
    marks: tuple[str, ...]  # signs, units, operators, boxes

    @staticmethod
    def of(text: str) -> Passage:
        """From a chunk's own text."""
        words = tuple(analysis.tokens(text))
        shingles = frozenset(words[i : i + SHINGLE] for i in range(len(words) - SHINGLE + 1))
        turning = _turning()
        weighty = tuple(word for word in words if word in turning or _DIGIT.search(word))
        marks = tuple(m[0] for m in _MARK.finditer(text) if m[1] or unicodedata.category(m[0]).startswith("S"))
        return Passage(words, shingles, weighty + analysis.identifiers(text), marks)


@cache
def _turning() -> frozenset[str]:
    return frozenset(analysis.tokens(_TURNING))


def same(a: Passage, b: Passage) -> bool:
    """Whether nobody would want both: the same words, or nearly, with equal numbers, identifiers, negations, signs."""
    if a.marks != b.marks:
        return False
    if a.words == b.words:
        return True
    if min(len(a.words), len(b.words)) < LEAST_WORDS or a.weighty != b.weighty:
        return False
    # In a script whose turning words are not known any other word may be one.
    if any(_FOREIGN.search(word) for word in set(a.words) ^ set(b.words)):
        return False
    shared = len(a.shingles & b.shingles)
    if shared < ALIKE * (len(a.shingles) + len(b.shingles) - shared):
        return False
    return not any(_turned(one, other) for one in set(a.words) - set(b.words) for other in set(b.words) - set(a.words))


def _turned(one: str, other: str) -> bool:
    """Whether one word is the other with a few letters before it: locked and unlocked."""
    short, long = sorted((one, other), key=len)
    return len(short) > 2 and 0 < len(long) - len(short) <= _PREFIX and long.endswith(short)


def groups(
    chunk_ids: Iterable[str], hashes: Mapping[str, str], exact: Collection[str], words: Mapping[str, float],
    distances: Mapping[str, float],
) -> dict[str, list[str]]:  # fmt: skip
    """Chunk ids by the one that stands for all of equal passages: who holds the identifiers, else has the best words,
    else is nearest; of equals the smallest id. The others follow in that order."""
    by_hash: dict[str, list[str]] = {}
    for chunk_id in chunk_ids:
        by_hash.setdefault(hashes.get(chunk_id) or chunk_id, []).append(chunk_id)

    def rank(chunk_id: str) -> tuple[bool, float, float, str]:
        return chunk_id not in exact, -words.get(chunk_id, 0.0), distances.get(chunk_id, 3.0), chunk_id

    found: dict[str, list[str]] = {}
    for equal in by_hash.values():
        first, *others = sorted(equal, key=rank)
        found[first] = others
    return found
