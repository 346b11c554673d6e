"""Wiki markup and office text: one file of each format that holds one of everything, and what it must become."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.extract import pandoc
from pipeline.extract.media import ASCIIDOC, DOCX, EPUB, ODT, ORG, RST, RTF, TEXTILE, WIKITEXT
from pipeline.extract.reading import Body, Reading
from tests.unit.extract.files.pandoc import office

pytestmark = pytest.mark.requirement("A2")
FILES = Path(__file__).parent / "files" / "pandoc"
MARKUP = {"wiki": WIKITEXT, "rst": RST, "adoc": ASCIIDOC, "org": ORG, "textile": TEXTILE}


def read(text: str, media: str) -> Reading:
    return pandoc.read(Body(data=text.encode(), media=media, text=text))


def read_file(data: bytes, media: str) -> Reading:
    return pandoc.read(Body(data=data, media=media))


def sample(name: str) -> Reading:
    if name in MARKUP:
        return read((FILES / f"all.{name}").read_text(encoding="utf-8"), MARKUP[name])
    made = {
        "docx": lambda: (office.docx(office.DOCX_BODY), DOCX),
        "odt": lambda: (office.odt(office.ODT_BODY), ODT),
        "epub": lambda: (office.epub(), EPUB),
        "rtf": lambda: ((FILES / "all.rtf").read_bytes(), RTF),
    }
    return read_file(*made[name]())


def listing(reading: Reading) -> str:
    """A reading in a form that people can check against the file."""
    lines = [f"title: {reading.title}", f"language: {reading.language}", *(f"! {one}" for one in reading.warnings)]
    for block in reading.blocks:
        detail = f" {block.level}" if block.level else f" {block.language}" if block.language else ""
        lines.append(f"[{block.type}{detail}] {block.text}")
        if block.header:
            lines.append(f"  header rows: {block.header.count(chr(10))}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", [*MARKUP, "docx", "odt", "epub", "rtf"])
def test_a_file_with_one_of_everything_loses_nothing(name: str) -> None:
    assert listing(sample(name)) == (FILES / f"all.{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*MARKUP, "docx", "odt", "rtf"])
def test_what_nobody_sees_is_not_read(name: str) -> None:
    text = "\n".join(block.text for block in sample(name).blocks).lower()
    for words in ("hidden", "unseen", "deleted", "movedfrom", "comment words", "header words", "footer words", "gone"):
        assert words not in text.replace("nothidden", ""), words


CODE = "def f(x):\n\tif x:\n\n        return  {x}  # comment [[no link]] ''' *b* \\\n\n# not a heading\n== nor this =="


@pytest.mark.requirement("F11", "F12")
@pytest.mark.parametrize(
    ("media", "before", "after"),
    [
        (WIKITEXT, '<syntaxhighlight lang="python">\n', "\n</syntaxhighlight>"),
        (WIKITEXT, "* item\n{|\n! a\n|-\n|\n<source lang=python>\n", "\n</source>\n|}"),
        (ASCIIDOC, "[source,python]\n----\n", "\n----"),
        (ORG, "#+begin_src python\n", "\n#+end_src"),
        (TEXTILE, "bc(python).. ", "\n\np. End"),
        (TEXTILE, '* item\n<pre><code class="python">\n', "\n</code></pre>"),
    ],
)
def test_code_is_byte_equal(media: str, before: str, after: str) -> None:
    blocks = [block for block in read(f"Text.\n\n{before}{CODE}{after}\n", media).blocks if block.type == "code"]
    assert [(block.text, block.language) for block in blocks] == [(CODE, "python")]


@pytest.mark.requirement("F11")
def test_code_in_restructured_text_is_byte_equal() -> None:
    code = CODE + "\n\n.. include:: kept.txt"
    indented = "\n".join(f"   {line}" if line else "" for line in code.split("\n"))
    blocks = read(f"Text.\n\n.. code-block:: python\n\n{indented}\n\nEnd\n", RST).blocks
    assert [(b.type, b.text) for b in blocks] == [("paragraph", "Text."), ("code", code), ("paragraph", "End")]


@pytest.mark.requirement("F11")
def test_code_in_a_word_file_is_byte_equal() -> None:
    runs = "<w:r><w:br/></w:r>".join(
        "".join(f"<w:r><w:tab/></w:r>{office.run(part)}" if n else office.run(part) for n, part in enumerate(parts))
        for parts in (line.split("\t") for line in CODE.split("\n"))
    )
    one = office.par("", "Sourcecode", more=runs)
    lines = "".join(office.par(more=office.run(line, office._MONO)) for line in ("a  = 1", "  b"))
    blocks = read_file(office.docx(one + office.par("prose that is longer than code") + lines), DOCX).blocks
    assert [b.text for b in blocks if b.type == "code"] == [CODE, "a  = 1\n  b"]


def test_a_word_file_in_one_monospaced_font_is_prose() -> None:
    body = "".join(office.par(more=office.run(words, office._MONO)) for words in ("Dear all", "typed in Courier"))
    assert [b.type for b in read_file(office.docx(body), DOCX).blocks] == ["paragraph", "paragraph"]


@pytest.mark.requirement("F13")
def test_paragraphs_in_a_cell_are_not_glued() -> None:
    for name in ("docx", "odt", "epub", "rtf"):
        table = next(block.text for block in sample(name).blocks if block.type == "table")
        assert "left ibis right ibis" in table


def test_the_strict_variant_of_word_files_is_read() -> None:
    import io
    import zipfile

    data = office.docx(office.DOCX_BODY)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    strict = {
        name: content.replace(b"http://schemas.openxmlformats.org/wordprocessingml/2006/", b"http://purl.oclc.org/ooxml/wordprocessingml/")
        .replace(b"http://schemas.openxmlformats.org/officeDocument/2006/", b"http://purl.oclc.org/ooxml/officeDocument/")
        .replace(b"http://schemas.openxmlformats.org/drawingml/2006/", b"http://purl.oclc.org/ooxml/drawingml/")
        for name, content in members.items()
    }  # fmt: skip
    assert strict["word/document.xml"] != members["word/document.xml"]
    assert read_file(office.packed({**strict}), DOCX) == sample("docx")


def test_same_bytes_same_blocks() -> None:
    assert [sample(name) for name in ("wiki", "docx")] == [sample(name) for name in ("wiki", "docx")]


def test_a_list_before_a_table_stays_before_it_in_rtf() -> None:
    data = (
        b"{\\rtf1 \\pard Before\\par\\pard{\\listtext\\'b7\\tab}\\ls1\\ilvl0 item\\par"
        b"\\trowd\\cellx1\\cellx2\\intbl a\\cell b\\cell\\row\\pard After\\par}"
    )
    assert [b.type for b in read_file(data, RTF).blocks] == ["paragraph", "list", "table", "paragraph"]


def test_layout_tables_are_no_tables() -> None:
    body = office.table(office.row(office.cell(office.par("Head", "Heading1") + office.par("box words"))))
    assert [(b.type, b.text) for b in read_file(office.docx(body), DOCX).blocks] == [
        ("heading", "Head"), ("paragraph", "box words"),
    ]  # fmt: skip


def test_code_in_a_cell_stands_whole_after_its_table() -> None:
    text = "{|\n! a !! b\n|-\n| x ||\n<pre>\none\n  two\n</pre>\n|}"
    table, code = read(text, WIKITEXT).blocks
    assert "one" in table.text and (code.type, code.text) == ("code", "one\n  two")


def test_typed_bullets_are_a_list_in_rtf() -> None:
    data = b"{\\rtf1 \\pard Before\\par\\pard\\bullet  one\\par\\pard\\bullet  two\\par\\pard After\\par}"
    assert [b.text for b in read_file(data, RTF).blocks] == ["Before", "- one\n- two", "After"]


def test_a_cell_over_three_rows_stands_in_each() -> None:
    text = '{|\n! a !! b\n|-\n| rowspan="3" | down || 1\n|-\n| 2\n|-\n| 3\n|-\n| free || 4\n|}'
    rows = read(text, WIKITEXT).blocks[0].text.split("\n")[2:]
    assert rows == ["| down | 1 |", "| down | 2 |", "| down | 3 |", "| free | 4 |"]


def test_a_figure_whose_caption_is_its_alternative_text_says_it_once() -> None:
    text = ".. figure:: a.png\n   :alt: Same words\n\n   Same words\n"
    assert [b.text for b in read(text, RST).blocks] == ["Same words"]
