"""Collects a reader's events (text, paragraphs, lists, code, tables) into typed blocks in document order."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.documents import Block

MAX_INDENT = 16  # levels; deeper lists keep their order and text, not their indentation
_SPACES = re.compile(r"[^\S\n]+")
_AROUND_BREAK = re.compile(r" ?\n ?")


@dataclass
class _List:
    ordered: bool
    number: int


@dataclass
class _Item:
    marker: str | None  # None once written


class BlockBuilder:
    """Turns a linear stream of events into blocks; never recurses.

    A list is one block of indented lines; code, formulas and tables inside a list stand as blocks of their own, and the
    list goes on after them, so that code stays byte-equal. Footnotes come last, in the order of their definition.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._inline: list[str] = []
        self._past = 0  # pieces of text in the paragraphs before
        self._lists: list[_List] = []
        self._items: list[_Item] = []
        self._lines: list[str] = []
        self._quotes = 0
        self._footnotes: list[Block] = []
        self._labels: list[str] = []  # of the open admonitions, outermost first
        self._titled: list[bool] = []
        self._labelled = 0  # how many of them are written

    def text(self, text: str) -> None:
        """Inline text; white space is collapsed at the end of the paragraph, a line feed is a hard break."""
        if text:
            self._inline.append(text)

    def mark(self) -> int:
        """A place in the paragraph in progress, for ``since`` and ``take``."""
        return self._past + len(self._inline)

    def since(self, mark: int) -> str:
        """Inline text since the mark; empty when the paragraph ended in between."""
        return "".join(self._inline[mark - self._past :]) if mark >= self._past else ""

    def take(self, mark: int) -> str:
        """Inline text since the mark, which is taken back; empty when the paragraph ended in between."""
        text = self.since(mark)
        if mark >= self._past:
            del self._inline[mark - self._past :]
        return text

    def last(self) -> str:
        """The last character of the paragraph in progress, empty at its beginning."""
        return self._inline[-1][-1:] if self._inline else ""

    def end_paragraph(self) -> None:
        """Close the paragraph in progress, if any."""
        if not self._inline:
            return
        text = collapse("".join(self._inline))
        self._past += len(self._inline)
        self._inline.clear()
        if not text:
            return
        label = self._label()
        self._paragraph(f"{label}: {text}" if label else text)

    def heading(self, level: int, text: str) -> None:
        """A heading; empty ones are dropped."""
        self._end_lines()
        text = collapse(text).replace("\n", " ")
        if text:
            self._label_alone()
            self.blocks.append(Block(type="heading", text=text, level=min(max(level, 1), 6)))

    def code(self, text: str, language: str | None) -> None:
        """A code block, verbatim."""
        self._end_lines()
        if text.strip():
            self._label_alone()
            self.blocks.append(Block(type="code", text=text, language=language))

    def math(self, text: str) -> None:
        """A displayed formula as TeX source, without delimiters."""
        self._end_lines()
        text = text.strip()
        if text:
            self._label_alone()
            self.blocks.append(Block(type="math", text=text))

    def footnote(self, mark: str, text: str) -> None:
        """A footnote's text; ``mark`` (``1``, ``note``) is what ``[^1]`` in the text refers to. Empty ones are dropped.

        The paragraph in progress goes on: a note may be defined in the middle of one.
        """
        text = collapse(text)
        if text:
            self._footnotes.append(Block(type="footnote", text=f"{footnote_mark(mark)} {text}"))

    def table(self, rows: list[list[str]], header_rows: int, caption: str = "") -> None:
        """A table of cell texts; the first ``header_rows`` rows are its header, the caption is a paragraph before it.

        A row is one line: line breaks inside a cell become blanks.
        """
        self._end_lines()
        block = table_block(rows, header_rows)
        self.text(caption)
        self._end_lines()
        if block is not None:
            self._label_alone()
            self.blocks.append(block)

    def open_list(self, *, ordered: bool, start: int = 1) -> None:
        """A list begins, perhaps inside an item."""
        self.end_paragraph()
        self._label_alone()
        self._lists.append(_List(ordered, start))

    def close_list(self) -> None:
        """The innermost list ends; the outermost one becomes a block."""
        self.end_paragraph()
        if self._lists:
            self._lists.pop()
        if not self._lists:
            self._items.clear()
            self._end_lines()

    def open_item(self, *, marked: bool = True, number: int | None = None) -> None:
        """An item of the innermost list begins; without a mark it continues the one before (definitions).

        ``number`` is the item's own where an ordered list does not go on by one.
        """
        self.end_paragraph()
        if not self._lists:
            return
        current = self._lists[-1]
        if not marked:
            self._items.append(_Item(None))
            return
        if number is not None:
            current.number = number
        marker = f"{current.number}." if current.ordered else "-"
        current.number += 1
        self._items.append(_Item(marker))

    def close_item(self) -> None:
        """The innermost item ends."""
        self.end_paragraph()
        if self._items:
            self._items.pop()

    def open_quote(self) -> None:
        """Paragraphs are quotes from here."""
        self.end_paragraph()
        self._quotes += 1

    def close_quote(self) -> None:
        """End of the innermost quotation."""
        self.end_paragraph()
        self._quotes = max(0, self._quotes - 1)

    def open_admonition(self, label: str, title: str = "") -> None:
        """A note, warning or the like begins: its first paragraph is preceded by ``label: ``, or ``label: title: ``.

        Before anything else than a paragraph the label stands alone. Without content a label leaves nothing, a title of
        its own stays.
        """
        self.end_paragraph()
        label, title = (collapse(part).replace("\n", " ").rstrip(":") for part in (label, title))
        if title.lower().startswith(label.lower()):
            label, title = title, "" if len(title) == len(label) else title
        elif title:
            label = f"{label}: {title}"
        self._labels.append(label)
        self._titled.append(bool(title))

    def close_admonition(self) -> None:
        """The innermost admonition ends."""
        self.end_paragraph()
        if self._labelled < len(self._labels) and self._titled[-1]:
            self._label_alone()
        if self._titled:
            self._titled.pop()
        if self._labels:
            self._labels.pop()
        self._labelled = min(self._labelled, len(self._labels))

    def extend(self, blocks: list[Block]) -> None:
        """Blocks from another reader (HTML inside Markdown); footnotes among them join those of this document."""
        self._end_lines()
        body = [block for block in blocks if block.type != "footnote"]
        if body:
            self._label_alone()
        self.blocks.extend(body)
        self._footnotes.extend(block for block in blocks if block.type == "footnote")

    def finish(self) -> list[Block]:
        """Close whatever is open and return the blocks, footnotes last."""
        self._end_lines()
        self.blocks.extend(self._footnotes)
        self._footnotes = []
        return self.blocks

    def _label(self) -> str:
        """Labels of admonitions that nothing has been written of yet; they count as written from here."""
        waiting = self._labels[self._labelled :]
        self._labelled = len(self._labels)
        return ": ".join(label for label in waiting if label)

    def _label_alone(self) -> None:
        label = self._label()
        if label:
            self._paragraph(f"{label}:")
            self._end_lines()

    def _paragraph(self, text: str) -> None:
        if self._lists:
            self._add_item_text(text)
        else:
            self.blocks.append(Block(type="quote" if self._quotes else "paragraph", text=text))

    def _add_item_text(self, text: str) -> None:
        indent = "  " * min(len(self._lists) - 1, MAX_INDENT)
        item = self._items[-1] if self._items else None
        if item is not None and item.marker is not None:
            lead, item.marker = f"{indent}{item.marker} ", None
        else:
            lead = f"{indent}  "
        first, *rest = text.split("\n")
        self._lines.append(lead + first)
        self._lines.extend(f"{indent}  {line}" for line in rest)

    def _end_lines(self) -> None:
        self.end_paragraph()
        if self._lines:
            self.blocks.append(Block(type="list", text="\n".join(self._lines)))
            self._lines = []


