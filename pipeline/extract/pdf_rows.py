"""Words to rows of a page, and rows to lines of text: raised figures, wide gaps, code, lines from the right."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pipeline.extract.pdf_model import Item, Line, Table, Tag, Word
from pipeline.extract.pdf_text import is_leftward

_MAX_SCRIPT = 5  # letters of a raised or lowered word
_MARKER = re.compile(r"(?:[•◦▪▸‣●○■□–—*·o-]|\(?[0-9A-Za-z]{1,4}[.)]|[0-9]+(?:\.[0-9]+)*\.?|\[[x ]\]|\[?[0-9]+\])$")
_BULLETS = frozenset("•◦▪▸‣●○■□✓∙·")
_ITEM = re.compile(r"\(?(?:[0-9]{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)]")
_MAX_BULLETS = 2000  # of a page; with more it is no list
_MAX_LEVEL = 400  # words beside a bullet
_LEADERS = re.compile(r"\s*\.(?:\s?\.){3,}\s*")  # dots between a title and its page
_SUPERSCRIPTS = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")


@dataclass(slots=True)
class Segment:
    """Words of one row without a wide gap between them; or a table, which stands for itself."""

    words: list[Word]
    x0: float
    x1: float
    table: Table | None = None

    @property
    def length(self) -> int:
        """Characters."""
        return sum(len(word.text) for word in self.words)


@dataclass(slots=True)
class Row:
    """Segments with one baseline, from left to right."""

    segments: list[Segment]
    top: float
    bottom: float
    base: float
    size: float

    @property
    def words(self) -> list[Word]:
        """All its words."""
        return [word for segment in self.segments for word in segment.words]


def plain_lines(words: list[Word], page: int) -> list[Line]:
    """Lines from top to bottom, without a look for columns or tables."""
    rows = rows_of(words)
    found = lines_of(rows, page, bounds_of(rows))
    return [item for item in found if isinstance(item, Line)]


def rows_of(words: list[Word]) -> list[Row]:
    """Words by baseline; raised and lowered small words join the row that they lean on, bullets the text they lead."""
    _level_bullets(words)
    groups: list[list[Word]] = []
    for word in sorted(words, key=lambda w: (w.base, w.x0)):
        # The group's first word has the smallest baseline; a later group may be nearer, so only the last is asked.
        if groups and abs(word.base - groups[-1][0].base) <= 0.25 * min(word.size, groups[-1][0].size):
            groups[-1].append(word)
        else:
            groups.append([word])
    return [_row(group) for group in _with_scripts(groups)]


def _level_bullets(words: list[Word]) -> None:
    """Move bullets to the baseline of their text: in another size than it, they are set higher or lower.

    So are numbers of items, where they stand alone on their baseline in a size that neither their text nor most have.
    """
    usual = median(word.size for word in words) if words else 0.0
    bullets = [
        word for word in words if word.text in _BULLETS or (_differs(word.size, usual) and _ITEM.fullmatch(word.text))
    ]
    if not bullets or len(bullets) > _MAX_BULLETS:
        return
    marks = {id(word) for word in bullets}
    others = sorted((word for word in words if id(word) not in marks), key=lambda w: w.base)
    bases = [word.base for word in others]
    tallest = max((word.size for word in others), default=0.0)
    for bullet in bullets:
        reach = 0.5 * max(bullet.size, min(tallest, 3 * bullet.size))
        start, end = bisect_left(bases, bullet.base - reach), bisect_right(bases, bullet.base + reach)
        level = others[start:end] if end - start <= _MAX_LEVEL else []
        led = [word for word in level if _leads(bullet, word)]
        if bullet.text not in _BULLETS:
            beside = any(abs(w.base - bullet.base) < 0.5 and w.x0 - bullet.x1 < 2 * bullet.size
                         and bullet.x0 - w.x1 < 2 * bullet.size for w in level)  # fmt: skip
            led = [] if beside else [word for word in led if _differs(word.size, bullet.size)]
        if led:
            text = min(led, key=lambda w: (abs(w.base - bullet.base), w.x0))
            bullet.base, bullet.top, bullet.bottom = text.base, text.top, text.bottom


def _differs(size: float, other: float) -> bool:
    return abs(size - other) > 0.12 * max(size, other)


def _leads(bullet: Word, word: Word) -> bool:
    """Does the bullet stand close before the word, and at half its height or so?"""
    size = max(bullet.size, min(word.size, 3 * bullet.size))
    gap = bullet.x0 - word.x1 if is_leftward(word.text) else word.x0 - bullet.x1
    return abs(word.base - bullet.base) <= 0.5 * size and -1 <= gap < 5 * bullet.size


def _with_scripts(groups: list[list[Word]]) -> list[list[Word]]:
    kept: list[list[Word] | None] = list(groups)
    for i, group in enumerate(groups):
        size = max(word.size for word in group)
        if any(len(word.text) > _MAX_SCRIPT for word in group):
            continue
        for j in (i + 1, i - 1):
            if not 0 <= j < len(groups) or kept[j] is None:
                continue
            host = groups[j]
            full = max(word.size for word in host)
            if size > 0.88 * full or abs(group[0].base - host[0].base) > 0.6 * full:
                continue
            raised = group[0].base < host[0].base
            hosts = [_host(word, host, raised) for word in group]
            if all(hosts):
                for word, on in zip(group, hosts, strict=True):
                    if on is not None:
                        _write_script(word, on, raised)
                kept[i] = None
                break
    return [group for group in kept if group]


def _host(small: Word, words: list[Word], raised: bool) -> Word | None:
    """The word that a small one leans on: right before it, or after the mark of a footnote."""
    for word in words:
        if small.size >= word.size:
            continue
        if -0.1 * word.size <= small.x0 - word.x1 <= 0.25 * word.size:
            return word
        if raised and 0 <= word.x0 - small.x1 <= 0.4 * word.size and small.text.isdigit() and small.x0 < word.x0:
            return word
    return None


def _write_script(small: Word, word: Word, raised: bool) -> None:
    digits = all(c in "0123456789+-" for c in small.text)
    text = small.text.translate(_SUPERSCRIPTS) if raised and digits else small.text
    if small.x0 < word.x0:
        word.text, word.x0 = f"{text} {word.text}", small.x0
    else:
        word.text, word.x1 = word.text + text, max(word.x1, small.x1)


def _row(group: list[Word]) -> Row:
    group.sort(key=lambda w: (w.x0, w.x1))
    size = median(word.size for word in group)
    segments: list[Segment] = []
    for word in group:
        last = segments[-1] if segments else None
        gap = word.x0 - last.x1 if last else 0.0
        mono = last is not None and word.mono and last.words[-1].mono
        if last is not None and gap <= (2.2 if mono else 1.1) * max(size, 1.0):
            last.words.append(word)
            last.x1 = max(last.x1, word.x1)
        else:
            segments.append(Segment([word], word.x0, word.x1))
    _keep_markers(segments)
    return Row(segments, min(w.top for w in group), max(w.bottom for w in group), max(w.base for w in group), size)


def _keep_markers(segments: list[Segment]) -> None:
    """A list's mark or a heading's number belongs to the text after it, however wide the gap."""
    i = 0
    while i < len(segments) - 1:
        first, second = segments[i], segments[i + 1]
        near = second.x0 - first.x1 < 5 * first.words[0].size
        if len(first.words) == 1 and near and _MARKER.match(first.words[0].text) and _alone(first, second):
            segments[i : i + 2] = [Segment(first.words + second.words, first.x0, second.x1)]
        i += 1


def _alone(first: Segment, second: Segment) -> bool:
    """Numbers beside numbers are a table's cells."""
    plain = first.words[0].text.replace(".", "").isdigit() and first.words[0].text[-1].isdigit()
    return not plain or (len(second.words) > 1 and second.words[0].text[:1].isalpha() and first.words[0].bold)


