"""Delimited text to a table: which delimiter it has, and that no line of it is lost."""

from __future__ import annotations

import csv
import io
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract.media import CSV, TSV
from pipeline.extract.reading import Body, Reading
from pipeline.extract.sheets import read_csv


def read(text: str, media: str = CSV) -> Reading:
    return read_csv(Body(data=text.encode(), media=media, text=text))


def table(text: str, media: str = CSV) -> str:
    (block,) = read(text, media).blocks
    assert block.type == "table"
    return block.text


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "text",
    [
        "part,count,price\nvalve,3,1.5\npump,4,2.5\n",
        "part;count;price\nvalve;3;1.5\npump;4;2.5\n",
        "part\tcount\tprice\nvalve\t3\t1.5\npump\t4\t2.5\n",
        "part|count|price\nvalve|3|1.5\npump|4|2.5",
        '"part","count","price"\n"valve","3","1.5"\n"pump","4","2.5"\n',
        "\ufeffpart, count, price\nvalve, 3, 1.5\npump, 4, 2.5\n",
        "sep=;\npart;count;price\nvalve;3;1.5\npump;4;2.5\n",
        "sep=\t\npart\tcount\tprice\nvalve\t3\t1.5\npump\t4\t2.5\n",
        "part,count,price\n\nvalve,3,1.5\n,,\npump,4,2.5\n\n",
    ],
)
def test_the_delimiter_is_found_out(text: str) -> None:
    block = read(text).blocks[0]
    assert block.text == "| part | count | price |\n| --- | --- | --- |\n| valve | 3 | 1.5 |\n| pump | 4 | 2.5 |"
    assert block.header == "| part | count | price |\n| --- | --- | --- |"


@pytest.mark.requirement("A2")
def test_decimal_commas_do_not_outweigh_semicolons() -> None:
    text = "name;length;width\nplank;1,5;2,5\nbeam;3,5;4,0\nrod;5,0;6,1\n"
    assert table(text).split("\n")[2] == "| plank | 1,5 | 2,5 |"


@pytest.mark.requirement("A2")
def test_quoted_fields_hold_delimiters_quotes_and_line_feeds() -> None:
    text = 'name,remark\nvalve,"red, round\nand ""new"""\npump,"a|b"\n'
    assert table(text).split("\n")[2:] == ['| valve | red, round and "new" |', "| pump | a\\|b |"]


@pytest.mark.requirement("A2")
def test_ragged_rows_keep_all_their_fields() -> None:
    text = "a,b,c\n1,2\n3,4,5,6\n7,8,9\n"
    lines = table(text).split("\n")
    assert [line.replace(" |  |", " |").replace(" |  |", " |") for line in lines[2:]] == [
        "| 1 | 2 |",
        "| 3 | 4 | 5 | 6 |",
        "| 7 | 8 | 9 |",
    ]


@pytest.mark.requirement("A2")
def test_a_quotation_mark_that_nothing_closes_takes_in_no_other_row() -> None:
    reading = read('part,size\nscreen,"15 inch\npump,3\nvalve,"4"\n')
    assert reading.blocks[0].text.split("\n")[2:] == ['| screen | "15 inch |', "| pump | 3 |", "| valve | 4 |"]
    assert reading.warnings == ["table: a quotation mark is never closed; every line was read as a row"]


@pytest.mark.requirement("A2")
def test_a_field_beyond_the_library_s_limit_is_kept() -> None:
    huge = "y" * 300_000
    before = csv.field_size_limit()
    text = "".join(f"{n},short\n" for n in range(50)) + f"50,{huge}\n"
    assert table(text).endswith(f"| 50 | {huge} |")
    assert csv.field_size_limit() == before


@pytest.mark.requirement("A2")
def test_one_column_is_lines_and_prose_is_text() -> None:
    (lines,) = read("apple\npear\nplum\n").blocks
    assert (lines.type, lines.text) == ("paragraph", "apple\npear\nplum")
    prose = "Dear all, the pump, which failed on Monday, runs again.\n\nIt was, in the end, the valve that leaked.\n"
    assert [(b.type, b.text) for b in read(prose).blocks] == [
        ("paragraph", "Dear all, the pump, which failed on Monday, runs again."),
        ("paragraph", "It was, in the end, the valve that leaked."),
    ]
    assert read(" \n").blocks == []


@pytest.mark.requirement("A2")
def test_a_type_of_tabs_needs_no_guess() -> None:
    assert table("a,b\tc\nd,e\tf\n", TSV).split("\n")[-1] == "| d,e | f |"


@pytest.mark.requirement("A2")
def test_numbers_and_repeated_words_above_are_no_header() -> None:
    assert read("x,x\na,b\nc,d\n").blocks[0].header is None
    assert read("x,y\na,b\nc,d\n").blocks[0].header is not None
    assert read("1,2\n3,4\n5,6\n").blocks[0].header is None


@pytest.mark.requirement("A2")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.text(alphabet="ab1 ,;|\t\"'\nü", max_size=8), min_size=2, max_size=4), min_size=1, max_size=6),
    st.sampled_from(",;\t|"),
)
def test_no_word_is_lost_whatever_the_text_is(rows: list[list[str]], delimiter: str) -> None:
    target = io.StringIO()
    csv.writer(target, delimiter=delimiter, lineterminator="\n").writerows(rows)
    kept = "".join(block.text for block in read(target.getvalue()).blocks)
    for letter in "ab1ü":
        assert kept.count(letter) == target.getvalue().count(letter)


@pytest.mark.requirement("A2")
def test_the_time_grows_with_the_length() -> None:
    for text in ('"' * 400_000, 'a,"' * 100_000, "a,b\n" * 100_000, "," * 400_000):
        start = time.process_time()
        read(text)
        assert time.process_time() - start < 20
