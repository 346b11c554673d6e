"""One page as PDFium reads it: words with their style and place, drawn lines, images, links, form fields."""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from pipeline.extract import links
from pipeline.extract.pdf_graphics import Geometry, Graphics, graphics
from pipeline.extract.pdf_model import PageContent, Tag, Word
from pipeline.extract.pdf_tags import page_tags
from pipeline.extract.pdf_text import is_leftward

_MAX_CHARS = 1_000_000
_MAX_ANNOTATIONS = 5_000
_BOLD = re.compile(r"bold|black|heavy|semibold|demi", re.I)
_MONO = re.compile(
    r"mono|monl|courier|consol|menlo|typewriter|cmtt|fixed|inconsolata|source ?code|fira ?code|lettergothic", re.I
)
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_FIGURES = re.compile(r"[0-9A-Za-z][0-9A-Za-z.,:/-]*[0-9A-Za-z]")
_HYPHENS = (0x02, 0xFFFE)  # what PDFium puts where a hyphen ends a line
_SOFT_HYPHEN = 0xAD
_BULLETS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0D8: "▸", 0xF076: "•", 0xF0FC: "✓", 0xF0A8: "▪", 0xF06F: "◦"}


@dataclass(slots=True)
class _Style:
    size: float
    angle: int  # degrees, counter-clockwise, to the next 90; -1 for slanting text
    bold: bool
    mono: bool
    font: str
    shown: str  # "yes", "no", "layer" (invisible), "white" (shown on a dark ground only)
    tag: Tag | None


@dataclass(slots=True)
class _Run:
    """Characters of the word in progress."""

    text: list[str] = field(default_factory=list)
    x0: float = 0.0
    top: float = 0.0
    x1: float = 0.0
    bottom: float = 0.0
    base: float = 0.0
    places: list[float] = field(default_factory=list)  # where its characters begin
    style: _Style | None = None
    spaced: bool = True


def read_page(page: Any, number: int, form: Any) -> PageContent:
    """Everything of a page that can be text. ``page`` is a pypdfium2 page, ``form`` its form environment or None."""
    import pypdfium2.raw as pdfium

    geometry = Geometry.of(page)
    drawn = graphics(page, geometry)
    textpage = page.get_textpage()
    try:
        content, turned = _text(page, textpage, number, geometry, drawn, pdfium)
        if turned:  # most of the text runs upwards or down: look at the page from there
            geometry = geometry.turned(turned)
            drawn = graphics(page, geometry)
            content, _ = _text(page, textpage, number, geometry, drawn, pdfium)
    finally:
        textpage.close()
    content.rulings = drawn.rulings
    content.paths, content.covered, content.pixels = drawn.paths, drawn.covered, drawn.pixels
    content.words.extend(drawn.bullets(content.words))
    if form is not None:
        content.words.extend(_fields(page, form, geometry, pdfium))
    _add_links(page, content.words, geometry, pdfium)
    return content


def _text(
    page: Any, textpage: Any, number: int, geometry: Geometry, drawn: Graphics, pdfium: Any
) -> tuple[PageContent, int]:
    """The page's words, and how much further it has to be turned for most of its text to be upright."""
    content = PageContent(number, geometry.width, geometry.height)
    tags = page_tags(page)
    raw = textpage.raw
    total = pdfium.FPDFText_CountChars(raw)
    if total > _MAX_CHARS:
        content.warnings.append(f"pdf: page {number} has {total} characters; the first {_MAX_CHARS} were read")
        total = _MAX_CHARS
    styles: dict[int, _Style] = {}
    box, x, y = pdfium.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    words: list[tuple[Word, _Style]] = []
    run = _Run()
    bad = good = 0
    by_angle: dict[int, int] = {}
    for i in range(total):
        code = pdfium.FPDFText_GetUnicode(raw, i)
        if code in (0x20, 0x0A, 0x0D, 0x09, 0xA0, 0x3000):
            _close(run, words)
            run.spaced = run.spaced or not pdfium.FPDFText_IsGenerated(raw, i)
            continue
        target = pdfium.FPDFText_GetTextObject(raw, i)
        key = ctypes.cast(target, ctypes.c_void_p).value or 0
        style = styles.get(key)
        if style is None:
            style = styles[key] = _style(raw, i, target, geometry.rotation, tags, pdfium)
        if style.shown == "no":
            continue
        pdfium.FPDFText_GetLooseCharBox(raw, i, box)
        pdfium.FPDFText_GetCharOrigin(raw, i, x, y)
        text = _letters(code)
        if text is None or pdfium.FPDFText_HasUnicodeMapError(raw, i) == 1:
            bad += 1
            if text is None:
                continue
        else:
            good += 1
        x0, top, x1, bottom = geometry.box(box.left, box.bottom, box.right, box.top)
        base = geometry.point(x.value, y.value)[1]
        if run.text and not _continues(run, style, x0, x1, base):
            _close(run, words)
        if not run.text:
            run.x0, run.top, run.x1, run.bottom, run.base, run.style = x0, top, x1, bottom, base, style
        else:
            run.x0, run.x1 = min(run.x0, x0), max(run.x1, x1)
            run.top, run.bottom = min(run.top, top), max(run.bottom, bottom)
        run.places.append(x0)
        run.text.append(text)
        by_angle[style.angle] = by_angle.get(style.angle, 0) + 1
    _close(run, words)
    content.garbage = bad / (bad + good) if bad + good else 0.0
    main = max(by_angle, key=lambda a: (by_angle[a], a == 0), default=0)
    if main > 0:
        return content, main
    _find_mono(words)
    _place(words, content, drawn)
    return content, 0


