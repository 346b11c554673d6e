"""``start`` and ``end``: what a client finds there who has nothing but the bytes of the source."""

from __future__ import annotations

import codecs
import random
import re
from typing import Any

import pytest

from pipeline.chunk import chunker_for
from pipeline.extract import BlockExtractor
from schemas.documents import Chunk
from schemas.generation import ChunkingSpec, EncoderSpec, Strategy
from tests.unit.chunk.support import REF, SMALL, STRATEGIES, WordCounter, shared_words

_WORDS = ("über", "crane", "quay", "größer", "tide", "🚢", "障害", "mast", "rope", "naïve", "of", "the")


def chunks_of(body: bytes, media: str, strategy: Strategy = "hierarchical", **more: Any) -> tuple[Chunk, ...]:
    spec = ChunkingSpec.model_validate({"strategy": strategy, **SMALL, **more})
    chunker = chunker_for(spec, WordCounter(), EncoderSpec(), shared_words)
    return chunker.chunk(REF, BlockExtractor().extract(body, media), title="", facets="").chunks


def page() -> str:
    """Markdown whose words name themselves: prose under headings, a long table, a list."""
    chance = random.Random(3)
    out, count = [], 0

    def words(number: int) -> str:
        nonlocal count
        count += number
        return " ".join(f"{chance.choice(_WORDS)}{count - number + i}" for i in range(number))

    for section in range(5):  # several of these share a chunk with some strategies
        out.append(f"{'#' * (1 + section % 2)} Part of little\n\n{words(6)}.\n\n")
    for section in range(6):
        out.append(f"{'#' * (1 + section % 3)} Part {section}\n\n")
        for _ in range(3):
            out.append(" ".join(f"S{words(9)}." for _ in range(4)) + "\n\n")
    out.append("# Tables\n\n| Number | Name |\n| --- | --- |\n")
    out.extend(f"| row{i} | {words(3)} |\n" for i in range(60))
    out.append("\n# Lists\n\n" + "".join(f"- item{i} {words(5)}\n" for i in range(40)))
    return "".join(out)


def as_a_client(body: bytes, charset: str) -> str:
    """What docs/chunking.md says: decode, drop a byte order mark, line ends as LF."""
    return body.decode(charset).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def written(text: str) -> list[str]:
    return re.findall(r"\w+\d+", text)


@pytest.mark.requirement("A2", "A4")
@pytest.mark.parametrize(
    ("charset", "mark", "line_end", "declared"),
    [
        ("utf-8", b"", "\r\n", ""),
        ("utf-8", b"", "\r", ""),
        ("utf-8", codecs.BOM_UTF8, "\n", ""),
        ("utf-8", codecs.BOM_UTF8, "\r\n", "; charset=utf-8"),
        ("utf-16-le", codecs.BOM_UTF16_LE, "\r\n", ""),
        ("utf-16-be", codecs.BOM_UTF16_BE, "\n", ""),
        ("utf-16-le", b"", "\r\n", "; charset=utf-16le"),
    ],
)
@pytest.mark.parametrize("media", ["text/markdown", "text/plain", "text/csv"])
def test_a_client_finds_the_passage(charset: str, mark: bytes, line_end: str, declared: str, media: str) -> None:
    if media == "text/csv":
        text = "number,name,place\n" + "".join(f"row{i},crane{i},größer{i}\n" for i in range(60))
    else:
        text = page()
    body = mark + text.replace("\n", line_end).encode(charset)
    source = as_a_client(body, charset)
    assert source == text
    chunks = chunks_of(body, media + declared)
    assert len(chunks) > 3
    found: list[str] = []
    for chunk in chunks:
        passage = source[chunk.start : chunk.end]
        assert passage and passage == passage.strip()
        assert written(chunk.text)[-1:] == written(passage)[-1:]
        found += written(passage)
    assert found == written(text)


@pytest.mark.requirement("A2", "A4")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_range_leaves_out_what_the_text_opens_with(strategy: Strategy) -> None:
    source = page()
    near = {"semantic_threshold": 0.0} if strategy == "semantic" else {}  # no cuts but where chunks are full
    opened = {"overlap": 0, "header": 0, "heading": 0}
    before = 0
    for chunk in chunks_of(source.encode(), "text/markdown", strategy, overlap=0.3, **near):
        assert before <= chunk.start < chunk.end
        own, shown = written(source[chunk.start : chunk.end]), written(chunk.text)
        assert own == shown[len(shown) - len(own) :]
        repeated = shown[: len(shown) - len(own)]
        assert all(source.index(word) < chunk.start for word in repeated)
        opened["overlap"] += bool(repeated)
        if chunk.text.startswith("| Number | Name |") and "| row0 |" not in chunk.text:
            opened["header"] += 1
            assert "Number" not in source[chunk.start : chunk.end]
        if chunk.text.startswith("#"):
            opened["heading"] += 1
            assert not source[chunk.start : chunk.end].startswith("#")
        before = chunk.end
    assert opened["overlap"]
    assert opened["header"] or strategy == "fixed"
    assert bool(opened["heading"]) == (strategy in ("fixed", "recursive"))
