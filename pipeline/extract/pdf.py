"""PDF to typed blocks, on PDFium; pages that are pictures are read by OCR."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pipeline.extract import images, ocr
from pipeline.extract.pdf_blocks import to_blocks
from pipeline.extract.pdf_furniture import without_furniture, without_marks
from pipeline.extract.pdf_guard import unpacked_over
from pipeline.extract.pdf_headings import Outline, bare
from pipeline.extract.pdf_layout import lay_out
from pipeline.extract.pdf_model import Item, Line, PageContent, Prepared
from pipeline.extract.pdf_page import read_page
from pipeline.extract.pdf_print import without_print_marks
from pipeline.extract.pdf_rows import plain_lines
from pipeline.extract.pdf_tables import ruled_tables, tagged_tables
from pipeline.extract.reading import Body, Reading, refused

_FEW = 40  # characters; with no more on it, a page under an image is a scan
_COVERED = 0.5  # share of a page under images that makes a page without text a scan
_GARBAGE = 0.4  # share of glyphs without a character from which text is none
_DRAWN = 60  # shapes on a page without text: its letters may be drawn
_OCR_DPI = 300
_OCR_PIXELS = 12_000_000
_IMAGE_PIXELS = 200_000_000
_MAX_BOOKMARKS = 5_000
_LANGUAGE = re.compile(r"[a-zA-Z]{2,3}(?:-[A-Za-z0-9]{2,8})*")
_NO_TITLE = re.compile(
    r"(?i)(?:untitled.*|\(?anonymous\)?|\(?unspecified\)?|none|null|(?:document|presentation|slide|book|sheet|layout|no title|title)\s*\d*|about:blank|[a-z]:\\.*|https?://\S*"
    r"|(?:microsoft|libreoffice) \w+ - .*|.*\.(?:docx?|pptx?|xlsx?|odt|rtf|txt|indd|qxd|tex|dvi|pdf|html?|cdr|pages))"
)


@dataclass
class _Pages:
    """What was collected of all pages; lists run side by side."""

    items: list[list[Item]] = field(default_factory=list)
    aside: list[list[Prepared]] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)
    recognised: list[tuple[int, ocr.Recognised]] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)  # pictures that there was no OCR for
    beyond: list[int] = field(default_factory=list)  # over the limit of OCR
    layered: list[int] = field(default_factory=list)
    garbled: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read(body: Body) -> Reading:
    """Blocks of a PDF with their pages, its title and language if they say anything.

    Raises DocumentError: 'encrypted', 'malformed', 'too-many-pages', 'bomb' 'no-ocr' (nothing but pictures, while OCR
    is off or not installed) and 'ocr-failed'. Scripts, attached files and comments are not read.
    """
    import pypdfium2

    if unpacked_over(body.data, body.limits.unpacked_bytes):
        raise refused(
            f"pdf: its streams unpack to more than {body.limits.unpacked_bytes >> 20} MB; print it to a new PDF or "
            "raise extraction.unpacked_mb",
            "bomb",
        )
    try:
        document = pypdfium2.PdfDocument(body.data)
    except pypdfium2.PdfiumError as error:
        raise _unreadable(error) from error
    try:
        return _read(document, body)
    finally:
        document.close()


def _unreadable(error: Any) -> Exception:
    import pypdfium2.raw as pdfium

    if getattr(error, "err_code", None) in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
        return refused("pdf: it is encrypted with a password; store it without one", "encrypted")
    return refused("pdf: it is damaged or no PDF; open it and print it to a new PDF", "malformed")


def _read(document: Any, body: Body) -> Reading:
    count = len(document)
    if count == 0:
        raise refused("pdf: it has no pages; open it and print it to a new PDF", "malformed")
    if count > body.limits.pages:
        raise refused(
            f"pdf: {count} pages, over {body.limits.pages}; split it or raise extraction.pages", "too-many-pages"
        )
    import pypdfium2.raw as pdfium

    if document.get_formtype() != pdfium.FORMTYPE_NONE:
        document.init_forms()
    form = document.formenv.raw if document.formenv is not None else None
    pages = _Pages()
    engine = ocr.engine(body.limits)
    for index in range(count):
        _add_page(document, index, form, engine, body, pages)
    if len(pages.broken) == count:
        raise refused("pdf: none of its pages can be read; open it and print it to a new PDF", "malformed")
    items = without_furniture(pages.items, pages.heights)
    for found, aside in zip(items, without_marks(pages.aside), strict=True):
        found.extend(aside)
    blocks = to_blocks(items, _outline(document))
    if not blocks and pages.unread:
        raise refused(f"pdf: its pages are pictures without text; {ocr.advice(body.limits)}", "no-ocr")
    if not blocks and any(one.failed for _, one in pages.recognised):
        raise refused("pdf: OCR of its pages failed; see that Tesseract runs, then send it again", "ocr-failed")
    warnings = _warnings(document, body, engine, pages)
    return Reading(blocks, _title(document), _language(document), count, warnings)


def _add_page(document: Any, index: int, form: Any, engine: ocr.Engine | None, body: Body, pages: _Pages) -> None:
    import pypdfium2

    number = index + 1
    try:
        page = document[index]
    except pypdfium2.PdfiumError:
        pages.broken.append(number)
        pages.items.append([])
        pages.aside.append([])
        pages.heights.append(842.0)
        return
    try:
        content = read_page(page, number, form)
        content.words = without_print_marks(content.words, content.height, number, len(document))
        items = _laid_out(content)
        aside = [Prepared(line.text, number) for line in plain_lines(content.aside, number)]
        height = content.height
        if _is_picture(content):
            one = _recognised(page, content, engine, body, pages)
            if one is not None and one.words:
                items, aside, height = _replaced(content, items, one), [], one.height
        elif content.layered:
            pages.layered.append(number)
        if content.garbage > 0.02 and items:
            pages.garbled.append(number)
    finally:
        page.close()
    pages.items.append(items)
    pages.aside.append(aside)
    pages.heights.append(height)
    pages.warnings.extend(content.warnings)


def _laid_out(content: PageContent) -> list[Item]:
    tagged, words = tagged_tables(content.words, content.number)
    ruled, words = ruled_tables(words, content.rulings, content.number)
    return lay_out(words, tagged + ruled, content.number)


def _is_picture(content: PageContent) -> bool:
    """Does the page show text that it does not hold?"""
    letters = sum(len(word.text) for word in content.words) + sum(len(word.text) for word in content.aside)
    if content.garbage > _GARBAGE:
        return True
    if letters <= _FEW and content.covered >= _COVERED:
        return True
    return letters == 0 and (content.covered > 0.03 or content.paths > _DRAWN)


def _recognised(
    page: Any, content: PageContent, engine: ocr.Engine | None, body: Body, pages: _Pages
) -> ocr.Recognised | None:
    """What OCR reads on a page; None where it is not asked."""
    if engine is None or content.pixels > _IMAGE_PIXELS:
        pages.unread.append(content.number)
        return None
    if len(pages.recognised) >= body.limits.ocr_pages:
        pages.beyond.append(content.number)
        return None
    inches = max(content.width * content.height / 72**2, 0.01)
    dpi = max(int(min(_OCR_DPI, (_OCR_PIXELS / inches) ** 0.5)), 1)
    bitmap = page.render(scale=dpi / 72, grayscale=True)
    try:
        one = engine.read(bitmap.to_pil(), dpi)
    finally:
        bitmap.close()
    pages.recognised.append((content.number, one))
    return one


def _replaced(content: PageContent, items: list[Item], one: ocr.Recognised) -> list[Item]:
    """What OCR read, and the text of a stamp over the scan that it did not make out."""
    found = lay_out(one.words, [], content.number)
    if content.garbage > _GARBAGE:
        return found
    shown = bare(" ".join(word.text for word in one.words))
    return found + [item for item in items if isinstance(item, Line) and bare(item.text) not in shown]


def _warnings(document: Any, body: Body, engine: ocr.Engine | None, pages: _Pages) -> list[str]:
    import pypdfium2.raw as pdfium

    told: list[str] = []
    if pages.recognised and engine is not None:
        total = len(pages.recognised) + len(pages.beyond)
        told += images.doubts(engine, pages.recognised, total, body.limits.ocr_pages)
        empty = [page for page, one in pages.recognised if not one.words and not one.failed]
        if empty:
            told.append(f"ocr: no text was found on {ocr.numbers(empty)}")
    if pages.unread:
        why = ocr.advice(body.limits) if engine is None else "its image is too large"
        told.append(f"ocr: no text on {ocr.numbers(pages.unread)}, only pictures; {why}")
    if pages.layered:
        told.append(f"ocr: the text of {ocr.numbers(pages.layered)} lies hidden over an image, from an earlier OCR")
    if pages.garbled:
        told.append(f"pdf: some glyphs of {ocr.numbers(pages.garbled)} stand for no character and were left out")
    if pages.broken:
        told.append(f"pdf: {ocr.numbers(pages.broken)} could not be read")
    if b"%%EOF" not in body.data[-2048:]:
        told.append("pdf: the file ends early; text may be missing")
    attached = pdfium.FPDFDoc_GetAttachmentCount(document.raw)
    if attached > 0:
        told.append(f"pdf: {attached} attached file{'s were' if attached > 1 else ' was'} not read")
    if document.get_formtype() == pdfium.FORMTYPE_XFA_FULL:
        told.append("pdf: it is a dynamic XFA form; only its placeholder page was read")
    return told + pages.warnings[:5]


def _outline(document: Any) -> Outline:
    import pypdfium2

    found = Outline()
    try:
        for bookmark in islice(document.get_toc(max_depth=8), _MAX_BOOKMARKS):
            target = bookmark.get_dest()
            index = target.get_index() if target is not None else None
            if index is not None and (title := bare(bookmark.get_title())):
                found.depths.setdefault((title, index + 1), bookmark.level)
    except (pypdfium2.PdfiumError, ValueError):  # a damaged outline is none
        return Outline()
    return found


def _title(document: Any) -> str | None:
    title = " ".join(document.get_metadata_value("Title").replace("\x00", "").split())
    return title if title and any(c.isalpha() for c in title) and not _NO_TITLE.fullmatch(title) else None


def _language(document: Any) -> str | None:
    import pypdfium2.raw as pdfium

    size = pdfium.FPDFCatalog_GetLanguage(document.raw, None, 0)
    if not 2 < size < 128:
        return None
    buffer = ctypes.create_string_buffer(size)
    pdfium.FPDFCatalog_GetLanguage(document.raw, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    text = buffer.raw[: size - 2].decode("utf-16-le", "replace").strip()
    return text if _LANGUAGE.fullmatch(text) else None
