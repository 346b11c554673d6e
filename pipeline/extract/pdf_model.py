"""What pages of a PDF are made of, between PDFium and typed blocks. Points, origin at the top left, y downwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class Tag:
    """What the structure tree says of a piece of marked content.

    ``element`` numbers the enclosing paragraph-like element of the page; ``cell`` is (table, row, column, is header)
    and ``rows`` how many rows it takes.
    """

    role: str = ""
    element: int = -1
    level: int = 0
    cell: tuple[int, int, int, bool] | None = None
    rows: int = 1


@dataclass(slots=True)
class Word:
    """Characters without a space between them. ``base`` is the baseline's y, ``advance`` the mean width of a glyph."""

    text: str
    x0: float
    top: float
    x1: float
    bottom: float
    base: float
    size: float
    bold: bool = False
    mono: bool = False
    advance: float = 0.0
    tag: Tag | None = None
    spaced: bool = True  # a space stands before it

    @property
    def middle(self) -> tuple[float, float]:
        """Centre of the box."""
        return (self.x0 + self.x1) / 2, (self.top + self.bottom) / 2


@dataclass(slots=True)
class Line:
    """One line of a column, as text. ``left`` and ``right`` bound the column."""

    text: str
    x0: float
    x1: float
    top: float
    bottom: float
    base: float
    size: float
    bold: bool
    mono: bool
    page: int
    advance: float = 0.0
    left: float = 0.0
    right: float = 0.0
    tag: Tag | None = None


@dataclass(slots=True)
class Paragraph:
    """Lines that belong together. ``kind``: text, code, note. ``breaks``: indices of lines after a deliberate break."""

    kind: Literal["text", "code", "note"]
    lines: list[Line]
    breaks: set[int] = field(default_factory=set)

    @property
    def first(self) -> Line:
        """Its first line."""
        return self.lines[0]

    @property
    def last(self) -> Line:
        """Its last line."""
        return self.lines[-1]

    @property
    def style(self) -> tuple[float, bool]:
        """Size to half a point, and weight."""
        return round(self.first.size * 2) / 2, self.first.bold


@dataclass(slots=True)
class Table:
    """Rows of cell texts at a place of a page; ``edges`` are the x of its columns' left sides."""

    rows: list[list[str]]
    header_rows: int
    x0: float
    top: float
    x1: float
    bottom: float
    page: int
    edges: tuple[float, ...] = ()
    last_page: int = 0  # where it ends, once it has run over a page


@dataclass(slots=True)
class Prepared:
    """A paragraph that needs nothing more: text that runs across a page."""

    text: str
    page: int


Item = Line | Table | Prepared


@dataclass(slots=True)
class Ruling:
    """A drawn horizontal (``across``) or vertical line: at ``at``, from ``start`` to ``end``."""

    across: bool
    at: float
    start: float
    end: float


@dataclass(slots=True)
class PageContent:
    """A page before its layout is understood. ``covered`` is the share of it under images, 0 to 1."""

    number: int
    width: float
    height: float
    words: list[Word] = field(default_factory=list)
    aside: list[Word] = field(default_factory=list)  # text that runs in another direction than most of the page
    rulings: list[Ruling] = field(default_factory=list)
    covered: float = 0.0
    pixels: int = 0  # of the largest image
    paths: int = 0
    garbage: float = 0.0
    layered: bool = False  # invisible text over an image: an earlier OCR
    warnings: list[str] = field(default_factory=list)
