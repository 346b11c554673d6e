"""Hidden elements of HTML around and inside Markdown."""

from __future__ import annotations

import time

import pytest

from pipeline.extract.extractor import BlockExtractor

pytestmark = pytest.mark.requirement("A2")


def _texts(body: str) -> list[str]:
    return [block.text for block in BlockExtractor().extract(body.encode(), "text/markdown").blocks]


@pytest.mark.parametrize("opening", ['<div style="display:none">', "<div hidden>", '<div class="x" hidden="">'])
def test_markdown_inside_a_hidden_element_is_hidden(opening: str) -> None:
    body = f"Before.\n\n{opening}\n\nSecret *words*.\n\n<div>\n\n- more\n\n</div>\n\n```\ncode\n```\n\n</div>\n\nAfter."
    assert _texts(body) == ["Before.", "After."]


def test_hidden_words_of_a_paragraph_are_left_out() -> None:
    body = 'See <span hidden>secret [x](y) <b>too</b></span>the <span>shown</span> <i style="display: none">not</i>end.'
    assert _texts(body) == ["See the shown end."]


def test_what_is_shown_or_never_closed_stays() -> None:
    assert _texts('<div style="color:red">\n\nShown.\n\n</div>') == ["Shown."]
    assert _texts("<div hidden>\n\nKept.\n\n# End") == ["Kept.", "End"]
    assert _texts("`<span hidden>` and `</span>` are code.") == ["<span hidden> and </span> are code."]


@pytest.mark.parametrize(
    "body",
    [
        "- <div hidden>\n\n  kept\n\n> </div>\n>\n> quoted\n\nend",
        "> <div hidden>\n\n- kept\n\n  </div>\n\nend",
        "<div hidden>\n\n> kept\n>\n> </div>\n\nend",
        "<span hidden>a ~~kept</span> b~~ end",
        "~~a <span hidden>kept~~ b</span> end",
    ],
)
def test_an_element_that_does_not_end_where_it_began_hides_nothing(body: str) -> None:
    text = " ".join(_texts(body))
    assert "kept" in text and "end" in text


def test_ten_thousand_hidden_elements_take_no_time() -> None:
    for body in ("<div hidden>\n\nx\n\n" * 5000, "<b hidden>x" * 1500 + "</b>" * 1500):
        began = time.process_time()
        BlockExtractor().extract(body.encode(), "text/markdown")
        assert time.process_time() - began < 15