def bounds_of(rows: list[Row]) -> tuple[float, float]:
    """Left and right end of rows."""
    segments = [segment for row in rows for segment in row.segments]
    return min((s.x0 for s in segments), default=0.0), max((s.x1 for s in segments), default=0.0)


def lines_of(rows: list[Row], page: int, bounds: tuple[float, float]) -> list[Item]:
    """Each row as one line, in a column with these ends; tables among them stay."""
    items: list[Item] = []
    for row in rows:
        items.extend(segment.table for segment in row.segments if segment.table is not None)
        if row.words:
            items.append(line_of(row.words, page, *bounds))
    return items


def line_of(words: list[Word], page: int, left: float, right: float) -> Line:
    """One line from words, which are sorted from left to right."""
    letters = max(sum(len(w.text) for w in words), 1)
    mono = sum(len(w.text) for w in words if w.mono) >= 0.97 * letters
    bold = sum(len(w.text) for w in words if w.bold) >= 0.9 * letters
    sizes = Counter[float]()
    tags: dict[int, tuple[int, Tag]] = {}
    for word in words:
        sizes[round(word.size, 1)] += len(word.text)
        if word.tag is not None:
            tags[id(word.tag)] = (tags.get(id(word.tag), (0, word.tag))[0] + len(word.text), word.tag)
    advance = median(w.advance for w in words if w.advance > 0) if mono and any(w.advance > 0 for w in words) else 0.0
    return Line(
        text=_code_text(words, advance) if advance else joined_words(words),
        x0=words[0].x0,
        x1=max(w.x1 for w in words),
        top=min(w.top for w in words),
        bottom=max(w.bottom for w in words),
        base=max(w.base for w in words),
        size=max(sizes, key=lambda s: (sizes[s], s)),
        bold=bold,
        mono=mono,
        page=page,
        advance=advance,
        left=left,
        right=right,
        tag=max(tags.values(), key=lambda t: t[0])[1] if tags else None,
    )


