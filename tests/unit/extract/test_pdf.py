"""PDF with text: reading order, headings, tables, lists, code, links, running heads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from pipeline.extract import pdf
from pipeline.extract.pdf_blocks import to_blocks
from pipeline.extract.pdf_headings import Outline
from pipeline.extract.pdf_model import Item, Line
from pipeline.extract.pdf_text import hyphenated, mended
from pipeline.extract.reading import Body, Limits, Reading
from schemas.documents import Block

FILES = Path(__file__).parent / "files" / "pdf"
TITLE = "Pump stations of the lower valley"


@cache
def reading(name: str) -> Reading:
    return pdf.read(Body((FILES / name).read_bytes(), "application/pdf"))


def blocks(name: str, kind: str) -> list[Block]:
    return [block for block in reading(name).blocks if block.type == kind]


@pytest.fixture(params=[True, False], ids=["tagged", "untagged"])
def article(request: pytest.FixtureRequest) -> Iterator[Reading]:
    """The article with its structure tree, and as if it had none."""
    data = (FILES / "article.pdf").read_bytes()
    if request.param:
        yield pdf.read(Body(data, "application/pdf"))
    else:
        with patch("pipeline.extract.pdf_page.page_tags", lambda page: {}):
            yield pdf.read(Body(data, "application/pdf"))


@pytest.mark.requirement("A2")
def test_headings_have_their_depth_and_pages(article: Reading) -> None:
    assert [(b.level, b.text, b.page) for b in article.blocks if b.type == "heading"] == [
        (1, TITLE, 1),
        (2, "Levels and alarms", 1),
        (3, "Configuration of the sensor", 1),
        (2, "Stations", 1),
        (3, "Costs of a year", 1),
        (2, "Maintenance", 3),
    ]
    assert (article.title, article.language, article.pages, article.warnings) == (TITLE, "en", 3, [])


@pytest.mark.requirement("A2")
def test_code_keeps_every_byte_lists_their_nesting(article: Reading) -> None:
    source = (FILES / "article.html").read_text(encoding="utf-8")
    found = re.search(r"<pre><code>(.*?)\n</code>", source, re.S)
    assert found is not None
    assert [b.text for b in article.blocks if b.type == "code"] == [found.group(1)]
    assert [b.text for b in article.blocks if b.type == "list"] == [
        "- Upper mark: 2.40 m above datum\n- Lower mark: 1.10 m above datum\n  - in winter 1.25 m\n"
        "  - in drought 0.95 m, which needs the written consent of the water board and is reviewed every second week "
        "until the drought has ended\n- Test mark: 2.00 m",
        "1. Close the inlet gate.\n2. Wait until the basin is empty.\n3. Open the drain.",
    ]


@pytest.mark.requirement("A2", "F13")
def test_tables_with_and_without_lines_have_their_header(article: Reading) -> None:
    ruled, bare = [b for b in article.blocks if b.type == "table"]
    assert ruled.text == (
        "| Station | Pumps | Lift (m) |\n| --- | --- | --- |\n| Alder | 3 | 4.2 |\n| Birch Lock | 2 | 3.8 |\n"
        "| Cedar, with the old diesel pump | 5 | 6.1 |"
    )
    assert bare.header == "| Item | 2024 | 2025 |\n| --- | --- | --- |"
    assert bare.text.endswith("| Repairs | 40,200 | 38,900 |\n| Staff | 96,000 | 99,100 |")
    assert (ruled.page, bare.page) == (1, 2)


@pytest.mark.requirement("A2")
def test_links_have_their_target_and_hidden_words_are_dropped(article: Reading) -> None:
    text = "\n".join(block.text for block in article.blocks)
    assert (
        "See the operating handbook (https://example.org/valley/handbook) for the limits that apply in winter" in text
    )
    assert "write to the duty desk (duty@example.org) before" in text
    assert "The efficient filter" in text  # printed with a ligature
    assert "stuffed" not in text


@pytest.mark.requirement("A2")
def test_columns_are_read_one_after_the_other_with_headings_between() -> None:
    text = "\n".join(block.text for block in reading("columns.pdf").blocks)
    said = re.findall(r"Sentence (\d[a-z]) says", text)
    assert said == [f"{n}{c}" for n, count in enumerate((4, 4, 5, 5, 3, 3, 3), start=1) for c in "abcdefg"[:count]]
    assert [(b.level, b.text) for b in blocks("columns.pdf", "heading")] == [
        (1, "Two columns with a heading between"),
        (2, "1 Sources"),
        (2, "2 Results over the whole width"),
        (3, "2.1 Near"),
        (3, "2.2 Far"),
    ]
    assert text.index("2 Results") > text.index("Sentence 2d")
    assert len(blocks("columns.pdf", "paragraph")) == 7


@pytest.mark.requirement("A2")
def test_running_heads_go_and_paragraphs_run_over_pages() -> None:
    found = reading("running.pdf")
    text = "\n".join(block.text for block in found.blocks)
    assert "edition 7" not in text and "internal" not in text and "Page " not in text
    assert found.pages == 5
    paragraphs = [b for b in blocks("running.pdf", "paragraph") if b.text.startswith("Sentence")]
    assert [len(re.findall(r"Sentence \d+[a-z] says", b.text)) for b in paragraphs] == [9, 9, 9, 9, 9, 3] * 3
    assert [b.page for b in paragraphs] == sorted(b.page or 0 for b in paragraphs)


@pytest.mark.requirement("A2")
def test_a_table_over_pages_is_one_and_its_repeated_header_goes() -> None:
    (table,) = blocks("running.pdf", "table")
    lines = table.text.split("\n")
    assert lines[:2] == ["| Part | Stock | Shelf |", "| --- | --- | --- |"]
    assert lines[2:] == [f"| valve {n} | {n * 3} | S{n % 7} |" for n in range(1, 61)]
    assert table.page == 3


@pytest.mark.requirement("A2")
def test_bookmarks_give_the_depth_and_a_word_processors_title_is_none() -> None:
    assert [(b.level, b.text) for b in blocks("running.pdf", "heading")] == [
        (1, "Handbook of valves"),
        *[(level, f"{name} {c}") for c in "ABC" for level, name in ((2, "Chapter"), (3, "Stock of"))],
    ]
    assert reading("running.pdf").title is None


@pytest.mark.requirement("A2")
def test_merged_cells_white_words_on_dark_and_turned_pages() -> None:
    table = blocks("parts.pdf", "table")[1]
    assert table.text.split("\n") == [
        "| Station | Lift |  |",
        "| Station | summer | winter |",
        "| --- | --- | --- |",
        "| Alder | 4.2 | 4.6 |",
        "| Birch | 3.8 | 4.1 |",
        "| Cedar | none |  |",
    ]
    last = reading("parts.pdf").blocks[-1]
    assert last.text == ("This page lies on its side and is turned for the reader. Its second line follows the first.")
    assert last.page == 3


@pytest.mark.requirement("A2")
def test_parts_of_an_untagged_page() -> None:
    found = [(b.type, b.text) for b in reading("parts.pdf").blocks if b.page == 1]
    text = "\n".join(text for _, text in found)
    assert ("code", "for pump in pumps:\n    if pump.idle:\n        pump.stop()\n\n    log(pump,  'ok')") in found
    assert (
        "list",
        "- copper pipe, which is cut to the length that the drawing of the section asks for\n- brass valve\n"
        "  - with a handle\n  - with a wheel\n- washer",
    ) in found
    assert ("footnote", "[^1] A footnote tells where the plan is kept.") in found
    assert "fits the flow.[^1]" in text
    assert "international board is well-known, and its long-term plan is a long-term plan" in text
    assert "for machines" not in text
    assert ("heading", "Parts of pages (https://example.org/board)") in found
    assert "| Staff and training | 96,000 | 99,100 |" in text


@pytest.mark.requirement("A2")
def test_values_of_form_fields_stand_at_their_places() -> None:
    assert [b.text for b in reading("form.pdf").blocks] == ["Name of the owner: Ada Lovelace", "Has a meter: [x]"]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("before", "after", "joined"),
    [
        ("inter-", "national law", "international law"),
        ("well-", "known", "well-known"),
        ("state-of-the-", "art", "state-of-the-art"),
        ("Jean-", "Luc", "Jean-Luc"),
        ("1939-", "1945", "1939-1945"),
        ("see https://example.org/a-", "b", "see https://example.org/a-b"),
        ("soft\u00ad", "ware", "software"),
        ("a dash -", "then", "a dash - then"),
        ("long-", "term", "long-term"),
        ("漢字", "かな", "漢字かな"),
        ("plain", "words", "plain words"),
    ],
)
def test_lines_are_mended(before: str, after: str, joined: str) -> None:
    assert mended(before, after, hyphenated(["a Long-Term plan"])) == joined


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ("the valve is", "opened by hand", ["the valve is opened by hand"]),
        ("of the inter-", "national board", ["of the international board"]),
        ("the valve is open.", "then it is shut", ["the valve is open.", "then it is shut"]),
        ("The valve", "Another matter", ["The valve", "Another matter"]),
    ],
)
def test_a_paragraph_goes_on_over_a_page_when_its_sentence_does(before: str, after: str, texts: list[str]) -> None:
    def line(text: str, page: int) -> Item:
        return Line(text, 50, 150, 700, 710, 708, 10, False, False, page, left=50, right=500)

    found = to_blocks([[line(before, 1)], [line(after, 2)]], Outline())
    assert [block.text for block in found] == texts
    assert found[0].page == 1


@pytest.mark.requirement("I6")
def test_same_bytes_same_blocks_in_another_process() -> None:
    code = (
        "import sys, hashlib; from pathlib import Path; from pipeline.extract import pdf;"
        "from pipeline.extract.reading import Body;"
        "found = [pdf.read(Body(Path(name).read_bytes(), 'application/pdf')).blocks for name in sys.argv[1:]];"
        "print(hashlib.sha256(repr(found).encode()).hexdigest())"
    )
    names = [str(FILES / name) for name in ("article.pdf", "columns.pdf", "parts.pdf")]
    seen = {
        subprocess.run(
            [sys.executable, "-c", code, *names], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True,
            check=True, cwd=Path(__file__).parents[3],
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(seen) == 1 and len(seen.pop()) == 65


@pytest.mark.requirement("A2")
def test_too_many_pages_are_refused_by_the_limit() -> None:
    from pipeline.errors import DocumentError

    data = (FILES / "running.pdf").read_bytes()
    assert pdf.read(Body(data, "application/pdf", limits=Limits(pages=5))).pages == 5
    with pytest.raises(DocumentError, match=r"5 pages, over 4") as caught:
        pdf.read(Body(data, "application/pdf", limits=Limits(pages=4)))
    assert caught.value.kind == "too-many-pages"


@pytest.mark.requirement("A2")
def test_scripts_from_the_right_and_raised_figures_keep_their_order() -> None:
    text = "\n".join(b.text for b in reading("scripts.pdf").blocks)
    assert "שלום עולם, זה מסמך בעברית עם מספר 42 באמצע." in text
    assert "مرحبا بالعالم، هذه وثيقة باللغة العربية." in text
    assert "Ελληνικά κείμενο και русский текст рядом. E = mc², H2O, see note³." in text


@pytest.mark.requirement("A2")
def test_tables_with_lines_between_rows_only_with_stripes_and_in_a_column() -> None:
    wrapped, striped, column = (b.text.split("\n") for b in blocks("scripts.pdf", "table"))
    assert wrapped == [
        "| Name | Purpose of the part in the machine | Price |",
        "| --- | --- | --- |",
        "| Wheel | It turns and turns and turns until the motor is switched off | 12.00 |",
        "| Lever | It lifts | 3.50 |",
        "| Handle | It is held by the hand of the operator | 1.20 |",
    ]
    assert striped[0] == "| Key | Value |" and striped[-1] == "| level | 3 |" and len(striped) == 6
    assert column == ["| X | Y |", "| --- | --- |", "| 1 | 2 |", "| 3 | 4 |", "| 5 | 6 |"]
    order = [b.text for b in reading("scripts.pdf").blocks]
    place = order.index("\n".join(column))
    assert order[place - 1].startswith("First column") and order[place + 1].startswith("After the table")
    assert order[place + 2] == "A small heading"
