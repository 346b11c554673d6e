"""Settings to adapters: the only place that picks them. Heavy imports happen inside the functions."""

from __future__ import annotations

from pipeline.clock import Clock
from pipeline.flow import DocumentFlow
from pipeline.ports import Embedder, IndexStore
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec, Generation


def build_flow(settings: Settings, generation: Generation, store: IndexStore, clock: Clock) -> DocumentFlow:
    """The write path of one generation."""
    from pipeline.bus.bodies import FsspecBodyStore
    from pipeline.chunk import HierarchicalChunker
    from pipeline.embed import token_counter
    from pipeline.extract import BlockExtractor

    counter = token_counter(generation.encoder, settings)
    return DocumentFlow(
        store=store,
        extractor=BlockExtractor(),
        chunker=HierarchicalChunker(generation.chunking, counter, generation.encoder),
        bodies=FsspecBodyStore.of(settings),
        generation=generation,
        clock=clock,
        query_deadline_s=settings.index.query_deadline_s,
        staged_above=settings.index.staged_above,
    )


def build_encoder(settings: Settings, generation: Generation, *, for_queries: bool = False) -> Embedder:
    """The generation's encoder on the backend that its record names."""
    from pipeline.embed import load_encoder

    return load_encoder(generation.encoder, generation.backend, settings, for_queries=for_queries)


def choose_backend(settings: Settings, encoder: EncoderSpec) -> BackendChoice:
    """The fastest backend on this machine that agrees with fp32; tried once per machine."""
    from pipeline.embed.remembered import remembered_backend

    return remembered_backend(encoder, settings)
