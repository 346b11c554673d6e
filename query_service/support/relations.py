"""How the words of a sentence hang together, against how they do in the source: who does what to whom, what is compared
with what, from when to when, who says so. All words may be there, and the sentence still be another one.

Without a parser: places of words, auxiliaries and prepositions tell. English first; where German differs, it is
left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from query_service.answer.interface import Reason
from query_service.support.text import Unit, Window, Word, language
from query_service.text import claims as w

if TYPE_CHECKING:
    from query_service.support.vetoes import Pair

_BE: Final = frozenset(["is", "are", "was", "were", "be", "been", "being"])
_PAST: Final = frozenset(["was", "were", "had", "wurde", "wurden", "war", "waren", "hatte", "hatten"])
_AHEAD: Final = frozenset(["will", "shall", "tomorrow", "morgen"])
_ARTICLES: Final = frozenset(["the", "a", "an", "this", "that", "these", "those", "its", "their", "der", "die", "das"])
_TO: Final = frozenset(["to", "auf"])
_BY: Final = frozenset(["by", "um"])
_FROM: Final = frozenset(["from", "von"])
_UNTIL: Final = frozenset(["before", "until", "till", "vor", "bis"])
_SINCE: Final = frozenset(["after", "since", "nach", "seit"])
_WHEN: Final = frozenset(["in", "on", "at", "im", "am"])
_LOOK: Final = frozenset(["before", "after", "nachdem", "bevor"])
_ORDERED: Final = frozenset(
    ["before", "after", "when", "once", "until", "while", "during", "then", "first", "if", "following", "since", "as",
     "wenn", "bis", "sobald", "nach", "vor", "nachdem", "bevor", "dann", "zuerst", "ahead", "earlier", "later"]
)  # fmt: skip
# Who vouches for what is said. A sentence that leaves this out says it for itself. Of folded words, at their beginning.
_VOICES: Final[dict[str, re.Pattern[str]]] = {
    "denied": re.compile(r" (?:den(?:y|ies|ied|ying)|disput\w+|contest(?:s|ed)|bestreite[tn]|leugne[tn]) "),
    "doubted": re.compile(r" (?:doubt(?:s|ed|ing)?|bezweifel\w+) "),
    "said": re.compile(
        r" (?:says|said|according to|alleg\w+|(?:claim|state|argue|report|announce|warn|assert|maintain|complain|insist"
        r"|explain|note)[sd]?(?:ed)? that|(?:wrote|writes) that"
        r"|told|sagt|sagte|laut|zufolge|angeblich|behaupte[tn]|erklart[en]*) "
    ),
    "believed": re.compile(
        r" (?:suspect(?:s|ed)?|believe[sd]?|thinks?|thought|assume[sd]?|fear(?:s|ed)|hope[sd]?|guess(?:es|ed)?|expects?"
        r"|vermute[tn]|glaub(?:t|en|te)|hofft|hoffen|befurchte[tn]) "
    ),
    "proposed": re.compile(
        r" (?:propos\w+|suggest\w*|advis\w+|advice|recommend\w*|vorschl\w+|vorgeschlagen|empf[ie]\w+|rat|riet) "
    ),
    "refused": re.compile(r" (?:reject|refus|declin|vot)\w* (?:\w+ ){0,4}(?:to|against) "),
}  # fmt: skip
_REFUSING: Final = re.compile(r" (?:reject|refus|declin|vot|turned down|against)\w* ")
_EXCEPT: Final = frozenset(["except", "excluding", "excepted", "ausser", "ausgenommen"])
_LENT: Final = 0.75  # share of the sentence that stands in the sentence before
_OPENING: Final = frozenset(
    ["in", "on", "at", "for", "to", "from", "with", "by", "under", "over", "of", "as", "since", "until", "within",
     "because", "due", "inside", "outside", "per", "there"]
)  # fmt: skip
_BETWEEN: Final = frozenset(["between", "zwischen"])
_WITHIN: Final = frozenset(["and", "to", "und", "bis"])
_RESTRICTING: Final = frozenset(["of", "from", "with", "without", "who", "whose", "von", "mit", "ohne"])
_BEFORE_NOUNS: Final = frozenset(["for", "to", "from", "by", "of", "with", "on", "fur", "von", "mit", "bei"])


def related(
    claim: Unit, window: Window, pairs: Sequence[Pair], whole: Unit, question: Unit, known: Mapping[str, float]
) -> Reason | None:
    """Why the window is no support for ``claim``, a part of ``whole``; None where nothing of this kind speaks against.

    ``known``: rarities of all stems of the sources.
    """
    matched = [pair for pair in pairs if pair.theirs >= 0 and pair.share >= 0.5]
    if sum(p.weight for p in pairs if p.theirs == -2) > _LENT * sum(p.weight for p in pairs):
        return "not_supported"  # if it is said, then by the sentence before, which is judged by itself
    near = {window.base.words[pair.theirs].segment for pair in matched}
    if _half_a_range(claim, window.base) or _other_relation(claim, window.base) or _repaired(claim, window.base):
        return "number"
    if _compared(claim, window.base) is True:
        return "negation"
    voice = _voice(whole, window, near)
    if voice is not None:
        return "negation" if voice in ("denied", "refused") else "stronger"
    if _tense(claim, window.base, near) or _order_made_up(claim, window) or _superlative(claim, window.base, pairs):
        return "stronger"
    if _exception(window.base, near, whole, question) or _narrower(window, matched, whole, question):
        return "stronger"
    if _other_joint(claim, window.base) or _slighter(claim, window.base, matched):
        return "stronger"
    if _only_of_another(claim, window.base):
        return "stronger"
    if _exchanged_roles(claim, window.base, matched) or _added(claim, pairs) or _only_overhead(claim, window, pairs):
        return "not_supported"
    if window.header is not None and any(
        pair.share == 0 and pair.theirs == -1 and claim.words[pair.mine].kind == "content"
        and claim.words[pair.mine].stem in known for pair in pairs
    ):  # fmt: skip
        return "not_supported"  # a word of another row
    return None


# ---------------------------------------------------------------- numbers


def _half_a_range(claim: Unit, base: Unit) -> bool:
    """Whether it states one end of a range as the value."""
    for at, low in enumerate(base.words):
        if low.quantity is None or at == 0:
            continue
        end = next((k for k in range(at + 1, min(at + 5, len(base.words))) if base.words[k].quantity is not None), None)
        if end is None:
            continue
        joined = end == at + 1 or any(base.words[k].text in _WITHIN for k in range(at + 1, end))
        opened = base.words[at - 1].text in _BETWEEN
        if not (opened and joined):
            continue
        high = base.words[end]
        has = [any(_agree(word, one) for word in claim.words) for one in (low, high)]
        bound = any(f" {phrase} " in claim.folded for group in w.BOUNDS.values() for phrase in group)
        if has[0] != has[1] and not bound:
            return True
    return False


def _agree(one: Word, other: Word) -> bool:
    return one.quantity is not None and other.quantity is not None and one.quantity.agrees(other.quantity)


def _relation(words: Sequence[Word], at: int) -> str:
    """The word before a number and its article."""
    k = at - 1
    while k >= 0 and words[k].text in ("the", "about", "around", "der", "dem", "den", "€", "$", "£"):
        k -= 1
    return words[k].text if k >= 0 else ""


def _other_relation(claim: Unit, base: Unit) -> bool:
    """Whether a number stands in another relation: risen by it or to it, before it or at it."""
    for i, mine in enumerate(claim.words):
        if mine.quantity is None:
            continue
        here = _relation(claim.words, i)
        there = {_relation(base.words, j) for j, theirs in enumerate(base.words) if _agree(mine, theirs)}
        if not there:
            continue
        timed = _UNTIL | _SINCE
        for group in (_TO, _BY, _FROM):
            # "by Friday" is a date, "by a driver" no amount at all
            if here in group and there <= (_TO | _BY | _FROM) - group:
                return True
        if here in _UNTIL and there.isdisjoint(_UNTIL | _BY | _TO) and there & (_WHEN | _SINCE):
            return True
        if here in _SINCE and there.isdisjoint(_SINCE | _FROM) and there & (_WHEN | _UNTIL):
            return True
        if here in _WHEN and there <= timed and there:
            return True
    return False


def _repaired(claim: Unit, base: Unit) -> bool:
    """Whether numbers that stand two by two (a share and its month) were paired otherwise."""
    mine = [word for word in claim.words if word.quantity is not None]
    theirs = [word for word in base.words if word.quantity is not None and any(_agree(word, x) for x in mine)]
    if len(mine) == 2:  # one couple of several
        theirs = [word for word in base.words if word.quantity is not None]
    elif len(mine) != len(theirs) or len(mine) % 2:
        return False
    if len(mine) < 2 or len(theirs) < 4 or len(theirs) % 2:
        return False

    def kind(word: Word) -> str | None:
        assert word.quantity is not None
        if any(isinstance(x, str) and x.startswith(("month", "weekday")) for x in word.quantity.values):
            return "date"
        return word.quantity.unit

    def alternate(row: Sequence[Word]) -> bool:
        kinds = [kind(word) for word in row]
        return kinds[0] != kinds[1] and len(set(kinds)) == 2 and all(
            {one, other} == set(kinds[:2]) for one, other in zip(kinds[::2], kinds[1::2], strict=True)
        )  # fmt: skip

    if not alternate(mine) or not alternate(theirs) or {kind(x) for x in mine} != {kind(x) for x in theirs}:
        return False
    couples = list(zip(theirs[::2], theirs[1::2], strict=True))
    return any(
        not any((_agree(a, x) and _agree(b, y)) or (_agree(a, y) and _agree(b, x)) for x, y in couples)
        for a, b in zip(mine[::2], mine[1::2], strict=True)
    )


# ---------------------------------------------------------------- comparisons


def _than(unit: Unit) -> int | None:
    """Where what is compared with begins: behind "than", no number."""
    for i, word in enumerate(unit.words):
        than = word.text == "than" or (word.text == "als" and i > 0 and unit.words[i - 1].text.endswith("er"))
        if than and i + 1 < len(unit.words) and all(x.quantity is None for x in unit.words[i + 1 : i + 2]):
            return i
    return None


def compares(claim: Unit, base: Unit) -> bool:
    """Whether both compare two things, so that order and opposites have to be seen together."""
    return _compared(claim, base) is not None


def _compared(claim: Unit, base: Unit) -> bool | None:
    """Whether a comparison was turned round; None where there are not two that can be laid side by side."""
    mine, theirs = _than(claim), _than(base)
    if mine is None or theirs is None:
        return None
    (mine_left, mine_right), (left, right) = _sides(claim, mine), _sides(base, theirs)
    told = mine_right - mine_left
    crossed = bool(told & left) and not told & right
    if not crossed and not told & right:
        return None
    a = {word.text for word in claim.words[max(0, mine - 3) : mine]}
    b = {word.text for word in base.words[max(0, theirs - 3) : theirs]}
    opposite = any(w.opposite(x, y) for x in a - b for y in b - a)
    return crossed != opposite


def _sides(unit: Unit, at: int) -> tuple[set[str], set[str]]:
    said = [(i, word) for i, word in enumerate(unit.words) if word.kind in ("content", "name", "number")]
    return {word.stem for i, word in said if i < at}, {word.stem for i, word in said if i > at}


def _superlative(claim: Unit, base: Unit, pairs: Sequence[Pair]) -> bool:
    """Whether "faster" became "fastest", "less" the least of all."""
    for pair in pairs:
        mine = claim.words[pair.mine].text
        if pair.theirs >= 0 and mine.endswith("est") and len(mine) > 5 and pair.share >= 0.5:
            theirs = base.words[pair.theirs].text
            if not theirs.endswith(("est", "ste", "sten")) and (theirs.endswith("er") or mine.startswith(theirs)):
                return True
    for at, word in enumerate(claim.words):
        if word.text == "least" and (at == 0 or claim.words[at - 1].text != "at") and "least" not in base.texts:
            return True
    return False


# ---------------------------------------------------------------- who says so, when, under which restriction


def _voice(whole: Unit, window: Window, near: set[int]) -> str | None:
    """The voice that the source has and the sentence lacks."""
    base = window.base
    part = f" {' '.join(word.text for word in base.words if word.segment in near)} "
    for name, pattern in _VOICES.items():
        if name == "refused":
            if pattern.search(part) and not _REFUSING.search(whole.folded):
                return name
        elif pattern.search(part) and not pattern.search(whole.folded) and not (
            name in ("said", "believed") and any(p.search(whole.folded) for n, p in _VOICES.items() if n != "refused")
        ):  # fmt: skip
            return name
    return None


def _tense(claim: Unit, base: Unit, near: set[int]) -> bool:
    """Whether what was is said to come, or the other way round."""
    there = {word.text for word in base.words if word.segment in near}
    will, was = claim.texts & _AHEAD, claim.texts & _PAST
    if will and not there & _AHEAD and there & _PAST:
        return True
    return bool(was and not will and there & _AHEAD and not there & _PAST)


def _order_made_up(claim: Unit, window: Window) -> bool:
    """Whether it says "before" or "after" where the source has no order of things."""
    there = window.base.texts | (window.before.texts if window.before is not None else frozenset())
    if there & _ORDERED or window.header is not None:
        return False
    return any(
        word.text in _LOOK
        and word.stem not in window.context
        and i + 1 < len(claim.words)
        and claim.words[i + 1].quantity is None
        for i, word in enumerate(claim.words)
    )


def _exception(base: Unit, near: set[int], whole: Unit, question: Unit) -> bool:
    """Whether an exception is gone."""
    said = whole.texts | question.texts
    if said & _EXCEPT:
        return False
    for at, word in enumerate(base.words):
        if word.text not in _EXCEPT or word.segment not in near:
            continue
        first = next((x for x in base.words[at + 1 : at + 5] if x.kind in ("content", "name", "number")), None)
        kept = whole.stems | question.stems
        if first is not None and not any(w.alike(first.stem, stem) >= 0.6 for stem in kept):
            return True
    return False


def _narrower(window: Window, matched: Sequence[Pair], whole: Unit, question: Unit) -> bool:
    """Whether what narrows a noun is gone: "for lorries of one company" is not for all, nor are "customers in Norway".
    A noun with "the" is one that is known anyhow."""
    base = window.base.words
    if window.header is not None:
        return False
    kept = whole.stems | question.stems
    for pair in matched:
        at = pair.theirs
        if at + 2 >= len(base) or base[at].kind != "content" or not base[at].text.endswith("s"):
            continue
        follows = base[at + 1].text
        lead = at == 0 or (at == 1 and base[0].text in ("all", "most", "no", "alle"))
        if not (
            (follows in _RESTRICTING and at > 0 and base[at - 1].text in _BEFORE_NOUNS)
            or (follows in _RESTRICTING | {"in", "at", "outside", "inside"} and lead)
        ):
            continue
        if base[at + 2].text in ("that", "this", "these", "those"):
            continue
        inside = [x for x in base[at + 2 : at + 5] if x.clause == base[at].clause and x.kind in ("content", "name")][:1]
        if inside and not any(w.alike(x.stem, stem) >= 0.6 for x in inside for stem in kept):
            return True
    return False


def _other_joint(claim: Unit, base: Unit) -> bool:
    """Whether "and" became "or" between the same two words, or the other way round."""
    joints = {"and": "or", "or": "and", "und": "oder", "oder": "und"}
    for i, word in enumerate(claim.words):
        if word.text not in joints or not 0 < i < len(claim.words) - 1:
            continue
        ahead = next((x.stem for x in reversed(claim.words[:i]) if x.kind in ("content", "name")), None)
        behind = next((x.stem for x in claim.words[i:] if x.kind in ("content", "name")), None)
        for k, other in enumerate(base.words):
            if other.text == joints[word.text] and ahead is not None and behind is not None:
                before = {x.stem for x in base.words[max(0, k - 4) : k]}
                after = {x.stem for x in base.words[k : k + 5]}
                if ahead in before and behind in after and not claim.texts & w.NEGATORS:
                    return True
    return False


def _slighter(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether a negation lost the manner that it denies: "cannot be muted remotely"."""
    taken = {pair.theirs for pair in matched}
    clauses = {base.words[k].clause for k in taken}
    return bool(claim.texts & w.NEGATORS) and any(
        word.negated and word.clause in clauses and k not in taken and word.kind == "content" and len(word.text) > 5
        and word.text.endswith("ly") and k > min(taken)
        for k, word in enumerate(base.words)
    )  # fmt: skip


