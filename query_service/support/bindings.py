"""What belongs to what inside one sentence of a source: the number to its noun, the condition to its outcome, the event
to its time. A sentence may take every word from there and tie them together anew.

Without a parser: parts of a sentence, and the words beside a word, tell. Where they do not, nothing is held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from query_service.answer.interface import Reason
from query_service.support.doers import SAID, agree, done_by_another, stands_in
from query_service.support.text import Unit, Window, Word, language
from query_service.text import claims as w

if TYPE_CHECKING:
    from query_service.support.vetoes import Pair

_IF: Final = frozenset(["if", "when", "whenever", "wenn", "falls", "sofern"])
_UNLESS: Final = frozenset(["unless", "except", "ausser", "sei"])  # "es sei denn"
_SUPPOSING: Final = frozenset(["if", "unless", "until", "whether", "wenn", "falls", "sofern", "sobald", "bis", "ob"])
_HAPPENED: Final = frozenset(["was", "were", "had", "did", "wurde", "wurden", "war", "waren", "hatte", "hatten"])
_EVEN: Final = frozenset(["even", "auch", "selbst", "sogar"])
_OVER: Final = frozenset(["under", "below", "over", "above", "behind", "ahead", "unter", "uber", "vor", "hinter"])
_OTHERWAY: Final = (" other way round ", " other way around ", " vice versa ", " reverse ", " umgekehrt ")
_MOSTLY: Final = 0.4  # share of the sentence that may be borrowed of the sentence before where little else is used
_BESIDE: Final = 3  # words behind a number among which its noun is looked for


def unbound(claim: Unit, window: Window, pairs: Sequence[Pair], whole: Unit) -> Reason | None:
    """Why the window, though it has the words of ``claim`` (a part of ``whole``), ties them otherwise; or None."""
    if window.header is not None:
        return None  # cells are told by their columns
    base = window.base
    matched = [pair for pair in pairs if pair.theirs >= 0 and pair.share >= 0.5]
    if _counted_otherwise(claim, base, matched) or _rival_number(claim, base):
        return "number"
    if _turned_condition(claim, base, matched) or _compared_with_before(claim, base) or _other_side(claim, base):
        return "negation"
    if _other_time(claim, base, matched):
        return "negation"
    if _supposed(base, matched, whole) or _limit_dropped(claim, base, matched):
        return "stronger"
    if _made_up(claim, base, pairs) or _without_reason(claim, pairs) or _other_way_round(claim, window, pairs):
        return "not_supported"
    if done_by_another(claim, window, pairs):
        return "not_supported"
    return None


# ---------------------------------------------------------------- numbers


def _counted_otherwise(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether a number counts something else: "25 named seats", "25 times"; "72 mph" for "72 km/h"."""
    told = {pair.mine for pair in matched}
    for i, mine in enumerate(claim.words):
        if mine.quantity is None or mine.quantity.unit == "ordinal" or _worded(mine):
            continue
        same = [j for j, word in enumerate(base.words) if agree(mine, word)]
        if not same:
            continue
        here = _counted(claim.words, i)
        if here is None and mine.quantity.unit in (None, "day"):
            continue
        if not any(_fits(claim, base, i, here, j, told) for j in same):
            return True
    return False


def _worded(word: Word) -> bool:
    """ "One" is often no number, nor is a day or month counted."""
    assert word.quantity is not None
    return word.text in ("one", "a", "an", "once", "ein", "eine", "einmal") or any(
        isinstance(x, str) for x in word.quantity.values
    )


def _fits(claim: Unit, base: Unit, i: int, here: int | None, j: int, told: set[int]) -> bool:
    mine, theirs = claim.words[i].quantity, base.words[j].quantity
    assert mine is not None and theirs is not None
    there = _counted(base.words, j)
    if there is None:  # "72 mph" for "72 km/h"
        return not (theirs.unit is not None and mine.unit is None and here is not None and here not in told)
    other = base.words[there]
    if any(w.alike(other.stem, stem) >= 0.6 for stem in claim.stems):
        return True
    if mine.unit is not None and mine.unit != theirs.unit:
        return False  # a unit there, a noun here
    return here is None or mine.unit is not None or (here in told and not _elsewhere(claim.words[here], base, j))


def _elsewhere(word: Word, base: Unit, j: int) -> bool:
    places = [k for k, x in enumerate(base.words) if w.alike(x.stem, word.stem) >= 0.6]
    return bool(places) and all(k < j or k > j + _BESIDE for k in places)


