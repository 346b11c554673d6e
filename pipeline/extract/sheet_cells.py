"""The cells of one worksheet, streamed from its XML: what is visible, as text, with merges, links and tables beside it.

The workbook, its styles and its shared strings are openpyxl's. Its own worksheet readers either build an object for
every cell or leave out what is hidden, merged and linked; this one keeps strings alone and holds no more than the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Any

from lxml import etree

from pipeline.extract.number_format import shown
from pipeline.extract.reading import refused

_REF = re.compile(r"\$?([A-Z]{1,3})\$?([0-9]{1,7})(?::\$?([A-Z]{1,3})\$?([0-9]{1,7}))?\Z")
_TARGET = re.compile(r'\A=?\s*HYPERLINK\(\s*"([^"]{1,2000})"', re.IGNORECASE)
_REL_ID = re.compile(r"\{[^}]*/relationships\}id\Z")
_MAX_COLUMNS, _MAX_ROWS = 16_384, 1_048_576
_CELL_COST = 4  # bytes of output that a cell takes besides its text
_MAX_MARKS = 100_000  # merges, links and column ranges that are heeded in one sheet

Area = tuple[int, int, int, int]  # first row, first column, last row, last column; from 1, inclusive
Columns = tuple[int, ...]


@dataclass
class Row:
    """A row's visible cells that hold text. ``columns`` ascend; ``bold`` where all of them are."""

    number: int
    columns: Columns
    texts: list[str]
    bold: bool = False
    typed: frozenset[int] = frozenset()  # columns that hold numbers, dates or booleans


@dataclass
class Sheet:
    """One worksheet. ``left_out_...`` count the hidden rows and columns that held text."""

    rows: list[Row] = field(default_factory=list)
    merges: list[Area] = field(default_factory=list)
    links: list[tuple[Area, str | None, str | None]] = field(default_factory=list)  # area, relation, place in the file
    table_parts: list[str] = field(default_factory=list)  # relations
    drawings: list[str] = field(default_factory=list)  # relations
    hidden_rows: set[int] = field(default_factory=set)
    hidden_columns: set[int] = field(default_factory=set)
    left_out_rows: int = 0
    left_out_columns: int = 0
    uncalculated: int = 0  # formulas without a value


class Styles:
    """What a cell's style index says of it."""

    def __init__(self, workbook: Any) -> None:
        from openpyxl.styles.numbers import builtin_format_code, is_date_format, is_timedelta_format

        self._workbook = workbook
        self._codes: dict[int, tuple[str, bool, bool, bool]] = {}
        self._builtin: Callable[[int], str | None] = builtin_format_code
        self._is_date: Callable[[str], bool] = is_date_format
        self._is_period: Callable[[str], bool] = is_timedelta_format

    def of(self, index: int) -> tuple[str, bool, bool, bool]:
        """Format code, whether it shows a date or time, whether it shows a period, whether the font is bold."""
        known = self._codes.get(index)
        if known is None:
            known = self._codes[index] = self._read(index)
        return known

    def _read(self, index: int) -> tuple[str, bool, bool, bool]:
        book = self._workbook
        try:
            style = book._cell_styles[index]
        except IndexError:
            return "General", False, False, False
        number = style.numFmtId
        custom = book._number_formats
        code = custom[number - 164] if 164 <= number < 164 + len(custom) else self._builtin(number)
        code = code or "General"
        bold = style.fontId < len(book._fonts) and bool(book._fonts[style.fontId].b)
        return code, bool(self._is_date(code)), bool(self._is_period(code)), bold


def area(reference: str) -> Area | None:
    """``B2`` or ``A1:C4`` as numbers; None for what is no place in a sheet."""
    found = _REF.match(reference.strip().upper())
    if found is None:
        return None
    left, top = _column(found[1]), int(found[2])
    right, bottom = (_column(found[3]), int(found[4])) if found[3] else (left, top)
    box = (min(top, bottom), min(left, right), max(top, bottom), max(left, right))
    return box if box[0] >= 1 and box[2] <= _MAX_ROWS and box[3] <= _MAX_COLUMNS else None


