"""Which files are documents, and what their names and bytes say of their types."""

from __future__ import annotations

import pytest

from pipeline.extract.media import BY_MEDIA, BY_SUFFIX
from pipeline.sources.folder.pages import is_document, media_type, read_page
from pipeline.suffixes import BINARY_SUFFIXES, MEDIA_BY_SUFFIX, TEXT_SUFFIXES, ZIP_SUFFIXES


@pytest.mark.requirement("A1", "A2")
@pytest.mark.parametrize("suffix", sorted(BY_SUFFIX))
def test_every_ending_that_has_a_reader_is_a_document(suffix: str) -> None:
    assert is_document(f"a{suffix}") and is_document(f"A.B{suffix.upper()}")
    assert not is_document(f".a{suffix}") and not is_document(suffix)


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("name", ["a.svg", "a.zip", "a.exe", "a", "a.md.bak", "pdf", "a.json"])
def test_other_files_are_none(name: str) -> None:
    assert not is_document(name)


@pytest.mark.requirement("A2")
def test_the_tables_of_endings_and_of_readers_agree() -> None:
    assert set(MEDIA_BY_SUFFIX.values()) <= set(BY_MEDIA)
    assert {suffix for suffix, form in BY_SUFFIX.items() if form.textual} == set(TEXT_SUFFIXES)


@pytest.mark.requirement("A1", "A2")
@pytest.mark.parametrize("suffix", sorted(BINARY_SUFFIXES))
def test_bytes_have_their_type_no_charset_and_the_name_for_a_title(suffix: str) -> None:
    start = b"PK\x03\x04" if suffix in ZIP_SUFFIXES else b"# no heading\n\x00"
    page = read_page(f"reports/Year 2026{suffix}", start + b"\xff" * 50)
    assert (page.title, page.content_type) == ("Year 2026", BINARY_SUFFIXES[suffix])


@pytest.mark.requirement("A1", "A2")
@pytest.mark.parametrize("suffix", sorted(TEXT_SUFFIXES))
def test_text_has_its_charset_where_it_is_certain(suffix: str) -> None:
    charset = None if TEXT_SUFFIXES[suffix] == "text/html" else "utf-8"
    assert media_type(f"a{suffix}", "Häfen".encode()) == (TEXT_SUFFIXES[suffix], charset)
    assert media_type(f"a{suffix}", "Häfen".encode("latin-1")) == (TEXT_SUFFIXES[suffix], None)


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("name", "body", "media"),
    [
        ("a.docx", b"%PDF-1.7", "application/pdf"),
        ("a.md", b"PK\x03\x04", "application/zip"),
        ("a.pdf", b"<!doctype html><title>Not found</title>", "text/html"),
        ("a.csv", b"\x00\x01", "application/octet-stream"),
        ("a.csv", b"<html><body>", "text/html"),
    ],
)
def test_bytes_go_before_names(name: str, body: bytes, media: str) -> None:
    assert media_type(name, body)[0] == media


@pytest.mark.requirement("A2")
def test_front_matter_is_that_of_markdown_alone() -> None:
    assert read_page("a.csv", b"---\ntitle: T\n---\n").title == "a"
    assert read_page("a.md", b"---\ntitle: T\n---\n").title == "T"
