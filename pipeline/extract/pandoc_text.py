"""Text of pandoc's tree: inlines, and blocks where a cell, a heading or a footnote holds them.

Handlers are generators that yield the handler of a subtree; one loop drives them, so depth costs no stack.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from typing import Any, cast

from pipeline.extract import links
from pipeline.extract.pandoc_marks import NAME_CLOSE, NAME_OPEN, Marks

Node = Any  # str for words and blanks, else a dict with 't' and 'c'
Work = Generator["Work", None, None]

WRAPPERS = frozenset({"Emph", "Strong", "Underline", "Strikeout", "SmallCaps", "Superscript", "Subscript"})
TEX = frozenset({"latex", "tex"})
_NAMED = re.compile(f"\\s*{NAME_OPEN}([^{NAME_CLOSE}]*){NAME_CLOSE}")
_ROLE_TARGET = re.compile(r"^(.*\S)\s*<[^<>]*>$", re.DOTALL)
_LANGUAGE_LINK = re.compile(r"(?:[a-z]{2}|simple|ceb|war|arz|zh-[a-z]+|sr-[a-z]+):[^/]")
_DEFAULT_ALT = "image"  # what pandoc calls an image without alternative text


class Display:
    """A displayed formula in the middle of text."""

    __slots__ = ("tex",)

    def __init__(self, tex: str) -> None:
        self.tex = tex


class TextReader:
    """Texts of one document's nodes, and the footnotes that they refer to, in order.

    ``inline_math``: a formula is displayed only where nothing stands beside it, whatever the tree says.
    """

    def __init__(self, marks: Marks, *, inline_math: bool = False) -> None:
        self._marks = marks
        self._inline_math = inline_math
        self._outs: list[list[str | Display]] = []
        self._names: dict[str, int] = {}
        self.notes: list[str] = []

    def shown(self, parts: list[str | Display]) -> str:
        """Gathered parts as one text, formulas between dollar signs."""
        return self._marks.show(plain(parts))

    def gathered(self, nodes: Sequence[Node]) -> list[str | Display]:
        """Text of inlines or blocks with its signs still in it, displayed formulas apart."""
        self._outs.append([])
        drive(self._inlines(nodes))
        return _joined(self._outs.pop())

    def _inlines(self, nodes: Iterable[Node]) -> Work:
        """Text of inlines and, parted by line feeds, of blocks: into the innermost of ``_outs``."""
        for node in _links_joined(nodes):
            if isinstance(node, str):
                self._outs[-1].append(node)
                continue
            kind, content = node["t"], node.get("c")
            out = self._outs[-1]
            if kind in WRAPPERS:
                yield self._inlines(content)
            elif kind in ("Span", "Cite"):
                yield self._inlines(content[1])
            elif kind == "Code":
                out.append(_code_text(content))
            elif kind == "Quoted":
                single = content[0]["t"] == "SingleQuote"
                out.append("‘" if single else "“")
                yield self._inlines(content[1])
                out.append("’" if single else "”")
            elif kind == "Math":
                display = content[0]["t"] == "DisplayMath" and not self._inline_math
                out.append(Display(content[1].strip()) if display else f"${content[1].strip()}$")
            elif kind == "RawInline":
                out.append(Display(content[1].strip()) if content[0] in TEX else "")
            elif kind == "Link":
                yield self._link(content)
            elif kind == "Image":
                yield self._image(content)
            elif kind == "Note":
                yield self._note(content)
            elif kind in ("Para", "Plain"):
                out.append("\n")
                yield self._inlines(content)
                out.append("\n")
            else:
                yield self._flat_block(kind, content)

    def _flat_block(self, kind: str, content: Any) -> Work:
        self._outs[-1].append("\n")
        if kind == "CodeBlock":
            self._outs[-1].append(content[1])
        elif kind in ("Header", "Figure"):
            yield self._inlines(content[2])
            if kind == "Figure":
                yield self._inlines(content[1][1])
        elif kind == "Div":
            yield self._inlines(content[1])
        elif kind == "BlockQuote":
            yield self._inlines(content)
        elif kind in ("LineBlock", "BulletList", "OrderedList"):
            for item in content[1] if kind == "OrderedList" else content:
                yield self._inlines(item)
                self._outs[-1].append("\n")
        elif kind == "DefinitionList":
            for term, definitions in content:
                yield self._inlines(term)
                for definition in definitions:
                    self._outs[-1].append("\n")
                    yield self._inlines(definition)
        elif kind == "Table":
            yield self._inlines(content[1][1])
            for _, row in _table_rows(content):
                self._outs[-1].append("\n")
                for cell in row:
                    yield self._inlines(cell[4])
        self._outs[-1].append("\n")

    def _link(self, content: list[Any]) -> Work:
        (_, classes, _), inlines, (url, _) = content
        self._outs.append([])
        yield self._inlines(inlines)
        parts = self._outs.pop()
        shown = self.shown(parts)
        out = self._outs[-1]
        if "wikilink" in classes and _LANGUAGE_LINK.match(shown) and url.replace("_", " ") == shown:
            return  # the same page in another language: navigation
        out.extend(parts)
        if shown.strip():
            out.append(links.suffix(shown, self._marks.show(url)))

    def _image(self, content: list[Any]) -> Work:
        _, inlines, (_, title) = content
        self._outs.append([])
        yield self._inlines(inlines)
        parts = self._outs.pop()
        if self.shown(parts).strip() in ("", _DEFAULT_ALT):
            self._outs[-1].append(title.removeprefix("fig:"))
        else:
            self._outs[-1].extend(parts)

    def _note(self, blocks: list[Node]) -> Work:
        self._outs.append([])
        yield self._inlines(blocks)
        text = plain(self._outs.pop())
        named = _NAMED.match(text)
        if named:
            text = text[named.end() :]
        text = self._marks.show(text)
        if not named and not text.strip():
            return
        number = self._names.get(named.group(1)) if named else None
        if number is None:
            self.notes.append(text)
            number = len(self.notes)
            if named:
                self._names[named.group(1)] = number
        elif not self.notes[number - 1].strip():
            self.notes[number - 1] = text
        self._outs[-1].append(f"[^{number}]")


def drive(work: Work) -> None:
    """Runs a handler and all that it yields."""
    stack = [work]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
        else:
            stack.append(child)


def plain(parts: list[str | Display]) -> str:
    """Parts as one text, signs included."""
    return "".join(f" ${part.tex}$ " if isinstance(part, Display) else part for part in parts)


def _joined(parts: list[str | Display]) -> list[str | Display]:
    """Neighbouring strings as one: signs may stand apart from what they mark."""
    out: list[str | Display] = []
    words: list[str] = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
            continue
        if words:
            out.append("".join(words))
            words = []
        out.append(part)
    return [*out, "".join(words)] if words else out


def _links_joined(nodes: Iterable[Node]) -> Iterable[Node]:
    """The nodes, links to the same address that touch as one: in RTF each letter beyond ASCII parts a link."""
    held: Node = None  # a link, its text in a list of its own
    for node in nodes:
        link = is_node(node, "Link")
        if held is not None and link and held["c"][0::2] == node["c"][0::2]:
            held["c"][1].extend(node["c"][1])
            continue
        if held is not None:
            yield held
        held = {"t": "Link", "c": [node["c"][0], list(node["c"][1]), node["c"][2]]} if link else None
        if held is None:
            yield node
    if held is not None:
        yield held


def is_node(node: Node, kind: str) -> bool:
    """True for a node of that kind."""
    return isinstance(node, dict) and node["t"] == kind


def _table_rows(content: list[Any]) -> list[list[Any]]:
    rows = list(content[3][1])
    for _, _, inner_head, body in content[4]:
        rows.extend((*inner_head, *body))
    return [*rows, *content[5][1]]


def _code_text(content: list[Any]) -> str:
    (_, classes, _), text = content
    if "interpreted-text" not in classes:
        return cast(str, text)
    # A role that pandoc does not know: its text, without the target that follows it in angle brackets.
    target = _ROLE_TARGET.match(text)
    text = target.group(1) if target else text.removeprefix("!")
    return text.rsplit(".", 1)[-1] if text.startswith("~") else text
