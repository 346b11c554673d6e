"""Documents made to harm their reader: each small to send and large, deep or endless to read."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Mapping

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_LAUGHS = (
    "<!DOCTYPE lolz [<!ENTITY a0 'ha'>" + "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 11)) + "]>"
)
_TYPES = (
    b'<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    b'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    b'<Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType='
    b'"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    b'<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    b'<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    b'Target="word/document.xml"/></Relationships>'
)


def zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def docx(document: bytes) -> bytes:
    return zipped({"[Content_Types].xml": _TYPES, "_rels/.rels": _RELATIONS, "word/document.xml": document})


def word(paragraphs: str) -> bytes:
    return f'<w:document xmlns:w="{_WORD}"><w:body>{paragraphs}</w:body></w:document>'.encode()


def docx_zip_bomb() -> bytes:
    text = "<w:p><w:r><w:t>" + "ha " * 25_000_000 + "</w:t></w:r></w:p>"
    return docx(word(text))


def docx_laughs() -> bytes:
    return docx(b'<?xml version="1.0"?>' + _LAUGHS.encode() + word("<w:p><w:r><w:t>&a10;</w:t></w:r></w:p>"))


def docx_deep() -> bytes:
    depth = 100_000
    return docx(word("<w:tbl><w:tr><w:tc>" * depth + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * depth))


def docx_truncated() -> bytes:
    whole = docx(word("<w:p><w:r><w:t>text</w:t></w:r></w:p>" * 100))
    return whole[: len(whole) // 2]


def epub_zip_bomb() -> bytes:
    container = (
        b'<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        b'<rootfiles><rootfile full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    page = b"<html><body><p>" + b"ha " * 25_000_000 + b"</p></body></html>"
    return zipped({"mimetype": b"application/epub+zip", "META-INF/container.xml": container, "a.xhtml": page})


def ooxml_encrypted() -> bytes:
    """A compound file as Office writes it under a password: its directory names EncryptedPackage."""
    free, end = 0xFFFFFFFF, 0xFFFFFFFE

    def entry(name: str, kind: int, child: int, sibling: int, start: int, size: int) -> bytes:
        raw = name.encode("utf-16-le") + b"\0\0"
        return (
            raw.ljust(64, b"\0")
            + struct.pack("<HBBIII", len(raw), kind, 1, free, sibling, child)
            + bytes(36)
            + struct.pack("<IQ", start, size)
        )

    header = (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
        + bytes(16)
        + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6)
        + bytes(6)
        + struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, end, 0, end, 0)
        + struct.pack("<I", 0)
        + struct.pack("<I", free) * 108
    )
    table = struct.pack("<III", 0xFFFFFFFD, end, end) + struct.pack("<I", free) * 125
    directory = (
        entry("Root Entry", 5, 1, free, end, 0)
        + entry("EncryptedPackage", 2, free, 2, end, 0)
        + entry("EncryptionInfo", 2, free, free, end, 0)
        + bytes(128)
    )
    return header + table + directory


def html_laughs() -> bytes:
    return f"{_LAUGHS}<html><body><p>&a10;</p></body></html>".encode()


def html_deep() -> bytes:
    return b"<div>" * 100_000 + b"bottom" + b"</div>" * 100_000


def html_deep_lists() -> bytes:
    return b"<ul><li>" * 100_000 + b"bottom"


def html_deep_tables() -> bytes:
    return b"<table><tr><td>" * 30_000 + b"bottom"


def html_wide_cell() -> bytes:
    return b"<table><tr>" + b'<td colspan="1000000" rowspan="1000000">x</td>' * 100 + b"</tr></table>"


def confluence_deep() -> bytes:
    macro = '<ac:structured-macro ac:name="panel"><ac:rich-text-body>'
    return (macro * 50_000 + "<p>bottom</p>" + "</ac:rich-text-body></ac:structured-macro>" * 50_000).encode()


def xml_laughs() -> bytes:
    return f"{_LAUGHS}<p>&a10;</p>".encode()


def markdown_quotes() -> bytes:
    return b"> " * 100_000 + b"bottom"


def markdown_lists() -> bytes:
    return b"- " * 100_000 + b"bottom"


def markdown_brackets() -> bytes:
    return b"[" * 100_000 + b"bottom" + b"](" * 100_000


def markdown_emphasis() -> bytes:
    return b"*a **b " * 50_000


def line_of_50_mb() -> bytes:
    return b"word" * 12_500_000


def pdf_with(objects: list[bytes]) -> bytes:
    """A PDF of these objects, the first one the catalogue."""
    data, places = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    data += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, rows)
    return data + b"trailer <</Size %d /Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, start)


def pdf_page_loop() -> bytes:
    return pdf_with([
        b"<</Type/Catalog /Pages 2 0 R>>",
        b"<</Type/Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type/Pages /Kids [2 0 R 3 0 R] /Count 1 /Parent 3 0 R>>",
    ])  # fmt: skip


def pdf_length_loop() -> bytes:
    return pdf_with([
        b"<</Type/Catalog /Pages 2 0 R>>",
        b"<</Type/Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type/Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources 5 0 R>>",
        b"<</Length 4 0 R>>\nstream\nBT ET\nendstream",
        b"5 0 R",
    ])  # fmt: skip


def pdf_many_pages() -> bytes:
    """Few objects, half a million pages: every kid is the same one."""
    kids = b"3 0 R " * 500_000
    return pdf_with([
        b"<</Type/Catalog /Pages 2 0 R>>",
        b"<</Type/Pages /Kids [" + kids + b"] /Count 500000>>",
        b"<</Type/Page /Parent 2 0 R /MediaBox [0 0 9 9]>>",
    ])  # fmt: skip


def pdf_form_loop() -> bytes:
    """Forms that draw one another: each level doubles the work."""
    levels = 40
    forms = [
        b"<</Type/XObject /Subtype/Form /BBox [0 0 9 9] /Resources <</XObject <</F %d 0 R>>>> /Length 11>>\n"
        b"stream\n/F Do /F Do\nendstream" % (5 + (level + 1) % levels)
        for level in range(levels)
    ]
    return pdf_with([
        b"<</Type/Catalog /Pages 2 0 R>>",
        b"<</Type/Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type/Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources <</XObject <</F 5 0 R>>>>>>",
        b"<</Length 5>>\nstream\n/F Do\nendstream",
        *forms,
    ])  # fmt: skip


def pdf_of_one_line(text: str) -> bytes:
    """A sound one."""
    content = f"BT /F 24 Tf 72 700 Td ({text}) Tj ET".encode()
    return pdf_with([
        b"<</Type/Catalog /Pages 2 0 R>>",
        b"<</Type/Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type/Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources <</Font <</F 5 0 R>>>>>>",
        b"<</Length %d>>\nstream\n%s\nendstream" % (len(content), content),
        b"<</Type/Font /Subtype/Type1 /BaseFont/Helvetica /Encoding/WinAnsiEncoding>>",
    ])  # fmt: skip


DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
CONFLUENCE = "application/vnd.atlassian.confluence"
# Content type, body, kinds of error it may end in ('' for a result).
BOMBS: dict[str, tuple[str, Callable[[], bytes], set[str]]] = {
    "docx, zip bomb": (DOCX, docx_zip_bomb, {"bomb"}),
    "docx, billion laughs": (DOCX, docx_laughs, {"bomb"}),
    "docx, 100,000 tables in each other": (DOCX, docx_deep, {"bomb", "nesting", "malformed", "memory-limit", ""}),
    "docx, truncated": (DOCX, docx_truncated, {"malformed"}),
    "docx, under a password": (DOCX, ooxml_encrypted, {"encrypted"}),
    "epub, zip bomb": ("application/epub+zip", epub_zip_bomb, {"bomb"}),
    "html, billion laughs": ("text/html", html_laughs, {"bomb", ""}),
    "html, 100,000 levels": ("text/html", html_deep, {"nesting", ""}),
    "html, 100,000 lists in each other": ("text/html", html_deep_lists, {"nesting", ""}),
    "html, 30,000 tables in each other": ("text/html", html_deep_tables, {"nesting", ""}),
    "html, cells that span a million": ("text/html", html_wide_cell, {""}),
    "confluence, 50,000 macros in each other": (CONFLUENCE, confluence_deep, {"nesting", ""}),
    "confluence, billion laughs": (CONFLUENCE, xml_laughs, {"bomb", "malformed", ""}),
    "markdown, 100,000 quotations in each other": ("text/markdown", markdown_quotes, {"nesting", "time-limit", ""}),
    "markdown, 100,000 lists in each other": ("text/markdown", markdown_lists, {"nesting", "time-limit", ""}),
    "markdown, 100,000 brackets": ("text/markdown", markdown_brackets, {"nesting", "time-limit", ""}),
    "markdown, 50,000 emphases": ("text/markdown", markdown_emphasis, {"nesting", "time-limit", ""}),
    "text, a line of 50 MB": ("text/plain", line_of_50_mb, {"memory-limit", ""}),
    "html, a line of 50 MB": ("text/html", line_of_50_mb, {"memory-limit", "time-limit", ""}),
    "pdf, pages that hold each other": ("application/pdf", pdf_page_loop, {"malformed", "bomb", ""}),
    "pdf, a stream as its own length": ("application/pdf", pdf_length_loop, {"malformed", "bomb", ""}),
    "pdf, 500,000 pages": ("application/pdf", pdf_many_pages, {"malformed", "bomb", "too-many-pages", "time-limit"}),
    "pdf, forms that draw each other": (
        "application/pdf",
        pdf_form_loop,
        {"malformed", "bomb", "time-limit", "memory-limit", ""},
    ),
}
