"""Inline HTML as text: links, images, formulas, raised and lowered text, references to footnotes, struck text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from lxml import etree

from pipeline.extract import links
from pipeline.extract.builder import collapse, footnote_mark
from pipeline.extract.html_math import formula
from pipeline.extract.html_rules import BLOCKS, hidden, tag_of
from pipeline.extract.html_survey import Survey, reference

_WHITE = re.compile(r"\s+")
_SOFT = str.maketrans("", "", "\u00ad")
_POWER = re.compile(r"[-+−]?[\d,.]+|[A-Za-z]|[-+−*†′]|[-+]?\d*[A-Za-z]")
_ORDINAL = re.compile(r"(?:st|nd|rd|th|e|er|re|ère|ème|o|a|º|ª|tm|sm|™|®|©|r|c)", re.IGNORECASE)
_MAX_ALT = 1000  # longer texts of images are not looked for in captions
_MAX_SHORT = 200  # characters of an abbreviation
_STRUCK = frozenset({"del", "s", "strike"})


class Sink(Protocol):
    """Where inline text goes: a block builder, or a single line."""

    def text(self, text: str) -> None: ...
    def mark(self) -> int: ...
    def since(self, mark: int) -> str: ...
    def take(self, mark: int) -> str: ...
    def last(self) -> str: ...
    def math(self, text: str) -> None: ...


def white(text: str | None) -> str:
    """Text of a node with runs of white space as one blank, without soft hyphens."""
    return _WHITE.sub(" ", text).translate(_SOFT) if text else ""


class Inline:
    """Writes inline elements into a sink; blocks are the caller's."""

    def __init__(self, sink: Sink, page: Survey) -> None:
        self._sink = sink
        self._page = page
        self._marks: list[int] = []  # of the open a, sup, sub, abbr and struck elements
        self._explained: set[tuple[str, str]] = set()
        self._keyed = False
        self.caption = ""  # of the figure around, so that an image's text does not repeat it

    def consume(self, node: etree._Element, tag: str) -> bool:
        """Write an element that is taken as a whole; False where it is not one."""
        sink = self._sink
        if tag in ("math", "script", "mjx-container", "span", "div", "p", "img"):
            found = formula(node, tag, scripts=self._page.tex_scripts)
            if found is not None:
                self._formula(*found)
                return True
        if tag == "a":
            note = reference(node)
            if note is None or note[0] not in self._page.references:
                return False
            sink.text(footnote_mark(note[1]))
        elif tag == "sup":
            return self._note_marks(node)
        elif tag == "br":
            sink.text("\n")
        elif tag == "img":
            alt = white(node.get("alt")).strip()
            if alt and not (len(alt) < _MAX_ALT and alt.lower() in self.caption):
                sink.text(f" {alt}" if sink.last().isalnum() else alt)
                sink.text(" " if (node.tail or "")[:1].isalnum() else "")
        elif tag == "input":
            box = node.get("type") == "checkbox" and any(tag_of(up) == "li" for up in _ancestors(node, 3))
            if box:
                sink.text("[x] " if node.get("checked") is not None else "[ ] ")
            return box
        elif tag == "svg":
            sink.text(_drawn(node))
        else:
            return False
        return True

    def start(self, node: etree._Element, tag: str) -> None:
        """An element begins whose content is walked."""
        sink = self._sink
        if tag in ("a", "sup", "sub", "abbr", "acronym", "rt", *_STRUCK):
            self._marks.append(sink.mark())
        elif tag == "q":
            sink.text('"')
        elif tag == "kbd" and self._keyed and sink.last().strip():
            sink.text(" ")
        self._keyed = False

    def end(self, node: etree._Element, tag: str) -> None:
        """The element ends; its tail is the caller's."""
        sink = self._sink
        self._keyed = tag == "kbd" and not node.tail
        if tag == "q":
            sink.text('"')
        if tag not in ("a", "sup", "sub", "abbr", "acronym", "rt", *_STRUCK) or not self._marks:
            return
        mark = self._marks.pop()
        if tag == "a":
            text = sink.since(mark)
            sink.text(links.suffix(text, self._page.url(node.get("href"))))
        elif tag in ("abbr", "acronym"):
            title, short = white(node.get("title")).strip(), sink.since(mark)
            short = short.strip() if len(short) < _MAX_SHORT else ""
            if title and short and title.lower() != short.lower() and (short, title) not in self._explained:
                self._explained.add((short, title))
                sink.text(f" ({title})")
        elif tag == "rt":
            text = sink.take(mark).strip()
            sink.text(f"({text})" if text else "")
        elif tag in _STRUCK:
            text = sink.take(mark)
            sink.text(f"~~{text}~~" if text.strip() else text)
        else:
            text = sink.take(mark)
            sink.text(script(text, sink.last(), raised=tag == "sup"))

    def _formula(self, tex: str, display: bool) -> None:
        if tex and display:
            self._sink.math(tex)
        elif tex:
            self._sink.text(f"${tex}$")

    def _note_marks(self, node: etree._Element) -> bool:
        """Raised references, with brackets and commas between them: ``[^1][^2]``."""
        if (node.text or "").strip(" [("):
            return False
        found = [
            (note, child.tail or "")
            for child in node
            if tag_of(child) == "a" and (note := reference(child)) is not None and note[0] in self._page.references
        ]
        if not found or len(found) != len(node) or any(tail.strip(" ,;])[(") for _, tail in found):
            return False
        for (_, mark), _ in found:
            self._sink.text(footnote_mark(mark))
        return True


