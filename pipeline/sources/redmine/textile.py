"""Textile as Redmine writes it, to plain HTML, in time that grows with the text.

Headings, quotes, lists, tables, code and the usual marks. Raw HTML but ``pre`` is text, as in Redmine.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_BLOCK = re.compile(r"^(h[1-6]|bq|p)(?:[(\[{<>=][^\s.]{0,80})?\. +(.*)$")
_ITEM = re.compile(r"^ ?([*#]{1,10}) +(.*)$")
_CELL = re.compile(r"^((?:_|[<>=^~]|[\\/]\d{1,3}|\([^)\s]{0,60}\)|\{[^}\s]{0,60}\})+)\. ?")
_RULE = re.compile(r"^-{3,}\s*$")
_CODE_TAG = re.compile(r"^\s*<code(?:\s+class=\"?([\w+#-]{1,40})\"?)?\s*>\n?")
_CODE_END = re.compile(r"</code\s*>\s*$")
_INLINE_CODE = re.compile(r"(?<![\w@])@([^@\n]{1,300})@(?![\w@])|<code>([^<\n]{1,300})</code>")
_LINK = re.compile(r"\"([^\"\n]{1,300})\":((?:https?://|mailto:|/)[^\s<>\"|]{1,1000}[^\s<>\"|.,;:!?)])")
_IMAGE = re.compile(r"(?<!\w)!(?:[<>=])?[^\s!(){}|]{1,300}\.(?:png|jpe?g|gif|svg|webp)(?:\(([^)\n]{0,200})\))?!", re.I)
_MARKS = tuple(
    (re.compile(rf"(?<![\w{re.escape(mark)}]){re.escape(mark)}(?=\S)([^{re.escape(mark[0])}\n]{{1,300}})(?<=\S)"
                rf"{re.escape(mark)}(?![\w{re.escape(mark)}])"), tag)
    for mark, tag in (("*", "strong"), ("_", "em"), ("+", "ins"), ("-", "del"), ("??", "cite"))
)  # fmt: skip


def render(text: str, shift: int = 0) -> str:
    """HTML of a text with ``\\n`` line ends; headings ``shift`` levels further down."""
    parts: list[str] = []
    for piece, code in _pieces(text):
        parts.append(_code(piece) if code else _Blocks(shift).render(piece))
    return "\n".join(p for p in parts if p)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Text outside and inside of ``pre``, in order; one that is not closed reaches to the end."""
    low, at = text.lower(), 0
    while True:
        start = low.find("<pre", at)
        opened = low.find(">", start) if start >= 0 else -1
        if opened < 0:
            yield text[at:], False
            return
        yield text[at:start], False
        end = low.find("</pre", opened)
        if end < 0:
            yield text[opened + 1 :], True
            return
        yield text[opened + 1 : end], True
        closed = low.find(">", end)
        at = len(text) if closed < 0 else closed + 1


def _code(text: str) -> str:
    found = _CODE_TAG.match(text)
    language = found.group(1) if found else None
    body = _CODE_END.sub("", text[found.end() :]) if found else text.removeprefix("\n")
    mark = f' class="language-{html.escape(language)}"' if language else ""
    return f"<pre><code{mark}>{html.escape(body)}</code></pre>"


