"""When two questions are the same question in other words.

Vectors of "port 8080" and "port 8443", "with" and "without", "import" and "export" are near each other, and no list of
opposites is ever whole. So a vector alone decides nothing: the words that carry meaning must be the same ones in the
same order, numbers, names, quoted phrases, signs and the kind of question included. What may differ is named: articles,
helping verbs, whose it is, politeness, singular and plural.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from pipeline import analysis
from query_service import fold

# Words that a question may have or lack. Prepositions are not among them (from, to), nor tenses (did, was, will), nor
# what allows or demands (may, must, should): these say something.
_LIGHT = """
a an the i me my we us our you your it its do does is are am be being can could would please kindly tell hello hi hey
there that this any some
ich mir mich mein meine meinen meinem meiner wir uns unser unsere unseren man es der die das den dem des ein eine einen
einem einer bitte kann können könnte sind ist wird werden sagen zeig erklär hallo
"""
# Ways to begin that mean the same: the first word of each line stands for them.
_OPENINGS = (
    (
        "how",
        "how to",
        "in what way",
        "which way",
        "what is the way to",
        "what s the way to",
        "what are the steps to",
        "how does one",
    ),
    ("what", "what exactly", "whats", "what s"),
    ("wie", "auf welche weise"),
)
# The kind of a question: the first of the words that ask ("could you tell me when"), else the first of those that want
# a yes or no.
_ASKING = """
what how why when where who whom whose which
wie warum weshalb wann wo wohin woher wer wem wen wessen welche welcher welches
"""
_DECIDING = """
did was were will may must should has have had darf muss soll hat haben wird werden
"""
_SAME = {
    "can": "can", "could": "can", "is": "is", "are": "is", "do": "do", "does": "do", "kann": "kann", "können": "kann",
    "ist": "ist", "sind": "ist",
}  # fmt: skip
_QUOTED = re.compile(
    r"\"([^\"]+)\"|\u201c([^\u201d]+)\u201d|\u201e([^\u201c]+)\u201c|\u00ab([^\u00bb]+)\u00bb|`([^`]+)`"
)
_WORD = re.compile(r"[^\W_][\w'\u2019-]*")
_SHORTEST = 4  # letters of a word whose plural ending is dropped


@dataclass(frozen=True)
class Signature:
    """What must be equal. ``words`` are those that carry meaning, in order, analysed; ``names`` as written."""

    words: tuple[str, ...]
    weighty: tuple[str, ...]
    names: tuple[str, ...]
    quoted: tuple[str, ...]
    marks: tuple[str, ...]
    kind: str

    @staticmethod
    def of(question: str) -> Signature:
        """Of a question as it was asked."""
        text = unicodedata.normalize("NFC", question)
        said = _opened(analysis.tokens(text))
        passage = fold.Passage.of(text)
        return Signature(
            words=tuple(_singular(word) for word in said if word not in _light()),
            weighty=tuple(word for word in passage.weighty if word not in _light()),
            names=_names(text),
            quoted=tuple(" ".join(part for part in found.groups() if part) for found in _QUOTED.finditer(text)),
            marks=passage.marks,
            kind=_kind(said),
        )

    @property
    def says_something(self) -> bool:
        """Whether it holds a word to compare at all."""
        return bool(self.words)


@cache
def _light() -> frozenset[str]:
    return frozenset(analysis.tokens(_LIGHT))


@cache
def _asking() -> frozenset[str]:
    return frozenset(analysis.tokens(_ASKING))


@cache
def _deciding() -> dict[str, str]:
    """Words that begin a question to say yes or no to, with the one that stands for those of the same meaning."""
    pairs = [*((word, word) for word in _DECIDING.split()), *_SAME.items()]
    return {analysis.lexical(word): analysis.lexical(other) for word, other in pairs}


def _opened(said: list[str]) -> list[str]:
    """With one word for each way to begin; greetings before it are skipped."""
    start = 0
    while start < len(said) and said[start] in _light() and said[start] not in _asking():
        start += 1
    rest = said[start:]
    for first, *others in _OPENINGS:
        for other in sorted(others, key=len, reverse=True):
            opening = other.split()
            if rest[: len(opening)] == opening:
                return [*said[:start], first, *rest[len(opening) :]]
    return said


def _kind(said: list[str]) -> str:
    asking = next((word for word in said if word in _asking()), None)
    return asking or next((_deciding()[word] for word in said if word in _deciding()), "")


def _singular(word: str) -> str:
    plural = word.isascii() and word.isalpha() and len(word) > _SHORTEST and word.endswith("s") and word[-2:] != "ss"
    return word[:-1] if plural else word


def _names(text: str) -> tuple[str, ...]:
    """Words with a capital letter, but for one at the beginning of a sentence that has no other."""
    found: list[str] = []
    begins = True
    for match in _WORD.finditer(text):
        word = match.group()
        before = text[: match.start()].rstrip()
        begins = not before or before[-1] in ".!?:;\u2026"
        inner = any(char.isupper() for char in word[1:])
        first = word[0].isupper() and not begins
        if (inner or first) and word not in ("I", "I'm", "I'd", "I'll", "I've"):
            found.append(word)
    return tuple(found)
