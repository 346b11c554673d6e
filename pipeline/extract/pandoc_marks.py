"""Signs that carry through pandoc what its parsers would change: Unicode noncharacters, which no document holds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
NAME_OPEN, NAME_CLOSE = "\ufdd2", "\ufdd3"  # around the name of a footnote, at the start of its text
TAB = "\ufdd4"
NOTE_LIST = "\ufddb"  # starts a paragraph that only defines footnotes
NOTHING = "\ufddc"  # a paragraph of its own that leaves nothing behind
HEADER_ROW = "\ufddd"  # in a cell: its row belongs to the table's header
TITLE = "\ufdde"  # with a level after it starts a paragraph that is a heading; 0 is the document's title
_TOKEN = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_RESERVED = re.compile("[\ufdd0-\ufdef]")
_LONG_RUN = re.compile(r"\S{4000,}")


@dataclass
class Marks:
    """Texts that are set aside under a token while a parser reads what is around them."""

    _kept: list[tuple[str, str | None, bool]] = field(default_factory=list)

    def hide(self, text: str) -> str:
        """A token that stands for the text wherever it turns up; tokens in the text are resolved first."""
        self._kept.append((self.show(text), None, False))
        return f"{_OPEN}{len(self._kept) - 1}{_CLOSE}"

    def code(self, text: str, language: str | None = None) -> str:
        """A token that is a code block where it stands alone in a paragraph or in a code block."""
        self._kept.append((self.show(text), language, True))
        return f"{_OPEN}{len(self._kept) - 1}{_CLOSE}"

    def code_of(self, text: str) -> tuple[str, str | None] | None:
        """Code and language where the text is nothing but a token for code."""
        token = _TOKEN.fullmatch(text.strip())
        number = int(token.group(1)) if token and len(token.group(1)) < 10 else len(self._kept)
        if number >= len(self._kept) or not self._kept[number][2]:
            return None
        return self._kept[number][:2]

    def show(self, text: str) -> str:
        """The text with each token replaced by what it stands for, without other signs."""
        if not _RESERVED.search(text):
            return text
        return _RESERVED.sub("", _TOKEN.sub(self._shown, text).replace(TAB, "\t"))

    def _shown(self, token: re.Match[str]) -> str:
        number = int(token.group(1)) if len(token.group(1)) < 10 else len(self._kept)
        return self._kept[number][0] if number < len(self._kept) else ""


def without_signs(text: str) -> str:
    """The text without the noncharacters that serve as signs here."""
    return _RESERVED.sub("\ufffd", text)


def shortened(text: str, marks: Marks) -> str:
    """Runs of 4,000 characters without a space become tokens: some parsers take quadratic time for them."""
    return _LONG_RUN.sub(lambda run: marks.hide(run.group()), text)
