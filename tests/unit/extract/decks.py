"""Presentations as the tests write them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from pptx import Presentation
from pptx.util import Inches

from pipeline.extract.media import PPTX
from pipeline.extract.reading import Body, Limits, Reading
from pipeline.extract.slides import read as read_pptx

P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"
TITLE_SLIDE, TITLE_AND_CONTENT, TITLE_ONLY, BLANK = 0, 1, 5, 6


def saved(deck: Any) -> bytes:
    target = io.BytesIO()
    deck.save(target)
    return target.getvalue()


def read(data: bytes, limits: Limits | None = None) -> Reading:
    return read_pptx(Body(data=data, media=PPTX, limits=limits or Limits()))


def add(deck: Any, layout: int = TITLE_ONLY, title: str | None = None) -> Any:
    slide = deck.slides.add_slide(deck.slide_layouts[layout])
    if title is not None:
        slide.shapes.title.text = title
    return slide


def box(slide: Any, text: str, left: float, top: float, width: float = 2, height: float = 0.5) -> Any:
    shape = slide.shapes.add_textbox(Inches(left), Inches(top), Inches(width), Inches(height))
    shape.text_frame.text = text
    return shape


def shape_of(fill: Callable[[Any], Any]) -> list[tuple[str, str]]:
    deck = Presentation()
    fill(add(deck, TITLE_ONLY, "T"))
    return [(block.type, block.text) for block in read(saved(deck)).blocks[1:]]
