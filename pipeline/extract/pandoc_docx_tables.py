"""Tables of DOCX as Word lays them out: pandoc drops cells beyond the declared grid and moves those after a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.extract.pandoc_ooxml import W

if TYPE_CHECKING:
    from lxml import etree

_MOST_ADDED = 1000  # cells
_MOST = 63  # columns of a table in Word, and so the widest span and gap


def square_tables(root: etree._Element) -> None:
    """Drops hidden rows, fills the gaps before rows with empty cells, and gives each table a grid of all its columns.

    Linear in the size of the part, whatever is nested in it.
    """
    from lxml import etree

    for row in [row for row in root.iter(f"{W}tr") if _is_hidden(row)]:
        parent = row.getparent()
        if parent is not None:
            parent.remove(row)
    gaps: list[tuple[etree._Element, int]] = []
    tables: list[tuple[etree._Element, int]] = []
    short: list[tuple[etree._Element, int]] = []  # cells that the first row lacks, by which pandoc goes
    open_tables: list[list[int]] = []  # of each the width of the row at hand, of the widest one, of the first one
    for event, node in etree.iterwalk(root, events=("start", "end"), tag=(f"{W}tbl", f"{W}tr", f"{W}tc")):
        if node.tag == f"{W}tbl":
            if event == "start":
                open_tables.append([0, 0, 0])
            else:
                _, widest, narrow = open_tables.pop()
                tables.append((node, widest))
                if narrow < widest:
                    short.append((node, widest - narrow))
        elif not open_tables:
            continue
        elif node.tag == f"{W}tc":
            if event == "start":
                open_tables[-1][0] += max(1, _number(node.find(f"{W}tcPr/{W}gridSpan")))
        elif event == "start":
            gap = _number(node.find(f"{W}trPr/{W}gridBefore"))
            open_tables[-1][0] = gap
            if gap:
                gaps.append((node, gap))
        else:
            width = open_tables[-1]
            width[1] = max(width[:2])
            width[2] = width[2] or width[0]
    for row, gap in gaps:
        _fill(row, gap)
    for table, missing in short:
        row = next(table.iter(f"{W}tr"))
        row.extend(_empty_cell() for _ in range(min(missing, _MOST_ADDED)))
    for table, columns in tables:
        _widen(table, columns)


def _is_hidden(row: etree._Element) -> bool:
    mark = row.find(f"{W}trPr/{W}hidden")
    return mark is not None and mark.get(f"{W}val", "1") not in ("0", "false", "off")


def _number(node: etree._Element | None) -> int:
    value = "" if node is None else node.get(f"{W}val", "")
    return min(int(value), _MOST) if value.isascii() and value.isdecimal() and len(value) < 10 else 0


def _empty_cell() -> etree._Element:
    from lxml import etree

    cell = etree.Element(f"{W}tc")
    etree.SubElement(cell, f"{W}p")
    return cell


def _fill(row: etree._Element, gap: int) -> None:
    at = next((i for i, child in enumerate(row) if child.tag not in (f"{W}trPr", f"{W}tblPrEx")), len(row))
    for _ in range(gap):
        row.insert(at, _empty_cell())
    properties = row.find(f"{W}trPr")
    if properties is not None:
        for before in properties.findall(f"{W}gridBefore"):
            properties.remove(before)


def _widen(table: etree._Element, columns: int) -> None:
    from lxml import etree

    grid = table.find(f"{W}tblGrid")
    if grid is None:
        grid = etree.Element(f"{W}tblGrid")
        table.insert(1 if len(table) and table[0].tag == f"{W}tblPr" else 0, grid)
    declared = [column for column in grid.findall(f"{W}gridCol") if column.get(f"{W}w")]
    if len(declared) >= columns:
        return
    for column in grid.findall(f"{W}gridCol"):
        column.set(f"{W}w", column.get(f"{W}w") or "100")
    for _ in range(columns - len(grid.findall(f"{W}gridCol"))):
        etree.SubElement(grid, f"{W}gridCol").set(f"{W}w", "100")
