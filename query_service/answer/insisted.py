"""What a question insists on, and whether a piece of the sources is about that. Pure.

A question on one product, version, code, year or place is not answered by a sentence on its sibling, however alike the
two are: "K4" by "K3", "5.2.0" by "5.1.0", what stands under "Germany" by what stands under "Portugal". And its other
words have to be there as well, or words that mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline import analysis
from query_service.answer.relevance import Known
from query_service.expansion.words import content
from query_service.text.topics import stem, stems, weighed

OTHER, ABSENT = (
    0.4,
    0.75,
)  # of its score is left to a piece on a sibling, and to one that does not name what others name
ABOVE = 0.8  # of a word that stands only above the piece
ALIKE, ALIKE_WORD = 5, 0.6  # letters that a word begins alike with, and what such a word counts

_VERSION = re.compile(r"(?<![\w.,])v?\d+(?:\.\d+){1,3}(?:-[a-z0-9.]*[a-z0-9])?(?![\w,]|\.\d)", re.IGNORECASE)
_NUMBERED = re.compile(r"\b([A-Z][A-Za-z]{2,}) (\d{1,5})(?![\w.,:%]*\d)|\b([a-z]{4,}) (\d{4,6})(?![\w.,:%]*\d)")
_CODE = re.compile(r"(?<![\w-])[A-Z]{1,5}-?\d{1,5}(?![\w.,-]*\d)")
_YEAR = re.compile(r"(?<![\w.,/-])(?:19|20)\d\d(?![\w%/]|[.,-]\d)")
_CAPITAL = re.compile(r"(?<=[a-z0-9,;] )[A-ZÀ-Þ][\w’'-]+")
_PLACE = re.compile(r"\b(?:in|nach|aus) ([A-ZÄÖÜ][\w-]+)(?=\W*$|\s+[a-zäöü])")  # where every noun has a capital
_BEFORE_NUMBER = frozenset(
    [
        "from",
        "until",
        "since",
        "about",
        "than",
        "over",
        "under",
        "only",
        "within",
        "above",
        "below",
        "after",
        "before",
        "year",
    ]
)
MOST_WORDS = 60  # of the best pieces, that are compared by meaning
UNLIKE, LIKE = 0.35, 0.75  # cosines of words of which nothing, and of which all counts as the same
Near = Mapping[str, Mapping[str, float]]  # cosine of a question's word to words of the pieces


@dataclass(frozen=True)
class Specific:
    """One thing that a question insists on. ``shape`` is equal for siblings: ``k#`` for K3 and K4; empty for a name."""

    form: str
    shape: str


@dataclass(frozen=True)
class Insisted:
    """Of a question. ``words`` by what each weighs"""

    specifics: tuple[Specific, ...]
    words: Mapping[str, float]
    forms: Mapping[str, str]  # of its words, as they stand there


def insisted(question: str, language: str | None = None) -> Insisted:
    """``language`` BCP 47: in German capitals tell no names."""
    german = (language or "en").lower().startswith("de")
    found = specifics(question)
    names = _PLACE.findall(question) if german else [m.group() for m in _CAPITAL.finditer(question)]
    of_forms = {token for one in found for token in analysis.tokens(one.form)}
    for name in names:
        for token in analysis.tokens(name):
            if token not in of_forms and len(token) > 2 and not token.isdigit() and content(token):
                found.append(Specific(stem(token), ""))
    forms = {stem(token): token for token in content(question) if token.isalpha()}
    return Insisted(tuple(dict.fromkeys(found)), weighed(question), forms)


