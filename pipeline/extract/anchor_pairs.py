"""Runs of equal characters in a text and its source, and the pairs of offsets that stand for them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

MAX_ANCHORS = 200  # pairs a block; where that is too few, lines have theirs and words none
MAX_LINES = 100_000  # lines of a document that have two pairs beyond that; of more, every second or third line has them
_BLANK = re.compile(r"\s")


class Run(NamedTuple):
    """``length`` characters that are the same in text and source."""

    text: int
    source: int
    length: int


def common(text: str, t: int, source: str, s: int) -> int:
    """Length of the longest run of equal characters at both places."""
    limit = min(len(text) - t, len(source) - s)
    low, step = 0, 16
    while low < limit:
        size = min(step, limit - low)
        if text[t + low : t + low + size] == source[s + low : s + low + size]:
            low += size
            step *= 2
            continue
        while size > 1:  # the first difference lies in these characters
            half = size // 2
            if text[t + low : t + low + half] == source[s + low : s + low + half]:
                low, size = low + half, size - half
            else:
                size = half
        return low
    return low


def append(runs: list[Run], text: str, t: int, s: int, length: int) -> None:
    """Add a run without the white space at its ends; one that goes on from the last is joined to it."""
    if runs and runs[-1].text - runs[-1].source == t - s and runs[-1].text + runs[-1].length == t:
        runs[-1] = runs[-1]._replace(length=runs[-1].length + length)
        return
    while length and text[t].isspace():
        t, s, length = t + 1, s + 1, length - 1
    if length:
        runs.append(Run(t, s, length))


def without_loose_bars(runs: list[Run], text: str, source: str) -> list[Run]:
    """The runs without a table's bars that met a mark on another line of the source, as the ``|-`` of wikitext."""
    kept: list[Run] = []
    for number, run in enumerate(runs):
        if kept and text[run.text : run.text + run.length].strip() == "|":
            end, after = run.source + run.length, runs[number + 1] if number + 1 < len(runs) else None
            if "\n" in source[kept[-1].source + kept[-1].length : run.source]:
                continue
            if after and "\n" in source[end : after.source] and "\n" not in text[run.text : after.text]:
                continue
        kept.append(run)
    return kept


def pairs_of(text: str, runs: list[Run], most_lines: int = MAX_LINES) -> tuple[tuple[int, int], ...]:
    """Pairs for the runs: about MAX_ANCHORS, and where that is too few two a line, for at most ``most_lines`` lines.

    Rows and lines are where chunks are cut, so they go before cells and words.
    """
    pairs: list[tuple[int, int]] = []
    each = len(runs) <= MAX_ANCHORS - 2
    if each:
        end = place = 0
        for run in runs:
            if not pairs or pairs[-1][1] - pairs[-1][0] != run.source - run.text:
                between = text[end : run.text]
                if pairs and "\n" in between and between[0].isspace() and not between.isspace():
                    pairs.append((end, place))
                pairs.append((run.text, run.source))
            end, place = run.text + run.length, run.source + run.length
    else:
        runs = _by_line(text, runs)
        pairs = _coarse(text, runs, most_lines)
    end, place = runs[-1].text + runs[-1].length, runs[-1].source + runs[-1].length
    if end < len(text) and text[end].isspace():
        pairs.append((end, place))
    if end < len(text) or not each:  # the end of a group of runs needs a pair of its own
        pairs.append((len(text), place))
    return tuple(pairs)


def _by_line(text: str, runs: list[Run]) -> list[Run]:
    """The runs cut at line ends, so that a line begins and ends with one."""
    cut: list[Run] = []
    for run in runs:
        start, stop = run.text, run.text + run.length
        while start < stop:
            line_end = text.find("\n", start, stop)
            line_end = stop if line_end < 0 else line_end
            a, b = start, line_end
            while a < b and text[a].isspace():
                a += 1
            while b > a and text[b - 1].isspace():
                b -= 1
            if a < b:
                cut.append(Run(a, run.source + a - run.text, b - a))
            start = line_end + 1
    return cut


def _coarse(text: str, runs: list[Run], most_lines: int) -> list[tuple[int, int]]:
    """Pairs at the beginning and the end of lines, and of groups of runs inside them as far as MAX_ANCHORS allows."""
    lines = 1 + sum("\n" in text[a.text + a.length : b.text] for a, b in pairwise(runs))
    every = -(-lines // max(MAX_ANCHORS // 2, most_lines))
    spare = MAX_ANCHORS // 2 - lines
    group = -(-len(runs) // spare) if spare > 0 else len(runs)
    pairs = [(runs[0].text, runs[0].source)]
    members, line = 1, 0
    for before, run in pairwise(runs):
        end = before.text + before.length
        between = text[end : run.text]
        blank = _BLANK.search(between)
        new_line = "\n" in between
        line += new_line
        if blank and ((new_line and line % every == 0) or members >= group):
            pairs += [(end + blank.start(), before.source + before.length), (run.text, run.source)]
            members = 0
        members += 1
    return pairs
