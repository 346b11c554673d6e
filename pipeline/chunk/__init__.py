"""Typed blocks to parents and children."""

from __future__ import annotations

from pipeline.chunk.chunker import StrategyChunker
from pipeline.chunk.likeness import Similarity
from pipeline.chunk.presets import preset, presets
from pipeline.ports import Chunker, TokenCounter
from schemas.documents import ChunkedDocument, ExtractedDocument
from schemas.generation import ChunkingSpec, EncoderSpec
from schemas.keys import DocumentRef

__all__ = ["Similarity", "chunker_for", "preset", "presets"]


class _ByType:
    """ports.Chunker that picks the strategy by the document's media type."""

    def __init__(self, spec: ChunkingSpec, chunkers: dict[str, StrategyChunker]) -> None:
        self._spec = spec
        self._chunkers = chunkers

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        """As the strategy of its type. Raises DocumentError (stage 'chunk') above ``max_chunks``."""
        chosen = self._chunkers[self._spec.for_type(extracted.media_type)]
        return chosen.chunk(document, extracted, title=title, facets=facets)


def chunker_for(
    spec: ChunkingSpec, counter: TokenCounter, encoder: EncoderSpec, similarity: Similarity | None = None
) -> Chunker:
    """The chunker of a generation: each document is cut by ``spec.for_type`` of its media type.

    ``counter`` counts in the tokens of ``encoder``; ``similarity`` gives vectors of sentences (the embedder's
    ``embed_documents``) and is asked by the semantic strategy alone. Raises ConfigError naming the field where sizes
    cannot fit the encoder, or semantic chunking is asked for without ``similarity``.
    """
    wanted = dict.fromkeys([spec.strategy, *spec.by_type.values()])
    return _ByType(spec, {name: StrategyChunker(name, spec, counter, encoder, similarity) for name in wanted})
