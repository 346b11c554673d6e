"""Cells that span rows: what every table reader does with them.

A cell's text is repeated into each row that it spans, so that a row says what it is about when it stands alone; long
texts are not, and a table's repeats together are bounded.
"""

from __future__ import annotations

MAX_COPY = 200  # characters of a cell that is repeated into the rows it spans
COPY_BUDGET = 65_536  # characters repeated in one table

Carried = dict[int, tuple[int, str]]  # column -> rows left, text


def fill(texts: list[str], carried: Carried, following: Carried) -> None:
    """Append to a row the cells that reach down into its next columns; what reaches further goes to ``following``."""
    while len(texts) in carried:
        left, text = carried.pop(len(texts))
        if left > 1:
            following[len(texts)] = (left - 1, text)
        texts.append(text)
