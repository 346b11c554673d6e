"""Parts of an Office Open XML document: text as typed, relations, words of diagrams and charts."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from pipeline.extract.containers import member_bytes
from pipeline.extract.pandoc_office import parsed, remove

if TYPE_CHECKING:
    from lxml import etree

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"


def texts(node: etree._Element | None) -> str:
    """Text as typed: tabs and line breaks included."""
    if node is None:
        return ""
    out = []
    for child in node.iter(*(W + name for name in ("t", "tab", "br", "cr", "noBreakHyphen"))):
        if child.tag == f"{W}t":
            out.append(child.text or "")
        elif child.tag == f"{W}tab":
            parent = child.getparent()
            out.append("\t" if parent is not None and parent.tag == f"{W}r" else "")  # a tab stop is no tab
        else:
            out.append("-" if child.tag == f"{W}noBreakHyphen" else "\n")
    return "".join(out)


def replace_with_text(node: etree._Element, text: str) -> None:
    """The node, part of a run, becomes text of that run."""
    replacement = node.makeelement(f"{W}t")
    replacement.text = text
    replacement.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    node.addprevious(replacement)
    remove(node)


def relations(data: bytes, main: str) -> dict[str, str]:
    """Targets of the document's relations by id."""
    folder, name = posixpath.split(main)
    content = member_bytes(data, posixpath.join(folder, "_rels", f"{name}.rels"))
    if content is None:
        return {}
    return {
        relation.get("Id") or "": posixpath.normpath(posixpath.join(folder, relation.get("Target") or ""))
        for relation in parsed(content, "document.xml.rels")
        if relation.get("TargetMode") != "External"
    }


def graphic_words(data: bytes, target: str) -> list[str]:
    """Words of a diagram's or chart's part in their order; none for other parts."""
    content = member_bytes(data, target) if target.lower().endswith(".xml") else None
    if content is None:
        return []
    found = parsed(content, target).iter(f"{_A}t", f"{_C}v")
    return [text for node in found if (text := (node.text or "").strip())]
