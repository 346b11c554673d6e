"""Which neighbouring heading sections share a chunk, because each is small."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pipeline.chunk.leaves import Leaf, shared_depth
from pipeline.chunk.partition import Priority, partition


@dataclass(frozen=True)
class Small:
    """A heading section as joining sees it: ``size`` in tokens with the headings that begin with it.

    ``opening`` is the priority of the place before it, ``pages`` where it begins and ends, ``placed`` whether its place
    in the source is known.
    """

    size: int
    opening: Priority
    pages: tuple[int | None, int | None] = (None, None)
    placed: bool = False


@dataclass(frozen=True)
class Joining:
    """Two neighbours are joined where each, with all that stands below its heading, has fewer than ``small`` tokens.

    So the end of a large section never shares a chunk with what comes after it. A chunk has one page and one range in
    the source: what stands on another page, or has no known place beside one that has, is not joined. ``room`` gives
    the tokens of a chunk's text under a heading path, ``least`` are those that a cut leaves on both sides where it can.
    """

    small: int
    least: int
    room: Callable[[tuple[str, ...]], int]

    def groups(self, parts: Sequence[Leaf], measured: Sequence[Small]) -> Iterator[range]:
        """Numbers of the leaves of each chunk, all of them in order; what is not small stands alone.

        A stretch of small ones is cut as prose is: at its strongest headings, so that an edit moves no distant cut.
        """
        depths = [shared_depth(one, other) for one, other in pairwise(parts)]
        breaks = [n for n, joined in enumerate(self._places(parts, measured, depths), start=1) if not joined]
        for start, end in pairwise([0, *breaks, len(parts)]):
            if end - start == 1:
                yield range(start, end)
                continue
            # The path of a chunk is what its sections share, so no longer than what two neighbours share.
            limit = min(self.room(parts[n].path[: depths[n]]) for n in range(start, end - 1))
            stretch = measured[start:end]
            cuts = partition([one.size for one in stretch], [one.opening for one in stretch], limit, self.least)
            for a, b in pairwise([0, *cuts, end - start]):
                yield range(start + a, start + b)

    def _places(self, parts: Sequence[Leaf], measured: Sequence[Small], depths: Sequence[int]) -> Iterator[bool]:
        """For each place between two leaves, whether the sections that meet there are small."""
        ends = list(accumulate((one.size for one in measured), initial=0))
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, leaf in enumerate(parts):
            for key in leaf.keys:
                first.setdefault(key, number)
                last[key] = number + 1

        def small(number: int, depth: int) -> bool:
            keys = parts[number].keys
            if depth >= len(keys):  # text that stands before the first heading below its own
                return measured[number].size < self.small
            return ends[last[keys[depth]]] - ends[first[keys[depth]]] < self.small

        for number, depth in enumerate(depths):
            one, other = measured[number], measured[number + 1]
            together = one.pages[1] == other.pages[0] and one.placed == other.placed
            yield together and small(number, depth) and small(number + 1, depth)
