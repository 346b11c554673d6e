"""The summary chunk: outline and central sentences, an own last section."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.documents import Block
from tests.unit.chunk.support import STRATEGIES, WordCounter, chunked, code, heading, paragraph, sentence

PAGE = (
    heading("Gateway"),
    paragraph("The gateway checks every token and forwards requests to the search service. It is small."),
    heading("Limits", 2),
    paragraph("The gateway limits requests of each token to forty a second. Ask the team for more."),
    heading("Lunch", 2),
    paragraph("On Tuesdays there is soup."),
    heading("Errors", 2),
    paragraph("When the search service is down, the gateway answers requests with 503 and keeps the token."),
)


@pytest.mark.requirement("A4")
def test_a_summary_is_one_more_chunk_in_a_last_section_of_its_own() -> None:
    for strategy in STRATEGIES:
        small: dict[str, Any] = {
            "strategy": strategy,
            "child_tokens": 32,
            "child_min_tokens": 16,
            "child_max_tokens": 64,
        }
        plain = chunked(*PAGE, **small)
        summed = chunked(*PAGE, **small, summary=True)
        assert summed.chunks[:-1] == plain.chunks and summed.sections[:-1] == plain.sections
        last, section = summed.chunks[-1], summed.sections[-1]
        assert last.summary and not any(chunk.summary for chunk in plain.chunks)
        assert (last.text, last.heading_path, section.heading_path) == (section.text, (), ())
        assert (last.section_ordinal, last.ordinal) == (section.ordinal, len(plain.chunks))
        assert (section.ordinal, last.start, last.end) == (len(plain.sections), -1, -1)


@pytest.mark.requirement("A4")
def test_it_holds_the_outline_and_the_central_sentences_in_order() -> None:
    text = chunked(*PAGE, summary=True, child_tokens=32, child_min_tokens=16, child_max_tokens=64).chunks[-1].text
    outline, _, body = text.partition("\n\n")
    assert outline == "Gateway · Limits · Lunch · Errors"
    lines = body.split("\n")
    assert lines[0].startswith("The gateway checks every token")
    assert lines == sorted(lines, key=" ".join(block.text for block in PAGE).index)
    assert "On Tuesdays there is soup." not in lines and len(lines) >= 2


@pytest.mark.requirement("A4", "I6")
def test_it_changes_only_with_the_chosen_sentences() -> None:
    pages = [heading("Long"), *[paragraph(sentence(i, 40)) for i in range(60)]]
    before = chunked(*PAGE, *pages, summary=True).chunks[-1]
    kept = set(before.text.split("\n"))
    at = next(i for i in range(len(pages) - 1, 0, -1) if pages[i].text not in kept)
    edited = [*pages[:at], paragraph(pages[at].text.replace(" end.", " finish.")), *pages[at + 1 :]]
    assert chunked(*PAGE, *edited, summary=True).chunks[-1].chunk_id == before.chunk_id
    gone = [block for block in PAGE if "forty a second" not in block.text]
    assert chunked(*gone, *pages, summary=True).chunks[-1].embed_hash != before.embed_hash


@pytest.mark.requirement("A4")
def test_it_fits_whatever_the_document_is_made_of() -> None:
    counter = WordCounter()
    documents: list[list[Block]] = [
        [code("\n".join(f"value_{i} = compute(value_{i + 1})" for i in range(300)))],
        [heading(f"Part {i}", 1 + i % 6) for i in range(500)],
        [heading(" ".join(f"word{i}" for i in range(600))), paragraph("Short.")],
        [paragraph("x" * 30_000)],
        [paragraph("漢字" * 50_000 + "。")],
        [Block(type="table", text="\n".join(f"| row {i} | value {i} |" for i in range(200)))],
    ]
    for blocks in documents:
        last = chunked(*blocks, summary=True).chunks[-1]
        assert last.summary and last.text.strip()
        assert last.tokens == counter.count(last.embed_text) <= 256
    assert chunked(summary=True).chunks == ()


@pytest.mark.requirement("A4")
def test_a_document_of_one_chunk_sums_itself_up() -> None:
    (only,) = chunked(paragraph("Short."), summary=True).chunks
    assert not only.summary
