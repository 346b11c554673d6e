"""Tables on a page: from the structure tree, and from drawn lines."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from pipeline.extract.pdf_model import Ruling, Table, Word
from pipeline.extract.pdf_rows import joined_words, plain_lines
from pipeline.extract.pdf_text import mended
from pipeline.extract.spans import MAX_COPY

_SNAP = 3.0  # points within which lines are one
_MAX_SIDE = 400  # rows or columns of a ruled table
_MAX_CELLS = 40_000


def tagged_tables(words: list[Word], page: int) -> tuple[list[Table], list[Word]]:
    """Tables that the structure tree describes, and the words that are in none."""
    cells: dict[int, dict[tuple[int, int], list[Word]]] = {}
    heads: dict[int, set[tuple[int, int]]] = {}
    high: dict[int, dict[tuple[int, int], int]] = {}  # cells that take several rows
    rest: list[Word] = []
    for word in words:
        cell = word.tag.cell if word.tag is not None else None
        if cell is None or cell[2] < 0:
            rest.append(word)
            continue
        cells.setdefault(cell[0], {}).setdefault((cell[1], cell[2]), []).append(word)
        if cell[3]:
            heads.setdefault(cell[0], set()).add((cell[1], cell[2]))
        if word.tag is not None and word.tag.rows > 1:
            high.setdefault(cell[0], {})[cell[1], cell[2]] = word.tag.rows
    tables: list[Table] = []
    for number, found in cells.items():
        used = sorted({row for row, _ in found})
        width = max(column for _, column in found) + 1
        inside = [word for content in found.values() for word in content]
        if width < 2 or width > _MAX_SIDE or len(used) < 2:
            rest.extend(inside)
            continue
        texts = {place: _cell_text(content, page) for place, content in found.items()}
        for (row, column), count in high.get(number, {}).items():
            if len(texts[row, column]) <= MAX_COPY:
                for below in range(row + 1, row + count):
                    texts.setdefault((below, column), texts[row, column])
        rows = [[texts.get((row, column), "") for column in range(width)] for row in used]
        marked = heads.get(number, set())
        head = 0
        for row in used:
            if not all((row, column) in marked for at, column in found if at == row):
                break
            head += 1
        edges = tuple(
            min((w.x0 for (_, at), content in found.items() if at == column for w in content), default=0.0)
            for column in range(width)
        )
        tables.append(Table(rows, head if head < len(rows) else 1, *_box(inside), page, edges))
    return tables, rest


def ruled_tables(words: list[Word], rulings: list[Ruling], page: int) -> tuple[list[Table], list[Word]]:
    """Tables whose cells are drawn, and the words that are in none."""
    tables: list[Table] = []
    for grid in _grids(rulings):
        inside = [w for w in words if grid.holds(*w.middle)]
        table = _filled(grid, inside, page) if inside else None
        if table is not None:
            tables.append(table)
            taken = {id(word) for word in inside}
            words = [word for word in words if id(word) not in taken]
    for lines in _bars(rulings, tables):
        table, taken = _barred(lines, words, page)
        if table is not None:
            tables.append(table)
            words = [word for word in words if id(word) not in taken]
    return tables, words


def _bars(rulings: list[Ruling], tables: list[Table]) -> list[list[float]]:
    """Heights of lines from side to side that stand over each other, at least three, outside of drawn tables."""
    groups: dict[tuple[int, int], list[Ruling]] = {}
    for ruling in _merged([r for r in rulings if r.across and r.end - r.start > 40]):
        if not any(t.x0 - 2 <= ruling.start and ruling.end <= t.x1 + 2 and t.top - 2 <= ruling.at <= t.bottom + 2
                   for t in tables):  # fmt: skip
            groups.setdefault((round(ruling.start / 6), round(ruling.end / 6)), []).append(ruling)
    found = [sorted(group, key=lambda r: r.at) for group in groups.values() if 3 <= len(group) <= _MAX_SIDE]
    return [[lines[0].start, lines[0].end, *(line.at for line in lines)] for lines in found]


def _barred(lines: list[float], words: list[Word], page: int) -> tuple[Table | None, set[int]]:
    """A table whose rows are divided by lines, or its header and its end, and its columns by white bands."""
    left, right, *heights = lines
    across = [w for w in words if left - 3 <= w.middle[0] <= right + 3]
    inside = [w for w in across if heights[0] < w.middle[1] < heights[-1]]
    columns = _bands(inside)
    if len(columns) < 2 or len(columns) > 40:
        return None, set()
    above = _header_above(across, heights[0], columns)
    if above:
        top = min(w.top for w in above)
        heights.insert(0, top - 1)
        inside = above + inside
        columns = _bands(inside)
    if len(columns) < 2:
        return None, set()
    strips: list[list[Word]] = [[] for _ in heights[1:]]
    for word in inside:
        strips[min(bisect_right(heights, word.middle[1]) - 1, len(strips) - 1)].append(word)
    if len(lines) <= 6:  # up to four lines may stand around the header and at the end only
        strips = [part for strip in strips for part in _parted(strip, columns)]
    rows = [[_cell_text([w for w in strip if _column(w, columns) == j], page) for j in range(len(columns))]
            for strip in strips if strip]  # fmt: skip
    cells = sorted(len(cell) for row in rows for cell in row if cell)
    if len(rows) < 2 or len(cells) < 4 or cells[len(cells) // 2] > 60 or cells[-1] > 600:
        return None, set()
    return Table(rows, 1, *_box(inside), page, tuple(a for a, _ in columns)), {id(w) for w in inside}


def _header_above(words: list[Word], line: float, columns: list[tuple[float, float]]) -> list[Word]:
    """Words close above a table's first line that stand in its columns: a header without a line over it."""
    rows = _by_baseline([w for w in words if 0 < line - w.middle[1] < 5 * w.size])
    header: list[Word] = []
    top = line
    for row in reversed(rows):
        spans = _bands(row)
        in_columns = all(sum(a < right and left < b for left, right in columns) <= 1 for a, b in spans)
        if top - max(w.bottom for w in row) > 0.7 * row[0].size or not in_columns:
            break
        header += row
        top = min(w.top for w in row)
    return header if len({_column(w, columns) for w in header}) > 1 else []


