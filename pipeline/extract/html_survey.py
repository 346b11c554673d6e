"""One pass over a page before it is read: how much text stands where, so that names alone drop no content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import urljoin

from lxml import etree

from pipeline.extract.html_rules import HEADINGS, Doubt, doubt, hidden, tag_of, words

MOST = 0.5  # of the page's text: an element with more is content whatever it is called
DENSE = 0.6  # of an element's text in links: it is a menu
_REFERENCE = re.compile(
    r"#(?:user-content-)?(?:_?ftn|_?fn|footnote|_footnote|cite_note|note|endnote|_?edn|en)(?![a-z])"
)
_MARK = re.compile(r"[\[(]?\s*([^\W_][\w .:-]{0,18}|[*†‡§¶])\s*[\])]?")
_NOTE_TAGS = frozenset({"li", "p", "div", "aside", "dd"})


@dataclass
class Extent:
    """Visible characters in an element, those in links and in main parts; main elements, headings and top headings."""

    doubt: Doubt
    chars: int = 0
    links: int = 0
    content: int = 0
    mains: int = 0
    headings: int = 0
    tops: int = 0

    @property
    def dense(self) -> bool:
        return self.links >= DENSE * max(self.chars, 1)


@dataclass
class TableFacts:
    """What decides whether a table holds data."""

    rows: list[etree._Element] = field(default_factory=list)
    width: int = 0
    headers: int = 0
    inner: int = 0
    headings: int = 0
    codes: list[etree._Element] = field(default_factory=list)
    inner_blocks: int = 0  # code and headings in tables inside
    gutter: bool = False
    box: bool = False  # icon and text of an admonition


@dataclass
class Survey:
    """What is known of a page as a whole. Elements are looked up by identity."""

    chars: int = 0
    sure: int = 0  # of them in what is boilerplate for sure
    mains: int = 0  # characters in main or article elements
    extents: dict[etree._Element, Extent] = field(default_factory=dict)
    tables: dict[etree._Element, TableFacts] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)  # id of a footnote -> its mark
    tabs: dict[str, str] = field(default_factory=dict)  # id of a tab, or of the panel it opens -> its label
    tex_scripts: bool = False
    base: str | None = None

    def drops(self, node: etree._Element, *, inside: bool) -> bool:
        """Whether the element is boilerplate; ``inside``: it is part of a main or article element."""
        extent = self.extents.get(node)
        if extent is None:
            return False
        if extent.doubt is Doubt.SURE:
            return True
        if extent.doubt is Doubt.LINKS:
            return extent.dense and not extent.mains and not extent.tops and not self._most(extent)
        if extent.mains:
            return False
        if self._most(extent) and not extent.dense and self.mains == extent.content:
            return False
        if extent.doubt is Doubt.PLACE:
            tag = tag_of(node)
            # A part's own header and asides are content; a page's header is kept for its headings.
            return not (inside and tag in ("aside", "header")) and not (tag == "header" and extent.headings)
        return True

    def _most(self, extent: Extent) -> bool:
        return extent.chars > MOST * (self.chars - self.sure)

    def url(self, href: str | None) -> str | None:
        """The address as the page means it, with its base."""
        if href is None or self.base is None or href.startswith("#"):
            return href
        try:
            return urljoin(self.base, href)
        except ValueError:
            return href


def reference(node: etree._Element) -> tuple[str, str] | None:
    """Id of the footnote and mark of a link that refers to one, else None."""
    href = node.get("href") or ""
    if not href.startswith("#"):
        return None
    named = (
        node.get("role") == "doc-noteref"
        or node.get("data-footnote-ref") is not None
        or any(name in ("footnote-ref", "footnote", "noteref") for name in (node.get("class") or "").split())
    )
    if not named:
        parent = node.getparent()
        raised = next(iter(node), None)
        in_sup = (parent is not None and tag_of(parent) == "sup") or (raised is not None and tag_of(raised) == "sup")
        if not in_sup or _REFERENCE.match(href) is None:
            return None
    match = _MARK.fullmatch("".join(islice(node.itertext(), 8)).strip())
    return (href[1:], match.group(1).strip()) if match else None


def survey(root: etree._Element, *, strict: bool = True) -> Survey:
    """Look over a tree once; ``strict`` is False where nothing shall count as boilerplate but what is hidden."""
    return _Surveyor(root, strict).found


class _Surveyor:
    def __init__(self, root: etree._Element, strict: bool) -> None:
        self.found = Survey()
        self._root = root
        self._strict = strict
        self._open: list[tuple[etree._Element, tuple[int, ...]]] = []
        self._tables: list[etree._Element] = []
        self._links = self._linked = self._main_tags = self._headings = self._tops = 0
        self._inside = self._unsure = self._header = 0
        self._tab_labels: list[str] = []
        self._panels: list[etree._Element] = []
        self._walk()

    def _walk(self) -> None:
        found = self.found
        walker = etree.iterwalk(self._root, events=("start", "end"))
        skipped: etree._Element | None = None
        for event, node in walker:
            tag = tag_of(node)
            if event == "start":
                if tag == "script" and (node.get("type") or "").startswith("math/tex"):
                    found.tex_scripts = True
                if tag == "base" and found.base is None:
                    address = (node.get("href") or "").strip()
                    found.base = address if address.lower().startswith(("http://", "https://")) else None
                if node is not self._root and tag != "head" and hidden(node, tag):
                    walker.skip_subtree()
                    skipped = node
                else:
                    self._start(node, tag)
            else:
                if skipped is node:
                    skipped = None
                else:
                    self._end(node, tag)
                if node is not self._root:
                    self._count(node.tail)
        if len(self._panels) == len(self._tab_labels):
            for number, (panel, label) in enumerate(zip(self._panels, self._tab_labels, strict=True)):
                if panel.get("id") is None:
                    panel.set("id", f"tabpanel-{number}")
                found.tabs[panel.get("id") or ""] = label

    def _count(self, text: str | None) -> None:
        if not text:
            return
        size = len(text.strip())
        self.found.chars += size
        if self._links:
            self._linked += size
        if self._inside and not self._unsure:
            self.found.mains += size
        if self._unsure:
            self.found.sure += size

    def _start(self, node: etree._Element, tag: str) -> None:
        grade = doubt(node, tag)
        if grade is Doubt.CONTENT and self._header and tag in ("ul", "ol"):
            grade = Doubt.LINKS
        if not self._strict:
            grade = Doubt.CONTENT
        if grade is not Doubt.CONTENT and node is not self._root:
            self.found.extents[node] = Extent(grade)
            self._open.append((node, self._counts()))
            self._unsure += grade is Doubt.SURE
        if tag == "a":
            self._links += 1
            note = reference(node)
            if note is not None:
                self.found.references.setdefault(*note)
        elif tag == "main" or tag == "article" or node.get("role") == "main":
            self._inside += 1
            self._main_tags += tag != "article"
        elif tag in HEADINGS:
            self._headings += 1
            self._tops += tag == "h1"
            if self._tables:
                self.found.tables[self._tables[-1]].headings += 1
        elif tag == "header":
            self._header += 1
        elif tag in ("table", "tr", "td", "th", "pre"):
            self._table(node, tag)
        role = node.get("role")
        if role == "tab":
            label = " ".join("".join(islice(node.itertext(), 20)).split())[:100]
            self._tab_labels.append(label)
            for name in (node.get("aria-controls"), node.get("id")):
                if name:
                    self.found.tabs[name] = label
        elif role == "tabpanel":
            self._panels.append(node)
        self._count(node.text)

    def _table(self, node: etree._Element, tag: str) -> None:
        if tag == "table":
            if self._tables:
                self.found.tables[self._tables[-1]].inner += 1
            self.found.tables[node] = TableFacts()
            self._tables.append(node)
            return
        if not self._tables:
            return
        facts = self.found.tables[self._tables[-1]]
        if tag == "tr":
            facts.rows.append(node)
        elif tag == "pre":
            facts.codes.append(node)
        else:
            facts.width = max(facts.width, 1 + (node.getprevious() is not None))
            facts.headers += tag == "th"
            names = (node.get("class") or "").split()
            facts.gutter = facts.gutter or any(name in GUTTERS for name in names)
            facts.box = facts.box or "icon" in names

    def _end(self, node: etree._Element, tag: str) -> None:
        if tag == "a":
            self._links -= 1
        elif tag == "main" or tag == "article" or node.get("role") == "main":
            self._inside -= 1
        elif tag == "header":
            self._header -= 1
        elif tag == "table":
            facts = self.found.tables[self._tables.pop()]
            if self._tables:
                outer = self.found.tables[self._tables[-1]]
                outer.inner_blocks += len(facts.codes) + facts.headings + facts.inner_blocks
        if self._open and self._open[-1][0] is node:
            _, before = self._open.pop()
            extent = self.found.extents[node]
            extent.chars, extent.links, extent.content, extent.mains, extent.headings, extent.tops = (
                now - then for now, then in zip(self._counts(), before, strict=True)
            )
            self._unsure -= extent.doubt is Doubt.SURE

    def _counts(self) -> tuple[int, ...]:
        found = self.found
        return found.chars, self._linked, found.mains, self._main_tags, self._headings, self._tops


GUTTERS = words(
    "lineno linenos linenumber linenumbers line-number line-numbers gutter rouge-gutter blob-num hljs-ln-numbers "
    "hljs-ln-n react-syntax-highlighter-line-number code-line-number lnt ln gl"
)


def is_note(node: etree._Element, tag: str, found: Survey) -> str | None:
    """The mark of the footnote whose text this element is, or None."""
    if tag not in _NOTE_TAGS or not found.references:
        return None
    return found.references.get(node.get("id") or "")
