"""Plain text: what its layout plainly says, and nothing guessed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract import BlockExtractor
from pipeline.extract.reading import Body
from pipeline.extract.text import MAX_PIECE, MIN_PIECE, read, read_text


def shapes(text: str) -> list[tuple[str, str]]:
    return [(block.type, block.text) for block in read_text(text)]


@pytest.mark.requirement("A2")
def test_paragraphs_keep_their_lines_and_titles_are_not_guessed() -> None:
    assert shapes("TITLE\n=====\n\nFirst line  \nsecond line\n \t\n\n   indented\n") == [
        ("paragraph", "TITLE\n====="), ("paragraph", "First line\nsecond line"), ("paragraph", "   indented"),
    ]  # fmt: skip


@pytest.mark.requirement("A2")
def test_lists_keep_nesting_continuations_and_their_lead() -> None:
    text = (
        "What to bring:\n- a rope\n  of ten metres\n  * a hook\n- a lamp\n\n1) one\n2) two\n\n- only one\nmore words\n"
    )
    assert shapes(text) == [
        ("paragraph", "What to bring:"),
        ("list", "- a rope\n  of ten metres\n  * a hook\n- a lamp"),
        ("list", "1) one\n2) two"),
        ("paragraph", "- only one\nmore words"),
    ]


@pytest.mark.requirement("A2")
def test_quoted_lines_are_quotes_and_one_arrow_is_none() -> None:
    assert shapes("Ann wrote:\n> The pump is\n> > broken\n> again.\nIt is not.\n\n> all quoted\n\na\n> b\nc") == [
        ("paragraph", "Ann wrote:"), ("quote", "The pump is\nbroken\nagain."), ("paragraph", "It is not."),
        ("quote", "all quoted"), ("paragraph", "a\n> b\nc"),
    ]  # fmt: skip


@pytest.mark.requirement("A2")
def test_indented_code_is_kept_byte_for_byte() -> None:
    code = "    for x in y:\n\treturn {x}  \n\n\n    print(x)"
    text = (
        f"Run this:\n\n{code}\n\nand then wait for a while.\n\n- item\n\n    more (of it)\n\nLast words of the text.\n"
    )
    assert shapes(text) == [
        ("paragraph", "Run this:"), ("code", code), ("paragraph", "and then wait for a while."),
        ("paragraph", "- item"), ("code", "    more (of it)"), ("paragraph", "Last words of the text."),
    ]  # fmt: skip


@pytest.mark.requirement("A2")
def test_a_layout_that_indents_everything_holds_no_code() -> None:
    text = "NAME\n\n" + "\n\n".join(f"       word; (number {i}) = of the manual" for i in range(20))
    assert {kind for kind, _ in shapes(text)} == {"paragraph"}


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "drawn",
    [
        "+------+-------+\n| Name | Value |\n+======+=======+\n| a    | 1     |\n| b    | 2/3   |\n+------+-------+",
        "+------+-------+\n| Name | Value |\n+------+-------+\n| a    | 1     |\n+------+-------+\n| b | 2/3 |\n+--+",
        " Name | Value \n------+-------\n a    | 1     \n b    | 2/3",
        "| Name | Value |\n|------|:-----:|\n| a | 1 |\n| b | 2/3 |",
    ],
)
def test_drawn_tables_are_tables_with_a_header(drawn: str) -> None:
    (block,) = read_text(drawn)
    assert (block.type, block.header) == ("table", "| Name | Value |\n| --- | --- |")
    assert block.text.split("\n")[2:] == ["| a | 1 |", "| b | 2/3 |"]


@pytest.mark.requirement("A2")
def test_cells_of_several_lines_and_notes_below_a_table() -> None:
    grid = "+---+----+\n| A | B  |\n+---+----+\n| 1 | in |\n|   | it |\n+---+----+\n| 2 | x  |\n+---+----+"
    (block,) = read_text(grid)
    assert block.text == "| A | B |\n| --- | --- |\n| 1 | in it |\n| 2 | x |"
    assert read_text(" n | m \n---+---\n 1 | 2\n(1 row)")[0].text.endswith("| 1 | 2 |\n| (1 row) |  |")
    assert shapes("a | b\nplain\nc | d")[0][0] == "paragraph"
    assert shapes("+--+\nno table\n+--+")[0][0] == "paragraph"


@pytest.mark.requirement("A2")
def test_form_feeds_part_pages() -> None:
    reading = read(Body(b"", "text/plain", "Page one\n\fPage two\nmore\n\f\n\fPage four\n\f\n"))
    assert [(b.text, b.page) for b in reading.blocks] == [("Page one", 1), ("Page two\nmore", 2), ("Page four", 4)]
    assert reading.pages == 4
    single = read(Body(b"", "text/plain", "One page\n\f"))
    assert (single.pages, single.blocks[0].page) == (None, None)


def log(lines: int) -> str:
    return "".join(f"2026-03-02 10:{i % 60:02d}:01 INFO worker {i} took {i * 7919 % 977} ms\n" for i in range(lines))


@pytest.mark.requirement("A2", "I6")
def test_a_log_is_cut_at_lines_and_a_new_line_moves_only_the_first_cut() -> None:
    text = log(20_000)
    pieces = [block.text for block in read_text(text)]
    assert "\n".join(pieces) + "\n" == text
    assert all(len(piece) <= MAX_PIECE for piece in pieces)
    assert all(len(piece) >= MIN_PIECE for piece in pieces[:-1])
    edited = [block.text for block in read_text("2026-03-01 one line before\n" + text)]
    assert len(set(pieces) - set(edited)) <= 3


@pytest.mark.requirement("A2", "I8")
def test_fifty_megabytes_of_log_take_linear_time() -> None:
    started = time.process_time()
    small = len(read_text(log(20_000)))
    first = time.process_time() - started
    started = time.process_time()
    assert len(read_text(log(200_000))) > 8 * small
    assert time.process_time() - started < 30 * first + 2
    for hostile in (" " * 2_000_000 + "x", "\n \n" * 300_000, "a|" * 500_000, ">" * 500_000, "- x\n" * 200_000):
        started = time.process_time()
        read_text(hostile)
        assert time.process_time() - started < 9


@pytest.mark.requirement("A2", "F14")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["alpha", "- beta", "> gamma", "    delta()", "| e | f |", "|---|---|", "+--+", "", "\f", "1. z"]
        )
    )
)
def test_every_word_of_every_layout_is_kept(lines: list[str]) -> None:
    blocks = BlockExtractor().extract("\n".join(lines).encode(), "text/plain").blocks
    kept = " ".join(block.text for block in blocks)
    for word in ("alpha", "beta", "gamma", "delta()", "z"):
        assert kept.count(word) == sum(word in line for line in lines)