def _counted(words: Sequence[Word], at: int) -> int | None:
    """The noun right behind a number; None where a unit or a small word stands there."""
    for k in range(at + 1, min(at + 1 + _BESIDE, len(words))):
        word = words[k]
        if word.clause != words[at].clause or word.kind not in SAID:
            return None
        if k + 1 >= len(words) or words[k + 1].kind not in SAID or words[k + 1].clause != word.clause:
            return k
    return None


def _rival_number(claim: Unit, base: Unit) -> bool:
    """Whether a number is said of what another number belongs to: of two parts, the sentence has all words of the one
    without its number, and the number of the other, of which it lacks words."""
    asked = [word for word in claim.words if word.quantity is not None]
    for mine in asked:
        places = [word for word in base.words if agree(mine, word)]
        if places and all(_taken_over(claim, base, word, asked) for word in places):
            return True
    return False


def _taken_over(claim: Unit, base: Unit, number: Word, asked: Sequence[Word]) -> bool:
    for level in ("clause", "segment"):
        parts: dict[int, list[Word]] = {}
        for word in base.words:
            parts.setdefault(getattr(word, level), []).append(word)
        here = parts.pop(getattr(number, level))
        own = [word for word in here if word.kind in SAID]
        strange = [word for word in own if not stands_in(word, claim)]
        if not strange:
            continue
        for part in parts.values():
            numbers = [x for x in part if x.quantity is not None and not any(agree(x, y) for y in asked)]
            alike = [x for x in numbers if _comparable(x, number)]
            said = [word for word in part if word.kind in SAID]
            if alike and said and all(stands_in(word, claim) for word in said) and any(
                all(w.alike(word.stem, x.stem) < 0.6 for x in own) for word in said
            ):  # fmt: skip
                return True
    return False


def _comparable(one: Word, other: Word) -> bool:
    assert one.quantity is not None and other.quantity is not None
    units = {one.quantity.unit, other.quantity.unit}
    return len(units) == 1 or None in units


# ---------------------------------------------------------------- conditions


