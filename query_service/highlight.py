"""The part of a hit's text to show: where most of the query's words stand together, cut where a reader would cut.

Text only: what a source wrote as markup stays letters, and the offsets say what to mark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pipeline.chunk.graphemes import cut_at
from pipeline.chunk.sentences import iter_sentences
from query_service.matching import Match, Words, matches
from schemas.api_ranking import Snippet

NEAR = 60  # characters in which a border between words is looked for
LEAD = 4  # where no sentence begins in reach, a quarter of the room goes before the first match
_BLANK = re.compile(r"\s")


def snippet(text: str, words: Words, limit: int) -> Snippet:
    """At most ``limit`` code points of the text with the words marked. A text that fits is shown whole."""
    found = matches(text, words)
    start, end = _stripped(text, 0, len(text))
    if end - start > limit:
        start, end = _window(text, start, end, found, limit)
    return Snippet(
        text=text[start:end],
        highlights=tuple((a - start, b - start) for a, b in _joined(found, start, end)),
        cut_before=bool(text[:start].strip()),
        cut_after=bool(text[end:].strip()),
    )


def _window(text: str, floor: int, ceiling: int, found: Sequence[Match], limit: int) -> tuple[int, int]:
    first, last = _best(found, limit, floor)
    last = min(last, first + limit)
    low = max(floor, last - limit)
    high = min(ceiling, first + limit)
    sentences = [(low + a, low + b) for a, b in iter_sentences(text[low:high])]
    # At the rims of the piece sentences may only be cut.
    begins = [a for a, _ in (sentences if low == floor else sentences[1:])]
    ends = [b for _, b in (sentences if high == ceiling else sentences[:-1])]
    start = _start(text, low, first, last, begins, limit)
    end = min(ceiling, start + limit)
    if end < ceiling:
        end = _end(text, start, end, last, ends, limit)
    else:  # the end is in reach: the room that is left goes to the beginning
        start = next((a for a in begins if ceiling - limit <= a < start), start)
    return _stripped(text, start, end)


def _best(found: Sequence[Match], limit: int, floor: int) -> tuple[int, int]:
    """The span, at most ``limit`` long, with the most phrases and identifiers, then different words, then words at
    all; of equals the shortest, then the first. Without a match the beginning of the text."""
    best: tuple[tuple[int, int, int, int], int, int] | None = None
    inside: Counter[tuple[bool, str]] = Counter()
    total = strong = left = 0
    for right, match in enumerate(found):
        inside[match.strong, match.what] += 1
        strong += match.strong and inside[True, match.what] == 1
        total += 1
        while left < right and match.end - found[left].start > limit:
            gone = found[left]
            inside[gone.strong, gone.what] -= 1
            if not inside[gone.strong, gone.what]:
                del inside[gone.strong, gone.what]
                strong -= gone.strong
            total -= 1
            left += 1
        value = (strong, len(inside), total, found[left].start - match.end)
        if best is None or value > best[0]:
            best = value, found[left].start, match.end
    return (best[1], best[2]) if best is not None else (floor, floor)


def _start(text: str, low: int, first: int, last: int, begins: Sequence[int], limit: int) -> int:
    """Where a sentence begins before the first match and the last one still fits, else a word."""
    within = [a for a in begins if a <= first]
    if within:
        return within[-1]
    wanted = max(low, first - (limit - (last - first)) // LEAD)
    if _border(text, wanted):
        return wanted
    blank = _BLANK.search(text, wanted, min(first, wanted + NEAR))
    if blank is not None:
        return blank.end()
    return min(first, _whole(text, wanted, first))


def _end(text: str, start: int, end: int, last: int, ends: Sequence[int], limit: int) -> int:
    """Where a sentence ends after the last match and most of the room is used, else a word."""
    within = [b for b in ends if last <= b <= end and b - start >= limit * 3 // 5]
    if within:
        return within[-1]
    if _border(text, end):
        return end
    for at in range(end, max(last, end - NEAR, start + 1), -1):
        if text[at - 1].isspace():
            return at - 1
    return max(cut_at(text, end, start), start + 1)


def _whole(text: str, at: int, ceiling: int) -> int:
    """The first place from ``at`` on that is inside no grapheme cluster."""
    while at < ceiling and cut_at(text, at, max(0, at - NEAR)) != at:
        at += 1
    return at


def _border(text: str, at: int) -> bool:
    """Whether a word ends or begins here by white space, or the text does."""
    return at <= 0 or at >= len(text) or text[at - 1].isspace() or text[at].isspace()


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    lead = len(piece) - len(piece.lstrip())
    return (start + lead, start + len(piece.rstrip())) if lead < len(piece) else (start, start)


def _joined(found: Sequence[Match], start: int, end: int) -> list[tuple[int, int]]:
    """What stands inside, ascending, pieces that touch as one."""
    spans: list[tuple[int, int]] = []
    for match in found:
        a, b = match.start, match.end
        if a <= start and end <= b:  # longer than the snippet
            a, b = start, end
        if a < start or b > end or a >= b:
            continue
        if spans and a <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], b))
        else:
            spans.append((a, b))
    return spans