def joined_words(words: list[Word]) -> str:
    """Words, sorted from left to right, as one text: runs from the right are turned, in the order of the whole line."""
    leftwards = [is_leftward(word.text) for word in words]
    if any(leftwards):
        words = _in_order(words, leftwards)
    text = words[0].text if words else ""
    for before, word in pairwise(words):
        glued = not word.spaced and -0.1 * word.size <= word.x0 - before.x1 < 0.06 * word.size
        text += word.text if glued else f" {word.text}"
    return _LEADERS.sub(" … ", text).rstrip()


def _in_order(words: list[Word], leftwards: list[bool]) -> list[Word]:
    whole = sum(leftwards) * 2 > sum(any(c.isalpha() for c in word.text) for word in words)
    runs: list[tuple[bool, list[Word]]] = []
    for word, leftward in zip(words, leftwards, strict=True):
        way = leftward if any(c.isalpha() for c in word.text) else whole
        if not runs or runs[-1][0] != way:
            runs.append((way, []))
        runs[-1][1].append(word)
    ordered = [word for way, run in (runs[::-1] if whole else runs) for word in (run[::-1] if way else run)]
    return ordered


def _code_text(words: list[Word], advance: float) -> str:
    """A line of equally wide glyphs with its blanks as they are placed, from its own left end."""
    start, text = words[0].x0, ""
    for word in words:
        column = round((word.x0 - start) / advance)
        text += " " * max(min(column - len(text), 400), 1 if text else 0) + word.text
    return text


def is_page_leftwards(words: list[Word]) -> bool:
    """Are most words written from the right? Columns are then read from there too."""
    told = [is_leftward(word.text) for word in words[:2000] if any(c.isalpha() for c in word.text)]
    return sum(told) * 2 > len(told)
