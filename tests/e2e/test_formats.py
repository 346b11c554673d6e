"""Files of every format, from a folder to a hit: read by children, whatever becomes of them."""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from pipeline.index.store import WeaviateStore
from pipeline.operate.letters import read
from tests.product import Product, until

FILES = Path(__file__).parents[2] / "samples" / "formats" / "files"
tesseract = pytest.mark.skipif(shutil.which("tesseract") is None, reason="Tesseract is not installed")


def letters() -> str:
    """A word that no other test uses, in letters that no reader of scans takes for one another."""
    return "".join("abdehkmnprtuvxyz"[int(c, 16)] for c in uuid4().hex[:10])


def scan(*pages: str) -> bytes:
    """Pages as pictures in one TIFF."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=44)
    images = []
    for text in pages:
        image = Image.new("L", (1240, 1754), 255)
        lines = [text, *(f"The pump house keeps {n} spare gaskets in the long cupboard." for n in range(8))]
        ImageDraw.Draw(image).multiline_text((80, 80), "\n".join(lines), font=font, fill=0, spacing=18)
        images.append(image)
    out = BytesIO()
    images[0].save(out, "TIFF", save_all=True, append_images=images[1:], compression="tiff_lzw", dpi=(150, 150))
    return out.getvalue()


def put(product: Product, path: str, data: bytes) -> None:
    """A file appears whole."""
    target = product.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = product.folder / f".{uuid4().hex}"
    part.write_bytes(data)
    part.rename(target)


def hit(product: Product, query: str, path: str, *, words: str = "", **body: Any) -> dict[str, Any] | None:
    """The best hit in a file that holds the words."""
    found = (h for h in product.hits("bob", query, **body) if h["path"] == path)
    return next((h for h in found if words in " ".join(h["text"].split())), None)


def extractors(product: Product) -> list[psutil.Process]:
    """The children that read documents."""
    supervised = product.supervisor.managed("index").process()
    assert supervised is not None
    found = []
    for child in psutil.Process(supervised.pid).children(recursive=True):
        try:
            if any("pipeline.extract.pool.child" in part for part in child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


@pytest.mark.requirement("A2", "A3")
@pytest.mark.parametrize(
    ("name", "query", "words", "heading"),
    [
        ("gauge.pdf", "how is a reading of the tide gauge taken", "taken from the float", "Reading a gauge"),
        ("gauge.docx", "how is a reading of the tide gauge taken", "taken from the float", "Reading a gauge"),
        ("gauge.epub", "how is a reading of the tide gauge taken", "taken from the float", "Reading a gauge"),
        ("gauge.rst", "how is a reading of the tide gauge taken", "taken from the float", "Reading a gauge"),
        ("ledger.xlsx", "TN-1035", "Fulmar", "Deliveries"),
        ("attachments.eml", "who walks on the frozen lee pier", "unless roped", None),
    ],
)
def test_a_file_of_any_format_is_found_by_what_it_says(
    product: Product, name: str, query: str, words: str, heading: str | None
) -> None:
    path = f"formats/{uuid4().hex[:8]}-{name}"
    put(product, path, (FILES / name).read_bytes())
    found = until(lambda: hit(product, query, path, words=words, k=50), 60, f"{name} is found")
    if heading is not None:
        assert heading in found["heading_path"]
    if name.endswith(".pdf"):
        assert found["page"] is not None and found["content_type"] == "application/pdf"
    (product.folder / path).unlink()
    until(lambda: hit(product, query, path, k=50) is None, 20, "the deleted file is gone")


@pytest.mark.requirement("A2")
@tesseract
def test_a_scan_is_read_and_says_so(product: Product) -> None:
    path = f"formats/{uuid4().hex[:8]}-scan.pdf"
    put(product, path, (FILES / "brief-scan.pdf").read_bytes())
    found = until(lambda: hit(product, "worn hinges of the western gate", path, k=50), 90, "the scan is found")
    assert found["page"] == 1 and any(w.startswith("ocr:") for w in found["warnings"])


@pytest.mark.requirement("A2", "I8")
def test_what_cannot_be_read_is_a_dead_letter_and_its_neighbours_are_found(product: Product) -> None:
    bomb = BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", b"0" * (60 << 20))
    word = letters()
    bad = {
        "bomb.docx": bomb.getvalue(),
        "torn.docx": (FILES / "gauge.docx").read_bytes()[:4000],
        "torn.pdf": b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog",
        "old.xlsx": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 4096,
    }
    place = f"bad-{uuid4().hex[:8]}"
    for name, data in bad.items():
        put(product, f"{place}/{name}", data)
    product.write(f"{place}/good.md", f"# Good\n\nThe neighbour says {word}.\n")
    until(lambda: hit(product, word, f"{place}/good.md", mode="sparse"), 30, "the neighbour is found")
    kinds = until(lambda: _letters(product, place, len(bad)), 60, "each has its letter")
    assert kinds == {
        "bomb.docx": "bomb",
        "torn.docx": "malformed",
        "torn.pdf": "malformed",
        "old.xlsx": kinds["old.xlsx"],
    }
    assert kinds["old.xlsx"] in ("unsupported-type", "encrypted", "binary")


def _letters(product: Product, place: str, count: int) -> dict[str, str] | None:
    """Kinds of the dead letters of a folder's files, once there are so many."""
    with closing(WeaviateStore(product.settings)) as store:
        found = [letter.newest for letter in read(product.settings, store)]
    named = {
        one.document.id.rpartition("/")[2]: one.error_kind
        for one in found
        if one.document is not None and one.document.id.startswith(f"{place}/") and one.stage == "extract"
    }
    return named if len(named) == count else None


