"""Text of a Redmine to HTML: Markdown by markdown-it, Textile by our own renderer; macros are never expanded.

A macro would show what the connector's account may read. HTML in texts is shown as text, as Redmine does: nothing that
somebody writes can swallow what others wrote after it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pipeline.sources.redmine import textile

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_COLLAPSE = re.compile(r"^\s*\{\{collapse(?:\(([^\n]{0,500})\))?\s*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_MACRO = re.compile(r"(!?)\{\{(>?\w{1,60})(?:\(([^(){}\n]{0,500})\))?\}\}")
_LINK = re.compile(r"\[\[([^\[\]\n|]{1,300})(?:\|([^\[\]\n]{1,300}))?\]\]")
_DROPPED = frozenset({"toc", ">toc", "<toc", "child_pages", "recent_pages", "macro_list"})
_NAMED = frozenset({"include", "thumbnail"})


def clean(text: str | None) -> str:
    """Line ends as they are everywhere else, and nothing that no text holds."""
    return _CONTROL.sub("", (text or "").replace("\r\n", "\n").replace("\r", "\n")).strip("\n")


def render(text: str | None, form: str, shift: int = 0) -> str:
    """HTML of a text in the given form; headings ``shift`` levels further down."""
    plain = _unfold(clean(text), form)
    return _markdown(plain, shift) if form == "markdown" else textile.render(plain, shift)


def _unfold(text: str, form: str) -> str:
    """Text with its macros replaced and its wiki links as their labels; code stays as it is."""
    lines: list[str] = []
    fence: str | None = None
    opened = 0
    for line in text.split("\n"):
        inside = fence is not None
        fence = _fence(line, fence, form)
        if inside or fence is not None:
            lines.append(line)
        elif (found := _COLLAPSE.match(line)) is not None:
            opened += 1
            lines += [found.group(1) or "", ""]
        elif opened and line.strip() == "}}":
            opened -= 1
            lines.append("")
        else:
            lines.append(_LINK.sub(lambda m: (m.group(2) or m.group(1)).strip(), _MACRO.sub(_macro, line)))
    return "\n".join(lines)


def _fence(line: str, fence: str | None, form: str) -> str | None:
    """What closes the code block that is open after a line, None where none is."""
    if form == "markdown":
        found = _FENCE.match(line)
        if found is None:
            return fence
        if fence is None:
            return found.group(1)
        closes = found.group(1).startswith(fence) and not line.strip(" `~")
        return None if closes else fence
    low = line.lower()
    if fence is not None:
        return None if "</pre" in low else fence
    return "</pre" if low.rfind("<pre") > low.rfind("</pre") else None


def _macro(found: re.Match[str]) -> str:
    literal, name, argument = found.groups()
    if literal:
        return found.group(0)[1:]
    if name in _DROPPED:
        return ""
    return (argument or "").split(",")[0].strip() if name in _NAMED else found.group(0)


def _markdown(text: str, shift: int) -> str:
    parser = _parser()
    tokens: list[Token] = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + shift)}"
    return str(parser.renderer.render(tokens, parser.options, {}))


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
