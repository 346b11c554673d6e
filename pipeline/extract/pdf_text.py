"""Joining lines of a page into running text."""

from __future__ import annotations

import re
import unicodedata

_LAST = re.compile(r"([^\W\d_]+(?:[-'’][^\W\d_]+)*)-$")
_FIRST = re.compile(r"[^\W\d_]+")
_HYPHENATED = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
_COMPOUND_HEADS = frozenset({"well", "self", "half", "so"})  # English words that are seldom a syllable of another
_NO_SPACE = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff60]")


def hyphenated(lines: list[str]) -> frozenset[str]:
    """Words that are written with a hyphen inside a line somewhere, in lower case."""
    return frozenset(word.lower() for line in lines if "-" in line for word in _HYPHENATED.findall(line))


def is_leftward(text: str) -> bool:
    """Is it written from the right? Its first letter decides; figures and marks are not asked."""
    for char in text:
        kind = unicodedata.bidirectional(char)
        if kind in ("R", "AL"):
            return True
        if kind == "L":
            return False
    return False


def mended(text: str, following: str, known: frozenset[str] = frozenset()) -> str:
    """Two lines as one text.

    A hyphen at the end of the first goes when the next goes on in lower case, unless the document writes that word with
    a hyphen elsewhere (``known``), the word has another hyphen, or its first part is a word such as "well". It stays,
    without a space, before a capital or a figure. No space stands between Han characters and kana.
    """
    if text.endswith("\u00ad"):
        return text[:-1] + following
    if text.endswith("-") and len(text) > 1 and not text[-2].isspace():
        first = following[:1]
        last = text.rsplit(None, 1)[-1]
        if "://" in last or (last[:-1][-1:].isdigit() and first.isalnum()):
            return text + following
        head = _LAST.search(text)
        if head is not None and first.isalpha():
            if first.islower() and not _keeps(head.group(1), following, known):
                return text[:-1] + following
            return text + following
    if text and "://" in text.rsplit(None, 1)[-1] and text[-1] in "/_=&?" and not following[:1].isspace():
        return text + following
    if text and following and _NO_SPACE.match(text[-1]) and _NO_SPACE.match(following[0]):
        return text + following
    return f"{text} {following}"


def _keeps(head: str, following: str, known: frozenset[str]) -> bool:
    rest = _FIRST.match(following)
    if "-" in head or head.lower() in _COMPOUND_HEADS:
        return True
    return rest is not None and f"{head}-{rest.group()}".lower() in known
