"""Pandoc's document tree (JSON) to typed blocks, without recursion."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from pipeline.extract.builder import BlockBuilder, collapse
from pipeline.extract.pandoc_marks import HEADER_ROW, NOTE_LIST, NOTHING, TITLE, Marks
from pipeline.extract.pandoc_tables import Cell, grid
from pipeline.extract.pandoc_text import TEX, WRAPPERS, Display, Node, TextReader, Work, drive, is_node, plain
from schemas.documents import Block

_ADMONITIONS = {
    **{
        kind: kind.capitalize()
        for kind in ["note", "warning", "tip", "caution", "important", "danger", "error", "hint", "attention", "todo"]
    },
    "seealso": "See also",
    "deprecated": "Deprecated",
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "versionremoved": "Removed in version",
}
_DROPPED_DIVS = frozenset({"contents", "sectnum", "meta", "highlight", "default-role", "currentmodule"})
_NO_LANGUAGE = frozenset(
    {"", "numberLines", "sourceCode", "literate", "default", "none", "text", "verbatim", "example"}
)
_CALLOUTS = {chr(0x2460 + n): f"<{n + 1}>" for n in range(20)}
_TASKS = {"☐ ": "[ ] ", "☒ ": "[x] "}
_LINES = re.compile(r"\s*\n\s*")


class TooDeepError(Exception):
    """The tree is nested deeper than the JSON parser goes."""


def load(output: bytes) -> tuple[dict[str, Node], list[Node]]:
    """Metadata and blocks of pandoc's JSON, words as plain strings. Raises TooDeepError."""
    try:
        document = json.loads(output, object_hook=_compact)
    except RecursionError as error:
        raise TooDeepError from error
    return document["meta"], document["blocks"]


def _compact(node: dict[str, Any]) -> Node:
    kind = node.get("t")
    if kind == "Str":
        return node["c"]
    if kind in ("Space", "SoftBreak"):
        return " "
    return "\n" if kind == "LineBreak" else node