def specifics(text: str) -> list[Specific]:
    """Codes, versions, numbered things and years that a text names, in any order."""
    found = [Specific(m.group().casefold().removeprefix("v"), "version") for m in _VERSION.finditer(text)]
    versions = {one.form for one in found}
    for name in analysis.identifiers(text):
        if name.removeprefix("v") not in versions and any(map(str.isdigit, name)):
            found.append(Specific(name, shape_of(name)))
    found += [Specific(m.group().casefold(), shape_of(m.group())) for m in _CODE.finditer(text)]
    for match in _NUMBERED.finditer(text):
        word, number = (match[1] or match[3]).casefold(), match[2] or match[4]
        if word not in _BEFORE_NUMBER and content(word):
            found.append(Specific(f"{word} {number}", f"{word} #"))
    found += [Specific(m.group(), "year") for m in _YEAR.finditer(text)]
    return list(dict.fromkeys(found))


def shape_of(name: str) -> str:
    """Without its figures: what siblings share."""
    return re.sub(r"\d+", "#", name.casefold())


class About:
    """What pieces are about, found once for all of a question."""

    def __init__(self, asked: Insisted, pieces: Sequence[Known]) -> None:
        self._asked = asked
        self._pieces = pieces
        self._forms = [self._of(one) for one in pieces]
        self._held: list[list[bool]] = [
            [_covers(specific, forms, words) for specific in asked.specifics]
            for (forms, _), words in zip(self._forms, self._words(), strict=True)
        ]
        self._names = frozenset(one.form for one in asked.specifics if not one.shape)
        self._scopes = [self._scope(n) for n in range(len(asked.specifics))]

    def _of(self, one: Known) -> tuple[frozenset[Specific], frozenset[Specific]]:
        """Of the piece with all that stands above it, and of the piece with its nearest heading alone."""
        if not self._asked.specifics:
            return frozenset(), frozenset()
        own = specifics("\n".join((one.unit.text, one.unit.lead, *one.unit.headings[-1:])))
        return frozenset([*own, *specifics("\n".join((one.title, *one.unit.headings)))]), frozenset(own)

    def _words(self) -> list[frozenset[str]]:
        if not any(not specific.shape for specific in self._asked.specifics):
            return [frozenset()] * len(self._pieces)
        return [
            frozenset(stems("\n".join((p.unit.text, p.unit.lead, p.title, *p.unit.headings)))) for p in self._pieces
        ]

    def _scope(self, number: int) -> frozenset[str]:
        """Titles of pages that have a heading of this name: under their other headings they speak of something else."""
        specific = self._asked.specifics[number]
        return frozenset(
            one.title for one in self._pieces
            if not specific.shape and any(specific.form in stems(heading) for heading in one.unit.headings[-1:])
        )  # fmt: skip

    def other(self, at: int) -> bool:
        """Whether a piece is about a sibling of what the question insists on."""
        asked, held, unit = self._asked.specifics, self._held[at], self._pieces[at].unit
        forms, own = self._forms[at]
        for number, specific in enumerate(asked):
            alike = (n for n, one in enumerate(asked) if one.shape and one.shape == specific.shape)
            if held[number] or any(held[n] for n in alike):
                continue
            if not specific.shape:
                apart = self._pieces[at].title in self._scopes[number] and bool(unit.headings)
            elif specific.shape == "year":
                apart = any(
                    one.shape == "year" for one in specifics("\n".join((self._pieces[at].title, *unit.headings)))
                )
            else:
                told = own if _mixed(forms, specific.shape) else forms
                apart = any(one.shape == specific.shape for one in told)
            if apart:
                return True
        return False

    def factor(self, at: int) -> float:
        """What is left of a piece's score."""
        if self.other(at):
            return OTHER
        missing = sum(
            not held and any(row[number] for row in self._held)
            for number, held in enumerate(self._held[at])
            if self._asked.specifics[number].shape in ("", "version", "year")  # of codes ``relevance`` has a share
        )
        return float(ABSENT**missing)

    def unsaid(self, best: Sequence[int]) -> tuple[list[str], list[str]]:
        """Words of the question that not all of these pieces hold, and the pieces' words that may mean the same. Names,
        codes and figures are left out: nothing else means them."""
        asked = {word for word in self._asked.words if word in self._asked.forms and word not in self._names}
        parts = [(self._pieces[at], *_levels(self._pieces[at])) for at in best if not self.other(at)]
        lacking = [word for word in asked if any(_held(word, own, above, "") < ABOVE for _, own, above in parts)]
        if not lacking:
            return [], []
        said = [token for one, _, _ in parts for token in _tokens(one)]
        return [self._asked.forms[word] for word in lacking], list(dict.fromkeys(said))[:MOST_WORDS]

    def signals(self, best: Sequence[int], near: Near | None = None) -> dict[str, float]:
        """Of that one of the best pieces which meets the question most, each 0 to 1. ``near``: what means the same.

        ``specific``: share of what the question insists on that the piece names, with what stands above it; 0 for one
        on a sibling. ``meant``: share of its other words, by weight, that the piece holds or means.
        """
        found = [self._met(at, near or {}) for at in best if not self.other(at)]
        return max(found, key=lambda one: one["specific"] * one["meant"], default=dict.fromkeys(SIGNALS, 0.0))

    def _met(self, at: int, near: Near) -> dict[str, float]:
        one, asked = self._pieces[at], self._asked
        own, above = _levels(one)
        tokens = _tokens(one)
        text = f"{one.unit.text}\n{one.title}\n{' '.join(one.unit.headings)}".casefold()

        def held(word: str) -> float:
            of = near.get(asked.forms.get(word, ""), {})
            alike = max((_same(of[token]) for token in tokens if token in of), default=0.0)
            return max(_held(word, own, above, text), min(ABOVE, alike))

        named = sum(self._held[at]) / len(asked.specifics) if asked.specifics else 1.0
        words = {
            word: weight for word, weight in asked.words.items() if word in asked.forms and word not in self._names
        }
        plain = {word: held(word) for word in words}
        return {
            "specific": named,
            "meant": sum(words[word] * value for word, value in plain.items()) / sum(words.values())
            if words
            else named,
        }


