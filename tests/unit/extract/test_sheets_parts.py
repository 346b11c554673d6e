"""Workbooks to blocks: what stands beside the cells, what is broken, and limits."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from pipeline.errors import DocumentError
from pipeline.extract.reading import Limits
from tests.unit.extract.workbooks import one_sheet, patched, read, shape, workbook


@pytest.mark.requirement("A2")
def test_links_notes_and_drawn_texts_are_kept() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")
        sheet.write_row(0, 0, ["name", "where"])
        sheet.write(1, 0, "guide")
        sheet.write_url(1, 1, "https://example.org/guide", string="open")
        sheet.write(2, 0, "shop")
        sheet.write_formula(2, 1, '=HYPERLINK("https://example.org/shop","buy")', None, "buy")
        sheet.write_comment(2, 0, "closed on Monday", {"author": "Ann"})
        sheet.write_comment(8, 8, "on an empty cell")
        sheet.insert_textbox(10, 1, "Text in a box")
        chart = book.add_chart({"type": "column"})
        chart.add_series({"values": "=S!$D$1:$D$2"})
        chart.set_title({"name": "Growth of sales"})
        sheet.insert_chart(15, 1, chart)

    assert shape(write)[1:] == [
        ("table", "| name | where |\n| --- | --- |\n| guide | open (https://example.org/guide) |\n"
                  "| shop [^1] | buy (https://example.org/shop) |"),
        ("list", "- Text in a box\n- Growth of sales"),
        ("footnote", "[^1] closed on Monday"),
        ("footnote", "[^2] on an empty cell"),
    ]  # fmt: skip


@pytest.mark.requirement("A2")
def test_threaded_comments_lose_the_program_s_preface() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")
        sheet.write(0, 0, "cell")
        sheet.write_comment(0, 0, "[Threaded comment]\n\nYour version cannot show it.\n\nComment:\n    Ask Ann.")

    assert shape(write)[-1] == ("footnote", "[^1] Ask Ann.")


@pytest.mark.requirement("A2")
def test_dimensions_that_lie_and_far_cells_cost_nothing() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")
        sheet.write(0, 0, "near")
        sheet.write(1_048_575, 16_383, "far")
        sheet.write(500_000, 3, "between")

    data = patched(
        workbook(write),
        {"xl/worksheets/sheet1.xml": lambda x: re.sub(r'<dimension ref="[^"]*"', '<dimension ref="A1:XFD1048576"', x)},
    )
    start = time.process_time()
    assert [b.text for b in read(data).blocks] == ["S", "near", "between", "far"]
    assert time.process_time() - start < 15


@pytest.mark.requirement("A2")
def test_a_wide_diagonal_stays_small() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")
        for n in range(3000):
            sheet.write(n, n, f"c{n}")
            sheet.write(n, n + 1, f"d{n}")

    start = time.process_time()
    blocks = read(workbook(write)).blocks
    text = "\n".join(b.text for b in blocks)
    assert {f"c{n}" for n in range(3000)} <= set(re.findall(r"c\d+", text))
    assert len(text) < 100_000
    assert time.process_time() - start < 20


@pytest.mark.requirement("A2")
def test_long_sheets_end_at_the_limit_of_output() -> None:
    data = workbook(one_sheet([["word", n] for n in range(5000)]))
    assert len(read(data).blocks[1].text.split("\n")) == 5000
    with pytest.raises(DocumentError, match=r"raise extraction\.output_mb") as caught:
        read(data, Limits(output_bytes=20_000))
    assert caught.value.kind == "output"


@pytest.mark.requirement("A2")
def test_macros_are_left_alone_and_said() -> None:
    data = patched(
        workbook(one_sheet([["a", 1], ["b", 2]])),
        {"[Content_Types].xml": lambda x: x.replace(
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml",
            "application/vnd.ms-excel.sheet.macroEnabled.main+xml")},
        {"xl/vbaProject.bin": "macro"},
    )  # fmt: skip
    reading = read(data)
    assert [w.partition(":")[0] for w in reading.warnings] == ["macro"]
    assert "| a | 1 |" in reading.blocks[1].text


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("part", ["xl/workbook.xml", "xl/worksheets/sheet1.xml", "[Content_Types].xml"])
def test_a_broken_workbook_is_refused_with_a_sentence(part: str) -> None:
    data = patched(workbook(one_sheet([["a", 1]])), {part: lambda xml: xml[: len(xml) // 2]})
    with pytest.raises(DocumentError, match=r"^body: the workbook cannot be read \(\w+\); open it") as caught:
        read(data)
    assert caught.value.kind == "malformed"


@pytest.mark.requirement("A2")
def test_broken_side_parts_cost_no_cell() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")
        sheet.write_row(0, 0, ["a", "b"])
        sheet.write_comment(0, 0, "note")

    broken = {
        "xl/comments1.xml": lambda x: x[:50],
        "xl/styles.xml": lambda x: x[:100],
        "docProps/core.xml": lambda x: "<",
    }
    reading = read(patched(workbook(write), broken))
    assert [b.text for b in reading.blocks] == ["S", "| a | b |"]
    assert [w.partition(":")[0] for w in reading.warnings] == ["styles", "comments"]


@pytest.mark.requirement("A2", "I6")
def test_the_same_workbook_gives_the_same_blocks() -> None:
    data = workbook(one_sheet([["a", "b", None, "c"], [1, 2, None, 3], [None, 5, None, 6]]))
    assert read(data) == read(data)


@pytest.mark.requirement("A2")
def test_a_workbook_without_text_has_headings_alone() -> None:
    assert shape(lambda book: book.add_worksheet("Empty") and None) == [("heading", "Empty")]
