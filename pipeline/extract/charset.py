"""Bytes to text: what is declared first, then strict UTF-8, then a guess that says so."""

from __future__ import annotations

import codecs
import re

from pipeline.extract import charset_guess as guessing
from pipeline.extract.charset_guess import strict
from pipeline.extract.reading import refused

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
# Single-byte labels that are put on UTF-8 by servers and editors that know no better.
_SINGLE_BYTE = re.compile(r"(?:cp125\d|iso8859-\d+|ascii|latin.*|koi8-[ru]|cp437|cp850|mac-roman)$")
_BROKEN = 3  # valid sequences of UTF-8 for each broken one, from which on a body is damaged UTF-8 and nothing else


def decode(body: bytes, declared: str | None, *, markup: bool) -> tuple[str, tuple[str, ...]]:
    """Text of ``body`` with line ends normalised, and warnings, each beginning with ``charset:``.

    Order: byte order mark, ``declared`` (the content type's charset), for markup its meta element, strict UTF-8, UTF-8
    with a few broken bytes (replaced by U+FFFD), a guess. A BOM goes first because it is evidence in the bytes
    themselves; for the same reason UTF-8 with characters beyond ASCII is read as such where a single-byte charset is
    declared, and ASCII where UTF-16 is. A guess carries a warning of low trust. Raises DocumentError ('charset').
    """
    text, warnings = _decode(body, declared, markup=markup)
    return text.replace("\r\n", "\n").replace("\r", "\n"), tuple(warnings)


def _decode(body: bytes, declared: str | None, *, markup: bool) -> tuple[str, list[str]]:
    warnings: list[str] = []
    for bom, name in _BOMS:
        if body.startswith(bom):
            text = strict(body[len(bom) :], name)
            if text is not None:
                return text, warnings
            warnings.append(f"charset: the byte order mark says {name}, but the body is not valid {name}")
            break
    for origin, label in _declarations(body, declared, markup):
        known = _codec(label)
        if known is None:
            warnings.append(f"charset: {origin} declares {label!r}, which is not known")
            continue
        text = strict(body, _SUPERSET.get(known, known))
        if text is None and known in _SUPERSET:
            text = strict(body, known)
        if text is None:
            warnings.append(f"charset: {origin} declares {label}, but the body is not valid {label}")
            continue
        better = _plainly_utf8(body, known)
        if better is None:
            return text, warnings
        return better, [*warnings, f"charset: {origin} declares {label}, but the body is UTF-8 and is read as such"]
    found = guessing.wide(body)
    if found is not None:
        return found[0], [*warnings, f"charset: none declared; read as {found[1]} with low trust"]
    text = strict(body, "utf-8")
    if text is not None:
        return text, warnings
    text, broken = _repaired(body)
    if text is not None:
        return text, [*warnings, f"charset: {broken} byte sequences are not valid UTF-8 and are replaced"]
    found = guessing.guess(body)
    if found is None:
        raise refused(
            "body: neither UTF-8 nor any charset that could be recognised; declare it in content_type "
            "(text/plain; charset=...)",
            "charset",
        )
    return found[0], [*warnings, f"charset: none declared and not UTF-8; read as {found[1]} with low trust"]


def _codec(label: str) -> str | None:
    """The codec that a label names; None for what is no charset of a document."""
    for name in (label, label.lower().removeprefix("x-"), label.lower().replace("mb4", "")):
        try:
            found = codecs.lookup(name).name
        except (LookupError, ValueError):  # ValueError: a NUL in the label
            continue
        return None if found in _NOT_CHARSETS else found
    return None


def _plainly_utf8(body: bytes, declared: str) -> str | None:
    """The body as UTF-8 where that is evident although another charset that fits is declared."""
    if declared.startswith(("utf-16", "utf-32")):
        return None if b"\x00" in body else strict(body, "utf-8")
    if _SINGLE_BYTE.match(declared) and not body.isascii():
        return strict(body, "utf-8")
    return None


def _repaired(body: bytes) -> tuple[str | None, int]:
    """The body as UTF-8 with its broken sequences replaced, and their number; None where they are too many."""
    text = body.decode("utf-8", "replace")
    broken = text.count("\ufffd") - body.count(b"\xef\xbf\xbd")
    ascii_bytes = len(body.translate(None, bytes(range(128, 256))))
    valid = len(text) - ascii_bytes - broken
    return (text if valid > _BROKEN * broken else None), broken


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
