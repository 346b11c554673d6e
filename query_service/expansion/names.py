"""Names that found passages hold and the question lacks: the next hop of a question, without a generator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline import analysis
from query_service.expansion.interface import Seen
from query_service.expansion.words import content, content_words

TEXT_CHARS = 1500  # of a passage that are looked at
LONGEST = 60
NOUNS = 0.3  # share of capitalised words from which a text is German, where capitals make no name
# Identifiers say most, titles least: they are found by their words anyway.
_WEIGHTS = {"identifier": 2.0, "name": 1.0, "title": 0.5}
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-./:#+@]*[A-Za-z0-9+#]")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_NAME = re.compile(
    r"(?P<start>^|[.!?:|•\n]\s*|[-*#]\s+)?(?P<name>\b[A-ZÀ-ÞŠŽ][\w'’-]+(?:[ \t]+[A-ZÀ-ÞŠŽ][\w'’-]+){0,2})"
)


@dataclass(frozen=True)
class Name:
    """A name as it is spelt, and the passages that hold it."""

    text: str
    basis: tuple[Seen, ...]


def missing(question: str, seen: Sequence[Seen], used: Sequence[str] = ()) -> list[Name]:
    """Best first: names of the passages with a word that neither the question nor what was ``used`` has. Pure."""
    known = {t for text in (question, *used) for t in analysis.tokens(text)}
    scores: dict[str, float] = {}
    spelt: dict[str, str] = {}
    basis: dict[str, list[Seen]] = {}
    for place, passage in enumerate(seen):
        for kind, text in _names(passage):
            key = " ".join(content(text))
            if not key or len(text) > LONGEST or known.issuperset(key.split()):
                continue
            holders = basis.setdefault(key, [])
            if passage in holders:
                continue
            holders.append(passage)
            spelt.setdefault(key, text)
            scores[key] = scores.get(key, 0.0) + _WEIGHTS[kind] / (place + 1)
    order = sorted(scores, key=lambda k: (-scores[k], k))
    return [Name(spelt[key], tuple(basis[key])) for key in order]


def query_with(question: str, name: Name) -> str:
    """The question's content words and the name."""
    return " ".join([name.text, *content_words(question)])


def _names(passage: Seen) -> list[tuple[str, str]]:
    """(kind, name) in order of appearance, a name under its best kind first."""
    text = passage.text[:TEXT_CHARS]
    whole = set(analysis.identifiers(text))
    found = [("identifier", m.group()) for m in _IDENTIFIER.finditer(text) if m.group().casefold() in whole]
    words = _WORD.findall(text)
    german = sum(w[0].isupper() for w in words) > NOUNS * max(1, len(words))
    for match in _NAME.finditer(text):
        several = " " in match["name"].strip()
        if (match["start"] is None or several) and (several or not german):
            found.append(("name", match["name"]))
    title = passage.title.strip()
    return [*found, ("title", title)] if title else found