SIGNALS = ("specific", "meant")


def _above(one: Known) -> tuple[str, ...]:
    return (one.title, *one.unit.headings)


def _tokens(one: Known) -> list[str]:
    """Words of a piece and of what stands above it, once each."""
    return list(dict.fromkeys(content("\n".join((one.unit.text, one.unit.lead, one.title, *one.unit.headings)))))


def _same(cosine: float) -> float:
    """How far two words mean the same, by the cosine of their embeddings."""
    return max(0.0, min(1.0, (cosine - UNLIKE) / (LIKE - UNLIKE)))


def _mixed(forms: frozenset[Specific], shape: str) -> bool:
    """Whether what stands around a piece speaks of several siblings: then its own words and heading alone tell."""
    return sum(one.shape == shape for one in forms) > 1


def _covers(specific: Specific, forms: frozenset[Specific], words: frozenset[str]) -> bool:
    if not specific.shape:
        return specific.form in words
    if specific.shape == "version":
        return any(
            one.shape == "version" and (one.form == specific.form or one.form.startswith(f"{specific.form}."))
            for one in forms
        )
    return specific in forms


def _levels(one: Known) -> tuple[frozenset[str], frozenset[str]]:
    own = frozenset(stem(token) for token in analysis.tokens(one.unit.text))
    above = " ".join((one.title, *one.unit.headings, one.unit.lead))
    return own, frozenset(stem(token) for token in analysis.tokens(above))


def _held(word: str, own: frozenset[str], above: frozenset[str], text: str) -> float:
    if word in own:
        return 1.0
    if word in above:
        return ABOVE
    if not word.isalpha():
        return ABOVE if not word.isdigit() and word in text else 0.0
    beginning = word[:ALIKE]
    return ALIKE_WORD if len(word) >= ALIKE and any(o.startswith(beginning) for o in (*own, *above)) else 0.0
