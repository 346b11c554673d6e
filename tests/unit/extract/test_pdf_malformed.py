"""PDFs that are broken, encrypted, looped or blown up end with a reason; what can be read of a page is kept."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

import pytest

from pipeline.errors import DocumentError
from pipeline.extract import pdf
from pipeline.extract.reading import Body, Limits, Reading

FILES = Path(__file__).parent / "files" / "pdf"
HELLO = b"BT /F1 12 Tf 50 700 Td (Hello there world) Tj ET"


def read(data: bytes, **limits: int) -> Reading:
    return pdf.read(Body(data, "application/pdf", limits=Limits(ocr=False, **limits)))  # type: ignore[arg-type]


def refusal(data: bytes, **limits: int) -> tuple[str, str]:
    with pytest.raises(DocumentError) as caught:
        read(data, **limits)
    return caught.value.kind, str(caught.value)


def written(objects: list[bytes], trailer: bytes = b"") -> bytes:
    """A PDF of these objects, the first of which is the catalogue."""
    out, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    end = b"trailer <</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, trailer, len(out))
    return out + head + table + end


def page(content: bytes, filters: bytes = b"", catalog: bytes = b"", more: tuple[bytes, ...] = ()) -> bytes:
    return written(
        [
            b"<</Type/Catalog/Pages 2 0 R" + catalog + b">>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
            b"<<" + filters + b"/Length %d>>stream\n" % len(content) + content + b"\nendstream",
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            *more,
        ]
    )


def blown_up(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(b" " * (1 << 20)) for _ in range(megabytes)) + packer.flush()


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"%PDF-1.4 junk",
        (FILES / "article.pdf").read_bytes()[:30_000],
        written([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>"]),
        written([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2>>"]),
    ],
    ids=["empty", "junk", "cut", "no pages", "pages in a circle"],
)
def test_a_damaged_file_is_refused_as_malformed(data: bytes) -> None:
    kind, reason = refusal(data)
    assert kind == "malformed" and reason.startswith("pdf: ") and "print it to a new PDF" in reason


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("layers", [1, 2])
def test_a_stream_that_blows_up_is_refused_before_it_is_unpacked(layers: int) -> None:
    content = blown_up(64) if layers == 1 else zlib.compress(blown_up(64))
    data = page(content, b"/Filter[" + b"/FlateDecode" * layers + b"]")
    start = time.process_time()
    kind, reason = refusal(data, unpacked_bytes=32 << 20)
    assert kind == "bomb" and "more than 32 MB" in reason
    assert time.process_time() - start < 6
    assert read(page(zlib.compress(HELLO), b"/Filter/FlateDecode"), unpacked_bytes=1 << 20).blocks[0].text


@pytest.mark.requirement("A2")
def test_an_encrypted_file_is_refused_unless_the_password_is_empty() -> None:
    kind, reason = refusal((FILES / "locked.pdf").read_bytes())
    assert kind == "encrypted" and "password" in reason
    assert read((FILES / "owner.pdf").read_bytes()).blocks[0].text == "Only the owner may change this page."


@pytest.mark.requirement("A2")
def test_an_empty_page_is_no_error() -> None:
    found = read(page(b""))
    assert (found.blocks, found.pages, found.warnings) == ([], 1, [])


@pytest.mark.requirement("A2")
def test_scripts_and_launches_are_ignored_and_attachments_are_told_of() -> None:
    action = b"/OpenAction<</S/Launch/F(/bin/sh)>>"
    script = b"/AA<</O<</S/JavaScript/JS(app.alert\\(1\\))>>>>"
    names = b"/Names<</EmbeddedFiles<</Names[(a.txt) 6 0 R]>>>>"
    attached = (
        b"<</Type/Filespec/F(a.txt)/EF<</F 7 0 R>>>>",
        b"<</Type/EmbeddedFile/Length 6>>stream\nsecret\nendstream",
    )
    found = read(page(HELLO, catalog=action + script + names, more=attached))
    assert [b.text for b in found.blocks] == ["Hello there world"]
    assert found.warnings == ["pdf: 1 attached file was not read"]


@pytest.mark.requirement("A2")
def test_a_page_of_a_hundred_thousand_shapes_takes_seconds() -> None:
    content = HELLO + b" 0 0 m 9 9 l S\n" * 100_000
    start = time.process_time()
    assert read(page(content)).blocks[0].text == "Hello there world"
    assert time.process_time() - start < 20


@pytest.mark.requirement("A2")
def test_ten_thousand_crossing_lines_are_no_table_and_take_seconds() -> None:
    lines = b"".join(
        b"%d 0 m %d 842 l S 0 %d m 595 %d l S\n" % (n % 595, n % 595, n % 842, n % 842) for n in range(5000)
    )
    start = time.process_time()
    assert [(b.type, b.text) for b in read(page(lines + HELLO)).blocks] == [("paragraph", "Hello there world")]
    assert time.process_time() - start < 20


@pytest.mark.requirement("A2")
def test_invisible_white_tiny_and_outlying_words_are_dropped() -> None:
    content = (
        HELLO + b" BT /F1 12 Tf 3 Tr 50 600 Td (invisible) Tj ET BT 0 Tr 1 1 1 rg 50 550 Td (white) Tj ET"
        b" BT 0 g /F1 0.4 Tf 50 500 Td (tiny) Tj ET BT /F1 12 Tf 700 450 Td (outside) Tj ET"
        b" BT 50 400 Td (twice) Tj ET"
        b" 0 g 40 290 200 30 re f BT 1 g 50 300 Td (light on dark) Tj ET"
        + b"".join(b" BT 0 g 50 %d Td (line %d) Tj ET" % (280 - 14 * n, n) for n in range(8))
        + b" BT 50.2 400 Td (twice) Tj ET"
    )
    first, twice, light, *_ = [b.text for b in read(page(content)).blocks]
    assert (first, twice) == ("Hello there world", "twice")
    assert light.startswith("light on dark")


@pytest.mark.requirement("A2")
def test_damaged_bytes_end_as_a_reading_or_a_refusal() -> None:
    """Every 97th byte of a file in turn is changed: nothing but a DocumentError may come out."""
    sound = (FILES / "parts.pdf").read_bytes()
    outcomes: set[bool | str] = set()
    for place in range(0, len(sound), 97):
        data = bytearray(sound)
        data[place] ^= 0x55
        try:
            outcomes.add(bool(read(bytes(data)).blocks))
        except DocumentError as error:
            outcomes.add(error.kind)
    assert True in outcomes and outcomes <= {True, False, "malformed", "encrypted", "no-ocr"}
