"""Markdown (CommonMark with tables) to typed blocks, from markdown-it's tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pipeline.extract import links
from pipeline.extract.builder import BlockBuilder
from pipeline.extract.html import read_fragment
from schemas.documents import Block

if TYPE_CHECKING:
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore

MAX_DEPTH = 40  # nested containers; what lies deeper is kept as plain paragraphs
MAX_INLINE = 20_000  # characters parsed as one; a longer paragraph is parsed line by line, a longer line not at all
MAX_LINK_WORK = 1_000_000  # opening brackets times characters: looking for a link's end is not linear
_SPECIAL = re.compile(r"[\\`*_~\[\]<&\n]")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
# Inline tags that are markup; anything else in angle brackets ("<namespace>") is a placeholder and stays text.
_TAG = re.compile(
    r"</?(?:a|abbr|b|bdi|bdo|big|br|cite|code|del|dfn|div|em|font|i|img|input|ins|kbd|label|mark|p|q|s|samp|small|span|"
    r"strike|strong|sub|sup|time|tt|u|var|wbr)\b[^>]*>|<!--.*?-->|<\?.*?\?>|<![A-Z].*?>",
    re.IGNORECASE | re.DOTALL,
)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)


def read_markdown(text: str) -> list[Block]:
    """Blocks of a Markdown body without front matter."""
    return _Reader().read(_parser().parse(text))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": 2 * MAX_DEPTH + 20}).enable(["table", "strikethrough"])
    # First in the chain, and allowed to end a paragraph: beyond the depth nothing is dropped and nothing recurses.
    parser.block.ruler.before("table", "too_deep", _too_deep)
    parser.core.ruler.at("inline", _bounded_inline)
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
    def __init__(self) -> None:
        self._builder = BlockBuilder()
        self._heading: int | None = None
        self._rows: list[list[str]] | None = None
        self._header_rows = 0

    def read(self, tokens: Sequence[Token]) -> list[Block]:
        for token in tokens:
            self._token(token)
        return self._builder.finish()

    def _token(self, token: Token) -> None:
        builder = self._builder
        match token.type:
            case "inline":
                self._inline(token)
            case "heading_open":
                self._heading = int(token.tag[1:])
            case "fence" | "code_block":
                info = token.info.strip().split()
                language = info[0].strip("{}.").split(",")[0][:40] if info else None
                builder.code(token.content.removesuffix("\n"), language or None)
            case "html_block":
                builder.extend(read_fragment(token.content))
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
                builder.open_quote()
            case "blockquote_close":
                builder.close_quote()
            case _:
                self._table(token)

    def _table(self, token: Token) -> None:
        match token.type:
            case "table_open":
                self._rows, self._header_rows = [], 0
            case "tr_open" if self._rows is not None:
                self._rows.append([])
            case "thead_close" if self._rows is not None:
                self._header_rows = len(self._rows)
            case "table_close" if self._rows is not None:
                rows, self._rows = self._rows, None
                self._builder.table(rows, self._header_rows)

    def _inline(self, token: Token) -> None:
        if self._heading is not None:
            self._builder.heading(self._heading, inline_text(token, urls=False))
            self._heading = None
        elif self._rows is not None:
            self._rows[-1].append(inline_text(token).replace("\n", " "))
        else:
            self._builder.text(inline_text(token))


def inline_text(token: Token, *, urls: bool = True) -> str:
    """Text of an inline token: marks dropped, code and alt texts kept, soft breaks as blanks."""
    out: list[str] = []
    opened: list[tuple[int, str | None]] = []
    for child in token.children or ():
        match child.type:
            case "text" | "code_inline":
                out.append(child.content)
            case "softbreak":
                out.append(" ")
            case "hardbreak":
                out.append("\n")
            case "image":
                out.append(child.content)
            case "link_open":
                href = child.attrGet("href")
                opened.append((len(out), str(href) if href is not None else None))
            case "link_close" if opened:
                start, href = opened.pop()
                if urls:
                    out.append(links.suffix("".join(out[start:]), href))
            case "html_inline":
                out.append(_html_inline(child.content))
    return "".join(out)


def _html_inline(content: str) -> str:
    if _BREAK.fullmatch(content):
        return "\n"
    if not _TAG.fullmatch(content):
        return content
    alt = _ALT.search(content) if content[:4].lower() == "<img" else None
    return (alt.group(1) or alt.group(2) or "") if alt else ""
