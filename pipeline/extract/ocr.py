"""Text on images, read by the Tesseract program."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

from pipeline.extract.pdf_model import Word
from pipeline.extract.reading import Limits

if TYPE_CHECKING:
    from PIL.Image import Image

LOW_CONFIDENCE = 70.0  # per cent; below it a page is flagged
REMEDY = "install Tesseract (tesseract-ocr and the packages of its languages) and set extraction.ocr"
_TURN_BELOW = 60.0  # per cent; below it a page may lie on its side
_TIMEOUT_S = 180.0
_CAP_HEIGHT, _X_HEIGHT = 0.72, 0.5  # of a font's size
_DESCENDS = re.compile(r"[gjpqyQ,;()\[\]{}|/@$_]")
_TALL = re.compile(r"[A-Zbdfhkl0-9ÄÖÜß]")
_READ_FOR_BULLETS = frozenset({"©", "°", "°o", "eo", "¢", "®", "«", "»", "*", "+"})  # what a drawn bullet is taken for
_NO_SINGLE_LETTERS = frozenset({"eng", "deu", "eng+deu", "deu+eng", "fra", "nld"})  # where "e" and "o" are no words


@dataclass(frozen=True, slots=True)
class Recognised:
    """What was read on one image: words in points from its top left, as it was turned to be read.

    ``confidence`` is Tesseract's, 0 to 100, mean over the characters; ``turned`` are degrees counter-clockwise.
    """

    words: list[Word] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0
    confidence: float = 0.0
    turned: int = 0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    text: str
    confidence: float
    left: int
    top: int
    right: int
    bottom: int
    line: tuple[int, int, int]  # block, paragraph, line


@dataclass(frozen=True)
class Engine:
    """A Tesseract that is there, with the languages that are asked for and installed."""

    program: str
    languages: str
    can_orient: bool
    missing: tuple[str, ...] = ()

    def read(self, image: Image, dpi: int) -> Recognised:
        """Text of an image in reading order. A page on its side or upside down is turned first.

        Never raises for what the image shows; ``failed`` is set where Tesseract took over three minutes or gave up.
        """
        plain = image if image.mode == "L" else image.convert("L")
        words = self._words(plain, dpi)
        if words is None:
            return Recognised(failed=True)
        best, turned = words, 0
        if words and (_score(words) < _TURN_BELOW or _is_upright(words)):
            told = self._orientation(plain, dpi)
            # Without a verdict all three ways are tried, but only where something was seen.
            for degrees in [told] if told else ([90, 180, 270] if told is None and len(words) > 5 else []):
                other = self._words(plain.rotate(degrees, expand=True, fillcolor=255), dpi) or []
                if _value(other) > 1.2 * _value(best):
                    best, turned = other, degrees
        width, height = (plain.height, plain.width) if turned in (90, 270) else (plain.width, plain.height)
        scale = 72 / dpi
        placed = _placed(best, scale, bullets=self.languages in _NO_SINGLE_LETTERS)
        return Recognised(placed, width * scale, height * scale, _score(best), turned)

    def _words(self, image: Image, dpi: int) -> list[_Found] | None:
        answer = self._run(image, dpi, "--psm", "3", "tsv")
        return None if answer is None else _parsed(answer)

    def _orientation(self, image: Image, dpi: int) -> int | None:
        """Degrees counter-clockwise to turn; 0 for none, None where it cannot be told."""
        answer = self._run(image, dpi, "--psm", "0") if self.can_orient else None
        for line in (answer or "").splitlines():
            if line.startswith("Rotate:") and line[7:].strip().isdigit():
                return (360 - int(line[7:])) % 360  # it tells the clockwise turn
        return None

    def _run(self, image: Image, dpi: int, *options: str) -> str | None:
        buffer = io.BytesIO()
        image.save(buffer, "PPM")
        language = "osd" if "0" in options else self.languages
        head, *tail = options
        command = [self.program, "stdin", "stdout", "-l", language, "--dpi", str(min(max(dpi, 70), 2400)), head, *tail]
        try:
            done = subprocess.run(
                command,
                input=buffer.getvalue(),
                capture_output=True,
                timeout=_TIMEOUT_S,
                env=_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def engine(limits: Limits) -> Engine | None:
    """Tesseract with the languages of ``limits``; None where OCR is off, the program or every language is missing."""
    if not limits.ocr:
        return None
    program = shutil.which("tesseract")
    try:
        return _found(program, limits.ocr_languages) if program else None
    except subprocess.SubprocessError:  # not remembered: it may work the next time
        return None


def advice(limits: Limits) -> str:
    """What to do so that scans are read."""
    if not limits.ocr:
        return "set extraction.ocr to true"
    if shutil.which("tesseract"):
        return f"install Tesseract's data of one of the languages {limits.ocr_languages} (tesseract-ocr-…)"
    return REMEDY


def doubts(found: list[tuple[int, Recognised]]) -> list[str]:
    """Warnings about pages that were read by OCR; ``found`` has their numbers."""
    read = [(page, one) for page, one in found if one.words]
    warnings: list[str] = []
    if read:
        letters = [sum(len(word.text) for word in one.words) for _, one in read]
        mean = sum(one.confidence * n for (_, one), n in zip(read, letters, strict=True)) / max(sum(letters), 1)
        pages = numbers([page for page, _ in read])
        verb = "was" if len(read) == 1 else "were"
        warnings.append(f"ocr: {pages} {verb} read by OCR, mean confidence {mean:.0f}")
        low = [page for page, one in read if one.confidence < LOW_CONFIDENCE]
        if low:
            warnings.append(f"ocr: low confidence on {numbers(low)}")
    late = [page for page, one in found if one.failed]
    if late:
        warnings.append(
            f"ocr: {numbers(late)} has no text here: Tesseract gave up or took longer than {_TIMEOUT_S:.0f} s"
        )
    return warnings


def numbers(pages: list[int]) -> str:
    """``page 3`` or ``pages 1-3, 7``; at most eight ranges, then the rest as a count."""
    ranges: list[list[int]] = []
    for page in sorted(pages):
        if ranges and page == ranges[-1][1] + 1:
            ranges[-1][1] = page
        else:
            ranges.append([page, page])
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges[:8])
    more = sum(b - a + 1 for a, b in ranges[8:])
    return f"page{'s' if len(pages) != 1 else ''} {shown}" + (f" and {more} more" if more else "")


def installed_languages(program: str) -> frozenset[str]:
    """Languages (and "osd") whose data a Tesseract has. Raises SubprocessError where it does not answer."""
    done = subprocess.run(
        [program, "--list-langs"], capture_output=True, timeout=30, env=_environment(), check=True, text=True
    )
    return frozenset(line.strip() for line in done.stdout.splitlines()[1:])


@cache
def _found(program: str, languages: str) -> Engine | None:
    installed = installed_languages(program)
    wanted = [name for name in languages.replace(",", "+").split("+") if name]
    usable = [name for name in wanted if name in installed]
    if not usable:
        return None
    missing = tuple(name for name in wanted if name not in installed)
    return Engine(program, "+".join(usable), "osd" in installed, missing)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "TESSDATA_PREFIX", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "OMP_THREAD_LIMIT": "1", "LC_ALL": "C"}  # one thread: pages are read side by side in processes


def _parsed(answer: str) -> list[_Found]:
    words: list[_Found] = []
    for row in answer.splitlines()[1:]:
        cells = row.split("\t", 11)
        if len(cells) != 12 or cells[0] != "5":
            continue
        text, confidence = cells[11].strip(), float(cells[10])
        # Specks and frames are read as strokes, dots and doubtful short words.
        if not text.strip("|_¦[]") or confidence < 0 or (confidence < 30 and len(text) < 3):
            continue
        if confidence < 50 and not any(c.isalnum() for c in text):
            continue
        left, top, width, height = (int(cell) for cell in cells[6:10])
        place = (int(cells[2]), int(cells[3]), int(cells[4]))
        words.append(_Found(text, confidence, left, top, left + width, top + height, place))
    return words


def _score(words: list[_Found]) -> float:
    letters = sum(len(word.text) for word in words)
    return sum(word.confidence * len(word.text) for word in words) / letters if letters else 0.0


def _value(words: list[_Found]) -> float:
    """How much text is read well: what decides between two ways to hold a page."""
    return sum(len(w.text) * w.confidence for w in words if w.confidence > 60 and len(w.text) > 1 and not _is_tall(w))


def _is_tall(word: _Found) -> bool:
    return word.bottom - word.top > 1.2 * (word.right - word.left)


def _is_upright(words: list[_Found]) -> bool:
    """Do most lines run upwards or down? Tesseract reads such lines too, in their places on the image."""
    long = [word for word in words if len(word.text) > 3]
    return sum(_is_tall(word) for word in long) > 0.5 * len(long)


def _placed(found: list[_Found], scale: float, *, bullets: bool) -> list[Word]:
    """Words with one baseline and one size in each line; sizes that differ little are one."""
    lines: dict[tuple[int, int, int], list[_Found]] = {}
    for one in found:
        lines.setdefault(one.line, []).append(one)
    # A stray mark that was taken for a letter or two
    lines = {key: line for key, line in lines.items() if sum(len(w.text) for w in line) > 3 or _score(line) > 70}
    measured = {key: _measured(line) for key, line in lines.items()}
    sizes = _steps([(measured[key][1] * scale, sum(len(w.text) for w in line)) for key, line in lines.items()])
    words: list[Word] = []
    for number, (key, line) in enumerate(lines.items()):
        base, size = measured[key][0] * scale, sizes[number]
        for place, one in enumerate(line):
            text = one.text
            if place == 0 and len(line) > 1 and (text in _READ_FOR_BULLETS or (bullets and text in ("e", "o"))):
                text = "•"
            top, bottom = base - 0.9 * size, base + 0.25 * size
            words.append(Word(text, one.left * scale, top, one.right * scale, bottom, base, size))
    return words


def _measured(line: list[_Found]) -> tuple[float, float]:
    """A line's baseline and its size in pixels, from letters that do not reach down and from tall ones."""
    bottoms = [w.bottom for w in line if not _DESCENDS.search(w.text)]
    base = float(median(bottoms or [w.bottom - 0.22 * (w.bottom - w.top) for w in line]))
    tall = [base - w.top for w in line if _TALL.search(w.text)]
    if tall:
        return base, max(float(median(tall)), 1.0) / _CAP_HEIGHT
    return base, max(float(median(base - w.top for w in line)), 1.0) / _X_HEIGHT


def _steps(measured: list[tuple[float, int]]) -> list[float]:
    """Sizes without the scatter of measuring: about the usual one, it; others grouped by a tenth."""
    if not measured:
        return []
    usual = median(size for size, letters in measured for _ in range(min(letters, 200)))
    groups: list[float] = []
    chosen: dict[float, float] = {}
    for size in sorted(size for size, _ in measured):
        if 0.78 * usual <= size <= 1.22 * usual:
            chosen[size] = usual
            continue
        if not groups or size > 1.12 * groups[-1]:
            groups.append(size)
        chosen[size] = groups[-1]
    return [round(chosen[size], 2) for size, _ in measured]
