"""Fidelity of an extraction: which words, cells, code blocks and heading paths of the truth it holds. Pure.

* recall and precision: longest common subsequence of words, over those of the truth and over those that were read, so
  that order counts; what only some readers write into the text is taken out before: link targets, marks of list items
  and footnotes, phrases that the truth calls optional;
* cells: right where a table of the reading has the cell's words in its row and column; tables are laid over each other
  with the shift that fits best; cells that a merged one covers are not asked for;
* code: right where one block holds the text byte for byte;
* paths: right where the block with the piece's first words stands under the same headings; more headings around them
  (a mail's subject) do not count as wrong;
* leaks: share of the forbidden phrases that were read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from infra.bench.quality.truth import Piece, Truth

# Scripts without spaces count by the letter.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]|(?:(?![\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f])[^\W_])+"
)
_MARKS = re.compile(r"\[\^[^\]\s]{1,20}\]|^[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t]+", re.MULTILINE)
_FIRST = 5  # words that say which block holds a piece
_SHIFTS = [(r, c) for r in (0, -1, 1, -2, 2) for c in (0, -1, 1)]


@dataclass(frozen=True)
class Heard:
    """One block as a reader gives it, whichever it is."""

    kind: str  # heading, table, code or text
    text: str
    path: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Scores:
    """Shares from 0 to 1; None where a file has nothing of the kind."""

    recall: float | None
    precision: float | None
    cells: float | None
    code: float | None
    paths: float | None
    links: float | None
    leaks: float | None


FIGURES = ("recall", "precision", "cells", "code", "paths", "links", "leaks")
NOTHING_READ = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def words(text: str) -> list[str]:
    """Words of a text, folded; each letter by itself in scripts without spaces."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def score(truth: Truth, heard: Sequence[Heard]) -> Scores:
    """The figures of one file."""
    whole = unquote("\n".join(one.text for one in heard))  # targets may be percent-encoded
    bare = whole
    for target in sorted(truth.links, key=len, reverse=True):
        bare = bare.replace(target, " ")
    said, true = _without(truth.optional, words(_MARKS.sub(" ", bare))), list(_words_of(truth.pieces))
    common = lcs(true, said)
    code = [piece for piece in truth.pieces if piece.kind == "code"]
    blocks = [one.text for one in heard if one.kind != "heading"]
    return Scores(
        recall=_share(common, len(true)),
        precision=_share(common, len(said)) if said else 0.0,
        cells=_cells(truth.pieces, heard),
        code=_share(sum(any(piece.text.strip("\n") in text for text in blocks) for piece in code), len(code)),
        paths=_paths(truth.pieces, heard),
        links=_share(sum(target in whole for target in truth.links), len(truth.links)),
        leaks=_leaks(truth.forbidden, said),
    )


def mean(scores: Sequence[Scores]) -> Scores:
    """Mean over files of each figure, without the files that have nothing of the kind."""

    def over(name: str) -> float | None:
        values = [value for one in scores if (value := getattr(one, name)) is not None]
        return sum(values) / len(values) if values else None

    return Scores(**{name: over(name) for name in FIGURES})


def failed(truth: Truth) -> Scores:
    """Figures of a file that could not be read: nothing of what it has was found, and nothing leaked."""
    whole = score(truth, [])
    return Scores(**{name: None if getattr(whole, name) is None else 0.0 for name in FIGURES})


def lcs(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence, by bits: time is len(one) × len(other) / word size."""
    places: dict[str, int] = {}
    for at, word in enumerate(one):
        places[word] = places.get(word, 0) | (1 << at)
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        met = row & places.get(word, 0)
        row = ((row + met) | (row - met)) & full
    return len(one) - row.bit_count()


def _without(phrases: Sequence[str], said: list[str]) -> list[str]:
    text = f" {' '.join(said)} "
    for phrase in phrases:
        text = text.replace(f" {' '.join(words(phrase))} ", " ", 1)
    return text.split()


def _words_of(pieces: Iterable[Piece]) -> Iterator[str]:
    for piece in pieces:
        yield from words(piece.text)
        for row in piece.rows:
            for cell in row:
                yield from words(cell or "")


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# -- tables ------------------------------------------------------------------------------------------------------------


def _cells(pieces: Sequence[Piece], heard: Sequence[Heard]) -> float | None:
    tables = [piece for piece in pieces if piece.rows]
    total = sum(cell is not None and bool(words(cell)) for piece in tables for row in piece.rows for cell in row)
    return _share(sum(_best(piece, heard)[0] for piece in tables), total)


def _best(piece: Piece, heard: Sequence[Heard]) -> tuple[int, Heard | None]:
    """How many cells the best fitting table has right, and that table."""
    wanted = [
        (r, c, words(cell)) for r, row in enumerate(piece.rows) for c, cell in enumerate(row) if cell and words(cell)
    ]
    best: tuple[int, Heard | None] = (0, None)
    for one in heard:
        if not one.rows:
            continue
        grid = [[words(cell) for cell in row] for row in one.rows]
        for down, right in _SHIFTS:
            count = sum(_at(grid, r + down, c + right) == cell for r, c, cell in wanted)
            if count > best[0]:
                best = (count, one)
    return best


def _at(grid: list[list[list[str]]], r: int, c: int) -> list[str] | None:
    return grid[r][c] if 0 <= r < len(grid) and 0 <= c < len(grid[r]) else None


# -- places ------------------------------------------------------------------------------------------------------------


def _paths(pieces: Sequence[Piece], heard: Sequence[Heard]) -> float | None:
    asked = [piece for piece in pieces if piece.path and piece.kind not in ("heading", "footnote", "image")]
    inside = [(f" {' '.join(words(one.text))} ", one) for one in heard if one.kind != "heading"]
    return _share(sum(_placed(piece, heard, inside) for piece in asked), len(asked))


def _placed(piece: Piece, heard: Sequence[Heard], inside: Sequence[tuple[str, Heard]]) -> bool:
    if piece.rows:
        holder = _best(piece, heard)[1]
        return holder is not None and _same(piece.path or (), holder.path)
    first = f" {' '.join(words(piece.text)[:_FIRST])} "
    return any(first in text and _same(piece.path or (), one.path) for text, one in inside)


def _same(true: Sequence[str], said: Sequence[str]) -> bool:
    wanted, found = [words(part) for part in true], [words(part) for part in said]
    return found[len(found) - len(wanted) :] == wanted if len(found) >= len(wanted) else False


def _leaks(forbidden: Sequence[str], said: Sequence[str]) -> float | None:
    text = f" {' '.join(said)} "
    return _share(sum(f" {' '.join(words(phrase))} " in text for phrase in forbidden), len(forbidden))
