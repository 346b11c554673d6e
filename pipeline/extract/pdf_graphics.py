"""What is drawn on a page besides text: rulings, grounds, images, bullets; and the space in which a page is seen."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pipeline.extract.pdf_model import Ruling, Word

_MAX_OBJECTS = 200_000
_MAX_PATHS = 20_000  # a page with more is a drawing: the rest is counted only
_MAX_RULINGS = 20_000
_MAX_SEGMENTS = 400
_MAX_FORMS = 12  # depth of form objects inside each other
_THIN = 2.6  # points; a filled box this thin is a line
_Matrix = tuple[float, float, float, float, float, float]
_Box = tuple[float, float, float, float]
_IDENTITY: _Matrix = (1, 0, 0, 1, 0, 0)


@dataclass(frozen=True, slots=True)
class Geometry:
    """From a page's own space to one with the origin at the top left, after the page's rotation."""

    left: float
    bottom: float
    right: float
    top: float
    rotation: int = 0  # degrees clockwise

    @classmethod
    def of(cls, page: Any) -> Geometry:
        """The visible box of a pypdfium2 page, with its rotation."""
        left, bottom, right, top = page.get_cropbox()
        return cls(left, bottom, right, top, int(page.get_rotation()) % 360)

    def turned(self, degrees: int) -> Geometry:
        """The page looked at after ``degrees`` more, clockwise."""
        return Geometry(self.left, self.bottom, self.right, self.top, (self.rotation + degrees) % 360)

    @property
    def width(self) -> float:
        """Width as seen."""
        return self.top - self.bottom if self.rotation in (90, 270) else self.right - self.left

    @property
    def height(self) -> float:
        """Height as seen."""
        return self.right - self.left if self.rotation in (90, 270) else self.top - self.bottom

    def point(self, x: float, y: float) -> tuple[float, float]:
        """A place on the page as seen."""
        if self.rotation == 90:
            return y - self.bottom, x - self.left
        if self.rotation == 180:
            return self.right - x, y - self.bottom
        if self.rotation == 270:
            return self.top - y, self.right - x
        return x - self.left, self.top - y

    def box(self, x0: float, y0: float, x1: float, y1: float) -> _Box:
        """A box as seen: left, top, right, bottom."""
        a, b = self.point(x0, y0)
        c, d = self.point(x1, y1)
        return min(a, c), min(b, d), max(a, c), max(b, d)


@dataclass
class Graphics:
    """Rulings, grounds and images of a page."""

    rulings: list[Ruling] = field(default_factory=list)
    dark: list[_Box] = field(default_factory=list)
    pictures: list[_Box] = field(default_factory=list)
    dots: list[_Box] = field(default_factory=list)
    area: float = 1.0
    paths: int = 0
    pixels: int = 0  # of the largest image

    @property
    def covered(self) -> float:
        """Share of the page under images; images over each other count twice, up to 1."""
        return min(1.0, sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in self.pictures) / self.area)

    def under_image(self, x: float, y: float) -> bool:
        """Is there an image at this place?"""
        return any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in self.pictures)

    def dark_at(self, x: float, y: float) -> bool:
        """Would white text be seen here?"""
        return self.under_image(x, y) or any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in self.dark)

    def bullets(self, words: list[Word]) -> list[Word]:
        """Small filled shapes right before a line of text, as words."""
        found: list[Word] = []
        if not self.dots or len(self.dots) > 2000:
            return found
        lines: dict[int, list[Word]] = {}
        for word in words:
            lines.setdefault(round(word.base / 4), []).append(word)
        for x0, top, x1, bottom in self.dots:
            middle = (top + bottom) / 2
            rows = range(round(middle / 4), round((middle + 16) / 4) + 1)
            near = [
                w for row in rows for w in lines.get(row, ())
                if w.top <= middle <= w.bottom and w.base - 0.8 * w.size <= middle <= w.base
            ]  # fmt: skip
            if not near or any(w.x0 < x0 < w.x1 or (w.x1 <= x0 and x0 - w.x1 < w.size) for w in near):
                continue
            after = min((w for w in near if w.x0 >= x1), key=lambda w: w.x0, default=None)
            if after is not None and after.x0 - x1 < 3 * after.size and x1 - x0 < 0.8 * after.size:
                found.append(
                    Word(
                        "•",
                        x0,
                        after.top,
                        x1,
                        after.bottom,
                        after.base,
                        after.size,
                        after.bold,
                        False,
                        x1 - x0,
                        after.tag,
                    )
                )
        return found


def graphics(page: Any, geometry: Geometry) -> Graphics:
    """Look through the page's objects, and into form objects, without recursion and up to a number."""
    import pypdfium2.raw as pdfium

    found = Graphics(area=max(geometry.width * geometry.height, 1.0))
    count = min(max(pdfium.FPDFPage_CountObjects(page.raw), 0), _MAX_OBJECTS)
    stack = [(pdfium.FPDFPage_GetObject(page.raw, i), _IDENTITY, 0) for i in range(count - 1, -1, -1)]
    seen = 0
    while stack and seen < _MAX_OBJECTS:
        target, matrix, depth = stack.pop()
        seen += 1
        kind = pdfium.FPDFPageObj_GetType(target)
        if kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _MAX_FORMS:
            inner = _times(_matrix(target, pdfium), matrix)
            size = min(max(pdfium.FPDFFormObj_CountObjects(target), 0), _MAX_OBJECTS - seen)
            stack.extend((pdfium.FPDFFormObj_GetObject(target, i), inner, depth + 1) for i in range(size - 1, -1, -1))
        elif kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            box = _bounds(target, matrix, geometry, pdfium)
            clipped = (max(box[0], 0), max(box[1], 0), min(box[2], geometry.width), min(box[3], geometry.height))
            if clipped[2] > clipped[0] and clipped[3] > clipped[1] and len(found.pictures) < 5000:
                found.pictures.append(clipped)
                found.pixels = max(found.pixels, _pixels(target, pdfium))
        elif kind == pdfium.FPDF_PAGEOBJ_PATH:
            found.paths += 1
            if found.paths > _MAX_PATHS:
                continue
            _path(target, matrix, geometry, found, pdfium)
    return found