class TreeReader:
    """Reads one tree.

    ``callouts``: circled digits in code stand for ``<1>``. ``join_runs``: code and lists stand paragraph by paragraph,
    as in RTF. ``inline_math``: formulas beside text are called displayed, as in ODT. ``shift`` is added to the levels
    of headings.
    """

    def __init__(
        self,
        marks: Marks,
        *,
        callouts: bool = False,
        join_runs: bool = False,
        inline_math: bool = False,
        shift: int = 0,
    ) -> None:
        self._marks = marks
        self._builder = BlockBuilder()
        self._callouts = callouts
        self._join_runs = join_runs
        self._shift = shift
        self._text = TextReader(marks, inline_math=inline_math)
        self._blocks: dict[str, Callable[[Any], Work]] = {
            "Para": self._para, "Plain": self._para, "LineBlock": self._line_block, "CodeBlock": self._code,
            "RawBlock": self._raw_block, "BlockQuote": self._quote, "OrderedList": self._ordered,
            "BulletList": self._bullets, "DefinitionList": self._definitions, "Header": self._header,
            "Table": self._table, "Figure": self._figure, "Div": self._div,
        }  # fmt: skip

    def read(self, blocks: list[Node], title: str = "") -> list[Block]:
        """The blocks of a tree, headed by ``title`` where it stands in the text, footnotes last."""
        self._builder.heading(1, title)
        drive(self._walk(_runs(blocks) if self._join_runs else blocks))
        for number, note in enumerate(self._text.notes, start=1):
            self._builder.footnote(str(number), note)
        return self._builder.finish()

    def text_of(self, nodes: Sequence[Node]) -> str:
        """All text of inlines or blocks, collapsed."""
        return _words(self._text, nodes)

    # -- blocks

    def _walk(self, nodes: Iterable[Node]) -> Work:
        for node in nodes:
            handler = self._blocks.get(node["t"]) if isinstance(node, dict) else None
            if handler is not None:
                yield handler(node.get("c"))

    def _para(self, inlines: list[Node]) -> Work:
        builder = self._builder
        if len(inlines) == 1 and isinstance(inlines[0], str):
            code = self._marks.code_of(inlines[0])
            if code is not None:
                builder.code(*code)
                return
        formula = _only_formula(inlines)
        if formula is not None:
            builder.math(self._marks.show(formula))
            return
        if inlines and all(node == "\n" or is_node(node, "Code") or _is_code(node) for node in inlines):
            text = self._text.shown(self._text.gathered(inlines))
            if "\n" in text or "\u00a0" in text:  # lines that begin with a blank in wikitext
                builder.code(text.replace("\u00a0", " "), None)
                return
        parts = self._text.gathered(inlines)
        if parts and isinstance(parts[0], str) and parts[0].startswith((NOTHING, NOTE_LIST)):
            return
        if parts and isinstance(parts[0], str) and parts[0].startswith(TITLE):
            level = int(parts[0][1:2])
            parts[0] = parts[0][2:]
            builder.heading(level + self._shift if level else 1, self._text.shown(parts))
            return
        if parts and isinstance(parts[0], str) and parts[0][:2] in _TASKS:
            parts[0] = _TASKS[parts[0][:2]] + parts[0][2:]
        for part in parts:
            if isinstance(part, Display):
                builder.end_paragraph()
                builder.math(self._marks.show(part.tex))
            else:
                builder.text(self._marks.show(part))
        builder.end_paragraph()
        yield from ()

    def _line_block(self, lines: list[list[Node]]) -> Work:
        self._builder.end_paragraph()
        self._builder.text("\n".join(self._text.shown(self._text.gathered(line)) for line in lines))
        self._builder.end_paragraph()
        yield from ()

    def _code(self, content: list[Any]) -> Work:
        (_, classes, pairs), text = content
        caption = dict(pairs).get("caption")
        if caption:
            self._builder.text(self._marks.show(caption))
            self._builder.end_paragraph()
        self._add_code(text, next((name for name in classes if name not in _NO_LANGUAGE), None))
        yield from ()

    def _add_code(self, text: str, language: str | None) -> None:
        hidden = self._marks.code_of(text)
        if hidden is not None:
            self._builder.code(hidden[0], hidden[1] or language)
            return
        if self._callouts:
            for digit, source in _CALLOUTS.items():
                text = text.replace(digit, source)
        text = self._marks.show(text)
        self._builder.code(text[:-1] if text.endswith("\n") else text, language)

    def _raw_block(self, content: list[str]) -> Work:
        form, text = content
        if form in TEX:
            self._builder.math(self._marks.show(text))
        else:
            self._builder.end_paragraph()
        yield from ()

    def _quote(self, blocks: list[Node]) -> Work:
        self._builder.open_quote()
        yield self._walk(blocks)
        self._builder.close_quote()

    def _bullets(self, items: list[list[Node]]) -> Work:
        self._builder.open_list(ordered=False)
        yield self._items(items)
        self._builder.close_list()

    def _ordered(self, content: list[Any]) -> Work:
        self._builder.open_list(ordered=True, start=content[0][0])
        yield self._items(content[1])
        self._builder.close_list()

    def _items(self, items: list[list[Node]]) -> Work:
        for item in items:
            self._builder.open_item()
            yield self._walk(item)
            self._builder.close_item()

    def _definitions(self, entries: list[Any]) -> Work:
        builder = self._builder
        if not any(term for term, _ in entries):  # indented text in wikitext
            for _, definitions in entries:
                for definition in definitions:
                    yield self._walk(definition)
            return
        builder.open_list(ordered=False)
        for term, definitions in entries:
            builder.open_item()
            yield self._para(term)
            builder.close_item()
            for definition in definitions:
                builder.open_item(marked=False)
                yield self._walk(definition)
                builder.close_item()
        builder.close_list()

    def _header(self, content: list[Any]) -> Work:
        level, _, inlines = content
        self._builder.heading(level + self._shift, self._text.shown(self._text.gathered(inlines)))
        yield from ()

    def _figure(self, content: list[Any]) -> Work:
        (_, _, pairs), (_, caption), blocks = content
        alt = dict(pairs).get("alt")
        if alt:
            self._builder.text(self._marks.show(alt))
            self._builder.end_paragraph()
        compared = TextReader(self._marks)  # footnotes count where they are written
        if _words(compared, blocks) != _words(compared, caption):
            yield self._walk(blocks)
        yield self._walk(caption)

    def _div(self, content: list[Any]) -> Work:
        (_, classes, _), blocks = content
        if _DROPPED_DIVS.intersection(classes):
            return
        if "only" in classes and blocks and is_node(blocks[0], "Para"):
            blocks = blocks[1:]  # the condition
        kind = next((name for name in classes if name in _ADMONITIONS), None)
        if kind is None and "admonition" not in classes:
            yield self._walk(blocks)
            return
        label = _ADMONITIONS.get(kind or "", "")
        if blocks and (_has_class(blocks[0], "title") or ("admonition" in classes and is_node(blocks[0], "Para"))):
            title = self.text_of(blocks[:1])
            blocks = blocks[1:]
            label = label if title.lower() == label.lower() else f"{label}: {title}" if label else title
        self._builder.open_admonition(label)
        yield self._walk(blocks)
        self._builder.close_admonition()

    def _table(self, content: list[Any]) -> Work:
        _, (_, caption), columns, (_, head), bodies, (_, foot) = content
        rows = [row for _, row in head]
        header_rows = len(rows)
        for _, _, inner_head, body in bodies:
            rows.extend(row for _, row in (*inner_head, *body))
        rows.extend(row for _, row in foot)
        if len(columns) < 2 or any(_has_heading(cell[4]) for row in rows for cell in row):  # it only lays out
            yield self._walk(caption)
            for row in rows:
                for cell in row:
                    yield self._walk(cell[4])
            return
        cells = [[Cell(plain(self._text.gathered(cell[4])), cell[2], cell[3]) for cell in row] for row in rows]
        while header_rows < len(cells) and any(HEADER_ROW in cell.text for cell in cells[header_rows]):
            header_rows += 1
        texts = [[_LINES.sub("\n", self._marks.show(text)) for text in row] for row in grid(cells)]
        empty = 0
        while empty < header_rows and not any(text.strip() for text in texts[empty]):
            empty += 1
        self._builder.table(texts[empty:], header_rows - empty, self.text_of(caption))
        for row in rows:
            for cell in row:
                for block in cell[4]:  # a line of a table cannot hold code of several lines as it is
                    if is_node(block, "CodeBlock") and "\n" in self._marks.show(block["c"][1]).strip("\n"):
                        yield self._code(block["c"])


