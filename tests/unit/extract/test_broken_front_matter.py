"""Front matter that made its parsers raise, or take their time."""

from __future__ import annotations

import time

import pytest

from pipeline.extract.extractor import BlockExtractor
from pipeline.extract.front_matter import split

pytestmark = pytest.mark.requirement("A2")


@pytest.mark.parametrize(
    "line",
    [
        "title: !!bool maybe",
        "title: !!timestamp someday",
        'title: !!int ""',
        'title: !!int "_"',
        'title: !!float ""',
        "title: 0x" + "f" * 6000,
        "0x" + "f" * 1000 + ": key",
    ],
)
def test_a_value_that_is_not_what_its_tag_says_costs_no_body(line: str) -> None:
    made = BlockExtractor().extract(f"---\n{line}\n---\nThe body.".encode(), "text/markdown")
    assert made.blocks[-1].text == "The body."


def test_numbers_of_thousands_of_digits_are_no_titles() -> None:
    for text in (f"---\ntitle: 0x{'f' * 6000}\n---\nx", f"+++\ntitle = 0x{'f' * 6000}\n+++\nx"):
        front = split(text)
        assert front.string("title") is None and front.body == "x"
        assert front.warnings == ("front matter: title is not a text; left out",)


def test_norwegian_is_a_language() -> None:
    assert split("---\nlanguage: no\n---\nx").string("language") == "no"


def test_a_toml_key_of_thousands_of_parts_takes_no_time() -> None:
    for line in (".".join("a" * 30_000) + " = 1", "[" + ".".join("a" * 30_000) + "]"):
        began = time.process_time()
        front = split(f"+++\ntitle = 'Kept'\n{line}\n+++\nx")
        assert time.process_time() - began < 3
        assert front.string("title") == "Kept" and front.body == "x"
