"""Sentence ends, without a model: enough for overlap and for cutting long paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Begins at the first mark of a row only: a row of 60,000 stops is read once.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)|[。！？]+[」』”）]*|\n+")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:[A-Za-z]|\d{1,2}|e\.g|i\.e|cf|vs|etc|resp|approx|dr|mr|mrs|ms|prof|st|no|nos|fig|sec|vol|pp?|ca|bzw|"
    r"usw|inkl|z\.\s?b|d\.\s?h|u\.\s?a|nr|abs|art|inc|ltd|co|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\.$",
    re.IGNORECASE,
)
_LINE = re.compile(r"[^\n]*\n?")
# A sentence that begins so limits the one before it; apart, each says something else.
_LIMITING = re.compile(
    r"[\s\"'“‘(\[*•-]*(?:unless|except(?:ing|ions?)?|only if|only when|however|provided(?: that)?|but|otherwise|"
    r"notwithstanding|es sei denn|außer|ausgenommen|ausnahmen?|jedoch|allerdings|nur wenn|sauf|cependant|excepto|"
    r"sin embargo)\b",
    re.IGNORECASE,
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Character spans of the sentences of ``text``, white space between them excluded; empty for blank text."""
    return list(iter_sentences(text))


def iter_sentences(text: str) -> Iterator[tuple[int, int]]:
    """``sentence_spans`` one at a time."""
    start = 0
    for match in _END.finditer(text):
        if not _ends_sentence(text, match):
            continue
        yield from _trimmed(text, start, match.end())
        start = match.end()
    yield from _trimmed(text, start, len(text))


def iter_lines(text: str) -> Iterator[tuple[int, int]]:
    """Character spans of the lines that are not blank, without the blanks at their ends."""
    for match in _LINE.finditer(text):
        end = match.start() + len(match.group().rstrip())
        if end > match.start():
            yield match.start(), end


def is_limiting(text: str) -> bool:
    """Whether the sentence limits the one before it ("unless", "except", "only if", "however")."""
    return _LIMITING.match(text[:80]) is not None


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    if match.group()[0] in "\n。！？":
        return True
    following = text[match.end() : match.end() + 20].lstrip()
    if following[:1].islower():
        return False
    return match.group() != "." or _ABBREVIATION.search(text[max(0, match.end() - 12) : match.end()]) is None


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    # Trim by position: the slices must stay true to the text.
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        lead = len(piece) - len(piece.lstrip())
        yield start + lead, start + lead + len(stripped)