def _find_mono(words: list[tuple[Word, _Style]]) -> None:
    """Fonts whose name does not say it, but whose words are all as wide as they have letters, have a fixed pitch."""
    widths: dict[str, list[tuple[str, float]]] = {}
    for word, style in words:
        if not style.mono and style.font and len(word.text) >= 4 and style.size > 0:
            widths.setdefault(style.font, []).append((word.text, word.advance / style.size))
    fixed: set[str] = set()
    for font, found in widths.items():
        ratios = sorted(ratio for _, ratio in found)
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]  # a borrowed glyph is wider
        letters = set("".join(text for text, _ in found[:200]))
        if len(found) >= 4 and letters & set("il.,:") and letters & set("mwMW@") and high < 1.01 * low:
            fixed.add(font)
    for word, style in words:
        word.mono = word.mono or style.font in fixed


def _place(words: list[tuple[Word, _Style]], content: PageContent, drawn: Graphics) -> None:
    """Keep what a reader of the page would see, once."""
    seen: dict[tuple[str, int, int], bool] = {}
    for word, style in words:
        x, y = word.middle
        if not (0 <= x <= content.width and 0 <= y <= content.height):
            continue
        if style.shown == "layer":
            if not drawn.under_image(x, y):
                continue
            content.layered = True
        if style.shown == "white" and not drawn.dark_at(x, y):
            continue
        key = (word.text, round(word.x0 / 2), round(word.base / 2))
        if key in seen:  # drawn twice for a bold look or a shadow
            continue
        seen[key] = True
        (content.words if style.angle == 0 else content.aside).append(word)


def _continues(run: _Run, style: _Style, x0: float, x1: float, base: float) -> bool:
    before = run.style
    assert before is not None
    if before is not style and (before.angle != style.angle or abs(before.size - style.size) > 0.2 * before.size):
        return False
    reach = max(before.size, style.size)
    if style.angle == -1:
        return True
    return abs(base - run.base) <= 0.3 * reach and x0 - run.x1 < 0.6 * reach and run.x0 - x1 < 0.6 * reach


def _close(run: _Run, words: list[tuple[Word, _Style]]) -> None:
    if not run.text or run.style is None:
        return
    text, style = "".join(run.text), run.style
    if is_leftward(text):
        text = _from_the_right(run)
    advance = (run.x1 - run.x0) / max(len(text), 1)
    word = Word(
        text, run.x0, run.top, run.x1, run.bottom, run.base, style.size, style.bold, style.mono, advance, style.tag
    )
    word.spaced = run.spaced
    words.append((word, style))
    run.text, run.places, run.spaced = [], [], False


def _from_the_right(run: _Run) -> str:
    """Letters from the right to the left as they stand, whatever order they are stored in; figures in theirs."""
    ordered = sorted(zip(run.places, run.text, strict=True), key=lambda pair: -pair[0])
    text = "".join(letters for _, letters in ordered)
    return _FIGURES.sub(lambda found: found.group()[::-1], text)


def _letters(code: int) -> str | None:
    """The character as it is kept; None for one that means nothing (unmapped, private use, control)."""
    if code in _HYPHENS:
        return "-"
    if code == _SOFT_HYPHEN:
        return "\u00ad"
    if code in _LIGATURES:
        return _LIGATURES[code]
    if code in _BULLETS:
        return _BULLETS[code]
    if code < 0x20 or code == 0xFFFD or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
        return None
    if 0xFB1D <= code <= 0xFDFF or 0xFE70 <= code <= 0xFEFC:  # forms of Hebrew and Arabic letters
        return unicodedata.normalize("NFKC", chr(code))
    char = chr(code)
    return None if unicodedata.category(char) in ("Co", "Cn", "Cc") else char


