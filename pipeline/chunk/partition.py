"""Where to cut a sequence so that an edit moves no distant cut.

Greedy packing counts from the start, so one longer paragraph shifts every later chunk of its section. Here a cut
depends on its neighbourhood only. Every possible cut has a priority (its strength, then a hash of the words that
follow it), and is used exactly when the stretch in which it is the strongest is larger than a chunk may be. That is
the recursive rule "cut the whole at its strongest place, then each half, until all fit", stated without recursion:
whether a cut is used depends on at most one chunk's length to either side. Pieces that fit together afterwards are
joined, weakest cut first. A sequence that needs only two pieces gets exactly two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

Priority = tuple[int, int]  # strength (smaller cuts first), hash


def content_hash(text: str, words: int = 6) -> int:
    """Priority of the place before ``text``: of its opening words, so that an edit further on moves no cut."""
    opening = " ".join(text[:400].casefold().split()[:words])
    return int.from_bytes(hashlib.blake2b(opening.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def partition(
    sizes: Sequence[int], priorities: Sequence[Priority], limit: int, least: int = 0, weak: int = 2
) -> list[int]:
    """Indices before which to cut; ``priorities[i]`` belongs to the place before item ``i`` (that of 0 is unused).

    No piece is larger than ``limit`` unless it is a single item. Where two pieces suffice, the cut is one that leaves
    at least ``least`` on both sides, if there is one of a strength below ``weak``. O(n log n).
    """
    ends = [0, *accumulate(sizes)]
    count = len(sizes)
    if ends[count] <= limit or count < 2:
        return []
    if ends[count] <= 2 * limit:
        single = _single_cut(ends, priorities, limit, least, weak)
        if single is not None:
            return [single]
    return _join(_dominant(ends, priorities, limit), ends, priorities, limit)


def _single_cut(ends: list[int], priorities: Sequence[Priority], limit: int, least: int, weak: int) -> int | None:
    count = len(ends) - 1
    fitting = [i for i in range(1, count) if ends[i] <= limit and ends[count] - ends[i] <= limit]
    if not fitting:
        return None

    def rank(i: int) -> tuple[bool, bool, Priority]:
        small = min(ends[i], ends[count] - ends[i]) < least
        return priorities[i][0] >= weak, small, priorities[i]

    return min(fitting, key=rank)


def _dominant(ends: list[int], priorities: Sequence[Priority], limit: int) -> list[int]:
    count = len(ends) - 1
    before = [0] * count
    stack: list[int] = []
    for i in range(1, count):
        while stack and priorities[stack[-1]] > priorities[i]:
            stack.pop()
        before[i] = stack[-1] if stack else 0
        stack.append(i)
    after = [count] * count
    stack = []
    for i in range(count - 1, 0, -1):
        while stack and priorities[stack[-1]] >= priorities[i]:
            stack.pop()
        after[i] = stack[-1] if stack else count
        stack.append(i)
    return [i for i in range(1, count) if ends[after[i]] - ends[before[i]] > limit]


def _join(cuts: list[int], ends: list[int], priorities: Sequence[Priority], limit: int) -> list[int]:
    places = [0, *cuts, len(ends) - 1]
    right = dict(pairwise(places))
    left = {after: before for before, after in right.items()}
    kept = set(cuts)
    for cut in sorted(cuts, key=lambda i: (priorities[i], i), reverse=True):
        if ends[right[cut]] - ends[left[cut]] <= limit:
            right[left[cut]] = right[cut]
            left[right[cut]] = left[cut]
            kept.discard(cut)
    return sorted(kept)
