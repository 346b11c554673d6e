"""What must not be read, and what cannot be: files named by a document, bombs, damage, depth, length."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import DocumentError
from pipeline.extract import pandoc
from pipeline.extract.media import ASCIIDOC, DOCX, EPUB, ODT, ORG, RST, RTF, TEXTILE, WIKITEXT
from pipeline.extract.reading import Body, Limits, Reading
from tests.unit.extract.files.pandoc import office

pytestmark = pytest.mark.requirement("A2")
MARKUP = (WIKITEXT, TEXTILE, RST, ASCIIDOC, ORG)


def read(text: str, media: str) -> Reading:
    return pandoc.read(Body(data=text.encode(), media=media, text=text))


def refusal(data: bytes, media: str, limits: Limits | None = None) -> str:
    with pytest.raises(DocumentError) as caught:
        pandoc.read(Body(data=data, media=media, limits=limits or Limits()))
    assert caught.value.stage == "extract" and caught.value.reason.startswith("body: ") and ";" in caught.value.reason
    return caught.value.kind


@pytest.mark.parametrize(
    ("media", "form"),
    [
        (RST, ".. include:: {0}"),
        (RST, ".. literalinclude:: {0}"),
        (RST, ".. csv-table:: title\n   :file: {0}"),
        (RST, ".. raw:: html\n   :file: {0}"),
        (ASCIIDOC, "include::{0}[]"),
        (ASCIIDOC, "----\ninclude::{0}[]\n----"),
        (ORG, '#+INCLUDE: "{0}"'),
        (ORG, "#+SETUPFILE: {0}"),
    ],
)
def test_no_file_is_read_for_a_document(media: str, form: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secretword,b\n")
    reading = read(f"First.\n\n{form.format(secret)}\n\nLast.\n", media)
    shown = "\n".join(block.text for block in reading.blocks)
    assert "secretword" not in shown and "First." in shown and "Last." in shown
    if "SETUPFILE" not in form:
        assert reading.warnings == ["include: 1 directives name other files, whose content is not in this document"]


def test_directives_in_code_name_no_files() -> None:
    code = ".. include:: a.txt\n\n.. csv-table:: t\n   :file: b.csv"
    text = "Write::\n\n" + "\n".join(f"    {line}".rstrip() for line in code.split("\n"))
    reading = read(text, RST)
    assert [(b.type, b.text) for b in reading.blocks] == [("paragraph", "Write:"), ("code", code)]
    assert reading.warnings == []


@pytest.mark.parametrize(
    ("data", "media", "kind"),
    [
        (office.docx(office.par("x"))[:900], DOCX, "malformed"),
        (office.packed({"a.txt": "x"}), DOCX, "malformed"),
        (office.docx("<w:p>"), DOCX, "malformed"),
        (office.docx("", {"word/document.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'}), DOCX, "bomb"),
        (office.docx("", {"word/x.bin": b" " * (12 << 20)}), DOCX, "bomb"),
        (office.odt("", {"META-INF/manifest.xml": "<m><encryption-data/></m>"}), ODT, "encrypted"),
        (office.packed({"mimetype": "x"}), ODT, "malformed"),
        (
            office.epub(more={"META-INF/encryption.xml": '<e><EncryptionMethod Algorithm="urn:drm"/></e>'}),
            EPUB,
            "encrypted",
        ),
        (office.packed({"mimetype": "application/epub+zip"}), EPUB, "malformed"),
        (office.epub(more={"OEBPS/book.opf": "<package/>"}), EPUB, "malformed"),
        (b"no rtf", RTF, "malformed"),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, media: str, kind: str) -> None:
    assert refusal(data, media) == kind


def test_books_with_garbled_fonts_are_read() -> None:
    font = '<e><EncryptionMethod Algorithm="http://www.idpf.org/2008/embedding"/></e>'
    book = office.epub(more={"META-INF/encryption.xml": font})
    assert pandoc.read(Body(data=book, media=EPUB)) == pandoc.read(Body(data=office.epub(), media=EPUB))


def test_macros_are_told_and_not_read() -> None:
    reading = pandoc.read(Body(data=office.docx(office.par("words"), {"word/vbaProject.bin": b"\x01"}), media=DOCX))
    assert [b.text for b in reading.blocks] == ["words"] and reading.warnings[0].startswith("macro: ")


def test_time_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pandoc, "TEXT_SECONDS", 1)
    with pytest.raises(DocumentError) as caught:
        read("[http://a " * 3000, WIKITEXT)
    assert caught.value.kind == "time-limit"


def test_memory_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pandoc, "HEAP_MB", 24)
    with pytest.raises(DocumentError) as caught:
        read("words of a long page " * 10_000, WIKITEXT)
    assert caught.value.kind == "memory-limit"


@pytest.mark.parametrize("media", MARKUP)
def test_a_long_run_without_a_blank_is_kept_whole(media: str) -> None:
    run = "x" * 60_000
    assert [b.text for b in read(f"before\n\n{run}\n\nafter\n", media).blocks] == ["before", run, "after"]


def test_depth_costs_structure_but_no_text() -> None:
    reading = read("\n\n".join(f"{'  ' * depth}* word{depth}" for depth in range(80)), RST)
    shown = "\n".join(block.text for block in reading.blocks)
    assert all(f"word{depth}" in shown for depth in range(80))


def test_a_tree_deeper_than_the_parser_goes_is_kept_as_text() -> None:
    reading = read("* " * 500 + "innermost", RST)
    assert "innermost" in reading.blocks[-1].text
    assert reading.warnings == ["markup: nested too deep for its structure to be read; kept the text alone"]


def test_wikitext_lists_deeper_than_any_are_read() -> None:
    blocks = read("\n".join("*" * depth + f" word{depth}" for depth in range(1, 200)), WIKITEXT).blocks
    assert [block.type for block in blocks] == ["list"] and "word199" in blocks[0].text


def test_markup_that_does_not_parse_is_kept_as_text() -> None:
    reading = read("|}\n\nwords before\n\n{|\n! cell words", WIKITEXT)
    assert "words before" in reading.blocks[1].text and "cell words" in reading.blocks[-1].text
    assert reading.warnings[0].startswith("markup: it could not be parsed (")


def test_signs_in_the_source_are_only_text() -> None:
    for media in MARKUP:
        shown = "".join(block.text for block in read("a \ufdd00\ufdd1 \ufddc b \ufdde0c", media).blocks)
        assert shown.startswith("a ") and shown.endswith("c")


@pytest.mark.parametrize(("form", "text"), [("rst", ".. include:: {0}"), ("org", '#+INCLUDE: "{0}"')])
def test_pandoc_itself_reads_no_other_file(form: str, text: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secretword\n")
    assert b"secretword" not in pandoc.run(f"{text.format(secret)}\n".encode(), form)
