"""A row of a table, told as ``Column: value; Column: value.``: is it a row of a source?

What an answer shows of a table stands nowhere in these words. It is a row of a source only where one has these very
cells under these very columns; nothing is measured about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from query_service.answer.interface import Draft, Source, Verdict
from query_service.answer.units import plain, units

IDENTICAL = 0.99


def told_row(draft: Draft, sources: Sequence[Source]) -> Verdict | None:
    """Support by a row of a source, of a cited one first; None where the draft is no row of any."""
    said = _bare(draft.text)
    if ": " not in said:
        return None
    for source in sorted(sources, key=lambda one: one.number not in draft.cited):
        if "|" not in source.text:
            continue
        for unit in units(source.text, source.number, source.passage.heading_path):
            if unit.kind == "row" and _bare(unit.text) == said:
                return Verdict(True, IDENTICAL, (source.number,), {source.number: _line(unit.text, source.text)})
    return None


def _bare(text: str) -> str:
    return " ".join(text.strip().removeprefix("- ").removesuffix(".").split())


def _line(row: str, text: str) -> str:
    """The line of the source that holds the row's values, as it stands there."""
    values = [part.partition(": ")[2] or part for part in _bare(row).split("; ")]
    lines = [line for line in text.splitlines() if "|" in line]
    return next((line.strip() for line in lines if all(value in plain(line) for value in values)), lines[0].strip())
