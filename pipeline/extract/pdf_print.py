"""Heads and feet that browsers print around a page: date and title, address, number of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from pipeline.extract.pdf_model import Word

_EDGE = 0.05  # share of the page's height; browsers print into its outermost margin
_ADDRESS = re.compile(r"(?:https?|file|about|chrome|chrome-extension|moz-extension|view-source|data|blob):\S+")
_DATE = r"\d{1,4}([./-])\s?\d{1,2}\1\s?\d{1,4}\.?,?"
_HALF = r"(?:[AaPp]\.?\s?[Mm]\.?|上午|下午|午前|午後|오전|오후)"
_MOMENT = re.compile(
    rf"{_DATE}\s+(?:(?:klo|kl\.|um|à|at)\s+)?(?:{_HALF}\s?)?\d{{1,2}}[:.]\d{{2}}(?:[:.]\d{{2}})?(?:\s?{_HALF})?"
)
_NUMBER = re.compile(r"(?:\w+\s+)?(\d{1,6})\s?(?:/|of|von|sur|de|di|van|z|av|af|из)\s?(\d{1,6})")
_APART = 1.2  # white between the parts of a head, in sizes of its letters
_MAX_LENGTH = 500  # characters of a part


def without_print_marks(words: list[Word], height: float, number: int, count: int) -> list[Word]:
    """The words of page ``number`` of ``count`` without a browser's head and foot; ``height`` in points.

    They are the page's first and last row, in its outermost twentieth, where two of the three are found in them: an
    address, a date with a time, the page's number with the number of all ("2/3", "2 of 3"). What else is in such a row
    is the title, which browsers set beside them.
    """
    rows = [row for row in (_outermost(words, height, top=True), _outermost(words, height, top=False)) if row]
    told = [_told(row, number, count) for row in rows]
    if len(set().union(*told)) < 2:
        return words
    gone = {id(word) for row, found in zip(rows, told, strict=True) if found for word in row}
    return [word for word in words if id(word) not in gone]


def _outermost(words: list[Word], height: float, *, top: bool) -> list[Word]:
    """The words of the first or the last row from left to right; none where it reaches into the page."""
    if top:
        edge: Iterable[Word] = sorted((w for w in words if w.bottom <= _EDGE * height), key=lambda w: w.base)
    else:
        edge = sorted((w for w in words if w.top >= (1 - _EDGE) * height), key=lambda w: -w.base)
    first = next(iter(edge), None)
    if first is None:
        return []
    row = takewhile(lambda w: abs(w.base - first.base) <= 0.25 * first.size, edge)
    return sorted(row, key=lambda w: w.x0)


def _told(row: list[Word], number: int, count: int) -> set[str]:
    """What a browser says in a row: 'address', 'moment', 'number'."""
    parts: list[list[Word]] = []
    for word in row:
        if parts and word.x0 - parts[-1][-1].x1 < _APART * word.size:
            parts[-1].append(word)
        else:
            parts.append([word])
    found: set[str] = set()
    for part in parts:
        text = " ".join(word.text for word in part)
        if len(text) > _MAX_LENGTH:
            continue
        if _ADDRESS.fullmatch(text):
            found.add("address")
        if _MOMENT.fullmatch(text):
            found.add("moment")
        if (pages := _NUMBER.fullmatch(text)) is not None and (int(pages[1]), int(pages[2])) == (number, count):
            found.add("number")
    return found
