"""Scans in PDFs: recognised as such, page by page, read by OCR or refused, never an empty success."""

from __future__ import annotations

import io
import shutil
from functools import cache
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from pipeline.errors import DocumentError
from pipeline.extract import pdf
from pipeline.extract.reading import Body, Limits, Reading

FILES = Path(__file__).parent / "files" / "pdf"
needs_tesseract = pytest.mark.skipif(shutil.which("tesseract") is None, reason="the tesseract program is not installed")


@cache
def picture(name: str, page: int, dpi: int = 150) -> Image.Image:
    with pypdfium2.PdfDocument(FILES / name) as document:
        image: Image.Image = document[page].render(scale=dpi / 72, grayscale=True).to_pil().copy()
    return image


def scanned(*images: Image.Image) -> bytes:
    """A PDF whose pages are these pictures."""
    buffer = io.BytesIO()
    images[0].save(buffer, "PDF", resolution=150, save_all=True, append_images=images[1:])
    return buffer.getvalue()


def joined(*parts: bytes) -> bytes:
    """The pages of several PDFs in one."""
    whole = pypdfium2.PdfDocument.new()
    for part in parts:
        whole.import_pages(pypdfium2.PdfDocument(part))
    buffer = io.BytesIO()
    whole.save(buffer)
    return buffer.getvalue()


def read(data: bytes, **limits: bool | int | str) -> Reading:
    return pdf.read(Body(data, "application/pdf", limits=Limits(**limits)))  # type: ignore[arg-type]


@needs_tesseract
@pytest.mark.requirement("A2")
def test_a_scan_keeps_headings_and_columns() -> None:
    found = read(scanned(picture("columns.pdf", 0)))
    text = "\n".join(block.text for block in found.blocks)
    places = [text.find(f"Sentence {n}b says") for n in (1, 2, 3, 4)]
    assert -1 not in places and places == sorted(places)
    assert [b.text for b in found.blocks if b.type == "heading"][:2] == [
        "Two columns with a heading between",
        "1 Sources",
    ]
    assert places[1] < text.index("2 Results over the whole width") < places[2]
    (warning,) = found.warnings
    assert warning.startswith("ocr: page 1 was read by OCR, mean confidence 9")
    assert {b.page for b in found.blocks} == {1}


@needs_tesseract
@pytest.mark.requirement("A2")
def test_a_scan_upside_down_and_a_text_page_in_one_document() -> None:
    page = picture("article.pdf", 2)
    upside_down = page.crop((0, 0, page.width, page.height // 4)).rotate(180)
    found = read(joined((FILES / "form.pdf").read_bytes(), scanned(upside_down)))
    assert (found.blocks[0].page, found.blocks[0].text) == (1, "Name of the owner:")
    second = " ".join(b.text for b in found.blocks if b.page == 2)
    assert second.startswith(
        "Maintenance Bearings are greased every four hundred hours. The rakes of the inlet screens"
    )
    assert [w.split(",")[0] for w in found.warnings] == ["ocr: page 2 was read by OCR"]


@pytest.mark.requirement("A2")
def test_a_scan_without_ocr_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    data = scanned(picture("article.pdf", 2, 50))
    with pytest.raises(DocumentError, match=r"pictures without text; set extraction\.ocr to true") as off:
        read(data, ocr=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DocumentError, match="install Tesseract") as missing:
        read(data)
    assert (off.value.kind, missing.value.kind) == ("no-ocr", "no-ocr")


@pytest.mark.requirement("A2")
def test_a_scanned_page_among_text_is_told_of_where_there_is_no_ocr() -> None:
    data = joined((FILES / "form.pdf").read_bytes(), scanned(picture("article.pdf", 2, 50)))
    found = read(data, ocr=False)
    assert [b.page for b in found.blocks] == [1, 1]
    assert found.warnings == ["ocr: no text on page 2, only pictures; set extraction.ocr to true"]


@needs_tesseract
@pytest.mark.requirement("A2")
def test_pages_over_the_limit_of_ocr_are_told_of() -> None:
    small = picture("article.pdf", 2, 100).crop((0, 0, 827, 300))
    found = read(scanned(small, small, small), ocr_pages=1)
    assert {b.page for b in found.blocks} == {1}
    assert found.warnings[1] == "ocr: 2 pages were not read; raise extraction.ocr_pages above 1"


@needs_tesseract
@pytest.mark.requirement("A2")
def test_a_blank_scan_has_no_blocks_and_says_so() -> None:
    found = read(scanned(Image.new("L", (620, 877), 255)))
    assert (found.blocks, found.warnings) == ([], ["ocr: no text was found on page 1"])


@pytest.mark.requirement("A2")
def test_the_hidden_text_of_an_earlier_ocr_is_used_and_flagged() -> None:
    buffer = io.BytesIO()
    picture("article.pdf", 2, 50).save(buffer, "JPEG")
    image = buffer.getvalue()
    width, height = picture("article.pdf", 2, 50).size
    content = b"q 595 0 0 842 0 0 cm /I Do Q BT 3 Tr /F1 12 Tf 50 700 Td (Words that an earlier OCR has read) Tj"
    content += b" 0 -20 Td (stand under the picture.) Tj ET"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>/XObject<</I 6 0 R>>>>>>",
        b"<</Length %d>>stream\n" % len(content) + content + b"\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 8/Filter/DCTDecode"
        b"/Length %d>>stream\n" % (width, height, len(image)) + image + b"\nendstream",
    ]
    data = b"%PDF-1.7\n" + b"".join(b"%d 0 obj\n" % n + o + b"\nendobj\n" for n, o in enumerate(objects, start=1))
    found = read(data + b"trailer <</Size 7/Root 1 0 R>>\n%%EOF")
    assert [b.text for b in found.blocks] == ["Words that an earlier OCR has read stand under the picture."]
    assert found.warnings == ["ocr: the text of page 1 lies hidden over an image, from an earlier OCR"]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("ocr", [pytest.param(True, marks=needs_tesseract), False])
def test_glyphs_without_characters_are_read_by_ocr_or_refused(ocr: bool) -> None:
    """A font that maps its letters to private characters: what is seen is text, what is stored is none."""
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapType 2 def 1 begincodespacerange <00> <FF> "
        b"endcodespacerange 1 beginbfrange <20> <7E> <E020> endbfrange endcmap end end"
    )
    content = b"BT /F1 24 Tf 50 700 Td (The ferry leaves the harbour) Tj 0 -40 Td (at noon every other day.) Tj ET"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n" % len(content) + content + b"\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
        b"<</Length %d>>stream\n" % len(cmap) + cmap + b"\nendstream",
    ]
    data = b"%PDF-1.7\n" + b"".join(b"%d 0 obj\n" % n + o + b"\nendobj\n" for n, o in enumerate(objects, start=1))
    data += b"trailer <</Size 7/Root 1 0 R>>\n%%EOF"
    if ocr:
        assert " ".join(b.text for b in read(data).blocks) == "The ferry leaves the harbour at noon every other day."
    else:
        with pytest.raises(DocumentError) as caught:
            read(data, ocr=False)
        assert caught.value.kind == "no-ocr"