def _only_of_another(claim: Unit, base: Unit) -> bool:
    """Whether "only" was moved to a word that stands before it in the source."""
    mine = next((i for i, word in enumerate(claim.words) if word.text in w.ONLY), None)
    theirs = next((i for i, word in enumerate(base.words) if word.text in w.ONLY), None)
    if mine is None or theirs is None:
        return False
    first = next((x for x in claim.words[mine + 1 : mine + 4] if x.kind in ("content", "name")), None)
    if first is None or language(claim.raw) != "en":
        return False
    ends = theirs + 1 >= len(base.words) or base.words[theirs + 1].clause != base.words[theirs].clause
    ahead = [x.stem for x in base.words[:theirs] if x.kind in ("content", "name")][-2:]
    if ends and first.stem in ahead:
        return False  # "on the north side only" is "only on the north side"
    # "are only paid when" is "are paid only when"
    return any(x.stem == first.stem for x in base.words[: max(0, theirs - 1)]) and all(
        x.stem != first.stem for x in base.words[theirs:]
    )


# ---------------------------------------------------------------- who does what


def _exchanged_roles(claim: Unit, base: Unit, matched: Sequence[Pair]) -> bool:
    """Whether doer and done-to changed places, both sentences being active or both passive; or kept them, one being
    active and one passive."""
    if language(claim.raw) != "en" or not claim.words or not base.words or compares(claim, base):
        return False
    if claim.words[0].text in w.CONDITIONS or base.words[0].text in w.CONDITIONS:
        return False
    to = {pair.mine: pair.theirs for pair in matched}
    back = {pair.theirs: pair.mine for pair in matched}
    agents = _agent(claim), _agent(base)
    if agents[0] is not None and agents[1] is not None and back.get(agents[1], agents[0]) < agents[0]:
        return True  # who does it there has it done to it here
    mine, theirs = _lead(claim), _lead(base)
    if mine is None or theirs is None:
        return False
    there, here = to.get(mine), back.get(theirs)
    if there is None or here is None or base.words[there].segment != base.words[theirs].segment:
        return False
    if (agents[0] is None) != (agents[1] is None):
        if there != theirs:
            return False
        if agents[1] is not None:
            return agents[1] in back and back[agents[1]] > mine and not claim.texts & _BE
        return False
    if there <= theirs or here <= mine or _is_a(claim) or _is_a(base):
        return False
    inside = [p for p in matched if mine < p.mine < here and theirs < p.theirs < there]
    return bool(inside) and claim.words[here].clause - claim.words[mine].clause == (
        base.words[there].clause - base.words[theirs].clause
    )


