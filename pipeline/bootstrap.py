"""Settings to adapters: the only place that picks them. Heavy imports happen inside the functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pipeline.clock import Clock
from pipeline.flow import DocumentFlow
from pipeline.ports import Embedder, Extractor, IndexStore, Vectors
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec, Generation, ReferenceVectors

if TYPE_CHECKING:
    from pipeline.extract.pool import ExtractorPool

# A document that takes longer to read than a live edit may wait (invariant 13) is read while others go on.
PATIENCE_S = 0.1


def build_extractor(settings: Settings, observe: Callable[[str, float, str], None]) -> ExtractorPool:
    """Children that read documents; whoever asks for it closes it. ``observe``: see ``ExtractorPool``."""
    from pipeline.extract.pool import ExtractorPool

    return ExtractorPool(settings.extraction, patience_s=PATIENCE_S, observe=observe)


def build_flow(
    settings: Settings, generation: Generation, store: IndexStore, clock: Clock, extractor: Extractor,
    similarity: Callable[[Sequence[str]], Vectors] | None = None,
) -> DocumentFlow:  # fmt: skip
    """The write path of one generation. ``similarity`` embeds sentences, for semantic chunking."""
    from pipeline.bus.bodies import FsspecBodyStore
    from pipeline.chunk import chunker_for
    from pipeline.embed import token_counter

    counter = token_counter(generation.encoder, settings)
    return DocumentFlow(
        store=store,
        extractor=extractor,
        chunker=chunker_for(generation.chunking, counter, generation.encoder, similarity),
        bodies=FsspecBodyStore.of(settings),
        generation=generation,
        clock=clock,
        query_deadline_s=settings.index.query_deadline_s,
        staged_above=settings.index.staged_above,
    )


def build_encoder(settings: Settings, generation: Generation, *, for_queries: bool = False) -> Embedder:
    """The generation's encoder, proven to make the vectors of its record. Raises ConfigError, EncoderUnavailable."""
    from pipeline.embed import load_faithful

    return load_faithful(
        generation.encoder, generation.backend, generation.reference, settings, for_queries=for_queries
    )


def choose_backend(settings: Settings, encoder: EncoderSpec) -> BackendChoice:
    """The fastest backend on this machine that agrees with fp32; tried once per machine."""
    from pipeline.embed.remembered import remembered_backend

    return remembered_backend(encoder, settings)


def reference_vectors(settings: Settings, encoder: EncoderSpec, backend: BackendChoice) -> ReferenceVectors:
    """What the encoder makes of the reference texts: kept in the generation's record, compared on every host."""
    from pipeline.embed import reference_vectors as made

    return made(encoder, backend, settings)
