"""Images: read by OCR upright, on white, at a size that fits; bombs and broken files are refused."""

from __future__ import annotations

import io
import shutil
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image

from pipeline.errors import DocumentError
from pipeline.extract import images
from pipeline.extract.reading import Body, Limits, Reading

FILES = Path(__file__).parent / "files" / "pdf"
SAID = "Bearings are greased every four hundred hours."
needs_tesseract = pytest.mark.skipif(shutil.which("tesseract") is None, reason="the tesseract program is not installed")


@cache
def screenshot() -> Image.Image:
    """The top of a page at a screen's resolution."""
    with pypdfium2.PdfDocument(FILES / "article.pdf") as document:
        whole: Image.Image = document[2].render(scale=96 / 72).to_pil().convert("RGB")
    return whole.crop((0, 40, whole.width, 260))


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.copy().save(buffer, kind, **options)  # saving leaves settings of the encoder on an image
    return buffer.getvalue()


def read(data: bytes, **limits: Any) -> Reading:
    return images.read(Body(data, "image/png", limits=Limits(**limits)))


def text(reading: Reading) -> str:
    return " ".join(block.text for block in reading.blocks)


@needs_tesseract
@pytest.mark.requirement("A2")
def test_a_screenshot_is_read_with_its_heading() -> None:
    found = read(saved(screenshot(), "PNG"))
    assert [(b.type, b.text[: len(SAID)], b.page) for b in found.blocks] == [
        ("heading", "Maintenance", 1),
        ("paragraph", SAID, 1),
    ]
    assert found.pages == 1 and found.warnings[0].startswith("ocr: page 1 was read by OCR, mean confidence 9")


@needs_tesseract
@pytest.mark.requirement("A2")
def test_a_photo_is_turned_as_its_exif_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise for viewing
    turned = screenshot().rotate(90, expand=True)
    photo = saved(turned, "JPEG", exif=exif, quality=90)
    assert images._grey(Image.open(io.BytesIO(photo))).size == screenshot().size
    assert SAID in text(read(photo))


@needs_tesseract
@pytest.mark.requirement("A2")
def test_text_that_stands_on_its_side_is_turned() -> None:
    assert SAID in text(read(saved(screenshot().rotate(-90, expand=True), "BMP")))


@needs_tesseract
@pytest.mark.requirement("A2")
def test_dark_text_on_transparency_is_read_on_white() -> None:
    grey = screenshot().convert("L")
    drawn = Image.new("RGBA", grey.size, (0, 0, 0, 0))
    drawn.putalpha(grey.point(lambda value: 255 - value))
    assert SAID in text(read(saved(drawn, "WEBP", lossless=True)))


@needs_tesseract
@pytest.mark.requirement("A2")
def test_frames_of_a_tiff_are_pages_and_of_a_gif_only_the_first_counts() -> None:
    blank = Image.new("RGB", screenshot().size, "white")
    tiff = read(saved(blank, "TIFF", save_all=True, append_images=[screenshot().copy()]))
    assert tiff.pages == 2 and {b.page for b in tiff.blocks} == {2}
    gif = read(saved(blank, "GIF", save_all=True, append_images=[screenshot().copy()]))
    assert (gif.blocks, gif.pages, gif.warnings) == ([], 1, ["ocr: no text was found in the image"])
    with pytest.raises(DocumentError) as caught:
        read(saved(blank, "TIFF", save_all=True, append_images=[blank]), pages=1)
    assert caught.value.kind == "too-many-pages"


@needs_tesseract
@pytest.mark.requirement("A2")
def test_an_icon_has_no_text_and_says_so() -> None:
    found = read(saved(Image.new("RGBA", (16, 16), (200, 0, 0, 90)), "PNG"))
    assert (found.blocks, found.warnings) == ([], ["ocr: no text was found in the image"])


def png(width: int, height: int) -> bytes:
    """The beginning of a PNG of that size."""
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


@needs_tesseract
@pytest.mark.requirement("A2")
@pytest.mark.parametrize("size", [(10_000, 9_000), (60_000, 60_000)])
def test_huge_images_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(DocumentError, match="smaller size") as caught:
        read(png(*size))
    assert caught.value.kind == "bomb"


@needs_tesseract
@pytest.mark.requirement("A2")
@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", png(50, 50)[:45], b"GIF89a", b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_broken_images_and_other_kinds_are_refused(data: bytes) -> None:
    with pytest.raises(DocumentError, match="cannot be decoded") as caught:
        read(data)
    assert caught.value.kind == "malformed"


@pytest.mark.requirement("A2")
def test_without_ocr_an_image_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DocumentError, match=r"set extraction\.ocr to true") as caught:
        read(saved(screenshot(), "PNG"), ocr=False)
    assert caught.value.kind == "no-ocr"
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DocumentError, match="install Tesseract"):
        read(saved(screenshot(), "PNG"))


@needs_tesseract
@pytest.mark.requirement("A2")
def test_a_language_that_is_not_installed_is_told_of() -> None:
    found = read(saved(screenshot(), "PNG"), ocr_languages="eng+xyz")
    assert SAID in text(found)
    assert "ocr: not installed: xyz; text was read as eng" in found.warnings
    with pytest.raises(DocumentError, match="data of one of the languages xyz"):
        read(saved(screenshot(), "PNG"), ocr_languages="xyz")
