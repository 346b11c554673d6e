"""Our own text analysis for the sparse index: the same tokens at write, at query and in the re-scoring.

The store indexes the space-joined tokens with whitespace tokenisation, so its postings and our statistics agree in
every script: Unicode words with their marks, casefolded after NFKC, in the one spelling that writers of a script use
without thinking (see ``_plain``). Runs of scripts written without spaces (Han, kana, Thai, Lao, Khmer, Myanmar) and of
Hangul, whose particles are glued to words, become overlapping bigrams; a Han character is a token of its own besides,
as it is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from operator import itemgetter

MAX_TOKEN = 64
_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = (
    f"{_HAN}\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uac00-\ud7a3\u0e01-\u0e3a\u0e40-\u0e4e"
    "\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u104c-\u109d\u1780-\u17d3\u17d7\u17dc\u17dd\uaa60-\uaa7f"
)
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_IS_HAN = re.compile(rf"[{_HAN}]")
# Marks that writers leave out: accents, Hebrew points, Arabic vowels and Quranic signs, and the lengthening stroke.
# Marks of Indic and kana scripts change the word and stay.
_MARKS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]"
)
# What nobody sees, or what only shapes letters: soft hyphen, joiners, direction marks, variation selectors.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]"
)
_SPELLINGS = str.maketrans(
    {
        # Arabic script: keyboards of one country lack the letters of another
        "\u0671": "\u0627", "\u0649": "\u064a", "\u06cc": "\u064a", "\u06a9": "\u0643", "\u0629": "\u0647",
        "\u06c0": "\u0647", "\u06c1": "\u0647", "\u06d5": "\u0647",
        # Latin letters with strokes, which have no decomposition, and the dotless i
        "ı": "i", "ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe",
    }
)  # fmt: skip
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_DIGIT = re.compile(r"[^\D0-9]")
_TONE_BEFORE_VOWEL = re.compile("([\u0e4d\u0ecd])([\u0e48-\u0e4b\u0ec8-\u0ecb])")
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
    if text.isascii():
        return [word[:MAX_TOKEN] for word in _ASCII_WORD.findall(text.lower())]
    found: list[str] = []
    for match in _runs().finditer(_plain(text)):
        run = match.group()
        if not _IS_UNSPACED.match(run):
            found.append(run[:MAX_TOKEN])
            continue
        for index, char in enumerate(run):
            if len(run) == 1 or _IS_HAN.match(char):
                found.append(char)
            if index + 1 < len(run):
                found.append(run[index : index + 2])
    return found


@cache
def _runs() -> re.Pattern[str]:
    """Runs of one kind. Combining marks belong to the word, which ``\\w`` leaves out."""
    marks = [chr(c) for c in range(0x300, 0x1E950) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    inside = "".join(mark for mark in marks if not _IS_UNSPACED.match(mark))
    return re.compile(rf"[{_UNSPACED}]+|(?![{_UNSPACED}])[^\W_](?:(?![{_UNSPACED}])[^\W_]|[{inside}])*")


def _plain(text: str) -> str:
    """Folded text without the marks that writers leave out; for ASCII text it is the lower case.

    "prêt" and "pret" meet, as do full and half width, "Straße" and "STRASSE", final and other sigma, Arabic with and
    without vowels, hamza and Persian letters, digits of any script.
    """
    # Combining marks are dropped after decomposition; NFKC folds widths and ligatures.
    folded = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()
    bare = _MARKS.sub("", unicodedata.normalize("NFD", folded)).translate(_SPELLINGS)
    bare = _TONE_BEFORE_VOWEL.sub(r"\2\1", bare)  # both orders of a Thai or Lao tone and the vowel am are typed
    bare = _DIGIT.sub(lambda match: str(unicodedata.decimal(match.group())), bare)
    return unicodedata.normalize("NFC", bare)


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


def plain(text: str) -> str:
    """The folded text in which ``token_spans`` counts its places."""
    return text.lower() if text.isascii() else _plain(text)


def token_spans(folded: str, wanted: frozenset[str] | None = None) -> Iterator[tuple[str, int, int]]:
    """The tokens of folded text as ``tokens`` gives them, each with the offsets between which it stands there; with
    ``wanted`` only those, which is quicker."""
    if wanted is not None and (found := _standing(folded, wanted)) is not None:
        yield from found
        return
    if folded.isascii():
        for match in _ASCII_WORD.finditer(folded):
            token = match.group()[:MAX_TOKEN]
            if wanted is None or token in wanted:
                yield token, match.start(), match.end()
        return
    for match in _runs().finditer(folded):
        run = match.group()
        if _IS_UNSPACED.match(run):
            yield from _within(run, match.start(), wanted)
        elif wanted is None or run[:MAX_TOKEN] in wanted:
            yield run[:MAX_TOKEN], match.start(), match.end()


def _standing(folded: str, wanted: frozenset[str]) -> list[tuple[str, int, int]] | None:
    """Where the tokens stand as whole words, ascending. Looks for each, as most texts hold few; None where runs have
    to be taken apart to tell: cut tokens, scripts without spaces, a mark beside a token."""
    if any(len(token) >= MAX_TOKEN for token in wanted) or (not folded.isascii() and _IS_UNSPACED.search(folded)):
        return None
    found: list[tuple[str, int, int]] = []
    for token in wanted:
        at = folded.find(token) if token else -1
        while at >= 0:
            end = at + len(token)
            beside = folded[at - 1 : at] + folded[end : end + 1]
            if not beside.isascii() and any(unicodedata.category(char)[0] == "M" for char in beside):
                return None
            if not any(map(str.isalnum, beside)):
                found.append((token, at, end))
            at = folded.find(token, end)
    found.sort(key=itemgetter(1))
    return found


def _within(run: str, start: int, wanted: frozenset[str] | None) -> Iterator[tuple[str, int, int]]:
    """Tokens of a run without spaces."""
    if wanted is not None and len(run) > 1:
        for match in _any_of(wanted).finditer(run):
            at = start + match.start()
            if (char := match[1]) and _IS_HAN.match(char):
                yield char, at, at + 1
            if match[2]:
                yield match[2], at, at + 2
        return
    for index, char in enumerate(run):
        if (len(run) == 1 or _IS_HAN.match(char)) and (wanted is None or char in wanted):
            yield char, start + index, start + index + 1
        if index + 1 < len(run) and wanted is None:
            yield run[index : index + 2], start + index, start + index + 2


@lru_cache(maxsize=256)
def _any_of(wanted: frozenset[str]) -> re.Pattern[str]:
    """Where one of the single characters or of the pairs begins."""
    one = "|".join(re.escape(t) for t in wanted if len(t) == 1 and _IS_UNSPACED.match(t)) or r"(?!)"
    two = "|".join(re.escape(t) for t in wanted if len(t) == 2 and _IS_UNSPACED.match(t)) or r"(?!)"
    return re.compile(rf"(?={one}|{two})(?=({one})?)(?=({two})?)")
