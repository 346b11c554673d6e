"""Writes the untagged PDFs beside it; needs reportlab. article.pdf is article.html printed by Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reportlab.lib import colors
from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Frame,
    FrameBreak,
    NextPageTemplate,
    PageBreak,
    PageTemplate,
    Paragraph,
    Table,
    TableStyle,
)  # fmt: skip

HERE = Path(__file__).parent
WIDTH, HEIGHT = A4
BODY = ParagraphStyle("body", fontName="Times-Roman", fontSize=10, leading=12.5, alignment=TA_JUSTIFY, spaceAfter=6)
TITLE = ParagraphStyle("title", fontName="Times-Bold", fontSize=20, leading=24, spaceAfter=10)
H1 = ParagraphStyle("h1", fontName="Times-Bold", fontSize=14, leading=17, spaceBefore=10, spaceAfter=5)
H2 = ParagraphStyle("h2", fontName="Times-Bold", fontSize=11, leading=14, spaceBefore=8, spaceAfter=4)
CODE = ParagraphStyle("code", fontName="Courier", fontSize=8.5, leading=10.5)

WORDS = (
    *("river", "stone", "lantern", "harbour", "willow", "copper", "marble", "thunder", "meadow", "falcon"),
    *("orchard", "timber", "saddle", "cavern", "pepper", "ribbon", "garnet", "island", "beacon", "velvet"),
    *("walnut", "summit", "canyon", "hollow", "ember", "fathom", "quarry", "ripple"),
)


def prose(seed: int, sentences: int) -> str:
    """Sentences of numbered words, so that a test can see their order."""
    said = []
    for n in range(sentences):
        chosen = [WORDS[(seed * 7 + n * 5 + k * 3) % len(WORDS)] for k in range(9 + (seed + n) % 5)]
        said.append(f"Sentence {seed}{chr(97 + n)} says {' '.join(chosen)}.")
    return " ".join(said)


def document(name: str, frames: list[list[Frame]], story: list[Any], decorate: Any = None, **meta: str) -> None:
    """A PDF without a date or a random id, from page templates and a story."""
    doc = BaseDocTemplate(str(HERE / name), pagesize=A4, invariant=1, **meta)
    for number, some in enumerate(frames):
        doc.addPageTemplates(PageTemplate(str(number), some, onPage=decorate or (lambda canvas, doc: None)))
    doc.build(story)


def columns(count: int, top: float, bottom: float) -> list[Frame]:
    """Frames side by side."""
    gap, left = 18, 50
    width = (WIDTH - 2 * left - gap * (count - 1)) / count
    return [
        Frame(left + i * (width + gap), bottom, width, top - bottom, leftPadding=0, rightPadding=0, topPadding=0)
        for i in range(count)
    ]


def two_columns() -> None:
    """A title over both columns, columns, a heading over both, columns again, then a page with three."""
    head = Frame(50, 730, WIDTH - 100, 70, leftPadding=0, rightPadding=0)
    middle = Frame(50, 410, WIDTH - 100, 40, leftPadding=0, rightPadding=0)
    first = [head, *columns(2, 725, 460), middle, *columns(2, 405, 60)]
    story: list[Any] = [Paragraph("Two columns with a heading between", TITLE), FrameBreak()]
    story += [Paragraph("1 Sources", H1), Paragraph(prose(1, 4), BODY), FrameBreak()]
    story += [Paragraph(prose(2, 4), BODY), NextPageTemplate("1"), FrameBreak()]
    story += [Paragraph("2 Results over the whole width", H1), FrameBreak()]
    story += [Paragraph("2.1 Near", H2), Paragraph(prose(3, 5), BODY), FrameBreak()]
    story += [Paragraph("2.2 Far", H2), Paragraph(prose(4, 5), BODY), PageBreak()]
    story += [Paragraph(prose(5, 3), BODY), FrameBreak(), Paragraph(prose(6, 3), BODY), FrameBreak()]
    story += [Paragraph(prose(7, 3), BODY)]
    document("columns.pdf", [first, columns(3, 790, 300)], story)


def running() -> None:
    """Five pages with running heads, page numbers, paragraphs over pages, a long table and an outline."""
    rows = [["Part", "Stock", "Shelf"]] + [[f"valve {n}", str(n * 3), f"S{n % 7}"] for n in range(1, 61)]
    grid = Table(rows, repeatRows=1, style=TableStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.black),
                                                       ("FONTNAME", (0, 0), (-1, 0), "Helvetica-Bold")]))  # fmt: skip
    story: list[Any] = [_Marked("Handbook of valves", TITLE, 0)]
    for chapter in range(1, 4):
        story.append(_Marked(f"Chapter {'ABC'[chapter - 1]}", H1, 1))
        for part in range(5):
            story.append(Paragraph(prose(chapter * 10 + part, 9), BODY))
        story.append(_Marked(f"Stock of {'ABC'[chapter - 1]}", H2, 2))
        story.append(Paragraph(prose(chapter * 10 + 7, 3), BODY))
    story += [Paragraph("Table of parts", BODY), grid]

    def decorate(canvas: Canvas, doc: Any) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(50, HEIGHT - 30, "Handbook of valves, edition 7")
        canvas.drawRightString(WIDTH - 50, HEIGHT - 30, "internal")
        canvas.drawCentredString(WIDTH / 2, 25, f"Page {doc.page}")

    frame = Frame(50, 50, WIDTH - 100, HEIGHT - 100, leftPadding=0, rightPadding=0)
    document("running.pdf", [[frame]], story, decorate, title="Microsoft Word - valves_v7.docx")


class _Marked(Paragraph):
    """A heading with a bookmark."""

    def __init__(self, text: str, style: ParagraphStyle, depth: int) -> None:
        super().__init__(text, style)
        self._bookmark = (text, depth)

    def draw(self) -> None:
        """Draw it, and mark its place."""
        text, depth = self._bookmark
        self.canv.bookmarkPage(text)
        self.canv.addOutlineEntry(text, text, depth)
        super().draw()


def parts() -> None:
    """Tables, lists, code, footnotes, hyphens, hidden text, on one untagged page each."""
    canvas = Canvas(str(HERE / "parts.pdf"), pagesize=A4, invariant=1)
    canvas.setTitle("Parts of pages")
    text = _Text(canvas)
    text.put("Parts of pages", "Helvetica-Bold", 18, 30)
    text.put("The work of the inter-", gap=15)
    text.put("national board is well-")
    text.put("known, and its long-term plan is a long-")
    text.put("term plan. The efficient office fits the flow.")
    text.raised("1")
    text.put("Lists", "Helvetica-Bold", 13, 26)
    for indent, line in (
        (0, "• copper pipe, which is cut to the length that the"), (10, "drawing of the section asks for"),
        (0, "• brass valve"), (20, "– with a handle"), (20, "– with a wheel"), (0, "• washer"),
    ):  # fmt: skip
        text.put(line, indent=indent)
    text.put("Steps follow:", gap=20)
    for line in ("1. Open the lid.", "2. Turn the wheel.", "3. Close the lid."):
        text.put(line, indent=10)
    text.put("Code", "Helvetica-Bold", 13, 26)
    for line in ("for pump in pumps:", "    if pump.idle:", "        pump.stop()", "", "    log(pump,  'ok')"):
        text.put(line, "Courier", 9, 11)
    text.put("Prices", "Helvetica-Bold", 13, 26)
    for row in (("Item", "2024", "2025"), ("Energy", "118,000", "121,500"), ("Repairs", "40,200", "38,900"),
                ("Staff and training", "96,000", "99,100")):  # fmt: skip
        text.row(row, (0, 150, 230))
    canvas.setFillColor(colors.white)
    text.put("white words for machines", gap=20)
    canvas.setFillColor(colors.black)
    text.put("tiny words for machines", size=0.5)
    canvas.saveState()
    canvas.setFont("Helvetica", 5)
    canvas.drawString(50, 70, "1")
    canvas.setFont("Helvetica", 8)
    canvas.drawString(54, 67, "A footnote tells where the plan is kept.")
    canvas.restoreState()
    canvas.linkURL("https://example.org/board", (50, text.first - 35, 300, text.first - 15))
    canvas.showPage()
    spans = [["Station", "Lift", ""], ["", "summer", "winter"], ["Alder", "4.2", "4.6"], ["Birch", "3.8", "4.1"],
             ["Cedar", "none", ""]]  # fmt: skip
    ruled = Table(spans, colWidths=[120, 80, 80], style=TableStyle([
        ("GRID", (0, 0), (-1, -1), 0.7, colors.black), ("SPAN", (0, 0), (0, 1)), ("SPAN", (1, 0), (2, 0)),
        ("SPAN", (1, 4), (2, 4)), ("BACKGROUND", (0, 0), (-1, 1), colors.darkblue),
        ("TEXTCOLOR", (0, 0), (-1, 1), colors.white), ("FONTNAME", (0, 0), (-1, 1), "Helvetica-Bold"),
    ]))  # fmt: skip
    canvas.setFont("Helvetica", 10)
    canvas.drawString(50, 780, "The table has merged cells and white words on a dark ground.")
    ruled.wrapOn(canvas, 400, 400)
    ruled.drawOn(canvas, 50, 650)
    canvas.showPage()
    canvas.setPageRotation(90)
    canvas.saveState()
    canvas.translate(WIDTH, 0)
    canvas.rotate(90)
    canvas.drawString(60, 500, "This page lies on its side and is turned for the reader.")
    canvas.drawString(60, 480, "Its second line follows the first.")
    canvas.restoreState()
    canvas.showPage()
    canvas.save()


class _Text:
    """Lines from the top of a page downwards."""

    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas
        self.y = self.first = 790.0
        self.last = ""

    def put(self, line: str, font: str = "Helvetica", size: float = 10, gap: float = 13, indent: float = 0) -> None:
        """One line, ``gap`` points below the one before."""
        self.y -= gap
        self.last = line
        self.canvas.setFont(font, size)
        self.canvas.drawString(50 + indent, self.y, line)

    def raised(self, mark: str) -> None:
        """A small raised mark right behind the line that was put last."""
        self.canvas.setFont("Helvetica", 6)
        self.canvas.drawString(50 + self.canvas.stringWidth(self.last, "Helvetica", 10), self.y + 4, mark)

    def row(self, cells: tuple[str, ...], places: tuple[float, ...]) -> None:
        """One row of a table without lines."""
        self.y -= 14
        self.canvas.setFont("Helvetica", 10)
        for cell, x in zip(cells, places, strict=True):
            self.canvas.drawString(50 + x, self.y, cell)


def form() -> None:
    """Form fields with values."""
    canvas = Canvas(str(HERE / "form.pdf"), pagesize=A4, invariant=1)
    canvas.drawString(50, 780, "Name of the owner:")
    canvas.acroForm.textfield(name="owner", value="Ada Lovelace", x=160, y=772, width=200, height=20, borderWidth=0)
    canvas.drawString(50, 740, "Has a meter:")
    canvas.acroForm.checkbox(name="meter", checked=True, x=160, y=735, size=15)
    canvas.showPage()
    canvas.save()


def locked() -> None:
    """One page for which a password is needed, and one that only its owner may change."""
    for name, password, line in (
        ("locked.pdf", "secret", "Nobody reads this page."),
        ("owner.pdf", "", "Only the owner may change this page."),
    ):
        lock = StandardEncryption(password, ownerPassword="owner", strength=128)
        canvas = Canvas(str(HERE / name), pagesize=A4, invariant=1, encrypt=lock)
        canvas.drawString(50, 780, line)
        canvas.showPage()
        canvas.save()


if __name__ == "__main__":
    two_columns()
    running()
    parts()
    form()
    locked()