def script(text: str, before: str, *, raised: bool) -> str:
    """Raised or lowered text after the character ``before``: ``x^2``, ``H2O``, ``a_max``, ``1st``."""
    inner = text.strip()
    if not inner or not (before.isalnum() or before in ")]}"):
        return text
    if inner.startswith("["):  # references, to notes or sources
        return text
    if raised:
        if _ORDINAL.fullmatch(inner) and not (len(inner) == 1 and before.isalpha()):
            return text
        return f"^{inner}" if _POWER.fullmatch(inner) else f"^({inner})"
    if inner.isdigit() and before.isalpha():
        return inner
    return f"_{inner}" if inner.isalnum() else f"_({inner})"


def _drawn(svg: etree._Element) -> str:
    """The words in a drawing; those of an icon (its title) are none."""
    out: list[str] = []
    depth = 0
    for event, node in etree.iterwalk(svg, events=("start", "end")):
        drawn = tag_of(node) in ("text", "foreignobject")
        if event == "start":
            depth += drawn
            out.append(node.text or "" if depth and tag_of(node) != "style" else "")
        else:
            depth -= drawn
            out.append(" " if drawn else "")
            out.append(node.tail or "" if depth and node is not svg else "")
    return f" {white(''.join(out)).strip()} "


def _ancestors(node: etree._Element, count: int) -> Iterable[etree._Element]:
    for number, up in enumerate(node.iterancestors()):
        if number == count:
            return
        yield up


class Line:
    """A sink for the text of a cell, a heading or a caption: formulas stay inline, breaks become blanks."""

    def __init__(self) -> None:
        self._out: list[str] = []

    def text(self, text: str) -> None:
        if text:
            self._out.append(text)

    def mark(self) -> int:
        return len(self._out)

    def since(self, mark: int) -> str:
        return "".join(self._out[mark:])

    def take(self, mark: int) -> str:
        text = self.since(mark)
        del self._out[mark:]
        return text

    def last(self) -> str:
        return self._out[-1][-1:] if self._out else ""

    def math(self, text: str) -> None:
        self.text(f" ${text}$ ")

    def whole(self) -> str:
        return collapse("".join(self._out)).replace("\n", " ")


def inline_text(element: etree._Element, page: Survey, *, without: frozenset[etree._Element] = frozenset()) -> str:
    """All visible text below an element as one line.

    Blocks and breaks become blanks; items of a list are ``- a; - b``, rows of a table inside ``a, b; c, d``. Elements
    in ``without`` are left out.
    """
    sink = Line()
    inline = Inline(sink, page)
    lists: list[int] = []  # number of the next item, 0 for bullets
    parted = True  # nothing stands since the start or the last separator
    after = False  # an item or a row has ended
    walker = etree.iterwalk(element, events=("start", "end"))
    skipped: etree._Element | None = None

    def write(text: str) -> None:
        nonlocal parted, after
        if text.strip():
            if after and not parted:
                sink.text("; ")
            parted = after = False
        sink.text(text)

    for event, node in walker:
        tag = tag_of(node)
        if event == "start":
            if node is not element:
                if node in without or page.drops(node, inside=True):
                    walker.skip_subtree()
                    skipped = node
                    continue
                if tag == "br":
                    sink.text(" ")
                mark = sink.mark()
                if inline.consume(node, tag):
                    if after and not parted and sink.mark() > mark:
                        text = sink.take(mark)
                        write(text)
                    parted = parted and not sink.since(mark).strip()
                    walker.skip_subtree()
                    skipped = node
                    continue
                if hidden(node, tag):
                    walker.skip_subtree()
                    skipped = node
                    continue
            if tag in BLOCKS:
                sink.text(" ")
            if tag in ("ul", "ol"):
                lists.append(1 if tag == "ol" else 0)
            elif tag == "li" and lists:
                after = after or (len(lists) > 1 and not parted)
                write(f"{lists[-1]}. " if lists[-1] else "- ")
                lists[-1] += lists[-1] > 0
                parted = True
            elif tag in ("td", "th") and node is not element and node.getprevious() is not None and not parted:
                sink.text(", ")
            inline.start(node, tag)
            write(white(node.text))
        else:
            if skipped is node:
                skipped = None
            else:
                inline.end(node, tag)
                if tag in BLOCKS:
                    sink.text(" ")
                if tag in ("ul", "ol") and lists:
                    lists.pop()
                if tag in ("li", "tr", "ul", "ol") and node is not element:
                    after = True
            if node is not element:
                write(white(node.tail))
    return _tidy(sink.whole())


_BEFORE_MARK = re.compile(r"\s+([,;])(?=\s)")


def _tidy(text: str) -> str:
    return _BEFORE_MARK.sub(r"\1", text)
