"""What a body is, and in which character set."""

from __future__ import annotations

import gzip
import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import DocumentError
from pipeline.extract import BlockExtractor
from schemas.documents import ExtractedDocument


def extract(body: bytes, content_type: str = "text/plain", path: str | None = None) -> ExtractedDocument:
    return BlockExtractor().extract(body, content_type, path=path)


def text(document: ExtractedDocument) -> str:
    return "\n\n".join(block.text for block in document.blocks)


@pytest.mark.requirement("A2", "F14")
@pytest.mark.parametrize("content", ["[2026-03-02] Überlauf im Becken", "{Überlauf} im Becken, gemeldet um 8"])
@pytest.mark.parametrize("content_type", ["text/plain", "", "application/octet-stream"])
def test_a_legacy_text_that_begins_like_json_is_text(content: str, content_type: str) -> None:
    document = extract(content.encode("cp1252"), content_type, "log.txt")
    assert text(document) == content
    assert any("low trust" in warning for warning in document.warnings)
    assert document.media_type == "text/plain"


@pytest.mark.requirement("A2", "F15")
@pytest.mark.parametrize(
    ("content", "charset"),
    [
        ("déjà prêt", "ISO-8859-1"),
        ("障害が発生", "Shift_JIS"),
        ("“quoted” – 5 €", "iso-8859-1"),  # the web's Latin-1 is Windows-1252
        ("Прошивка", "koi8-r"),
        ("障害", "utf-16"),
    ],
)
def test_the_declared_charset_comes_first(content: str, charset: str) -> None:
    encoding = "cp1252" if "€" in content else charset
    document = extract(content.encode(encoding), f'text/plain; charset="{charset}"')
    assert text(document) == content
    assert document.warnings == ()


@pytest.mark.requirement("A2", "F15")
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides(encoding: str) -> None:
    document = extract("déjà prêt".encode(encoding), "text/plain; charset=ascii")
    assert (text(document), document.warnings) == ("déjà prêt", ())


@pytest.mark.requirement("A2", "F15")
def test_a_guess_is_flagged_and_valid_utf8_is_none() -> None:
    assert extract("déjà prêt".encode()).warnings == ()
    assert any("low trust" in w for w in extract("déjà prêt".encode("iso-8859-1")).warnings)
    assert any("low trust" in w for w in extract("障害が発生した".encode("shift_jis")).warnings)
    assert text(extract("déjà prêt à partir, très tôt".encode("iso-8859-1"))) == "déjà prêt à partir, très tôt"


@pytest.mark.requirement("A2", "F15")
def test_a_wrong_declaration_is_said_and_passed_over() -> None:
    document = extract("déjà prêt à partir".encode("cp1252"), "text/plain; charset=utf-8")
    assert text(document) == "déjà prêt à partir"
    assert "declares utf-8" in document.warnings[0] and "low trust" in document.warnings[1]
    for label in ("no-such", "base64", "unicode_escape", "idna", "a\x00b"):
        document = extract("prêt \\u0041".encode(), f"text/plain; charset={label}")
        assert text(document) == "prêt \\u0041"


@pytest.mark.requirement("A2", "F15")
def test_html_declares_its_charset_itself() -> None:
    body = '<html><head><meta charset="shift_jis"></head><body><p>障害が発生</p></body></html>'.encode("shift_jis")
    document = extract(body, "text/html")
    assert (text(document), document.warnings) == ("障害が発生", ())
    body = '<?xml version="1.0" encoding="iso-8859-2"?><html><p>žluťoučký</p></html>'.encode("iso-8859-2")
    assert text(extract(body, "application/xhtml+xml")) == "žluťoučký"


@pytest.mark.requirement("A2")
def test_utf16_without_a_mark_is_recognised() -> None:
    document = extract("A plain sentence.".encode("utf-16-le"))
    assert text(document) == "A plain sentence."
    assert any("low trust" in w for w in document.warnings)


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
    return target.getvalue()


@pytest.mark.requirement("A2", "I8")
@pytest.mark.parametrize(
    ("body", "named"),
    [
        (zipped(), "ZIP"),
        (gzip.compress(b"x"), "gzip"),
        (b"some text\x00and more", "NUL"),
        (bytes(range(1, 9)) * 40 + b"text", "control characters"),
    ],
)
@pytest.mark.parametrize("content_type", ["text/plain", "text/html", "text/markdown", ""])
def test_binary_content_is_refused_by_name(body: bytes, named: str, content_type: str) -> None:
    with pytest.raises(DocumentError, match=named) as caught:
        extract(body, content_type, "page.md")
    assert (caught.value.stage, caught.value.kind) == ("extract", "binary")


@pytest.mark.requirement("A2", "I8")
def test_a_type_without_reader_is_refused_by_name() -> None:
    with pytest.raises(DocumentError, match="video/mp4") as caught:
        extract(b"text", "video/mp4")
    assert (caught.value.stage, caught.value.kind) == ("extract", "unsupported-type")


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("body", "content_type", "path", "media"),
    [
        (b"<!DOCTYPE html><p>x", "", "x.md", "text/html"),
        (b"  <!-- c --><html><p>x", "application/octet-stream", None, "text/html"),
        (b"# Title", "", "x.md", "text/markdown"),
        (b"# Title", "", "x.html", "text/plain"),
        (b"a < b and <b>", "", None, "text/plain"),
        (b"# Title", "TEXT/MARKDOWN; charset=utf-8", "x.txt", "text/markdown"),
        (b"<p>x", "text/plain", "x.html", "text/plain"),
        (b"a,b", "text/x-log", None, "text/plain"),
    ],
)
def test_declared_types_and_bytes_decide_never_the_name_alone(
    body: bytes, content_type: str, path: str | None, media: str
) -> None:
    assert extract(body, content_type, path).media_type == media


@pytest.mark.requirement("A2")
def test_plain_text_keeps_lines_and_knows_lists() -> None:
    document = extract(b"First line\r\nsecond line\r\n\r\n\r\n- one\r\n- two\r\n\r\n   indented\n")
    assert [(b.type, b.text) for b in document.blocks] == [
        ("paragraph", "First line\nsecond line"),
        ("list", "- one\n- two"),
        ("paragraph", "   indented"),
    ]


@pytest.mark.requirement("A2")
def test_source_text_is_one_code_block() -> None:
    (block,) = extract(b'{"a": [1,\n\n 2]}\n', "application/json").blocks
    assert (block.type, block.language, block.text) == ("code", "json", '{"a": [1,\n\n 2]}')


@pytest.mark.requirement("A2", "I8")
@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["text/html", "text/markdown", "text/plain", "", "x", "a/b\n/c;="]))
def test_any_bytes_are_read_or_refused(body: bytes, content_type: str) -> None:
    try:
        document = extract(body, content_type)
    except DocumentError as error:
        assert error.stage == "extract" and error.kind in ("binary", "charset", "unsupported-type", "malformed")
    else:
        assert all("\x00" not in block.text for block in document.blocks)
