"""Who does what: the deed of one part of a source given to the doer of another, the one behind "by" exchanged, a word
of another part put where the source has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from query_service.support.text import Unit, Window, Word, language
from query_service.text import claims as w

if TYPE_CHECKING:
    from query_service.support.vetoes import Pair

SAID: Final = ("content", "name")
ARTICLES: Final = frozenset(
    ["the", "a", "an", "this", "that", "its", "their", "his", "her", "our", "your", "my", "der", "die", "das", "den",
     "dem", "des", "ein", "eine", "einen", "einem", "einer", "unser", "unsere"]
)  # fmt: skip
_BE: Final = frozenset(["is", "are", "was", "were", "be", "been", "being"])
_OPENING: Final = frozenset(["in", "on", "at", "for", "to", "from", "with", "by", "under", "over", "of", "as", "since",
                             "until", "within", "because", "due", "bei", "fur", "mit", "nach", "vor", "im", "am", "zum",
                             "zur", "ab", "um"])  # fmt: skip
_OURS: Final = frozenset(["us", "our", "ours", "uns", "unser", "unsere", "unseren", "unserem", "unseres"])
_WE: Final = _OURS | {"we", "wir"}


def done_by_another(claim: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    """Whether the window, though it has the words of ``claim``, says it of somebody or something else."""
    base = window.base
    matched = [pair for pair in pairs if pair.theirs >= 0 and pair.share >= 0.5]
    return (
        _other_doer(claim, base, matched)
        or _other_agent(claim, base, matched)
        or _in_its_place(claim, base, matched)
        or _in_place_of(claim, base, pairs, matched)
        or _roles_behind_condition(claim, base, matched)
        or _says_nothing_else(claim, window, matched)
        or _us(claim, window)
    )


def _other_doer(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether a part of the sentence gives the deed of one part of the source to the doer of another."""
    to = {pair.mine: pair.theirs for pair in matched}
    for segment in {word.segment for word in claim.words}:
        mine = [i for i, word in enumerate(claim.words) if word.segment == segment]
        first = next((i for i in mine if claim.words[i].text not in w.JOINTS), None)
        if first is None or claim.words[first].text in _OPENING | w.CONDITIONS | w.ANAPHORS:
            continue
        head = next((i for i in mine if claim.words[i].kind in SAID), None)
        if head is None or head not in to:
            continue
        weights: dict[int, float] = {}
        behind = [pair for pair in matched if pair.mine in mine and pair.mine > head]
        for pair in behind[:2] or [pair for pair in matched if pair.mine in mine and pair.mine != head]:
            place = base.words[pair.theirs].segment
            weights[place] = weights.get(place, 0.0) + pair.weight
        if not weights:
            continue
        main = max(weights, key=lambda s: weights[s])
        lead = _doer(base.words, main)
        if base.words[to[head]].segment == main:
            continue
        if lead is None:
            shared = _shared_doer(base.words, main)
            if shared is not None and not stands_in(base.words[shared], claim):
                return True
            if _beside_the_doer(base.words, to[head], main):
                return True
            continue
        if not any(w.alike(base.words[lead].stem, claim.words[i].stem) >= 0.6 for i in mine):
            return True
    return False


def _says_nothing_else(claim: Unit, window: Window, matched: Sequence[Pair]) -> bool:
    """Whether all that it has in common is one word: "Refunds are over" of any sentence on refunds. Then its small
    words say what is new, and have to be there too."""
    if len({pair.theirs for pair in matched}) > 1 or any(word.quantity is not None for word in claim.words):
        return False
    units = (window.base, window.before) if window.before is not None else (window.base,)
    # "over 500 euros" is not "over"
    there = {
        word.text for unit in units for k, word in enumerate(unit.words)
        if k + 1 >= len(unit.words) or unit.words[k + 1].quantity is None
    }  # fmt: skip
    small = (
        {word.text for word in claim.words if word.kind in ("stop", "light")} - ARTICLES - w.SUBJECT_ENDS - w.ANAPHORS
    )
    return bool(small - there)


def _us(claim: Unit, window: Window) -> bool:
    """Whether it says of us what the source says of somebody else."""
    there = window.base.texts | (window.before.texts if window.before is not None else frozenset())
    return bool(claim.texts & _OURS) and not there & _WE


def _shared_doer(words: Sequence[Word], segment: int) -> int | None:
    """The doer of the part before, where this one goes on with "and was …"."""
    first = next((i for i, word in enumerate(words) if word.segment == segment), 0)
    goes_on = first + 1 < len(words) and words[first].text in w.JOINTS and words[first + 1].text in w.SUBJECT_ENDS
    return (
        next((i for i, x in enumerate(words) if x.segment == segment - 1 and x.kind in SAID), None) if goes_on else None
    )


def _beside_the_doer(words: Sequence[Word], at: int, segment: int) -> bool:
    """Whether a word stands behind "than", "to" and the like in a part whose subject the next one shares: "A answers
    faster than B but needs more"."""
    first = next((i for i, word in enumerate(words) if word.segment == segment), 0)
    if not first or words[first].text not in w.JOINTS or words[at].segment != segment - 1:
        return False
    follows = words[first + 1] if first + 1 < len(words) else None
    k = at - 1
    while k >= 0 and words[k].text in ARTICLES:
        k -= 1
    verb = follows is not None and follows.kind in ("content", "light") and not follows.proper
    return verb and k >= 0 and words[k].text in ("than", "to", "from", "by", "als", "zu", "von") and (
        not any(x.text in w.SUBJECT_ENDS for x in words[first : first + 3])
    )  # fmt: skip


