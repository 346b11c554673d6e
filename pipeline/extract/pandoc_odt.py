"""ODT made ready for pandoc: hidden text, fields, text boxes, alternative texts, the title and code paragraphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.extract import pandoc_odt_formulas
from pipeline.extract.containers import check_zip, member_bytes
from pipeline.extract.pandoc_marks import TITLE, Marks
from pipeline.extract.pandoc_office import Source, dublin_core, parsed, remove, repacked, serialised, unwrap
from pipeline.extract.reading import Body, refused

if TYPE_CHECKING:
    from lxml import etree


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NS = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
_TEXT, _STYLE, _DRAW, _OFFICE = (_NS % name for name in ("text", "style", "drawing", "office"))
_TABLE = _NS % "table"
_SVG = _NS % "svg-compatible"
# Elements inside a paragraph that pandoc reads; any other is a field, whose shown text stays.
_READ = _words(
    "span s tab line-break a note bookmark bookmark-start bookmark-end bookmark-ref reference-mark "
    "reference-mark-start reference-mark-end reference-ref soft-page-break"
)
_STRUCTURE = _words(
    "p h list list-item list-header section note-body note-citation tracked-changes changed-region "
    "deletion insertion format-change change change-start change-end index-body table-of-content "
    "table-of-content-source"
)
_CODE_STYLES = frozenset({"Preformatted_20_Text", "Source_20_Code", "Source_20_Text", "Preformatted", "Code"})


def source(body: Body, marks: Marks) -> Source:
    """The document as pandoc can read all of it. Raises DocumentError for a container or XML that is not sound."""
    data = body.data
    contents = check_zip(data, body.limits)
    manifest = member_bytes(data, "META-INF/manifest.xml")
    if (
        manifest is not None
        and next(parsed(manifest, "META-INF/manifest.xml").iter("{*}encryption-data"), None) is not None
    ):
        raise refused("body: the file is encrypted; remove its password and send it again", "encrypted")
    content = member_bytes(data, "content.xml")
    if content is None:
        raise refused("body: the ODT holds no content.xml; save the file anew", "malformed")
    root = parsed(content, "content.xml")
    styles = _Styles(root)
    named = member_bytes(data, "styles.xml")
    if named is not None:
        styles.add(parsed(named, "styles.xml"))
    _drop_hidden(root, styles)
    _open_up(root)
    formulas = pandoc_odt_formulas.located(root, data, marks)
    _lift_boxes(root)
    _flatten_tables(root)
    title = _mark_title(root, styles)
    _set_code_aside(root, styles, marks)
    said, language = dublin_core(member_bytes(data, "meta.xml"), "meta.xml")
    changed = {"content.xml": serialised(root), **formulas.members}
    warnings = (*contents.warnings, *formulas.warnings)
    return Source(repacked(data, contents.names, changed), said or title, language, title is not None, warnings)


class _Styles:
    """Parents of styles, and which of them hide text."""

    def __init__(self, root: etree._Element) -> None:
        self._parents: dict[str, str] = {}
        self._hidden: set[str] = set()
        self.add(root)

    def add(self, root: etree._Element) -> None:
        for style in root.iter(f"{_STYLE}style"):
            name = style.get(f"{_STYLE}name") or ""
            self._parents.setdefault(name, style.get(f"{_STYLE}parent-style-name") or "")
            properties = style.find(f"{_STYLE}text-properties")
            if properties is not None and properties.get(f"{_TEXT}display") == "none":
                self._hidden.add(name)

    def chain(self, node: etree._Element) -> list[str]:
        name = node.get(f"{_TEXT}style-name") or ""
        chain: list[str] = []
        while name and len(chain) < 12:
            chain.append(name)
            name = self._parents.get(name, "")
        return chain

    def hides(self, node: etree._Element) -> bool:
        return any(name in self._hidden for name in self.chain(node))


def _drop_hidden(root: etree._Element, styles: _Styles) -> None:
    for node in list(
        root.iter(*(_TEXT + name for name in ("span", "p", "h", "section", "hidden-text", "hidden-paragraph")))
    ):
        name = node.tag[len(_TEXT) :]
        if name == "section":
            hidden = node.get(f"{_TEXT}display") == "none"
        elif name.startswith("hidden"):
            hidden = True
        else:
            hidden = styles.hides(node)
        if hidden:
            remove(node)
    for node in list(root.iter(f"{_OFFICE}annotation", f"{_OFFICE}annotation-end")):
        remove(node)


def _open_up(root: etree._Element) -> None:
    """Fields become their text, numbered paragraphs paragraphs, ruby its base and reading."""
    for node in list(root.iter(f"{_TEXT}ruby-text")):
        node.text = f" ({node.text or ''})"
    for node in list(root.iter(f"{_TEXT}*")):
        name = node.tag[len(_TEXT) :]
        field = name not in _READ and name not in _STRUCTURE and _paragraph_of(node) is not None
        if field or name == "numbered-paragraph":
            unwrap(node)


def _flatten_tables(root: etree._Element) -> None:
    """A table inside a cell, which pandoc passes over, becomes a paragraph for each of its rows."""
    for table in reversed(list(root.iter(f"{_TABLE}table"))):
        if next(table.iterancestors(f"{_TABLE}table-cell"), None) is None:
            continue
        for row in table.iter(f"{_TABLE}table-row"):
            paragraph = table.makeelement(f"{_TEXT}p")
            for cell in list(row.iter(f"{_TEXT}p", f"{_TEXT}h")):
                cell.tag = f"{_TEXT}span"
                cell.attrib.clear()
                cell.tail = " "
                paragraph.append(cell)
            table.addprevious(paragraph)
        remove(table)


def _lift_boxes(root: etree._Element) -> None:
    """Paragraphs of text boxes and shapes stand after the paragraph that holds them; images become their text."""
    for frame in reversed(list(root.iter(f"{_DRAW}*"))):
        if frame.getparent() is None or (_paragraph := _paragraph_of(frame)) is None:
            continue
        if frame.tag == f"{_DRAW}frame":
            said = [frame.find(f"{_SVG}{name}") for name in ("title", "desc")]
            words = " ".join(dict.fromkeys(node.text.strip() for node in said if node is not None and node.text))
            if words:
                span = frame.makeelement(f"{_TEXT}span")
                span.text = f" {words} "
                frame.addprevious(span)
        for child in reversed(list(frame)):
            if child.tag in (f"{_TEXT}p", f"{_TEXT}h", f"{_TEXT}list", f"{_TABLE}table"):
                _paragraph.addnext(child)
        if frame.tag in (f"{_DRAW}frame", f"{_DRAW}custom-shape") and next(frame.iter(f"{_DRAW}object"), None) is None:
            remove(frame)


def _mark_title(root: etree._Element, styles: _Styles) -> str | None:
    """The title's paragraph is marked as such."""
    for node in root.iter(f"{_TEXT}p", f"{_TEXT}h"):
        text = _texts(node).strip()
        chain = styles.chain(node)
        if text and "Title" in chain and "Subtitle" not in chain:
            node.tag = f"{_TEXT}p"
            node.text = f"{TITLE}0{node.text or ''}"
            return text
    return None


