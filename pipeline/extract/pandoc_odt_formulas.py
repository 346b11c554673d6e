"""Formulas of an ODT, which are files of their own inside it, put where pandoc finds them."""

from __future__ import annotations

import io
import posixpath
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pipeline.errors import DocumentError
from pipeline.extract.pandoc_marks import Marks
from pipeline.extract.pandoc_office import parsed, remove, serialised

if TYPE_CHECKING:
    from lxml import etree

_MATH = "{http://www.w3.org/1998/Math/MathML}math"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_MAX_FORMULA = 1 << 20  # bytes of MathML
# What pandoc reads, with the number of children that it wants; a formula with anything else it leaves out whole.
_CHILDREN = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3}
_KNOWN = frozenset({
    "math", "semantics", "annotation", "annotation-xml", "mrow", "mi", "mn", "mo", "mtext", "ms", "mspace", "msqrt",
    "mstyle", "merror", "mpadded", "mphantom", "mfenced", "menclose", "mtable", "mtr", "mtd", *_CHILDREN,
})  # fmt: skip


@dataclass
class Formulas:
    """Members that are new in the container, and what could not be read."""

    members: dict[str, bytes] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def located(root: etree._Element, data: bytes, marks: Marks) -> Formulas:
    """Names each formula's member as pandoc looks for it, and leaves nothing else in its frame.

    Its alternative text ("formula") and the picture of it would stand beside it otherwise. Of a formula that pandoc
    cannot read the TeX stands in its place. ``root`` is that of content.xml, changed in place; ``data`` is the
    container, checked before.
    """
    found = Formulas()
    unread = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = set(archive.namelist())
        for node in list(root.iter(f"{_DRAW}object")):
            math = next(iter(node.findall(_MATH)), None)
            if math is None:
                folder = posixpath.normpath(unquote(node.get(_HREF) or ""))
                member = f"{folder}/content.xml"
                if member not in names:
                    continue
                with archive.open(member) as stream:
                    content = stream.read(_MAX_FORMULA + 1)
                try:
                    math = parsed(content, member) if len(content) <= _MAX_FORMULA else None
                except DocumentError:
                    math = None
                if math is None:
                    unread += 1
                    remove(node)
                if math is None or math.tag != _MATH:
                    continue
            if _readable(math):
                path = f"Formula {len(found.members) + 1}"
                found.members[f"{path}/content.xml"] = serialised(math)
                _alone(node, path)
            else:
                _written_out(node, math, marks)
    if unread:
        found.warnings.append(f"formula: {unread} embedded objects could not be read; left out")
    return found


def _alone(node: etree._Element, path: str) -> None:
    """The object refers to its formula, and its frame holds nothing else."""
    for child in list(node):
        node.remove(child)
    node.set(_HREF, path)
    frame = node.getparent()
    for other in list(frame) if frame is not None else ():
        if other is not node and other.tag in (f"{_DRAW}image", f"{_SVG}title", f"{_SVG}desc"):
            other.getparent().remove(other)


def _readable(math: etree._Element) -> bool:
    for node in math.iter("{*}*"):
        name = _local(node)
        if name not in _KNOWN or len(node) != _CHILDREN.get(name, len(node)):
            return False
    return any(text.strip() for text in math.itertext())


def _written_out(node: etree._Element, math: etree._Element, marks: Marks) -> None:
    """The formula as TeX instead of its frame."""
    from pipeline.extract.html_math import formula

    for part in math.iter("{*}*"):
        part.tag = _local(part)
    frame = node.getparent()
    tex, _ = formula(math, "math", scripts=False) or ("", False)
    if frame is None:
        return
    if tex:
        span = frame.makeelement(f"{_TEXT}span")
        span.text = marks.hide(f"${tex}$")
        frame.addprevious(span)
    remove(frame)


def _local(node: etree._Element) -> str:
    return str(node.tag).rpartition("}")[2]