def _doer(words: Sequence[Word], segment: int) -> int | None:
    """The noun that a part begins with, where it is known to be one."""
    inside = [i for i, word in enumerate(words) if word.segment == segment]
    inside = inside[1:] if inside and words[inside[0]].text in w.JOINTS else inside
    if not inside or words[inside[0]].text in w.ANAPHORS | w.CONDITIONS | _OPENING:
        return None
    lead = next((i for i in inside if words[i].kind in (*SAID, "light")), None)
    if lead is None or words[lead].kind == "light" or any(words[i].text in w.SUBJECT_ENDS for i in inside if i < lead):
        return None
    sure = words[lead].proper or (lead > 0 and words[lead - 1].text in ARTICLES)
    return lead if sure or (lead + 1 < len(words) and words[lead + 1].text in w.SUBJECT_ENDS) else None


def _other_agent(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether somebody else than stands behind "by" there does it: "Ann checks it", "checked by Bo"."""
    by = {pair.mine: agent for pair in matched if (agent := _by(base.words, pair.theirs)) is not None}
    for i, agent in by.items():
        mine = _by(claim.words, i)
        ahead = [k for k in range(i) if claim.words[k].clause == claim.words[i].clause]
        if mine is None:
            if any(claim.words[k].text in _BE for k in ahead) or not any(claim.words[k].kind in SAID for k in ahead):
                continue
            doers = [k for k in ahead if claim.words[k].kind in SAID]
        else:
            doers = [mine]
        theirs = base.words[agent]
        if not any(w.alike(theirs.stem, claim.words[k].stem) >= 0.6 for k in doers) and (
            any(pair.mine in doers for pair in matched)
        ):
            return True
    return False


def _by(words: Sequence[Word], verb: int) -> int | None:
    """The first noun behind "by" right behind a verb."""
    at = next((k for k in range(verb + 1, min(verb + 3, len(words))) if words[k].text == "by"), None)
    if at is None or any(words[k].kind in SAID for k in range(verb + 1, at)):
        return None
    for k in range(at + 1, min(at + 4, len(words))):
        if words[k].quantity is not None:
            return None
        if words[k].kind in SAID:
            return k
    return None


def _in_its_place(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether a word of another part stands where the source has a word that the sentence's part lacks."""
    weights: dict[tuple[int, int], float] = {}
    for pair in matched:
        key = claim.words[pair.mine].clause, base.words[pair.theirs].clause
        weights[key] = weights.get(key, 0.0) + pair.weight
    for pair in matched:
        mine, theirs = claim.words[pair.mine], base.words[pair.theirs]
        rows = {there: weight for (part, there), weight in weights.items() if part == mine.clause}
        main = max(rows, key=lambda c: rows[c])
        if theirs.clause == main or mine.kind not in SAID:
            continue
        own = [x for x in claim.words if x.clause == mine.clause]
        part = [x for x in base.words if x.clause == theirs.clause and x.kind != "stop"]
        if all(any(w.alike(x.stem, y.stem) >= 0.6 or agree(x, y) for y in own) for x in part):
            continue  # all of that part: "in Norway from the fourth day, in Chile from the first"
        here = _ahead(claim.words, pair.mine)
        for k, other in enumerate(base.words):
            if other.clause != main or other.kind not in SAID or here is None:
                continue
            if _ahead(base.words, k) == here and not any(w.alike(other.stem, x.stem) >= 0.6 for x in own):
                return True
    return False


def _ahead(words: Sequence[Word], at: int) -> str | None:
    """The word before one and its article."""
    k = at - 1
    while k >= 0 and words[k].text in ARTICLES:
        k -= 1
    return words[k].stem if k >= 0 and words[k].clause == words[at].clause else None


def _in_place_of(claim: Unit, base: Unit, pairs: Sequence[Pair], matched: Sequence[Pair]) -> bool:
    """The same of a word that only title, headings or the sentence before have."""
    clauses = {base.words[pair.theirs].clause for pair in matched}
    for pair in pairs:
        if pair.theirs >= 0 or not pair.share or claim.words[pair.mine].kind not in SAID:
            continue
        here = _ahead(claim.words, pair.mine)
        for k, other in enumerate(base.words):
            if here is None or other.clause not in clauses or other.kind not in SAID:
                continue
            if _ahead(base.words, k) == here and not stands_in(other, claim):
                return True
    return False


def _roles_behind_condition(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether doer and done-to changed places behind a condition that both sentences open with."""
    if not claim.words or not base.words or claim.words[0].text not in w.CONDITIONS:
        return False
    if base.words[0].text not in w.CONDITIONS or language(claim.raw) != "en":
        return False
    mine, theirs = claim.words[-1].clause, base.words[-1].clause
    row = [
        (pair.mine, pair.theirs) for pair in sorted(matched, key=lambda p: p.mine)
        if claim.words[pair.mine].clause == mine and base.words[pair.theirs].clause == theirs
    ]  # fmt: skip
    if len(row) < 3 or bool(claim.texts & _BE) != bool(base.texts & _BE):
        return False
    places = [place for _, place in row]
    return places[0] > places[1] > min(places[2:])


def stands_in(word: Word, claim: Unit) -> bool:
    return any(w.alike(word.stem, x.stem) >= 0.6 for x in claim.words)


def agree(one: Word, other: Word) -> bool:
    return one.quantity is not None and other.quantity is not None and one.quantity.agrees(other.quantity)
