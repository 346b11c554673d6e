"""The fences and limits of children take nothing from what readers need: each reads as in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.errors import DocumentError
from pipeline.extract import BlockExtractor
from pipeline.extract.media import BY_MEDIA, BY_SUFFIX
from pipeline.ports import Extractor
from schemas.documents import ExtractedDocument
from tests.integration.extract.conftest import MakePool

pytestmark = pytest.mark.requirement("A2", "I6")
FILES = Path(__file__).parents[3] / "samples" / "formats" / "files"


def one_of_each() -> list[Path]:
    """The smallest sample for each reader in each class of children; the image is a PNG."""
    found: dict[tuple[str, bool], Path] = {}
    for file in sorted(FILES.glob("*"), key=lambda file: (file.suffix != ".png", file.stat().st_size, file.name)):
        form = BY_SUFFIX.get(file.suffix)
        if form is not None:
            found.setdefault((form.reader, form.heavy), file)
    return list(found.values())


def outcome(extractor: Extractor, file: Path) -> ExtractedDocument | tuple[str, str]:
    form = BY_SUFFIX[file.suffix]
    try:
        return extractor.extract(file.read_bytes(), form.media, path=file.name)
    except DocumentError as error:
        return error.kind, error.reason


def test_every_reader_reads_in_a_child_as_here(make_pool: MakePool) -> None:
    files = one_of_each()
    if not files:
        pytest.skip(f"no samples in {FILES}")
    pool, own = make_pool(light=1), BlockExtractor()
    read = set()
    for file in files:
        image = BY_SUFFIX[file.suffix].media.startswith("image/")
        if image and shutil.which("tesseract") is None:
            continue
        found = outcome(pool, file)
        assert found == outcome(own, file), file.name
        assert isinstance(found, ExtractedDocument), found
        assert found.blocks
        read.add(found.media_type)
    assert {BY_MEDIA[media].heavy for media in read} == {False, True}
