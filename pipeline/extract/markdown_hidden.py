"""Elements of HTML that Markdown goes through and that nobody sees: ``<div hidden>``, blank lines, text, ``</div>``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from markdown_it.token import Token

from pipeline.extract.html_rules import hidden

_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*)\b([^<>]*)>")
_MAY_HIDE = re.compile(r"\bhidden\b|\bstyle\s*=", re.IGNORECASE)
_LONGEST = 4000  # characters of a tag that is looked at


class _Opened(NamedTuple):
    name: str
    at: int
    level: int
    hides: bool


def hidden_stretches(tokens: Sequence[Token]) -> dict[int, int]:
    """Index of the token that opens a hidden element, to that of the one that closes it.

    Only elements that are closed count: what an unclosed one would hide is the rest of the document. A token that
    opens and closes one is left to the reader of HTML. Linear in the number of tokens.
    """
    found: dict[int, int] = {}
    opened: list[_Opened] = []
    names: Counter[str] = Counter()
    for index, token in enumerate(tokens):
        while opened and opened[-1].level > token.level:  # its list or quotation has ended
            names[opened.pop().name] -= 1
        if token.type not in ("html_block", "html_inline"):
            continue
        for match in _TAG.finditer(token.content):
            name = match.group(2).lower()
            if not match.group(1):
                if not match.group(3).endswith("/"):
                    opened.append(_Opened(name, index, token.level, _hides(match)))
                    names[name] += 1
            elif names[name]:
                while True:  # what was opened inside and is never closed ends here as well
                    one = opened.pop()
                    names[one.name] -= 1
                    if one.name == name:
                        break
                if one.hides and one.at < index and one.level == token.level:
                    found[one.at] = index
    return found


def _hides(tag: re.Match[str]) -> bool:
    if not _MAY_HIDE.search(tag.group(3)) or len(tag.group()) > _LONGEST:
        return False
    from lxml import html

    try:
        element = html.fragment_fromstring(f"{tag.group()}</{tag.group(2)}>")
    except Exception:  # no element of its own, as a table's cell
        return False
    return hidden(element, tag.group(2).lower())