def _path(target: Any, matrix: _Matrix, geometry: Geometry, found: Graphics, pdfium: Any) -> None:
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDFPath_GetDrawMode(target, fill, stroke)
    if not fill.value and not stroke.value:
        return
    x0, top, x1, bottom = box = _bounds(target, matrix, geometry, pdfium)
    width, height = x1 - x0, bottom - top
    if max(width, height) < 1.5:
        return
    if fill.value and not stroke.value:
        if height <= _THIN < width or width <= _THIN < height:
            if not _white(target, pdfium):
                _rule(found, width > height, box)
            return
        if 1.5 < width < 9 and 1.5 < height < 9 and 0.5 < width / height < 2 and len(found.dots) < 5000:
            found.dots.append(box)
        elif not _white(target, pdfium) and len(found.dark) < 5000:
            found.dark.append(box)
        if pdfium.FPDFPath_CountSegments(target) > 5:
            _segments(target, matrix, geometry, found, pdfium, thin=True)
        return
    if 1.5 < width < 9 and 1.5 < height < 9 and 0.5 < width / height < 2 and len(found.dots) < 5000:
        found.dots.append(box)
    if fill.value and not _white(target, pdfium) and len(found.dark) < 5000:
        found.dark.append(box)
    _segments(target, matrix, geometry, found, pdfium, thin=False)


def _segments(target: Any, matrix: _Matrix, geometry: Geometry, found: Graphics, pdfium: Any, *, thin: bool) -> None:
    """Straight sides of a path; of a filled one only the boxes that are lines."""
    own = _times(_matrix(target, pdfium), matrix)
    x, y = ctypes.c_float(), ctypes.c_float()
    count = pdfium.FPDFPath_CountSegments(target)
    if count > _MAX_SEGMENTS:
        return
    part: list[tuple[float, float]] = []
    parts = [part]
    for i in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(target, i)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if kind == pdfium.FPDF_SEGMENT_BEZIERTO:
            part = []
            parts.append(part)
            continue
        pdfium.FPDFPathSegment_GetPoint(segment, x, y)
        a, b, c, d, e, f = own
        place = geometry.point(a * x.value + c * y.value + e, b * x.value + d * y.value + f)
        if kind == pdfium.FPDF_SEGMENT_MOVETO:
            part = [place]
            parts.append(part)
        else:
            part.append(place)
        if pdfium.FPDFPathSegment_GetClose(segment) and part:
            part.append(part[0])
    for points in parts:
        if thin:
            if len(points) >= 4:
                xs, ys = [p[0] for p in points], [p[1] for p in points]
                box = (min(xs), min(ys), max(xs), max(ys))
                if min(box[2] - box[0], box[3] - box[1]) <= _THIN:
                    _rule(found, box[2] - box[0] > box[3] - box[1], box)
            continue
        for (ax, ay), (bx, by) in pairwise(points):
            if abs(ay - by) <= 0.5 < abs(ax - bx) or abs(ax - bx) <= 0.5 < abs(ay - by):
                _rule(found, abs(ax - bx) > abs(ay - by), (min(ax, bx), min(ay, by), max(ax, bx), max(ay, by)))


def _rule(found: Graphics, across: bool, box: _Box) -> None:
    if len(found.rulings) < _MAX_RULINGS:
        x0, top, x1, bottom = box
        found.rulings.append(
            Ruling(True, (top + bottom) / 2, x0, x1) if across else Ruling(False, (x0 + x1) / 2, top, bottom)
        )


def _bounds(target: Any, matrix: _Matrix, geometry: Geometry, pdfium: Any) -> _Box:
    x0, y0, x1, y1 = (ctypes.c_float() for _ in range(4))
    if not pdfium.FPDFPageObj_GetBounds(target, x0, y0, x1, y1):
        return 0.0, 0.0, 0.0, 0.0
    a, b, c, d, e, f = matrix
    corners = [(x0.value, y0.value), (x1.value, y0.value), (x0.value, y1.value), (x1.value, y1.value)]
    places = [geometry.point(a * x + c * y + e, b * x + d * y + f) for x, y in corners]
    xs, ys = [p[0] for p in places], [p[1] for p in places]
    return min(xs), min(ys), max(xs), max(ys)


def _pixels(target: Any, pdfium: Any) -> int:
    width, height = ctypes.c_uint(), ctypes.c_uint()
    pdfium.FPDFImageObj_GetImagePixelSize(target, width, height)
    return int(width.value * height.value)


def _white(target: Any, pdfium: Any) -> bool:
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    if not pdfium.FPDFPageObj_GetFillColor(target, red, green, blue, alpha):
        return False
    return alpha.value < 8 or min(red.value, green.value, blue.value) >= 250


def _matrix(target: Any, pdfium: Any) -> _Matrix:
    matrix = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(target, matrix):
        return _IDENTITY
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _times(one: _Matrix, two: _Matrix) -> _Matrix:
    """First ``one``, then ``two``."""
    a, b, c, d, e, f = one
    g, h, i, j, k, m = two
    return a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m
