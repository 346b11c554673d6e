"""What is said about pages that were read by OCR, and what a poor picture leads to."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFilter

from pipeline.errors import DocumentError
from pipeline.extract import images, ocr
from pipeline.extract.pdf_model import Word
from pipeline.extract.reading import Body, Limits

needs_tesseract = pytest.mark.skipif(shutil.which("tesseract") is None, reason="the tesseract program is not installed")


def recognised(confidence: float, letters: int = 10, late: bool = False) -> ocr.Recognised:
    words = [Word("x" * letters, 0, 0, 1, 1, 1, 10)] if letters else []
    return ocr.Recognised(words, confidence=confidence, failed=late)


def test_pages_are_named_in_ranges() -> None:
    assert ocr.numbers([3]) == "page 3"
    assert ocr.numbers([7, 1, 2, 3]) == "pages 1-3, 7"
    assert ocr.numbers(list(range(1, 40, 2))) == "pages 1, 3, 5, 7, 9, 11, 13, 15 and 12 more"


@pytest.mark.requirement("A2")
def test_confidence_is_told_over_letters_and_low_pages_are_flagged() -> None:
    found = [(1, recognised(95, 30)), (2, recognised(50, 10)), (3, recognised(0, 0)), (4, recognised(0, 0, late=True))]
    assert ocr.doubts(found) == [
        "ocr: pages 1-2 were read by OCR, mean confidence 84",
        "ocr: low confidence on page 2",
        "ocr: page 4 has no text here: Tesseract gave up or took longer than 180 s",
    ]
    assert ocr.doubts([]) == []


def drawn(blur: float) -> Image.Image:
    image = Image.new("L", (900, 120), 255)
    ImageDraw.Draw(image).text((20, 30), "The ferry leaves the harbour at noon", fill=0, font_size=44)
    return image.filter(ImageFilter.GaussianBlur(blur)) if blur else image


@needs_tesseract
@pytest.mark.requirement("A2")
def test_words_stand_at_their_places_and_blur_lowers_the_confidence() -> None:
    engine = ocr.engine(Limits())
    assert engine is not None
    sharp, poor = engine.read(drawn(0), 150), engine.read(drawn(5), 150)
    assert " ".join(word.text for word in sharp.words) == "The ferry leaves the harbour at noon"
    assert (sharp.turned, round(sharp.width), round(sharp.height, 1)) == (0, 432, 57.6)
    first, last = sharp.words[0], sharp.words[-1]
    assert 20 * 0.48 - 2 < first.x0 < 20 * 0.48 + 2 < last.x0 and len({word.base for word in sharp.words}) == 1
    assert 44 * 0.48 * 0.8 < first.size < 44 * 0.48 * 1.2
    assert sharp.confidence > 85 > poor.confidence


@pytest.mark.requirement("A2")
def test_there_is_no_engine_where_ocr_is_off() -> None:
    assert ocr.engine(Limits(ocr=False)) is None
    assert ocr.advice(Limits(ocr=False)) == "set extraction.ocr to true"


@pytest.mark.requirement("A2")
def test_a_tesseract_that_gives_up_is_no_empty_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tesseract"
    program.write_text(
        "#!/bin/sh\n[ $1 = --list-langs ] && printf 'List:\\neng\\n' && exit 0\nexit 1\n", encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    buffer = io.BytesIO()
    drawn(0).save(buffer, "PNG")
    with pytest.raises(DocumentError, match="OCR failed") as caught:
        images.read(Body(buffer.getvalue(), "image/png"))
    assert caught.value.kind == "ocr-failed"
