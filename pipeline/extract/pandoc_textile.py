"""Textile made ready for pandoc: code of every form is set aside, tables get their merged cells, mixed lists part."""

from __future__ import annotations

import html
import re

from pipeline.extract.pandoc_marks import NOTE_LIST, Marks
from pipeline.extract.pandoc_markup import Prepared
from pipeline.extract.pandoc_tables import Cell, grid

_PRE = re.compile(r"<pre\b([^<>]*)>", re.IGNORECASE)
_PRE_END = re.compile(r"</pre\s*>", re.IGNORECASE)
_CODE = re.compile(r"\s*<code\b([^<>]*)>(.*?)(?:</code\s*>\s*)?\Z", re.IGNORECASE | re.DOTALL)
_CLASS = re.compile(r"""\bclass\s*=\s*["']?(?:language-|lang-)?([\w+#.-]+)""", re.IGNORECASE)
_SIGNATURE = re.compile(
    r"(bc|pre|bq|notextile|p|h[1-6]|fn[0-9]+|table|###)((?:\([^()\n]*\)|[<>=]|\{[^}\n]*\}|\[[^\]\n]*\])*)(\.\.?) ?"
)
_ITEM = re.compile(r"([*#]+) ")
_NOTE = re.compile(r"fn([0-9]+)[^.\s]*\. ")
_NOTE_REFERENCE = re.compile(r"\[([0-9]+)\]")
_CELL = re.compile(r"((?:[_<>=^~-]|\\[0-9]+|/[0-9]+|\([^()]*\)|\{[^{}]*\})+)\. ?")
_COLUMNS, _ROWS = re.compile(r"\\([0-9]{1,3})"), re.compile(r"/([0-9]{1,4})")


def textile(text: str, marks: Marks) -> Prepared:
    """For pandoc's textile reader."""
    paragraphs = re.split(r"\n(?:[ \t]*\n)+", _pre_elements(text, marks))
    out: list[str] = []
    extended: str | None = None  # bc, pre, bq, notextile or ### begun with two dots: until the next signature
    code: list[str] = []

    def end_code() -> None:
        if code:
            out.append(f"<pre>{marks.code(_one_end(code), language)}</pre>")
            code.clear()

    language: str | None = None
    for paragraph in paragraphs:
        signature = _SIGNATURE.match(paragraph)
        if signature:
            end_code()
            kind, attributes, dots = signature.groups()
            rest = paragraph[signature.end() :]
            extended = kind if dots == ".." else None
        elif extended:
            kind, attributes, rest = extended, "", paragraph
        else:
            out.append(_block(paragraph))
            continue
        if kind in ("bc", "pre"):
            if signature:
                language = _language(attributes) if kind == "bc" else None
            code.append(rest)
            if not extended:
                end_code()
        elif kind == "notextile":
            out.append(f"<notextile>{rest}</notextile>")
        elif kind == "bq":
            out.append(f"bq. {rest}")
        elif kind != "###":
            out.append(_block(paragraph))
    end_code()
    text = "\n\n".join(out)
    referred = set(_NOTE_REFERENCE.findall(text))
    orphans = [note for note in _NOTE.findall(text) if note not in referred]
    return Prepared("\n\n".join([text, *(f"{NOTE_LIST} x[{note}]" for note in orphans)]))


def _pre_elements(text: str, marks: Marks) -> str:
    out: list[str] = []
    position = 0
    while opening := _PRE.search(text, position):
        closing = _PRE_END.search(text, opening.end())
        if closing is None:
            break
        inside, attributes = text[opening.end() : closing.start()], opening.group(1)
        code = _CODE.match(inside)
        if code:
            attributes, inside = f"{attributes} {code.group(1)}", code.group(2)
        named = _CLASS.search(attributes)
        token = marks.code(html.unescape(inside).removeprefix("\n").rstrip("\n"), named.group(1) if named else None)
        out.append(f"{text[position : opening.start()].rstrip(' ')}\n\n<pre>{token}</pre>\n\n")
        position = closing.end()
    return "".join(out) + text[position:]


def _language(attributes: str) -> str | None:
    found = re.search(r"\(([^()#\s]+)", attributes)
    return found.group(1).removeprefix("language-") if found else None


def _one_end(parts: list[str]) -> str:
    return "\n\n".join(parts).rstrip("\n")


def _block(paragraph: str) -> str:
    lines = paragraph.split("\n")
    out: list[str] = []
    kind = ""
    rows: list[list[Cell]] = []
    for line in lines:
        if _is_row(line):
            rows.append(_cells(line))
            continue
        out.extend(_table(rows))
        item = _ITEM.match(line)
        if item:
            if kind and item.group(1)[0] != kind and len(item.group(1)) == 1:
                out.append("")  # bullets and numbers in turn are lists of their own
            elif len(item.group(1)) > 1:
                # One kind of sign says the depth; the item's own sign is the last one.
                line = kind_line(item.group(1), line)
            kind = item.group(1)[0]
        elif re.match(r"fn[0-9]+[^.\s]*\. ", line) and out and out[-1]:
            out.append("")
        out.append(line)
    out.extend(_table(rows))
    return "\n".join(out)


def kind_line(signs: str, line: str) -> str:
    """An item whose signs differ (``*#``) with the last one repeated."""
    return signs[-1] * len(signs) + line[len(signs) :]


def _is_row(line: str) -> bool:
    return len(line) > 2 and line.startswith("|") and line.rstrip().endswith("|")


def _cells(line: str) -> list[Cell]:
    cells = []
    for text in line.strip()[1:-1].split("|"):
        signs = _CELL.match(text)
        rows, columns = 1, 1
        if signs:
            down, across = _ROWS.search(signs.group(1)), _COLUMNS.search(signs.group(1))
            rows, columns = int(down.group(1)) if down else 1, int(across.group(1)) if across else 1
            heading = "_. " if "_" in signs.group(1) else ""
            text = heading + text[signs.end() :]
        cells.append(Cell(text, rows, columns))
    return cells


def _table(rows: list[list[Cell]]) -> list[str]:
    lines = ["|" + "|".join(text or " " for text in row) + "|" for row in grid(rows)]
    rows.clear()
    return lines
