"""From words on a page to lines in reading order: rows, columns with full-width lines between, tables by their gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from pipeline.extract.pdf_model import Item, Table, Word
from pipeline.extract.pdf_rows import Row, Segment, bounds_of, is_page_leftwards, joined_words, lines_of, rows_of

_MAX_DEPTH = 4  # columns inside columns


@dataclass(slots=True)
class _Region:
    """Rows with white bands from top to bottom between them, or none; ``cuts`` are the middles of the bands.

    ``core`` are the rows from the first with a gap to the last, which may be a table, with ``core_cuts``.
    """

    rows: list[Row]
    cuts: list[float] = field(default_factory=list)
    core: tuple[int, int] = (0, 0)
    core_cuts: list[float] = field(default_factory=list)


def lay_out(words: list[Word], tables: list[Table], page: int) -> list[Item]:
    """Lines and tables of a page in reading order."""
    rows = rows_of(words)
    if not rows and not tables:
        return []
    for table in tables:
        segment = Segment([], table.x0, table.x1, table)
        rows.append(Row([segment], table.top, table.bottom, table.top, 0.0))
    rows.sort(key=lambda row: (row.base, row.segments[0].x0))
    leftwards = is_page_leftwards(words)
    return _ordered(rows, page, leftwards)


def _ordered(rows: list[Row], page: int, leftwards: bool) -> list[Item]:
    items: list[Item] = []
    stack: list[tuple[list[Row], int, tuple[float, float]]] = [(rows, 0, bounds_of(rows))]
    while stack:
        part, depth, bounds = stack.pop()
        regions = _regions(part) if depth < _MAX_DEPTH else [_Region(part)]
        if len(regions) == 1 and not regions[0].cuts:
            items.extend(lines_of(part, page, bounds))
            continue
        pending: list[tuple[list[Row], int, tuple[float, float]]] = []
        for region in regions:
            if not region.cuts:
                pending.append((region.rows, _MAX_DEPTH, bounds))
                continue
            start, end = region.core
            core = _Region(region.rows[start:end], region.core_cuts)
            table = _as_table(core, _columns(core), page)
            columns = _columns(region)
            if table is not None:
                segment = Segment([], table.x0, table.x1, table)
                row = Row([segment], table.top, table.bottom, table.top, 0.0)
                around = (region.rows[:start], [row], region.rows[end:])
                pending.extend((some, _MAX_DEPTH, bounds) for some in around if some)
            elif _is_prose(columns):
                ordered = columns[::-1] if leftwards else columns
                pending.extend((column, depth + 1, bounds_of(column)) for column in ordered)
            else:
                pending.append((region.rows, _MAX_DEPTH, bounds))
        stack.extend(reversed(pending))
    return items


def _regions(rows: list[Row]) -> list[_Region]:
    """Cut rows where the set of white bands changes: columns, then a full-width line, then columns again."""
    regions: list[_Region] = []
    plain: list[Row] = []
    i = 0
    while i < len(rows):
        bands = _gaps(rows, i)
        if not bands:
            plain.append(rows[i])
            i += 1
            continue
        core, core_end, end = bands, i + 1, i + 1
        while end < len(rows) and (narrowed := _common(bands, rows[end])):
            if _is_break(rows, end) or _is_foot(rows, end):
                break
            bands = narrowed
            end += 1
            if len(rows[end - 1].segments) > 1:
                core, core_end = bands, end
        while end > core_end and _is_other(rows[end - 1], rows[i:core_end]):
            end -= 1
        start = len(plain)
        while start > 0 and (narrowed := _common(bands, plain[start - 1])):
            if not _near(plain[start - 1], plain[start] if start < len(plain) else rows[i]):
                break
            bands = narrowed
            start -= 1
        lead = plain[start:]
        if start:
            regions.append(_Region(plain[:start]))
        plain = []
        middles = [(a + b) / 2 for a, b in bands]
        place = (len(lead), len(lead) + core_end - i)
        regions.append(_Region(lead + rows[i:end], middles, place, [(a + b) / 2 for a, b in core]))
        i = end
    if plain:
        regions.append(_Region(plain))
    return regions


def _gaps(rows: list[Row], i: int) -> list[tuple[float, float]]:
    """White bands in a row, and between it and the next one where that stands beside it rather than below."""
    segments = rows[i].segments
    if len(segments) < 2 and i + 1 < len(rows):
        after = rows[i + 1]
        if after.top < rows[i].bottom - 0.3 * max(rows[i].size, 1.0):
            segments = sorted([*segments, *after.segments], key=lambda s: s.x0)
    return [(a.x1, b.x0) for a, b in pairwise(segments) if b.x0 - a.x1 > 4]


def _common(bands: list[tuple[float, float]], row: Row) -> list[tuple[float, float]]:
    """What is left of white bands after a row."""
    left: list[tuple[float, float]] = []
    for a, b in bands:
        for segment in row.segments:
            if segment.x1 <= a or segment.x0 >= b:
                continue
            if segment.x0 <= a and segment.x1 >= b:
                a = b
                break
            if segment.x0 <= a:
                a = segment.x1
            elif segment.x1 >= b:
                b = segment.x0
            else:  # in the middle of a band: the wider side stays
                a, b = (a, segment.x0) if segment.x0 - a > b - segment.x1 else (segment.x1, b)
        if b - a > 4:
            left.append((a, b))
    return left


def _near(above: Row, below: Row) -> bool:
    return below.top - above.bottom < 0.9 * max(above.size, below.size)


def _is_break(rows: list[Row], i: int) -> bool:
    """Is this single line a heading across the columns? It is larger or bolder, with nothing beside or close to it."""
    row = rows[i]
    if len(row.segments) != 1 or row.segments[0].table is not None or not _is_other(row, rows[i - 1 : i]):
        return False
    before, after = rows[i - 1], rows[i + 1] if i + 1 < len(rows) else None
    lifted = row.top - before.bottom > 0.35 * (before.size or row.size)
    return lifted and after is not None and bool(_gaps(rows, i + 1)) and after.top >= row.bottom - 1


def _is_foot(rows: list[Row], i: int) -> bool:
    """Do only a line or two follow, far below the rest? Those are the page's foot."""
    return len(rows) - i <= 2 and rows[i].top - rows[i - 1].bottom > 3 * max(rows[i].size, rows[i - 1].size, 1.0)


