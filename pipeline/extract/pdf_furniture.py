"""Running heads, feet and page numbers: lines that come back at the same place of most pages."""

from __future__ import annotations

import re

from pipeline.extract.pdf_model import Item, Line, Prepared

_FIRST_OR_LAST = re.compile(r"(?:(?P<first>\d{1,4})(?=\D).*?|.*?)(?:(?<!\d)(?P<last>\d{1,4}))?")
_MAX_LENGTH = 120  # characters of a running head
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"[ivxlcdm]{1,7}", re.I)
_ZONE = 0.14  # share of the page's height at its top and at its foot
_DEEP = 4  # lines of a page that are looked at from its top and from its foot
_LEAST_PAGES = 3


def without_furniture(pages: list[list[Item]], heights: list[float]) -> list[list[Item]]:
    """Pages without such lines. Documents of one or two pages are left as they are.

    A line goes when its text, numbers aside, stands at the same height on more than half of all pages, or of the odd or
    the even ones; and when it is a page's first or last and begins or ends with a number that counts the pages.
    """
    if len(pages) < _LEAST_PAGES:
        return pages
    places: dict[tuple[str, int], set[int]] = {}
    for number, items in enumerate(pages):
        for line in _edge_lines(items, heights[number]):
            for key in _keys(line, heights[number]):
                places.setdefault(key, set()).add(number)
    written = [number for number, items in enumerate(pages) if items]
    repeated = {key for key, found in places.items() if _often(found, written)}
    counted = _counted(pages, heights, written)
    kept: list[list[Item]] = []
    for number, items in enumerate(pages):
        edge = {id(line) for line in _edge_lines(items, heights[number])}
        kept.append(
            [
                item for item in items
                if not (isinstance(item, Line) and id(item) in edge
                        and (id(item) in counted or any(key in repeated for key in _keys(item, heights[number]))))
            ]
        )  # fmt: skip
    return kept


def without_marks(aside: list[list[Prepared]]) -> list[list[Prepared]]:
    """Text that runs across a page, without what is stamped on most pages."""
    if len(aside) < _LEAST_PAGES:
        return aside
    count: dict[str, int] = {}
    for found in aside:
        for text in {item.text for item in found}:
            count[text] = count.get(text, 0) + 1
    return [[item for item in found if count[item.text] * 2 <= len(aside)] for found in aside]


def _often(found: set[int], written: list[int]) -> bool:
    if len(found) < _LEAST_PAGES:
        return False
    if len(found) > len(written) / 2:
        return True
    for parity in (0, 1):
        side = [number for number in written if number % 2 == parity]
        same = sum(number % 2 == parity for number in found)
        if len(side) >= _LEAST_PAGES and same > len(side) / 2:
            return True
    return False


def _counted(pages: list[list[Item]], heights: list[float], written: list[int]) -> set[int]:
    """Ids of outermost lines with the page's number, where most pages have one."""
    offsets: dict[int, list[Line]] = {}
    for number, items in enumerate(pages):
        lines = sorted(_edge_lines(items, heights[number]), key=lambda line: line.base)
        for line in {id(line): line for line in (*lines[:1], *lines[-1:])}.values():
            found = _FIRST_OR_LAST.fullmatch(line.text.strip())
            if found is not None and len(line.text) <= _MAX_LENGTH:
                for digits in {found["first"], found["last"]} - {None}:
                    offsets.setdefault(int(digits) - number, []).append(line)
    best = max(offsets.values(), key=len, default=[])
    return {id(line) for line in best} if len(best) >= max(_LEAST_PAGES, len(written) / 2) else set()


def _edge_lines(items: list[Item], height: float) -> list[Line]:
    lines = [item for item in items if isinstance(item, Line)]
    top = sorted((line for line in lines if line.bottom <= _ZONE * height), key=lambda line: line.top)[:_DEEP]
    foot = sorted((line for line in lines if line.top >= (1 - _ZONE) * height), key=lambda line: -line.top)[:_DEEP]
    return top + foot


def _keys(line: Line, height: float) -> list[tuple[str, int]]:
    """The line's text without numbers, with its height: twice, so that a place near a step's edge is met."""
    text = _DIGITS.sub("#", line.text.strip()).casefold()
    if _ROMAN.fullmatch(text):
        text = "#"
    # Measured from the nearer edge, so that pages of several sizes agree.
    place = line.base if line.base < height / 2 else line.base - height
    return [(text, int(place // 6)), (text, int((place + 3) // 6) + 100_000)]
