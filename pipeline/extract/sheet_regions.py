"""A sheet's cells as tables, lists and lines: regions between empty rows and columns, and their header rows."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.extract import links
from pipeline.extract.builder import BlockBuilder
from pipeline.extract.sheet_cells import Area, Row, Sheet
from pipeline.extract.spans import COPY_BUDGET, MAX_COPY

_ROUNDS = 6  # a staircase of cells could be cut for ever; what is left after so many cuts stays together
_MAX_SPAN = 200  # rows into which a merged cell's text is repeated
_MAX_HEADER = 3  # rows
_MAX_LABEL = 100  # characters of a cell in a header
_MAX_ITEM = 200  # characters of an item; longer ones make a list of paragraphs
_SPARSE = 16  # blanks for each cell with text, beyond which columns are not lined up
_MAX_TITLES = 3  # rows of one cell each above a table that are its title
_NUMBER = re.compile(r"[^\w\s]{0,3}\d[\d\s.,'’:/%-]*(?:[eE][+-]?\d+)?\W{0,3}\Z|\d{4}-\d\d-\d\d.{0,30}\Z", re.ASCII)


@dataclass
class Table:
    """A table object of the workbook: its place, and how many rows its header has."""

    place: Area
    header_rows: int


def apply_links(sheet: Sheet, targets: dict[str, str]) -> None:
    """Writes the address beside the text of a linked cell; ``targets`` are addresses by relation."""
    wanted: dict[tuple[int, int], str] = {}
    for place, relation, address in sheet.links:
        target = address or targets.get(relation or "")
        if target:
            wanted.setdefault((place[0], place[1]), target)
    if not wanted:
        return
    linked_rows = {row for row, _ in wanted}
    for row in sheet.rows:
        if row.number in linked_rows:
            for index, column in enumerate(row.columns):
                target = wanted.get((row.number, column))
                if target:
                    row.texts[index] += links.suffix(row.texts[index], target)


def apply_merges(sheet: Sheet) -> set[int]:
    """Repeats a merged cell's text in the rows it spans, so that each row stands alone.

    The blanks across are filled by the table's columns. Gives the numbers of rows with a cell merged across columns.
    """
    across = {top for top, left, _, right in sheet.merges if right > left}
    down = [one for one in sheet.merges if one[2] > one[0]]
    if not down:
        return across
    by_number = {row.number: row for row in sheet.rows}
    added: dict[int, dict[int, str]] = {}
    plain: set[int] = set()  # rows that are given a text that is not bold
    budget = COPY_BUDGET
    for top, left, bottom, _ in down:
        row = by_number.get(top)
        if row is None or left not in row.columns:
            continue
        text = row.texts[row.columns.index(left)]
        bottom = min(bottom, top + _MAX_SPAN)
        if len(text) > MAX_COPY or budget < len(text) * (bottom - top):
            continue
        budget -= len(text) * (bottom - top)
        for number in range(top + 1, bottom + 1):
            if number in by_number:
                added.setdefault(number, {})[left] = text
                if not row.bold:
                    plain.add(number)
    for number, cells in added.items():
        row = by_number[number]
        merged = cells | dict(zip(row.columns, row.texts, strict=True))
        row.columns = tuple(sorted(merged))
        row.texts = [merged[column] for column in row.columns]
        row.bold = row.bold and number not in plain
    return across


def emit(sheet: Sheet, tables: Sequence[Table], builder: BlockBuilder) -> None:
    """Adds the sheet's content to the builder and empties the sheet."""
    across = apply_merges(sheet)
    inside: list[list[Row]] = [[] for _ in tables]
    rows = sheet.rows
    sheet.rows = []
    if tables:
        rows = _take_tables(rows, tables, inside)
    regions = [(region[0].number, region[0].columns[0], 0, region) for region in _regions(rows, sheet)]
    for table, own in zip(tables, inside, strict=True):
        if own:
            regions.append((table.place[0], table.place[1], table.header_rows, own))
    if tables:
        regions.sort(key=lambda one: one[:2])
    regions.reverse()
    while regions:  # freed one by one: rows and blocks do not both stand in memory as a whole
        _, _, header_rows, region = regions.pop()
        _emit_region(region, header_rows, across, builder)


def header_rows_of(rows: Sequence[Sequence[str]]) -> int:
    """1 where the first of these rows is a header: filled, all words, none twice, and above other rows; else 0."""
    if len(rows) < 2:
        return 0
    first = [cell.strip() for cell in rows[0]]
    filled = [cell for cell in first if cell]
    if not filled or len(filled) * 2 < len(first) or len(set(filled)) < len(filled):
        return 0
    if any(len(cell) > _MAX_LABEL or is_number(cell) for cell in filled):
        return 0
    return 1


def is_number(text: str) -> bool:
    """Whether a cell's text is a number, amount, percentage or date."""
    return len(text) <= 60 and _NUMBER.match(text.strip()) is not None


def add_lines(lines: list[str], builder: BlockBuilder) -> None:
    """A column of texts: one is a paragraph, short ones are a list, long ones are paragraphs."""
    if len(lines) > 1 and all(len(line) <= _MAX_ITEM for line in lines):
        builder.open_list(ordered=False)
        for line in lines:
            builder.open_item()
            builder.text(line)
            builder.close_item()
        builder.close_list()
        return
    for line in lines:
        builder.end_paragraph()
        builder.text(line)
    builder.end_paragraph()


