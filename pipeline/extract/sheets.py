"""Spreadsheets: XLSX workbooks sheet by sheet, and tables as delimited text."""

from __future__ import annotations

import io
import warnings as python_warnings
import zipfile
from dataclasses import dataclass, field
from typing import Any

from pipeline.extract import delimited, drawing
from pipeline.extract.builder import BlockBuilder, footnote_mark
from pipeline.extract.containers import check_zip
from pipeline.extract.reading import Body, Reading, refusing
from pipeline.extract.sheet_cells import Area, CellReader, Sheet, area
from pipeline.extract.sheet_regions import Table, add_lines, apply_links, emit, header_rows_of
from pipeline.extract.text import read_text
from schemas.documents import Block

_MAX_NOTES = 20_000  # notes on cells of one sheet
_THREAD = "\n\nComment:\n"  # what stands between a program's preface and a threaded comment


def read_xlsx(body: Body) -> Reading:
    """A Reader of XLSX (and XLSM, XLTX): each visible sheet is a heading, its regions are tables, lists or lines.

    Values are those that were last calculated, shown in their number format; dates are ISO 8601. A formula without one
    stands as it is typed. Notes on cells are footnotes. Hidden sheets, rows and columns are left out with a warning,
    macros are not run. Raises DocumentError for what is no workbook or beyond a limit.
    """
    contents = check_zip(body.data, body.limits)
    with refusing("the workbook", "open it and save it anew as .xlsx"), python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")  # what the library would keep on writing is of no concern here
        with zipfile.ZipFile(io.BytesIO(body.data)) as archive:
            reading = _Workbook(body, archive).read()
    reading.warnings[:0] = contents.warnings
    return reading


def read_csv(body: Body) -> Reading:
    """A Reader of CSV and TSV: one table, its delimiter found out; one column is lines, what is no table plain text."""
    text = body.text or ""
    if not text.strip():
        return Reading()
    found = delimited.read(text, tabs=body.media == "text/tab-separated-values")
    if found is None:
        warning = "table: no delimiter parts the lines into columns; read as plain text"
        one_column = all(len(line) <= 200 for line in text.split("\n"))
        return Reading(read_text(text), warnings=[] if one_column else [warning])
    builder = BlockBuilder()
    rows = found.rows
    if max(len(row) for row in rows) < 2:
        add_lines([row[0] for row in rows if row and row[0].strip()], builder)
    else:
        builder.table(rows, header_rows_of(rows))
    return Reading(builder.finish(), warnings=found.warnings)


@dataclass
class _Related:
    """What stands beside a sheet's cells."""

    targets: dict[str, str] = field(default_factory=dict)  # addresses outside, by relation
    tables: list[Table] = field(default_factory=list)
    notes: list[tuple[Area, str]] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)


