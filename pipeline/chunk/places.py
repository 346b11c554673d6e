"""Where a chunk's own words stand in the decoded source."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.chunk.atoms import Atom
from pipeline.places import source_span

UNKNOWN = (-1, -1)


def source_range(own: Sequence[Atom]) -> tuple[int, int]:
    """Start and end (exclusive) of the atoms in the source; -1 and -1 where it is not known.

    Blocks that stand further up in the source than in reading order, as footnotes may, do not stretch the range.
    """
    start, end = UNKNOWN
    for atom in own:
        found = source_span(atom.block, atom.start, atom.end)
        if found is None:
            continue
        if start < 0:
            start, end = found
        elif found[0] >= end:
            end = found[1]
    return start, end
