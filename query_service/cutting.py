"""A section that exceeds its room: the part around its hit, cut between sentences, rows and lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.chunk.ruler import Ruler
from pipeline.chunk.sentences import iter_sentences
from pipeline.ports import TokenCounter

Span = tuple[int, int]
OVERLAP = 12  # characters that two passages have in common on purpose

_FENCE = re.compile(r"(`{3,}|~{3,})[^\n]*$")
_RULE = re.compile(r"\|?(?:\s*:?-{3,}:?\s*\|)+(?:\s*:?-{3,}:?\s*)?$")
_ASIDE = re.compile(r"^(?:`{3,}\S*|~{3,}\S*|\$\$|#{1,6} [^\n]*)$", re.MULTILINE)  # set around blocks for reading


@dataclass(frozen=True)
class Unit:
    """What is never cut: a sentence, a row of a table, a line of code, as offsets in the section's text.

    ``head`` is what a part that begins with it needs before it (header rows, the opening fence), ``tail`` what one that
    ends with it needs behind it (the closing fence).
    """

    start: int
    end: int
    kind: Literal["prose", "row", "code"] = "prose"
    head: Span | None = None
    tail: str = ""


@dataclass(frozen=True)
class Part:
    """A piece of a section: its text, tokens, and the range of the section that it shows."""

    text: str
    tokens: int
    start: int
    end: int


def measure(counter: TokenCounter, text: str) -> int:
    """Tokens of a text without special ones; long words count as chunking counts them."""
    return Ruler(counter, text).size(0, len(text)) if text else 0


def units(text: str) -> list[Unit]:
    """The text in order; blank lines between units belong to none."""
    found: list[Unit] = []
    prose = 0  # where running text begins that is not cut into sentences yet
    lines = list(_lines(text))
    at = 0
    while at < len(lines):
        start, end = lines[at]
        line = text[start:end]
        last = at
        if fence := _FENCE.match(line):
            last = _fence_end(text, lines, at, fence.group(1))
            block = list(_code(text, lines, at, last, fence.group(1)))
        elif line.startswith("|"):
            while last + 1 < len(lines) and text.startswith("|", lines[last + 1][0]):
                last += 1
            block = list(_rows(text, lines, at, last))
        else:
            at += 1
            continue
        found += _sentences(text, prose, start)
        found += block
        prose = lines[last][1]
        at = last + 1
    found += _sentences(text, prose, len(text))
    return found


def _lines(text: str) -> Iterator[Span]:
    start = 0
    for line in text.split("\n"):
        yield start, start + len(line)
        start += len(line) + 1


def _sentences(text: str, start: int, end: int) -> Iterator[Unit]:
    for a, b in iter_sentences(text[start:end]):
        yield Unit(start + a, start + b)


def _fence_end(text: str, lines: Sequence[Span], first: int, mark: str) -> int:
    for at in range(first + 1, len(lines)):
        if text[lines[at][0] : lines[at][1]].rstrip() == mark:
            return at
    return len(lines) - 1


def _code(text: str, lines: Sequence[Span], first: int, last: int, mark: str) -> Iterator[Unit]:
    closed = last > first and text[lines[last][0] : lines[last][1]].rstrip() == mark
    yield Unit(*lines[first], "code", None, "\n" + mark)
    for at in range(first + 1, last + 1):
        start, end = lines[at]
        if closed and at == last:
            yield Unit(start, end, "code", lines[first], "")
        elif text[start:end].strip():
            yield Unit(start, end, "code", lines[first], "\n" + mark if closed else "")


def _rows(text: str, lines: Sequence[Span], first: int, last: int) -> Iterator[Unit]:
    rule = next((at for at in range(first, last + 1) if _RULE.match(text[lines[at][0] : lines[at][1]])), None)
    for at in range(first, last + 1):
        headed = rule is not None and at > rule
        head = (lines[first][0], lines[rule][1]) if rule is not None and headed else None
        yield Unit(*lines[at], "row", head)


def locate(section: str, passage: str) -> Span | None:
    """Where a chunk's text stands in its section: as it is, or line by line where the section sets fences, headings and
    table headers otherwise. None where it cannot be told."""
    at = section.find(passage)
    if at >= 0 and passage:
        return at, at + len(passage)
    found: Span | None = None
    for line in reversed([line.strip() for line in passage.split("\n") if line.strip()]):
        at = section.rfind(line, 0, found[0] if found is not None else len(section))
        if at < 0:
            if found is None:
                continue
            break
        if found is not None and _ASIDE.sub("", section[at + len(line) : found[0]]).strip():
            break  # a repeated header, a heading that stands elsewhere
        found = (at, found[1] if found is not None else at + len(line))
    return found


def cut(section: str, hit: Span, limit: int, counter: TokenCounter) -> Part | None:
    """The largest part of the section around the hit that has at most ``limit`` tokens; None where the hit alone has
    more. It grows by whole units, behind the hit first."""
    parts = units(section)
    first = next((i for i, unit in enumerate(parts) if unit.end > hit[0]), None)
    last = next((i for i in range(len(parts) - 1, -1, -1) if parts[i].start < hit[1]), None)
    if first is None or last is None or last < first:
        return None
    ruler = Ruler(counter, section)
    extras: dict[str, int] = {}

    def size(i: int, j: int) -> int:
        before, after = _around(section, parts, i, j)
        for extra in (before, after):
            if extra not in extras:
                extras[extra] = measure(counter, extra)
        return ruler.size(parts[i].start, parts[j].end) + extras[before] + extras[after]

    if size(first, last) > limit:
        return _bare(section, hit, limit, counter) if all(u.kind == "prose" for u in parts[first : last + 1]) else None
    low, high = first, last
    ahead = back = True
    while ahead or back:
        ahead = ahead and high + 1 < len(parts) and size(low, high + 1) <= limit
        high += ahead
        back = back and low > 0 and size(low - 1, high) <= limit
        low -= back
    while True:
        before, after = _around(section, parts, low, high)
        text = before + section[parts[low].start : parts[high].end] + after
        tokens = measure(counter, text)
        if tokens <= limit:
            return Part(text, tokens, parts[low].start, parts[high].end)
        # Some tokenizers count a joined text a little higher than its pieces.
        if high > last:
            high -= 1
        elif low < first:
            low += 1
        else:
            return None


def _around(section: str, parts: Sequence[Unit], first: int, last: int) -> tuple[str, str]:
    head = parts[first].head
    before = section[head[0] : head[1]] + "\n" if head is not None else ""
    return before, parts[last].tail


def _bare(section: str, hit: Span, limit: int, counter: TokenCounter) -> Part | None:
    """The hit's own words, where it is a part of a sentence that is too long."""
    text = section[hit[0] : hit[1]].strip()
    tokens = measure(counter, text)
    return Part(text, tokens, *hit) if text and tokens <= limit else None


def joined(texts: Sequence[str]) -> str:
    """Neighbouring passages as one text: what one repeats of the end of the one before stands once."""
    out = ""
    for text in texts:
        if not out:
            out = text
            continue
        shared = _overlap(out, text)
        out += text[shared:] if shared else "\n\n" + text
    return out


def _overlap(before: str, after: str) -> int:
    """Length of the longest beginning of ``after`` that is an end of ``before``; linear time."""
    tail = before[-len(after) :]
    failure = [0] * len(after)
    k = 0
    for i in range(1, len(after)):
        while k and after[i] != after[k]:
            k = failure[k - 1]
        k += after[i] == after[k]
        failure[i] = k
    k = 0
    for char in tail:
        while k and (k == len(after) or char != after[k]):
            k = failure[k - 1]
        k += char == after[k]
    return k if k >= OVERLAP or k == len(after) else 0
