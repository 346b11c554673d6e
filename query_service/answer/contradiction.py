"""Sources that do not agree on what was asked: two passages, one subject, two answers that cannot both be true.

Words decide, no model does. Two sentences of different documents are set against each other where both bear on the
question and share their subject; they differ in a quantity of the kind that is asked for, in whether something is so
(a negation or an opposite word on one side alone), or one page itself says that another gives a different answer.
Editions that are not in effect, and statements for different products, versions, places or years, do not contradict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from pipeline import analysis
from query_service.answer.interface import Draft, Source
from query_service.answer.opposition import Asked, declares, names, page_kinds, sides, special, years
from query_service.answer.units import Unit, units
from query_service.text.amounts import NEVER, Quantity, any_differs, between, equal, quantities
from query_service.text.topics import stem, stems, weighed, worth

Kind = Literal["number", "negation", "value"]
BEARS, BARELY = 0.35, 0.05  # share of the question's words that the one statement and the other hold at least
ALIKE = 0.3  # share of the shorter statement's words that the other has
OPPOSED = 0.45  # the same for statements that differ in a negation alone
TOGETHER = 1.0  # the three of them
LEAST_SHARED = 1.2  # words that both hold themselves, where they differ in a negation alone
APART, FAR_APART = 0.4, 0.66  # how much less of the question one may hold than the other; for a negation, a quantity
BEHIND = 0.6  # what lies so far behind the plainest dispute is none
MOST = 4  # disputes that are told
ABOVE = 0.6  # of a word that stands in a heading only

_CLAUSE = re.compile(
    r"[;:](?=\s)|,\s+(?=(?:so|but|while|whereas|which|and|or|after|aber|sondern|während|und|mais|pero)\b)"
)
_NEGATION = re.compile(
    r"\b(?:not|never|no|nor|nothing|nobody|none|cannot|can't|don't|doesn't|won't|mustn't|isn't|aren't|neither|nicht|nie|kein\w*|"
    r"weder|ne|pas|jamais|aucune?|nunca|ningun[oa]?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Dispute:
    """What two or more passages say of one thing. ``sides``: number of the source, and its sentence word for word.
    ``essential``: it bears on what was asked, so an answer has to tell both."""

    kind: Kind
    sides: tuple[tuple[int, str], ...]
    essential: bool = True
    score: float = 0.0


@dataclass(frozen=True)
class _Clause:
    """A part of a sentence that makes one statement."""

    source: int
    document: str
    title: str
    unit: Unit
    text: str
    own: frozenset[str]  # stems of the clause
    words: dict[str, float]  # with those of the sentence and the headings, by how near they stand
    quantities: list[Quantity]
    negated: bool
    sides: frozenset[int]  # of opposites: n or -n
    scope: frozenset[str]  # what it is limited to: names, identifiers, places; years of its headings
    special: frozenset[str]  # of these identifiers and places
    bears: float = 0.0


def contradictions(question: str, sources: Sequence[Source]) -> list[Dispute]:
    """Disputes among the sources that bear on the question, the plainest first, at most MOST. Pure; ``sources`` not in
    effect are left out while one in effect is there."""
    valid = [source for source in sources if source.holds]
    used = valid or list(sources)
    wanted = weighed(question)
    asked = Asked.of(question)
    clauses = [clause for source in used for clause in _clauses(source, wanted)]
    near = [clause for clause in clauses if clause.bears >= BARELY and (clause.quantities or asked.yes_no)]
    found = [d for a, b in combinations(near, 2) if a.document != b.document and (d := _dispute(a, b, asked))]
    found += _declared(clauses, near, asked)
    return _plainest(found)


def _plainest(found: Sequence[Dispute]) -> list[Dispute]:
    """Each pair of sources once, by score."""
    kept: dict[frozenset[int], Dispute] = {}
    for dispute in sorted(found, key=lambda d: -d.score):
        kept.setdefault(frozenset(number for number, _ in dispute.sides), dispute)
    best = max((dispute.score for dispute in kept.values()), default=0.0)
    return [dispute for dispute in kept.values() if dispute.score >= best - BEHIND][:MOST]


def stated(dispute: Dispute, wording: object = None) -> list[Draft]:
    """Both sides as sentences with their citations, to be released before anything else is said. ``wording`` may have a
    phrase ``disagree`` that stands before the first one; without it the sentences stand alone."""
    return [Draft(text, (number,)) for number, text in dict(dispute.sides).items()]


def one_sided(drafts: Sequence[Draft], dispute: Dispute) -> bool:
    """Whether these sentences tell one side of the dispute and not the other: by citation, or by saying its words."""
    told = [any(_tells(draft, number, text) for draft in drafts) for number, text in dispute.sides]
    return any(told) and not all(told)


def _tells(draft: Draft, number: int, side: str) -> bool:
    own, of_side = quantities(draft.text), quantities(side)
    words, those = set(stems(draft.text)), set(stems(side))
    overlap = len(words & those) / max(1, min(len(words), len(those)))
    values = any(equal(a, b) for a in own for b in of_side)
    if number in draft.cited:
        return overlap >= 0.5 or (values and overlap >= 0.2)
    return values and overlap >= 0.5


# ---------------------------------------------------------------- statements


def _clauses(source: Source, wanted: dict[str, float]) -> Iterator[_Clause]:
    passage = source.passage
    total = sum(wanted.values()) or 1.0
    title = frozenset(stems(passage.title))
    for unit in units(passage.text, source.number, passage.heading_path):
        if unit.kind == "code" or unit.text.rstrip().endswith("?"):
            continue
        whole = frozenset(stems(unit.text))
        above = title | frozenset(stems(" ".join(unit.headings)))
        identifiers = frozenset(analysis.identifiers(unit.text))
        context = (passage.title, *unit.headings)
        for part in _parts(unit):
            own = frozenset(stems(part))
            words = {**dict.fromkeys(above, ABOVE), **dict.fromkeys(whole, 0.8), **dict.fromkeys(own, 1.0)}
            held = sum(
                weight * max(words.get(word, 0.0), 1.0 if word in identifiers else 0.0)
                for word, weight in wanted.items()
            )
            limited = special(part).union(*map(special, context))
            of_years = frozenset().union(*map(years, context))
            negated = len(_NEGATION.findall(part)) % 2 == 1
            named = names(unit.key if unit.kind == "row" else part)
            yield _Clause(
                source.number, passage.document_uid, passage.title, unit, part, own, words, quantities(part), negated,
                sides(part), limited | of_years | named, limited, held / total,
            )  # fmt: skip


def _parts(unit: Unit) -> list[str]:
    """Clauses; a row's cells each with the row's key."""
    if unit.kind == "row":
        cells = [cell.strip() for cell in unit.text.rstrip(".").split("; ")]
        return [cell if n == 0 else f"{unit.key}, {cell}" for n, cell in enumerate(cells)]
    parts, start = [], 0
    for match in _CLAUSE.finditer(unit.text):
        parts.append(unit.text[start : match.start()])
        start = match.end()
    parts.append(unit.text[start:])
    return [part for part in parts if part.strip()]


# ---------------------------------------------------------------- two statements


def _dispute(a: _Clause, b: _Clause, asked: Asked) -> Dispute | None:
    alike = min(1.0, _alike(a, b))
    most, least = max(a.bears, b.bears), min(a.bears, b.bears)
    score = alike + most + least
    if alike < ALIKE or least < BARELY or _apart(a, b, asked):
        return None
    if asked.yes_no and alike >= OPPOSED and least >= BEARS / 2:  # a case that the two decide differently
        for x, y in any_differs(_wanted(a, asked), _wanted(b, asked)):
            if any(between(q, x, y) for q in asked.quantities if not q.every):
                return Dispute("number", _told(a, b), True, score)
    if most < BEARS or score < TOGETHER or most - least > FAR_APART:
        return None
    if asked.dimensions is None or asked.dimensions:
        pairs = any_differs(_wanted(a, asked), _wanted(b, asked))
        # A day or an hour stands in sentences about anything.
        pairs = [(x, y) for x, y in pairs if x.dimension not in ("clock", "weekday", "date") or alike >= OPPOSED]
        if any(_decides(x, y, asked) for x, y in pairs):
            return Dispute("number", _told(a, b), True, score)
    if asked.yes_no and alike >= OPPOSED and most - least <= APART and sum(map(worth, a.own & b.own)) >= LEAST_SHARED:
        opposed = any(-n in b.sides for n in a.sides)
        if opposed != (a.negated != b.negated):
            return Dispute("value" if opposed else "negation", _told(a, b), True, score)
    return None


def _decides(one: Quantity, other: Quantity, asked: Asked) -> bool:
    """Whether a quantity of the question, where it has one of this kind, gets another answer from each side."""
    own = [q for q in asked.quantities if q.dimension == one.dimension and not q.every]
    return not (asked.yes_no and own) or any(between(q, one, other) or equal(q, one) or equal(q, other) for q in own)


def _wanted(clause: _Clause, asked: Asked) -> list[Quantity]:
    """Its quantities of the kinds that are asked for; a bare number is none that could be compared."""
    found = [q for q in clause.quantities if asked.dimensions is None or q.dimension in asked.dimensions]
    return [q for q in found if q.dimension != "number" and (q.every if asked.often else q.value != NEVER)]


def _alike(a: _Clause, b: _Clause) -> float:
    """Shared words by what they say and how near they stand to their statements, over those of the shorter one."""
    shared = sum(worth(w) * min(a.words.get(w, 0.0), b.words.get(w, 0.0)) for w in a.own | b.own)
    return shared / max(1.0, min(sum(map(worth, a.own)), sum(map(worth, b.own))))


def _apart(a: _Clause, b: _Clause, asked: Asked) -> bool:
    """Whether they speak of different products, versions, places or years: each names one that the other does not, or
    one of them a special case that nobody asked about, or their titles or headings differ in one word alone."""
    if (a.scope - b.scope) and (b.scope - a.scope):
        return True
    if (a.special ^ b.special) - asked.scope:
        return True
    if (a.special & asked.scope) != (b.special & asked.scope) and a.special and b.special:
        return True
    return _parallel(a.title, b.title) or _parallel(*(c.unit.headings[-1] if c.unit.headings else "" for c in (a, b)))


def _parallel(one: str, other: str) -> bool:
    """Whether two headings are one but for a word at one place ("EU refunds", "US refunds")."""
    first, second = analysis.tokens(one), analysis.tokens(other)
    if len(first) != len(second) or len(first) < 2:
        return False
    differing = [(x, y) for x, y in zip(first, second, strict=True) if x != y]
    return len(differing) == 1 and not any(stem(word) in page_kinds() for word in differing[0])


def _told(a: _Clause, b: _Clause) -> tuple[tuple[int, str], ...]:
    return (a.source, a.unit.text), (b.source, b.unit.text)


def _declared(clauses: Sequence[_Clause], near: Sequence[_Clause], asked: Asked) -> list[Dispute]:
    """A page that says of another one that it gives a different answer, beside the statement it speaks of."""
    found: list[Dispute] = []
    for remark in clauses:
        if not declares(remark.unit.text, remark.text):
            continue
        for one in near:
            score = min(1.0, _alike(one, remark)) + one.bears + remark.bears
            bears = one.bears >= BEARS and remark.bears >= BEARS / 2
            if one.source != remark.source and bears and score >= TOGETHER and _wanted(one, asked):
                found.append(Dispute("value", _told(one, remark), True, score - 1.0))  # figures against figures first
    return found
