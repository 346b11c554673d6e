"""Our own text analysis for the sparse index: the same tokens at write, at query and in the re-scoring.

The store indexes the space-joined tokens with whitespace tokenisation, so its postings and our statistics agree in
every script: Unicode words, casefolded after NFKC; runs of scripts written without spaces (Han, kana, Thai, Lao,
Khmer, Myanmar) as overlapping bigrams.
"""

from __future__ import annotations

import re
import unicodedata

MAX_TOKEN = 64
_UNSPACED = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3041-\u30ff\u31f0-\u31ff\u0e01-\u0e7f\u0e80-\u0eff"
    "\u1000-\u109f\u1780-\u17ff\U00020000-\U0002ffff"
)
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_])+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# Accents of Latin, Greek, Cyrillic and Hebrew points; marks of Indic and kana scripts change the word and stay.
_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7]")
# A token is an identifier when it mixes letters, digits, capitals or joining marks as names in code and products do.
_CANDIDATE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_\-./:\\#+@]*[A-Za-z0-9+#])?(?:\(\))?")
MAX_IDENTIFIERS = 256
_HEX = re.compile(r"^0x[0-9a-fA-F]+$")
# Names as code writes them (readFile), not as brands do (GitHub, iPhone, macOS): those would outrank better pages.
_CAMEL = re.compile(r"^[a-z]{2,}[A-Z][a-z]")
# Measures and ordinals (10ms, 2nd, 401k, 18F) are no names.
_MEASURE = re.compile(r"^\d+[A-Za-z]{1,2}$")


def tokens(text: str) -> list[str]:
    """Analysed tokens in order, duplicates kept."""
    plain = text.lower() if text.isascii() else _plain(text)
    found: list[str] = []
    for match in _RUN.finditer(plain):
        run = match.group()
        if _IS_UNSPACED.match(run):
            if len(run) == 1:
                found.append(run)
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            found.append(run[:MAX_TOKEN])
    return found


def _plain(text: str) -> str:
    """Folded text without the marks that writers leave out; for ASCII text it is the lower case."""
    # Combining marks are dropped after decomposition: "prêt" and "pret" meet; NFKC folds widths and ligatures.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", folded)))


def lexical(*parts: str) -> str:
    """Space-joined tokens of the parts: the stored sparse text."""
    return " ".join(token for part in parts for token in tokens(part))


def identifiers(text: str) -> tuple[str, ...]:
    """Exact identifiers in the text, casefolded, distinct, in order of appearance, at most MAX_IDENTIFIERS.

    ``X-500-G2``, ``fs.readFileSync``, ``v2.4.18-rc1``, ``0xC0000005``, ``ERR_CONNECTION_TIMED_OUT``, ``E17``: whole
    tokens, so a near twin (``X-500-G3``, ``fs.readFile``, ``v2.4.18``) is another identifier.
    """
    found: dict[str, None] = {}
    for match in _CANDIDATE.finditer(unicodedata.normalize("NFKC", text)):
        candidate = match.group().rstrip("./:-")
        candidate = candidate.removesuffix("()")
        if _is_identifier(candidate):
            found.setdefault(candidate.casefold(), None)
            if len(found) >= MAX_IDENTIFIERS:
                break
    return tuple(found)


def _is_identifier(token: str) -> bool:
    if len(token) < 2 or len(token) > 128 or "://" in token:
        return False
    if _HEX.match(token):
        return True
    has_digit = any(c.isdigit() for c in token)
    has_letter = any(c.isalpha() for c in token)
    if not has_letter or _MEASURE.match(token):
        return False
    if has_digit or "_" in token or _CAMEL.search(token):
        return True
    # dotted names in code (fs.readFile is caught above, os.path here), not sentence ends or host-like prose
    parts = token.split(".")
    return len(parts) > 1 and all(len(part) > 1 and part.isidentifier() for part in parts)
