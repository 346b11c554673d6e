"""HTML to typed blocks with lxml: boilerplate, navigation and hidden parts are left out.

``html_rules`` says what an element is by itself, ``html_survey`` weighs it against the page, ``html_walk`` makes
blocks.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from itertools import islice

from lxml import etree

from pipeline.extract.builder import collapse
from pipeline.extract.html_inline import inline_text
from pipeline.extract.html_rules import HEADINGS, tag_of
from pipeline.extract.html_survey import Survey, survey
from pipeline.extract.html_walk import Walk
from pipeline.extract.reading import Body, Reading
from pipeline.extract.text import read_text
from schemas.documents import Block

MAX_ATTRIBUTES = 256  # of one tag; the parser's time grows with the square of their number
_MAIN_CHARS = 200  # a main element with less must hold a good part of the page to stand for it
_MAIN_SHARE = 0.2
_NO_HEADING = frozenset({*HEADINGS, "p", "ul", "ol", "dl", "table", "pre", "blockquote", "section", "article", "main"})
_MAX_MOVED = 10_000
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")
_UNREAD = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_ANY_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
# A tag as HTML defines it: quotes count only after an equals sign. Possessive, so the time is linear.
_WHOLE_TAG = re.compile(r"""<[A-Za-z](?:=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))?|[^>=]++)*+>?""")
_VALUE = re.compile(r"""=\s*+(?:"[^"]*+"?|'[^']*+'?|[^\s>]*+)""")
_TAG_NAME = re.compile(r"<[A-Za-z][^\s/>]*+")


@dataclass
class HtmlDocument:
    """What an HTML body says."""

    blocks: list[Block] = field(default_factory=list)
    title: str | None = None
    language: str | None = None
    warnings: list[str] = field(default_factory=list)


def read(body: Body) -> Reading:
    """A Reader of HTML."""
    page = read_html(body.text or "")
    return Reading(page.blocks, page.title, page.language, warnings=page.warnings)


def read_html(text: str) -> HtmlDocument:
    """Blocks, title and language of an HTML document. What is malformed is read as a browser would; nothing raises."""
    document = HtmlDocument()
    root, whole = parse(text, document.warnings)
    if not whole:
        document.warnings.append("html: nested too deep for its structure to be read; kept the text alone")
        document.blocks = bare_text(text)
    elif root is not None:
        read_tree(root, document)
    return document


def read_tree(root: etree._Element, document: HtmlDocument) -> None:
    """Fill ``document`` from a parsed page."""
    document.language = _language(root)
    page = survey(root)
    title = next((node for node in root.iter("title") if next(node.iterancestors("svg"), None) is None), None)
    document.title = (inline_text(title, page) or None) if title is not None else None
    body, lead = _content_root(root, page)
    document.blocks = lead + Walk(page).blocks(body)
    if not document.blocks:
        document.blocks = Walk(survey(root, strict=False)).blocks(root)
        if document.blocks:
            document.warnings.append("html: everything looked like navigation; kept all visible text")


def read_fragment(text: str) -> list[Block]:
    """Blocks of a piece of HTML that stands inside another format."""
    root, whole = parse(text, [])
    if not whole:
        return bare_text(text)
    return [] if root is None else Walk(survey(root)).blocks(root)


def parse(text: str, warnings: list[str]) -> tuple[etree._Element | None, bool]:
    """The tree, None for nothing, and whether all of the text is in it: the parser stops 2,048 elements deep."""
    text = _bounded_tags(text, warnings)
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True, no_network=True)
    try:
        root = etree.fromstring(text.encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError:  # nothing in it but white space or comments
        root = None
    if root is not None:
        _close_headings(root)
    stopped = any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log)
    return root, not stopped


def _close_headings(root: etree._Element) -> None:
    """A heading that was never closed ends at the first block in it, as in a browser."""
    for heading in list(islice(root.iter(*HEADINGS), 100_000)):
        first = next((child for child in heading if tag_of(child) in _NO_HEADING), None)
        if first is None:
            continue
        rest = [first, *first.itersiblings()]
        if len(rest) > _MAX_MOVED:
            continue
        for child in reversed(rest):
            heading.addnext(child)


def _bounded_tags(text: str, warnings: list[str]) -> str:
    """The text, with tags that have more than MAX_ATTRIBUTES attributes reduced to their names."""
    parts: list[str] = []
    last = 0
    for match in _WHOLE_TAG.finditer(text):
        if match.end() - match.start() < 2 * MAX_ATTRIBUTES:
            continue
        bare = _VALUE.sub("= ", match.group())
        if max(bare.count("="), len(bare.split())) > MAX_ATTRIBUTES:
            name = _TAG_NAME.match(match.group())
            parts.extend((text[last : match.start()], (name.group()[:100] if name else "<span") + ">"))
            last = match.end()
    if not parts:
        return text
    warnings.append(f"html: {len(parts) // 2} tags with more than {MAX_ATTRIBUTES} attributes; left those out")
    return "".join((*parts, text[last:]))


def bare_text(text: str) -> list[Block]:
    """Text without tags, for markup that the parser gives up on."""
    return read_text(html.unescape(_ANY_TAG.sub("\n\n", _UNREAD.sub(" ", text))))


def _language(root: etree._Element) -> str | None:
    body = root.find("body")
    named = root.get("lang") or root.get(_XML_LANG) or (body.get("lang") if body is not None else None)
    if not named:
        metas = root.iterfind("./head/meta")
        named = next((m.get("content") for m in metas if (m.get("http-equiv") or "").lower() == "content-language"), "")
    match = _LANGUAGE.fullmatch((named or "").split(",")[0].strip().replace("_", "-")[:35])
    return match.group() if match else None


def _content_root(root: etree._Element, page: Survey) -> tuple[etree._Element, list[Block]]:
    """The one main element where there is exactly one, and the page's heading if it stands outside it."""
    mains = [n for n in root.iter("main", "div", "section", "article") if n.tag == "main" or n.get("role") == "main"]
    if len(mains) != 1:
        return root, []
    main = mains[0]
    size = len(collapse("".join(main.itertext())))
    if size < min(_MAIN_CHARS, _MAIN_SHARE * (page.chars - page.sure)) or not size:
        return root, []
    if next(main.iter("h1"), None) is not None:
        return main, []
    outside = list(root.iter("h1"))
    text = collapse(inline_text(outside[0], page)).replace("\n", " ") if len(outside) == 1 else ""
    return main, [Block(type="heading", level=1, text=text)] if text else []
