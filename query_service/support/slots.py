"""A word that stands where the source has another one: all the words are there, two of them exchanged, or one taken
from the next sentence.

A word's *slot* are the words around it. Where those of a word of the sentence are around another word of the source,
and less of them around its own place there, the two do not say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from query_service.answer.interface import Reason
from query_service.support.text import Unit, Window, Word
from query_service.text import claims as w

if TYPE_CHECKING:
    from query_service.support.vetoes import Pair

_FAR: Final = 3  # words on each side that are looked at
_ENOUGH: Final = 4  # of them the same, at least one on each side
_OF_NUMBERS: Final = 3
_FILLING: Final = ("content", "name", "light", "number")


def misplaced(claim: Unit, window: Window, pairs: Sequence[Pair], known: Mapping[str, float]) -> Reason | None:
    """'number' or 'not_supported' where a word or number fills the slot of another one. ``known``: rarities of all
    stems of the sources; a word that none of them has may be another name of the same."""
    base = window.base.words
    if window.header is not None or not base:
        return None
    to = {pair.mine: pair.theirs for pair in pairs if pair.share >= 0.5}
    for i, mine in enumerate(claim.words):
        if mine.kind not in _FILLING or (mine.quantity is None and mine.stem not in known):
            continue
        other, best, own = None, 0, -1
        for k, theirs in enumerate(base):
            if theirs.kind not in _FILLING:
                continue
            left, right = _alike_around(claim.words, i, base, k)
            if _stands_for(mine, theirs) or to.get(i) == k:
                own = max(own, left + right)
            elif _counts(mine) == _counts(theirs) and left and right and left + right > best:
                other, best = k, left + right
        enough = _ENOUGH if mine.quantity is None else _OF_NUMBERS
        if other is None or best < enough or best <= own or _gapped(claim, base, i, to, other):
            continue
        if own < 0 and mine.quantity is not None:
            continue  # another number altogether: that is judged elsewhere
        return "number" if mine.quantity is not None else "not_supported"
    return None


def _counts(word: Word) -> bool:
    """Whether it is a number; "the first floor" tells one of several, as a name does."""
    return word.quantity is not None and word.quantity.unit != "ordinal"


def _stands_for(mine: Word, theirs: Word) -> bool:
    if mine.quantity is not None or theirs.quantity is not None:
        return mine.quantity is not None and theirs.quantity is not None and mine.quantity.agrees(theirs.quantity)
    return mine.text == theirs.text or w.alike(mine.stem, theirs.stem) >= 0.6


def _alike_around(mine: Sequence[Word], i: int, theirs: Sequence[Word], k: int) -> tuple[int, int]:
    """How many words on either side are the same, the beginning and end counting as one."""
    found = []
    for step in (-1, 1):
        same = 0
        for far in range(1, _FAR + 1):
            a, b = i + step * far, k + step * far
            ends = not 0 <= a < len(mine), not 0 <= b < len(theirs)
            if ends[0] or ends[1]:
                same += ends[0] and ends[1]
                break
            if (
                mine[a].text != theirs[b].text
                or mine[a].clause != mine[i].clause
                or theirs[b].clause != theirs[k].clause
            ):
                break
            same += 1
        found.append(same)
    return found[0], found[1]


def _gapped(claim: Unit, base: Sequence[Word], i: int, to: Mapping[int, int], other: int) -> bool:
    """Whether the word is of a part that borrows its verb, and the sentence has all of that part: "Staff pay 4 euros
    and guests 6" says that guests pay 6 euros."""
    mine = claim.words[i]
    at = to.get(i)
    if at is None and mine.quantity is not None:
        at = next((k for k, word in enumerate(base) if _stands_for(mine, word)), None)
    if at is None or base[at].clause == base[other].clause:
        return False
    part = [word for word in base if word.clause == base[at].clause and word.kind in _FILLING]
    own = [x for x in claim.words if x.clause == mine.clause]
    return all(any(_stands_for(x, word) for x in own) for word in part)
