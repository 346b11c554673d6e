"""Delimited text (CSV, TSV): its delimiter is found out, its rows are read whatever their length."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE_BYTES, _SAMPLE_ROWS = 262_144, 500
_ONE_FIELD = 8 << 20  # characters; more in one field is a quotation mark that nothing closes
_END = "\ue000"  # a line of its own after the text
_STEADY = 0.8  # share of rows with the commonest number of fields, for a delimiter to be one
_PROSE = 40  # characters in a field on average beyond which commas are those of sentences


@dataclass
class Delimited:
    """Rows as they stand, ragged ones included."""

    rows: list[list[str]]
    warnings: list[str] = field(default_factory=list)


def read(text: str, *, tabs: bool = False) -> Delimited | None:
    """Rows of a text with line feeds; None where no delimiter parts it into columns.

    A first line ``sep=;`` names the delimiter; ``tabs`` says that the type does. Otherwise the one that gives the
    steadiest number of fields is taken.
    """
    text = text.removeprefix("\ufeff")
    first, _, rest = text.partition("\n")
    named = first.strip().strip('"')
    delimiter: str | None = None
    if len(named) == 5 and named.lower().startswith("sep="):
        delimiter, text = named[4], rest
    elif first.strip().lower() == "sep=":  # followed by a tab, which was trimmed
        delimiter, text = "\t", rest
    delimiter = delimiter or ("\t" if tabs and "\t" in text else _sniffed(text))
    if delimiter is None:
        return None
    rows = _rows(text, delimiter, strict=True)
    if rows is not None:
        return Delimited(rows)
    # A quotation mark stands where none may: either it is part of a field, or the file is written carelessly.
    loose = _rows(text, delimiter)
    plain = _rows(text, delimiter, quoted=False) or []
    if loose is not None and (len(loose) >= len(plain) or _steadiness(loose)[1] > _steadiness(plain)[1]):
        return Delimited(loose)
    return Delimited(plain, ["table: a quotation mark is never closed; every line was read as a row"])


def _rows(text: str, delimiter: str, *, quoted: bool = True, strict: bool = False) -> list[list[str]] | None:
    """All rows that hold anything; None where a quotation mark is opened and never closed."""
    before = csv.field_size_limit(_ONE_FIELD if quoted else max(len(text), _ONE_FIELD))
    try:
        if quoted:
            reader = csv.reader(_lines(text), delimiter=delimiter, skipinitialspace=True, strict=strict)
        else:
            reader = csv.reader(_lines(text), delimiter=delimiter, quoting=csv.QUOTE_NONE)
        rows = [row for row in reader if any(map(str.strip, row))]
    except csv.Error:
        return None
    finally:
        csv.field_size_limit(before)
    if not rows or rows.pop() != [_END]:  # an open quotation mark takes in all that follows, the last line with it
        return None
    return rows if quoted else [[_unquoted(cell) for cell in row] for row in rows]


def _steadiness(rows: list[list[str]]) -> tuple[int, float]:
    """The commonest number of fields, and the share of rows that have it."""
    if not rows:
        return 0, 0.0
    width, count = max(Counter(map(len, rows)).items(), key=lambda one: (one[1], one[0]))
    return width, count / len(rows)


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end] + "\n"
        start = end + 1
    yield _END


def _unquoted(cell: str) -> str:
    cell = cell.strip()
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _sniffed(text: str) -> str | None:
    """The delimiter that gives most rows the same number of fields; of equals the one with more fields."""
    sample = text[:_SAMPLE_BYTES]
    if len(sample) < len(text):
        sample = sample[: sample.rfind("\n") + 1] or sample
    best: tuple[float, str] | None = None
    for delimiter in _DELIMITERS:
        if delimiter not in sample:
            continue
        rows = _rows(sample, delimiter) or _rows(sample, delimiter, quoted=False) or []
        score = _score(rows[:_SAMPLE_ROWS], sample, delimiter)
        if score and (best is None or score > best[0]):
            best = (score, delimiter)
    return best[1] if best else None


def _score(rows: list[list[str]], sample: str, delimiter: str) -> float:
    """0 for no table, else more the steadier and the wider it is."""
    width, share = _steadiness(rows)
    if width < 2:
        return 0.0
    # Ragged rows and short files are tables as long as their fields are not pieces of sentences.
    if share < _STEADY and sum(len(row) >= 2 for row in rows) < _STEADY * len(rows):
        return 0.0
    if (share < _STEADY or len(rows) < 3) and _is_prose(rows, sample, delimiter):
        return 0.0
    return share + min(width, 100) / 1000


def _is_prose(rows: list[list[str]], sample: str, delimiter: str) -> bool:
    """Pieces of sentences are long or of several words; quotation marks beside delimiters are those of a table."""
    if f'"{delimiter}' in sample or f'{delimiter}"' in sample:
        return False
    cells = [cell for row in rows for cell in row if cell.strip()]
    words = sum(len(cell.split()) for cell in cells) / len(cells)
    spaced = sample.count(f"{delimiter} ") * 5 > sample.count(delimiter) * 4
    return sum(map(len, cells)) > _PROSE * len(cells) or words > (1.8 if spaced else 3)
