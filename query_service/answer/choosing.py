"""Which pieces of the sources make the answer, and in what order. Pure.

    by score ▸ floor ▸ fall ▸ nothing said twice ▸ with what it cannot do without ▸ best passage first

What it cannot do without: the sentence that "this" or "it" points at, the one that limits it ("unless …", "however"),
the list or code that it announces. A list of steps that answers "how" is taken whole and in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from query_service.answer.asked_for import asked_for, holds
from query_service.answer.relevance import Known, Question, repeats
from query_service.answer.units import Unit

MOST_STEPS = 14  # sentences of a list that is taken whole; it counts as one
ALIKE = 0.75  # share of words in common from which two pieces say the same
FOLLOWING = 2  # sentences that may belong to one before them
TITLED, TOLD = 0.35, 0.6  # share of a question's words in the headings of steps, and there and in the steps
LATER = 0.75  # of its score: so good has to be something in effect that replaces what is not
# A prohibition limits what is said before it, whatever is asked.
_FORBIDS = re.compile(
    r"\W*(?:do not|don't|never|must not|may not|no\s+\w+ (?:is|are) allowed|(?:\w+\s+){0,3}(?:dürfen?|sollen?) nicht|"
    r"niemals|ne\s+\w+\s+(?:pas|jamais)|no\s+se\s+(?:debe|puede)|nunca)\b",
    re.IGNORECASE,
)
# The other side of a bound: one half of such a rule misleads.
_BEYOND = re.compile(
    r"(?:any|every)thing (?:above|below|over|under|beyond|else|more|less)\b|"
    r"(?:above|below|over|under|beyond|from) (?:it|that|this|\d)|(?:larger|smaller|longer|shorter|higher|lower|later|"
    r"earlier) \w+|all others|otherwise|afterwards|alles (?:andere|darüber|darunter)|darüber|darunter|sonst|danach\b|"
    r"(?:ab|über|unter) \d",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")
_NOT = re.compile(
    r"\b(?:not|never|no|cannot|without|nor|nicht|nie|kein\w*|ne|jamais|sin|nunca|не|ни)\b|n't\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Fall:
    """Where an answer ends. ``floor``: the smallest score of a first piece; ``share``: of the best score, what a
    further one needs, and ``plain`` the same without a cross-encoder, whose scores lie further apart.

    Chosen, with ``Weights``, on every second golden question; ``headwater bench extractive`` tells the other half.
    """

    floor: float = 0.18
    share: float = 0.45
    plain: float = 0.55


@dataclass
class _Taken:
    """Pieces by their place among all; ``used`` counts sentences, a whole list as one."""

    most: int
    places: dict[int, None] = field(default_factory=dict)
    used: int = 0

    def add(self, places: Sequence[int], count: int) -> None:
        self.places.update(dict.fromkeys(places))
        self.used += count

    @property
    def left(self) -> int:
        return self.most - self.used


def choose(
    question: Question, pieces: Sequence[Known], scores: Sequence[float], most: int, fall: Fall | None = None
) -> list[Unit]:
    """At most ``most`` sentences, in the order in which they are to be read; none where nothing answers.

    ``pieces`` stand passage by passage, in the order of their places; ``scores`` belong to them.
    """
    fall = fall or Fall()
    ranked = sorted((n for n in range(len(pieces)) if not repeats(question, pieces[n])), key=lambda n: -scores[n])
    ranked = _in_effect(ranked, pieces, scores)
    if not ranked or scores[ranked[0]] < fall.floor:
        return []
    steps = "how_to" in asked_for(question.text)
    if steps:
        ranked = _steps_first(question, ranked, pieces)
    best = max(scores[n] for n in ranked)
    taken = _Taken(most)
    for number in ranked:
        if taken.left < 1 or (taken.places and scores[number] < fall.share * best):
            break
        if number in taken.places or _said(pieces[number], [pieces[n] for n in taken.places]):
            continue
        _take(number, pieces, taken, steps=steps)
    return _ordered(list(taken.places), pieces, scores)


def _in_effect(ranked: list[int], pieces: Sequence[Known], scores: Sequence[float]) -> list[int]:
    """Without what is not in effect where something that is answers nearly as well."""
    current = max((scores[n] for n in ranked if pieces[n].in_effect), default=0.0)
    return [n for n in ranked if pieces[n].in_effect or current < LATER * scores[n]]


def _steps_first(question: Question, ranked: list[int], pieces: Sequence[Known]) -> list[int]:
    """With the list of steps in front that stands under what the question asks how to do, where there is one: a remark
    beside it may share more words."""
    best, of = 0.0, -1
    for number in ranked:
        one = pieces[number]
        if one.unit.kind != "step":
            continue
        listed = frozenset(word for n in _list_of(number, pieces) for word in pieces[n].words)
        above = sum(question.rarity[word] for word in question.words if word in one.headings)
        both = sum(question.rarity[word] for word in question.words if word in one.headings or word in listed)
        if above >= TITLED and both >= TOLD and both > best:
            best, of = both, number
    return ranked if of < 0 else [of, *(n for n in ranked if n != of)]


def _take(number: int, pieces: Sequence[Known], taken: _Taken, *, steps: bool) -> None:
    if steps and pieces[number].unit.kind == "step":
        listed = _list_of(number, pieces)
        if len(listed) <= MOST_STEPS:
            intro = [listed[0] - 1] if _announces(listed[0] - 1, listed[0], pieces) else []
            taken.add([*(intro if taken.left > 1 else []), *listed], 1 + bool(intro and taken.left > 1))
            warnings = _forbidden(listed[-1], 3, pieces)[: max(0, taken.left)]
            taken.add(warnings, len(warnings))
            return
    needed = [number]
    # what limits it weighs more than what explains it
    needed.extend(_following(number, pieces, steps=steps))
    at = number
    while pieces[at].unit.dependent and at > 0 and _together(at - 1, at, pieces) and number - at < 2:
        at -= 1
        needed.insert(0, at)
    new = [n for n in needed if n not in taken.places]
    if len(new) > taken.left:
        if taken.places:
            return  # half of it would mislead
        new = new[-taken.left :] if number in new[-taken.left :] else [number]
    taken.add(new, len(new))
    follows = number + 1
    if _announces(number, follows, pieces) and taken.left > 0:
        more = [follows] if pieces[follows].unit.kind == "code" else _list_of(follows, pieces)
        if len(more) <= MOST_STEPS:
            taken.add(more, 1)
            warnings = _forbidden(more[-1], 3, pieces)[: max(0, taken.left)]
            taken.add(warnings, len(warnings))


def _following(number: int, pieces: Sequence[Known], *, steps: bool) -> list[int]:
    """What is said next and belongs to it: the sentence that limits it, the other side of its bound, and, where it only
    says what is the matter and the question is what to do, what to do."""
    found: list[int] = []
    told = holds(pieces[number].unit, "how_to") > 0 and not pieces[number].unit.dependent
    for at in range(number + 1, min(number + 1 + FOLLOWING, len(pieces))):
        unit = pieces[at].unit
        if not _together(at - 1, at, pieces):
            break
        beyond = unit.kind == "sentence" and _BEYOND.match(unit.text) is not None
        act = steps and unit.kind == "sentence" and (not told or unit.dependent) and holds(unit, "how_to") > 0
        if not ((at == number + 1 and _limits(unit)) or beyond or act):
            break
        found.append(at)
    return found or _forbidden(number, 1, pieces)


def _limits(unit: Unit) -> bool:
    return unit.limiting or (unit.kind == "sentence" and _FORBIDS.match(unit.text) is not None)


def _forbidden(number: int, reach: int, pieces: Sequence[Known]) -> list[int]:
    """Prohibitions among the next pieces under the same heading, in another paragraph too: what must not be done
    belongs to what is to be done."""
    unit = pieces[number].unit
    near = range(number + 1, min(number + 1 + reach, len(pieces)))
    return [
        n for n in near
        if pieces[n].unit.kind == "sentence" and _FORBIDS.match(pieces[n].unit.text) is not None
        and pieces[n].unit.source == unit.source and pieces[n].unit.headings == unit.headings
    ]  # fmt: skip


def _together(one: int, other: int, pieces: Sequence[Known]) -> bool:
    """Whether two neighbours stand in the same passage under the same heading, and are no rows or separate items."""
    first, second = pieces[one].unit, pieces[other].unit
    if first.source != second.source or first.headings != second.headings or first.kind == "row":
        return False
    return second.kind == "code" or (second.group == first.group and not second.opens)


def _announces(one: int, other: int, pieces: Sequence[Known]) -> bool:
    """Whether the first ends with a colon and a list or code follows."""
    if not 0 <= one < other < len(pieces):
        return False
    first, second = pieces[one].unit, pieces[other].unit
    same = first.source == second.source and first.headings == second.headings
    return same and first.text.endswith((":", "：")) and (second.opens or second.kind == "code")


def _list_of(number: int, pieces: Sequence[Known]) -> list[int]:
    unit = pieces[number].unit
    return [
        n for n, one in enumerate(pieces)
        if one.unit.source == unit.source and one.unit.group == unit.group and one.unit.headings == unit.headings
    ]  # fmt: skip


def _said(one: Known, others: Sequence[Known]) -> bool:
    """Whether another says the same: nearly the same words, no other number, no other negation."""
    for other in others:
        both = len(one.words | other.words)
        if not both or len(one.words & other.words) < ALIKE * min(len(one.words), len(other.words)):
            continue
        if len(one.words & other.words) < ALIKE * both and not one.words <= other.words:
            continue
        a, b = one.unit.text, other.unit.text
        if set(_NUMBERS.findall(a)) <= set(_NUMBERS.findall(b)) and bool(_NOT.search(a)) == bool(_NOT.search(b)):
            return True
    return False


def _ordered(places: Sequence[int], pieces: Sequence[Known], scores: Sequence[float]) -> list[Unit]:
    """The passage with the best piece first; within one passage as it stands there."""
    best: dict[int, float] = {}
    for n in places:
        source = pieces[n].unit.source
        best[source] = max(best.get(source, -1.0), scores[n])
    order = sorted(places, key=lambda n: (-best[pieces[n].unit.source], pieces[n].unit.source, n))
    return [pieces[n].unit for n in order]
