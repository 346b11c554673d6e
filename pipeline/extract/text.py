"""Plain text: paragraphs at blank lines, lists, quoted lines, tables drawn in characters, indented code, pages.

Headings are not guessed: a wrong one would stand over everything below it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from pipeline.extract.builder import table_block
from pipeline.extract.reading import Body, Reading
from schemas.documents import Block

# Characters of a block that has no blank line, as logs have none: it is cut at lines, where their content says so, so
# that a line more at the top moves no cut further down.
MIN_PIECE, MAX_PIECE = 8_000, 32_000
_CUT_EVERY = 64  # lines

_BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")
_BULLET = re.compile(r"[^\S\n]*(?:[-*+•‣▪◦–]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])[^\S\n]+\S")
_QUOTED = re.compile(r"(?:> ?)+")
_GRID = re.compile(r"\s*\+(?:[-=]+\+)+\s*$")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:[|+]\s*:?-{2,}:?\s*)+\|?\s*$")
_BAR = re.compile(r"(?<!\\)\|")
_INDENTED = re.compile(r"(?: {4}|\t)[^\n]*\S")
_CODE_SIGN = re.compile(r"[{}();=<>$#\\|_\[\]@&]|^\s*(?:def|class|if|for|while|return|import|from|end|fi|done)\b")
_PROSE_INDENT = 0.7  # share of indented lines from which on indentation is the text's layout


def read(body: Body) -> Reading:
    """A Reader of plain text. Form feeds part pages, which are counted where there are two."""
    pages = [page for page in (body.text or "").split("\f") if page.strip()]
    if len(pages) < 2:
        return Reading(read_text(body.text or ""))
    blocks: list[Block] = []
    number = 0
    for page in (body.text or "").rstrip("\f\n ").split("\f"):
        number += 1
        blocks += [block.model_copy(update={"page": number}) for block in read_text(page)]
    return Reading(blocks, pages=number)


def read_text(text: str) -> list[Block]:
    """Blocks of a plain text; each keeps its line breaks. Code and lists keep their indentation."""
    laid_out = _is_laid_out(text)
    blocks: list[Block] = []
    code_end = -1  # where code in ``text`` ended that the next code goes on from
    at = 0
    for gap in [*_BLANK.finditer(text.replace("\f", "\n")), None]:
        start, end = at, gap.start() if gap else len(text)
        at = gap.end() if gap else len(text)
        raw = text[start:end].strip("\n").replace("\f", "\n").split("\n")
        lines = [line.rstrip() for line in raw]
        if not any(lines):
            continue
        if not laid_out and _is_code(lines, after_list=bool(blocks) and blocks[-1].type == "list"):
            if code_end == start and blocks[-1].type == "code" and len(blocks[-1].text) < MAX_PIECE:
                between = "\n" * text.count("\n", *_gap(text, start))
                blocks[-1] = blocks[-1].model_copy(update={"text": blocks[-1].text + between + "\n".join(raw)})
            else:
                blocks += [Block(type="code", text=piece) for piece in _pieces(raw)]
            code_end = at
        else:
            blocks += _group(lines)
    return blocks


def _gap(text: str, start: int) -> tuple[int, int]:
    """The blank lines before an offset."""
    begin = start
    while begin and text[begin - 1].isspace():
        begin -= 1
    return begin, start


def _group(lines: list[str]) -> Iterator[Block]:
    """Blocks of lines without a blank one between them."""
    table = _table(lines)
    if table is not None:
        yield table
        return
    start = 0
    for begin, end, quoted in _quotes(lines):
        if begin > start:
            yield from _plain(lines[start:begin])
        if quoted:
            stripped = [_QUOTED.sub("", line, count=1) for line in lines[begin:end]]
            yield from (Block(type="quote", text=piece) for piece in _pieces(stripped))
        start = end
    if start < len(lines):
        yield from _plain(lines[start:])


def _quotes(lines: list[str]) -> Iterator[tuple[int, int, bool]]:
    """Runs of quoted lines; one alone among others may be an arrow or a prompt."""
    at = 0
    while at < len(lines):
        begin = at
        while at < len(lines) and lines[at].startswith(">"):
            at += 1
        if at - begin > 1 or (at - begin == 1 == len(lines)):
            yield begin, at, True
        at = max(at, begin + 1)


def _plain(lines: list[str]) -> Iterator[Block]:
    bullets = [bool(_BULLET.match(line)) for line in lines]
    first = bullets.index(True) if True in bullets else len(lines)
    listed = sum(bullets) > 1 and (first == 0 or lines[first - 1].endswith(":")) and _goes_on(lines, bullets, first)
    if not listed:
        first = len(lines)
    yield from (Block(type="paragraph", text=piece) for piece in _pieces(lines[:first]))
    yield from (Block(type="list", text=piece) for piece in _pieces(lines[first:]))


def _goes_on(lines: list[str], bullets: list[bool], first: int) -> bool:
    """Whether all lines from the first bullet on are bullets or indented deeper than the first."""
    indent = _indent(lines[first])
    return all(bullet or _indent(line) > indent for line, bullet in zip(lines[first:], bullets[first:], strict=True))


def _pieces(lines: list[str]) -> Iterator[str]:
    """The lines joined, in pieces of a bounded number of characters where that can be had at line ends."""
    piece: list[str] = []
    size = 0
    for line in lines:
        wanted = size >= MIN_PIECE and zlib.crc32(line.encode("utf-8", "replace")) % _CUT_EVERY == 0
        if piece and (wanted or size + len(line) > MAX_PIECE):
            yield "\n".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line) + 1
    if any(piece):
        yield "\n".join(piece)


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def _is_laid_out(text: str) -> bool:
    """Whether so many lines are indented that indentation says nothing (RFCs, manual pages)."""
    sample = [line for line in text[:200_000].split("\n") if line.strip()]
    return sum(_INDENTED.match(line) is not None for line in sample) > _PROSE_INDENT * len(sample)


def _is_code(lines: list[str], *, after_list: bool) -> bool:
    """Whether lines are indented and look like code; below a list an indented paragraph belongs to its item."""
    if len(lines) < 2 and after_list:
        return False
    if not all(_INDENTED.match(line) for line in lines if line):
        return False
    signs = sum(_CODE_SIGN.search(line) is not None for line in lines)
    return signs * 2 >= len(lines) and not all(_BULLET.match(line) for line in lines)


# ---------------------------------------------------------------------- tables


def _table(lines: list[str]) -> Block | None:
    """A table with ruled lines (``+---+``), as databases' shells print them, or in Markdown's way; None for others."""
    if len(lines) < 3 or sum(map(len, lines)) > (1 << 20) * 8:
        return None
    if _GRID.match(lines[0]):
        return _grid(lines)
    if _RULE.match(lines[1]) and _BAR.search(lines[0]):
        body = [lines[0], *lines[2:]]
        notes = [line for line in body if not _BAR.search(line)]
        if len(notes) > 1 or (notes and notes != body[-1:]):
            return None
        return table_block([_cells(line) if _BAR.search(line) else [line.strip()] for line in body], 1)
    return None


def _grid(lines: list[str]) -> Block | None:
    """Rows between ruled lines; a cell's further lines are joined. The first rule below rows ends the header."""
    if not all(_GRID.match(line) or line.lstrip().startswith("|") for line in lines):
        return None
    rules = [index for index, line in enumerate(lines) if _GRID.match(line)]
    # Where only header and end are ruled, each line is a row; else each ruled part is one.
    ruled_rows = len(rules) > 3
    rows: list[list[str]] = []
    for begin, end in zip(rules, [*rules[1:], len(lines)], strict=True):
        part = [_cells(line) for line in lines[begin + 1 : end]]
        if not part:
            continue
        if ruled_rows:
            width = max(map(len, part))
            part = [[" ".join(row[i] for row in part if i < len(row) and row[i]) for i in range(width)]]
        rows += part
    headers = rules[1] - rules[0] - 1 if len(rules) > 2 and not ruled_rows else int(len(rules) > 2)
    return table_block(rows, headers)


def _cells(line: str) -> list[str]:
    stripped = line.strip().removeprefix("|")
    stripped = stripped.removesuffix("|") if not stripped.endswith("\\|") else stripped
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(stripped)]
