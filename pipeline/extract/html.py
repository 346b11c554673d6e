"""HTML to typed blocks with lxml: boilerplate, navigation and hidden parts are left out.

The tree is walked without recursion, so depth costs no stack.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from lxml import etree

from pipeline.extract import links
from pipeline.extract.builder import BlockBuilder, collapse
from pipeline.extract.html_tables import is_data_table, table_rows
from pipeline.extract.text import read_text
from schemas.documents import Block


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HEADINGS = {f"h{n}": n for n in range(1, 7)}
_DROPPED = _words(
    "script style noscript template head iframe object embed canvas audio video svg button select datalist textarea "
    "input dialog map area"
)
_BLOCKS = _words(
    "address article aside body blockquote center dd details dialog div dl dt fieldset figcaption figure footer form "
    "header hgroup hr html legend li main menu ol p section summary table tbody td tfoot th thead tr ul caption"
)
_LANDMARKS = frozenset({"navigation", "contentinfo", "banner", "search", "menu", "menubar", "toolbar", "tablist"})
_BOILERPLATE = _words(
    "nav navbar navigation site-nav breadcrumb breadcrumbs sidebar site-header site-footer footer page-footer "
    "cookie-banner cookie-notice cookie-consent skip-link noprint navbox mw-editsection mw-jump-link toc printfooter "
    "catlinks headerlink edit-link share-buttons mw-navigation"
)
_HIDDEN_STYLE = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_LANGUAGE_CLASS = re.compile(r"(?:language|lang|highlight-source|highlight|brush:)-?([A-Za-z0-9+#_.]+)$")
_WHITE = re.compile(r"\s+")
_UNREAD = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_ANY_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


@dataclass
class HtmlDocument:
    """What an HTML body says."""

    blocks: list[Block] = field(default_factory=list)
    title: str | None = None
    language: str | None = None
    warnings: list[str] = field(default_factory=list)


def read_html(text: str) -> HtmlDocument:
    """Blocks, title and language of an HTML document."""
    root, whole = _parse(text)
    if not whole:
        warning = "html: nested too deep for its structure to be read; kept the text alone"
        return HtmlDocument(blocks=_bare_text(text), warnings=[warning])
    if root is None:
        return HtmlDocument()
    document = HtmlDocument(language=(root.get("lang") or root.get(_XML_LANG) or "").strip()[:35] or None)
    heading = root.find("./head/title")
    document.title = collapse(inline_text(heading)).replace("\n", " ") or None if heading is not None else None
    body, lead = _content_root(root)
    document.blocks = lead + _Walk(strict=True).blocks(body)
    if not document.blocks:
        document.blocks = _Walk(strict=False).blocks(root)
        if document.blocks:
            document.warnings.append("html: everything looked like navigation; kept all visible text")
    return document


def read_fragment(text: str) -> list[Block]:
    """Blocks of a piece of HTML that stands inside another format."""
    root, whole = _parse(text)
    if not whole:
        return _bare_text(text)
    return [] if root is None else _Walk(strict=True).blocks(root)


def _bare_text(text: str) -> list[Block]:
    """Text without tags, for markup that the parser gives up on."""
    return read_text(html.unescape(_ANY_TAG.sub("\n\n", _UNREAD.sub(" ", text))))


def inline_text(element: etree._Element) -> str:
    """All visible text below an element on one line of thought: blocks and breaks become blanks, alt texts stay."""
    out: list[str] = []
    anchors: list[int] = []
    walker = etree.iterwalk(element, events=("start", "end"))
    for event, node in walker:
        tag = _tag(node)
        if event == "start":
            if node is not element and (_dropped(node, tag) or _boilerplate(node)):
                walker.skip_subtree()
                continue
            if tag in _BLOCKS or tag == "br":
                out.append(" ")
            if tag == "img":
                out.append(node.get("alt") or "")
            if tag == "a":
                anchors.append(len(out))
            out.append(_WHITE.sub(" ", node.text or ""))
        else:
            if tag == "a" and anchors:
                out.append(links.suffix("".join(out[anchors.pop() :]), node.get("href")))
            if tag in _BLOCKS:
                out.append(" ")
            if node is not element:
                out.append(_WHITE.sub(" ", node.tail or ""))
    return "".join(out)


_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def _parse(text: str) -> tuple[etree._Element | None, bool]:
    """The tree, and whether all of the text is in it: the parser stops at a depth of 2,048 elements."""
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True, no_network=True)
    try:
        root = etree.fromstring(text.encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError:  # nothing in it but white space or comments
        root = None
    stopped = any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log)
    return root, not stopped


def _tag(node: etree._Element) -> str:
    return node.tag.lower() if isinstance(node.tag, str) else ""


def _dropped(node: etree._Element, tag: str) -> bool:
    if tag in _DROPPED or node.get("hidden") is not None or node.get("aria-hidden") == "true":
        return True
    style = node.get("style")
    return style is not None and _HIDDEN_STYLE.search(style) is not None


def _boilerplate(node: etree._Element) -> bool:
    names = (node.get("class") or "").split()
    return node.get("id") in _BOILERPLATE or any(name.lower() in _BOILERPLATE for name in names)


def _content_root(root: etree._Element) -> tuple[etree._Element, list[Block]]:
    """The one main element where there is exactly one, and the page's heading if it stands outside it."""
    mains = [n for n in root.iter("main", "div", "section", "article") if n.tag == "main" or n.get("role") == "main"]
    if len(mains) != 1 or not collapse("".join(mains[0].itertext())):
        return root, []
    main = mains[0]
    if next(main.iter("h1"), None) is not None:
        return main, []
    outside = list(root.iter("h1"))
    text = collapse(inline_text(outside[0])).replace("\n", " ") if len(outside) == 1 else ""
    return main, [Block(type="heading", level=1, text=text)] if text else []


