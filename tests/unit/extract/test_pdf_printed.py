"""PDFs as word processors and browsers print them: bullets in another size, cells over rows, heads and feet."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest

from pipeline.extract import pdf
from pipeline.extract.reading import Body, Limits, Reading
from tests.unit.extract.test_pdf_malformed import page

FILES = Path(__file__).parent / "files" / "pdf"


def read(data: bytes) -> Reading:
    return pdf.read(Body(data, "application/pdf", limits=Limits(ocr=False)))


def shown(pieces: list[tuple[float, float, float, str]]) -> Reading:
    """One page with these texts, each at (x, y) from below in a size."""
    lines = [b"BT /F1 %g Tf %g %g Td (%s) Tj ET" % (size, x, y, text.encode("cp1252")) for x, y, size, text in pieces]
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    plain = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    data = page(b"\n".join(lines))
    # As long as the object it stands for, so that the table of objects stays true.
    return read(data.replace(plain, font) if len(plain) == len(font) else repaired(data.replace(plain, font)))


def repaired(data: bytes) -> bytes:
    """Without its table of objects, which PDFium then makes anew."""
    return data[: data.index(b"xref\n")] + b"trailer <</Root 1 0 R>>\n%%EOF"


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("shift", [-2.5, 2.5, 3.0, 0.0], ids=["lower", "higher", "higher still", "level"])
def test_bullets_in_another_size_and_height_lead_their_items(shift: float) -> None:
    items = [(60, "Grease the hinges before the autumn"), (60, "Order a lamp"), (80, "for the mast"), (60, "Paint")]
    pieces: list[tuple[float, float, float, str]] = [(60, 730, 9.5, "What must be done in the autumn of the year:")]
    for number, (x, text) in enumerate(items):
        y = 700 - number * 19
        pieces += [(x, y + shift, 12, "•"), (x + 18, y, 9.5, text)]
    pieces.insert(3, (78, 689, 9.5, "storms."))  # the first item goes on below itself
    assert [(b.type, b.text) for b in shown(pieces).blocks][1:] == [
        ("list", "- Grease the hinges before the autumn storms.\n- Order a lamp\n  - for the mast\n- Paint")
    ]


@pytest.mark.requirement("A2")
def test_numbers_of_items_in_another_size_lead_them_and_those_within_sentences_stay() -> None:
    pieces: list[tuple[float, float, float, str]] = [(60, 740, 9.5, "Read the gauge in the morning, as on page 7.")]
    for number, text in enumerate(("Close the upper valve", "Wait for the needle", "Open the valve"), start=1):
        pieces += [(60, 720 - 19 * number - 2.5, 12, f"{number}."), (78, 720 - 19 * number, 9.5, text)]
    # Large print that ends with a number, close before small print on another baseline.
    pieces += [(60, 600, 12, "The rest is told in part"), (192, 600, 12, "3."), (210, 604.5, 9.5, "of it")]
    text = "\n".join(block.text for block in shown(pieces).blocks)
    assert "\n1. Close the upper valve\n2. Wait for the needle\n3. Open the valve\n" in text
    assert "The rest is told in part 3." in text


@pytest.mark.requirement("A2")
def test_bullets_of_one_column_do_not_lean_on_the_other() -> None:
    pieces: list[tuple[float, float, float, str]] = []
    for number, word in enumerate(("harbour", "station", "lantern", "sluice")):
        y = 700 - number * 22
        pieces += [(60, y - 2.5, 12, "•"), (78, y, 9.5, f"the keeper of the {word} reads it daily.")]
        # The other column's baselines are those of the bullets.
        pieces += [
            (320, y - 2.5, 9.5, f"Beside it runs a text on the {word} and"),
            (320, y - 13.5, 9.5, "its people who"),
        ]
    text = "\n".join(block.text for block in shown(pieces).blocks)
    assert text.startswith(
        "- the keeper of the harbour reads it daily.\n- the keeper of the station reads it daily.\n"
        "- the keeper of the lantern reads it daily.\n- the keeper of the sluice reads it daily.\n"
    )
    assert "•" not in text and text.count("Beside it runs") == 4


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("tagged", [True, False], ids=["tagged", "untagged"])
def test_a_cell_over_rows_keeps_those_after_it_in_their_columns(tagged: bool) -> None:
    data = (FILES / "spans.pdf").read_bytes()
    with nullcontext() if tagged else patch("pipeline.extract.pdf_page.page_tags", lambda page: {}):
        tables = [block.text for block in read(data).blocks if block.type == "table"]
    assert tables == [
        "| Site | Number | Note |\n| --- | --- | --- |\n| merged | 1 | first |\n| merged | 2 | kept |\n"
        "| wide |  | kept |\n| plain | 4 | last |"
    ]


@pytest.mark.requirement("A2")
def test_a_browsers_heads_and_feet_go_from_two_pages_and_the_sentence_runs_over_them() -> None:
    found = read((FILES / "printed.pdf").read_bytes())
    readings = [
        f"Reading {n} of the gauge was taken by the keeper at dawn and written into the book;" for n in range(1, 51)
    ]
    assert (found.pages, found.title) == (2, "Tide gauges")
    assert [(b.type, " ".join(b.text.split()), b.page) for b in found.blocks] == [
        ("heading", "Readings of the inner basin", 1),
        ("paragraph", "Two gauges are read each morning, on 12/1/26 as well as on 1/2 of all other days.", 1),
        ("paragraph", " ".join([*readings, "then the year ends."]), 1),
    ]


def edges(head: list[tuple[float, str]], foot: list[tuple[float, str]], top: float = 820) -> list[str]:
    """The texts of a page with these pieces, each at its x, in its margins and one sentence between them."""
    pieces = [(x, top, 8.0, text) for x, text in head] + [(60, 500, 11, "The gauge is read at dawn.")]
    return [block.text for block in shown(pieces + [(x, 18, 8.0, text) for x, text in foot]).blocks]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("head", "foot"),
    [
        ([(24, "12/1/26, 2:44 AM"), (270, "Tide gauges")], [(24, "https://wiki.example/tide"), (575, "1/1")]),
        ([(24, "Tide gauges"), (430, "https://wiki.example/tide")], [(24, "1 of 1"), (500, "12/1/2026, 2:44 PM")]),
        ([(24, "01.12.26, 14:44"), (270, "Pegel")], [(24, "file:///C:/Pegel/liste.html"), (575, "1/1")]),
        ([(24, "2026/12/1 14:44"), (270, "Pegel")], [(575, "1/1")]),
        ([], [(24, "https://wiki.example/tide"), (500, "Page 1 of 1")]),
    ],
    ids=["Chromium", "Firefox", "file", "no address", "foot only"],
)
def test_heads_and_feet_of_browsers_go_from_a_single_page(
    head: list[tuple[float, str]], foot: list[tuple[float, str]]
) -> None:
    assert edges(head, foot) == ["The gauge is read at dawn."]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("head", "foot", "kept"),
    [
        ([(24, "12/1/26, 2:44 AM"), (270, "Board of the harbour")], [], "Board of the harbour"),
        ([(24, "Harbour of Ostrand")], [(24, "https://ostrand.example")], "https://ostrand.example"),
        ([(24, "Harbour of Ostrand")], [(575, "1/1")], "Harbour of Ostrand"),
        ([(24, "Harbour of Ostrand")], [(24, "https://ostrand.example"), (575, "3/7")], "https://ostrand.example"),
        ([(24, "Begun on 12/1/26, 2:44 AM")], [(24, "See https://ostrand.example")], "Begun on"),
    ],
    ids=["only a date", "only an address", "only a number", "another page's number", "within sentences"],
)
def test_other_lines_at_the_edges_of_a_single_page_stay(
    head: list[tuple[float, str]], foot: list[tuple[float, str]], kept: str
) -> None:
    text = "\n".join(edges(head, foot))
    assert kept in text and all(piece in text for _, piece in head + foot)


@pytest.mark.requirement("A2")
def test_a_date_and_an_address_inside_the_page_stay() -> None:
    found = edges([(24, "12/1/26, 2:44 AM"), (270, "Board")], [(575, "1/1")], top=780)
    assert "12/1/26, 2:44 AM" in "\n".join(found)
