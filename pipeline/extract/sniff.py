"""What a body is. What the bytes plainly are goes first, then what is declared; a name only refines the two.

Formats that are bytes are told by their own marks, whatever was declared. Kinds of text cannot be told apart so, and
the declared one is taken; ``text/plain`` is refined by the name's ending, as servers declare it for every source text.
"""

from __future__ import annotations

import re
from email.message import Message
from pathlib import PurePosixPath

from pipeline.extract.media import (
    BMP,
    BY_MEDIA,
    BY_SUFFIX,
    CODE_LANGUAGES,
    CONFLUENCE,
    GIF,
    HTML,
    JPEG,
    MAIL,
    PDF,
    PNG,
    RTF,
    TEXT,
    TIFF,
    WEBP,
)  # fmt: skip
from pipeline.extract.reading import refused
from pipeline.extract.sniff_containers import ole_refusal, zip_media

MARKUP = frozenset({HTML, CONFLUENCE, "application/xml", "text/xml"})  # their first lines may declare a charset

_UNKNOWN_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown",
                            "application/x-unknown", "unknown/unknown", "application/force-download"})  # fmt: skip
# Office files without reader, which are bytes as well: by the beginning of their types and by their names.
_OFFICE = ("application/msword", "application/rtf", "application/vnd.ms-", "application/vnd.oasis.opendocument.",
           "application/vnd.openxmlformats-", "application/zip", "application/x-zip")  # fmt: skip
_LEGACY = frozenset({".doc", ".xls", ".ppt", ".msg", ".ods", ".odp", ".odg", ".vsd", ".xlsb", ".zip"})
# Families whose members are never text, however textual a body looks: it is an error page or a placeholder.
_NEVER_TEXT = frozenset({"audio", "video", "image", "font", "model", "multipart"})
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_READ: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"\s{0,64}%PDF-\d"), PDF),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), PNG),
    (re.compile(rb"\xff\xd8\xff"), JPEG),
    (re.compile(rb"GIF8[79]a.{6}[\x00-\x1f\x7f-\xff]", re.DOTALL), GIF),
    (re.compile(rb"II(?:\*|\+)\x00|MM\x00(?:\*|\+)"), TIFF),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), WEBP),
    (re.compile(rb"BM.{4}\x00{4}.{4}[\x0c\x28\x34\x38\x40\x6c\x7c]\x00\x00\x00", re.DOTALL), BMP),
    (re.compile(rb"\s{0,64}\{\\rtf\d"), RTF),
)
_BINARY: tuple[tuple[re.Pattern[bytes], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), name)
    for pattern, name in (
        (rb"\x1f\x8b", "gzip-compressed data"),
        (rb"BZh[1-9]1AY&SY", "bzip2-compressed data"),
        (rb"\xfd7zXZ\x00", "xz-compressed data"),
        (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
        (rb"Rar!\x1a\x07", "a RAR archive"),
        (rb"\x28\xb5\x2f\xfd", "zstd-compressed data"),
        (rb"\x04\x22\x4d\x18", "lz4-compressed data"),
        (rb"MSCF\x00\x00\x00\x00", "a CAB archive"),
        (rb".{257}ustar(?:\x00|  \x00)", "a tar archive"),
        (rb"!<arch>\n", "an ar archive"),
        (rb"\x7fELF", "an ELF executable"),
        (rb"MZ.{58}.{2}\x00\x00", "a Windows executable"),
        (rb"\xca\xfe\xba\xbe|[\xce\xcf]\xfa\xed\xfe", "a Java class or Mach-O executable"),
        (rb"\x00asm", "a WebAssembly module"),
        (rb"SQLite format 3\x00", "an SQLite database"),
        (rb"PAR1.*PAR1\Z", "a Parquet file"),
        (rb"!BDN.{4}SM", "an Outlook data file"),
        (rb"ITSF\x03\x00", "a compiled HTML help file"),
        (rb"AT&TFORM", "a DjVu file"),
        (rb"8BPS\x00\x01", "a Photoshop image"),
        (rb"\x00\x00[\x01\x02]\x00.\x00", "an icon"),
        (rb"\x00\x00.{2}ftyp", "an ISO media file (MP4, HEIC or AVIF)"),
        (rb"\x1aE\xdf\xa3", "a Matroska file"),
        (rb"RIFF.{4}(?:WAVE|AVI )", "a WAVE or AVI file"),
        (rb"OggS\x00", "an Ogg file"),
        (rb"fLaC\x00", "a FLAC file"),
        (rb"ID3[\x02-\x04]\x00", "an MP3 file"),
        (rb"wOF[F2](?:\x00\x01\x00\x00|OTTO|true)", "a font"),
        (rb"%!PS-Adobe", "a PostScript file"),
    )
)  # fmt: skip
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--.{0,4000}?-->\s*){0,8}"
    rb"<(?:!doctype\s+html|html|head|body|main|article|section|div|p|h[1-6]|table|ul|ol|meta|title)\b",
    re.IGNORECASE | re.DOTALL,
)
_XML_START = re.compile(rb"\s*<\?xml\s")
_HEADER = re.compile(rb"(?:From [^\r\n]{1,500}\r?\n)?[!-9;-~]{1,76}:(?!//)")
_MAIL_HEADERS = frozenset({b"from", b"to", b"cc", b"subject", b"date", b"message-id", b"received", b"return-path",
                           b"mime-version", b"delivered-to", b"reply-to", b"content-type", b"in-reply-to",
                           b"x-mailer", b"dkim-signature"})  # fmt: skip
