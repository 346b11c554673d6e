"""Time and memory follow the size of a document, whatever its shape; one that is too large is refused early."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from pipeline import analysis
from pipeline.chunk import chunker_for
from pipeline.chunk.ruler import WINDOW
from pipeline.chunk.sentences import sentence_spans
from pipeline.errors import DocumentError
from schemas.documents import Block
from schemas.generation import ChunkingSpec, EncoderSpec
from tests.unit.chunk.support import REF, STRATEGIES, WordCounter, code, document, heading, paragraph, shared_words


class Meter(WordCounter):
    """Counts the characters that it was given, and the longest text among them."""

    def __init__(self) -> None:
        self.characters = self.longest = 0

    def _seen(self, text: str) -> None:
        self.characters += len(text)
        self.longest = max(self.longest, len(text))

    def count(self, text: str) -> int:
        self._seen(text)
        return super().count(text)

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        self._seen(text)
        return super().offsets(text)


SHAPES = {
    "one word": lambda n: [paragraph("x" * n)],
    "one line of words": lambda n: [paragraph("word " * (n // 5))],
    "tiny lines": lambda n: [paragraph("x\n" * (n // 2))],
    "stops": lambda n: [paragraph("." * n)],
    "code": lambda n: [code("a = b + c  # note\n" * (n // 18))],
    "list": lambda n: [Block(type="list", text="- item and more\n" * (n // 16))],
    "headings": lambda n: [b for i in range(n // 60) for b in (heading(f"Part {i}", 1 + i % 6), paragraph("y " * 25))],
    "long headings": lambda n: [heading(f"Part {i} " + "w " * 450, 1 + i % 6) for i in range(n // 1000)],
}


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_tokenizer_reads_a_document_a_few_times_however_long(shape: str) -> None:
    """Characters given to the tokenizer stand for time: they do not grow faster than the document."""
    for strategy in STRATEGIES:
        read = []
        for size in (15_000, 45_000):
            meter, blocks = Meter(), SHAPES[shape](size)
            spec = ChunkingSpec(strategy=strategy, summary=True)
            chunker_for(spec, meter, EncoderSpec(), shared_words).chunk(REF, document(*blocks), title="", facets="")
            read.append(meter.characters / sum(len(block.text) for block in blocks))
        assert read[1] <= 12, (strategy, read)
        assert read[1] <= 1.4 * read[0], (strategy, read)


@pytest.mark.requirement("A4", "I8")
@pytest.mark.parametrize("kind", ["paragraph", "code", "list"])
def test_a_log_of_50_megabytes_is_refused_before_it_is_read(kind: str) -> None:
    line = "2026-11-30T12:34:56.789Z INFO gateway[12] request 8f3a2b1c served in 12 ms for user 4711, status=200 ok\n"
    text = line * 125_000
    blocks = [Block.model_validate({"type": kind, "text": text})] * 4
    assert sum(len(block.text) for block in blocks) > 50_000_000
    for strategy in STRATEGIES:
        meter = Meter()
        make = chunker_for(ChunkingSpec(strategy=strategy, max_chunks=50), meter, EncoderSpec(), shared_words)
        tracemalloc.start()
        with pytest.raises(DocumentError, match=r"more than 50 chunks.*chunking\.max_chunks") as caught:
            make.chunk(REF, document(*blocks), title="", facets="")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert caught.value.kind == "too-many-chunks"
        assert meter.characters < 500_000 and meter.longest <= WINDOW
        assert peak < 20_000_000, (strategy, peak)


@pytest.mark.requirement("A4")
def test_thousands_of_headings_keep_short_paths() -> None:
    blocks = [b for i in range(2_500) for b in (heading(f"Part {i}", i), paragraph(f"Text {i}."))]
    spec = ChunkingSpec(child_min_tokens=1)  # none shares a chunk
    found = chunker_for(spec, WordCounter(), EncoderSpec()).chunk(REF, document(*blocks), title="", facets="")
    assert len(found.chunks) == 2_500
    assert max(len(chunk.heading_path) for chunk in found.chunks) <= 6
    assert found.chunks[-1].heading_path[-1] == "Part 2499"


@pytest.mark.requirement("A4", "F16")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_title_and_a_heading_of_3000_characters_are_cut_for_embedding_only(strategy: str) -> None:
    title = " ".join(f"title{i}" for i in range(400))
    long = " ".join(f"heading{i}" for i in range(300))
    assert len(title) > 3000 and len(long) > 3000
    facets = " ".join(f"product{i}" for i in range(400))
    spec = ChunkingSpec.model_validate({"strategy": strategy, "child_max_tokens": 200})
    make = chunker_for(spec, WordCounter(), EncoderSpec(), shared_words)
    blocks = (heading(long), paragraph("The body stands here."), heading("Part", 2), paragraph("More of it."))
    found = make.chunk(REF, document(*blocks), title=title, facets=facets)
    assert all(chunk.tokens <= (256 if strategy == "document_aware" else 200) for chunk in found.chunks)
    for words in ("The body stands here.", "More of it."):
        (chunk,) = [c for c in found.chunks if words in c.text]
        assert analysis.lexical(title) in chunk.lexical and "title" not in chunk.embed_text
    assert analysis.lexical(long) in " ".join(
        c.lexical.removeprefix(analysis.lexical(title)) for c in found.chunks
    ) or (set(long.split()) <= set(" ".join(c.lexical for c in found.chunks).split()))


@pytest.mark.requirement("A4")
def test_a_row_of_stops_is_read_once() -> None:
    """A search that began anew at each stop would take minutes here."""
    text = "." * 400_000 + "x " + "?!…" * 100_000
    assert sentence_spans(text) == [(0, len(text))]