@pytest.mark.requirement("A2", "I13", "A8")
@tesseract
def test_nobody_waits_for_a_long_scan_and_a_deletion_overtakes_it(product: Product) -> None:
    edit = letters()
    place = f"scans-{uuid4().hex[:8]}"
    kept, dropped = f"{place}/kept.tiff", f"{place}/dropped.tiff"
    put(product, kept, scan("The lighthouse keeper paints the railing green.", *["more"] * 2))
    put(product, dropped, scan("The harbour dog sleeps beside the anchor.", *["more"] * 3))
    until(lambda: extractors(product), 30, "somebody reads")
    product.write(f"{place}/edit.md", f"# Edit\n\nThe weather is {edit}.\n")
    until(lambda: hit(product, edit, f"{place}/edit.md", mode="sparse"), 10, "an edit does not wait for the scans")
    assert hit(product, "harbour dog anchor", dropped, k=100) is None, "the scans were not read first"
    (product.folder / dropped).unlink()
    found = until(lambda: hit(product, "lighthouse keeper paints railing", kept, k=100), 150, "the scan is found")
    assert found["page"] == 1
    time.sleep(2)
    assert hit(product, "harbour dog anchor", dropped, k=100) is None


@pytest.mark.requirement("A2", "I8")
@tesseract
def test_a_child_that_is_killed_loses_no_document(product: Product) -> None:
    path = f"killed-{uuid4().hex[:8]}/scan.tiff"
    put(product, path, scan("The lock keeper counts barges by candle light.", "more", "more"))

    def busy() -> list[psutil.Process]:
        return [c for c in extractors(product) if _works(lambda c=c: c.children())]  # type: ignore[misc]

    reading = until(busy, 60, "a child reads")
    for child in reading:
        child.kill()
    until(lambda: hit(product, "lock keeper counts barges", path, k=100), 150, "it is read by another child")


def _works(children: Callable[[], list[psutil.Process]]) -> bool:
    """Whether the child runs a program of its own (Tesseract)."""
    try:
        return bool(children())
    except psutil.Error:
        return False


@pytest.mark.requirement("B5", "A8")
def test_copies_are_one_hit_and_only_those_that_the_caller_reads_are_named(product: Product) -> None:
    word = letters()
    text = f"# Copy\n\nThe {word} valve closes when the pressure falls below the mark on the gauge of the pump house.\n"
    for name in ("one", "two", "three"):
        product.write(f"copies-{word}/{name}.md", text)
    product.access(f"copies-{word}-closed", "group:eng")
    product.write(f"copies-{word}-closed/secret.md", text)
    until(lambda: len(product.found("ann", word, mode="sparse")) == 4, 30, "all four are there")
    (found,) = product.hits("ann", word, mode="sparse", duplicates="fold")
    assert len(found["also"]) == 3
    (found,) = product.hits("bob", word, mode="sparse", duplicates="fold")
    named = {found["path"], *(other["path"] for other in found["also"])}
    assert named == {f"copies-{word}/{name}.md" for name in ("one", "two", "three")}
