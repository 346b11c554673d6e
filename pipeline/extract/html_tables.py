"""Tables in HTML: which hold data, and their rows as cell texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lxml import etree

from pipeline.extract.html_survey import TableFacts
from pipeline.extract.spans import COPY_BUDGET, MAX_COPY, Carried, fill

_SECTIONS = ("thead", "tbody", "tfoot")
_PARTS = frozenset({*_SECTIONS, "tr", "td", "th", "caption", "colgroup", "col", "script", "style", "template"})
_MAX_SPAN = 200


def is_data_table(table: etree._Element, facts: TableFacts) -> bool:
    """False for tables that only lay out a page (one column, or holding headings, code or tables without any
    header), and for those with words outside their cells."""
    if table.get("role") in ("presentation", "none") or facts.gutter or facts.box or _has_strays(table):
        return False
    if facts.width < 2:
        return facts.headers > 0 and len(facts.rows) > 1 and not facts.inner and not facts.codes
    if facts.headers:
        return not facts.inner_blocks and not (facts.inner and facts.headings)
    return not (facts.inner or facts.headings or facts.codes)


def table_rows(
    table: etree._Element, facts: TableFacts, text_of: Callable[[etree._Element], str]
) -> tuple[list[list[str]], int]:
    """Rows of cell texts with spans filled in, and how many leading rows are the header.

    A cell that spans rows is repeated in each of them, so that a row says what it is about when it stands alone. Rows
    of a footer come last wherever the source has them.
    """
    rows: list[list[str]] = []
    header_rows = 0
    in_header = True
    carried: Carried = {}
    budget = COPY_BUDGET
    for row in ordered_rows(facts):
        cells = _cells(row)
        texts: list[str] = []
        following: Carried = {}
        for cell in cells:
            fill(texts, carried, following)
            text = text_of(cell).strip()
            column = len(texts)
            texts.append(text)
            wide = min(_span(cell.get("colspan")), 20)
            texts.extend([""] * (wide - 1))
            down = _span(cell.get("rowspan")) - 1
            if down > 0:
                keep = text if len(text) <= MAX_COPY and budget >= len(text) * down else ""
                budget -= len(keep) * down
                following[column] = (down, keep)
                if wide > 1 and budget >= 3 * wide * down:
                    budget -= 3 * wide * down
                    following.update((column + more, (down, "")) for more in range(1, wide))
        fill(texts, carried, following)
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


def ordered_rows(facts: TableFacts) -> Iterator[etree._Element]:
    """The table's own rows that hold cells, as a browser shows them: a head first, a foot last."""
    places: dict[str, list[etree._Element]] = {"thead": [], "": [], "tfoot": []}
    for row in facts.rows:
        parent = row.getparent()
        place = str(parent.tag) if parent is not None else ""
        places[place if place in places else ""].append(row)
    for rows in places.values():
        yield from rows


def _has_strays(table: etree._Element) -> bool:
    """Whether words stand between rows or between cells, where no cell would keep them."""
    sections = [table, *(part for part in table if part.tag in _SECTIONS)]
    rows = [row for section in sections for row in section if row.tag == "tr"]
    for parent in (*sections, *rows):
        if (parent.text or "").strip():
            return True
        for child in parent:
            if (child.tail or "").strip():
                return True
            if child.tag not in _PARTS and any(text.strip() for text in child.itertext()):
                return True
    return False


def _cells(row: etree._Element) -> list[etree._Element]:
    return [cell for cell in row if cell.tag in ("td", "th")]


def _span(value: str | None) -> int:
    text = (value or "").strip()
    return min(int(text), _MAX_SPAN) if text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) else 1