def _turned_condition(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether "unless" became "if" or the other way round, nothing being negated for it; or "if" became "even if"."""
    mine, theirs = claim.texts, base.texts
    if mine & _EVEN and mine & _IF and not theirs & _EVEN:
        return any(word.text in _IF and at and claim.words[at - 1].text in _EVEN for at, word in enumerate(claim.words))
    if bool(mine & w.NEGATORS) != bool(theirs & w.NEGATORS):
        return False
    for one, other in ((_IF, _UNLESS), (_UNLESS, _IF)):
        at = next((i for i, word in enumerate(claim.words) if word.text in one), None)
        if at is None or mine & other:
            continue
        behind = next((j for j, word in enumerate(base.words) if word.text in other), None)
        if behind is None or theirs & one:
            continue
        inside = {pair.theirs for pair in matched if claim.words[pair.mine].clause == claim.words[at].clause}
        if any(base.words[j].clause == base.words[behind].clause for j in inside):
            return True
    return False


def _supposed(base: Unit, matched: Sequence[Pair], whole: Unit) -> bool:
    """Whether what the source only supposes ("when the belt is worn") is told as a fact."""
    if not matched or whole.texts & (w.CONDITIONS | _SUPPOSING | w.POSSIBLE) or base.texts & _HAPPENED:
        return False
    clauses = {base.words[pair.theirs].clause for pair in matched}
    if len(clauses) != 1:
        return False
    clause = next(iter(clauses))
    words = [word for word in base.words if word.clause == clause]
    supposes = words[0].text in _SUPPOSING | {"when", "once"}
    return supposes and any(word.clause != clause and word.kind in SAID for word in base.words)


def _limit_dropped(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether the subject lost the number that limits it: "rooms up to 120 euros", "overtime beyond ten hours"."""
    ends = next((i for i, word in enumerate(base.words) if word.text in w.SUBJECT_ENDS), None)
    if ends is None or not claim.words:
        return False
    lead = next((p for p in sorted(matched, key=lambda p: p.theirs) if p.theirs < ends), None)
    if lead is None or base.words[ends].clause != base.words[lead.theirs].clause:
        return False
    behind = [p for p in matched if p.theirs > ends and base.words[p.theirs].segment == base.words[ends].segment]
    numbers = [word for word in base.words[lead.theirs + 1 : ends] if word.quantity is not None]
    return bool(behind and numbers) and not any(agree(x, y) for x in numbers for y in claim.words)


# ---------------------------------------------------------------- sides


def _compared_with_before(claim: Unit, base: Unit) -> bool:
    """Whether "A is faster than B" is said where the source says of B that it is faster, without naming A."""
    than = next((i for i, word in enumerate(claim.words) if word.text in ("than", "als")), None)
    if than is None or not than or base.texts & {"than", "als"}:
        return False
    more = claim.words[than - 1].text if claim.words[than - 1].text.endswith("er") else None
    at = next((j for j, word in enumerate(base.words) if word.text == more), None)
    if at is None:
        return False
    left = {word.stem for word in [x for x in claim.words[:than] if x.kind in SAID][:2]}
    right = {word.stem for word in claim.words[than:] if word.kind in SAID}
    about = {word.stem for word in [x for x in base.words[:at] if x.kind in SAID][:2]}
    return bool((about - left) & right) and not (about - right) & left


def _other_side(claim: Unit, base: Unit) -> bool:
    """Whether the two sides of "below", "ahead of" and the like changed places."""
    for i, mine in enumerate(claim.words):
        if mine.text not in _OVER or any(x.quantity is not None for x in claim.words[i + 1 : i + 3]):
            continue
        for j, theirs in enumerate(base.words):
            if theirs.text != mine.text:
                continue
            left, right = _sides(claim.words, i)
            before, after = _sides(base.words, j)
            if (left - before) & after and right & (before - left) and not right & after:
                return True
    return False


def _sides(words: Sequence[Word], at: int) -> tuple[set[str], set[str]]:
    left = [word.stem for word in words[:at] if word.kind in SAID and word.clause == words[at].clause]
    right = [word.stem for word in words[at + 1 :] if word.kind in SAID and word.clause == words[at].clause]
    both = set(left) & set(right)
    return set(left[-2:]) - both, set(right[:2]) - both


def _made_up(claim: Unit, base: Unit, pairs: Sequence[Pair]) -> bool:
    """Whether it compares with something, or offers an alternative, of which the source knows nothing."""
    for i, word in enumerate(claim.words[:-1]):
        if word.text == "than" and not base.texts & {"than", "als", "from", "over"}:
            more = {x.text for x in claim.words[max(0, i - 4) : i] if _comparative(claim, x)}
            if claim.words[i + 1].quantity is None and not more & base.texts:
                return True
        if word.text in ("or", "oder") and not base.texts & {"or", "oder"}:
            told = next((p for p in pairs if p.mine > i), None)
            if told is not None and not told.share and told.theirs == -1:
                return True
    return False


def _comparative(claim: Unit, word: Word) -> bool:
    than = next(i for i, x in enumerate(claim.words) if x.text == "than")
    return word.text in ("more", "less", "fewer") or (word.text.endswith("er") and word is claim.words[than - 1])


# ---------------------------------------------------------------- when

_TIMES: Final = {
    **dict.fromkeys(("until", "till", "bis"), "until"),
    **dict.fromkeys(("after", "once", "nachdem", "nach", "sobald"), "after"),
    **dict.fromkeys(("before", "bevor", "ehe", "vor"), "before"),
}


def _other_time(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether the same event stands behind another of "until", "after" and "before"."""
    if (claim.texts | base.texts) & w.ONLY or bool(claim.texts & w.NEGATORS) != bool(base.texts & w.NEGATORS - {"not"}):
        return False
    to = {pair.mine: pair.theirs for pair in matched}
    for i, word in enumerate(claim.words):
        first = next((k for k in range(i + 1, min(i + 5, len(claim.words))) if claim.words[k].kind in SAID), None)
        if word.text not in _TIMES or first is None or first not in to:
            continue
        for k in range(to[first] - 1, max(-1, to[first] - 5), -1):
            if base.words[k].text in _TIMES:
                if _TIMES[base.words[k].text] != _TIMES[word.text]:
                    return True
                break
            if base.words[k].kind in SAID and k != to[first] - 1:
                break
    return False


# ---------------------------------------------------------------- what it is for


def _without_reason(claim: Unit, pairs: Sequence[Pair]) -> bool:
    """Whether the purpose that the sentence opens with ("To change a record, …") has a word that is nowhere."""
    if not claim.words or claim.words[0].text not in ("to", "um") or language(claim.raw) == "other":
        return False
    clause = claim.words[0].clause
    return any(word.clause != clause for word in claim.words) and any(
        claim.words[pair.mine].clause == clause and claim.words[pair.mine].kind == "content" and not pair.share
        for pair in pairs
    )


def _other_way_round(claim: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    """Whether most is borrowed of the sentence before, of which the window says that it is the other way round."""
    if window.before is None or not any(phrase in window.base.folded for phrase in _OTHERWAY):
        return False
    lent = sum(pair.weight for pair in pairs if pair.theirs == -2)
    return lent > _MOSTLY * sum(pair.weight for pair in pairs)
