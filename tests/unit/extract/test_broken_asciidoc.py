"""Letters of AsciiDoc cells that were taken for styles."""

from __future__ import annotations

import time

import pytest

from pipeline.extract.extractor import BlockExtractor

pytestmark = pytest.mark.requirement("A2")


def _table(*lines: str) -> str:
    body = "\n".join(("|===", *lines, "|==="))
    blocks = BlockExtractor().extract(body.encode(), "text/asciidoc").blocks
    return next(block.text for block in blocks if block.type == "table")


def test_the_last_letter_of_a_cell_stays() -> None:
    assert _table("|Kind|Count", "", "|pumps|a", "|a|b", "|valves and|m") == (
        "| Kind | Count |\n| --- | --- |\n| pumps | a |\n| a | b |\n| valves and | m |"
    )


def test_spans_and_styles_are_still_styles() -> None:
    head = "| Kind | Count |\n| --- | --- |\n"
    assert _table("|Kind|Count", "", "2+|both", "|x|y") == head + "| both |  |\n| x | y |"
    assert _table("|Kind|Count", "", "s|bold|it", "|a \\| b|d") == head + "| bold | it |\n| a \\| b | d |"


def test_long_lines_take_no_time() -> None:
    for line in ("|" + "a" * 100_000, "|a" * 50_000, "a" * 100_000 + "\\|" * 1000):
        began = time.process_time()
        BlockExtractor().extract(f"|===\n{line}\n|===\n".encode(), "text/asciidoc")
        assert time.process_time() - began < 9
