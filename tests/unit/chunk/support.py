"""A light token counter and builders of documents."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pipeline.chunk import chunker_for
from pipeline.chunk.texts import PATH_JOIN
from pipeline.ports import Chunker, TokenCounter, Vectors
from schemas.documents import Block, Chunk, ChunkedDocument, ExtractedDocument
from schemas.generation import ChunkingSpec, EncoderSpec, Strategy
from schemas.keys import DocumentRef

REF = DocumentRef(tenant="acme", source="wiki", id="p1")
TOKEN = re.compile(r"\w+|[^\w\s]")


class WordCounter:
    """One token a word or mark, and two special tokens, as BERT's first step does."""

    def count(self, text: str) -> int:
        return len(TOKEN.findall(text)) + 2

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in TOKEN.finditer(text)]


def chunker(encoder: EncoderSpec | None = None, **sizes: Any) -> Chunker:
    spec = ChunkingSpec.model_validate(sizes)
    return chunker_for(spec, WordCounter(), encoder or EncoderSpec(), shared_words)


def document(*blocks: Block) -> ExtractedDocument:
    return ExtractedDocument(blocks=blocks, media_type="text/markdown")


def heading(text: str, level: int = 1) -> Block:
    return Block(type="heading", text=text, level=level)


def paragraph(text: str) -> Block:
    return Block(type="paragraph", text=text)


def code(text: str, language: str | None = None) -> Block:
    return Block(type="code", text=text, language=language)


def chunked(*blocks: Block, title: str = "Title", facets: str = "", **sizes: Any) -> ChunkedDocument:
    return chunker(**sizes).chunk(REF, document(*blocks), title=title, facets=facets)


def body(chunk: Chunk) -> str:
    """What is embedded without the heading path."""
    prefix = PATH_JOIN.join(chunk.heading_path) + "\n\n" if chunk.heading_path else ""
    return chunk.embed_text.removeprefix(prefix)


def sentence(number: int, words: int = 12) -> str:
    """A sentence whose words name it."""
    return f"Sentence{number} " + " ".join(f"w{number}x{i}" for i in range(words - 2)) + " end."


STRATEGIES: tuple[Strategy, ...] = ("hierarchical", "fixed", "recursive", "semantic", "document_aware")
APART: dict[str, Any] = {"child_min_tokens": 1}  # no section is small enough to share a chunk
SMALL: dict[str, Any] = {"child_tokens": 48, "child_min_tokens": 24, "child_max_tokens": 64, "parent_tokens": 160}


def shared_words(texts: Sequence[str]) -> Vectors:
    """Vectors of sentences whose cosine tells how many words two of them share."""
    rows = np.zeros((len(texts), 256), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in TOKEN.findall(text.casefold()):
            row[hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=1).digest()[0]] += 1
    return rows


def placed(*blocks: Block) -> tuple[ExtractedDocument, str]:
    """A document whose blocks know their places in a source that is nothing but their texts, and this source."""
    found, at = [], 0
    for block in blocks:
        lead = len(block.text) - len(block.text.lstrip())
        found.append(block.model_copy(update={"anchors": ((lead, at + lead),)}))
        at += len(block.text) + 2
    return document(*found), "\n\n".join(block.text for block in blocks)


def every_strategy(
    blocks: Sequence[Block], counter: TokenCounter | None = None, encoder: EncoderSpec | None = None, **sizes: Any
) -> Iterator[tuple[Strategy, ChunkedDocument]]:
    """The blocks, with places, cut in each way."""
    for strategy in STRATEGIES:
        spec = ChunkingSpec.model_validate({"strategy": strategy, **sizes})
        make = chunker_for(spec, counter or WordCounter(), encoder or EncoderSpec(), shared_words)
        yield strategy, make.chunk(REF, placed(*blocks)[0], title="", facets="")
