"""The walk over an HTML tree that makes blocks of it. It does not recurse, so depth costs no stack."""

from __future__ import annotations

import re
from itertools import islice

from lxml import etree

from pipeline.extract.builder import BlockBuilder
from pipeline.extract.html_code import language, line_numbers, verbatim
from pipeline.extract.html_inline import Inline, inline_text, white
from pipeline.extract.html_rules import BLOCKS, HEADINGS, admonition, admonition_title, hidden, tag_of, words
from pipeline.extract.html_survey import Survey, is_note
from pipeline.extract.html_tables import is_data_table, ordered_rows, table_rows
from schemas.documents import Block

_CODE = frozenset({"pre", "listing", "xmp", "plaintext"})
_LISTS = frozenset({"ul", "ol", "menu", "dir", "dl"})
_NOTES = words("footnotes footnote-list references reflist endnotes")


_HEADER_BUDGET = 65_536  # characters of header rows repeated below code in one table


class Walk:
    """Blocks of a tree that was surveyed. ``notes`` is False inside a footnote: what stands there is its text."""

    def __init__(self, page: Survey, *, notes: bool = True) -> None:
        self._page = page
        self._notes = notes
        self._builder = BlockBuilder()
        self._inline = Inline(self._builder, page)
        self._links: list[int] = []
        self._inside = 0  # depth of main and article elements
        self._boxes: list[etree._Element] = []  # open admonitions
        self._titles: set[etree._Element] = set()  # written as labels already
        self._note_lists: list[etree._Element] = []
        self._note_number = 0

    def blocks(self, root: etree._Element) -> list[Block]:
        """Blocks below ``root``, which itself is walked whatever it is called."""
        builder = self._builder
        walker = etree.iterwalk(root, events=("start", "end"))
        skipped: etree._Element | None = None
        for event, node in walker:
            tag = tag_of(node)
            if event == "start":
                if node is not root and self._passes(node, tag):
                    walker.skip_subtree()
                    skipped = node
                    if tag in BLOCKS:
                        builder.end_paragraph()
                else:
                    self._start(node, tag)
            else:
                if skipped is node:
                    skipped = None
                else:
                    self._end(node, tag)
                if node is not root:
                    builder.text(white(node.tail))
        return builder.finish()

    def _passes(self, node: etree._Element, tag: str) -> bool:
        """Whether the element is done with: not content, or taken as a whole."""
        if node in self._titles or self._page.drops(node, inside=self._inside > 0):
            return True
        if tag in HEADINGS:
            if hidden(node, tag):
                return True
            self._builder.heading(HEADINGS[tag], inline_text(node, self._page))
            return True
        # Formulas first: their sources stand in scripts and in what is hidden.
        if self._inline.consume(node, tag):
            return True
        if hidden(node, tag):
            return True
        if tag in ("td", "th") and line_numbers(node):
            return True
        if tag in _CODE:
            self._builder.code(verbatim(node), language(node))
        elif tag == "table" and node in self._page.tables:
            return self._table(node)
        else:
            return self._notes and self._note(node, tag)
        return True

    def _table(self, node: etree._Element) -> bool:
        facts = self._page.tables[node]
        if facts.gutter and not facts.codes and not facts.inner:
            self._builder.code(verbatim(node), language(node))
            return True
        if not is_data_table(node, facts):
            return False
        caption = node.find("caption")
        title = inline_text(caption, self._page) if caption is not None else ""
        # Code of several lines keeps them: it stands after its row, and the table goes on below with its header.
        codes = {code: text for code in facts.codes if "\n" in (text := verbatim(code))}
        without = frozenset(codes)
        rows, header = table_rows(node, facts, lambda cell: inline_text(cell, self._page, without=without))
        begin = 0
        if codes:
            places = self._code_places(node, codes)
            head = rows[:header]
            if sum(len(cell) + 3 for row in head for cell in row) * len(places) > _HEADER_BUDGET:
                head = []
            for place, pieces in sorted(places.items()):
                end = min(max(place + 1, header), len(rows))
                if end > begin or not begin:
                    top = head if begin else rows[:header]
                    self._builder.table(top + rows[max(begin, header) : end], len(top), title)
                title, begin = "", max(end, header)
                for code in pieces:
                    self._builder.code(codes[code], language(code))
            if begin < len(rows):
                self._builder.table(head + rows[begin:], len(head))
        else:
            self._builder.table(rows, header, title)
        return True

    def _code_places(self, table: etree._Element, codes: dict[etree._Element, str]) -> dict[int, list[etree._Element]]:
        """Pieces of code by the row, counted as ``table_rows`` counts, in which they stand."""
        filled = [row for row in ordered_rows(self._page.tables[table]) if any(c.tag in ("td", "th") for c in row)]
        numbers = {row: number for number, row in enumerate(filled)}
        places: dict[int, list[etree._Element]] = {}
        for code in codes:
            row = next((up for up in code.iterancestors("tr") if up in numbers), None)
            places.setdefault(numbers[row] if row is not None else len(numbers) - 1, []).append(code)
        return places

    def _note(self, node: etree._Element, tag: str) -> bool:
        """A footnote's own text: an element that a reference points to, or an item of a list of footnotes."""
        mark = is_note(node, tag, self._page)
        if mark is None:
            if tag != "li" or not self._note_lists:
                return False
            mark = str(self._note_number + 1)
        self._note_number += tag == "li"
        parts = [block.text for block in Walk(self._page, notes=False).blocks(node)]
        text = re.sub(rf"^\[?{re.escape(mark)}(?:\]|[.:])+\s+", "", "\n".join(parts))
        self._builder.footnote(mark, text)
        return True

    def _start(self, node: etree._Element, tag: str) -> None:
        builder = self._builder
        kind = admonition(node, tag)
        if kind is not None:
            self._open_box(node, kind)
        if self._notes and not self._note_lists and _holds_notes(node, tag):
            self._note_lists.append(node)
            self._note_number = 0
        if tag in _LISTS:
            builder.open_list(ordered=tag == "ol", start=_number(node.get("start")))
        elif tag in ("li", "dt"):
            builder.open_item(number=_number(node.get("value")) if node.get("value") else None)
        elif tag == "dd":
            builder.open_item(marked=False)
        elif tag == "blockquote" and kind is None:
            builder.open_quote()
        elif tag in BLOCKS:
            builder.end_paragraph()
            self._inside += tag in ("main", "article")
            if tag == "figure":
                self._inline.caption = _caption(node)
        elif tag == "a":
            self._links.append(builder.mark())
        if node.get("role") == "tabpanel":
            label = self._page.tabs.get(node.get("id") or "") or self._page.tabs.get(node.get("aria-labelledby") or "")
            builder.end_paragraph()
            builder.text(label or "")
            builder.end_paragraph()
        self._inline.start(node, tag)
        builder.text(white(node.text))

    def _end(self, node: etree._Element, tag: str) -> None:
        builder = self._builder
        self._inline.end(node, tag)
        if tag in _LISTS:
            builder.close_list()
        elif tag in ("li", "dt", "dd"):
            builder.close_item()
        elif tag == "blockquote" and not (self._boxes and self._boxes[-1] is node):
            builder.close_quote()
        elif tag in BLOCKS:
            builder.end_paragraph()
            self._inside -= tag in ("main", "article")
            if tag == "figure":
                self._inline.caption = ""
        if self._boxes and self._boxes[-1] is node:
            self._boxes.pop()
            builder.close_admonition()
        if self._note_lists and self._note_lists[-1] is node:
            self._note_lists.pop()

    def _open_box(self, node: etree._Element, kind: str) -> None:
        title = admonition_title(node)
        own = ""
        if title is not None:
            own = inline_text(title, self._page)
            self._titles.add(title)
        self._boxes.append(node)
        self._builder.open_admonition(kind, own)


def _holds_notes(node: etree._Element, tag: str) -> bool:
    if tag not in ("section", "div", "ol", "aside", "footer"):
        return False
    return (
        node.get("role") == "doc-endnotes"
        or node.get("data-footnotes") is not None
        or any(name in _NOTES for name in (node.get("class") or "").lower().split())
    )


def _caption(figure: etree._Element) -> str:
    caption = figure.find("figcaption")
    if caption is None:
        return ""
    return " ".join("".join(part[:1000] for part in islice(caption.itertext(), 50)).split()).lower()


def _number(value: str | None) -> int:
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 7 else 1
