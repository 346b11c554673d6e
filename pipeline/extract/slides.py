"""Presentations slide by slide: titles as headings, bullets as lists, tables, charts, diagrams and speaker notes."""

from __future__ import annotations

import io
from typing import Any

from pipeline.errors import DocumentError
from pipeline.extract import drawing, links
from pipeline.extract.builder import BlockBuilder, collapse
from pipeline.extract.containers import check_zip
from pipeline.extract.reading import Body, Reading, refused, refusing
from pipeline.extract.slide_shapes import children, in_reading_order, is_hidden, placeholder
from pipeline.extract.slide_text import Line, frame_lines
from pipeline.extract.spans import MAX_COPY
from schemas.documents import Block

_FURNITURE = frozenset({"dt", "ftr", "sldNum", "hdr"})  # placeholders that repeat on every slide
_TITLES = frozenset({"title", "ctrTitle"})
_GENERIC = frozenset(  # titles that programs give
    {
        "powerpoint presentation",
        "powerpoint-präsentation",
        "présentation powerpoint",
        "presentación de powerpoint",
        "presentazione standard di powerpoint",
        "presentation",
        "slide 1",
    }
)


def read(body: Body) -> Reading:
    """A Reader of PPTX (and PPTM, PPSX, POTX): each slide is a heading with its content in reading order.

    A title slide at the beginning is the top heading and the others stand below it. Speaker notes follow the slide's
    content after a paragraph ``Notes:``. Hidden slides are left out with a warning; footers, dates, slide numbers and
    comments are left out. ``Block.page`` is the slide's number. Raises DocumentError for what is no presentation.
    """
    contents = check_zip(body.data, body.limits)
    with refusing("the presentation", "open it and save it as .pptx again"):
        reading = _Presentation(body).read()
    reading.warnings[:0] = contents.warnings
    return reading


class _Presentation:
    """One presentation being read."""

    def __init__(self, body: Body) -> None:
        from pptx.package import Package

        # pptx.Presentation does this too, but refuses slide shows and templates.
        part: Any = Package.open(io.BytesIO(body.data)).main_document_part
        self._presentation = part.presentation
        self._limits = body.limits
        self._warnings: list[str] = []
        self._part = part
        self._size = 0

    def read(self) -> Reading:
        reading = Reading(warnings=self._warnings)
        slides = list(self._presentation.slides)
        hidden = [n for n, slide in enumerate(slides, 1) if slide._element.get("show") in ("0", "false")]
        if hidden:
            numbers = ", ".join(map(str, hidden))[:100]
            self._warnings.append(f"slides: {len(hidden)} hidden, left out: {numbers}")
        if len(slides) > self._limits.pages:
            self._warnings.append(f"slides: {len(slides)}, the first {self._limits.pages} were read")
        cover = False
        for number, slide in enumerate(slides[: self._limits.pages], 1):
            if number in hidden:
                continue
            if number == 1:
                cover = any(placeholder(shape) == "ctrTitle" for shape in children(slide.shapes._spTree))
            blocks = _Slide(slide, number, self._warnings).blocks(2 if cover and number > 1 else 1)
            self._spend(blocks)
            reading.blocks.extend(block.model_copy(update={"page": number}) for block in blocks)
        reading.pages = len(slides)
        try:
            properties = self._part.core_properties
            title = (properties.title or "").strip()
            reading.title = title if title and title.lower() not in _GENERIC else None
            reading.language = (properties.language or "").strip() or None
        except Exception:  # broken properties say nothing
            pass
        if reading.title is None:
            reading.title = next((block.text for block in reading.blocks if block.type == "heading"), None)
        return reading

    def _spend(self, blocks: list[Block]) -> None:
        self._size += sum(len(block.text) for block in blocks)
        if self._size > self._limits.output_bytes:
            raise refused(
                f"body: more than {self._limits.output_bytes} characters on slides; split the presentation or raise "
                "extraction.output_mb",
                "output",
            )


