"""Cells of DOCX tables that were lost, moved or hidden."""

from __future__ import annotations

import time

import pytest

from pipeline.extract.extractor import BlockExtractor
from pipeline.extract.media import DOCX
from tests.unit.extract.files.pandoc import office

pytestmark = pytest.mark.requirement("A2")
WIDE = '<w:gridCol w:w="100"/>'
TWO = '<w:gridSpan w:val="2"/>'


def _cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>"


def _row(*cells: str, properties: str = "") -> str:
    return f"<w:tr><w:trPr>{properties}</w:trPr>{''.join(cells)}</w:tr>"


def _table(grid: str | None, *rows: str) -> str:
    declared = "" if grid is None else f"<w:tblGrid>{grid}</w:tblGrid>"
    return f"<w:tbl>{declared}{''.join(rows)}</w:tbl><w:p/>"


def _read(table: str) -> str:
    made = BlockExtractor().extract(office.docx(table), DOCX)
    return next(block.text for block in made.blocks if block.type == "table")


@pytest.mark.parametrize("grid", [None, "", "<w:gridCol/>" * 3, WIDE, WIDE * 2, WIDE * 3, WIDE * 5])
def test_no_cell_is_lost_whatever_the_grid_declares(grid: str | None) -> None:
    spanned = _table(grid, _row(_cell("North"), _cell("South", TWO)), _row(_cell("a"), _cell("b"), _cell("c")))
    assert _read(spanned) == "| North | South |  |\n| a | b | c |"
    short = _table(grid, _row(_cell("North"), _cell("South")), _row(_cell("a"), _cell("b"), _cell("c")))
    assert _read(short) == "| North | South |  |\n| a | b | c |"


def test_a_row_that_begins_further_right_stays_there() -> None:
    later = _row(_cell("b"), _cell("c"), properties='<w:gridBefore w:val="1"/>')
    assert _read(_table(WIDE * 3, _row(_cell("h"), _cell("i"), _cell("j")), later)) == "| h | i | j |\n|  | b | c |"


def test_a_hidden_row_is_left_out() -> None:
    marks = ("", "<w:hidden/>", '<w:hidden w:val="0"/>')
    rows = [_row(_cell(f"r{i}"), _cell("x"), properties=mark) for i, mark in enumerate(marks)]
    assert _read(_table(WIDE * 2, *rows)) == "| r0 | x |\n| r2 | x |"


def test_tables_within_tables_and_absurd_spans_cost_no_more_than_their_size() -> None:
    inner = "x"
    for _ in range(60):
        inner = f"<w:tbl><w:tr><w:tc>{inner if inner != 'x' else '<w:p/>'}<w:p/></w:tc></w:tr></w:tbl>"
    wide = _table(None, _row(_cell("first")), _row(*[_cell("", '<w:gridSpan w:val="999999999"/>')] * 200))
    began = time.process_time()
    made = BlockExtractor().extract(office.docx(inner + "<w:p/>" + wide), DOCX)
    assert time.process_time() - began < 15
    assert any("first" in block.text for block in made.blocks)