def _runs(blocks: list[Node]) -> list[Node]:
    """Neighbouring blocks of code as one, paragraphs that begin with a bullet as items of a list."""
    out: list[Node] = []
    for block in blocks:
        before = out[-1] if out else None
        if is_node(block, "CodeBlock") and is_node(before, "CodeBlock"):
            block = {"t": "CodeBlock", "c": [block["c"][0], f"{out.pop()['c'][1]}\n{block['c'][1]}"]}
        elif is_node(block, "Para") and block["c"][:1] == ["•"]:
            item = [{"t": "Para", "c": block["c"][1:]}]
            if before is not None and before.get("typed"):
                before["c"].append(item)
                continue
            block = {"t": "BulletList", "c": [item], "typed": True}
        out.append(block)
    return out


def _words(reader: TextReader, nodes: Sequence[Node]) -> str:
    return collapse(reader.shown(reader.gathered(nodes)))


def _is_code(node: Node) -> bool:
    """Code in bold or the like."""
    while isinstance(node, dict) and node["t"] in WRAPPERS and len(node["c"]) == 1:
        node = node["c"][0]
    return is_node(node, "Code")


def _has_class(node: Node, name: str) -> bool:
    return is_node(node, "Div") and name in node["c"][0][1]


def _has_heading(blocks: list[Node]) -> bool:
    return any(is_node(block, "Header") or (is_node(block, "Para") and _is_marked(block["c"])) for block in blocks)


def _is_marked(inlines: list[Node]) -> bool:
    return bool(inlines) and isinstance(inlines[0], str) and inlines[0].startswith(TITLE)


def _only_formula(inlines: list[Node]) -> str | None:
    """The TeX of a paragraph that is one formula."""
    shown = [node for node in inlines if node not in (" ", "\n")]
    while len(shown) == 1 and is_node(shown[0], "Span"):
        shown = shown[0]["c"][1]
    if len(shown) != 1 or not is_node(shown[0], "Math"):
        return None
    return cast(str, shown[0]["c"][1])
