"""Sizes of slices in the encoder's own tokens, with one pass of the tokenizer over each stretch of text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from pipeline.chunk.graphemes import cut_at
from pipeline.ports import TokenCounter

# A tokenizer may call a very long word one unknown token; text per token is bounded all the same.
CHARACTERS_PER_TOKEN = 40
# Characters that are given to the tokenizer at once: a document of any size needs the memory of one window.
WINDOW = 1 << 16

Span = tuple[int, int]


class Ruler:
    """Measures and cuts ``text[start:end]``."""

    def __init__(self, counter: TokenCounter, text: str, start: int = 0, end: int | None = None) -> None:
        self.text = text
        self.end = len(text) if end is None else end
        part = text if (start, self.end) == (0, len(text)) else text[start : self.end]
        self._starts = [start + span[0] for span in counter.offsets(part) if span[1] > span[0]]

    def size(self, start: int, end: int) -> int:
        """Tokens that begin in the slice, or more where its characters exceed what a chunk may hold."""
        tokens = bisect_left(self._starts, end) - bisect_left(self._starts, start)
        return max(tokens, -(-(end - start) // CHARACTERS_PER_TOKEN))

    def stop(self, start: int, end: int, limit: int) -> int:
        """Where the first ``limit`` tokens of the slice end: at a token's end, inside no grapheme cluster that fits."""
        first = bisect_left(self._starts, start)
        stop = self._starts[first + limit] if first + limit < len(self._starts) else end
        stop = min(stop, start + limit * CHARACTERS_PER_TOKEN, end)
        stop = min(end, max(stop, start + 1))
        whole = cut_at(self.text, stop, start)
        return whole if whole > start else stop

    def cut(self, start: int, end: int, limit: int, *, verbatim: bool = False) -> Iterator[Span]:
        """The slice in pieces of at most ``limit`` tokens, cut between words where that is near, else at token ends.

        The blank at a cut belongs to no piece, or to the one before it with ``verbatim``.
        """
        while start < end:
            if self.size(start, end) <= limit:
                yield start, end
                return
            stop = self.stop(start, end, limit)
            blank = max(self.text.rfind(" ", start, stop), self.text.rfind("\n", start, stop))
            if blank > start + (stop - start) * 3 // 4 and self._apart(blank):
                yield start, blank + 1 if verbatim else blank
                start = blank + 1
            else:
                yield start, stop
                start = stop

    def _apart(self, blank: int) -> bool:
        """Whether the blank is a cluster of its own: a mark may stand on it."""
        text = self.text
        return cut_at(text, blank, blank - 1) == blank and cut_at(text, blank + 1, blank - 1) == blank + 1


def measured(counter: TokenCounter, text: str, spans: Iterable[Span]) -> Iterator[tuple[Span, Ruler]]:
    """Each span with a ruler that covers it; neighbours share one up to ``WINDOW`` characters.

    A span longer than that gets a ruler over its first ``WINDOW`` characters: ``sliced`` moves it on.
    """
    group: list[Span] = []
    for span in spans:
        if group and span[1] - group[0][0] > WINDOW:
            yield from _ruled(counter, text, group)
            group = []
        group.append(span)
    if group:
        yield from _ruled(counter, text, group)


def _ruled(counter: TokenCounter, text: str, group: list[Span]) -> Iterator[tuple[Span, Ruler]]:
    start, end = group[0][0], group[-1][1]
    ruler = Ruler(counter, text, start, min(end, start + WINDOW))
    for span in group:
        yield span, ruler


def sliced(
    counter: TokenCounter, ruler: Ruler, span: Span, limit: int, *, verbatim: bool = False
) -> Iterator[tuple[int, int, int]]:
    """The span in pieces of at most ``limit`` tokens: (start, end, size). Pieces of white space alone are left out."""
    start, end = span
    text = ruler.text
    while start < end:
        last = ruler.end >= end
        following = start
        for a, b in ruler.cut(start, min(end, ruler.end), limit, verbatim=verbatim):
            if not last and b == ruler.end and a > start:
                following = a  # it may go on behind the window
                break
            if not text[a:b].isspace():
                yield a, b, ruler.size(a, b)
            following = b
        start = following
        if not last:
            ruler = Ruler(counter, text, start, min(end, start + max(WINDOW, 2 * limit * CHARACTERS_PER_TOKEN)))
