"""Workbooks to blocks: what a reader of the sheet sees, no more and no less."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest

from tests.unit.extract.workbooks import one_sheet, patched, read, shape, workbook


@pytest.mark.requirement("A2")
def test_each_sheet_is_a_heading_over_its_table() -> None:
    def write(book: Any) -> None:
        book.set_properties({"title": "Stock of valves"})
        for name in ("North", "South"):
            sheet = book.add_worksheet(name)
            sheet.write_row(0, 0, ["Part", "Count"])
            sheet.write_row(1, 0, [f"valve {name}", 12])
            sheet.write_row(2, 0, ["a | b", 7])

    reading = read(workbook(write))
    assert (reading.title, reading.warnings) == ("Stock of valves", [])
    assert [(b.type, b.level, b.text) for b in reading.blocks] == [
        ("heading", 1, "North"),
        ("table", 0, "| Part | Count |\n| --- | --- |\n| valve North | 12 |\n| a \\| b | 7 |"),
        ("heading", 1, "South"),
        ("table", 0, "| Part | Count |\n| --- | --- |\n| valve South | 12 |\n| a \\| b | 7 |"),
    ]
    assert reading.blocks[1].header == "| Part | Count |\n| --- | --- |"


@pytest.mark.requirement("A2")
def test_values_stand_as_the_sheet_shows_them() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")

        def form(code: str) -> Any:
            return book.add_format({"num_format": code})

        sheet.write_row(0, 0, ["name", "value"])
        cells = [
            ("share", 0.25, "0%"),
            ("rate", 0.0375, "0.00%"),
            ("price", 1234567.5, '#,##0.00 "€"'),
            ("loss", -12.5, "0.00;[Red](0.00)"),
            ("dollars", 99.5, "[$$-409]#,##0.00"),
            ("number", 7, "000"),
            ("sum", 0.1 + 0.2, "General"),
            ("big", 123456789012, "General"),
            ("million", 2_500_000, '0.0,,"M"'),
            ("physics", 0.00012345, "0.00E+00"),
        ]
        for number, (name, value, code) in enumerate(cells, 1):
            sheet.write(number, 0, name)
            sheet.write_number(number, 1, value, form(code))
        sheet.write(11, 0, "day")
        sheet.write_datetime(11, 1, dt.datetime(2026, 1, 31), form("dd.mm.yyyy"))
        sheet.write(12, 0, "moment")
        sheet.write_datetime(12, 1, dt.datetime(2026, 1, 31, 14, 30), form("m/d/yy h:mm"))
        sheet.write(13, 0, "clock")
        sheet.write_datetime(13, 1, dt.time(7, 45), form("h:mm AM/PM"))
        sheet.write(14, 0, "period")
        sheet.write_datetime(14, 1, dt.timedelta(hours=26, minutes=30), form("[h]:mm"))
        sheet.write(15, 0, "yes")
        sheet.write_boolean(15, 1, True)
        sheet.write(16, 0, "total")
        sheet.write_formula(16, 1, "=1+1", None, 2)
        sheet.write(17, 0, "broken")
        sheet.write_formula(17, 1, "=A99/0", None, "#DIV/0!")
        sheet.write(18, 0, "rich")
        sheet.write_rich_string(18, 1, "plain ", book.add_format({"bold": True}), "bold", " end")
        sheet.write(19, 0, "text")
        sheet.write_string(19, 1, "007")

    text = shape(write)[1][1]
    values = dict(re.findall(r"^\| (\w+) \| (.*) \|$", text, re.MULTILINE))
    assert values == {
        "name": "value",
        "share": "25%",
        "rate": "3.75%",
        "price": "1,234,567.50 €",
        "loss": "(12.50)",
        "dollars": "$99.50",
        "number": "007",
        "sum": "0.3",
        "big": "123456789012",
        "million": "2.5M",
        "physics": "1.23E-04",
        "day": "2026-01-31",
        "moment": "2026-01-31 14:30",
        "clock": "07:45",
        "period": "26:30",
        "yes": "TRUE",
        "total": "2",
        "broken": "#DIV/0!",
        "rich": "plain bold end",
        "text": "007",
    }


@pytest.mark.requirement("A2")
def test_dates_of_workbooks_that_count_from_1904() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")
        sheet.write_row(0, 0, ["event", "day"])
        sheet.write(1, 0, "start")
        sheet.write_datetime(1, 1, dt.datetime(2026, 3, 2), book.add_format({"num_format": 14}))

    assert "2026-03-02" in read(workbook(write, date_1904=True)).blocks[1].text


@pytest.mark.requirement("A2")
def test_a_formula_that_was_never_calculated_stands_as_typed() -> None:
    data = workbook(one_sheet([["a", "b"], [1, "=A2*2"], [2, "=A3*2"]]))
    data = patched(
        data,
        {
            "xl/worksheets/sheet1.xml": lambda xml: re.sub(
                r"<f>A3\*2</f><v>0</v>",
                '<f t="shared" si="0"/>',
                re.sub(r"<f>A2\*2</f><v>0</v>", '<f t="shared" ref="B2:B3" si="0">A2*2</f>', xml),
            )
        },
    )
    reading = read(data)
    assert reading.blocks[1].text == "| a | b |\n| --- | --- |\n| 1 | =A2*2 |\n| 2 | =A3*2 |"
    assert reading.warnings == [
        "sheet S: 2 formulas were never calculated and stand as typed; open and save the workbook once"
    ]


@pytest.mark.requirement("A2")
def test_what_is_hidden_is_left_out_and_said() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("Open")
        sheet.write_row(0, 0, ["name", "secret", "count"])
        sheet.write_row(1, 0, ["one", "salary", 1])
        sheet.write_row(2, 0, ["draft", "x", 2])
        sheet.write_row(3, 0, ["three", "y", 3])
        sheet.set_column(1, 1, None, None, {"hidden": True})
        sheet.set_row(2, None, None, {"hidden": True})
        book.add_worksheet("Veiled").write(0, 0, "hidden text")
        book.worksheets()[1].hide()
        book.add_worksheet("Deep").write(0, 0, "deeper text")
        book.worksheets()[2].very_hidden()

    reading = read(workbook(write))
    assert [b.text for b in reading.blocks] == ["Open", "| name | count |\n| --- | --- |\n| one | 1 |\n| three | 3 |"]
    assert reading.warnings == [
        "sheet Open: 1 hidden rows were left out",
        "sheet Open: 1 hidden columns were left out",
        "sheets: 2 hidden, left out: Veiled, Deep",
    ]


@pytest.mark.requirement("A2")
def test_regions_between_empty_rows_and_columns_are_tables_of_their_own() -> None:
    rows: list[list[Any]] = [
        ["Report of the year", None, None, None, None, None],
        [None] * 6,
        ["part", "count", None, "colour", "code", "note"],
        ["valve", 1, None, "red", 7, "x"],
        ["pump", 2, None, "blue", 8, "y"],
        [None, None, None, "green", 9, "z"],
        [None] * 6,
        ["first remark", None, None, None, None, None],
        ["second remark", None, None, None, None, None],
    ]
    assert shape(one_sheet(rows)) == [
        ("heading", "S"),
        ("paragraph", "Report of the year"),
        ("table", "| part | count |\n| --- | --- |\n| valve | 1 |\n| pump | 2 |"),
        (
            "table",
            "| colour | code | note |\n| --- | --- | --- |\n| red | 7 | x |\n| blue | 8 | y |\n| green | 9 | z |",
        ),
        ("list", "- first remark\n- second remark"),
    ]


@pytest.mark.requirement("A2")
def test_an_empty_column_that_only_spaces_a_table_out_does_not_part_it() -> None:
    rows: list[list[Any]] = [["name", None, "price"], ["valve", None, 10], ["pump", None, 20]]
    assert shape(one_sheet(rows))[1] == ("table", "| name | price |\n| --- | --- |\n| valve | 10 |\n| pump | 20 |")


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ([["name", "age"], ["Ann", 4], ["Bob", 5]], True),
        ([["name", "town"], ["Ann", "Ulm"], ["Bob", "Bonn"]], True),
        ([[1, 2], [3, 4]], False),
        ([["2025-01-01", "x"], ["2025-01-02", "y"]], False),
        ([["x", "x"], ["a", 1]], False),
        ([["a" * 150, "b"], ["c", "d"]], False),
    ],
)
def test_a_first_row_of_names_is_the_header(rows: list[list[Any]], header: bool) -> None:
    (block,) = read(workbook(one_sheet(rows))).blocks[1:]
    assert (block.header is not None) is header


@pytest.mark.requirement("A2")
def test_merged_cells_and_a_header_of_two_rows() -> None:
    def write(book: Any) -> None:
        bold = book.add_format({"bold": True})
        sheet = book.add_worksheet("S")
        sheet.merge_range("A1:A2", "region", bold)
        sheet.merge_range("B1:C1", "2025", bold)
        sheet.write_row("B2", ["spring", "autumn"], bold)
        sheet.merge_range("A3:A4", "north")
        sheet.write_row("B3", [1, 2])
        sheet.write_row("B4", [3, 4])

    (table,) = read(workbook(write)).blocks[1:]
    assert table.text.split("\n") == [
        "| region | 2025 |  |",
        "| region | spring | autumn |",
        "| --- | --- | --- |",
        "| north | 1 | 2 |",
        "| north | 3 | 4 |",
    ]


@pytest.mark.requirement("A2")
def test_a_table_object_has_the_header_that_it_declares() -> None:
    def write(book: Any) -> None:
        sheet = book.add_worksheet("S")
        sheet.write("A1", "beside")
        columns = {"columns": [{"header": "2024"}, {"header": "2025"}]}
        sheet.add_table("B1:C3", {"data": [[1, 2], [3, 4]], **columns})

    blocks = read(workbook(write)).blocks[1:]
    assert [b.text for b in blocks] == ["beside", "| 2024 | 2025 |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |"]
