"""Images: their text by OCR."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from pipeline.errors import DocumentError
from pipeline.extract import ocr
from pipeline.extract.pdf_blocks import to_blocks
from pipeline.extract.pdf_furniture import without_furniture
from pipeline.extract.pdf_headings import Outline
from pipeline.extract.pdf_layout import lay_out
from pipeline.extract.reading import Body, Reading, refused

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP")
_MAX_PIXELS = 80_000_000  # of one frame
_WORK_PIXELS = 12_000_000  # what OCR is given: an A4 page at 350 dpi
_COARSE_PIXELS = 2_500_000  # up to here an image without a high resolution is doubled: screenshots have small letters
_TINY = 20  # pixels; nothing lower holds a line of text
_DPI = 150
_NO_TEXT = "ocr: no text was found in the image"


def read(body: Body) -> Reading:
    """Text of an image; the frames of a TIFF are its pages, of animations the first frame is read.

    Raises DocumentError: 'malformed', 'bomb' (over 80 million pixels), 'too-many-pages', 'ocr-failed' and, where OCR
    is off or not installed, 'no-ocr'.
    """
    reader = ocr.engine(body.limits)
    if reader is None:
        raise refused(f"image: its text can only be read by OCR; {ocr.advice(body.limits)}", "no-ocr")
    try:
        return _read(body, reader)
    except DocumentError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # decoders raise whatever they meet: OSError, SyntaxError, struct.error, ValueError
        raise refused(
            f"image: it cannot be decoded ({type(error).__name__}); open it and save it anew", "malformed"
        ) from error


def _read(body: Body, reader: ocr.Engine) -> Reading:
    from PIL import Image, ImageSequence

    reading = Reading()
    found: list[tuple[int, ocr.Recognised]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        try:
            image = Image.open(io.BytesIO(body.data), formats=_FORMATS)
            paged = image.format == "TIFF"
            number = 0
            for frame in ImageSequence.Iterator(image):
                number += 1
                if number > body.limits.pages:
                    raise refused(
                        f"image: it has more than {body.limits.pages} pages; split it or raise extraction.pages",
                        "too-many-pages",
                    )
                if number <= body.limits.ocr_pages:
                    found.append((number, _frame(frame, reader)))
                if not paged:
                    break
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise _too_large() from error
    reading.pages = number
    pages = [lay_out(one.words, [], page) for page, one in found]
    reading.blocks = to_blocks(without_furniture(pages, [one.height for _, one in found]), Outline())
    reading.warnings = doubts(reader, found, number, body.limits.ocr_pages)
    if not reading.blocks and any(one.failed for _, one in found):
        raise refused("image: its OCR failed; see that Tesseract runs, then send it again", "ocr-failed")
    if not reading.blocks:
        reading.warnings.append(_NO_TEXT)
    return reading


def doubts(reader: ocr.Engine, found: list[tuple[int, ocr.Recognised]], total: int, limit: int) -> list[str]:
    """What is doubtful about pages that were read by OCR, of ``total`` that had to be."""
    told = ocr.doubts(found)
    if reader.missing:
        told.append(f"ocr: not installed: {', '.join(reader.missing)}; text was read as {reader.languages}")
    if total > limit:
        told.append(f"ocr: {total - limit} pages were not read; raise extraction.ocr_pages above {limit}")
    return told


def _frame(image: Image, reader: ocr.Engine) -> ocr.Recognised:
    if image.width * image.height > _MAX_PIXELS:
        raise _too_large()
    if min(image.size) < _TINY:
        return ocr.Recognised()
    dpi = _resolution(image)
    plain = _grey(image)
    pixels = plain.width * plain.height
    scale = 1.0
    if pixels > _WORK_PIXELS:
        scale = (_WORK_PIXELS / pixels) ** 0.5
    elif dpi <= _DPI and pixels <= _COARSE_PIXELS:
        scale = 2.0
    if scale != 1.0:
        from PIL import Image as images

        size = (max(int(plain.width * scale), 1), max(int(plain.height * scale), 1))
        plain = plain.resize(size, images.Resampling.LANCZOS)
    return reader.read(plain, min(max(int(dpi * scale), 70), 600))


def _resolution(image: Image) -> float:
    """Dots per inch as the file says, else as a screen has them."""
    told = image.info.get("dpi")
    value = told[0] if isinstance(told, tuple) and told else 0
    try:
        dpi = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return 96.0
    return dpi if 70 <= dpi <= 2400 else 96.0


def _grey(image: Image) -> Image:
    """Upright, in grey, on white."""
    from PIL import Image as images
    from PIL import ImageOps

    if image.format == "JPEG" and image.width * image.height > 4 * _WORK_PIXELS:
        image.draft("L", (image.width // 2, image.height // 2))
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16") or upright.mode == "I":
        return upright.point(lambda value: value / 256).convert("L")
    if upright.mode == "F":
        return upright.convert("L")
    if upright.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in upright.info:
        full = upright.convert("RGBA")
        ground = images.new("RGBA", full.size, "white")
        return images.alpha_composite(ground, full).convert("L")
    return upright.convert("L")


def _too_large() -> DocumentError:
    return refused(
        f"image: it has more than {_MAX_PIXELS // 1_000_000} million pixels; store it in a smaller size", "bomb"
    )
