"""Children and parents: sizes, heading paths, tables, code, overlap, ids."""

from __future__ import annotations

import uuid
from itertools import pairwise

import pytest

from pipeline import analysis
from pipeline.errors import ConfigError, DocumentError
from schemas.documents import Block
from schemas.generation import EncoderSpec
from schemas.keys import DocumentRef
from tests.unit.chunk.support import (
    APART,
    REF,
    WordCounter,
    body,
    chunked,
    chunker,
    code,
    document,
    heading,
    paragraph,
    sentence,
)


@pytest.mark.requirement("A4")
def test_children_restart_at_headings_and_carry_their_path() -> None:
    result = chunked(
        heading("Guide"),
        paragraph("Intro."),
        heading("Setup", 2),
        paragraph("Install it."),
        heading("Linux", 3),
        paragraph("Use apt."),
        heading("Usage", 2),
        paragraph("Run it."),
        **APART,
    )
    assert [(c.heading_path, c.text) for c in result.chunks] == [
        (("Guide",), "Intro."),
        (("Guide", "Setup"), "Install it."),
        (("Guide", "Setup", "Linux"), "Use apt."),
        (("Guide", "Usage"), "Run it."),
    ]
    assert result.chunks[2].embed_text == "Guide > Setup > Linux\n\nUse apt."
    (section,) = result.sections
    assert section.heading_path == ("Guide",)
    assert section.text == "Intro.\n\n## Setup\n\nInstall it.\n\n### Linux\n\nUse apt.\n\n## Usage\n\nRun it."


@pytest.mark.requirement("A4", "I6")
def test_the_title_is_searched_but_never_embedded() -> None:
    blocks = (heading("Body heading"), paragraph("Fix E42 in fs.readFile now."))
    old = chunked(*blocks, title="Oldname guide").chunks
    new = chunked(*blocks, title="Newname guide").chunks
    assert [c.embed_hash for c in old] == [c.embed_hash for c in new]
    assert [c.chunk_id for c in old] != [c.chunk_id for c in new]
    assert "Oldname" not in old[0].embed_text
    assert old[0].lexical == analysis.lexical("Oldname guide", "Body heading", "Fix E42 in fs.readFile now.")
    assert set(old[0].identifiers) == {"e42", "fs.readfile"}


@pytest.mark.requirement("A4")
def test_a_first_heading_equal_to_the_title_is_body() -> None:
    (chunk,) = chunked(heading("Same"), paragraph("Text."), title="Same").chunks
    assert chunk.embed_text == "Same\n\nText."


@pytest.mark.requirement("A4", "I6")
def test_ids_depend_on_everything_searched_or_filtered() -> None:
    blocks = (paragraph("One text."),)
    make = chunker()
    base = make.chunk(REF, document(*blocks), title="t", facets="f")
    again = chunker().chunk(REF, document(*blocks), title="t", facets="f")
    assert base == again
    variants = [
        make.chunk(REF, document(*blocks), title="t", facets="g"),
        make.chunk(REF, document(*blocks), title="u", facets="f"),
        make.chunk(REF, document(paragraph("Another text.")), title="t", facets="f"),
        make.chunk(DocumentRef(tenant="acme", source="wiki", id="p2"), document(*blocks), title="t", facets="f"),
    ]
    ids = {result.chunks[0].chunk_id for result in (base, *variants)}
    assert len(ids) == 5
    assert all(uuid.UUID(chunk_id).version == 5 for chunk_id in ids)


@pytest.mark.requirement("I6")
def test_equal_chunks_of_a_document_have_ids_of_their_own() -> None:
    question = (heading("Q", 2), paragraph("Yes."))
    result = chunked(*question, *question, *question, **APART)
    assert len({c.chunk_id for c in result.chunks}) == 3
    assert len({c.embed_hash for c in result.chunks}) == 1
    fewer = chunked(*question, *question, **APART)
    assert {c.chunk_id for c in fewer.chunks} < {c.chunk_id for c in result.chunks}


@pytest.mark.requirement("A4")
def test_sizes_of_long_prose() -> None:
    blocks = [paragraph(" ".join(sentence(10 * p + s) for s in range(4))) for p in range(60)]
    result = chunked(heading("Long"), *blocks)
    sizes = [c.tokens for c in result.chunks]
    assert max(sizes) <= 256
    assert 160 <= sum(sizes) / len(sizes) <= 230
    assert sum(size >= 128 for size in sizes) > 0.85 * len(sizes)
    counter = WordCounter()
    assert [c.tokens for c in result.chunks] == [counter.count(c.embed_text) for c in result.chunks]
    parents = [counter.count(s.text) for s in result.sections]
    assert max(parents) <= 1024 + 64
    assert sum(parents) / len(parents) > 512