def _parted(strip: list[Word], columns: list[tuple[float, float]]) -> list[list[Word]]:
    """The rows of what stands between two lines: each begins where the first column does and fills most others."""
    rows = _by_baseline(strip)
    filled = [{_column(w, columns) for w in row} for row in rows]
    whole = all(0 in found and len(found) >= max(2, (len(columns) + 1) // 2) for found in filled)
    return rows if whole else [strip]


def _bands(words: list[Word]) -> list[tuple[float, float]]:
    """Columns: where words stand over each other, with white between that is wider than between words."""
    found: list[tuple[float, float]] = []
    for word in sorted(words, key=lambda w: w.x0):
        if found and word.x0 - found[-1][1] < max(0.7 * word.size, 5.0):
            found[-1] = (found[-1][0], max(found[-1][1], word.x1))
        else:
            found.append((word.x0, word.x1))
    return found


def _column(word: Word, columns: list[tuple[float, float]]) -> int:
    return max(bisect_right([a for a, _ in columns], word.middle[0]) - 1, 0)


def _by_baseline(words: list[Word]) -> list[list[Word]]:
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda w: (w.base, w.x0)):
        if rows and word.base - rows[-1][0].base < 0.5 * word.size:
            rows[-1].append(word)
        else:
            rows.append([word])
    return rows


@dataclass
class _Grid:
    """Where lines cross. ``right[i][j]``: is there a line at the right side of the small cell in row i, column j?"""

    xs: list[float]
    ys: list[float]
    right: list[list[bool]] = field(default_factory=list)
    below: list[list[bool]] = field(default_factory=list)

    def holds(self, x: float, y: float) -> bool:
        """Is the place inside?"""
        return self.xs[0] - 1 <= x <= self.xs[-1] + 1 and self.ys[0] - 1 <= y <= self.ys[-1] + 1


def _grids(rulings: list[Ruling]) -> list[_Grid]:
    """Rulings that touch each other, as grids; outermost first where one lies in another."""
    flat = _merged([r for r in rulings if r.across])
    upright = _merged([r for r in rulings if not r.across])
    if len(flat) * len(upright) > 4_000_000:
        return []
    parent = list(range(len(flat) + len(upright)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, h in enumerate(flat):
        for j, v in enumerate(upright):
            if v.start - _SNAP <= h.at <= v.end + _SNAP and h.start - _SNAP <= v.at <= h.end + _SNAP:
                parent[root(i)] = root(len(flat) + j)
    groups: dict[int, tuple[list[Ruling], list[Ruling]]] = {}
    for i, ruling in enumerate(flat + upright):
        groups.setdefault(root(i), ([], []))[0 if ruling.across else 1].append(ruling)
    grids = [grid for rows, columns in groups.values() if (grid := _grid(rows, columns)) is not None]
    return sorted(grids, key=lambda g: (g.ys[0], g.xs[0]))


def _merged(rulings: list[Ruling]) -> list[Ruling]:
    """Pieces of one line as one."""
    found: list[Ruling] = []
    for ruling in sorted(rulings, key=lambda r: (round(r.at / _SNAP), r.start)):
        last = found[-1] if found else None
        if last is not None and abs(last.at - ruling.at) <= _SNAP and ruling.start <= last.end + _SNAP:
            last.end = max(last.end, ruling.end)
        else:
            found.append(Ruling(ruling.across, ruling.at, ruling.start, ruling.end))
    return found


def _grid(flat: list[Ruling], upright: list[Ruling]) -> _Grid | None:
    if len(flat) < 2 or not upright:
        return None
    ys = _positions([r.at for r in flat])
    xs = _positions([r.at for r in upright])
    left, right = min(r.start for r in flat), max(r.end for r in flat)
    if xs[0] - left > 2 * _SNAP:  # tables without a frame at their sides
        xs.insert(0, left)
    if right - xs[-1] > 2 * _SNAP:
        xs.append(right)
    rows, columns = len(ys) - 1, len(xs) - 1
    if rows < 1 or columns < 2 or rows * columns < 2 or max(rows, columns) > _MAX_SIDE or rows * columns > _MAX_CELLS:
        return None
    grid = _Grid(xs, ys, [[False] * columns for _ in range(rows)], [[False] * columns for _ in range(rows)])
    for v in upright:
        j = _nearest(xs, v.at) - 1
        for i in range(rows):
            if 0 <= j < columns and v.start - _SNAP <= (ys[i] + ys[i + 1]) / 2 <= v.end + _SNAP:
                grid.right[i][j] = True
    for h in flat:
        i = _nearest(ys, h.at) - 1
        for j in range(columns):
            if 0 <= i < rows and h.start - _SNAP <= (xs[j] + xs[j + 1]) / 2 <= h.end + _SNAP:
                grid.below[i][j] = True
    return grid


def _positions(values: list[float]) -> list[float]:
    found: list[float] = []
    for value in sorted(values):
        if not found or value - found[-1] > _SNAP:
            found.append(value)
    return found


def _nearest(values: list[float], at: float) -> int:
    return min(range(len(values)), key=lambda i: abs(values[i] - at))


def _filled(grid: _Grid, words: list[Word], page: int) -> Table | None:
    rows, columns = len(grid.ys) - 1, len(grid.xs) - 1
    owner = _owners(grid, rows, columns)
    content: dict[int, list[Word]] = {}
    for word in words:
        x, y = word.middle
        i = min(max(bisect_right(grid.ys, y) - 1, 0), rows - 1)
        j = min(max(bisect_right(grid.xs, x) - 1, 0), columns - 1)
        content.setdefault(owner[i][j], []).append(word)
    if len(content) < 3 or len(set(map(tuple, zip(*owner, strict=True)))) < 2:
        return None  # a box around text, or one column
    words_of = {place: _cell_text(found, page) for place, found in content.items()}
    table: list[list[str]] = []
    for i in range(rows):
        line: list[str] = []
        for j in range(columns):
            place = owner[i][j]
            text = words_of.get(place, "")
            above = i > 0 and owner[i - 1][j] == place
            beside = j > 0 and owner[i][j - 1] == place
            line.append("" if beside or (above and len(text) > MAX_COPY) else text)
        table.append(line)
    kept = [i for i in range(rows) if any(table[i])]
    used = [j for j in range(columns) if any(table[i][j] for i in kept)]
    if len(kept) < 2 or len(used) < 2:
        return None
    lines = [[table[i][j] for j in used] for i in kept]
    return Table(
        lines, _header(grid, content, owner, kept), grid.xs[0], grid.ys[0], grid.xs[-1], grid.ys[-1], page,
        tuple(grid.xs[j] for j in used),
    )  # fmt: skip


def _header(grid: _Grid, content: dict[int, list[Word]], owner: list[list[int]], kept: list[int]) -> int:
    """Leading rows in bold where others are not, at most 3; 1 where nothing tells."""
    bold = [
        all(word.bold for place in dict.fromkeys(owner[i]) for word in content.get(place, ())) for i in kept
    ]  # fmt: skip
    count = 0
    while count < min(3, len(kept) - 1) and bold[count]:
        count += 1
    if count > 0 and not all(bold):
        return count
    tall = {place for i in kept[:1] for place in owner[i]} & {place for i in kept[1:2] for place in owner[i]}
    return 2 if tall and len(kept) > 2 else 1


def _owners(grid: _Grid, rows: int, columns: int) -> list[list[int]]:
    """The number of the cell that each small cell belongs to: small cells without a line between are one."""
    parent = list(range(rows * columns))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i in range(rows):
        for j in range(columns):
            if j + 1 < columns and not grid.right[i][j]:
                parent[root(i * columns + j + 1)] = root(i * columns + j)
            if i + 1 < rows and not grid.below[i][j]:
                parent[root((i + 1) * columns + j)] = root(i * columns + j)
    return [[root(i * columns + j) for j in range(columns)] for i in range(rows)]


def _cell_text(words: list[Word], page: int) -> str:
    """A cell's lines, in order, joined by spaces; a word that is broken at a line's end is mended."""
    if not words:
        return ""
    if len(words) == 1:
        return words[0].text
    if max(w.base for w in words) - min(w.base for w in words) < 0.5 * words[0].size:
        return joined_words(sorted(words, key=lambda w: w.x0))
    text = ""
    for line in plain_lines(words, page):
        text = mended(text, line.text) if text else line.text
    return text


def _box(words: list[Word]) -> tuple[float, float, float, float]:
    return min(w.x0 for w in words), min(w.top for w in words), max(w.x1 for w in words), max(w.bottom for w in words)
