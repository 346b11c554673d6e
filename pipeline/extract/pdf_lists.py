"""Lists on a page: what marks an item, and items with their nesting as a block."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.extract.builder import MAX_INDENT
from pipeline.extract.pdf_model import Paragraph
from schemas.documents import Block

_BULLET = re.compile(r"([•◦▪▸‣●○■□✓∙·])\s*(?=\S)")
_DASH = re.compile(r"([-–—*o])\s+(?=\S)")
_NUMBER = re.compile(r"(\(?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)])\s+(?=\S)")
_BOX = re.compile(r"(\[[x ]\])\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class Marker:
    """The mark at an item's beginning; ``certain``: it is nothing else. ``shown`` is how it is written in a block."""

    shown: str
    length: int
    certain: bool


def marker_of(text: str) -> Marker | None:
    """The mark of a list's item at the beginning of a line."""
    if found := _BULLET.match(text):
        return Marker("-", found.end(), True)
    if found := _NUMBER.match(text):
        return Marker(found.group(1), found.end(), False)
    if found := _BOX.match(text):
        return Marker(f"- {found.group(1)}", found.end(), True)
    if found := _DASH.match(text):
        return Marker("-", found.end(), False)
    return None


def list_block(items: list[Paragraph], text_of: Callable[[Paragraph], str]) -> Block:
    """One block of indented lines. Nesting comes from the structure tree, else from where the marks stand."""
    lines: list[str] = []
    stack: list[float] = []
    base = min((p.first.tag.level for p in items if p.first.tag is not None and p.first.tag.role == "LI"), default=0)
    depth = 0
    origin = (items[0].first.page, items[0].first.left)
    for item in items:
        first, text = item.first, text_of(item)
        marker = marker_of(text)
        tagged = first.tag is not None and first.tag.role == "LI"
        x = first.x0 if (first.page, first.left) == origin else first.x0 - first.left + origin[1]
        if marker is None and not tagged:
            lines.extend(f"{'  ' * (depth + 1)}{line}" for line in text.split("\n"))
            continue
        if tagged and first.tag is not None:
            depth = first.tag.level - base
        else:
            while stack and x < stack[-1] - 3:
                stack.pop()
            if not stack or x > stack[-1] + 3:
                stack.append(x)
            depth = len(stack) - 1
        depth = min(max(depth, 0), MAX_INDENT)
        body = text[marker.length :] if marker is not None else text
        lead = f"{'  ' * depth}{marker.shown if marker is not None else '-'} "
        head, *rest = body.split("\n")
        lines.append(lead + head)
        lines.extend(f"{'  ' * (depth + 1)}{line}" for line in rest)
    return Block(type="list", text="\n".join(lines), page=items[0].first.page)
