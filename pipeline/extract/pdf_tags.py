"""The structure tree of a tagged page: which marked content is a heading, a list item, a table's cell, code."""

from __future__ import annotations

import ctypes
from typing import Any

from pipeline.extract.pdf_model import Tag

_MAX_ELEMENTS = 50_000
_MAX_DEPTH = 64
_MAX_SPAN = 50  # rows or columns of one cell
_BLOCKS = frozenset({"P", "H", "H1", "H2", "H3", "H4", "H5", "H6", "Title", "LI", "Code", "Caption", "Note", "FENote",
                     "BlockQuote", "TD", "TH", "TOCI", "Aside"})  # fmt: skip

# What has no paragraph of its own inside: code within one is a word in it.
_LEAVES = _BLOCKS - {"LI", "BlockQuote", "Note", "FENote", "Aside", "TOCI"}


def page_tags(page: Any) -> dict[int, Tag]:
    """Marked content id to what it is, for a pypdfium2 page; empty where the page is not tagged.

    Walks without recursion, at most 64 levels deep and 50,000 elements wide, so loops in the tree end.
    """
    import pypdfium2.raw as pdfium

    tree = pdfium.FPDF_StructTree_GetForPage(page.raw)
    if not tree:
        return {}
    try:
        return _walk(tree, pdfium)
    finally:
        pdfium.FPDF_StructTree_Close(tree)


def _walk(tree: Any, pdfium: Any) -> dict[int, Tag]:
    found: dict[int, Tag] = {}
    roots = range(min(pdfium.FPDF_StructTree_CountChildren(tree), _MAX_ELEMENTS))
    # element, depth, lists around it, the tag in force
    stack = [(pdfium.FPDF_StructTree_GetChildAtIndex(tree, i), 0, 0, Tag()) for i in reversed(roots)]
    seen = 0
    tables = 0
    rows: dict[int, int] = {}  # table -> rows so far
    columns: dict[tuple[int, int], int] = {}
    taken: dict[tuple[int, int], int] = {}  # (table, column) -> the row until which a cell from above takes it
    while stack and seen < _MAX_ELEMENTS:
        element, depth, lists, around = stack.pop()
        if not element or depth > _MAX_DEPTH:
            continue
        seen += 1
        kind = _type(element, pdfium)
        tag = around
        if kind == "Table" and around.cell is None:
            tag = Tag("Table", seen, 0, (tables, -1, -1, False))
            rows[tables] = 0
            tables += 1
        elif kind == "TR" and around.cell is not None and around.cell[1] < 0:
            table = around.cell[0]
            tag = Tag("Table", seen, 0, (table, rows[table], -1, False))
            rows[table] += 1
        elif kind in ("TD", "TH") and around.cell is not None and around.cell[2] < 0:
            table, row = around.cell[:2]
            column = columns.get((table, row), 0)
            while taken.get((table, column), 0) > row:
                column += 1
            wide, high = _span(element, b"ColSpan", pdfium), _span(element, b"RowSpan", pdfium) if row >= 0 else 1
            columns[table, row] = column + wide
            if high > 1:
                taken.update(((table, beside), row + high) for beside in range(column, column + wide))
            tag = Tag("Table", seen, 0, (table, max(row, 0), column, kind == "TH"), high)
        elif around.cell is None and kind in _BLOCKS:
            whole = around.role in _LEAVES or (around.role == "LI" and kind != "LI")
            if not whole:
                tag = Tag(kind, seen, lists if kind == "LI" else _heading_level(kind))
        lists += kind == "L"
        for i in range(max(pdfium.FPDF_StructElement_GetMarkedContentIdCount(element), 0)):
            content = pdfium.FPDF_StructElement_GetMarkedContentIdAtIndex(element, i)
            if content >= 0:
                found[content] = tag
        count = min(pdfium.FPDF_StructElement_CountChildren(element), _MAX_ELEMENTS)
        for i in range(count - 1, -1, -1):
            stack.append((pdfium.FPDF_StructElement_GetChildAtIndex(element, i), depth + 1, lists, tag))
    return found


def _heading_level(kind: str) -> int:
    if kind in ("H", "Title"):
        return 1
    return int(kind[1]) if len(kind) == 2 and kind[0] == "H" else 0


def _type(element: Any, pdfium: Any) -> str:
    buffer = ctypes.create_string_buffer(64)
    size = pdfium.FPDF_StructElement_GetType(element, buffer, 64)
    return buffer.raw[: max(min(size, 64) - 2, 0)].decode("utf-16-le", "replace")


def _span(element: Any, name: bytes, pdfium: Any) -> int:
    """Columns or rows that a cell takes, 1 where it does not say."""
    for i in range(min(max(pdfium.FPDF_StructElement_GetAttributeCount(element), 0), 8)):
        attribute = pdfium.FPDF_StructElement_GetAttributeAtIndex(element, i)
        value = pdfium.FPDF_StructElement_Attr_GetValue(attribute, name) if attribute else None
        number = ctypes.c_float()
        if value and pdfium.FPDF_StructElement_Attr_GetNumberValue(value, number):
            return int(min(max(number.value, 1), _MAX_SPAN))
    return 1
