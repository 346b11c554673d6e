"""Bytes to text: what is declared first, then strict UTF-8, then a guess that says so."""

from __future__ import annotations

import codecs
import re

from pipeline.errors import DocumentError
from pipeline.extract.sniff import STAGE

_BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META = re.compile(rb"<meta[^>]{0,300}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:\-]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_.:\-]{1,40})", re.IGNORECASE)
# Labels that the web uses for their Windows supersets (as browsers read them).
_SUPERSET = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
}
# Codecs that decode text but are no charset of a document.
_NOT_CHARSETS = frozenset({"punycode", "idna", "unicode-escape", "raw-unicode-escape", "utf-7", "undefined"})
# What a guess may come out as: encodings met in wikis and mail. A wider list only adds ways to be wrong.
_GUESSES = [
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "cp932", "euc_jp",
    "gb18030", "big5", "cp949", "utf_16_le", "utf_16_be",
]  # fmt: skip


# In short texts these are told from Western European by chance; where both readings are plausible the commoner wins.
_NEAR_WESTERN = frozenset({"cp1250", "cp1254"})
_WESTERN_MARKS = frozenset("\u00a0“”„‘’‚–—…€£§°«»¿¡•©®™·²½¼×")


def decode(body: bytes, declared: str | None, *, markup: bool) -> tuple[str, tuple[str, ...]]:
    """Text of ``body`` with line ends normalised, and warnings.

    Order: byte order mark, ``declared`` (the content type's charset), for markup its meta element, strict UTF-8, a
    guess. A BOM goes first because it is evidence in the bytes themselves. A guess carries a warning of low trust.
    """
    text, warnings = _decode(body, declared, markup=markup)
    return text.replace("\r\n", "\n").replace("\r", "\n"), tuple(warnings)


def _decode(body: bytes, declared: str | None, *, markup: bool) -> tuple[str, list[str]]:
    warnings: list[str] = []
    for bom, name in _BOMS:
        if body.startswith(bom):
            text = _strict(body[len(bom) :], name)
            if text is not None:
                return text, warnings
            warnings.append(f"charset: the byte order mark says {name}, but the body is not valid {name}")
            break
    for origin, label in _declarations(body, declared, markup):
        try:
            name = codecs.lookup(label).name
        except (LookupError, ValueError):  # ValueError: a NUL in the label
            name = "undefined"
        if name in _NOT_CHARSETS:
            warnings.append(f"charset: {origin} declares {label!r}, which is not known")
            continue
        text = _strict(body, _SUPERSET.get(name, name))
        if text is None and name in _SUPERSET:
            text = _strict(body, name)
        if text is not None:
            return text, warnings
        warnings.append(f"charset: {origin} declares {label}, but the body is not valid {label}")
    wide = _looks_utf16(body)
    text = _strict(body, wide) if wide is not None else None
    if text is not None:
        warnings.append(f"charset: none declared; read as {wide} with low trust")
        return text, warnings
    text = _strict(body, "utf-8")
    if text is not None:
        return text, warnings
    return _guess(body, warnings)


def _declarations(body: bytes, declared: str | None, markup: bool) -> list[tuple[str, str]]:
    found = [("the content type", declared)] if declared else []
    if markup:
        head = body[:4096]
        match = _META.search(head) or _XML.search(head)
        if match:
            label = match.group(1).decode("ascii")
            # A meta element that could be read as ASCII cannot truly be UTF-16; browsers take it for UTF-8.
            found.append(("the document", "utf-8" if label.lower().startswith("utf-16") else label))
    return [(origin, label) for origin, label in found if label]


def _strict(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name, "strict")
    except (UnicodeError, LookupError):  # LookupError: a codec that is not for text (base64, zlib)
        return None


def _looks_utf16(body: bytes) -> str | None:
    """UTF-16 without a mark shows as a NUL in nearly every second byte of Western text."""
    head = body[:4096]
    half = len(head) // 2
    if half < 4 or len(body) % 2:
        return None
    even, odd = head[0 : 2 * half : 2].count(0), head[1 : 2 * half : 2].count(0)
    if odd > half * 0.7 and even == 0:
        return "utf-16-le"
    return "utf-16-be" if even > half * 0.7 and odd == 0 else None


def _guess(body: bytes, warnings: list[str]) -> tuple[str, list[str]]:
    from charset_normalizer import from_bytes

    found = from_bytes(body, cp_isolation=_GUESSES, preemptive_behaviour=False)
    best = found.best()
    # Detection samples large bodies; the whole must decode all the same.
    text = _strict(body, best.encoding) if best is not None else None
    name = best.encoding if best is not None and text is not None else "cp1252"
    if text is None or name in _NEAR_WESTERN:
        western = _strict(body, "cp1252")
        rival = max((match.coherence for match in found if match.encoding == "cp1252"), default=0.0)
        if western is not None and (text is None or (best and rival >= best.coherence and _is_western(western))):
            text, name = western, "cp1252"
    if text is None:
        raise DocumentError(
            "body: neither UTF-8 nor any charset that could be recognised; declare it in content_type "
            "(text/plain; charset=...)",
            stage=STAGE,
            kind="charset",
        )
    warnings.append(f"charset: none declared and not UTF-8; read as {name} with low trust")
    return text, warnings


def _is_western(text: str) -> bool:
    """Whether all that is not ASCII is letters and the punctuation of Western text."""
    return all(char.isalpha() or char in _WESTERN_MARKS for char in set(text) if not char.isascii())
