"""Which lines are headings, and how deep: structure tree, outline, numbering, and size and weight beside the body."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from pipeline.extract.pdf_lists import marker_of
from pipeline.extract.pdf_model import Line

Style = tuple[float, bool]
_MAX_LENGTH = 200
_NUMBERED = re.compile(r"(\d{1,3}(?:\.\d{1,3})*)\.?\s+\S")
_LISTED = re.compile(r" … [\divxlc]+$")  # a line of a table of contents
_SPACES = re.compile(r"\W+")


@dataclass
class Outline:
    """A document's bookmarks: (title without marks, page) to depth from 0."""

    depths: dict[tuple[str, int], int] = field(default_factory=dict)

    def depth(self, text: str, page: int) -> int | None:
        """The depth of the bookmark that has this text and leads to this page."""
        return self.depths.get((bare(text), page)) if self.depths else None


def bare(text: str) -> str:
    """Letters and figures only, in lower case."""
    return _SPACES.sub("", text).casefold()


def is_listed(text: str) -> bool:
    """Is it a line of a table of contents?"""
    return _LISTED.search(text) is not None


def is_heading(line: Line, lines: int, text: str, outline: Outline, body: float, tagged: bool) -> bool:
    """Is a paragraph that begins with ``line`` a heading? ``tagged``: the structure tree names the headings."""
    if len(text) > _MAX_LENGTH or lines > 3 or not any(c.isalnum() for c in text):
        return False
    if line.tag is not None and line.tag.level and line.tag.role != "LI":
        return True
    if (tagged and line.tag is not None) or is_listed(text):
        return False
    if outline.depth(text, line.page) is not None:
        return True
    numbered = _NUMBERED.match(text) is not None
    marker = marker_of(text)
    if marker is not None and not numbered:
        return False
    if not any(c.isalpha() for c in text):
        return False
    if line.size >= 1.12 * body:
        return not text.endswith((",", ";")) and (lines == 1 or not text.endswith("."))
    return line.bold and line.size >= 0.95 * body and lines <= 2 and not text.endswith((".", ",", ";", ":"))


def levels(found: list[tuple[str, Line, Style]], outline: Outline, tagged: bool) -> list[int]:
    """The depth of each heading, 1 to 6.

    Styles are ranked by size, then weight. Numbers and bookmarks say how headings lie to each other and correct the
    ranks of their styles; headings of the structure tree have its depth.
    """
    if not found:
        return []
    by_style = _ranks([style for _, _, style in found])
    told: list[int | None] = []
    for text, line, _ in found:
        depth = outline.depth(text, line.page)
        numbered = _NUMBERED.match(text)
        told.append(depth if depth is not None else numbered.group(1).count(".") if numbered else None)
    tops = [by_style[style] for (_, _, style), depth in zip(found, told, strict=True) if depth == 0]
    first = min(tops) if tops else 1
    corrected: dict[Style, Counter[int]] = {}
    for (_, _, style), depth in zip(found, told, strict=True):
        if depth is not None:
            corrected.setdefault(style, Counter())[first + depth] += 1
    result: list[int] = []
    for (_, line, style), depth in zip(found, told, strict=True):
        if tagged and line.tag is not None and line.tag.level and line.tag.role != "LI":
            level = line.tag.level
        elif depth is not None:
            level = first + depth
        elif style in corrected:
            level = min(corrected[style], key=lambda n: (-corrected[style][n], n))
        else:
            level = by_style[style]
        result.append(min(max(level, 1), 6))
    return result


def _ranks(styles: list[Style]) -> dict[Style, int]:
    """Styles from the largest; sizes that differ by less than 4 % with one weight are one."""
    ranks: dict[Style, int] = {}
    rank = 0
    before: Style | None = None
    for style in sorted(set(styles), key=lambda s: (-s[0], not s[1])):
        if before is None or before[1] != style[1] or before[0] - style[0] > 0.04 * before[0]:
            rank += 1
        ranks[style] = rank
        before = style
    return ranks
