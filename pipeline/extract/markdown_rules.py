"""What Markdown dialects add to CommonMark: formulas, footnotes, admonitions, wiki links. Rules for markdown-it.

Each rule looks at every line or mark a bounded number of times, so that time grows with the length alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_NOTE = re.compile(r"\[\^([^\]\s]{1,60})\]:[ \t]*")
_COLONS = re.compile(r"(:{3,})[ \t]*\{?\.?([A-Za-z][\w-]{0,30})\}?(?:\[([^\]\n]{0,200})\])?(?:\{[^}\n]*\})?[ \t]*(.*)$")
_BANGS = re.compile(r"(?:!!!|\?\?\?\+?)[ \t]+([A-Za-z][\w-]{0,30})[\w \t-]*?(?:\"([^\"\n]{0,200})\")?[ \t]*$")
_ALERT = re.compile(r"\[!([A-Za-z][\w -]{0,30})(?:\|[^\]\n]*)?\][+-]?[ \t]*([^\n]{0,300})(?:\n|$)")
_MONEY = re.compile(r"\d[^\\^_={}]*")
_WIKI = re.compile(r"\[\[([^\[\]\n|]{1,200})(?:\|([^\[\]\n]{0,200}))?\]\]")
_NOTE_ENDS = ("#", "```", "~~~", ">", "- ", "* ", "---", "|", ":::", "$$")
_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
_BACKQUOTES = re.compile(r"`+")
_MAX_LINES = 100  # of a formula
_ALT = ["paragraph", "reference", "blockquote", "list"]


def extend(parser: MarkdownIt) -> None:
    """Add the rules to a parser."""
    block, inline = parser.block.ruler, parser.inline.ruler
    block.at("table", whole_table, {"alt": ["paragraph", "reference"]})
    block.before("fence", "math_block", math_block, {"alt": _ALT})
    block.before("fence", "colon_box", colon_box, {"alt": _ALT})
    block.before("fence", "bang_box", bang_box, {"alt": _ALT})
    block.before("reference", "footnote", footnote, {"alt": ["paragraph", "reference"]})
    inline.before("escape", "math_inline", math_inline)
    inline.before("link", "wiki_link", wiki_link)
    parser.core.ruler.after("block", "alerts", alerts)


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def math_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """``$$`` or ``\\[`` at the beginning of a line, up to ``$$`` or ``\\]``: a token ``math`` with the source."""
    if state.is_code_block(start):
        return False
    first = _line(state, start)
    if first.startswith("$$"):
        close = "$$"
    elif first.startswith("\\["):
        close = "\\]"
    else:
        return False
    rest = first[2:].rstrip()
    if rest.endswith(close) and len(rest) >= 2:
        found, stop = rest[:-2], start + 1
    elif close in rest:
        return False  # a formula in the midst of a sentence
    else:
        # A formula holds no blank line, so what is never closed is given up at the end of its paragraph.
        stop = start + 1
        end = min(end, start + _MAX_LINES)
        while stop < end and not state.isEmpty(stop) and not _line(state, stop).rstrip().endswith(close):
            stop += 1
        if stop >= end or state.isEmpty(stop) or state.sCount[stop] < state.blkIndent:
            return False
        last = _line(state, stop).rstrip()[:-2]
        found = "\n".join((rest, state.getLines(start + 1, stop, state.blkIndent, False), last))
        stop += 1
    if not found.strip():
        return False
    if silent:
        return True
    token = state.push("math", "", 0)
    token.content = found.strip("\n").strip()
    state.line = stop
    return True


def footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """``[^1]: text`` with indented lines below: a token ``footnote``, the mark in ``info`` and Markdown as content."""
    if state.is_code_block(start):
        return False
    match = _NOTE.match(_line(state, start))
    if match is None:
        return False
    if silent:
        return True
    if state.env.get("in_note"):  # notes do not nest, and as the definition of a link the text would be lost
        state.push("deep_text", "", 0).content = _line(state, start)
        state.line = start + 1
        return True
    lines = [_line(state, start)[match.end() :]]
    line, blank = start + 1, False
    while line < end:
        if state.isEmpty(line):
            blank = True
            lines.append("")
        elif state.sCount[line] - state.blkIndent >= 4 or (
            not blank and state.sCount[line] >= state.blkIndent and not _ends_note(_line(state, line))
        ):
            lines.append(state.getLines(line, line + 1, state.blkIndent + 4, False))
        elif blank and state.sCount[line] - state.blkIndent >= 2:
            lines.append(_line(state, line))
        else:
            break
        line += 1
    token = state.push("footnote", "", 0)
    token.info = match.group(1)
    token.content = "\n".join(lines).rstrip()
    state.line = line
    return True


def _ends_note(line: str) -> bool:
    return line.startswith(_NOTE_ENDS) or _NOTE.match(line) is not None


def colon_box(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """``:::note Title`` up to ``:::``: ``box_open`` (``info`` is the kind, ``content`` the title) and ``box_close``."""
    if state.is_code_block(start):
        return False
    match = _COLONS.match(_line(state, start))
    if match is None:
        return False
    if silent:
        return True
    fence, kind, bracketed, title = match.groups()
    depth, stop = 0, start + 1
    code = ""  # the fence of the code around the line in hand
    while stop < end:
        if state.sCount[stop] < state.blkIndent and not state.isEmpty(stop):
            break
        text = _line(state, stop).rstrip()
        mark = _FENCE.match(text)
        if mark and (not code or (text.startswith(code) and not text.strip(code[0]))):
            code = "" if code else mark.group()
        elif not code and text.startswith(":::"):
            if text.strip(":"):
                depth += 1
            elif depth and len(text) <= len(fence):
                depth -= 1
            elif len(text) >= len(fence):
                break
        stop += 1
    closed = stop < end and _line(state, stop).startswith(":::")
    _box(state, kind, bracketed or title, (start + 1, stop), indent=0)
    state.line = stop + closed
    return True


def bang_box(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """``!!! note "Title"`` (or ``???``) with lines indented by four: tokens as for ``colon_box``."""
    if state.is_code_block(start):
        return False
    match = _BANGS.match(_line(state, start))
    if match is None:
        return False
    if silent:
        return True
    stop = start + 1
    while stop < end and (state.isEmpty(stop) or state.sCount[stop] - state.blkIndent >= 4):
        stop += 1
    _box(state, match.group(1), match.group(2) or "", (start + 1, stop), indent=4)
    state.line = stop
    return True


def _box(state: StateBlock, kind: str, title: str, lines: tuple[int, int], *, indent: int) -> None:
    token = state.push("box_open", "", 1)
    token.info, token.content = kind, title.strip().strip('"').strip("*").strip()
    parent, most = state.parentType, state.lineMax
    state.parentType, state.lineMax = "blockquote", lines[1]
    state.blkIndent += indent
    state.md.block.tokenize(state, *lines)
    state.blkIndent -= indent
    state.parentType, state.lineMax = parent, most
    state.push("box_close", "", -1)


def alerts(state: StateCore) -> None:
    """Quotations that begin with ``[!NOTE]`` are admonitions: kind and title go to the quotation's token."""
    tokens = state.tokens
    for place in range(len(tokens) - 2):
        if tokens[place].type != "blockquote_open" or tokens[place + 2].type != "inline":
            continue
        match = _ALERT.match(tokens[place + 2].content)
        if match:
            tokens[place].info, tokens[place].content = match.group(1), match.group(2).strip()
            tokens[place + 2].content = tokens[place + 2].content[match.end() :]