_WIDE = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))
# Control characters that no text has in number: C0 without tab, line feed, form feed, carriage return and escape.
_CONTROL = bytes(c for c in range(32) if c not in (9, 10, 12, 13, 27)) + b"\x7f"
_SAMPLE = 65_536
_FEW = 1000  # characters for each NUL that a text may have


def parse_content_type(content_type: str) -> tuple[str, str | None]:
    """Media type in lower case, and the declared charset or None."""
    message = Message()
    message["Content-Type"] = content_type.strip() or "application/octet-stream"
    declared = message.get_content_type() if "/" in content_type else ""
    charset = message.get_param("charset")
    return declared.lower(), charset.strip() if isinstance(charset, str) and charset.strip() else None


def media_type(body: bytes, declared: str, path: str | None) -> str:
    """The type the body is read as: one of ``media.BY_MEDIA`` or of ``media.CODE_LANGUAGES``.

    ``declared`` is a media type in lower case without parameters, '' for none; ``path`` is what the source calls the
    body. Raises DocumentError for a body that no reader exists for ('unsupported-type', 'binary'), one under a password
    ('encrypted'), a container that is damaged, an empty file of a format that is bytes ('malformed'), or a container
    that is too large to be a document ('bomb').
    """
    ending = PurePosixPath(path).suffix.lower() if path else ""
    named = BY_SUFFIX.get(ending)
    if not body or body.isspace():
        _refuse_empty(declared, ending)
    plain = _plain_type(body)
    if plain is not None:
        return plain
    refuse_binary(body)
    form = BY_MEDIA.get(declared)
    expected = {one.media for one in (form, named) if one is not None}
    if PDF in expected and b"%PDF-" in body[:1024]:  # with what a server or a printer put before it
        return PDF
    if MAIL in expected and _HEADER.match(body):
        return MAIL
    if declared in CODE_LANGUAGES:
        return declared
    if form is not None and form.textual:
        # HTML shown as plain text is the source of a page, and is meant to be read as such.
        refined = form.media == TEXT and named is not None and named.textual and named.media != HTML
        return named.media if refined and named is not None else form.media
    family = declared.partition("/")[0]
    if form is None and family in _NEVER_TEXT:
        remedy = "convert it to PNG, or put its text beside it" if family == "image" else "send what it says as text"
        raise refused(f"content_type: no reader for {declared!r}; {remedy}, or correct the declared type",
                      "unsupported-type")  # fmt: skip
    if declared.endswith("+json"):
        return "application/json"
    if declared.endswith("+xml"):
        return HTML if _html(body) else "application/xml"
    if family == "text":
        return named.media if named is not None and named.textual and named.media != HTML else TEXT
    return _sniffed_text(body, ending, mail=declared in _UNKNOWN_TYPES)


