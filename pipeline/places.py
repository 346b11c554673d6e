"""From a slice of a block's text to the place in the source that it was read from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from schemas.documents import Block

_LAST = 1 << 62


def source_span(block: Block, start: int, end: int) -> tuple[int, int] | None:
    """Where ``block.text[start:end]`` stands in the decoded source, as offsets (start, end) with end exclusive.

    White space at both ends of the slice counts for nothing: the place begins at its first and ends after its last
    visible character. What a reader added (a list marker, a table's bar) has no place of its own and takes the nearest
    text's. Where anchors are coarse the place is widened to theirs. None where nothing of the slice is known.

    An anchor at white space, or at the end of the text, tells where the text before it ends in the source.
    """
    text, anchors = block.text, block.anchors
    start, end = max(start, 0), min(end, len(text))
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if not anchors or start >= end or end <= anchors[0][0]:
        return None
    first = _begin(block, start)
    last = _end(block, end)
    return (first, last) if first < last else None


def _begin(block: Block, start: int) -> int:
    anchors = block.anchors
    at = bisect_right(anchors, (start, _LAST)) - 1
    if at < 0:
        return anchors[0][1]
    here, there = anchors[at]
    if at + 1 == len(anchors):
        return there + start - here
    if _closes(block, here):
        return anchors[at + 1][1]
    if _coarse(block, at):
        return there
    return min(there + start - here, anchors[at + 1][1])


def _end(block: Block, end: int) -> int:
    anchors = block.anchors
    at = bisect_left(anchors, (end, -1)) - 1  # the last anchor before the slice's end: there is one
    here, there = anchors[at]
    if _closes(block, here):
        return there
    if at + 1 == len(anchors):
        return there + end - here
    following, limit = anchors[at + 1]
    if _coarse(block, at) or (following == end and _closes(block, following)):
        return limit
    return min(there + end - here, limit)


def _closes(block: Block, offset: int) -> bool:
    return offset >= len(block.text) or block.text[offset].isspace()


def _coarse(block: Block, at: int) -> bool:
    """Whether text and source differ in length up to the end that the next anchor marks: they do not run alike."""
    (here, there), (following, limit) = block.anchors[at : at + 2]
    return _closes(block, following) and following - here != limit - there
