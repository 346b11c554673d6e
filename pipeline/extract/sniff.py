"""What a body is: the declared media type where it is one we know, else its first bytes; never the extension alone."""

from __future__ import annotations

import re
from email.message import Message

from pipeline.errors import DocumentError

STAGE = "extract"
HTML, MARKDOWN, TEXT = "text/html", "text/markdown", "text/plain"

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_MARKDOWN_TYPES = frozenset({"text/markdown", "text/x-markdown", "application/markdown"})
_UNKNOWN_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown"})
# Textual application types: their body is one code block, cut at line ends if at all.
_CODE_LANGUAGES = {
    "application/json": "json",
    "application/ld+json": "json",
    "application/xml": "xml",
    "text/xml": "xml",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "application/toml": "toml",
    "application/javascript": "javascript",
    "text/javascript": "javascript",
    "text/css": "css",
    "text/x-python": "python",
    "application/x-sh": "sh",
    "application/sql": "sql",
}
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "a PDF file"),
    (b"PK\x03\x04", "a ZIP container (DOCX, XLSX, PPTX, ODT or an archive)"),
    (b"PK\x05\x06", "an empty ZIP container"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an OLE container (DOC, XLS, PPT or MSG)"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"\x1f\x8b", "gzip-compressed data"),
    (b"BZh91AY&SY", "bzip2-compressed data"),
    (b"\xfd7zXZ\x00", "xz-compressed data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
    (b"\x7fELF", "an ELF executable"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"{\\rtf", "an RTF file"),
    (b"OggS\x00", "an Ogg file"),
    (b"ID3\x03", "an MP3 file"),
    (b"ID3\x04", "an MP3 file"),
)
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--.{0,4000}?-->\s*)*"
    rb"<(?:!doctype\s+html|html|head|body|main|article|section|div|p|h[1-6]|table|ul|ol|meta|title)\b",
    re.IGNORECASE | re.DOTALL,
)
_MARKDOWN_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
# Control characters that no text has in number: C0 without tab, line feed, form feed, carriage return and escape.
_CONTROL = bytes(c for c in range(32) if c not in (9, 10, 12, 13, 27)) + b"\x7f"
_SAMPLE = 65_536


def parse_content_type(content_type: str) -> tuple[str, str | None]:
    """Media type in lower case, and the declared charset or None."""
    message = Message()
    message["Content-Type"] = content_type.strip() or "application/octet-stream"
    declared = message.get_content_type() if "/" in content_type else ""
    charset = message.get_param("charset")
    return declared.lower(), charset.strip() if isinstance(charset, str) and charset.strip() else None


def media_type(body: bytes, declared: str, path: str | None) -> str:
    """The type the body is read as: one of HTML, MARKDOWN, TEXT, or a textual type of ``code_language``.

    Raises DocumentError for a declared type that no reader exists for.
    """
    if declared in _HTML_TYPES:
        return HTML
    if declared in _MARKDOWN_TYPES:
        return MARKDOWN
    if declared in _CODE_LANGUAGES:
        return declared
    if declared in _UNKNOWN_TYPES:
        return _sniff_text(body, path)
    if declared.startswith("text/"):
        return TEXT
    raise DocumentError(
        f"content_type: no reader for {declared!r}; send HTML, Markdown or text, or correct the declared type",
        stage=STAGE,
        kind="unsupported-type",
    )


def _sniff_text(body: bytes, path: str | None) -> str:
    if _HTML_START.match(body[:_SAMPLE].lstrip(b"\xef\xbb\xbf")):
        return HTML
    # The extension decides only between kinds of text, once the bytes are known to be text.
    if path is not None and path.lower().endswith(_MARKDOWN_SUFFIXES):
        return MARKDOWN
    return TEXT


def code_language(media: str) -> str | None:
    """Language of a body that is code as a whole, or None."""
    return _CODE_LANGUAGES.get(media)


def refuse_binary(body: bytes) -> None:
    """Raises DocumentError for bodies that are known binary formats, whatever was declared."""
    for magic, name in _MAGIC:
        if body.startswith(magic):
            raise DocumentError(
                f"body: the content is {name}, not text; declare its real type or send it as text",
                stage=STAGE,
                kind="binary",
            )


def refuse_control_characters(text: str) -> None:
    """Raises DocumentError for decoded text that holds NULs or is full of control characters."""
    position = text.find("\x00")
    if position >= 0:
        raise DocumentError(
            f"body: NUL character at position {position}; the content is binary or its charset is declared wrong",
            stage=STAGE,
            kind="binary",
        )
    sample = text[:_SAMPLE].encode("utf-8", "replace")
    controls = len(sample) - len(sample.translate(None, _CONTROL))
    if controls > 8 and controls * 50 > len(sample):
        raise DocumentError(
            f"body: {controls} control characters in the first {len(sample)} bytes; the content is binary",
            stage=STAGE,
            kind="binary",
        )
