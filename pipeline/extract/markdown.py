"""Markdown to typed blocks, from markdown-it's tokens: CommonMark, tables, and what ``markdown_rules`` adds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pipeline.extract import links
from pipeline.extract.builder import BlockBuilder
from pipeline.extract.front_matter import split
from pipeline.extract.html import read_fragment
from pipeline.extract.html_inline import script
from pipeline.extract.markdown_hidden import hidden_stretches
from pipeline.extract.markdown_rules import extend
from pipeline.extract.reading import Body, Reading
from schemas.documents import Block

if TYPE_CHECKING:
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore

MAX_DEPTH = 40  # nested containers; what lies deeper is kept as plain paragraphs
MAX_INLINE = 20_000  # characters parsed as one; a longer paragraph is parsed line by line, a longer line not at all
MAX_LINK_WORK = 1_000_000  # opening brackets times characters: looking for a link's end is not linear
_SPECIAL = re.compile(r"[\\`*_~\[\]<&$\n]")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
# Inline tags that are markup; anything else in angle brackets ("<namespace>") is a placeholder and stays text.
_TAG = re.compile(
    r"</?(?:a|abbr|b|bdi|bdo|big|br|cite|code|del|dfn|div|em|font|i|img|input|ins|kbd|label|mark|p|q|s|samp|small|span|"
    r"strike|strong|sub|sup|time|tt|u|var|wbr)\b[^>]*>|<!--.*?-->|<\?.*?\?>|<![A-Z].*?>",
    re.IGNORECASE | re.DOTALL,
)
_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_LANGUAGE = re.compile(r"\{?\.?([A-Za-z0-9_+#./-]+)")
_TITLE = re.compile(r"""\b(?:title|filename|caption)=(?:"([^"\n]{1,200})"|'([^'\n]{1,200})')""")
_DIRECTIVE = re.compile(r"\{([a-z-]+)\}[ \t]*(.*)")
_OPTIONS = re.compile(r"\A(?::[\w-]+:[^\n]*(?:\n|\Z))+")
_BOXES = frozenset(
    {"admonition", "attention", "caution", "danger", "error", "hint", "important", "note", "seealso", "tip", "warning"}
)
_MAX_BODIES = 4  # Markdown bodies within each other
_HEADING_ID = re.compile(r"\s*\{(?:#|\.)[\w .#:-]*\}\s*$")
_DEFINITION = re.compile(r"^:[ \t]+\S", re.MULTILINE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)


def read(body: Body) -> Reading:
    """A Reader of Markdown with front matter."""
    front = split(body.text or "")
    reader = _Reader()
    blocks = reader.read(_parser().parse(front.body))
    warnings = list(front.warnings)
    if reader.long_rows:
        warnings.append(
            f"table: {reader.long_rows} rows have more cells than their header; the rest stands in the last cell"
        )
    return Reading(blocks, front.string("title"), front.string("language"), warnings=warnings)


def read_markdown(text: str) -> list[Block]:
    """Blocks of a Markdown body without front matter."""
    return _Reader().read(_parser().parse(text))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": 2 * MAX_DEPTH + 20}).enable(["table", "strikethrough"])
    # First in the chain, and allowed to end a paragraph: beyond the depth nothing is dropped and nothing recurses.
    parser.block.ruler.before("table", "too_deep", _too_deep)
    parser.core.ruler.at("inline", _bounded_inline)
    extend(parser)
    return parser


