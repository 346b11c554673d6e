"""What a body is: its bytes first, then what is declared, then its name."""

from __future__ import annotations

import io
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable

import pytest

from pipeline.errors import DocumentError
from pipeline.extract import BlockExtractor, sniff
from pipeline.extract.media import (
    ASCIIDOC,
    BMP,
    CSV,
    DOCX,
    EPUB,
    GIF,
    HTML,
    JPEG,
    MAIL,
    MARKDOWN,
    ODT,
    PDF,
    PNG,
    PPTX,
    RST,
    RTF,
    TEXT,
    TIFF,
    TSV,
    WEBP,
    WIKITEXT,
    XLSX,
)  # fmt: skip

DECLARED = ["", "text/plain", "text/html", "application/octet-stream", "application/msword", "image/png", "video/mp4"]


def zipped(members: dict[str, bytes]) -> bytes:
    """A ZIP container; the member ``mimetype`` is stored, as its formats want it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data, zipfile.ZIP_STORED if name == "mimetype" else None)
    return target.getvalue()


def office(part: str) -> bytes:
    return zipped({"[Content_Types].xml": b"<Types/>", "_rels/.rels": b"<x/>", part: b"<x/>"})


def ole(*streams: str) -> bytes:
    """An OLE container with a directory that names the streams (MS-CFB 2.6.1: name, its length in bytes, type)."""
    entries = b""
    for name in ("Root Entry", *streams):
        raw = name.encode("utf-16-le")
        entries += raw.ljust(64, b"\0") + struct.pack("<HB", len(raw) + 2, 2) + b"\0" * 61
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(512, b"\0") + entries


def image(form: str) -> bytes:
    from PIL import Image

    target = io.BytesIO()
    Image.new("RGB", (3, 2), (250, 10, 10)).save(target, form)
    return target.getvalue()


def tarred() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("notes.txt"))
    return target.getvalue()


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize(
    ("make", "media"),
    [
        (lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", PDF),
        (lambda: image("PNG"), PNG),
        (lambda: image("JPEG"), JPEG),
        (lambda: image("GIF"), GIF),
        (lambda: image("TIFF"), TIFF),
        (lambda: image("WEBP"), WEBP),
        (lambda: image("BMP"), BMP),
        (lambda: office("word/document.xml"), DOCX),
        (lambda: office("ppt/presentation.xml"), PPTX),
        (lambda: office("xl/workbook.xml"), XLSX),
        (lambda: zipped({"mimetype": b"application/vnd.oasis.opendocument.text", "content.xml": b"<x/>"}), ODT),
        (lambda: zipped({"mimetype": b"application/epub+zip", "META-INF/container.xml": b"<x/>"}), EPUB),
        (lambda: b"{\\rtf1\\ansi Text}", RTF),
    ],
)
def test_the_bytes_of_a_format_go_before_its_declaration(
    make: Callable[[], bytes], media: str, declared: str
) -> None:  # fmt: skip
    assert sniff.media_type(make(), declared, "notes.txt") == media


@pytest.mark.requirement("A2", "I8")
@pytest.mark.parametrize(
    ("make", "kind", "named"),
    [
        (lambda: ole("EncryptionInfo", "EncryptedPackage"), "encrypted", "remove its password"),
        (lambda: ole("WordDocument", "1Table"), "unsupported-type", "save it as DOCX"),
        (lambda: ole("Workbook"), "unsupported-type", "save it as XLSX"),
        (lambda: ole("PowerPoint Document"), "unsupported-type", "save it as PPTX"),
        (lambda: ole("__properties_version1.0"), "unsupported-type", "save it as EML"),
        (lambda: ole("Other"), "binary", "OLE container"),
        (lambda: office("xl/workbook.bin"), "unsupported-type", "save it as XLSX"),
        (lambda: zipped({"mimetype": b"application/vnd.oasis.opendocument.spreadsheet"}), "unsupported-type", "XLSX"),
        (lambda: zipped({"a.txt": b"text"}), "binary", "ZIP archive"),
        (lambda: zipped({"word/document.xml": b"<x/>"}), "binary", "ZIP archive"),
        (lambda: office("word/document.xml")[:-40], "malformed", "ZIP container"),
        (lambda: tarred(), "binary", "tar archive"),
        (lambda: b"Rar!\x1a\x07\x01\x00", "binary", "RAR"),
        (lambda: b"\x00\x00\x00\x18ftypmp42", "binary", "MP4"),
    ],
)
@pytest.mark.parametrize("declared", ["", "text/plain", "application/pdf"])
def test_what_has_no_reader_is_refused_by_its_name(
    make: Callable[[], bytes], kind: str, named: str, declared: str
) -> None:
    with pytest.raises(DocumentError, match=named) as caught:
        sniff.media_type(make(), declared, "page.md")
    assert (caught.value.stage, caught.value.kind) == ("extract", kind)


@pytest.mark.requirement("A2", "I8")
def test_encrypted_containers_are_refused_as_such() -> None:
    whole = bytearray(office("word/document.xml"))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of local and central headers
        at = whole.find(mark)
        while at >= 0:
            whole[at + offset] |= 1
            at = whole.find(mark, at + 4)
    manifest = b'<manifest:encryption-data manifest:checksum="x"/>'
    writer = {"mimetype": b"application/vnd.oasis.opendocument.text", "META-INF/manifest.xml": manifest}
    book = {"mimetype": b"application/epub+zip", "META-INF/rights.xml": b"<x/>"}
    for body in (bytes(whole), zipped(writer), zipped(book)):
        with pytest.raises(DocumentError) as caught:
            sniff.media_type(body, "", None)
        assert caught.value.kind == "encrypted"


@pytest.mark.requirement("A2", "I8")
def test_a_directory_beyond_any_document_is_refused_unread() -> None:
    body = zipped({"a": b""})
    at = body.rfind(b"PK\x05\x06")
    huge = body[: at + 12] + struct.pack("<I", 1 << 30) + body[at + 16 :]
    with pytest.raises(DocumentError) as caught:
        sniff.media_type(huge, "", None)
    assert caught.value.kind == "bomb"


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("body", "declared", "path", "media"),
    [
        # a name refines text/plain and what is unknown, and nothing else
        (b"Title\n=====", "text/plain", "guide.rst", RST),
        (b"= Title", "text/plain", "GUIDE.ADOC", ASCIIDOC),
        (b"# Title", "text/plain", "docs/readme.md", MARKDOWN),
        (b"a,b", "text/plain", "x.csv", CSV),
        (b"a\tb", "", "x.tsv", TSV),
        (b"== T ==", "application/octet-stream", "x.mediawiki", WIKITEXT),
        (b"# Title", "text/markdown", "x.rst", MARKDOWN),
        (b"# Title", "text/x-markdown", None, MARKDOWN),
        (b"<p>source of a page", "text/plain", "x.html", TEXT),
        (b"plain words", "text/plain", "x.pdf", TEXT),
        # declared as bytes, but text: an export, an error page
        (b"<html><table><tr><td>1", "application/vnd.ms-excel", "x.xls", HTML),
        (b"a;b\n1;2", "application/vnd.ms-excel", "x.csv", CSV),
        (b"<!doctype html><h1>404", "application/pdf", "x.pdf", HTML),
        (b"words", "application/pdf", "x.pdf", TEXT),
        (b"words", "application/x-anything", None, TEXT),
        (b"words", "text/x-anything", None, TEXT),
        (b'{"a": 1}', "application/vnd.api+json", None, "application/json"),
        (b"<feed/>", "application/atom+xml", None, "application/xml"),
        (b"<?xml version='1.0'?><feed/>", "", None, "application/xml"),
        ("<!doctype html><p>ä".encode("utf-16"), "", None, HTML),
        # mail only where it is declared, named so, or nothing is known
        (b"Subject: a\r\nFrom: b@c\r\n\r\ntext", "", None, MAIL),
        (b"Subject: a\r\n\r\ntext", "message/rfc822", None, MAIL),
        (b"From x Mon\nSubject: a\n\ntext", "text/plain", "a.eml", MAIL),
        (b"Subject: a\r\nFrom: b@c\r\n\r\ntext", "text/plain", "a.txt", TEXT),
        (b"Subject: a\nMatter: b\n\ntext", "", None, TEXT),
        (b"no header here", "message/rfc822", None, TEXT),
        # words that only look like marks of a format
        (b"BMW and BMI are words", "", None, TEXT),
        (b"GIF89a is the second version", "", None, TEXT),
        (b"the ftyp box of MP4", "", None, TEXT),
        (b"PDF starts with %PDF-1.7", "text/plain", "x.txt", TEXT),
        (b"HTTP/1.1 200 OK\r\n\r\n%PDF-1.4\n", "application/pdf", None, PDF),
        (b"", "", None, TEXT),
    ],
)
def test_kinds_of_text_are_told_by_declaration_then_name(
    body: bytes, declared: str, path: str | None, media: str
) -> None:
    assert sniff.media_type(body, declared, path) == media


@pytest.mark.requirement("A2", "I8")
@pytest.mark.parametrize("declared", ["video/mp4", "image/svg+xml", "audio/mpeg", "font/woff2", "multipart/mixed"])
def test_families_that_are_never_text_are_refused_by_name(declared: str) -> None:
    with pytest.raises(DocumentError, match=declared.replace("+", r"\+")) as caught:
        sniff.media_type(b"<svg/>", declared, None)
    assert caught.value.kind == "unsupported-type"


@pytest.mark.requirement("A2", "I8")
def test_damaged_containers_end_in_a_refusal_or_a_type() -> None:
    chance = random.Random(7)
    originals = [office("word/document.xml"), ole("WordDocument"), image("PNG"), tarred(),
                 zipped({"mimetype": b"application/epub+zip", "a": b"x" * 99})]  # fmt: skip
    refused = 0
    for _ in range(1500):
        body = bytearray(chance.choice(originals))
        for _ in range(chance.randrange(1, 12)):
            body[chance.randrange(4, len(body))] = chance.randrange(256)
        try:
            sniff.media_type(bytes(body[: chance.randrange(4, len(body) + 1)]), "", None)
        except DocumentError as error:
            refused += 1
            assert error.stage == "extract" and error.kind
    assert refused > 100


@pytest.mark.requirement("A2")
def test_a_few_nuls_in_a_long_text_are_no_binary() -> None:
    sniff.refuse_control_characters("line of a log\n" * 500 + "\x00")
    with pytest.raises(DocumentError, match="NUL character at position 4"):
        sniff.refuse_control_characters("some\x00text")


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("body", [b"", b" \r\n\t\n"], ids=["no bytes", "blanks"])
@pytest.mark.parametrize(
    ("declared", "name"),
    [
        *((media, None) for media in (PDF, PNG, JPEG, TIFF, GIF, WEBP, BMP, DOCX, PPTX, XLSX, ODT, EPUB, RTF, MAIL)),
        *(("", f"report{ending}") for ending in (".pdf", ".PNG", ".docx", ".eml", ".rtf", ".doc", ".xls", ".zip")),
        ("application/octet-stream", "report.pdf"),
        ("text/plain", "report.pdf"),
        ("text/rtf", "report.rtf"),
        (PDF, "report.txt"),
        ("application/msword", None),
        ("application/vnd.ms-excel", "report"),
    ],
)
def test_an_empty_file_is_no_success_where_its_type_is_no_text(body: bytes, declared: str, name: str | None) -> None:
    with pytest.raises(DocumentError, match="the file is empty") as caught:
        BlockExtractor().extract(body, declared, path=name)
    assert caught.value.kind == "malformed"


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("body", [b"", b" \r\n\t\n"], ids=["no bytes", "blanks"])
@pytest.mark.parametrize(
    ("declared", "name"),
    [
        *((media, None) for media in (TEXT, HTML, MARKDOWN, CSV, TSV, RST, ASCIIDOC, WIKITEXT, "application/json", "")),
        ("", "notes.txt"),
        ("text/plain", "main.py"),
        ("text/html", "report.pdf"),  # what is declared as a kind of text is one, whatever its address looks like
        ("application/octet-stream", "notes.md"),
        ("application/octet-stream", "__init__.py"),
    ],
)
def test_an_empty_text_is_an_empty_document(body: bytes, declared: str, name: str | None) -> None:
    assert BlockExtractor().extract(body, declared, path=name).blocks == ()
