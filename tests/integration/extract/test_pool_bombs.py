"""Documents made to harm their reader end with a reason or a result, and their neighbours are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from pipeline.errors import DocumentError
from pipeline.extract import media
from pipeline.extract.pool import ExtractorPool
from pipeline.settings import ExtractionSettings
from schemas.documents import ExtractedDocument
from tests.integration.extract.bombs import BOMBS, pdf_of_one_line

pytestmark = pytest.mark.requirement("A2", "I8")
LIMITS = ExtractionSettings(light=2, heavy=2, cpu_s=8, heavy_cpu_s=8, memory_mb=512, unpacked_mb=64, output_mb=64)
SECONDS = 60.0  # of a bomb on a busy machine; the limit of CPU time is the one that holds


@pytest.fixture(scope="module")
def pool() -> Iterator[ExtractorPool]:
    """One pool for all bombs: what one leaves behind would harm the next."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    made = ExtractorPool(LIMITS)
    yield made
    made.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def texts(document: ExtractedDocument) -> list[str]:
    return [block.text for block in document.blocks]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_and_its_neighbours_are_read(pool: ExtractorPool, name: str) -> None:
    content_type, make, kinds = BOMBS[name]
    body = make()
    heavy = media.BY_MEDIA[content_type].heavy
    with ThreadPoolExecutor() as threads:
        began = time.monotonic()
        bomb = threads.submit(pool.extract, body, content_type)
        page = threads.submit(pool.extract, f"# Beside {name}\n".encode(), "text/markdown")
        sheet = threads.submit(pool.extract, pdf_of_one_line("Ibis"), "application/pdf", path=name) if heavy else None
        assert texts(page.result(SECONDS)) == [f"Beside {name}"]
        if sheet is not None:
            assert texts(sheet.result(SECONDS)) == ["Ibis"]
        try:
            document = bomb.result(SECONDS)
        except DocumentError as error:
            if "a library that is not installed" in error.reason:
                pytest.skip(error.reason)
            assert error.kind in kinds, error.reason
            assert error.stage == "extract"
            assert ": " in error.reason and "; " in error.reason, "names the field and the remedy"
        else:
            assert "" in kinds
            assert sum(map(len, texts(document))) <= LIMITS.output_mb << 20
        assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize(
    ("content_type", "tag"),
    [("text/html", lambda text: f"<div>{text}</div>"), ("text/markdown", lambda text: f"> {text}")],
)
def test_what_is_nested_and_can_be_read_is_not_lost(
    pool: ExtractorPool, content_type: str, tag: Callable[[str], str]
) -> None:
    text = "bottom"
    for _ in range(50):
        text = tag(text)
    assert texts(pool.extract(text.encode(), content_type)) == ["bottom"]