def _bounded_inline(state: StateCore) -> None:
    """The inline stage in linear time, and without work for text that holds no mark."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if _SPECIAL.search(token.content) is None:
            token.children.append(_text_token(token.content))
        elif _affordable(token.content):
            state.md.inline.parse(token.content, state.md, state.env, token.children)
        else:
            for number, line in enumerate(token.content.split("\n")):
                if number:
                    token.children.append(Token("softbreak", "br", 0))
                if _affordable(line):
                    parsed: list[Token] = []  # its own list: the parser goes over all of the list it is given
                    state.md.inline.parse(line, state.md, state.env, parsed)
                    token.children.extend(parsed)
                else:
                    token.children.append(_text_token(line))


def _affordable(text: str) -> bool:
    return len(text) <= MAX_INLINE and text.count("[") * len(text) <= MAX_LINK_WORK


def _text_token(text: str) -> Token:
    token = Token("text", "", 0)
    token.content = text
    return token


def _too_deep(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.level < 2 * MAX_DEPTH:
        return False
    if silent:
        return False
    token = state.push("deep_text", "", 0)
    token.content = state.getLines(start, end, state.blkIndent, False)
    state.line = end
    return True


class _Reader:
    """Builds blocks from tokens. ``depth`` counts the Markdown bodies around (a footnote's, a directive's).

    ``long_rows`` counts the rows of tables with more cells than their header.
    """

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self.long_rows = 0
        self._builder = BlockBuilder()
        self._heading: int | None = None
        self._rows: list[list[str]] | None = None
        self._header_rows = 0
        self._quotes: list[bool] = []  # whether each open quotation is an admonition
        self._markup: list[str] = []  # HTML blocks that follow each other are one: a blank line may part a table

    def read(self, tokens: Sequence[Token]) -> list[Block]:
        self._feed(tokens)
        return self._builder.finish()

    def _feed(self, tokens: Sequence[Token]) -> None:
        hidden = hidden_stretches(tokens)
        at = -1
        while at + 1 < len(tokens):
            at = hidden.get(at + 1, at + 1)
            token = tokens[at]
            if token.type == "html_block":
                self._markup.append(token.content)
            else:
                self._end_markup()
                self._token(token)
        self._end_markup()

    def _end_markup(self) -> None:
        if self._markup:
            self._builder.extend(read_fragment("\n".join(self._markup)))
            self._markup.clear()

    def _token(self, token: Token) -> None:
        builder = self._builder
        match token.type:
            case "inline":
                self._inline(token)
            case "heading_open":
                self._heading = int(token.tag[1:])
            case "fence" | "code_block":
                self._code(token)
            case "math":
                builder.math(token.content)
            case "footnote":
                builder.footnote(token.info, "\n".join(block.text for block in self._inner(token.content)))
            case "box_open":
                builder.open_admonition(_kind(token.info), token.content)
            case "box_close":
                builder.close_admonition()
            case "deep_text":
                builder.text(token.content)
                builder.end_paragraph()
            case "hr" | "paragraph_open" | "paragraph_close":
                builder.end_paragraph()
            case "bullet_list_open" | "ordered_list_open":
                start = token.attrGet("start")
                builder.open_list(ordered=token.type.startswith("ordered"), start=int(start) if start else 1)
            case "bullet_list_close" | "ordered_list_close":
                builder.close_list()
            case "list_item_open":
                builder.open_item()
            case "list_item_close":
                builder.close_item()
            case "blockquote_open":
                self._quotes.append(bool(token.info))
                if token.info:
                    builder.open_admonition(_kind(token.info), token.content)
                else:
                    builder.open_quote()
            case "blockquote_close":
                if self._quotes.pop():
                    builder.close_admonition()
                else:
                    builder.close_quote()
            case _:
                self._table(token)

    def _code(self, token: Token) -> None:
        builder = self._builder
        text, info = token.content.removesuffix("\n"), token.info.strip()
        directive = _DIRECTIVE.match(info)
        if info.split()[:1] == ["math"] or (directive and directive.group(1) == "math"):
            builder.math(text)
        elif directive and directive.group(1) in _BOXES and self._depth < _MAX_BODIES:
            kind = directive.group(1)
            builder.open_admonition("" if kind == "admonition" else _kind(kind), directive.group(2))
            self._depth += 1
            self._feed(_parser().parse(_OPTIONS.sub("", text), {"in_note": True}))
            self._depth -= 1
            builder.close_admonition()
        else:
            language = _LANGUAGE.match(info)
            title = _TITLE.search(info)
            if title:
                builder.end_paragraph()
                builder.text(title.group(1) or title.group(2))
                builder.end_paragraph()
            builder.code(text, language.group(1)[:40] if language else None)

    def _inner(self, text: str) -> list[Block]:
        """Blocks of a Markdown body inside this one; deeper than _MAX_BODIES it is text."""
        if self._depth >= _MAX_BODIES:
            return [Block(type="paragraph", text=text)]
        reader = _Reader(self._depth + 1)
        blocks = reader.read(_parser().parse(text, {"in_note": True}))
        self.long_rows += reader.long_rows
        return blocks

    def _table(self, token: Token) -> None:
        match token.type:
            case "table_open":
                self._rows, self._header_rows = [], 0
                self.long_rows += token.meta.get("over", 0)
            case "tr_open" if self._rows is not None:
                self._rows.append([])
            case "thead_close" if self._rows is not None:
                self._header_rows = len(self._rows)
            case "table_close" if self._rows is not None:
                rows, self._rows = self._rows, None
                self._builder.table(rows, self._header_rows)

    def _inline(self, token: Token) -> None:
        if self._heading is not None:
            self._builder.heading(self._heading, _HEADING_ID.sub("", inline_text(token, urls=False)))
            self._heading = None
        elif self._rows is not None:
            self._rows[-1].append(inline_text(token).replace("\n", " "))
        elif _DEFINITION.search(token.content) and token.content[:1] != ":":
            self._definitions(token)
        else:
            self._builder.text(inline_text(token))

    def _definitions(self, token: Token) -> None:
        """Lines that begin with a colon explain the line before: a list of terms."""
        builder = self._builder
        builder.open_list(ordered=False)
        lines: list[list[Token]] = [[]]
        for child in token.children or ():
            if child.type == "softbreak":
                lines.append([])
            else:
                lines[-1].append(child)
        for children in lines:
            part = Token("inline", "", 0)
            part.children = children
            text = inline_text(part)
            if text.startswith(":"):
                builder.open_item(marked=False)
                builder.text(text[1:])
            else:
                builder.open_item()
                builder.text(text)
            builder.close_item()
        builder.close_list()


def inline_text(token: Token, *, urls: bool = True) -> str:
    """Text of an inline token: marks dropped, code and alt texts kept, soft breaks as blanks, struck text in ``~~``."""
    out: list[str] = []
    opened: list[tuple[int, str | None]] = []
    raised: list[int] = []
    hidden = hidden_stretches(token.children or ())
    shown_from = 0
    for number, child in enumerate(token.children or ()):
        if number < shown_from:
            continue
        if number in hidden:
            shown_from = hidden[number] + 1
            continue
        match child.type:
            case "text" | "code_inline" | "image" | "wiki_link":
                out.append(child.content)
            case "math_inline":
                out.append(f"${child.content}$")
            case "s_open" | "s_close":
                out.append("~~")
            case "softbreak":
                out.append(" ")
            case "hardbreak":
                out.append("\n")
            case "link_open":
                href = child.attrGet("href")
                opened.append((len(out), str(href) if href is not None else None))
            case "link_close" if opened:
                _close_link(out, opened, urls=urls)
            case "html_inline":
                _html_inline(child.content, out, opened, raised, urls=urls)
    return "".join(out)


def _close_link(out: list[str], opened: list[tuple[int, str | None]], *, urls: bool) -> None:
    start, href = opened.pop()
    if urls:
        out.append(links.suffix("".join(out[start:]), href))


def _html_inline(
    content: str, out: list[str], opened: list[tuple[int, str | None]], raised: list[int], *, urls: bool
) -> None:
    """One tag inside a paragraph: breaks, images, links, raised and lowered text; other markup leaves nothing."""
    if _BREAK.fullmatch(content):
        out.append("\n")
        return
    if not _TAG.fullmatch(content):
        out.append(content)
        return
    name = content[1:5].lower()
    if name.startswith("img"):
        alt = _ALT.search(content)
        out.append((alt.group(1) or alt.group(2) or "") if alt else "")
    elif name.startswith(("sup", "sub")):
        raised.append(len(out))
    elif name in ("/sup", "/sub") and raised:
        start = raised.pop()
        text = "".join(out[start:])
        del out[start:]
        before = next((piece[-1] for piece in reversed(out[-3:]) if piece), "")
        out.append(script(text, before, raised=name == "/sup"))
    elif name.startswith("a "):
        href = _HREF.search(content)
        opened.append((len(out), (href.group(1) or href.group(2)) if href else None))
    elif name.startswith("/a>") and opened:
        _close_link(out, opened, urls=urls)


def _kind(name: str) -> str:
    """``warning`` as a label."""
    return name.replace("-", " ").replace("_", " ").strip().capitalize()