class _Slide:
    """One slide being read; a shape that cannot be read is named in a warning and the others stay."""

    def __init__(self, slide: Any, number: int, warnings: list[str]) -> None:
        self._slide = slide
        self._number = number
        self._warnings = warnings
        self._builder = BlockBuilder()

    def blocks(self, level: int) -> list[Block]:
        shapes = [shape for shape in children(self._slide.shapes._spTree) if not is_hidden(shape)]
        shapes = [shape for shape in shapes if placeholder(shape) not in _FURNITURE]
        title = next((shape for shape in shapes if placeholder(shape) in _TITLES and self._title(shape)), None)
        self._builder.heading(level, self._title(title) if title is not None else f"Slide {self._number}")
        for shape in in_reading_order([one for one in shapes if one is not title], self._slide):
            self._guarded(shape)
        self._notes()
        return self._builder.finish()

    def _title(self, shape: Any) -> str:
        return collapse(" ".join(line.text for line in self._lines(shape))).replace("\n", " ")

    def _lines(self, shape: Any) -> list[Line]:
        return frame_lines(shape, self._slide)

    def _guarded(self, shape: Any) -> None:
        try:
            self._shape(shape)
        except DocumentError:
            raise
        except Exception as error:
            self._builder.end_paragraph()
            self._warnings.append(f"slide {self._number}: a shape cannot be read ({type(error).__name__}); left out")

    def _shape(self, top: Any) -> None:
        """A shape, and those in it if it is a group, in reading order."""
        work = [top]
        while work:
            shape = work.pop()
            kind = drawing.local(shape)
            if kind == "grpSp":
                inside = [one for one in children(shape) if not is_hidden(one)]
                self._alternative(shape)
                work.extend(reversed(in_reading_order(inside, self._slide)))
            elif kind == "graphicFrame":
                self._frame(shape)
            elif kind == "pic":
                self._alternative(shape)
            elif kind == "sp":
                lines = self._lines(shape)
                said = [line for line in lines if line.text.strip()]
                if len(said) == 1 and placeholder(shape) is not None:
                    said[0].bullet = None  # one paragraph where layouts expect a list is no list
                self._write(lines)
                if not any(line.text.strip() for line in lines):
                    self._alternative(shape)

    def _alternative(self, shape: Any) -> None:
        properties: Any = next(iter(shape.iterfind("./*/{*}cNvPr")), None)
        text = drawing.alternative_text(properties)
        if text:
            click = next(properties.iterfind("./{*}hlinkClick"), None)
            self._paragraph(text + links.suffix(text, self._target(click)))

    def _target(self, click: Any) -> str | None:
        for name, value in click.attrib.items() if click is not None else ():
            if name.endswith("}id") and value in self._slide.part.rels:
                relation = self._slide.part.rels[value]
                return str(relation.target_ref) if relation.is_external else None
        return None

    def _paragraph(self, text: str) -> None:
        self._builder.end_paragraph()
        self._builder.text(text)
        self._builder.end_paragraph()

    def _write(self, lines: list[Line]) -> None:
        """Lines with bullets become lists nested by their levels, others paragraphs."""
        builder = self._builder
        open_levels: list[tuple[int, bool]] = []

        def close(level: int) -> None:
            while open_levels and open_levels[-1][0] > level:
                builder.close_item()
                builder.close_list()
                open_levels.pop()

        for line in lines:
            if not line.text.strip():
                continue
            if line.math or line.bullet is None:
                close(-1)
                if line.math:
                    builder.math(line.text)
                else:
                    self._paragraph(line.text)
                continue
            close(line.level)
            if open_levels and open_levels[-1] == (line.level, line.ordered):
                builder.close_item()
            else:
                if open_levels and open_levels[-1][0] == line.level:
                    close(line.level - 1)
                builder.open_list(ordered=line.ordered, start=line.start)
                open_levels.append((line.level, line.ordered))
            builder.open_item()
            builder.text(line.text)
        close(-1)

    def _frame(self, frame: Any) -> None:
        self._alternative(frame)
        table = next(frame.iter("{*}tbl"), None)
        relations = self._slide.part.rels
        if table is not None:
            rows, header_rows = _table_rows(table, self._cell)
            self._builder.table(rows, header_rows)
            return
        data = next(frame.iter("{*}graphicData"), None)
        for node in data if data is not None else ():
            ids = {name.rpartition("}")[2]: value for name, value in node.attrib.items()}
            if drawing.local(node) == "chart" and ids.get("id") in relations:
                chart = drawing.read_chart(drawing.parse(relations[ids["id"]].target_part.blob))
                self._builder.table(chart.rows, 1, chart.title)
            elif drawing.local(node) == "relIds" and ids.get("dm") in relations:
                items = drawing.diagram_items(drawing.parse(relations[ids["dm"]].target_part.blob))
                self._write([Line(text, depth, "•") for depth, text in items])
            elif drawing.local(node) == "oleObj":
                name = node.get("progId") or node.get("name") or "object"
                self._warnings.append(f"slide {self._number}: an embedded {name} was not read; attach it as a file")

    def _cell(self, cell: Any) -> str:
        return "\n".join(line.text for line in self._lines(cell) if line.text.strip())

    def _notes(self) -> None:
        if not self._slide.has_notes_slide:
            return
        notes = self._slide.notes_slide
        lines: list[Line] = []
        for shape in children(notes.shapes._spTree):
            if placeholder(shape) == "body":
                lines.extend(frame_lines(shape, notes))
        if any(line.text.strip() for line in lines):
            self._paragraph("Notes:")
            self._write(lines)


def _table_rows(table: Any, text_of: Any) -> tuple[list[list[str]], int]:
    """Rows of cell texts: a merged cell is repeated down and leaves blanks across."""
    rows: list[list[str]] = []
    for number, row in enumerate(table.iterfind("./{*}tr")):
        texts: list[str] = []
        for column, cell in enumerate(row.iterfind("./{*}tc")):
            if cell.get("vMerge") in ("1", "true") and number and column < len(rows[-1]):
                above = rows[-1][column]
                texts.append(above if len(above) <= MAX_COPY else "")
            else:
                texts.append("" if cell.get("hMerge") in ("1", "true") else text_of(cell))
        rows.append(texts)
    properties = table.find("./{*}tblPr")
    marked = properties is not None and properties.get("firstRow") in ("1", "true")
    return rows, 1 if marked and len(rows) > 1 else 0