def _lead(unit: Unit) -> int | None:
    """The noun that the sentence begins with; None where a preposition follows, which may turn it round."""
    at = next((i for i, word in enumerate(unit.words) if word.kind in ("content", "name")), None)
    if at is not None and any(x.quantity is not None for x in unit.words[:at]):
        return None
    if at is None or unit.words[at].clause != unit.words[0].clause or any(x.text in _BE for x in unit.words[:at]):
        return None
    if unit.words[0].text in _OPENING:  # "In winter the cook cleans it"
        return None
    # "the number of …"; an order: "Press the key"
    if at + 1 < len(unit.words) and unit.words[at + 1].text in _ARTICLES | {"of"}:
        return None
    return at


def _agent(unit: Unit) -> int | None:
    """Who does it in a passive: the first noun behind "by"."""
    for i, word in enumerate(unit.words):
        if word.text == "by" and any(x.text in _BE for x in unit.words[:i]):
            for k in range(i + 1, min(i + 5, len(unit.words))):
                if unit.words[k].quantity is not None:
                    break
                if unit.words[k].kind in ("content", "name"):
                    return k
    return None


def _is_a(unit: Unit) -> bool:
    """ "Ann is the owner" may be read from both ends."""
    for i, word in enumerate(unit.words[:-1]):
        if word.text in ("is", "are", "was", "were", "means"):
            following = unit.words[i + 1]
            return following.text in _ARTICLES or following.proper or not following.text.endswith(("ed", "en"))
    return False


def _added(claim: Unit, pairs: Sequence[Pair]) -> bool:
    """Whether a part behind "and" has nothing in the source."""
    shares: dict[int, list[float]] = {}
    for pair in pairs:
        if claim.words[pair.mine].kind in ("content", "name"):
            shares.setdefault(claim.words[pair.mine].segment, []).append(pair.share)
    return len(shares) > 1 and any(max(row) == 0 for row in shares.values())


def _only_overhead(claim: Unit, window: Window, pairs: Sequence[Pair]) -> bool:
    """Whether what is said of the subject stands only in title or headings, while the source says something else."""
    base = window.base
    if window.header is not None or base.texts & w.ANAPHORS or not base.texts & w.SUBJECT_ENDS:
        return False
    verb = next((i for i, word in enumerate(claim.words) if word.text in w.SUBJECT_ENDS), None)
    if verb is None:
        return False
    if any(word.quantity is not None for word in claim.words):
        return False
    behind = [pair for pair in pairs if pair.mine > verb and claim.words[pair.mine].kind == "content"]
    return bool(behind) and all(pair.theirs == -1 for pair in behind)