def _is_other(row: Row, rows: list[Row]) -> bool:
    """Is a single line larger or bolder than the rows before it, as a heading is?"""
    sizes = [other.size for other in rows if other.size]
    words = [word for other in rows for word in other.words]
    if len(row.segments) != 1 or not sizes:
        return False
    if row.size > 1.1 * median(sizes):
        return True
    return all(w.bold for w in row.words) and sum(w.bold for w in words) < 0.5 * len(words)


def _columns(region: _Region) -> list[list[Row]]:
    columns: list[list[Row]] = [[] for _ in range(len(region.cuts) + 1)]
    for row in region.rows:
        parts: dict[int, list[Segment]] = {}
        for segment in row.segments:
            middle = (segment.x0 + segment.x1) / 2
            parts.setdefault(sum(middle > cut for cut in region.cuts), []).append(segment)
        for place, segments in parts.items():
            words = [word for segment in segments for word in segment.words]
            top = min((w.top for w in words), default=row.top)
            bottom = max((w.bottom for w in words), default=row.bottom)
            columns[place].append(Row(segments, top, bottom, row.base, row.size))
    return columns


def _is_prose(columns: list[list[Row]]) -> bool:
    """Do at least two columns hold running text? Most of their lines are long and fill them."""
    running = 0
    for column in columns:
        if len(column) < 3:
            continue
        if any(segment.table for row in column for segment in row.segments):
            running += 1
            continue
        left = min(row.segments[0].x0 for row in column)
        right = max(row.segments[-1].x1 for row in column)
        filled = sum(row.segments[-1].x1 - row.segments[0].x0 > 0.7 * (right - left) for row in column)
        wordy = median(len(row.words) for row in column) >= 3
        running += wordy and filled >= 0.45 * len(column)
    return running >= 2 or (running == 1 and len(columns) == 2 and all(_is_worded(column) for column in columns))


def _is_worded(column: list[Row]) -> bool:
    """Words at least, not only marks or numbers."""
    return len(column) >= 3 and median(sum(s.length for s in row.segments) for row in column) >= 12


def _as_table(region: _Region, columns: list[list[Row]], page: int) -> Table | None:
    """Rows of short cells whose baselines agree; None where the columns are running text or too few."""
    split = [row for row in region.rows if len({_place(s, region.cuts) for s in row.segments}) > 1]
    if len(split) < 3 or any(s.table for row in region.rows for s in row.segments):
        return None
    if all(word.mono for row in region.rows for word in row.words):
        return None
    width = len(columns)
    full = sum(len({_place(s, region.cuts) for s in row.segments}) >= max(2, width - 1) for row in region.rows)
    if full < 0.6 * len(region.rows):
        return None
    lengths = [median(sum(s.length for s in row.segments) for row in column) for column in columns if column]
    wordy = sum(_is_running(column) for column in columns)
    if wordy >= 2 or max(lengths) > 60 or (width == 2 and min(lengths) > 25):
        return None
    rows = _cell_rows(region, width)
    if len(rows) < 3:
        return None
    words = [w for row in region.rows for w in row.words]
    edges = tuple(min(row.segments[0].x0 for row in column) for column in columns if column)
    box = (min(w.x0 for w in words), region.rows[0].top, max(w.x1 for w in words), region.rows[-1].bottom)
    return Table(rows, header_rows(rows, region.rows), *box, page, edges)


def _is_running(column: list[Row]) -> bool:
    return median(len(row.words) for row in column) >= 5 if column else False


def header_rows(rows: list[list[str]], lines: list[Row]) -> int:
    """1 where the first row tells what the columns are: set apart by weight, or by having no figures; else 0."""
    first = lines[0].words
    rest = [word for line in lines[1:] for word in line.words]
    if first and all(w.bold for w in first) and sum(w.bold for w in rest) < 0.5 * len(rest):
        return 1
    figures = [any(c.isdigit() for c in " ".join(row[1:])) for row in rows]
    if not figures[0] and sum(figures[1:]) >= 0.6 * len(figures[1:]):
        return 1
    return 1 if len(rows[0]) > 2 else 0


def _place(segment: Segment, cuts: list[float]) -> int:
    middle = (segment.x0 + segment.x1) / 2
    return sum(middle > cut for cut in cuts)


def _cell_rows(region: _Region, width: int) -> list[list[str]]:
    """Cell texts; a close row without a first cell goes on with the cells above it."""
    rows: list[list[str]] = []
    pitches = [b.base - a.base for a, b in zip(region.rows, region.rows[1:], strict=False)]
    usual = median(pitches) if pitches else 0.0
    before: Row | None = None
    for row in region.rows:
        cells = [""] * width
        for segment in row.segments:
            place = _place(segment, region.cuts)
            cells[place] = f"{cells[place]} {joined_words(segment.words)}".strip()
        close = before is not None and row.base - before.base <= 1.02 * usual
        if rows and close and not cells[0] and sum(map(bool, cells)) < width:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
        before = row
    return rows