class _Walk:
    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._builder = BlockBuilder()
        self._anchors: list[int] = []
        self._inside = 0  # depth of main and article elements

    def blocks(self, root: etree._Element) -> list[Block]:
        walker = etree.iterwalk(root, events=("start", "end"))
        skipped: etree._Element | None = None
        for event, node in walker:
            tag = _tag(node)
            if event == "start":
                if self._skips(node, tag, node is root) or self._consume(node, tag):
                    walker.skip_subtree()
                    skipped = node
                    if tag in _BLOCKS:
                        self._builder.end_paragraph()
                else:
                    self._start(node, tag)
            else:
                if skipped is node:
                    skipped = None
                else:
                    self._end(node, tag)
                if node is not root and node.tail:
                    self._builder.text(_WHITE.sub(" ", node.tail))
        return self._builder.finish()

    def _skips(self, node: etree._Element, tag: str, root: bool) -> bool:
        if root:
            return False
        if _dropped(node, tag):
            return True
        if not self._strict:
            return False
        if tag in ("nav", "footer") or node.get("role") in _LANDMARKS or _boilerplate(node):
            return True
        if tag == "aside":
            return self._inside == 0
        # A page's header is kept for its heading only.
        return tag == "header" and self._inside == 0 and next(node.iter(*HEADINGS), None) is None

    def _consume(self, node: etree._Element, tag: str) -> bool:
        """Elements taken as a whole."""
        if tag in HEADINGS:
            self._builder.heading(HEADINGS[tag], inline_text(node))
        elif tag == "pre":
            self._builder.code(_verbatim(node), _language(node))
        elif tag == "table" and is_data_table(node):
            caption = node.find("caption")
            if caption is not None:
                self._builder.end_paragraph()
                self._builder.text(inline_text(caption))
            self._builder.end_paragraph()
            self._builder.table(*table_rows(node, inline_text))
        elif tag == "br":
            self._builder.text("\n")
        elif tag == "img":
            self._builder.text(_WHITE.sub(" ", node.get("alt") or ""))
        else:
            return False
        return True

    def _start(self, node: etree._Element, tag: str) -> None:
        builder = self._builder
        if tag in ("ul", "ol", "menu", "dl"):
            builder.open_list(ordered=tag == "ol", start=_number(node.get("start")))
        elif tag in ("li", "dt"):
            builder.open_item()
        elif tag == "dd":
            builder.open_item(marked=False)
        elif tag == "blockquote":
            builder.open_quote()
        elif tag in _BLOCKS:
            builder.end_paragraph()
            self._inside += tag in ("main", "article")
        elif tag == "a":
            self._anchors.append(builder.mark())
        if node.text:
            builder.text(_WHITE.sub(" ", node.text))

    def _end(self, node: etree._Element, tag: str) -> None:
        builder = self._builder
        if tag in ("ul", "ol", "menu", "dl"):
            builder.close_list()
        elif tag in ("li", "dt", "dd"):
            builder.close_item()
        elif tag == "blockquote":
            builder.close_quote()
        elif tag in _BLOCKS:
            builder.end_paragraph()
            self._inside -= tag in ("main", "article")
        elif tag == "a" and self._anchors:
            text = builder.since(self._anchors.pop())
            if text.strip():
                builder.text(links.suffix(text, node.get("href")))


def _number(value: str | None) -> int:
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 7 else 1


def _verbatim(node: etree._Element) -> str:
    """Text of a ``pre`` byte for byte, without line-number columns; the first line feed belongs to the tag."""
    out: list[str] = []
    walker = etree.iterwalk(node, events=("start", "end"))
    for event, child in walker:
        tag = _tag(child)
        if event == "start":
            names = (child.get("class") or "").split()
            if child is not node and (tag in ("script", "style") or "lineno" in names or "linenos" in names):
                walker.skip_subtree()
                continue
            out.append("\n" if tag == "br" else child.text or "")
        elif child is not node:
            out.append(child.tail or "")
    text = "".join(out)
    text = text[1:] if text.startswith("\n") else text
    return text[:-1] if text.endswith("\n") else text


def _language(node: etree._Element) -> str | None:
    parent = node.getparent()
    for element in (next(node.iter("code"), None), node, parent):
        if element is None:
            continue
        named = element.get("data-lang") or element.get("data-language")
        if named:
            return str(named)[:40]
        names = (element.get("class") or "").split()
        if "sourceCode" in names and len(names) > 1:
            return next(name for name in names if name != "sourceCode")[:40]
        for name in names:
            match = _LANGUAGE_CLASS.match(name)
            if match and match.group(1) not in ("default", "none", "text"):
                return match.group(1)[:40]
    return None
