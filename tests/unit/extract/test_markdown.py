"""Markdown to typed blocks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract import BlockExtractor
from schemas.documents import Block


def read(text: str) -> tuple[Block, ...]:
    return BlockExtractor().extract(text.encode(), "text/markdown").blocks


def shape(text: str) -> list[tuple[str, str]]:
    return [(block.type, block.text) for block in read(text)]


PYTHON = """def area(width, height):
    # two sides

    if width < 0:
    \traise ValueError("width")

    total = width * height

\treturn total


print(area(2, 3))"""


@pytest.mark.requirement("A2", "F11")
def test_code_keeps_every_byte() -> None:
    blocks = read(f"Before.\n\n```python\n{PYTHON}\n```\n\nAfter.")
    assert [block.type for block in blocks] == ["paragraph", "code", "paragraph"]
    assert blocks[1].text == PYTHON
    assert blocks[1].language == "python"


@pytest.mark.requirement("A2", "F12")
@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
def test_a_comment_in_a_fence_is_no_heading(fence: str) -> None:
    code = "# first comment\nmake all\n\n# second comment\n## third\nmake test"
    blocks = read(f"# Title\n\n{fence}sh\n{code}\n{fence}\n\ntext")
    assert [(b.type, b.text) for b in blocks] == [
        ("heading", "Title"),
        ("code", code),
        ("paragraph", "text"),
    ]


@pytest.mark.requirement("A2")
def test_headings_carry_their_level() -> None:
    blocks = read("# One\n\nTwo\n---\n\n### Three *em* ###\n")
    assert [(b.type, b.level, b.text) for b in blocks] == [
        ("heading", 1, "One"),
        ("heading", 2, "Two"),
        ("heading", 3, "Three em"),
    ]


@pytest.mark.requirement("A2")
def test_lists_keep_nesting_and_markers() -> None:
    assert shape("- one\n- two\n  - inner\n    1. deep\n    2. deeper\n- three") == [
        ("list", "- one\n- two\n  - inner\n    1. deep\n    2. deeper\n- three")
    ]
    assert shape("3. c\n4. d") == [("list", "3. c\n4. d")]


@pytest.mark.requirement("A2", "F11")
def test_code_inside_a_list_stays_whole_and_the_list_goes_on() -> None:
    assert shape("1. install\n\n   ```sh\n   make  all\n   \tmake test\n   ```\n2. run\n") == [
        ("list", "1. install"),
        ("code", "make  all\n\tmake test"),
        ("list", "2. run"),
    ]


@pytest.mark.requirement("A2")
def test_tables_become_pipe_text_with_their_header() -> None:
    (table,) = read("| Plan | Seats |\n|:--|--:|\n| Team | 25 |\n| `a\\|b` | x<br>y |\n")
    assert table.type == "table"
    assert table.header == "| Plan | Seats |\n| --- | --- |"
    assert table.text == "| Plan | Seats |\n| --- | --- |\n| Team | 25 |\n| a\\|b | x y |"


@pytest.mark.requirement("A2")
def test_links_keep_their_text_and_useful_addresses() -> None:
    assert shape("See [the guide](https://example.org/guide) and [home](../index.md).") == [
        ("paragraph", "See the guide (https://example.org/guide) and home.")
    ]
    assert shape("Ask <https://example.org/x> or [here](form.md) or [ann@example.org](mailto:ann@example.org)") == [
        ("paragraph", "Ask https://example.org/x or here (form.md) or ann@example.org")
    ]
    assert shape("[x](tel:+4912345) [y](#part)") == [("paragraph", "x y")]


@pytest.mark.requirement("A2")
def test_quotes_images_breaks_and_placeholders() -> None:
    assert shape("> Said *she*.\n>\n> And he.") == [("quote", "Said she."), ("quote", "And he.")]
    assert shape("![a red valve](valve.png) is shut") == [("paragraph", "a red valve is shut")]
    assert shape("one\ntwo  \nthree<br>four") == [("paragraph", "one two\nthree\nfour")]
    assert shape("kubectl -n <namespace> get <b>pods</b>") == [("paragraph", "kubectl -n <namespace> get pods")]


@pytest.mark.requirement("A2")
def test_html_inside_markdown_is_read_as_html() -> None:
    text = (
        "Intro\n\n<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>\n\n<script>x()</script>\n"
    )
    assert shape(text) == [
        ("paragraph", "Intro"),
        ("table", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("body", ["", "   \n\n\t\n", "---\ntitle: Only this\n---\n", "<!-- nothing -->"])
def test_an_empty_body_has_no_blocks(body: str) -> None:
    assert read(body) == ()


@pytest.mark.requirement("A2")
def test_deep_nesting_neither_recurses_nor_loses_text() -> None:
    for text in (">" * 5000 + " kept", "- " * 5000 + "kept", "".join("  " * i + "- kept\n" for i in range(300))):
        found = "\n".join(block.text for block in read(text))
        assert found.count("kept") == text.count("kept")


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "unit", ["word *em* [l](http://x.y) `c`\n", "[", "[a](", "`a ", "*a **b ", "<a ", "![", "&a;", "\\*", "|a|\n|-|\n"]
)
def test_time_grows_with_length_alone(unit: str) -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        read(unit * (length // len(unit)))
        return time.process_time() - started

    seconds(2_000)  # imports and caches
    small, large = seconds(10_000), seconds(80_000)
    assert large < 24 * small + 2, f"{small:.3f} s for 10 kB, {large:.3f} s for 80 kB"


@pytest.mark.requirement("A2", "F11")
@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(blacklist_categories=("Cs", "Cc"), whitelist_characters="\n\t"), max_size=200))
def test_any_code_survives_a_fence(code: str) -> None:
    if "\x85" in code or "`````" in code or not code.strip():
        return
    (block,) = read(f"`````text\n{code}\n`````\n")
    assert block.type == "code"
    assert block.text == code


@pytest.mark.requirement("A2")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{1,8}( [a-z]{1,8}){0,5}", fullmatch=True), min_size=1, max_size=12))
def test_no_paragraph_is_lost(paragraphs: list[str]) -> None:
    assert shape("\n\n".join(paragraphs)) == [("paragraph", text) for text in paragraphs]


def _row(line: str) -> tuple[list[str], tuple[str, ...]]:
    """A row below a header of two columns as it is read, and the warnings."""
    text = f"| a | b |\n|---|---|\n{line}\n"
    reading = BlockExtractor().extract(text.encode(), "text/markdown")
    (table,) = reading.blocks
    return table.text.split("\n")[2:], reading.warnings


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("| `x|y` | two |", "| x\\|y | two |"),
        ("| one | `x | y` |", "| one | x \\| y |"),
        ("``x|`|y`` | two", "| x\\|`\\|y | two |"),
        ("| one \\| more | two |", "| one \\| more | two |"),
        ("| one |", "| one |  |"),
    ],
)
def test_a_bar_in_code_parts_no_cells(line: str, row: str) -> None:
    assert _row(line) == ([row], ())


@pytest.mark.requirement("A2")
def test_cells_beyond_the_header_stay_in_the_last_and_are_told() -> None:
    lines = "| one | two | three | four |\n| ` one | two | three\n| one | two |"
    rows, warnings = _row(lines)
    assert rows == ["| one | two \\| three \\| four |", "| ` one | two \\| three |", "| one | two |"]
    assert warnings == ("table: 2 rows have more cells than their header; the rest stands in the last cell",)


@pytest.mark.requirement("A2")
def test_long_rows_are_told_wherever_the_table_stands() -> None:
    table = "| a | b |\n|---|---|\n| c | d | e |"
    note = "Text.[^1]\n\n[^1]: Note.\n\n" + "\n".join(f"    {line}" for line in table.split("\n"))
    quoted = "\n".join(f"> {line}" for line in table.split("\n"))
    for text in (note, quoted, f"```{{note}}\n{table}\n```"):
        reading = BlockExtractor().extract(text.encode(), "text/markdown")
        assert reading.warnings == (
            "table: 1 rows have more cells than their header; the rest stands in the last cell",
        ), text
        assert "e" in reading.blocks[-1].text


@pytest.mark.requirement("A2")
def test_a_row_of_forty_thousand_cells_takes_no_time() -> None:
    for cell in ("x|", "`x|", "``x|`"):
        began = time.process_time()
        rows, _ = _row("y|" + cell * 40_000)
        assert time.process_time() - began < 15 and rows[0].count("x") == 40_000
