"""Events to blocks: what every reader builds on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pipeline.extract.builder import BlockBuilder


def shape(builder: BlockBuilder) -> list[tuple[str, str]]:
    return [(block.type, block.text) for block in builder.finish()]


@pytest.mark.requirement("A2")
def test_footnotes_come_last_and_leave_the_paragraph_whole() -> None:
    builder = BlockBuilder()
    builder.text("One[^1]")
    builder.footnote("[1]", "the  note")
    builder.footnote("2", " ")
    builder.text(" two")
    builder.math(" x^2 ")
    builder.text("three")
    assert shape(builder) == [
        ("paragraph", "One[^1] two"),
        ("math", "x^2"),
        ("paragraph", "three"),
        ("footnote", "[^1] the note"),
    ]


@pytest.mark.requirement("A2")
def test_an_admonition_is_named_once() -> None:
    builder = BlockBuilder()
    builder.open_admonition("Warning")
    builder.text("hot")
    builder.end_paragraph()
    builder.text("very")
    builder.close_admonition()
    builder.text("plain")
    builder.open_admonition("Empty")
    builder.close_admonition()
    builder.open_admonition("Note", "Note")
    builder.close_admonition()
    builder.open_admonition("Danger", "High voltage")
    builder.close_admonition()
    builder.open_admonition("Note", "Note on paper")
    builder.text("dry")
    builder.close_admonition()
    builder.open_admonition("Note:")
    builder.open_admonition("Tip")
    builder.text("both")
    builder.close_admonition()
    builder.text("outer")
    builder.close_admonition()
    assert shape(builder) == [
        ("paragraph", "Warning: hot"),
        ("paragraph", "very"),
        ("paragraph", "plain"),
        ("paragraph", "Danger: High voltage:"),
        ("paragraph", "Note on paper: dry"),
        ("paragraph", "Note: Tip: both"),
        ("paragraph", "outer"),
    ]


@pytest.mark.requirement("A2")
def test_a_label_stands_alone_before_code_lists_and_tables() -> None:
    builder = BlockBuilder()
    starts: tuple[Callable[[], None], ...] = (
        lambda: builder.code("rm -rf /", "sh"),
        lambda: builder.table([["a", "b"], ["1", "2"]], 1, "Sizes"),
        lambda: builder.math("e"),
    )
    for start in starts:
        builder.open_admonition("Danger")
        start()
        builder.close_admonition()
    builder.open_admonition("Tip")
    builder.open_list(ordered=False)
    builder.open_item()
    builder.text("one")
    builder.open_admonition("Note")
    builder.text("inside")
    builder.close_admonition()
    builder.close_item()
    builder.close_list()
    builder.close_admonition()
    assert shape(builder) == [
        ("paragraph", "Danger:"),
        ("code", "rm -rf /"),
        ("paragraph", "Danger: Sizes"),
        ("table", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ("paragraph", "Danger:"),
        ("math", "e"),
        ("paragraph", "Tip:"),
        ("list", "- one\n  Note: inside"),
    ]


@pytest.mark.requirement("A2")
def test_inline_text_can_be_looked_at_and_taken_back() -> None:
    builder = BlockBuilder()
    builder.text("x")
    mark = builder.mark()
    builder.text("2")
    builder.text("")
    assert (builder.last(), builder.since(mark), builder.take(mark), builder.last()) == ("2", "2", "2", "x")
    builder.text("^2")
    builder.end_paragraph()
    builder.text("a later one")
    assert (builder.since(mark), builder.take(mark)) == ("", "")
    assert shape(builder) == [("paragraph", "x^2"), ("paragraph", "a later one")]


@pytest.mark.requirement("A2")
def test_unbalanced_events_raise_nothing_and_lose_nothing() -> None:
    builder = BlockBuilder()
    for end in (builder.close_list, builder.close_item, builder.close_quote, builder.close_admonition):
        end()
    builder.open_admonition("Note")
    builder.open_list(ordered=True, start=3)
    builder.open_item()
    builder.text("kept")
    assert shape(builder) == [("paragraph", "Note:"), ("list", "3. kept")]


@pytest.mark.requirement("A2")
def test_many_nested_admonitions_take_linear_time() -> None:
    def seconds(count: int) -> float:
        builder = BlockBuilder()
        started = time.process_time()
        for number in range(count):
            builder.open_admonition("Note")
            builder.text(f"p{number}")
            builder.end_paragraph()
        assert len(builder.finish()) == count
        return time.process_time() - started

    small, large = seconds(2_000), seconds(16_000)
    assert large < 24 * small + 2
