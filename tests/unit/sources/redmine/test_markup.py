"""Textile and Markdown of a Redmine: code kept, macros never expanded, nothing swallowed, in bounded time."""

from __future__ import annotations

import time

import pytest

from pipeline.extract.extractor import BlockExtractor
from pipeline.sources.redmine.bodies import HTML, media_type
from pipeline.sources.redmine.markup import render
from schemas.documents import Block

CODE = "def f():\n\n    # a comment, no heading\n\tx = a < b && c\n\n* no list\nh1. no heading\n"


def blocks(text: str, form: str) -> tuple[Block, ...]:
    return BlockExtractor().extract(render(text, form).encode(), HTML).blocks


@pytest.mark.requirement("A2", "F11", "F12")
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("textile", f'before\n\n<pre><code class="python">\n{CODE}</code></pre>\n\nafter'),
        ("textile", f"before\r\n<pre>\r\n{CODE}</pre>\r\nafter"),
        ("markdown", f"before\n\n```python\n{CODE}```\n\nafter"),
        ("markdown", f"before\n\n~~~\n{CODE}~~~\n\nafter"),
    ],
)
def test_code_keeps_every_character(form: str, text: str) -> None:
    found = blocks(text, form)
    assert [b.text for b in found if b.type == "code"] == [CODE.rstrip("\n")]
    assert not any(b.type == "heading" for b in found)
    assert {"before", "after"} <= {b.text for b in found}


@pytest.mark.requirement("A2", "F13")
def test_textile_blocks() -> None:
    text = "h2(#anchor). Head *line*\n\nOne @a_b@ _two_ -old-, #12.\n\n"
    text += "|_. a|_. b|\n|left\nmore|right #4|\n\n* one\n** two\n# num\n"
    html = render(text, "textile")
    assert "<h2>Head <strong>line</strong></h2>" in html
    assert "<code>a_b</code> <em>two</em> <del>old</del>, #12." in html
    assert "<table><tr><th>a</th><th>b</th></tr><tr><td>left more</td><td>right #4</td></tr></table>" in html
    assert "<ul><li>one<ul><li>two</li></ul></li></ul><ol><li>num</li></ol>" in html


@pytest.mark.requirement("A2")
def test_headings_move_below_those_of_the_issue() -> None:
    assert render("h1. A", "textile", 2) == "<h3>A</h3>"
    assert render("##### A", "markdown", 2).strip() == "<h6>A</h6>"


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("form", ["textile", "markdown"])
def test_macros_show_nothing_that_their_writer_could_not_see(form: str) -> None:
    text = "{{include(Salaries)}} {{child_pages}} {{>toc}} !{{toc}} {{thumbnail(a.png, size=3)}} {{ jinja }}"
    html = render(text, form)
    assert "Salaries" in html and "{{include" not in html and "child_pages" not in html
    assert "{{toc}}" in html and "{{&gt;toc" not in html and "a.png" in html and "{{ jinja }}" in html


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(("form", "opens", "closes"), [("textile", "<pre>", "</pre>"), ("markdown", "```", "```")])
def test_collapsed_text_stays_and_code_in_it_is_not_touched(form: str, opens: str, closes: str) -> None:
    html = render(f"{{{{collapse(More)\nhidden [[Page|label]]\n\n{opens}\n}}}}\n[[x]]\n{closes}\n}}}}\nafter", form)
    assert "More" in html and "hidden label" in html and "after" in html
    assert "}}\n[[x]]" in html  # code


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("form", ["textile", "markdown"])
def test_html_in_a_text_is_text_and_swallows_nothing(form: str) -> None:
    html = render("a <!-- b\n\n<style> <script>alert(1)\n\n<div style='display:none'>c", form)
    assert "<!--" not in html and "<script" not in html and "<div" not in html
    assert all(word in html for word in ("b", "alert(1)", "c"))


@pytest.mark.requirement("A2")
def test_control_characters_of_pasted_logs_are_dropped() -> None:
    assert "red\x1b" not in render("\x1b[31mred\x1b[0m\x00\x0b", "textile")
    assert blocks("\x1b[31mred\x1b[0m", "textile")[0].text == "[31mred[0m"


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("form", ["textile", "markdown"])
@pytest.mark.parametrize(
    "piece", ["*a _b ", "| a |\n", '"x":', "<pre>", "@", "!a", "* x\n", "|\n", "{{collapse\n", "[[", "??a ", "**** a\n"]
)
def test_no_text_takes_longer_than_it_is_long(form: str, piece: str) -> None:
    began = time.thread_time()
    render(piece * (40_000 // len(piece)), form)
    assert time.thread_time() - began < 3.0  # seconds; the slowest takes 0.3


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        ("a.md", ("text/plain", "text/plain"), "text/markdown"),
        ("a.html", ("", "application/octet-stream"), "text/html"),
        ("a.pdf", ("application/pdf", ""), "application/pdf"),
        ("a", ("", ""), "application/octet-stream"),
        ("notes.txt", ("application/octet-stream",), "text/plain"),
    ],
)
def test_media_types(name: str, said: tuple[str, ...], expected: str) -> None:
    assert media_type(name, *said) == expected
