"""Presentations to blocks: what the audience sees, in the order in which it reads, and the speaker's notes."""

from __future__ import annotations

from typing import Any

import pytest
from lxml import etree
from pptx import Presentation
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tests.unit.extract.decks import (
    BLANK,
    TITLE_AND_CONTENT,
    TITLE_ONLY,
    TITLE_SLIDE,
    A,
    add,
    box,
    read,
    saved,
    shape_of,
)


@pytest.mark.requirement("A2")
def test_slides_are_headings_below_the_title_slide() -> None:
    deck = Presentation()
    deck.core_properties.title = "Yearly review"
    deck.core_properties.language = "en-GB"
    cover = add(deck, TITLE_SLIDE, "Review 2026")
    cover.placeholders[1].text = "by the valve team"
    first = add(deck, TITLE_AND_CONTENT, "Results")
    frame = first.placeholders[1].text_frame
    frame.text = "Sales grew"
    for text, level in (("in the north", 1), ("in the far north", 2), ("Costs fell", 0)):
        paragraph = frame.add_paragraph()
        paragraph.text, paragraph.level = text, level
    untitled = add(deck, BLANK)
    box(untitled, "No title here", 1, 1)

    reading = read(saved(deck))
    assert (reading.title, reading.language, reading.pages, reading.warnings) == ("Yearly review", "en-GB", 3, [])
    assert [(b.type, b.level, b.page, b.text) for b in reading.blocks] == [
        ("heading", 1, 1, "Review 2026"),
        ("paragraph", 0, 1, "by the valve team"),
        ("heading", 2, 2, "Results"),
        ("list", 0, 2, "- Sales grew\n  - in the north\n    - in the far north\n- Costs fell"),
        ("heading", 2, 3, "Slide 3"),
        ("paragraph", 0, 3, "No title here"),
    ]


@pytest.mark.requirement("A2")
def test_a_lone_paragraph_is_no_list() -> None:
    deck = Presentation()
    add(deck, TITLE_AND_CONTENT, "Results").placeholders[1].text_frame.text = "All went well."
    assert [(b.type, b.text) for b in read(saved(deck)).blocks[1:]] == [("paragraph", "All went well.")]


@pytest.mark.requirement("A2")
def test_a_paragraph_without_its_layout_s_bullet_ends_the_list() -> None:
    deck = Presentation()
    frame = add(deck, TITLE_AND_CONTENT, "T").placeholders[1].text_frame
    frame.text = "one\ntwo\nthree"
    frame.paragraphs[1]._p.get_or_add_pPr().append(etree.fromstring(f'<a:x xmlns:a="{A}"><a:buNone/></a:x>')[0])
    assert [(b.type, b.text) for b in read(saved(deck)).blocks[1:]] == [
        ("list", "- one"),
        ("paragraph", "two"),
        ("list", "- three"),
    ]


@pytest.mark.requirement("A2")
def test_a_generic_title_gives_way_to_the_first_slide_s() -> None:
    deck = Presentation()
    deck.core_properties.title = "PowerPoint Presentation"
    add(deck, TITLE_ONLY, "Pumps")
    add(deck, TITLE_ONLY, "Valves")
    reading = read(saved(deck))
    assert reading.title == "Pumps"
    assert [(b.level, b.text) for b in reading.blocks] == [(1, "Pumps"), (1, "Valves")]


@pytest.mark.requirement("A2")
def test_shapes_are_read_from_the_top_and_columns_one_after_the_other() -> None:
    def fill(slide: Any) -> None:
        box(slide, "right, tall", 6, 2, height=3)
        box(slide, "left, below", 1, 4)
        box(slide, "at the bottom", 1, 6, width=8)
        box(slide, "left, above", 1, 2)

    assert [text for _, text in shape_of(fill)] == ["left, above", "left, below", "right, tall", "at the bottom"]


@pytest.mark.requirement("A2")
def test_groups_are_read_in_their_own_order() -> None:
    def fill(slide: Any) -> None:
        box(slide, "last", 1, 6)
        group = slide.shapes.add_group_shape()
        inner = group.shapes.add_group_shape()
        inner.shapes.add_textbox(Inches(1), Inches(3), Inches(2), Inches(0.5)).text_frame.text = "second"
        group.shapes.add_textbox(Inches(1), Inches(2), Inches(2), Inches(0.5)).text_frame.text = "first"

    assert [text for _, text in shape_of(fill)] == ["first", "second", "last"]


@pytest.mark.requirement("A2")
def test_bullets_are_lists_only_where_they_are_shown() -> None:
    def fill(slide: Any) -> None:
        frame = box(slide, "plain", 1, 2).text_frame
        marks = {
            "one": '<a:buAutoNum type="arabicPeriod" startAt="3"/>',
            "two": '<a:buAutoNum type="arabicPeriod"/>',
            "dot": '<a:buChar char="•"/>',
            "none": "<a:buNone/>",
        }
        for text, mark in marks.items():
            paragraph = frame.add_paragraph()
            paragraph.text = text
            paragraph._p.get_or_add_pPr().append(etree.fromstring(f'<a:x xmlns:a="{A}">{mark}</a:x>')[0])

    assert shape_of(fill) == [
        ("paragraph", "plain"),
        ("list", "3. one\n4. two"),
        ("list", "- dot"),
        ("paragraph", "none"),
    ]


@pytest.mark.requirement("A2")
def test_tables_keep_header_and_merged_cells() -> None:
    def fill(slide: Any) -> None:
        table = slide.shapes.add_table(4, 3, Inches(1), Inches(2), Inches(6), Inches(2)).table
        rows = (("Region", "2024", "2025"), ("North", "1", "2"), ("", "3", "4"), ("Sum", "", "a|b"))
        for r, row in enumerate(rows):
            for c, text in enumerate(row):
                table.cell(r, c).text = text
        table.cell(1, 0).merge(table.cell(2, 0))
        table.cell(3, 0).merge(table.cell(3, 1))

    assert shape_of(fill) == [
        (
            "table",
            "| Region | 2024 | 2025 |\n| --- | --- | --- |\n| North | 1 | 2 |\n| North | 3 | 4 |\n| Sum |  | a\\|b |",
        )
    ]


@pytest.mark.requirement("A2")
def test_charts_are_tables_of_their_values() -> None:
    def fill(slide: Any) -> None:
        data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
        data.categories = ["Spring", "Autumn"]
        data.add_series("Valves", (1.5, 2))
        data.add_series("Pumps", (3, None))
        place = (Inches(1), Inches(2), Inches(6), Inches(2))
        chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, data).chart
        chart.has_title = True
        chart.chart_title.text_frame.text = "Sales by season"
        points: Any = XyChartData()  # type: ignore[no-untyped-call]
        for name, x in (("a", 1), ("b", 7)):
            points.add_series(name).add_data_point(x, 0.1 + 0.2)
        slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, Inches(1), Inches(5), Inches(6), Inches(2), points)

    assert shape_of(fill) == [
        ("paragraph", "Sales by season"),
        ("table", "|  | Valves | Pumps |\n| --- | --- | --- |\n| Spring | 1.5 | 3 |\n| Autumn | 2 |  |"),
        ("table", "|  | x | y |\n| --- | --- | --- |\n| a | 1 | 0.3 |\n| b | 7 | 0.3 |"),
    ]
