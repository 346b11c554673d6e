"""DOCX made ready for pandoc: tracked changes, hidden text, text boxes, diagrams, outline levels and code."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.extract.containers import check_zip, member_bytes
from pipeline.extract.pandoc_docx_tables import square_tables
from pipeline.extract.pandoc_marks import TITLE, Marks
from pipeline.extract.pandoc_office import (
    Source,
    dublin_core,
    parsed,
    remove,
    repacked,
    serialised,
    transitional,
    unwrap,
)
from pipeline.extract.pandoc_ooxml import W, graphic_words, relations, replace_with_text, texts
from pipeline.extract.reading import Body, refused

if TYPE_CHECKING:
    from lxml import etree

_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_V = "{urn:schemas-microsoft-com:vml}"
_OFF = ("0", "false", "off")
_FRONT = frozenset({"subtitle", "author", "date", "abstract", "abstract title"})  # pandoc takes them out of the text
_CODE_STYLES = frozenset(
    [
        "source code",
        "code",
        "code block",
        "codeblock",
        "html preformatted",
        "preformatted text",
        "macro text",
        "listing",
    ]
)
_MONOSPACED = re.compile(
    r"courier|consolas|monaco|menlo|lucida console|andale mono|inconsolata|\b(?:code|mono)\b", re.I
)
_HEADING = re.compile(r"heading [1-9]$", re.IGNORECASE)
_TOC = re.compile(r"toc (?:[1-9]|heading)$", re.IGNORECASE)


@dataclass(frozen=True)
class _Style:
    name: str
    base: str
    outline: int | None
    hidden: bool
    monospaced: bool


def source(body: Body, marks: Marks) -> Source:
    """The document as pandoc can read all of it. Raises DocumentError for a container or XML that is not sound."""
    data = body.data
    contents = check_zip(data, body.limits)
    data = transitional(data, contents.names)
    warnings = list(contents.warnings)
    main = _main_part(data)
    folder = posixpath.dirname(main)
    text = member_bytes(data, main) if main in contents else None
    if text is None:
        raise refused("body: the DOCX holds no document part; save the file anew", "malformed")
    styles = _styles(member_bytes(data, posixpath.join(folder, "styles.xml")))
    changed: dict[str, bytes] = {}
    titled = False
    for name in (main, *(posixpath.join(folder, f"{kind}notes.xml") for kind in ("foot", "end"))):
        content = text if name == main else member_bytes(data, name)
        if content is None:
            continue
        part = _Part(parsed(content, name), styles, marks)
        part.accept_changes()
        part.drop_hidden()
        part.open_up()
        square_tables(part.root)
        if name == main:
            part.insert_graphics(data, main)
        part.lift_boxes()
        if name == main:
            titled = part.mark_headings()
            chunks = sum(1 for _ in part.root.iter(f"{W}altChunk"))
            if chunks:
                warnings.append(f"altChunk: {chunks} documents embedded as such are not read; save the file in Word")
            part.set_code_aside()
        changed[name] = serialised(part.root)
    title, language = dublin_core(member_bytes(data, "docProps/core.xml"), "docProps/core.xml")
    part_title = None if title else _first_title(changed[main], marks)
    return Source(repacked(data, contents.names, changed), title or part_title, language, titled, tuple(warnings))


def _main_part(data: bytes) -> str:
    relations = member_bytes(data, "_rels/.rels")
    if relations is not None:
        for relation in parsed(relations, "_rels/.rels"):
            if (relation.get("Type") or "").endswith("/officeDocument"):
                return posixpath.normpath((relation.get("Target") or "").lstrip("/"))
    return "word/document.xml"


def _first_title(document: bytes, marks: Marks) -> str | None:
    text = document.decode("utf-8", "replace")
    start = text.find(f"{TITLE}0")
    return marks.show(text[start + 2 : text.find("<", start)]).strip() or None if start >= 0 else None


def _styles(content: bytes | None) -> dict[str, _Style]:
    if content is None:
        return {}
    found: dict[str, _Style] = {}
    for style in parsed(content, "styles.xml").iter(f"{W}style"):
        found[style.get(f"{W}styleId") or ""] = _Style(
            name=(_value(style.find(f"{W}name")) or "").lower(),
            base=_value(style.find(f"{W}basedOn")) or "",
            outline=_outline(style.find(f"{W}pPr/{W}outlineLvl")),
            hidden=_on(style.find(f"{W}rPr/{W}vanish")),
            monospaced=_monospaced(style.find(f"{W}rPr/{W}rFonts")),
        )
    return found


def _value(node: etree._Element | None) -> str | None:
    return None if node is None else node.get(f"{W}val")


def _on(node: etree._Element | None) -> bool:
    return node is not None and (_value(node) or "1").lower() not in _OFF


def _outline(node: etree._Element | None) -> int | None:
    value = _value(node) or ""
    return int(value) if value.isascii() and value.isdigit() and len(value) == 1 else None


def _monospaced(fonts: etree._Element | None) -> bool:
    return fonts is not None and _MONOSPACED.search(fonts.get(f"{W}ascii") or "") is not None


class _Part:
    """One part of the document, changed in place."""

    def __init__(self, root: etree._Element, styles: dict[str, _Style], marks: Marks) -> None:
        self.root = root
        self._styles = styles
        self._marks = marks

    def accept_changes(self) -> None:
        """Inserted and moved text is text, deleted text and rows are gone."""
        for row in [
            mark.getparent().getparent() for mark in self.root.iter(f"{W}del") if _is(mark.getparent(), "trPr")
        ]:
            remove(row)
        for node in list(self.root.iter(f"{W}del", f"{W}moveFrom")):
            remove(node)
        for node in list(self.root.iter(f"{W}ins", f"{W}moveTo")):
            if len(node):
                unwrap(node)

    def drop_hidden(self) -> None:
        """Runs that nobody sees, and the list of contents."""
        for run in list(self.root.iter(f"{W}r")):
            properties = run.find(f"{W}rPr")
            own = None if properties is None else properties.find(f"{W}vanish")
            named = "" if properties is None else _value(properties.find(f"{W}rStyle")) or ""
            if _on(own) or (own is None and (self._hides(named) or self._hides(self._style_of(_paragraph_of(run))))):
                remove(run)
        for box in list(self.root.iter(f"{W}sdt")):
            gallery = _value(box.find(f"{W}sdtPr/{W}docPartObj/{W}docPartGallery"))
            if (gallery or "").lower() == "table of contents":
                remove(box)
        for paragraph in list(self.root.iter(f"{W}p")):
            if any(_TOC.match(style.name) for style in self._chain(self._style_of(paragraph))[:1]):
                remove(paragraph)

    def open_up(self) -> None:
        """What pandoc passes over with all that is in it; of alternatives the first."""
        for node in list(self.root.iter(f"{_MC}AlternateContent")):
            choice = next(iter(node.findall(f"{_MC}Choice") or node.findall(f"{_MC}Fallback")), None)
            for other in list(node):
                if other is not choice:
                    node.remove(other)
            if choice is not None:
                unwrap(choice)
            unwrap(node)
        for node in list(self.root.iter(*(W + name for name in ("fldSimple", "smartTag", "customXml", "dir", "bdo")))):
            unwrap(node)
        for run in [node.getparent() for node in list(self.root.iter(f"{W}ruby"))]:
            for ruby in run.findall(f"{W}ruby"):
                reading = texts(ruby.find(f"{W}rt"))
                replace_with_text(ruby, f"{texts(ruby.find(f'{W}rubyBase'))} ({reading})")

    def insert_graphics(self, data: bytes, main: str) -> None:
        """Words of diagrams and charts, and alternative texts that pandoc does not see, in their place."""
        targets = relations(data, main)
        for data_node in list(self.root.iter(f"{_A}graphicData")):
            drawing = _ancestor(data_node, "drawing")
            ids = [value for child in data_node for key, value in child.attrib.items() if key in (f"{_R}dm", f"{_R}id")]
            words = [word for one in ids for word in graphic_words(data, targets.get(one, ""))]
            if drawing is not None and words:
                replace_with_text(drawing, "; ".join(words))
        for picture in list(self.root.iter(f"{W}pict")):
            alt = next((shape.get("alt") for shape in picture.iter(f"{_V}shape") if shape.get("alt")), None)
            if alt and next(picture.iter(f"{W}txbxContent"), None) is None:
                replace_with_text(picture, alt)

    def lift_boxes(self) -> None:
        """Paragraphs of text boxes stand after the paragraph that holds the box."""
        for box in reversed(list(self.root.iter(f"{W}txbxContent"))):
            paragraph = _paragraph_of(box)
            if paragraph is None:
                continue
            for child in reversed(list(box)):
                paragraph.addnext(child)
        for box in list(self.root.iter(f"{W}txbxContent")):
            holder = next((one for one in box.iterancestors(f"{W}drawing", f"{W}pict")), None)
            if holder is not None:
                remove(holder)

    def mark_headings(self) -> bool:
        """Titles and paragraphs with an outline level are headings whatever their style is called."""
        titled = False
        for paragraph in self.root.iter(f"{W}p"):
            properties = paragraph.find(f"{W}pPr")
            if properties is None or not texts(paragraph).strip():
                continue
            chain = self._chain(self._style_of(paragraph))
            names = [style.name for style in chain]
            level: int | None = None
            if "title" in names[:1] or (
                "title" in names[1:2] and not _FRONT.intersection(names[:1]) and not _HEADING.match(names[0])
            ):
                level, titled = 0, True
            elif heading := next((name for name in names if _HEADING.match(name)), None):
                level = int(heading[-1])
            else:
                outline = _outline(properties.find(f"{W}outlineLvl"))
                found = [outline, *(style.outline for style in chain)]
                outline = next((one for one in found if one is not None), None)
                level = outline + 1 if outline is not None and outline < 9 else None
            own = properties.find(f"{W}pStyle")
            if own is not None and (level is not None or _FRONT.intersection(names[:1])):
                properties.remove(own)
            if level is not None:
                for numbering in properties.findall(f"{W}numPr"):
                    properties.remove(numbering)
                run = paragraph.makeelement(f"{W}r")
                text = run.makeelement(f"{W}t")
                text.text = f"{TITLE}{level}"
                run.append(text)
                properties.addnext(run)
        return titled

    def set_code_aside(self) -> None:
        """Neighbouring paragraphs of code become one token; a document in one monospaced font is no code."""
        paragraphs = list(self.root.iter(f"{W}p"))
        styled = {node for node in paragraphs if self._code_style(node)}
        typed = {node for node in paragraphs if node not in styled and self._monospaced(node)}
        sizes = {node: len(texts(node)) for node in paragraphs}
        if 2 * sum(sizes[node] for node in typed) > sum(sizes.values()):
            typed = set()
        code = styled | typed
        for paragraph in paragraphs:
            if paragraph not in code:
                continue
            group = [paragraph]
            style = self._style_of(paragraph)
            while (after := group[-1].getnext()) is not None and after in code and self._style_of(after) == style:
                group.append(after)
            code.difference_update(group)
            lines = [texts(node) for node in group]
            token = self._marks.code("\n".join(lines).strip("\n"))
            for node in group[1:]:
                remove(node)
            for child in list(paragraph):
                paragraph.remove(child)
            run = paragraph.makeelement(f"{W}r")
            text = run.makeelement(f"{W}t")
            text.text = token
            run.append(text)
            paragraph.append(run)

    # -- styles

    def _style_of(self, paragraph: etree._Element | None) -> str:
        return "" if paragraph is None else _value(paragraph.find(f"{W}pPr/{W}pStyle")) or ""

    def _chain(self, style: str) -> list[_Style]:
        chain: list[_Style] = []
        while style in self._styles and len(chain) < 12:
            chain.append(self._styles[style])
            style = chain[-1].base
        return chain

    def _hides(self, style: str) -> bool:
        return any(one.hidden for one in self._chain(style))

    def _code_style(self, paragraph: etree._Element) -> bool:
        if paragraph.find(f"{W}pPr/{W}numPr") is not None:
            return False
        chain = self._chain(self._style_of(paragraph))
        return any(one.name in _CODE_STYLES for one in chain) or any(one.monospaced for one in chain[:1])

    def _monospaced(self, paragraph: etree._Element) -> bool:
        if paragraph.find(f"{W}pPr/{W}numPr") is not None:
            return False
        runs = [run for run in paragraph.iter(f"{W}r") if run.find(f"{W}t") is not None]
        return bool(runs) and all(_monospaced(run.find(f"{W}rPr/{W}rFonts")) for run in runs)


def _is(node: etree._Element | None, name: str) -> bool:
    return node is not None and node.tag == W + name


def _ancestor(node: etree._Element, name: str) -> etree._Element | None:
    return next(node.iterancestors(W + name), None)


def _paragraph_of(node: etree._Element) -> etree._Element | None:
    return _ancestor(node, "p")