def math_inline(state: StateInline, silent: bool) -> bool:
    """``$x$`` and ``\\(x\\)`` as a token ``math_inline``. Sums of money ("$5 and $6") are none."""
    src, at = state.src, state.pos
    if src.startswith("\\(", at):
        stop = src.find("\\)", at + 2, state.posMax)
        content, after = (src[at + 2 : stop], stop + 2) if stop > 0 else ("", at)
    elif src[at] == "$":
        width = 2 if src.startswith("$$", at) else 1
        stop = src.find("$" * width, at + width, state.posMax)
        if stop < 0 or (at and (src[at - 1].isalnum() or src[at - 1] in "$\\")):
            return False
        content, after = src[at + width : stop], stop + width
        if content.startswith("`") and content.endswith("`") and len(content) > 2:
            content = content[1:-1]
        elif width == 1:
            blank = content[:1].isspace() or content[-1:].isspace()
            if blank or src[after : after + 1].isdigit() or _MONEY.fullmatch(content):
                return False
    else:
        return False
    if not content.strip() or "\n\n" in content:
        return False
    if not silent:
        state.push("math_inline", "", 0).content = content.strip()
    state.pos = after
    return True


def wiki_link(state: StateInline, silent: bool) -> bool:
    """``[[Page|text]]`` and ``![[file]]`` as a token ``wiki_link``: the words, and the page where it is another."""
    embedded = state.src.startswith("![[", state.pos)
    if not embedded and not state.src.startswith("[[", state.pos):
        return False
    match = _WIKI.match(state.src, state.pos + embedded, state.posMax)
    if match is None:
        return False
    if not silent:
        page, words = match.group(1).strip(), (match.group(2) or "").strip()
        same = not words or words.casefold() == page.replace("-", " ").replace("_", " ").casefold()
        state.push("wiki_link", "", 0).content = (words or page) if same else f"{words} ({page})"
    state.pos = match.end()
    return True


def whole_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A table whose rows keep the cells beyond those of its header, which GFM leaves out.

    A row that has too many because of bars in code is put together again; of any other the last cell holds the rest,
    and ``meta["over"]`` of the table's token counts it.
    """
    from markdown_it.rules_block.table import escapedSplit, getLine, table

    first = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    over = 0
    cells: list[Token] = []
    for token in state.tokens[first:]:
        if token.type == "tr_open":
            cells = []
        elif token.type == "inline":
            cells.append(token)
        elif token.type == "tr_close" and cells and cells[0].map:
            line = getLine(state, cells[0].map[0]).strip()
            if line.count("|") - line.startswith("|") < len(cells):  # at most a bar at its end
                continue
            found = escapedSplit(line)
            found = found[1 if found[0] == "" else 0 : -1 if found[-1] == "" else None]
            if len(found) > len(cells):
                found = _code_joined(found)
            if len(found) > len(cells):
                over += 1
            if len(found) >= len(cells):
                found[len(cells) - 1 :] = ["|".join(found[len(cells) - 1 :])]
            found += [""] * (len(cells) - len(found))
            for cell, text in zip(cells, found, strict=True):
                cell.content = text.strip()
    if over:
        state.tokens[first].meta["over"] = over
    return True


def _code_joined(cells: list[str]) -> list[str]:
    """Cells put together where a bar inside code parted them."""
    out: list[str] = []
    parts: list[str] = []  # of a cell whose code is not closed yet
    fence = ""
    for cell in cells:
        for run in _BACKQUOTES.findall(cell):
            fence = run if not fence else "" if run == fence else fence
        parts.append(cell)
        if not fence:
            out.append("|".join(parts))
            parts = []
    return [*out, *parts]  # backquotes that nothing closes are no code
