"""Tables in HTML: which hold data, and their rows as cell texts."""

from __future__ import annotations

from collections.abc import Callable

from lxml import etree

_MAX_SPAN = 200
_MAX_COPY = 200  # characters of a cell that is repeated into the rows it spans
_COPY_BUDGET = 65_536  # characters repeated in one table


def is_data_table(table: etree._Element) -> bool:
    """False for tables that only lay out a page: one column, or holding headings, code or other tables."""
    if table.get("role") in ("presentation", "none"):
        return False
    inner = table.iter("table", "pre", "h1", "h2", "h3", "h4", "h5", "h6")
    next(inner)  # the table itself
    if next(inner, None) is not None:
        return False
    return any(len(_cells(row)) > 1 for row in table.iter("tr"))


def table_rows(table: etree._Element, text_of: Callable[[etree._Element], str]) -> tuple[list[list[str]], int]:
    """Rows of cell texts with spans filled in, and how many leading rows are the header.

    A cell that spans rows is repeated in each of them, so that a row says what it is about when it stands alone.
    """
    rows: list[list[str]] = []
    header_rows = 0
    in_header = True
    carried: dict[int, tuple[int, str]] = {}  # column -> rows left, text
    budget = _COPY_BUDGET
    for row in table.iter("tr"):
        cells = _cells(row)
        texts: list[str] = []
        following: dict[int, tuple[int, str]] = {}
        for cell in cells:
            _fill(texts, carried, following)
            text = text_of(cell).strip()
            column = len(texts)
            texts.append(text)
            texts.extend([""] * (min(_span(cell.get("colspan")), 20) - 1))
            down = _span(cell.get("rowspan")) - 1
            if down > 0:
                keep = text if len(text) <= _MAX_COPY and budget >= len(text) * down else ""
                budget -= len(keep) * down
                following[column] = (down, keep)
        _fill(texts, carried, following)
        carried = following
        if not cells:
            continue
        parent = row.getparent()
        in_header = in_header and (
            (parent is not None and parent.tag == "thead") or all(cell.tag == "th" for cell in cells)
        )
        header_rows += in_header
        rows.append(texts)
    return rows, header_rows if header_rows < len(rows) else min(1, len(rows))


def _cells(row: etree._Element) -> list[etree._Element]:
    return [cell for cell in row if cell.tag in ("td", "th")]


def _fill(texts: list[str], carried: dict[int, tuple[int, str]], following: dict[int, tuple[int, str]]) -> None:
    while len(texts) in carried:
        left, text = carried.pop(len(texts))
        if left > 1:
            following[len(texts)] = (left - 1, text)
        texts.append(text)


def _span(value: str | None) -> int:
    text = (value or "").strip()
    return min(int(text), _MAX_SPAN) if text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) else 1