@pytest.mark.requirement("A4")
def test_overlap_repeats_whole_sentences_of_the_same_section_only() -> None:
    first = [paragraph(" ".join(sentence(100 * p + s) for s in range(3))) for p in range(12)]
    second = [paragraph(" ".join(sentence(9000 + 100 * p + s) for s in range(3))) for p in range(12)]
    chunks = chunked(heading("One", 2), *first, heading("Two", 2), *second).chunks
    sentences = [s for block in (*first, *second) for s in block.text.replace(" end.", " end.|").split("|") if s]
    sentences = [s.strip() for s in sentences]
    for before, after in pairwise(chunks):
        repeated = [s for s in sentences if s in before.text and s in after.text]
        if before.heading_path == after.heading_path:
            assert repeated and after.text.startswith(repeated[0]) and before.text.endswith(repeated[-1])
            assert 0 < WordCounter().count(" ".join(repeated)) - 2 <= 30
        else:
            assert repeated == []


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("word", ["Unless", "Except", "Only if", "However,", "Es sei denn"])
def test_a_limiting_sentence_stays_with_what_it_limits(word: str) -> None:
    for claim in range(40):
        blocks = []
        for p in range(40):
            text = sentence(p, 14)
            if p == claim:
                blocks.append(paragraph(f"Claim is allowed {text}"))
                blocks.append(paragraph(f"{word} the limit applies {text}"))
            else:
                blocks.append(paragraph(text))
        result = chunked(heading("H"), *blocks)
        assert any("Claim is" in c.text and "the limit applies" in c.text for c in result.chunks)
        assert any("Claim is" in s.text and "the limit applies" in s.text for s in result.sections)


def table(rows: int, cells: int = 4) -> Block:
    header = "| Name | Value |\n| --- | --- |"
    lines = [f"| row{i} | " + " ".join(f"v{i}c{c}" for c in range(cells)) + " |" for i in range(rows)]
    return Block(type="table", header=header, text="\n".join([header, *lines]))


@pytest.mark.requirement("A4")
def test_a_table_that_fits_is_one_piece_with_the_prose_around_it() -> None:
    small = table(5)
    (chunk,) = chunked(paragraph("Before:"), small, paragraph("After.")).chunks
    assert chunk.text == f"Before:\n\n{small.text}\n\nAfter."


@pytest.mark.requirement("A4")
def test_a_long_table_is_split_by_rows_under_its_header() -> None:
    long = table(120)
    result = chunked(heading("T"), paragraph("Before."), long, paragraph("After."))
    pieces = [c.text for c in result.chunks if "| row" in c.text]
    assert len(pieces) > 3
    assert all(piece.startswith("| Name | Value |\n| --- | --- |\n| row") for piece in pieces)
    rows = [line for piece in pieces for line in piece.split("\n")[2:]]
    assert rows == long.text.split("\n")[2:]
    assert "\n\n".join(s.text for s in result.sections).count("| row7 |") == 1


@pytest.mark.requirement("A4")
def test_rows_and_headers_larger_than_a_chunk_lose_nothing() -> None:
    wide = table(3, cells=700)
    texts = "\n".join(c.text for c in chunked(wide).chunks)
    assert all(f"v{i}c{c}" in texts for i in range(3) for c in range(700))
    header = "| " + " | ".join(f"h{i}" for i in range(400)) + " |"
    block = Block(type="table", header=header, text=f"{header}\n| a |\n| b |")
    texts = "\n".join(c.text for c in chunked(block).chunks)
    assert all(f"h{i}" in texts for i in range(400))
    assert "| b |" in texts


@pytest.mark.requirement("A4", "F11")
def test_code_stays_byte_equal_in_one_chunk() -> None:
    source = "\n".join(f"\tline{i} = '  {i}'  # note" if i % 5 else "" for i in range(1, 24))
    result = chunked(heading("H"), paragraph(sentence(1, 100)), code(source, "python"), paragraph(sentence(2, 100)))
    assert sum(source in c.text for c in result.chunks) == 1
    assert f"```python\n{source}\n```" in result.sections[0].text


@pytest.mark.requirement("A4", "F11")
def test_code_larger_than_a_chunk_is_cut_at_line_ends_blank_lines_first() -> None:
    functions = [f"def f{i}(x):\n    y = x + {i}\n\n    return g(y, {i})" for i in range(60)]
    source = "\n\n\n".join(functions)
    result = chunked(heading("H"), code(source, "python"))
    pieces = [c.text for c in result.chunks]
    assert len(pieces) > 3
    at = 0
    for piece in pieces:
        found = source.index(piece, at)
        assert source[at:found].strip("\n") == ""
        at = found + len(piece)
    assert source[at:] == ""
    assert all(piece.startswith(("def ", "    return")) for piece in pieces)
    assert f"```python\n{source}\n```" in "".join(s.text for s in result.sections) or len(result.sections) > 1


