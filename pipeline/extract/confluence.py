"""Confluence storage format: XHTML fragments with macros, links and images as ``ac:`` and ``ri:`` elements.

The tree is rewritten in place into plain HTML, elements from the last to the first, and then read as HTML is.
"""

from __future__ import annotations

import html
import re
from html.entities import html5

from lxml import etree

from pipeline.extract import links
from pipeline.extract.html import bare_text, parse
from pipeline.extract.html_rules import tag_of
from pipeline.extract.html_survey import survey
from pipeline.extract.html_walk import Walk
from pipeline.extract.reading import Body, Reading

_AC, _RI = "urn:ac", "urn:ri"
_NONE = "ac-none"  # an element of nothing: its tail stays where it is
_TOKEN = re.compile(
    r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!DOCTYPE[^>\[]{0,500}+(?:\[[^\]]{0,20000}+\])?[^>]{0,100}+>|"
    r"&(?:#(?:([0-9]{1,7})|[xX]([0-9a-fA-F]{1,6}))|([A-Za-z][A-Za-z0-9]{1,31}));|&",
    re.DOTALL,
)
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_SELF_CLOSED = re.compile(r"<((?:ac|ri):[\w-]+)([^<>]*)/>")

_ADMONITIONS = {
    "info": "info", "note": "note", "warning": "warning", "tip": "tip", "success": "success", "error": "error",
}  # fmt: skip
# Macros that show what stands elsewhere, or only help to find one's way.
_DROPPED = frozenset({
    "anchor", "attachments", "blog-posts", "change-history", "children", "content-by-label", "contentbylabel",
    "content-report-table", "contributors", "contributors-summary", "create-from-template", "detailssummary",
    "excerpt-include", "favpages", "gallery", "global-reports", "include", "index", "listlabels", "livesearch",
    "navmap", "network", "pagetree", "pagetreesearch", "popular-labels", "profile-picture", "recently-updated",
    "recently-updated-dashboard", "related-labels", "search", "space-details", "spaces-list", "tasks-report-macro",
    "toc", "userlister",
})  # fmt: skip
_INLINE_MACROS = frozenset({"status", "jira", "mathinline", "eazy-math-inline", "mathjax-inline-macro", "profile"})
_MATH_INLINE = frozenset({"mathinline", "eazy-math-inline", "mathjax-inline-macro"})
_MATH_BLOCK = frozenset({"mathblock", "eazy-math-block", "mathjax-block-macro", "latex", "latex-block", "math"})
_FORMULA_PARAMETERS = frozenset({"body", "equation", "formula", "latex"})
# Parameters that are text of the page, by macro.
_SHOWN = {
    "code": {"title": "p"}, "noformat": {"title": "p"}, "panel": {"title": "p"}, "expand": {"title": "p"},
    "ui-expand": {"title": "p"}, "ui-tab": {"title": "p"}, "status": {"title": "span"},
    "jira": {"key": "span", "jqlQuery": "span"}, "widget": {"url": "span"}, "iframe": {"src": "span"},
}  # fmt: skip
_EMOTICONS = {
    "tick": "✅", "cross": "❌", "warning": "⚠", "information": "ℹ", "question": "❓", "plus": "➕", "minus": "➖",
    "smile": "🙂", "sad": "🙁", "thumbs-up": "👍", "thumbs-down": "👎", "light-on": "💡", "yellow-star": "⭐",
}  # fmt: skip


def read(body: Body) -> Reading:
    """A Reader of Confluence storage format. What is not well-formed is read as HTML, with a warning."""
    text = prepared(body.text or "")
    reading = Reading()
    root = _parse(text, reading)
    if root is None:
        return reading
    for node in reversed(list(root.iter(etree.Element))):
        _rewrite(node)
    root.tag = "div"
    # A page's body has no navigation around it: nothing but hidden text is left out.
    reading.blocks = Walk(survey(root, strict=False)).blocks(root)
    return reading


