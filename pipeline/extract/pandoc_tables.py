"""Cells that span rows and columns become a plain grid of texts."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.extract.spans import COPY_BUDGET, MAX_COPY, Carried, fill

_MAX_ROWS = 1000
_MAX_COLUMNS = 20  # empty cells that one cell adds


@dataclass(frozen=True)
class Cell:
    """A cell's text and how many rows and columns it spans."""

    text: str
    rows: int = 1
    columns: int = 1


def grid(rows: list[list[Cell]]) -> list[list[str]]:
    """Texts by row and column. A cell that spans rows is repeated in each, so that a row alone says what it is about;
    one that spans columns is followed by empty cells."""
    out: list[list[str]] = []
    carried: Carried = {}
    budget = COPY_BUDGET
    for row in rows:
        texts: list[str] = []
        following: Carried = {}
        for cell in row:
            fill(texts, carried, following)
            down = min(max(cell.rows, 1), _MAX_ROWS) - 1
            keep = cell.text if len(cell.text) <= MAX_COPY and budget >= len(cell.text) * down else ""
            budget -= len(keep) * down
            for offset in range(min(max(cell.columns, 1), _MAX_COLUMNS)):
                if down:
                    following[len(texts)] = (down, "" if offset else keep)
                texts.append("" if offset else cell.text)
        fill(texts, carried, following)
        carried = following
        out.append(texts)
    return out
