"""Small neighbouring heading sections share a chunk; larger ones keep their own."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings

from pipeline.extract import BlockExtractor
from pipeline.golden import Hit, Label
from schemas.documents import Block
from tests.unit.chunk.support import (
    APART,
    REF,
    TOKEN,
    WordCounter,
    chunked,
    chunker,
    code,
    document,
    heading,
    paragraph,
    sentence,
)
from tests.unit.chunk.test_properties import BLOCKS, edits, fresh_chunks

PAGE = (
    heading("Guide"),
    paragraph("Intro."),
    heading("Setup", 2),
    paragraph("Install it."),
    heading("Linux", 3),
    paragraph("Use apt."),
    heading("Usage", 2),
    paragraph("Run it."),
)


def section(name: str, words: int, level: int = 2) -> list[Block]:
    return [heading(name, level), paragraph(" ".join(sentence(hash_of(name) + s, 10) for s in range(words // 11)))]


def hash_of(name: str) -> int:
    return 1000 * sum(map(ord, name))


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("strategy", ["hierarchical", "document_aware"])
def test_small_sections_share_a_chunk_under_the_path_that_they_share(strategy: str) -> None:
    (chunk,) = chunked(*PAGE, strategy=strategy).chunks
    assert chunk.heading_path == ("Guide",)
    assert chunk.text == "Intro.\n\n## Setup\n\nInstall it.\n\n### Linux\n\nUse apt.\n\n## Usage\n\nRun it."
    assert chunk.embed_text == f"Guide\n\n{chunk.text}"
    hit = Hit("page", chunk.text, chunk.heading_path)
    for name in ("Guide", "Setup", "Linux", "Usage"):
        assert Label(document="page", heading=name, grade=1).matches(hit)


@pytest.mark.requirement("A4")
def test_the_parent_reads_as_before() -> None:
    (joined,), (apart,) = chunked(*PAGE).sections, chunked(*PAGE, **APART).sections
    assert (joined.heading_path, joined.text) == (apart.heading_path, apart.text)


@pytest.mark.requirement("A4")
def test_a_section_of_the_least_size_stands_alone() -> None:
    blocks = [*section("A", 40), *section("B", 150), *section("C", 40), *section("D", 40)]
    found = chunked(heading("Page"), *blocks).chunks
    assert [chunk.heading_path for chunk in found] == [("Page", "A"), ("Page", "B"), ("Page",)]
    assert found[2].text.startswith("## C\n\n") and "\n\n## D\n\n" in found[2].text


@pytest.mark.requirement("A4")
def test_the_end_of_a_large_section_is_not_joined_to_what_follows() -> None:
    large = [heading("Large", 2), *section("One", 150, 3), *section("Two", 40, 3), *section("Three", 40, 3)]
    found = chunked(heading("Page"), *large, *section("Next", 40)).chunks
    assert [chunk.heading_path for chunk in found] == [
        ("Page", "Large", "One"),
        ("Page", "Large"),
        ("Page", "Next"),
    ]


@pytest.mark.requirement("A4")
def test_a_list_of_tiny_sections_fills_chunks_and_never_more() -> None:
    blocks = [block for n in range(400) for block in section(f"Entry {n}", 12)]
    found = chunked(heading("Page"), *blocks).chunks
    assert len(found) < 400 / 6
    assert all(chunk.tokens <= 256 and chunk.heading_path == ("Page",) for chunk in found)
    assert sum(chunk.tokens for chunk in found) / len(found) >= 128
    shown = [line for chunk in found for line in chunk.text.splitlines() if line.startswith("## ")]
    assert shown == [f"## Entry {n}" for n in range(400)]
    assert all(chunk.text.startswith("## Entry") for chunk in found)  # nothing is repeated across headings


@pytest.mark.requirement("A4")
def test_equal_headings_are_not_taken_for_one() -> None:
    found = chunked(heading("Q", 2), paragraph("Yes."), heading("Q", 2), paragraph("No.")).chunks
    assert [(c.heading_path, c.text) for c in found] == [((), "## Q\n\nYes.\n\n## Q\n\nNo.")]


@pytest.mark.requirement("A4", "F11")
def test_tables_and_code_stay_whole_in_a_joined_chunk() -> None:
    source = "\n".join(f"\tstep_{n}()" for n in range(6))
    table = Block(
        type="table", header="| a |\n| --- |", text="| a |\n| --- |\n" + "\n".join(f"| r{n} |" for n in range(6))
    )
    blocks = [heading("P"), *section("A", 30), heading("B", 2), code(source), heading("C", 2), table, *section("D", 30)]
    found = chunked(*blocks).chunks
    assert len(found) == 1
    assert source in found[0].text and table.text in found[0].text


@pytest.mark.requirement("A2", "A4")
def test_a_joined_chunk_reaches_from_its_first_section_to_its_last() -> None:
    source = "# Guide\n\nIntro.\n\n## Setup\n\nInstall it.\n\n## Usage\n\nRun *it*.\n"
    extracted = BlockExtractor().extract(source.encode(), "text/markdown")
    (chunk,) = chunker().chunk(REF, extracted, title="", facets="").chunks
    assert source[chunk.start : chunk.end] == "Intro.\n\n## Setup\n\nInstall it.\n\n## Usage\n\nRun *it*."


@pytest.mark.requirement("A2", "A4")
def test_what_stands_on_another_page_or_nowhere_in_the_source_is_not_joined() -> None:
    slides = [
        block.model_copy(update={"page": 1 + n // 2}) for n in range(4) for block in section(f"Slide {n}", 20)
    ]  # fmt: skip
    assert [chunk.page for chunk in chunked(*slides).chunks] == [1, 2]
    mail = [block.model_copy(update={"anchors": ((0, 50 * n),)}) for n, block in enumerate(section("Mail", 20))]
    found = chunked(*mail, *section("Attachment", 20)).chunks
    assert [(chunk.heading_path, chunk.start >= 0) for chunk in found] == [(("Mail",), True), (("Attachment",), False)]


@pytest.mark.requirement("A4")
@settings(max_examples=25, deadline=None)
@given(BLOCKS)
def test_joining_loses_no_word_and_makes_no_chunk_too_long(blocks: list[Block]) -> None:
    result = chunker().chunk(REF, document(*blocks), title="", facets="")
    apart = chunker(**APART).chunk(REF, document(*blocks), title="", facets="")
    assert len(result.chunks) <= len(apart.chunks)

    found = set(TOKEN.findall(" ".join(" ".join([*c.heading_path, c.text]) for c in result.chunks)))
    assert all(set(TOKEN.findall(block.text)) <= found for block in blocks)
    counter = WordCounter()
    assert all(chunk.tokens == counter.count(chunk.embed_text) <= 256 for chunk in result.chunks)
    assert [c.section_ordinal for c in result.chunks] == sorted(c.section_ordinal for c in result.chunks)


def little(rng: random.Random) -> list[Block]:
    """A page of many sections, most of them tiny, a few large."""
    blocks = [heading("Page")]
    for number in range(60):
        blocks.append(heading(f"Part {number}", rng.choice((2, 2, 3))))
        for p in range(rng.choice((1, 1, 1, 2, 5))):
            text = " ".join(sentence(100 * number + 10 * p + s, rng.randint(5, 14)) for s in range(rng.randint(1, 3)))
            blocks.append(paragraph(text))
    return blocks


@pytest.mark.requirement("A4", "A6", "I6")
def test_an_edit_of_a_page_of_tiny_sections_changes_few_chunks() -> None:
    make, counts = chunker(), dict[str, list[int]]()
    for seed in range(4):
        rng = random.Random(seed)
        blocks = little(rng)
        old = make.chunk(REF, document(*blocks), title="", facets="")
        assert any(before.heading_path == ("Page",) for before, _ in pairwise(old.chunks))
        for name, edited in edits(rng, blocks):
            new = make.chunk(REF, document(*edited), title="", facets="")
            counts.setdefault(name, []).append(fresh_chunks(old, new))
    assert max(counts["changed"]) <= 2, counts
    found = [n for numbers in counts.values() for n in numbers]
    assert max(found) <= 4, counts  # a section that is small no longer parts the two beside it
    assert sum(n <= 2 for n in found) >= 0.8 * len(found), counts