def _take_tables(rows: list[Row], tables: Sequence[Table], inside: list[list[Row]]) -> list[Row]:
    """Moves the cells of table objects out of the rows."""
    rest: list[Row] = []
    ends = sorted(range(len(tables)), key=lambda index: tables[index].place[0])
    for row in rows:
        taken: set[int] = set()
        for index in ends:
            top, left, bottom, right = tables[index].place
            if top > row.number:
                break
            if row.number > bottom:
                continue
            part = _part(row, left, right)
            if part is not None:
                inside[index].append(part)
                taken.update(part.columns)
        left_over = tuple(column for column in row.columns if column not in taken) if taken else row.columns
        if taken and left_over:
            texts = [text for column, text in zip(row.columns, row.texts, strict=True) if column not in taken]
            rest.append(Row(row.number, left_over, texts, row.bold, row.typed))
        elif left_over:
            rest.append(row)
    return rest


def _part(row: Row, left: int, right: int) -> Row | None:
    columns = row.columns
    if columns[0] >= left and columns[-1] <= right:
        return row
    kept = [index for index, column in enumerate(columns) if left <= column <= right]
    if not kept:
        return None
    return Row(row.number, tuple(columns[i] for i in kept), [row.texts[i] for i in kept], row.bold, row.typed)


def _regions(rows: list[Row], sheet: Sheet) -> Iterator[list[Row]]:
    """Cuts at empty rows, then at empty columns, and again, in reading order."""
    work = [(rows, _ROUNDS)]
    while work:
        region, rounds = work.pop()
        parts = _cut_rows(region, sheet.hidden_rows)
        if len(parts) == 1:
            parts = _cut_columns(region, sheet.hidden_columns)
        if len(parts) == 1 or rounds == 0:
            if region:
                yield region
        else:
            work.extend((part, rounds - 1) for part in reversed(parts))


def _apart(before: int, after: int, hidden: set[int]) -> bool:
    """Whether something empty stands between two rows or columns; what is hidden is no space."""
    return any(number not in hidden for number in range(before + 1, after))


def _cut_rows(rows: list[Row], hidden: set[int]) -> list[list[Row]]:
    cuts = [i for i in range(1, len(rows)) if _apart(rows[i - 1].number, rows[i].number, hidden)]
    return [rows[a:b] for a, b in pairwise([0, *cuts, len(rows)])]


def _cut_columns(rows: list[Row], hidden: set[int]) -> list[list[Row]]:
    used = sorted({column for columns in {row.columns for row in rows} for column in columns})
    starts = [used[0], *(b for a, b in pairwise(used) if _apart(a, b, hidden))] if used else []
    if len(starts) < 2:
        return [rows]
    groups: list[list[Row]] = [[] for _ in starts]
    group_of = {column: bisect_right(starts, column) - 1 for column in used}
    for row in rows:
        parts: dict[int, tuple[list[int], list[str]]] = {}
        for column, text in zip(row.columns, row.texts, strict=True):
            columns, texts = parts.setdefault(group_of[column], ([], []))
            columns.append(column)
            texts.append(text)
        for group, (columns, texts) in parts.items():
            groups[group].append(Row(row.number, tuple(columns), texts, row.bold, row.typed))
    return [rows] if _spacers(groups) else groups


def _spacers(groups: list[list[Row]]) -> bool:
    """Whether empty columns only space one table out: a single column beside others that fills the very same rows."""
    numbers = [[row.number for row in group] for group in groups]
    if any(one != numbers[0] for one in numbers) or len(numbers[0]) < 2:
        return False
    return any(len({column for row in group for column in row.columns}) == 1 for group in groups)


def _emit_region(rows: list[Row], header_rows: int, across: set[int], builder: BlockBuilder) -> None:
    if not header_rows:
        for _ in range(_MAX_TITLES):
            if len(rows) > 1 and len(rows[0].columns) == 1 and len(rows[1].columns) > 1 and _is_title(rows, across):
                add_lines(rows[0].texts, builder)
                rows = rows[1:]
            else:
                break
    used = sorted({column for columns in {row.columns for row in rows} for column in columns})
    if len(used) == 1:
        add_lines([row.texts[0] for row in rows], builder)
        return
    if len(rows) == 1 and not header_rows:
        builder.table([rows[0].texts], 0)
        return
    place = {column: index for index, column in enumerate(used)}
    if len(used) * len(rows) > _SPARSE * sum(len(row.columns) for row in rows) + 65_536:
        builder.table([row.texts for row in rows], 0)  # a few cells in a wide field: blanks would bury them
        return
    header_rows = header_rows or _header_rows(rows, len(used), across)
    cells: list[list[str]] = []
    for row in rows:
        if len(row.columns) == len(used):
            cells.append(row.texts)
            continue
        line = [""] * len(used)
        for column, text in zip(row.columns, row.texts, strict=True):
            line[place[column]] = text
        cells.append(line)
    builder.table(cells, min(header_rows, len(cells) - 1))


def _is_title(rows: list[Row], across: set[int]) -> bool:
    """A lone cell at the left above a table, or one that is merged across it."""
    return rows[0].number in across or rows[0].columns[0] <= rows[1].columns[0]


def _header_rows(rows: list[Row], width: int, across: set[int]) -> int:
    bold = 0
    while bold < min(len(rows), _MAX_HEADER + 1) and rows[bold].bold and not rows[bold].typed:
        bold += 1
    if 0 < bold <= _MAX_HEADER and bold < len(rows):
        return bold
    sample = rows[:50]
    lead = 0
    while lead < min(len(sample), _MAX_HEADER) and sample[lead].number in across and not sample[lead].typed:
        lead += 1  # a header of several rows: groups of columns above their names
    if lead == len(sample):
        return 0
    first, below = sample[lead], sample[lead + 1 :]
    if first.typed & set(first.columns) or not below:
        return lead
    if len(first.columns) * 2 < width or len(set(first.texts)) < len(first.texts):
        return lead
    if any(len(text) > _MAX_LABEL or is_number(text) for text in first.texts):
        return lead
    return lead + 1
