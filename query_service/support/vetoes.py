"""What speaks against support whatever else agrees: another number, the opposite, more than was said, another subject.

Each works on a sentence, a window, and the pairs of words that stand for one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from query_service.answer.interface import Reason
from query_service.support.bindings import unbound
from query_service.support.relations import compares, related
from query_service.support.slots import misplaced
from query_service.support.text import Unit, Window, Word
from query_service.text import claims as w

PASSIVE = frozenset(["by", "von", "vom", "durch"])
_PREPOSITIONS = frozenset(
    [
        "that",
        "which",
        "who",
        "whose",
        "within",
        "without",
        "than",
        "inside",
        "outside",
        "of",
        "for",
        "in",
        "with",
        "from",
        "on",
        "to",
        "at",
        "between",
        "since",
        "during",
        "before",
        "after",
        "by",
        "bei",
        "fur",
        "von",
        "mit",
        "nach",
        "vor",
        "ab",
    ]
)
_SHORT = frozenset(
    ["during", "after", "before", "without", "wahrend", "nachdem", "ohne", "bei", "nach"]
)  # take a noun only, often
_DETERMINERS = frozenset(
    [
        "the",
        "a",
        "an",
        "each",
        "every",
        "all",
        "any",
        "der",
        "die",
        "das",
        "ein",
        "eine",
        "jede",
        "jeder",
        "jedes",
        "alle",
    ]
)
_RESTRICTING = frozenset(
    ["with", "without", "of", "who", "that", "whose", "from", "on", "for", "mit", "ohne", "von", "fur"]
)
_ANYBODY = frozenset(["somebody", "someone", "people", "person", "jemand", "leute"])
_BEING = frozenset(["is", "are", "was", "were", "be", "been", "being", "wird", "werden", "wurde", "wurden"])
_BEHIND = frozenset(
    ["at most", "maximum", "max", "at the latest", "or less", "hochstens", "maximal", "spatestens", "at least",
     "minimum", "or more", "or later", "mindestens", "wenigstens", "minimal", "approximately", "roughly", "approx",
     "within", "innerhalb"]
)  # fmt: skip
_BORROWED = 0.2  # share of the sentence that may stand in the sentence before where the base has the subject
_MUCH = 0.4  # the same, where its "may" is asked for
_WAS = frozenset(["was", "were", "wurde", "wurden", "war", "waren"])
_KEPT = 0.5  # share of a condition's words that have to be in the sentence, or the question


@dataclass(frozen=True)
class Pair:
    """Words of sentence and base (or the sentence before it) that stand for one another."""

    mine: int
    theirs: int  # -1: only in context; -2: only in the sentence before
    share: float
    weight: float


def veto(
    claim: Unit, window: Window, pairs: Sequence[Pair], whole: Unit, question: Unit, known: Mapping[str, float]
) -> Reason | None:
    matched = [pair for pair in pairs if pair.theirs >= 0 and pair.share >= 0.5]
    if not _numbers(claim, window, pairs) or not _names(claim, window):
        return "number"
    if _turned(claim, window, pairs, matched) or _negation_before(claim, window, pairs):
        return "negation"
    if claim.texts & {"without", "ohne"} and not window.base.texts & ({"without", "ohne"} | w.NEGATORS):
        return "negation"
    if _condition_before(whole, window, pairs) or _softer_before(whole, window, pairs):
        return "stronger"
    if _stronger(claim, window, matched, whole, question):
        return "stronger"
    if (
        _other_subject(claim, window, pairs, matched, known)
        or _other_name(claim, window, pairs)
        or _another(window, pairs)
    ):
        return "not_supported"
    return (
        related(claim, window, pairs, whole, question, known)
        or unbound(claim, window, pairs, whole)
        or misplaced(claim, window, pairs, known)
    )


def _other_name(claim: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    """Whether it names somebody or some place that the window does not."""
    return any(claim.words[pair.mine].proper and pair.share == 0 for pair in pairs)


def _another(window: Window, pairs: Sequence[Pair]) -> bool:
    """Whether one word of the base was exchanged for another, everything around it being the same."""
    base = window.base.words
    taken = {pair.theirs for pair in pairs}
    around: list[Pair | None] = [None, *pairs, None]
    for left, pair, right in zip(around, pairs, around[2:], strict=False):
        if pair.share or pair.theirs != -1 or (left is None and right is None):
            continue
        if any(one is not None and (one.share < 1 or one.theirs < 0) for one in (left, right)):
            continue
        # At the beginning or end the words of the same clause up to there.
        low = left.theirs + 1 if left is not None else _edge(base, right, -1)
        high = right.theirs if right is not None else _edge(base, left, 1)
        between = [j for j in range(low, high) if base[j].kind in ("content", "name")]
        if len(between) == 1 and between[0] not in taken:
            return True
    return False


def _edge(base: Sequence[Word], pair: Pair | None, step: int) -> int:
    """Where the clause of the pair's word begins, or what is behind its end."""
    assert pair is not None
    at = pair.theirs
    while 0 <= at + step < len(base) and base[at + step].clause == base[pair.theirs].clause:
        at += step
    return at if step < 0 else at + 1