class _Blocks:
    """Lines to blocks."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._out: list[str] = []
        self._lines: list[str] = []
        self._tag = "p"

    def render(self, text: str) -> str:
        lines = text.split("\n")
        at = 0
        while at < len(lines):
            line = lines[at]
            if _ITEM.match(line):
                at = self._items(lines, at)
            elif line.lstrip().startswith("|") and (end := _row_end(lines, at)) is not None:
                at = self._table(lines, at, end)
            else:
                self._line(line)
                at += 1
        self._flush()
        return "\n".join(self._out)

    def _line(self, line: str) -> None:
        if not line.strip():
            self._flush()
        elif _RULE.match(line):
            self._flush()
            self._out.append("<hr>")
        elif (found := _BLOCK.match(line)) is not None:
            self._flush()
            self._open(found.group(1), found.group(2))
        elif line.startswith(">"):
            if self._tag != "bq":
                self._flush()
            self._tag = "bq"
            self._lines.append(line.lstrip("> "))
        else:
            self._lines.append(line)

    def _open(self, tag: str, text: str) -> None:
        if tag[0] == "h":
            level = min(6, int(tag[1]) + self._shift)
            self._out.append(f"<h{level}>{_inline(text.strip())}</h{level}>")
        else:
            self._tag, self._lines = tag, [text]

    def _flush(self) -> None:
        if any(line.strip() for line in self._lines):
            text = "<br>\n".join(_inline(line.strip()) for line in self._lines)
            self._out.append(f"<blockquote><p>{text}</p></blockquote>" if self._tag == "bq" else f"<p>{text}</p>")
        self._tag, self._lines = "p", []

    def _items(self, lines: list[str], at: int) -> int:
        self._flush()
        opened: list[str] = []  # tags of the lists that are open
        out: list[str] = []
        while at < len(lines) and (lines[at].strip() or opened):
            found = _ITEM.match(lines[at])
            if found is None:
                if not lines[at].strip() or _BLOCK.match(lines[at]) or lines[at].startswith("|"):
                    break
                out.append(f"<br>\n{_inline(lines[at].strip())}")  # an item goes on
                at += 1
                continue
            marks = found.group(1)
            while len(opened) > len(marks) or (len(opened) == len(marks) and opened[-1] != _list(marks)):
                out.append(f"</li></{opened.pop()}>")
            if len(opened) == len(marks):
                out.append("</li>")
            while len(opened) < len(marks):
                opened.append(_list(marks))
                out.append(f"<{opened[-1]}>" if len(opened) == len(marks) else f"<{opened[-1]}><li>")
            out.append(f"<li>{_inline(found.group(2).strip())}")
            at += 1
        out += [f"</li></{tag}>" for tag in reversed(opened)]
        self._out.append("".join(out))
        return at

    def _table(self, lines: list[str], at: int, end: int) -> int:
        self._flush()
        rows: list[str] = []
        last: int | None = end
        while last is not None:
            rows.append(_row(" ".join(line.strip() for line in lines[at : last + 1])))
            at = last + 1
            last = _row_end(lines, at) if at < len(lines) and lines[at].lstrip().startswith("|") else None
        self._out.append(f"<table>{''.join(rows)}</table>")
        return at


def _list(marks: str) -> str:
    return "ol" if marks[-1] == "#" else "ul"


def _row_end(lines: list[str], at: int) -> int | None:
    """Index of the line on which a table's row ends, None where it is no row. A cell may hold line breaks."""
    for index in range(at, min(at + 50, len(lines))):
        line = lines[index].strip()
        if not line or (index > at and line.startswith("|")):
            return None
        if line.endswith("|") and (index > at or len(line) > 1):
            return index
    return None


def _row(text: str) -> str:
    cells = text.strip().strip("|").split("|") if text.strip("| ") else [""]
    out = []
    for cell in cells:
        found = _CELL.match(cell)
        tag = "th" if found and "_" in found.group(1) else "td"
        out.append(f"<{tag}>{_inline((cell[found.end() :] if found else cell).strip())}</{tag}>")
    return f"<tr>{''.join(out)}</tr>"


def _inline(text: str) -> str:
    out, at = [], 0
    for found in _INLINE_CODE.finditer(text):
        out.append(_marked(text[at : found.start()]))
        out.append(f"<code>{html.escape(found.group(1) or found.group(2))}</code>")
        at = found.end()
    return "".join(out) + _marked(text[at:])


def _marked(text: str) -> str:
    out, at = [], 0
    for found in _LINK.finditer(text):
        out.append(_emphasis(text[at : found.start()]))
        out.append(f'<a href="{html.escape(found.group(2))}">{_emphasis(found.group(1))}</a>')
        at = found.end()
    return "".join(out) + _emphasis(text[at:])


def _emphasis(text: str) -> str:
    text = html.escape(_IMAGE.sub(lambda m: m.group(1) or "", text), quote=False)
    for pattern, tag in _MARKS:
        text = pattern.sub(rf"<{tag}>\1</{tag}>", text)
    return text
