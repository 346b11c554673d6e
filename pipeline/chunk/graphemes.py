"""Where a text may be cut without parting what a reader sees as one character."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Protocol, cast

_BACK = 64  # characters before the place from which clusters are followed
_MOST = 1024  # so far back at most, where flags or marks stand in a long row
# Jamo and syllables join to the left, although they are letters.
_HANGUL = (range(0x1100, 0x1200), range(0xA960, 0xA980), range(0xAC00, 0xD800))


class _Match(Protocol):
    def start(self) -> int: ...
    def end(self) -> int: ...


class _Pattern(Protocol):
    def finditer(self, text: str) -> Iterator[_Match]: ...


def cut_at(text: str, at: int, floor: int) -> int:
    """The last place in ``[floor, at]`` between two grapheme clusters, ``floor`` where one cluster reaches back to it.

    ``floor`` is the beginning of the piece that is to end near ``at``. Takes constant time.
    """
    if at <= floor or at >= len(text):
        return at
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii() and (before, after) != ("\r", "\n"):
        return at
    start = max(floor, at - _BACK)
    while start > floor and at - start < _MOST and not _begins(text[start]):
        start -= 1
    start += (start - floor) % 2 if at - start >= _MOST else 0  # flags are pairs
    # A slice: the library counts a row of flags from the beginning of what it is given, for each cluster anew.
    for cluster in _clusters().finditer(text[start : at + 1]):
        if start + cluster.end() == at or start + cluster.start() == at:
            return at
        if start + cluster.end() > at:
            return max(start + cluster.start(), floor)
    return at


def first_end(text: str, start: int, end: int) -> int:
    """Where the grapheme cluster at ``start`` ends, at most ``end``."""
    size = _BACK
    while True:
        piece = text[start : min(end, start + size)]
        found = next((cluster.end() for cluster in _clusters().finditer(piece)), len(piece))
        if found < len(piece) or start + len(piece) >= end:
            return start + found
        size *= 2


def _begins(character: str) -> bool:
    """Whether clusters can be followed from here: letters and the like, not marks, joiners, emoji or flags."""
    return unicodedata.category(character)[0] in "LNPZ" and not any(ord(character) in part for part in _HANGUL)


@cache
def _clusters() -> _Pattern:
    import regex

    return cast(_Pattern, regex.compile(r"\X"))
