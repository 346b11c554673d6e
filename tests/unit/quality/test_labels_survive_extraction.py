"""The real extractor keeps what the labels point at, and drops the frame around the HTML pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from pipeline.extract.extractor import BlockExtractor
from pipeline.extract.front_matter import front_matter
from pipeline.golden import Hit, load_questions
from schemas.documents import ExtractedDocument

SAMPLES = Path(__file__).parents[3] / "samples"
WIKI = SAMPLES / "wiki"
TYPES = {".md": "text/markdown", ".html": "text/html"}


@cache
def extracted(document: str) -> ExtractedDocument:
    file = WIKI / document
    return BlockExtractor().extract(file.read_bytes(), TYPES[file.suffix], path=document)


@pytest.mark.requirement("C1", "C3", "A2")
def test_every_label_matches_a_block_of_its_extracted_page() -> None:
    lost = [
        (question.id, label)
        for question in load_questions(SAMPLES / "golden" / "questions.jsonl")
        for label in question.relevant
        if not any(
            label.matches(Hit(label.document, "" if block.type == "heading" else block.text, heading_path=path))
            for block in extracted(label.document).blocks
            for path in [(block.text,) if block.type == "heading" else ()]
        )
    ]
    assert lost == []


@pytest.mark.requirement("A2")
def test_pages_extract_without_warnings_navigation_or_footer() -> None:
    for file in sorted([*WIKI.rglob("*.md"), *WIKI.rglob("*.html")]):
        document = extracted(file.relative_to(WIKI).as_posix())
        assert document.warnings == () and document.title, file
        if file.suffix == ".html":
            raw = file.read_text(encoding="utf-8")
            footer = raw.split("<footer>")[1].split("<")[0].strip()
            text = "\n".join(block.text for block in document.blocks)
            assert footer and footer not in text, file
            assert "Home" not in text.split(), file


@pytest.mark.requirement("C3", "B1")
def test_editions_begin_and_end_when_their_front_matter_says() -> None:
    text = (WIKI / "company" / "travel-policy-2025.md").read_text(encoding="utf-8")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    values = front_matter(text)
    from_us, until_us = values["effective_from"], values["effective_until"]
    assert isinstance(from_us, int) and isinstance(until_us, int)
    assert epoch + timedelta(microseconds=from_us) == datetime(2025, 1, 1, tzinfo=UTC)
    assert epoch + timedelta(microseconds=until_us) == datetime(2026, 1, 1, tzinfo=UTC)