def _set_code_aside(root: etree._Element, styles: _Styles, marks: Marks) -> None:
    paragraphs = list(root.iter(f"{_TEXT}p"))
    code = {node for node in paragraphs if _CODE_STYLES.intersection(styles.chain(node))}
    for paragraph in paragraphs:
        if paragraph not in code:
            continue
        group = [paragraph]
        while (after := group[-1].getnext()) is not None and after in code:
            group.append(after)
        code.difference_update(group)
        token = marks.code("\n".join(_texts(node) for node in group).strip("\n"))
        for node in group[1:]:
            remove(node)
        for child in list(paragraph):
            paragraph.remove(child)
        paragraph.text = token


def _paragraph_of(node: etree._Element) -> etree._Element | None:
    return next(node.iterancestors(f"{_TEXT}p", f"{_TEXT}h"), None)


def _texts(node: etree._Element) -> str:
    """Text as typed: blanks, tabs and line breaks included."""
    from lxml import etree

    out: list[str] = []
    for event, child in etree.iterwalk(node, events=("start", "end")):
        if event == "start":
            if child.tag == f"{_TEXT}s":
                count = child.get(f"{_TEXT}c") or "1"
                out.append(" " * (min(int(count), 1000) if count.isascii() and count.isdigit() else 1))
            elif child.tag in (f"{_TEXT}tab", f"{_TEXT}line-break"):
                out.append("\t" if child.tag == f"{_TEXT}tab" else "\n")
            else:
                out.append(child.text or "")
        elif child is not node:
            out.append(child.tail or "")
    return "".join(out)
