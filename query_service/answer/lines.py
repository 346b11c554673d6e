"""Lines of what a model wrote: items, headings, rules, references, fences, rows of tables."""

from __future__ import annotations

import re

from query_service.answer import marks

ITEM = re.compile(r"^(?:\s*>)*\s*(?P<mark>[-*+•‣–]|\(?\d{1,3}[.)]|\(?[a-zA-Z]\))[ \t]+(?P<rest>.*)$", re.DOTALL)
FENCE = re.compile(r"^\s*(?:>\s*)?(```+|~~~+)\s*([\w+#.-]*)")
JSON = re.compile(r"^\s*\[?\s*\{\s*(?:[\"'}]|$)")
PROSE_FENCES = frozenset({"markdown", "md", "text", "txt", "answer"})  # models put a whole answer into one
ENDS = frozenset(".!?…。！？")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(?P<words>.*?)\s*#*\s*$")
_TITLE = re.compile(r"^\s*(?:\*\*|__)(?P<words>[^*_]{1,120})(?:\*\*|__)\s*:?\s*$")
_RULE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_DEFINITION = re.compile(r"^\s*(?:[-*]\s*)?\[\^?\w{1,20}\]\s*:")
_SEPARATOR = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_CELL = re.compile(r"(?<!\\)\|")


def heading_of(line: str) -> str | None:
    """The words of a line that is a heading, or in bold as a whole."""
    found = _HEADING.match(line) or _TITLE.match(line)
    return found.group("words").strip() if found else None


def name_of(line: str) -> str:
    """The heading, or the word before a colon with which the line begins, folded; empty where there is none."""
    words = heading_of(line)
    if words is None:
        label = marks.LABEL.match(line)
        words = label.group("label") if label else ""
    return " ".join(words.rstrip(":").casefold().split())


def is_label(line: str) -> bool:
    """Whether the line begins with a label that tells what it is."""
    label = marks.LABEL.match(line)
    return label is not None and name_of(label.group()) in marks.THOUGHTS | marks.ACTIONS | marks.REFERENCES


def is_decoration(line: str) -> bool:
    """A rule, or the definition of a footnote."""
    return _DEFINITION.match(line) is not None or _RULE.match(line) is not None


def is_row(line: str) -> bool:
    """Of a table."""
    return line.lstrip()[:1] == "|" and line.count("|") > 1


def is_reference(line: str) -> bool:
    """Whether a line under "Sources:" lists one: it begins with its number, or is an item that cites nothing."""
    item = ITEM.match(line)
    rest = (item.group("rest") if item else line).strip()
    first = marks.FOOTNOTE.match(rest)
    return bool(first or item) and marks.FOOTNOTE.search(rest[first.end() :] if first else rest) is None


def depth(line: str) -> int:
    """How many brackets of JSON it leaves open."""
    return sum(line.count(c) for c in "{[") - sum(line.count(c) for c in "}]")


class Table:
    """Rows as ``Column: value; …`` with what they cite. The first one waits: a line of dashes makes it the header."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._first: str | None = None
        self._begun = False

    def add(self, line: str) -> list[tuple[str, list[int]]]:
        """The rows that are known now."""
        if _SEPARATOR.match(line):
            if self._first is not None:
                clean, _ = marks.without_footnotes(self._first)
                self._columns, self._first = [marks.plain(cell) for cell in _cells(clean)], None
            self._begun = True
            return []
        if not self._begun:
            self._begun, self._first = True, line
            return []
        return [*self.end(keep=True), self._row(line)]

    def end(self, *, keep: bool = False) -> list[tuple[str, list[int]]]:
        """The row that waits. The next one begins another table, unless the header is kept."""
        first, self._first = self._first, None
        if not keep:
            self._begun = False
        rows = [self._row(first)] if first is not None else []
        if not keep:
            self._columns = []
        return rows

    def _row(self, line: str) -> tuple[str, list[int]]:
        clean, cited = marks.without_footnotes(line)
        cells = [marks.plain(cell) for cell in _cells(clean)]
        names = [*self._columns, *[""] * len(cells)]
        named = [f"{name}: {cell}" if name else cell for name, cell in zip(names, cells, strict=False) if cell]
        return "; ".join(named), [n for _, numbers in cited for n in numbers]


def _cells(line: str) -> list[str]:
    return [cell.replace("\\|", "|").strip() for cell in _CELL.split(line.strip().strip("|"))]
