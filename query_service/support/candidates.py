"""The windows of the sources that may say what a sentence says, best first. Plain computing, for a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from query_service.answer.interface import Draft, Source
from query_service.support.measures import Measured, measure, rarities
from query_service.support.text import MOST_WORDS, Unit, Window, clauses, language, read, windows

LOOKED_AT = 10  # windows of one source that are measured, by the words that they share
ASKED = 3  # windows of one claim that models are asked about


@dataclass
class Claim:
    """A sentence, or a joined part of one. ``found`` is of each source, best first."""

    unit: Unit
    found: dict[int, list[Measured]] = field(default_factory=dict)

    def best(self) -> list[Measured]:
        """Windows for models to read: of all sources, those that nothing speaks against first."""
        every = [one for of_source in self.found.values() for one in of_source if not one.identical]
        return sorted(every, key=lambda one: (one.veto is not None, -one.rough))[:ASKED]


@dataclass(frozen=True)
class Case:
    """A draft with what was found for it. ``literal``: only word for word counts."""

    draft: Draft
    whole: Claim
    parts: tuple[Claim, ...]
    literal: bool


@dataclass(frozen=True)
class Read:
    """The sources of a request, read once for all its drafts."""

    windows: Mapping[int, Sequence[Window]]
    rare: Mapping[str, float]

    @staticmethod
    def of(sources: Sequence[Source]) -> Read:
        """Of all of them."""
        found = {source.number: windows(source) for source in sources}
        alone = [window.base for every in found.values() for window in every if window.before is None]
        return Read(found, rarities(alone))


def case(draft: Draft, read_sources: Read, question: Unit) -> Case:
    """What speaks for the draft, and for its parts where it was joined of several."""
    unit = read(draft.text)
    literal = language(draft.text) == "other" or len(unit.words) > MOST_WORDS
    whole = _claim(unit, read_sources, unit, question)
    parts = () if literal else tuple(_claim(read(p), read_sources, unit, question) for p in clauses(draft.text))
    return Case(draft, whole, parts, literal)


def _claim(unit: Unit, sources: Read, whole: Unit, question: Unit) -> Claim:
    claim = Claim(unit)
    stems = {unit.words[i].stem for i in unit.content}
    for number, every in sources.windows.items():
        near = sorted(every, key=lambda one: -_shared(one, stems, unit))[:LOOKED_AT]
        measured = [measure(unit, one, sources.rare, whole, question) for one in near]
        claim.found[number] = sorted(measured, key=lambda one: -one.rough)
    return claim


def _shared(window: Window, stems: set[str], unit: Unit) -> float:
    if window.base.identity == unit.identity:
        return 1e9
    mine = len(stems & window.base.stems)
    return mine + (0.5 * len(stems & window.before.stems) if window.before is not None else 0.0)