class _Workbook:
    """One workbook being read."""

    def __init__(self, body: Body, archive: zipfile.ZipFile) -> None:
        from openpyxl.reader.excel import ExcelReader
        from openpyxl.styles.stylesheet import apply_stylesheet

        self._archive = archive
        self._names = frozenset(archive.namelist())
        self._warnings: list[str] = []
        # The stages of openpyxl.load_workbook without its worksheets, themes and links to other workbooks.
        self._source = ExcelReader(io.BytesIO(body.data), read_only=True, data_only=True, keep_links=False)
        self._source.read_manifest()
        self._source.read_strings()
        self._source.read_workbook()
        try:
            apply_stylesheet(self._source.archive, self._source.wb)
        except Exception:  # a broken style must not cost the text
            self._warnings.append("styles: they cannot be read; numbers are shown without their formats")
        self._cells = CellReader(self._source.wb, self._source.shared_strings, body.limits.output_bytes)
        self._notes = 0

    def read(self) -> Reading:
        reading = Reading(warnings=self._warnings)
        try:
            self._source.read_properties()
            properties = self._source.wb.properties
            reading.title = (properties.title or "").strip() or None
            reading.language = (properties.language or "").strip() or None
        except Exception:  # broken properties say nothing
            pass
        hidden: list[str] = []
        for sheet, relation in self._source.parser.find_sheets():
            if sheet.state != "visible":
                hidden.append(sheet.name)
            elif relation.target in self._names and "chartsheet" not in relation.Type:
                reading.blocks.extend(self._sheet(sheet.name, relation.target))
            elif relation.target in self._names:
                reading.blocks.extend(self._chart_sheet(sheet.name, relation.target))
            else:
                self._warnings.append(f"sheet {sheet.name}: its part is missing from the file")
        if hidden:
            self._warnings.append(f"sheets: {len(hidden)} hidden, left out: {', '.join(hidden)[:150]}")
        if reading.title is None:
            reading.title = next((block.text for block in reading.blocks if block.type == "heading"), None)
        return reading

    def _sheet(self, name: str, path: str) -> list[Block]:
        with self._archive.open(path) as stream:
            sheet = self._cells.read(stream)
        related = self._related(path, sheet)
        apply_links(sheet, related.targets)
        builder = BlockBuilder()
        self._mark_notes(sheet, related.notes, builder)
        builder.heading(1, name)
        emit(sheet, related.tables, builder)
        add_lines(related.drawn, builder)
        for count, what in (
            (sheet.left_out_rows, "hidden rows were left out"),
            (sheet.left_out_columns, "hidden columns were left out"),
            (sheet.uncalculated, "formulas were never calculated and stand as typed; open and save the workbook once"),
        ):
            if count:
                self._warnings.append(f"sheet {name}: {count} {what}")
        return builder.finish()

    def _chart_sheet(self, name: str, path: str) -> list[Block]:
        builder = BlockBuilder()
        builder.heading(1, name)
        for relation in self._relations(path):
            if relation.Type.endswith("/drawing"):
                add_lines(self._drawn(relation.target), builder)
        return builder.finish()

    def _mark_notes(self, sheet: Sheet, notes: list[tuple[Area, str]], builder: BlockBuilder) -> None:
        """Notes become footnotes, numbered through the workbook; one on a cell without text stands alone."""
        if not notes:
            return
        wanted = {(place[0], place[1]): text for place, text in notes}
        rows = {row for row, _ in wanted}
        for row in sheet.rows:
            if row.number not in rows:
                continue
            for index, column in enumerate(row.columns):
                text = wanted.pop((row.number, column), None)
                if text is not None:
                    self._notes += 1
                    row.texts[index] += f" {footnote_mark(str(self._notes))}"
                    builder.footnote(str(self._notes), text)
        for (number, column), text in sorted(wanted.items()):
            if number not in sheet.hidden_rows and column not in sheet.hidden_columns:
                self._notes += 1
                builder.footnote(str(self._notes), text)

    def _related(self, path: str, sheet: Sheet) -> _Related:
        """Tables, notes, links and drawings; one that is broken is named in a warning and the cells stay."""
        related = _Related()
        parts = frozenset(sheet.table_parts)
        for relation in self._relations(path):
            kind = relation.Type.rpartition("/")[2]
            try:
                if kind == "hyperlink" and relation.TargetMode == "External":
                    related.targets[relation.id] = relation.Target
                elif kind == "table" and relation.id in parts:
                    related.tables.append(self._table(relation.target))
                elif kind == "comments":
                    related.notes.extend(self._comments(relation.target))
                elif kind == "drawing":
                    related.drawn.extend(self._drawn(relation.target))
            except Exception as error:
                self._warnings.append(f"{kind}: a part cannot be read ({type(error).__name__}); left out")
        related.tables = [table for table in related.tables if table.place[2] > 0]
        return related

    def _relations(self, path: str) -> list[Any]:
        from openpyxl.packaging.relationship import get_dependents, get_rels_path

        beside = get_rels_path(path)
        return list(get_dependents(self._archive, beside)) if beside in self._names else []

    def _table(self, path: str) -> Table:
        root = drawing.parse(self._archive.read(path))
        rows = root.get("headerRowCount", "1")
        return Table(area(root.get("ref") or "") or (0, 0, 0, 0), min(int(rows), 3) if rows.isdigit() else 1)

    def _comments(self, path: str) -> list[tuple[Area, str]]:
        notes: list[tuple[Area, str]] = []
        for comment in drawing.parse(self._archive.read(path)).iter("{*}comment"):
            place = area(comment.get("ref") or "")
            text = "".join(t.text or "" for t in comment.iter("{*}t"))
            if text.startswith("[Threaded comment]") and _THREAD in text:
                text = text.partition(_THREAD)[2]
            if place is not None and text.strip() and len(notes) < _MAX_NOTES:
                self._cells.spend(len(text))
                notes.append((place, text))
        return notes

    def _drawn(self, path: str) -> list[str]:
        """Texts of shapes, titles of charts and what pictures show."""
        root = drawing.parse(self._archive.read(path))
        charts = {one.id: one.target for one in self._relations(path) if one.Type.endswith("/chart")}
        found: list[tuple[int, int, str]] = []
        for element in root.iter("{*}sp", "{*}pic", "{*}graphicFrame"):
            text = drawing.rich_text(element) if drawing.local(element) == "sp" else ""
            if not text:
                text = drawing.alternative_text(next(element.iter("{*}cNvPr"), None))
            for chart in element.iter("{*}chart"):
                target = next((charts[value] for value in chart.attrib.values() if value in charts), None)
                if target in self._names:
                    text = drawing.read_chart(drawing.parse(self._archive.read(target))).title or text
            if text.strip():
                self._cells.spend(len(text))
                found.append((*_anchor(element), text))
        return [text for _, _, text in sorted(found, key=lambda one: one[:2])]


def _anchor(element: Any) -> tuple[int, int]:
    """Row and column at which a drawing begins."""
    start = next((one for above in element.iterancestors() for one in above if drawing.local(one) == "from"), None)
    places = {} if start is None else {drawing.local(one): one.text or "0" for one in start}
    return int(places.get("row", "0")), int(places.get("col", "0"))