def collapse(text: str) -> str:
    """Runs of blanks become one, hard breaks keep no blanks around them, ends are trimmed."""
    return _AROUND_BREAK.sub("\n", _SPACES.sub(" ", text)).strip()


def footnote_mark(mark: str) -> str:
    """``[^mark]``, as a reference and at the start of the footnote."""
    return f"[^{mark.strip().strip('[]^').strip()}]"


def table_block(rows: list[list[str]], header_rows: int) -> Block | None:
    """A table as Markdown pipe lines; None when no cell holds text."""
    if not any(cell.strip() for row in rows for cell in row):
        return None
    width = max(len(row) for row in rows)
    # A few very wide rows must not blow up all others.
    pad = width if width * len(rows) <= 4 * sum(len(row) for row in rows) + 64 else 0
    lines = [_pipe_line(row, pad) for row in rows]
    if 0 < header_rows < len(rows):
        rule = "| " + " | ".join(["---"] * max(len(rows[header_rows - 1]), pad)) + " |"
        header = "\n".join([*lines[:header_rows], rule])
        return Block(type="table", text="\n".join([header, *lines[header_rows:]]), header=header)
    return Block(type="table", text="\n".join(lines))


def _pipe_line(row: list[str], width: int) -> str:
    cells = [collapse(cell).replace("\n", " ").replace("|", "\\|") for cell in row]
    cells.extend([""] * (width - len(cells)))
    return "| " + " | ".join(cells) + " |"
