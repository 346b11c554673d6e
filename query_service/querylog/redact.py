"""What of a text is kept in the query log: nothing, all of it, or what is left without what tells of persons or opens
doors.

Redaction is by form and by the words of the settings: mail addresses, numbers of four digits and more, keys, tokens,
credentials and queries in addresses. Names are not recognised: name them in ``querylog.redact_words``, or keep no text.
Applying it twice changes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from schemas.querylog import TextMode

STRICTNESS: dict[TextMode, int] = {"full": 0, "redacted": 1, "none": 2}
MAX_TEXT = 8192
# Of no format category, and yet they show nothing (fillers, selectors) or only surround a digit (keycaps).
_UNSEEN = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x20E3, 0x2800)).union(
    range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)
)
_SHOWN = ("[mail]", "[number]", "[secret]", "[query]", "[word]")

# In this order: what contains other things comes first. Each pattern is linear in the text's length.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, flags), shown)
    for pattern, flags, shown in (
        (r"-----BEGIN [A-Z ]{1,40}-----.*?(?:-----END [A-Z ]{1,40}-----|\Z)", re.S, "[secret]"),
        (r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@]{1,300}@", re.I, r"\g<scheme>"),
        (r"(?P<head>\b[a-z][a-z0-9+.-]{0,20}://[^\s?#]{1,2000})[?#][^\s]*", re.I, r"\g<head>[query]"),
        (r"(?<![^\s@<>()\[\],;:\"'])[^\s@<>()\[\],;:\"']+@[^\s@<>()\[\],;:\"']+", 0, "[mail]"),
        (r"\b(?P<head>bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}", re.I, r"\g<head> [secret]"),
        (
            r"\b(?P<head>pass(?:word|wort|wd|phrase)?|kennwort|secret|token|api[_-]?key|access[_-]?key|pin|pwd)"
            r"(?P<mid>\s{0,3}[:=]\s{0,3}|\s{1,3}(?:is|ist|lautet)\s{1,3})(?!\[secret\])\S{1,500}",
            re.I,
            r"\g<head>\g<mid>[secret]",
        ),
        (r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){8,30}\b", 0, "[number]"),  # IBAN
        (r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|hw|xox[abprs]|AKIA|ASIA|AIza)[-_A-Za-z0-9]{12,}", 0, "[secret]"),
        (r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}", 0, "[secret]"),
        # A run that no word of a language is: letters and digits mixed, twenty and more.
        (r"(?<![\w+=-])(?=[\w+=-]{0,200}\d)(?=[\w+=-]{0,200}[A-Za-z])[\w+=-]{20,}", re.A, "[secret]"),
        # Base64 with its signs, long and of all kinds.
        (
            r"(?<![\w+/=-])(?=[\w+/]{0,200}\d)(?=[\w+/]{0,200}[a-z])(?=[\w+/]{0,200}[A-Z])[\w+/]{40,}={0,2}",
            re.A,
            "[secret]",
        ),
        # Seven digits and more with separators.
        (r"\d(?:[\s.,'/()|_\u00b7\u2010-\u2015\u2019\u2022\u2212-]{0,3}\d){6,}", 0, "[number]"),
        (r"\d{4,}", 0, "[number]"),
    )
)


def visible(text: str) -> str:
    """Compatibility form without what shows nothing, so that a number or address cannot be spelt around the rules."""
    composed = "".join(c for c in unicodedata.normalize("NFKC", text) if not _shows_nothing(c))
    return composed if unicodedata.is_normalized("NFKC", composed) else unicodedata.normalize("NFKC", composed)


def _shows_nothing(char: str) -> bool:
    return not char.isascii() and (unicodedata.category(char) == "Cf" or ord(char) in _UNSEEN)


@lru_cache(maxsize=16)
def _words(words: tuple[str, ...]) -> re.Pattern[str] | None:
    # What a rule has put in is matched first and kept, so that no word can take it apart.
    shown = [visible(w).strip() for w in words]
    named = sorted({form for w in shown if w for form in (w, w.casefold(), w.upper())}, key=len, reverse=True)
    if not named:
        return None
    joined = "|".join(re.escape(w) for w in named)
    kept = "|".join(map(re.escape, _SHOWN))
    return re.compile(rf"{kept}|(?<!\w)(?:{joined})(?!\w)", re.I)


def redact(text: str, words: Sequence[str] = ()) -> str:
    """The text without what the rules and ``words`` name, at most MAX_TEXT characters."""
    found = visible(text[:MAX_TEXT])
    for _ in range(4):  # what a replacement brings together may match in turn
        before = found
        for rule, shown in _RULES:
            found = rule.sub(shown, found)
        pattern = _words(tuple(words))
        if pattern is not None:
            found = pattern.sub(lambda m: m[0] if m[0] in _SHOWN else "[word]", found)
        if found == before:
            break
    return found


def keep(text: str | None, was: TextMode, mode: TextMode, words: Sequence[str] = ()) -> tuple[str | None, TextMode]:
    """A text that was kept as ``was``, as ``mode`` allows it now, and how it is kept: never looser than before."""
    if text is None or mode == "none":
        return None, "none"
    if mode == "redacted" or was == "redacted":
        return redact(text, words), "redacted"
    return text[:MAX_TEXT], "full"