@pytest.mark.requirement("A4")
def test_one_endless_word_or_line_is_cut_by_tokens_and_characters() -> None:
    line = " ".join(f"word{i}" for i in range(3000))
    result = chunked(paragraph(line))
    assert " ".join(c.text for c in result.chunks) == line
    blob = "A" * 100_000  # one token to this counter, as to many a tokenizer
    result = chunked(code(blob))
    assert "".join(c.text for c in result.chunks) == blob
    assert max(len(c.text) for c in result.chunks) <= 256 * 40


@pytest.mark.requirement("A4", "F16")
def test_an_endless_title_or_heading_is_cut_for_embedding_and_indexed_in_full() -> None:
    long = " ".join(f"title{i}" for i in range(430))
    assert len(long) > 3000
    blocks = (heading(long), paragraph("The body."), heading("Part", 2), paragraph("More."))
    result = chunked(*blocks, title=long)
    assert all(c.tokens <= 256 for c in result.chunks)
    assert any("The body." in c.text for c in result.chunks)
    more = next(c for c in result.chunks if c.text == "More.")
    assert WordCounter().count(more.embed_text) < 80
    assert "title429" in more.lexical
    assert "title429" in " ".join(c.text for c in result.chunks)  # the heading is body as well
    deep = [heading(f"level{n} " + "x " * 40, n) for n in range(1, 7)]
    (chunk,) = chunked(*deep, paragraph("End.")).chunks
    assert chunk.embed_text.startswith("level6") and chunk.tokens <= 80


@pytest.mark.requirement("A4")
def test_headings_without_text_are_still_found() -> None:
    result = chunked(heading("A"), heading("B", 2), heading("C", 2), paragraph("x"), heading("D"), **APART)
    assert [(c.heading_path, c.text) for c in result.chunks] == [
        (("A",), "B"),
        (("A", "C"), "x"),
        ((), "D"),
    ]


@pytest.mark.requirement("A4")
def test_an_empty_document_has_neither_chunks_nor_sections() -> None:
    result = chunked()
    assert (result.chunks, result.sections) == ((), ())


@pytest.mark.requirement("A4", "I8")
def test_too_many_chunks_is_the_document_s_error() -> None:
    blocks = [block for i in range(30) for block in (heading(f"h{i}"), paragraph(f"text {i}"))]
    assert len(chunked(*blocks, max_chunks=30, **APART).chunks) == 30
    with pytest.raises(DocumentError, match="more than 29 chunks") as caught:
        chunked(*blocks, max_chunks=29, **APART)
    assert (caught.value.stage, caught.value.kind) == ("chunk", "too-many-chunks")


@pytest.mark.requirement("A4")
def test_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="child_max_tokens"):
        chunker(EncoderSpec(max_tokens=100))


@pytest.mark.requirement("A4")
def test_the_encoder_s_limit_and_instruction_count() -> None:
    encoder = EncoderSpec(max_tokens=128, document_instruction="passage about our products: ")
    make = chunker(encoder, child_tokens=100, child_min_tokens=64)
    result = make.chunk(REF, document(*[paragraph(sentence(i, 30)) for i in range(60)]), title="", facets="")
    counter = WordCounter()
    assert max(counter.count(encoder.document_instruction + c.embed_text) for c in result.chunks) <= 128


class GreedyCounter(WordCounter):
    """A tokenizer that counts a text as more than its parts."""

    def count(self, text: str) -> int:
        tokens = super().count(text) - 2
        return tokens + tokens // 4 + 2


@pytest.mark.requirement("A4")
def test_a_tokenizer_that_does_not_add_up_never_overflows() -> None:
    from pipeline.chunk import chunker_for
    from schemas.generation import ChunkingSpec

    make = chunker_for(ChunkingSpec(), GreedyCounter(), EncoderSpec())
    blocks = [paragraph(" ".join(sentence(10 * p + s) for s in range(6))) for p in range(20)]
    blocks += [table(80), code("\n".join(f"a{i} = {i}" for i in range(200)))]
    result = make.chunk(REF, document(*blocks), title="", facets="")
    assert max(c.tokens for c in result.chunks) <= 256
    joined = "\n".join(c.text for c in result.chunks)
    assert all(f"Sentence{10 * p + s} " in joined for p in range(20) for s in range(6))
    assert all(f"row{i} " in joined for i in range(80))


@pytest.mark.requirement("A3", "A4")
def test_ordinals_and_pages() -> None:
    blocks = [Block(type="paragraph", text=sentence(i, 60), page=1 + i // 10) for i in range(60)]
    result = chunked(*blocks)
    assert [c.ordinal for c in result.chunks] == list(range(len(result.chunks)))
    assert [s.ordinal for s in result.sections] == list(range(len(result.sections)))
    assert sorted({c.section_ordinal for c in result.chunks}) == [s.ordinal for s in result.sections]
    assert result.sections[0].page == 1
    assert all(body(c).split()[0] in result.sections[c.section_ordinal].text for c in result.chunks if c.ordinal == 0)