@lru_cache(maxsize=16_384)
def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number


class CellReader:
    """Reads the sheets of one workbook against one budget of text.

    ``budget`` is in bytes, counted over all sheets. Raises DocumentError (kind 'output') once it is spent, and
    lxml.etree.XMLSyntaxError or ValueError for a sheet that is no such XML.
    """

    def __init__(self, workbook: Any, strings: Any, budget: int) -> None:
        from openpyxl.utils.datetime import from_excel

        self._styles = Styles(workbook)
        self._strings = strings
        self._epoch = workbook.epoch
        self._from_serial: Callable[..., Any] = from_excel
        self._budget = budget
        self._left = budget
        self._layouts: dict[Columns, Columns] = {}

    def spend(self, size: int) -> None:
        """Counts text that came of the workbook."""
        self._left -= size
        if self._left < 0:
            raise refused(
                f"body: more than {self._budget} bytes of cells; split the workbook or raise extraction.output_mb",
                "output",
            )

    def read(self, stream: IO[bytes]) -> Sheet:
        """One worksheet. What its dimension element claims is not heeded."""
        sheet = Sheet()
        left_out: set[int] = set()
        shared: dict[str, tuple[str, str]] = {}
        number, ordered = 0, True
        for name, element in _elements(stream):
            if name == "row":
                claimed = element.get("r")
                number = int(claimed) if claimed else number + 1
                row = self._row(element, number, left_out, shared, sheet)
                if element.get("hidden") in ("1", "true"):
                    sheet.hidden_rows.add(number)
                    sheet.left_out_rows += row is not None
                elif row is not None:
                    ordered = ordered and (not sheet.rows or sheet.rows[-1].number < number)
                    self.spend(sum(map(len, row.texts)) + _CELL_COST * len(row.texts))
                    sheet.rows.append(row)
            elif name == "col":
                if element.get("hidden") in ("1", "true"):
                    last = min(int(element.get("max")), _MAX_COLUMNS)
                    sheet.hidden_columns.update(range(int(element.get("min")), last + 1))
            else:
                _note(name, element, sheet)
        sheet.left_out_columns = len(left_out)
        if not ordered:
            sheet.rows.sort(key=lambda row: row.number)
        return sheet

    def _row(
        self, element: Any, number: int, left_out: set[int], shared: dict[str, tuple[str, str]], sheet: Sheet
    ) -> Row | None:
        columns: list[int] = []
        texts: list[str] = []
        typed: list[int] = []
        column, bold, ordered = 0, True, True
        for cell in element:
            reference = cell.get("r")
            letters = reference.rstrip("0123456789") if reference else ""
            column = _column(letters) if letters.isalpha() and letters.isascii() and len(letters) < 4 else column + 1
            text, is_typed, is_bold = self._cell(cell, reference, shared, sheet)
            if not text.strip():
                continue
            if column in sheet.hidden_columns:
                left_out.add(column)
                continue
            ordered = ordered and (not columns or columns[-1] < column)
            columns.append(column)
            texts.append(text)
            bold = bold and is_bold
            if is_typed:
                typed.append(column)
        if not columns:
            return None
        if not ordered:
            last = dict(zip(columns, texts, strict=True))
            columns = sorted(last)
            texts = [last[one] for one in columns]
        layout = tuple(columns)
        return Row(number, self._layouts.setdefault(layout, layout), texts, bold, frozenset(typed) if typed else _NONE)

    def _cell(
        self, cell: Any, reference: str | None, shared: dict[str, tuple[str, str]], sheet: Sheet
    ) -> tuple[str, bool, bool]:
        """Text, whether it is a number, date or boolean, and whether it is bold."""
        value = formula = inline = None
        for child in cell:
            tag = child.tag
            if tag.endswith("}v"):
                value = child.text
            elif tag.endswith("}f"):
                formula = child
            elif tag.endswith("}is"):
                inline = _string(child)
        code, is_date, is_period, bold = self._styles.of(int(cell.get("s") or 0))
        kind = cell.get("t", "n")
        if inline is not None:
            return inline, False, bold
        if formula is not None:
            if formula.text and reference and formula.get("si"):
                shared[formula.get("si")] = (formula.text, reference)
            source = _formula(formula, reference, shared) if value is None and kind != "str" else None
            if source:
                sheet.uncalculated += 1
                return source, False, bold
            target = _TARGET.match(formula.text or "")
            if target and reference and len(sheet.links) < _MAX_MARKS and (place := area(reference)):
                sheet.links.append((place, None, target[1]))
        if value is None:
            return "", False, bold
        if kind == "s":
            index = int(value)
            return (str(self._strings[index]), False, bold) if 0 <= index < len(self._strings) else ("", False, bold)
        if kind in ("str", "e"):
            return value, False, bold
        if kind == "b":
            return ("TRUE" if value.strip() in ("1", "true") else "FALSE"), True, bold
        if kind == "d":
            return value.replace("T00:00:00", "").replace("T", " "), True, bold
        return self._number(value, code, is_date, is_period), True, bold

    def _number(self, text: str, code: str, is_date: bool, is_period: bool) -> str:
        try:
            value: int | float = int(text) if len(text) < 20 and text.lstrip("-").isdigit() else float(text)
        except ValueError:
            return text
        if not is_date:
            return shown(value, code)
        try:
            return shown(self._from_serial(value, self._epoch, timedelta=is_period), code)
        except (OverflowError, ValueError):
            return shown(value, "General")