def prepared(text: str) -> str:
    """The text with HTML's named characters as themselves and stray ampersands escaped; CDATA is left alone."""

    def character(match: re.Match[str]) -> str:
        whole = match.group()
        decimal, hexadecimal, name = match.groups()
        if whole.startswith("<![CDATA["):
            return whole if whole.endswith("]]>") else whole + "]]>"
        if whole.startswith("<!"):
            return ""  # no document type, so no entities of the document's own
        if decimal or hexadecimal:
            code = int(decimal) if decimal else int(hexadecimal, 16)
            found = chr(code) if code < 0x110000 else ""
            return html.escape(_NO_XML.sub("", found))
        if name is None:
            return "&amp;"
        if name in _XML_ENTITIES:
            return whole
        known = html5.get(f"{name};")
        return html.escape(known) if known is not None else f"&amp;{name};"

    return _NO_XML.sub("", _TOKEN.sub(character, _DECLARATION.sub("", text, count=1)))


def _parse(text: str, reading: Reading) -> etree._Element | None:
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, remove_comments=True, remove_pis=True
    )
    wrapped = f'<div xmlns:ac="{_AC}" xmlns:ri="{_RI}">{text}</div>'
    try:
        return etree.fromstring(wrapped.encode(), parser)
    except etree.XMLSyntaxError as error:
        line = error.lineno or 1
    reading.warnings.append(f"confluence: not well-formed at line {line}; read as HTML")
    text = _CDATA.sub(lambda match: html.escape(match.group(1)), text)
    text = _SELF_CLOSED.sub(r"<\1\2></\1>", text)
    root, whole = parse(text, reading.warnings)
    if not whole:
        reading.warnings.append("confluence: nested too deep for its structure to be read; kept the text alone")
        reading.blocks = bare_text(text)
        return None
    return root


def _name(node: etree._Element) -> str:
    """The tag with its usual prefix, however the tree was parsed."""
    tag = tag_of(node)
    return tag.replace(f"{{{_AC}}}", "ac:").replace(f"{{{_RI}}}", "ri:")


def _get(node: etree._Element, name: str) -> str:
    """An ``ac:`` or ``ri:`` attribute, empty without."""
    prefix, _, local = name.partition(":")
    return node.get(f"{{{_AC if prefix == 'ac' else _RI}}}{local}") or node.get(name) or ""


def _nothing(node: etree._Element) -> None:
    node.tag = _NONE
    node.text = None
    del node[:]


def _become(node: etree._Element, tag: str, text: str | None = None, **attributes: str) -> None:
    """Turn the element into another one; with a text it loses its children."""
    node.tag = tag
    for name in list(node.attrib):
        del node.attrib[name]
    for name, value in attributes.items():
        node.set({"class_": "class", "language": "data-language"}.get(name, name), value)
    if text is not None:
        del node[:]
        node.text = text


def _rewrite(node: etree._Element) -> None:
    name = _name(node)
    if name == "time":
        node.text = node.text or node.get("datetime")
        return
    if not name.startswith(("ac:", "ri:")):
        return
    match name:
        case "ac:structured-macro" | "ac:macro":
            _macro(node, _get(node, "ac:name").lower())
        case "ac:parameter" | "ac:default-parameter" | "ac:plain-text-body" | "ac:plain-text-link-body":
            return  # what it is for is known at the macro or link around it
        case "ac:link":
            _link(node)
        case "ac:image":
            _image(node)
        case "ac:emoticon":
            _become(node, "span", _emoticon(node))
        case "ac:task-list":
            _become(node, "ul")
        case "ac:task":
            _become(node, "li")
        case "ac:task-status":
            _become(node, "span", "[x] " if (node.text or "").strip() == "complete" else "[ ] ")
        case "ac:task-body" | "ac:inline-comment-marker":
            _become(node, "span")
        case "ac:adf-node":
            _adf(node)
        case "ac:adf-attribute" | "ac:adf-mark":
            return
        case "ac:adf-fallback":
            beside = node.getprevious()
            if beside is not None and _name(beside) == "ac:adf-node":
                _nothing(node)
            else:
                _become(node, "div")
        case "ac:task-id" | "ac:task-uuid" | "ac:placeholder":
            _nothing(node)
        case "ac:link-body" | "ac:caption" | "ri:page" | "ri:attachment" | "ri:user" | "ri:url" | "ri:blog-post":
            return
        case _ if name.startswith("ri:"):
            return
        case _:
            _become(node, "div")