def _names(claim: Unit, window: Window) -> bool:
    """Identifiers are there as they are, in the window or over it."""
    there = window.base.texts | (window.before.texts if window.before is not None else frozenset()) | window.context
    return all(word.text in there for word in claim.words if word.kind == "name")


def _told_before(claim: Unit, before: Unit, pairs: Sequence[Pair], i: int) -> bool:
    """Whether the sentence before has the number, beside a word that only it has."""
    mine = claim.words[i].quantity
    beside = min(pairs, key=lambda pair: abs(pair.mine - i), default=None)
    return beside is not None and beside.theirs == -2 and mine is not None and any(
        word.quantity is not None and mine.agrees(word.quantity) for word in before.words
    )  # fmt: skip


def _numbers(claim: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    matched = [pair for pair in pairs if pair.theirs >= 0 and pair.share >= 0.5]
    base = window.base.words
    theirs = [(j, word) for j, word in enumerate(base) if word.quantity is not None]
    before = window.before.words if window.before is not None else ()
    units = {word.quantity.unit for word in (*base, *before) if word.quantity is not None}
    for i, mine in enumerate(claim.words):
        if mine.quantity is None:
            continue
        fitting = [j for j, other in theirs if other.quantity is not None and mine.quantity.agrees(other.quantity)]
        # "within 30", said of minutes, and a table whose header tells the unit
        told = window.context_units | units
        fitting = [
            j for j in fitting
            if base[j].quantity.unit is not None or mine.quantity.unit is None or mine.quantity.unit in told  # type: ignore[union-attr]
        ]  # fmt: skip
        if not fitting:
            if 1.0 in mine.quantity.values and _single(mine, window):
                continue
            if window.before is not None and _told_before(claim, window.before, pairs, i):
                continue
            if mine.quantity.unit in (None, "ordinal") and mine.stem in window.context:
                continue
            return False
        columns = _columns(claim, window)
        if not any(_bound(claim, window, matched, i, j) and (not columns or base[j].cell in columns) for j in fitting):
            return False
    return True


def _columns(claim: Unit, window: Window) -> set[int]:
    """Cells of a row in which a number has to stand: those whose header the sentence names, and the first."""
    if window.header is None:
        return set()
    shared: dict[int, int] = {}
    for word in window.header.words:
        if word.kind != "stop" and word.cell and (word.stem in claim.stems or word.text in claim.texts):
            shared[word.cell] = shared.get(word.cell, 0) + 1
    most = max(shared.values(), default=0)
    return {0} | {cell for cell, count in shared.items() if count == most} if most else set()


def _single(mine: Word, window: Window) -> bool:
    """ "One month" is "a month"; "one" is also a pronoun."""
    articles = {
        "a",
        "an",
        "each",
        "every",
        "per",
        "single",
        "ein",
        "eine",
        "einen",
        "einem",
        "einer",
        "pro",
        "je",
        "one",
    }
    return (
        mine.text in ("one", "eins")
        and mine.quantity is not None
        and mine.quantity.unit is None
        and bool(window.base.texts & articles)
    )


def _bound(claim: Unit, window: Window, matched: Sequence[Pair], i: int, j: int) -> bool:
    """Whether the number at ``j`` of the base belongs to what it belongs to in the sentence.

    In a list of alike numbers ("8 for these, 5 for those") words of the sentence that stand in the part of another
    number, beside a part with words the sentence lacks, say that the numbers were exchanged.
    """
    base = window.base.words
    mine = base[j].quantity
    assert mine is not None
    alike = {
        word.clause for word in base
        if word.quantity is not None and word.quantity.unit == mine.unit and not word.quantity.agrees(mine)
    }  # fmt: skip
    here = base[j].clause
    alike.discard(here)
    if not alike:
        return True
    taken = {pair.theirs for pair in matched}
    strange = any(
        word.kind in ("content", "name") and word.clause == here and k not in taken and word.stem not in claim.stems
        for k, word in enumerate(base)
    )
    asked = {word.quantity for word in claim.words if word.quantity is not None}
    told = {word.clause for word in base if word.quantity is not None and any(word.quantity.agrees(q) for q in asked)}
    said = [pair for pair in matched if base[pair.theirs].kind in ("content", "name")]
    elsewhere = sum(pair.weight for pair in said if base[pair.theirs].clause in alike - told)
    own = sum(pair.weight for pair in said if base[pair.theirs].clause == here)
    return not (strange and elsewhere > own)


def _turned(claim: Unit, window: Window, pairs: Sequence[Pair], matched: Sequence[Pair]) -> bool:
    base = window.base.words
    named = _only_named(window.base, matched)
    matched = [pair for pair in matched if base[pair.theirs].segment not in named]
    heavy = [pair for pair in matched if claim.words[pair.mine].kind != "light"] or list(matched)
    total = sum(pair.weight for pair in heavy)
    wrong = sum(p.weight for p in heavy if claim.words[p.mine].negated != base[p.theirs].negated)
    flipped = total > 0 and wrong > 0.2 * total
    near = {base[pair.theirs].segment for pair in matched}
    words = [word for word in base if not near or word.segment in near]
    texts, stems = {word.text for word in words}, {word.stem for word in words}
    turned = False
    if compares(claim, window.base):
        return flipped  # who is compared with whom tells
    counts = Counter(word.text for word in base)
    counts.subtract(word.text for word in claim.words)
    seen: set[str] = set()
    for i, mine in enumerate(claim.words):
        # "switched on on Monday": of two equal words one may stand for the opposite
        again = counts[mine.text] < 0 and any(counts[other] > 0 for other in w.opposites(mine.text))
        if mine.text in seen or mine.kind == "number" or (mine.text in window.base.texts and not again):
            continue
        seen.add(mine.text)
        if mine.kind in ("content", "light") and any(p.mine == i and p.theirs >= 0 and p.share >= 0.8 for p in pairs):
            continue
        if any(w.opposite(mine.text, other) for other in texts if other not in claim.texts) or (
            mine.kind == "content" and any(w.opposite(mine.stem, other) for other in stems if other not in claim.stems)
        ):
            turned = not turned
    return flipped != turned


def _only_named(base: Unit, matched: Sequence[Pair]) -> set[int]:
    """Parts of which the sentence takes the subject alone, while it takes more of others: what is said there of it, is
    negated or holds on a condition there, is nothing to the sentence."""
    places: dict[int, list[int]] = {}
    for pair in matched:
        places.setdefault(base.words[pair.theirs].segment, []).append(pair.theirs)
    found: set[int] = set()
    for segment, taken in places.items():
        inside = [k for k, word in enumerate(base.words) if word.segment == segment]
        ends = next((k for k in inside if base.words[k].text in w.SUBJECT_ENDS), None)
        first = next((k for k in inside if base.words[k].kind in ("content", "name")), -1)
        alone = all(k < ends for k in taken) if ends is not None else taken == [first]
        if alone and any(base.words[k].kind in ("content", "name") and k not in taken for k in inside):
            found.add(segment)
    return found if len(found) < len(places) else set()


def _borrowed(pairs: Sequence[Pair]) -> bool:
    return sum(p.weight for p in pairs if p.theirs == -2) > _BORROWED * sum(p.weight for p in pairs)


def _negation_before(claim: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    """Whether the sentence before lends its words without its negation."""
    before = window.before
    return before is not None and _borrowed(pairs) and bool(before.texts & w.NEGATORS) != bool(claim.texts & w.NEGATORS)


def _condition_before(whole: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    """The same of its conditions."""
    before = window.before
    return (
        before is not None and _borrowed(pairs) and bool(before.texts & w.CONDITIONS) and not whole.texts & w.CONDITIONS
    )


def _softer_before(whole: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    """The same of its "may" and "usually"."""
    before = window.before
    if before is None or sum(p.weight for p in pairs if p.theirs == -2) < _MUCH * sum(p.weight for p in pairs):
        return False
    if window.base.texts & w.ONLY and not whole.texts & w.ONLY:
        return True  # "B needs only a badge." after all that A needs
    if before.texts & w.POSSIBLE and not (whole.texts | window.base.texts) & (w.POSSIBLE | w.NEGATORS):
        return True
    return any(_has(before.folded, group) and not _has(whole.folded, group) for group in w.HEDGES.values())


def _stronger(claim: Unit, window: Window, matched: Sequence[Pair], whole: Unit, question: Unit) -> bool:
    base = window.base
    near = {base.words[pair.theirs].segment for pair in matched} - _only_named(base, matched)
    clauses = {base.words[pair.theirs].clause for pair in matched}
    for at, theirs in enumerate(base.words):
        if theirs.quantity is not None and any(
            x.quantity is not None and x.quantity.agrees(theirs.quantity) for x in claim.words
        ):
            near.add(theirs.segment)
            clauses.add(base.words[at].clause)
    said = {word.clause for word in base.words if word.kind != "stop"}
    around = [
        word for word in base.words if word.clause in clauses or (word.segment in near and word.clause not in said)
    ]
    part = f" {' '.join(word.text for word in around)} "
    for group in w.HEDGES.values():
        if _has(part, group) and not _has(claim.folded, group):
            return True
    if _looser_bounds(claim, window):
        return True
    texts = {word.text for word in around}
    if texts & w.POSSIBLE and not whole.texts & w.POSSIBLE and not _negated_orders(claim):
        return True
    if claim.texts & w.STRICT & {"must", "mandatory", "muss", "mussen", "required"} and texts & w.WEAK and not texts & (
        w.STRICT - {"have", "has", "had", "need", "needs"}
    ):  # fmt: skip
        return True
    softly = {"should", "soll", "sollte", "recommended", "ought"}
    if "should" in texts and not whole.texts & softly and claim.texts & w.STRICT:
        return True
    if (
        claim.texts & {"may", "optional", "optionally"} and not texts & w.POSSIBLE and not claim.texts & w.NEGATORS
        and not _has(claim.folded, w.BOUNDS["most"])
    ):  # fmt: skip
        return True
    if _restricted(claim, window, matched, whole, question):
        return True
    if (
        texts & {"within", "innerhalb", "binnen"}
        and claim.texts & w.POSSIBLE
        and not any(x.quantity for x in claim.words)
    ):
        return True  # "can be undone within a day"
    universal = {
        word.text for i, word in enumerate(claim.words)
        if word.text in w.UNIVERSAL and word.quantity is None and (i == 0 or claim.words[i - 1].quantity is None)
    }  # fmt: skip
    if universal and not texts & (w.UNIVERSAL | {"whoever", "nothing", "nobody", "no", "never"}):
        return True
    if claim.texts & w.ONLY and not base.texts & (w.ONLY | {"nothing", "except", "but"}):
        return True
    if claim.texts & w.SURE and not base.texts & (w.SURE | w.UNIVERSAL):
        return True
    if claim.texts & {"immediately", "instantly", "sofort"} and not base.texts & w.AT_ONCE:
        return True
    return _dropped_condition(window, matched, near, whole, question)


def _restricted(claim: Unit, window: Window, matched: Sequence[Pair], whole: Unit, question: Unit) -> bool:
    """Whether what the subject was restricted by is gone: "runners with a GPU" are not all runners."""
    head, _ = _head(claim)
    pair = next((one for one in matched if one.mine == head), None)
    if pair is None or window.header is not None:
        return False
    base = window.base.words
    ends = next((i for i, word in enumerate(base) if word.text in w.SUBJECT_ENDS), len(base))
    if _described(claim, base, pair, whole, question):
        return True
    at = pair.theirs + 1
    if (
        at >= len(base)
        or at >= ends
        or base[at].text not in _RESTRICTING
        or base[at].clause != base[pair.theirs].clause
    ):
        return False
    inside = [
        x for x in base[at + 1 : min(ends, at + 5)] if x.kind in ("content", "name") and x.clause == base[at].clause
    ]
    kept = whole.stems | question.stems
    return bool(inside) and not any(w.alike(x.stem, stem) >= 0.6 for x in inside[:2] for stem in kept)


def _described(claim: Unit, base: Sequence[Word], pair: Pair, whole: Unit, question: Unit) -> bool:
    """Whether the subject lost its adjective: "flaky tests" are not all tests. "The" may mean the same without it."""
    at = pair.theirs
    if at < 1 or base[at].kind != "content" or base[at - 1].kind != "content" or base[at - 1].clause != base[at].clause:
        return False
    if at > 1 and base[at - 2].text not in _DETERMINERS - {"the", "der", "die", "das"}:
        return False
    if claim.words[pair.mine - 1].kind == "content" and pair.mine:
        return False
    kept = whole.stems | question.stems
    return not base[at].proper and not any(w.alike(base[at - 1].stem, stem) >= 0.6 for stem in kept)


def _negated_orders(claim: Unit) -> bool:
    """ "May not" is no less than "do not"."""
    return bool(claim.texts & w.NEGATORS)


def _has(text: str, phrases: Sequence[str]) -> bool:
    return any(f" {phrase} " in text for phrase in phrases)


def _looser_bounds(claim: Unit, window: Window) -> bool:
    """Whether a number lost its "up to", "at least" or "about", or got another one."""
    for mine_at, mine in enumerate(claim.words):
        if mine.quantity is None or mine.quantity.unit == "ordinal":
            continue
        for at, theirs in enumerate(window.base.words):
            if theirs.quantity is None or not mine.quantity.agrees(theirs.quantity):
                continue
            had, has = _bounds(window.base, at), _bounds(claim, mine_at)
            if had and not (had & has) and not _equal_bounds(had, has, claim):
                return True
            if (
                has - had
                and not had
                and has & {"least", "most", "above", "below"}
                and not _equal_bounds(has, had, window.base)
            ):
                return True
    return False


def _equal_bounds(one: set[str], other: set[str], unit: Unit) -> bool:
    words = unit.texts
    if one <= {"above", "least"} and words & {
        "exceeds",
        "exceeded",
        "exceeding",
        "later",
        "larger",
        "longer",
        "more",
        "older",
    }:
        return True
    return one <= {"below", "most"} and bool(words & {"below", "under", "within", "maximum", "drops", "falls"})


def _bounds(unit: Unit, at: int) -> set[str]:
    """Bounds in the three words before a number, or the four behind it, as far as its clause goes. Behind it "over the
    same period" is none."""
    clause = unit.words[at].clause
    ahead = " ".join(word.text for word in unit.words[max(0, at - 3) : at + 1] if word.clause == clause)
    behind = " ".join(word.text for word in unit.words[at + 1 : at + 5] if word.clause == clause)
    return {
        name for name, group in w.BOUNDS.items()
        if _has(f" {ahead} ", group) or _has(f" {behind} ", [phrase for phrase in group if phrase in _BEHIND])
    }  # fmt: skip


def _dropped_condition(window: Window, matched: Sequence[Pair], near: set[int], whole: Unit, question: Unit) -> bool:
    """Whether a condition of the part that the sentence rests on is neither in it nor in the question."""
    base = window.base.words
    kept = whole.stems | question.stems
    taken = {pair.theirs for pair in matched}
    for at, word in enumerate(base):
        if not _conditional(base, at):
            continue
        inside = [k for k in range(at + 1, len(base)) if base[k].clause == word.clause and (base[k].kind != "stop")]
        if word.text in ("whoever", "those", "wer", "anyone"):
            stop = next((k for k in inside if k in taken), len(base))
            inside = [k for k in inside if k < stop]
        elif word.text in _SHORT and inside:
            end = next((k for k in range(inside[0], len(base)) if base[k].kind == "stop"), len(base))
            inside = list(range(inside[0], end))
        following = next((k for k in range(at + 1, len(base)) if base[k].clause != word.clause), None)
        if not inside and following is not None:
            inside = [k for k in range(following, len(base)) if base[k].clause == base[following].clause]
        inside = [k for k in inside if base[k].kind in ("content", "name", "number")]
        if not inside or word.segment not in near:
            continue
        if _told_of_the_past(base, at, whole):
            continue
        first = next(x for x in base if x.clause == word.clause)
        if first.text in ("or", "oder") and not any(base[k].clause == word.clause for k in taken):
            continue  # another case than the sentence's
        resting = taken - set(inside)
        if not resting:
            continue  # the sentence is about the condition alone
        if any(base[k].quantity is not None and not _counted(base[k], whole, question) for k in inside):
            return True
        clauses = {base[k].clause for k in inside}
        if (
            any(x.text in w.UNIVERSAL and x.quantity is None and x.clause in clauses for x in base)
            and not (whole.texts | question.texts) & w.UNIVERSAL
        ):
            return True
        words = [k for k in inside if base[k].quantity is None]
        held = sum(any(w.alike(base[k].stem, stem) >= 0.6 for stem in kept) for k in words)
        if held < _KEPT * len(words):
            return True
    return False


def _told_of_the_past(base: Sequence[Word], at: int, whole: Unit) -> bool:
    """ "It was restored after the switch was replaced": when something happened once is no condition of it."""
    if base[at].text not in ("after", "before", "when", "while", "nachdem", "bevor") or not whole.texts & _WAS:
        return False
    main = {word.text for k, word in enumerate(base) if word.clause != base[at].clause or k < at}
    return bool(main & _WAS) and not main & (w.NEGATORS | w.ONLY | w.POSSIBLE | {"if", "unless"}) and (
        base[at - 1].text not in w.ONLY if at else True
    )  # fmt: skip


def _counted(word: Word, *units: Unit) -> bool:
    return any(
        x.quantity is not None and word.quantity is not None and x.quantity.agrees(word.quantity)
        for unit in units for x in unit.words
    )  # fmt: skip


def _conditional(base: Sequence[Word], at: int) -> bool:
    word = base[at]
    if word.text in w.CONDITIONS:
        if word.text == "those":
            return at + 1 < len(base) and base[at + 1].text == "who"
        return word.text not in ("wahrend",) or True
    if word.text in ("when", "bei", "on") and at == 0:
        return word.text != "on"
    if word.text in ("when", "if"):
        return True
    # "Wird der Alarm nicht quittiert, …": a German sentence that begins with its verb and goes on after a comma
    return (
        at == 0
        and len(base) > 2
        and (base[0].text.endswith("t") or base[0].text in ("wird", "werden", "sind", "haben", "kann", "soll"))
        and base[1].text in ("der", "die", "das", "ein", "eine", "ihr", "es", "man")
        and base[-1].clause > base[0].clause
    )


def _other_subject(
    claim: Unit, window: Window, pairs: Sequence[Pair], matched: Sequence[Pair], known: Mapping[str, float]
) -> bool:
    """Whether the window says it of something else."""
    base = window.base.words
    if not base:  # a line of brackets: it says nothing of anything
        return True
    head, sure = _head(claim)
    pair = next((pair for pair in pairs if pair.mine == head), None)
    if pair is None:
        return False
    taken = {p.theirs for p in matched}
    if pair.theirs == -1:
        # Not said at all, or only in what stands over it: enough where the base leaves its subject open.
        lead = next((k for k, word in enumerate(base) if word.kind in ("content", "name")), None)
        if not pair.share:
            return sure or (lead is not None and lead not in taken and claim.words[pair.mine].stem in known)
        # "Deliveries may arrive twice." ends in a number, and yet is about deliveries.
        ends = next((k for k, word in enumerate(base) if word.text in w.SUBJECT_ENDS), 0)
        named = base[0].text in _DETERMINERS and len(base) > 1 and base[1].kind in ("content", "name")
        stated = named or (
            any(word.kind in ("content", "name") for word in base[:ends]) and not window.base.texts & w.ANAPHORS
        )
        return (stated or not window.base.open) and (sure or lead not in taken)
    if pair.theirs >= 0 and window.before is not None and base[-1].quantity is None and _borrowed(pairs):
        return True  # the sentence before says it, of something else
    if pair.theirs == -2:
        # The sentence before it may name what a pronoun means, not who else does it.
        lead = next((k for k, word in enumerate(base) if word.kind in ("content", "name", "light")), None)
        ends = next((k for k, word in enumerate(base) if word.text in w.SUBJECT_ENDS), 0)
        if any(word.quantity is not None and word.text not in ("one", "a", "an") for word in base[:ends]):
            return True  # "Up to five days may be …"
        return not (base[0].text in w.ANAPHORS or lead is None or lead in taken or base[-1].quantity is not None)
    if _apart(base, pair, matched) or (sure and _modifier(claim, base, pair.theirs, taken)):
        return True
    # The other way round: what the base is about is not in the sentence, which is no passive without an agent.
    main = max({base[p.theirs].segment for p in matched}, default=-1)
    theirs, known_noun = _head(window.base)
    return (
        theirs is not None and known_noun and main == base[theirs].segment and theirs not in taken
        and base[theirs].text not in _ANYBODY and not (claim.texts & _BEING and not claim.texts & PASSIVE)
    )  # fmt: skip


def _head(claim: Unit) -> tuple[int | None, bool]:
    """Index of the subject's noun, and whether it is known to be one: the last content word before the first auxiliary
    or preposition; without an auxiliary the first one behind an article. Else the first content word, maybe a verb."""
    first: int | None = None
    ends = next((i for i, word in enumerate(claim.words) if word.text in w.SUBJECT_ENDS), None)
    if claim.words and (claim.words[0].text in w.CONDITIONS | _PREPOSITIONS or claim.words[0].text == "according"):
        return None, False
    for i, word in enumerate(claim.words):
        if word.clause != claim.words[0].clause or i == ends or (word.text in _PREPOSITIONS and first is not None):
            break
        if word.kind in ("content", "name"):
            first = i
            if ends is None or claim.words[ends].clause != claim.words[0].clause:
                return first, claim.words[0].text in _DETERMINERS
    return first, ends is not None


def _modifier(claim: Unit, base: Sequence[Word], at: int, taken: set[int]) -> bool:
    """Whether the word only describes another noun there: "transfer status checks" is not "transfer"."""
    following = base[at + 1 : at + 3]
    if len(following) < 2 or any(word.clause != base[at].clause for word in following):
        return False
    one = following[0]
    return (
        one.kind == "content" and at + 1 not in taken and following[1].kind == "content" and at + 2 not in taken
        and one.stem not in claim.stems
    )  # fmt: skip


def _apart(base: Sequence[Word], pair: Pair, matched: Sequence[Pair]) -> bool:
    """Whether the subject stands in another part than what is said, and that part begins with something else."""
    segments: dict[int, float] = {}
    for one in matched:
        if one.mine != pair.mine:
            segments[base[one.theirs].segment] = segments.get(base[one.theirs].segment, 0.0) + one.weight
    if not segments:
        return False
    main = max(segments, key=lambda s: segments[s])
    own = base[pair.theirs].segment
    if own > main:
        return True
    taken = {one.theirs for one in matched}
    for segment in segments:
        lead = next((k for k, x in enumerate(base) if x.segment == segment and x.kind in ("content", "name")), None)
        if segment > own and lead is not None and lead not in taken:
            return True
    return False
