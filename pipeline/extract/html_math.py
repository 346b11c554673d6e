"""Formulas in HTML as TeX source: annotations and scripts where a page has them, else a reading of the MathML."""

from __future__ import annotations

import re
from itertools import islice

from lxml import etree

from pipeline.extract.html_rules import tag_of

_MAX_PARTS = 50  # elements in a formula that is written as text
_RENDERED = frozenset({"mathjax", "mathjax_display", "mathjax_svg", "mathjax_svg_display", "mathjax_chtml"})
_WRAPPED = re.compile(r"\s*(?:\\\((.*)\\\)|\\\[(.*)\\\]|\$\$(.*)\$\$|\$(.*)\$)\s*", re.DOTALL)
_DISPLAY_STYLE = re.compile(r"\A\{\s*\\(?:displaystyle|textstyle)\s+(.*)\}\Z", re.DOTALL)
_WHITE = re.compile(r"\s+")
# What stands before, between and after the children of an element.
_FENCES = {
    "msup": ("{", "}^{", "}"),
    "msub": ("{", "}_{", "}"),
    "msubsup": ("{", "}_{", "}^{", "}"),
    "mfrac": ("\\frac{", "}{", "}"),
    "msqrt": ("\\sqrt{", "", "}"),
    "mover": ("\\overset{", "", "}"),
    "munder": ("{", "}_{", "}"),
    "munderover": ("{", "}_{", "}^{", "}"),
    "mtable": ("\\begin{matrix} ", " \\\\ ", " \\end{matrix}"),
    "mtr": ("", " & ", ""),
}


def formula(node: etree._Element, tag: str, *, scripts: bool) -> tuple[str, bool] | None:
    """TeX source of a formula and whether it is displayed; None for what is none, '' where it stands elsewhere.

    ``scripts``: the page has its formulas in ``<script type="math/tex">``, so what MathJax drew is a double.
    """
    if tag == "math":
        return _mathml(node), node.get("display") == "block"
    if tag == "script":
        kind = (node.get("type") or "").replace(" ", "")
        return ((node.text or "").strip(), "mode=display" in kind) if kind.startswith("math/tex") else None
    if tag == "mjx-container":
        return _inner(node), node.get("display") == "true"
    names = (node.get("class") or "").lower().split()
    if not names:
        return None
    if tag in ("span", "div", "p"):
        return _classed(node, names, scripts)
    if tag == "img" and any(name.startswith("mwe-math-fallback") or name in ("latex", "tex") for name in names):
        return _bare(node.get("alt") or ""), any("display" in name for name in names)
    return None


def _classed(node: etree._Element, names: list[str], scripts: bool) -> tuple[str, bool] | None:
    if not _RENDERED.isdisjoint(names):
        return ("", False) if scripts else (_inner(node), any("display" in name for name in names))
    if "mwe-math-element" in names:  # hidden MathML and a picture of it
        image = next(node.iter("img"), None)
        display = image is not None and "display" in (image.get("class") or "")
        if image is not None and next(node.iter("math"), None) is None:
            return _bare(image.get("alt") or ""), display
        return _inner(node), display
    if "katex-display" in names:
        return _inner(node), True
    if "katex" in names:
        return _inner(node), False
    if "math" in names:
        match = None
        if next(islice(node.iter(), _MAX_PARTS, None), None) is None:
            match = _WRAPPED.fullmatch("".join(node.itertext()))
        if match:
            tex = next(part for part in match.groups() if part is not None)
            return tex.strip(), "display" in names or match.group(2) is not None or match.group(3) is not None
        if "display" in names and len(node) == 0:
            return (node.text or "").strip(), True
    return None


def _inner(node: etree._Element) -> str:
    math = next(node.iter("math"), None)
    return _mathml(math) if math is not None else _WHITE.sub(" ", "".join(node.itertext())).strip()


def _bare(tex: str) -> str:
    tex = tex.strip()
    match = _DISPLAY_STYLE.match(tex)
    return match.group(1).strip() if match else tex


def _mathml(math: etree._Element) -> str:
    for note in math.iter("annotation"):
        if "tex" in (note.get("encoding") or "").lower():
            return _bare("".join(note.itertext()))
    alt = math.get("alttext")
    return _bare(alt) if alt and alt.strip() else _presentation(math)


def _presentation(math: etree._Element) -> str:
    """Presentation MathML as TeX: structure of scripts, fractions, roots and matrices; tokens as they are."""
    out: list[str] = []
    places: list[int] = []  # of the child in hand, for each open element
    walker = etree.iterwalk(math, events=("start", "end"))
    for event, node in walker:
        tag = tag_of(node)
        fences = _FENCES.get(tag)
        if event == "start":
            if tag in ("annotation", "annotation-xml"):
                walker.skip_subtree()
                continue
            parent = node.getparent()
            if node is not math and parent is not None and places:
                between = _FENCES.get(tag_of(parent))
                if between and places[-1]:
                    out.append(between[min(places[-1], len(between) - 2)])
                places[-1] += 1
            places.append(0)
            if fences:
                out.append(fences[0])
            out.append((node.text or "").strip())
        elif tag not in ("annotation", "annotation-xml"):
            places.pop()
            if fences:
                out.append(fences[-1])
    return _WHITE.sub(" ", "".join(out)).strip()