def _macro(node: etree._Element, macro: str) -> None:
    if macro in _DROPPED:
        _nothing(node)
        return
    shown = _SHOWN.get(macro, {})
    language = ""
    for child in node:
        kind, key = _name(child), _get(child, "ac:name")
        if kind in ("ac:parameter", "ac:default-parameter"):
            if key == "language":
                language = (child.text or "").strip()
            _parameter(child, macro, key, shown)
        elif kind == "ac:plain-text-body":
            _plain_body(child, macro, language)
        elif kind.startswith("ri:"):
            _nothing(child)
    if macro in _ADMONITIONS:
        _become(node, "div", class_=f"admonition {_ADMONITIONS[macro]}")
    else:
        _become(node, "span" if macro in _INLINE_MACROS else "div")


def _parameter(node: etree._Element, macro: str, key: str, shown: dict[str, str]) -> None:
    attached = next((inner for inner in node if _name(inner) == "ri:attachment"), None)
    if key in shown:
        _become(node, shown[key], node.text or "")
    elif key == "title" and macro in _ADMONITIONS:
        _become(node, "p", node.text or "", class_="admonition-title")
    elif macro in _MATH_INLINE | _MATH_BLOCK and key in _FORMULA_PARAMETERS:
        _formula(node, macro)
    elif attached is not None:
        _become(node, "span", _get(attached, "ri:filename"))
    else:
        _nothing(node)


def _plain_body(node: etree._Element, macro: str, language: str) -> None:
    text = node.text or ""
    if macro in _MATH_INLINE | _MATH_BLOCK:
        _formula(node, macro)
    elif macro == "html":
        inner, whole = parse(text, [])
        _become(node, "div", "" if whole else text)
        if whole and inner is not None:
            node.append(inner)
    elif language and language.lower() != "none":
        _become(node, "pre", text, language=language)
    else:
        _become(node, "pre", text, **({"language": "markdown"} if macro == "markdown" else {}))


def _formula(node: etree._Element, macro: str) -> None:
    text = (node.text or "").strip().strip("$").strip()
    _become(node, "script", text, type="math/tex" if macro in _MATH_INLINE else "math/tex; mode=display")


def _adf(node: etree._Element) -> None:
    """A node of the newer editor: its panels are admonitions, the rest is its content."""
    kind = ""
    for child in node:
        if _name(child) == "ac:adf-attribute":
            if (_get(child, "ac:key") or child.get("key")) == "panel-type":
                kind = (child.text or "").strip()
            _nothing(child)
    panel = (_get(node, "ac:type") or node.get("type")) == "panel"
    if panel and kind in _ADMONITIONS:
        _become(node, "div", class_=f"admonition {kind}")
    else:
        _become(node, "div")


def _link(node: etree._Element) -> None:
    """A link becomes its body; without one, or where that says nothing, the name of what it leads to."""
    target, bodies = "", 0
    for child in node:
        kind = _name(child)
        if kind.startswith("ri:"):
            target = target or _target(child)
            _nothing(child)
        elif kind in ("ac:link-body", "ac:plain-text-link-body"):
            words = "".join(child.itertext()).strip()
            if kind == "ac:link-body":
                _become(child, "span")
            else:
                _become(child, "span", child.text or "")
            bodies += bool(words) or next(child.iter("img"), None) is not None
            if words and target and links.says_nothing(words):
                child.tail = f" ({target})" + (child.tail or "")
    if bodies:
        _become(node, "span")
    else:
        _become(node, "span", target or _get(node, "ac:anchor"))


def _target(node: etree._Element) -> str:
    name = _get(node, "ri:content-title") or _get(node, "ri:filename") or _get(node, "ri:value")
    user = _get(node, "ri:username")  # other ids of people say nothing to a reader
    return name or (f"@{user}" if user else "") or _get(node, "ri:space-key")


def _image(node: etree._Element) -> None:
    alt = _get(node, "ac:alt") or _get(node, "ac:title")
    captioned = any(_name(child) == "ac:caption" for child in node)
    for child in node:
        kind = _name(child)
        if kind == "ac:caption":
            _become(child, "figcaption")
        elif kind.startswith("ri:"):
            name = _get(child, "ri:filename") or _get(child, "ri:value").rsplit("/", 1)[-1]
            _become(child, "img", "", alt=alt or ("" if captioned else name))
    _become(node, "figure" if captioned else "span")


def _emoticon(node: etree._Element) -> str:
    fallback = _get(node, "ac:emoji-fallback")
    if fallback and not fallback.startswith(":"):
        return fallback
    name = _get(node, "ac:name")
    return _EMOTICONS.get(name) or fallback or _get(node, "ac:emoji-shortname") or (f":{name}:" if name else "")
