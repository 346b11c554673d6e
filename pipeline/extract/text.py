"""Plain text: paragraphs at blank lines, runs of bullet lines as lists. Headings are not guessed."""

from __future__ import annotations

import re

from schemas.documents import Block

_BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")
_BULLET = re.compile(r"[^\S\n]*(?:[-*+•–]|\d{1,3}[.)])[^\S\n]+\S")


def read_text(text: str) -> list[Block]:
    """Blocks of a plain text; each keeps its line breaks."""
    blocks: list[Block] = []
    for part in _BLANK.split(text.replace("\f", "\n\n")):
        stripped = part.strip("\n").rstrip()
        if not stripped.strip():
            continue
        lines = stripped.split("\n")
        bullets = len(lines) > 1 and all(_BULLET.match(line) for line in lines)
        if bullets:
            blocks.append(Block(type="list", text=stripped))
        else:
            blocks.append(Block(type="paragraph", text="\n".join(line.rstrip() for line in lines)))
    return blocks