def _style(raw: Any, index: int, target: Any, rotation: int, tags: dict[int, Tag], pdfium: Any) -> _Style:
    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFText_GetMatrix(raw, index, matrix)
    scale = math.hypot(matrix.c, matrix.d) or 1.0
    size = pdfium.FPDFText_GetFontSize(raw, index) * scale
    degrees = (math.degrees(math.atan2(matrix.b, matrix.a)) - rotation) % 360
    quarter = round(degrees / 90) * 90
    turned = quarter % 360 if abs(degrees - quarter) < 5 else -1
    name, flags, weight, mode, content = "", 0, 0, 0, -1
    if target:
        font = pdfium.FPDFTextObj_GetFont(target)
        if font:
            buffer = ctypes.create_string_buffer(128)
            pdfium.FPDFFont_GetBaseFontName(font, buffer, 128)
            name = buffer.value.decode("utf-8", "replace")
            flags, weight = pdfium.FPDFFont_GetFlags(font), pdfium.FPDFFont_GetWeight(font)
        mode = pdfium.FPDFTextObj_GetTextRenderMode(target)
        content = pdfium.FPDFPageObj_GetMarkedContentID(target)
    named_bold = bool(_BOLD.search(name)) or (weight >= 600 and weight <= 1000) or mode == 2
    mono = bool(flags > 0 and flags & 1) or bool(_MONO.search(name))
    return _Style(size, turned, named_bold, mono, name, _shown(target, mode, size, pdfium), tags.get(content))


def _shown(target: Any, mode: int, size: float, pdfium: Any) -> str:
    if mode in (3, 7):
        return "layer"
    if 0 < abs(size) < 1.0:
        return "no"
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    if mode in (0, 4) and target and pdfium.FPDFPageObj_GetFillColor(target, red, green, blue, alpha):
        if alpha.value < 8:
            return "no"
        if min(red.value, green.value, blue.value) >= 250:
            return "white"
    return "yes"


def _add_links(page: Any, words: list[Word], geometry: Geometry, pdfium: Any) -> None:
    """Write a link's address behind the last word of its text."""
    position, link = ctypes.c_int(0), pdfium.FPDF_LINK()
    found: list[tuple[str, list[Word]]] = []
    for _ in range(_MAX_ANNOTATIONS):
        if not pdfium.FPDFLink_Enumerate(page.raw, position, link):
            break
        url = _uri(page, link, pdfium)
        rect = pdfium.FS_RECTF()
        if not url or not pdfium.FPDFLink_GetAnnotRect(link, rect):
            continue
        x0, top, x1, bottom = geometry.box(rect.left, rect.bottom, rect.right, rect.top)
        inside = [w for w in words if x0 - 1 <= w.middle[0] <= x1 + 1 and top - 1 <= w.middle[1] <= bottom + 1]
        if not inside:
            continue
        inside.sort(key=lambda w: (round(w.base), w.x0))
        if found and found[-1][0] == url and inside[0].top - found[-1][1][-1].bottom < 2 * inside[0].size:
            found[-1][1].extend(inside)  # one link over two lines
        else:
            found.append((url, inside))
    for url, inside in found:
        last = inside[-1]
        bare = last.text.rstrip(".,;:!?)")
        last.text = bare + links.suffix(" ".join(w.text for w in inside), url) + last.text[len(bare) :]


def _uri(page: Any, link: Any, pdfium: Any) -> str:
    action = pdfium.FPDFLink_GetAction(link)
    if not action or pdfium.FPDFAction_GetType(action) != pdfium.PDFACTION_URI:
        return ""
    document = page.pdf.raw
    size = pdfium.FPDFAction_GetURIPath(document, action, None, 0)
    buffer = ctypes.create_string_buffer(min(size, 4096))
    pdfium.FPDFAction_GetURIPath(document, action, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


def _fields(page: Any, form: Any, geometry: Geometry, pdfium: Any) -> list[Word]:
    """Values of form fields as words at their places; check boxes as [x] and [ ]."""
    found: list[Word] = []
    for i in range(min(max(pdfium.FPDFPage_GetAnnotCount(page.raw), 0), _MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page.raw, i)
        if not annotation:
            continue
        try:
            if pdfium.FPDFAnnot_GetSubtype(annotation) != pdfium.FPDF_ANNOT_WIDGET:
                continue
            text = _value(annotation, form, pdfium)
            rect = pdfium.FS_RECTF()
            if not text or not pdfium.FPDFAnnot_GetRect(annotation, rect):
                continue
            x0, top, x1, bottom = geometry.box(rect.left, rect.bottom, rect.right, rect.top)
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)
        size = min(max(bottom - top - 4, 6.0), 11.0)
        for number, line in enumerate(text.split("\n")):
            base = (top + bottom + size * 0.7) / 2 if "\n" not in text else top + size * (1 + 1.2 * number)
            end = min(x1, x0 + 0.5 * size * len(line)) if x1 > x0 else x0
            found.append(Word(line, x0, base - size, end, base + 0.2 * size, base, size))
    return found


def _value(annotation: Any, form: Any, pdfium: Any) -> str:
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON):
        return "[x]" if pdfium.FPDFAnnot_IsChecked(form, annotation) else "[ ]"
    if kind not in (pdfium.FPDF_FORMFIELD_TEXTFIELD, pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX):
        return ""
    size = pdfium.FPDFAnnot_GetFormFieldValue(form, annotation, None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    pdfium.FPDFAnnot_GetFormFieldValue(form, annotation, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace").replace("\r\n", "\n").replace("\r", "\n").strip()
