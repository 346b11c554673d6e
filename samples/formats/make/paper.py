"""PDF with text (reportlab, and a browser's print of an HTML page), scans and images of pages (Pillow)."""

from __future__ import annotations

import io
import random
import subprocess
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

from model import C, Doc, H, L, P, T, plain

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
BOLD = "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf"
MONO = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"


def pdf(doc: Doc, *, columns: int = 1, furniture: bool = False, size: float = 9.5) -> bytes:
    """``furniture``: running head, foot and page number on every page."""
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.lib.units import cm
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.platypus import (BaseDocTemplate, Frame, ListFlowable, ListItem, PageTemplate, Paragraph, Preformatted,
                                    Spacer, Table)

    for name, path in (("S", FONT), ("B", BOLD), ("M", MONO)):
        pdfmetrics.registerFont(TTFont(name, path))
    body = ParagraphStyle("body", fontName="S", fontSize=size, leading=size * 1.37, spaceAfter=6)
    heads = {n: ParagraphStyle(f"h{n}", fontName="B", fontSize=size * f, leading=size * f * 1.25, spaceBefore=9, spaceAfter=5)
             for n, f in ((1, 2), (2, 1.5), (3, 1.2), (4, 1.1))}
    mono = ParagraphStyle("mono", fontName="M", fontSize=8, leading=10, spaceAfter=6)

    def items(node: L):
        flow = []
        for item in node.items:
            inside = [Paragraph(escape(plain(item.runs)), body)]
            if item.inner:
                inside.append(items(item.inner))
            flow.append(ListItem(inside))
        return ListFlowable(flow, bulletType="1" if node.ordered else "bullet", start=None if node.ordered else "•")

    story = []
    for node in doc.nodes:
        if isinstance(node, H):
            story.append(Paragraph(escape(node.text), heads[node.level]))
        elif isinstance(node, P):
            story.append(Paragraph(escape(plain(node.runs)), body))
        elif isinstance(node, L):
            story.append(items(node))
        elif isinstance(node, C):
            story.append(Preformatted(node.text.expandtabs(4), mono))
        elif isinstance(node, T):
            if node.caption:
                story.append(Paragraph(escape(node.caption), body))
            style = [("FONT", (0, 0), (-1, -1), "S", 8.5), ("GRID", (0, 0), (-1, -1), 0.4, "black")]
            story += [Table([[c or "" for c in row] for row in node.grid()], style=style, repeatRows=node.header), Spacer(1, 8)]

    def draw(canvas, _) -> None:
        if not furniture:
            return
        canvas.setFont("S", 7)
        canvas.drawString(2 * cm, 28.6 * cm, "Portal of quays, running head")
        canvas.drawString(2 * cm, 1 * cm, "Confidential until spring")
        canvas.drawRightString(19 * cm, 1 * cm, f"Page {canvas.getPageNumber()}")

    out = io.BytesIO()
    made = BaseDocTemplate(out, pagesize=A4, title=doc.title, invariant=1)
    wide = 17 * cm / columns - (0.4 * cm if columns > 1 else 0)
    frames = [Frame(2 * cm + n * (wide + 0.8 * cm), 2 * cm, wide, 25.7 * cm, id=str(n)) for n in range(columns)]
    made.addPageTemplates(PageTemplate(frames=frames, onPage=draw))
    made.build(story)
    return out.getvalue()


PDF_FORBIDDEN = ["Portal of quays, running head", "Confidential until spring"]


def printed(html: str) -> bytes:
    """The page as chromium prints it."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "page.html"), Path(folder, "page.pdf")
        source.write_text(html, encoding="utf-8")
        subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
                        f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}", source.as_uri()],
                       check=True, capture_output=True, timeout=120)
        return target.read_bytes()


def picture(doc: Doc, *, width: int = 1000, size: int = 20, noise: int = 0, slant: float = 0.0):
    """A page as a picture: headings large, lists with dashes."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("L", (width, int(width * 1.1)), 255)
    draw = ImageDraw.Draw(page)
    y = 60
    for node in doc.nodes:
        lines: list[tuple[str, int, int]] = []
        if isinstance(node, H):
            lines = [(node.text, int(size * (1.9 - 0.25 * node.level)), 0)]
        elif isinstance(node, P):
            lines = [(plain(node.runs), size, 0)]
        elif isinstance(node, L):
            lines = [(f"- {plain(item.runs)}", size, 24) for item in node.items]
        for text, height, indent in lines:
            font = ImageFont.truetype(BOLD if isinstance(node, H) else FONT, height)
            line = ""
            for word in [*text.split(" "), ""]:
                longer = f"{line} {word}".strip()
                if word == "" or draw.textlength(longer, font) > width - 140 - indent:
                    draw.text((70 + indent, y), line, 0, font)
                    y += int(height * 1.4)
                    line = word
                else:
                    line = longer
        y += int(size * 0.9)
    page = page.crop((0, 0, width, y + 50))
    if slant:
        page = page.rotate(slant, expand=False, fillcolor=255, resample=Image.Resampling.BICUBIC)
    if noise:
        dice = random.Random(5)
        pixels = page.load()
        for _ in range(noise):
            pixels[dice.randrange(page.width), dice.randrange(page.height)] = dice.choice((0, 128))
    return page


def image(page, kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "TIFF":
        page.convert("1").save(out, kind, compression="group4")
    elif kind in ("JPEG", "WEBP"):
        page.save(out, kind, quality=70)
    elif kind == "PNG":
        page.quantize(16).save(out, kind, optimize=True)
    elif kind == "BMP":
        page.convert("1").save(out, kind)
    else:
        page.save(out, kind)
    return out.getvalue()


def tiff_pages(pages: list) -> bytes:
    out = io.BytesIO()
    first, *rest = [page.convert("1") for page in pages]
    first.save(out, "TIFF", save_all=True, append_images=rest, compression="group4")
    return out.getvalue()


def scanned(pages: list) -> bytes:
    """A PDF that holds pictures of pages and no text."""
    out = io.BytesIO()
    first, *rest = [page.copy() for page in pages]
    first.save(out, "PDF", resolution=120.0, save_all=True, append_images=rest, title="scan")
    return out.getvalue()


def mixed(text_pdf: bytes, scan: bytes) -> bytes:
    """Pages with text followed by scanned ones."""
    import pypdf

    writer = pypdf.PdfWriter()
    for one in (text_pdf, scan):
        for page in pypdf.PdfReader(io.BytesIO(one)).pages:
            writer.add_page(page)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
