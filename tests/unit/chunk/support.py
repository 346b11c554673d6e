"""A light token counter and builders of documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pipeline.chunk import HierarchicalChunker
from pipeline.chunk.chunker import PATH_JOIN
from schemas.documents import Block, Chunk, ChunkedDocument, ExtractedDocument
from schemas.generation import ChunkingSpec, EncoderSpec
from schemas.keys import DocumentRef

REF = DocumentRef(tenant="acme", source="wiki", id="p1")
TOKEN = re.compile(r"\w+|[^\w\s]")


class WordCounter:
    """One token a word or mark, and two special tokens, as BERT's first step does."""

    def count(self, text: str) -> int:
        return len(TOKEN.findall(text)) + 2

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in TOKEN.finditer(text)]


def chunker(encoder: EncoderSpec | None = None, **sizes: Any) -> HierarchicalChunker:
    return HierarchicalChunker(ChunkingSpec.model_validate(sizes), WordCounter(), encoder or EncoderSpec())


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
