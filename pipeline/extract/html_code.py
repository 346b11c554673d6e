"""Code in HTML, byte for byte whatever a highlighter made of it, and its language."""

from __future__ import annotations

import re

from lxml import etree

from pipeline.extract.html_rules import tag_of, words
from pipeline.extract.html_survey import GUTTERS

_LANGUAGE_CLASS = re.compile(
    r"(?:language|lang|highlight-source|highlight|mw-highlight-lang|brush:)-?([A-Za-z0-9+#_.]+);?$"
)
_NO_LANGUAGE = words(
    "default none text plain plaintext plain-text txt nohighlight no-highlight wrapper block container body lines "
    "table toolbar content inner box example snippet highlighter-rouge highlight"
)
_MAX_NUMBERS = 4_000  # pieces of text in a column of line numbers
_NATURAL = words("en de fr es it pt nl ru ja zh ko el he ar uk")
_LINE_NAMES = words("line token-line code-line view-line ec-line cl-line codeline")
_LINE_TAGS = frozenset({"tr", "li", "div", "p"})
_ASIDE = words("copybtn copy-button copy-btn clipboard-copy buttongroup")


def verbatim(node: etree._Element) -> str:
    """The code in an element, without line numbers and buttons. The first and the last line feed belong to the tag.

    Lines that are elements of their own end with a line feed whether the page writes one or leaves that to its style.
    """
    out: list[str] = []
    walker = etree.iterwalk(node, events=("start", "end"))
    due = False  # a line has ended whose line feed is not written yet
    starts: list[int] = []  # of the open lines, in pieces of ``out``

    def add(text: str | None) -> None:
        nonlocal due
        if not text:
            return
        if due:
            due = False
            if not text.startswith("\n"):
                out.append("\n")
        out.append(text)

    skipped: etree._Element | None = None
    for event, child in walker:
        tag = tag_of(child)
        if event == "start":
            if child is not node and _no_code(child, tag):
                walker.skip_subtree()
                skipped = child
                continue
            if child is not node and _is_line(child, tag):
                if due or (out and tag in _LINE_TAGS and not out[-1].endswith("\n")):
                    out.append("\n")
                due = False
                starts.append(len(out))
            add("\n" if tag == "br" else child.text)
        else:
            if skipped is child:
                skipped = None
            elif child is not node and _is_line(child, tag):
                due = starts.pop() == len(out) or not out[-1].endswith("\n")
            if child is not node:
                add(child.tail if tag not in ("tr", "td", "tbody", "table") or (child.tail or "").strip() else None)
    text = "".join(out)
    first = node if node.text else next(iter(node), node)
    text = text[1:] if (first.text or "").startswith("\n") else text
    return text[:-1] if text.endswith("\n") else text


def language(node: etree._Element) -> str | None:
    """The language that the element, a code element in it or the boxes around it declare."""
    near: list[etree._Element | None] = [next(node.iter("code"), None), node]
    for _ in range(5):
        last = near[-1]
        near.append(last.getparent() if last is not None else None)
    for element in near:
        if element is None:
            continue
        named = element.get("data-lang") or element.get("data-language")
        if not named and tag_of(element) == "pre":
            named = element.get("lang")
            named = named if named and named.split("-")[0].lower() not in _NATURAL else None
        if named and named.lower() not in _NO_LANGUAGE:
            return str(named)[:40]
        found = _from_classes((element.get("class") or "").split())
        if found:
            return found[:40]
    return None


def _from_classes(names: list[str]) -> str | None:
    if "sourceCode" in names:
        return next((name for name in names if name not in ("sourceCode", "numberSource", "numberLines")), None)
    if names and names[0] == "brush:" and len(names) > 1:
        return names[1].rstrip(";") or None
    for name in names:
        match = _LANGUAGE_CLASS.match(name)
        if match and match.group(1).lower() not in _NO_LANGUAGE:
            return match.group(1)
    if "hljs" in names:
        return next((n for n in names if not n.startswith("hljs") and n.lower() not in _NO_LANGUAGE), None)
    return None


def line_numbers(node: etree._Element) -> bool:
    """Whether the element is a column or a cell of line numbers.

    Themes use the same class names for lines as a whole; numbers are nothing but digits.
    """
    if not any(name in GUTTERS for name in (node.get("class") or "").lower().split()):
        return False
    for number, part in enumerate(node.itertext()):
        if number > _MAX_NUMBERS or len(part) > 50 * _MAX_NUMBERS or not all(word.isdigit() for word in part.split()):
            return False
    return True


def _is_line(node: etree._Element, tag: str) -> bool:
    if tag in _LINE_TAGS:
        return True
    return tag in ("span", "code") and any(name in _LINE_NAMES for name in (node.get("class") or "").split())


def _no_code(node: etree._Element, tag: str) -> bool:
    if tag in ("script", "style", "button", "svg", "template", "clipboard-copy"):
        return True
    if any(name in _ASIDE for name in (node.get("class") or "").split()):
        return True
    return line_numbers(node)