def _refuse_empty(declared: str, ending: str) -> None:
    """Raises DocumentError for a body without content where its type, or else its name, says that it is no text.

    Nothing may be written in a text; a PDF, a mail or an office file without bytes was lost on its way.
    """
    form, named = BY_MEDIA.get(declared), BY_SUFFIX.get(ending)
    told = declared in CODE_LANGUAGES or (form is not None and form.media != TEXT)
    if form is not None and not form.textual:
        kind = form.media
    elif not told and named is not None and not named.textual:
        kind = named.media
    elif form is None and declared.startswith(_OFFICE):
        kind = declared
    elif not told and ending in _LEGACY:
        kind = f"{ending} file"
    else:
        return
    raise refused(f"body: the file is empty, so it is no {kind}; send the whole file again", "malformed")


def _plain_type(body: bytes) -> str | None:
    """The type of a format that is bytes and has a reader; None for all else."""
    if body.startswith(_ZIP):
        return zip_media(body)
    if body.startswith(_OLE):
        raise ole_refusal(body)
    return next((media for pattern, media in _READ if pattern.match(body)), None)


def _sniffed_text(body: bytes, ending: str, *, mail: bool) -> str:
    """The kind of a text that nothing useful is declared of."""
    if _html(body):
        return HTML
    if mail and _typical_headers(body) >= 2:
        return MAIL
    named = BY_SUFFIX.get(ending)
    # The name decides only between kinds of text, once the bytes are known to be text.
    if named is not None and named.textual and named.media != HTML:
        return named.media
    return "application/xml" if _XML_START.match(_narrow(body)) else TEXT


def _html(body: bytes) -> bool:
    return _HTML_START.match(_narrow(body)) is not None


def _narrow(body: bytes) -> bytes:
    """The beginning of a body in an ASCII superset and without byte order mark, for patterns."""
    sample = body[:_SAMPLE]
    for bom, name in _WIDE:
        if sample.startswith(bom):
            return sample[len(bom) :].decode(name, "replace").encode("utf-8", "replace")
    return sample


def _typical_headers(body: bytes) -> int:
    """How many headers of mail stand before anything else."""
    found: set[bytes] = set()
    for line in body[:8192].splitlines()[:40]:
        if line[:1] in (b" ", b"\t") and found:
            continue
        name, colon, _ = line.partition(b":")
        if not colon or not name or any(c <= 32 or c >= 127 for c in name):
            break
        if name.lower() in _MAIL_HEADERS:
            found.add(name.lower())
    return len(found)


def refuse_binary(body: bytes) -> None:
    """Raises DocumentError for bodies that are known binary formats without reader, whatever was declared."""
    for pattern, name in _BINARY:
        if pattern.match(body):
            raise refused(
                f"body: the content is {name}, not a document; send a document, or the files in it one by one", "binary"
            )


def refuse_control_characters(text: str) -> None:
    """Raises DocumentError for decoded text that holds more NULs or control characters than slip into a text."""
    position = text.find("\x00")
    if position >= 0 and text.count("\x00") * _FEW > len(text):
        raise refused(
            f"body: NUL character at position {position}; the content is binary or its charset is declared wrong",
            "binary",
        )
    sample = text[:_SAMPLE].encode("utf-8", "replace")
    controls = len(sample) - len(sample.translate(None, _CONTROL))
    if controls > 8 and controls * 50 > len(sample):
        raise refused(
            f"body: {controls} control characters in the first {len(sample)} bytes; the content is binary", "binary"
        )
