"""What a sentence may not hold unless a source has it word for word: ways out for data, and orders to programs.

Links, images, HTML, code, mail addresses, telephone numbers, calls of tools, encoded data, and characters that nobody
sees.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:[a-z][a-z0-9+.-]{1,20})://[^\s<>\"')\]]+",  # any scheme with an authority
        r"\b(?:javascript|data|mailto|tel|file|vbscript|blob|sms|ftp|urn):[^\s<>\"')\]]+",
        r"(?<![\w/])//[\w.-]+\.[a-z]{2,}[^\s<>\"')\]]*",  # without a scheme
        r"\bwww\.[^\s<>\"')\]]+",
        r"\b(?:[\w-]+\.)+(?:com|net|org|io|dev|app|co|info|biz|xyz|site|online|de|eu|uk|fr|ru|cn|example|test|cloud|ai|me|"
        r"to|sh|ly|link|page|top|zip)\b(?:[:/?#][^\s<>\"')\]]*)?",
        r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:/[^\s<>\"')\]]*)?",  # IPv4 addresses
        r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
        r"[\w.+-]+\s*(?:\(at\)|\[at\])\s*[\w-]+",
        r"(?<![\w.,:/-])(?:\+|00)\d[\d ()/.-]{5,}\d",  # telephone numbers
        r"(?<![\w.,:/-])\(?0\d{2,5}\)?[ /-]\d[\d /-]{3,}\d",
        r"<!--|<!\[CDATA\[|</?[a-z][^>]*>?",
        r"&#?[a-z0-9]{2,8};",
        r"`[^`]+`|`{3,}|~{3,}",
        r"\{\s*[\"'][^\"']{1,64}[\"']\s*:",  # JSON, of tool calls above all
        r"<\|[^|>]*\|>|\[/?(?:INST|TOOL_CALLS|SYS)\]|\b(?:tool_call|function_call|tool_use)s?\b",
        r"\$\(|\$\{[^}]*\}|\{\{[^}]*\}\}",
        r"[A-Za-z0-9+/_-]{48,}={0,2}",  # encoded data, in whatever letters
        r"(?<![\w+/=-])[A-Za-z0-9+/_-]{10,}={1,2}(?![\w=])",  # with padding
        r"(?:%[0-9a-f]{2}){3,}",
        r"(?<!\w)(?:0x)?[0-9a-f]{2}(?:[ :,-]+(?:0x)?[0-9a-f]{2}){7,}(?!\w)",  # bytes, one by one
        r"(?<!\w)[01]{8}(?:[ ,]+[01]{8}){2,}(?!\w)",
        r"(?:\\(?:x[0-9a-f]{2}|u\{?[0-9a-f]{4,6}\}?|[0-7]{3})){2,}",
        r"(?<!\w)(?:0x)?[0-9a-f]{24,}(?!\w)",
        r"(?<![\w-])(?:[.\-·−–]{1,6}(?:[ /]+)){5,}[.\-·−–]{1,6}",  # Morse code
    )
)
# Encoded data by the mixture of its letters: no word has capitals, small letters and digits in turn.
_MIXED = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w+/-])(?=[A-Za-z0-9+/_-]*[a-z][A-Za-z0-9+/_-]*)(?=[A-Za-z0-9+/_-]*[A-Z])(?=[A-Za-z0-9+/_-]*\d)"
        r"[A-Za-z0-9+/_-]{20,}={0,2}",
        r"(?<![\w-])(?=[A-Z2-7]*[2-7])[A-Z2-7]{16,}={0,6}(?!\w)",  # base32
    )
)
_TARGETS = re.compile(
    r"!?\[[^\]]*\]\s*\(\s*<?([^)>\s]*)[^)]*\)|!?\[[^\]]*\]\s*\[([^\]]*)\]|^\s*\[[^\]]+\]:\s*(\S+)", re.M
)
_ALLOWED_FORMATS = frozenset("\u200c\u200d\u00ad")  # joiners that scripts need, soft hyphen


def forbidden(sentence: str, sources: Sequence[str]) -> bool:
    """Whether the sentence holds such a thing that none of the sources' texts contains verbatim."""
    for char in sentence:
        if (
            unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs")
            and char not in "\n\t"
            and char not in _ALLOWED_FORMATS
        ):
            return True
    folded = unicodedata.normalize("NFKC", sentence)
    for text in {sentence, folded}:
        for match in _TARGETS.finditer(text):
            target = next((group for group in match.groups() if group), "")
            if not target or not _held(target, sources):
                return True
        for pattern in (*_PATTERNS, *_MIXED):
            if any(not _held(match.group().rstrip(".,;:!?"), sources) for match in pattern.finditer(text)):
                return True
    return False


def _held(found: str, sources: Sequence[str]) -> bool:
    """Whole, so that a shorter address than the source's, or one with more behind it, is another."""
    held = re.compile(rf"(?<![\w-]){re.escape(found)}(?![\w@/#=&%-]|\?\w)") if found[:1].isalnum() else None
    return any(held.search(text) is not None if held else found in text for text in sources)