_NONE: frozenset[int] = frozenset()


def _elements(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Elements that matter, each freed when the next one is asked for."""
    wanted = tuple("{*}" + name for name in ("row", "col", "mergeCell", "hyperlink", "tablePart", "drawing"))
    # Options of the parser: a worksheet may be a gigabyte of XML, and nothing in it is fetched or expanded.
    events = etree.iterparse(
        stream, events=("end",), tag=wanted, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True,
        remove_comments=True, remove_pis=True,
    )  # fmt: skip
    for _, element in events:
        yield _local(element), element
        element.clear()
        parent = element.getparent()
        if parent is not None:
            while element.getprevious() is not None:
                del parent[0]


def _note(name: str, element: Any, sheet: Sheet) -> None:
    relation = next((value for key, value in element.attrib.items() if _REL_ID.match(key)), None)
    if name == "mergeCell" and len(sheet.merges) < _MAX_MARKS:
        box = area(element.get("ref") or "")
        if box is not None:
            sheet.merges.append(box)
    elif name == "hyperlink" and len(sheet.links) < _MAX_MARKS:
        box = area(element.get("ref") or "")
        if box is not None and relation:
            sheet.links.append((box, relation, None))
    elif name == "tablePart" and relation and len(sheet.table_parts) < 1000:
        sheet.table_parts.append(relation)
    elif name == "drawing" and relation:
        sheet.drawings.append(relation)


def _formula(element: Any, reference: str | None, shared: dict[str, tuple[str, str]]) -> str | None:
    """The formula as it is typed; a shared one is moved to its cell."""
    from openpyxl.formula.translate import Translator, TranslatorError

    if element.text:
        return f"={element.text}"
    origin = shared.get(element.get("si") or "")
    if origin is None or reference is None:
        return None
    try:
        return str(Translator(f"={origin[0]}", origin[1]).translate_formula(reference))
    except (TranslatorError, ValueError):
        return None


def _string(element: Any) -> str:
    """Text of an inline string, without readings aids."""
    parts: list[str] = []
    for child in element:
        name = _local(child)
        if name == "t":
            parts.append(child.text or "")
        elif name == "r":
            parts.extend(t.text or "" for t in child if _local(t) == "t")
    return "".join(parts)


def _local(element: Any) -> str:
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""
