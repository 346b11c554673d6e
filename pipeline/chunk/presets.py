"""Chunkings that are known to work, by name."""

from __future__ import annotations

from pipeline.errors import ConfigError
from schemas.generation import ChunkingSpec

DEFAULT = "200/1024"


def presets() -> dict[str, ChunkingSpec]:
    """All of them: tokens of a child and of its parent, or of a fixed piece and its overlap."""
    return {
        DEFAULT: ChunkingSpec(),
        "128/512": ChunkingSpec(child_tokens=128, child_min_tokens=80, child_max_tokens=160, parent_tokens=512),
        "200/2000": ChunkingSpec(parent_tokens=2000),
        "fixed 512/64": _fixed(512, 64),
        "fixed 256/32": _fixed(256, 32),
    }


def preset(name: str) -> ChunkingSpec:
    """One of them. Raises ConfigError naming all."""
    found = presets()
    if name not in found:
        raise ConfigError("chunking", f"there is no preset {name!r}", f"Known: {', '.join(found)}.")
    return found[name]


def _fixed(size: int, overlap: int) -> ChunkingSpec:
    return ChunkingSpec(
        strategy="fixed",
        child_tokens=size,
        child_min_tokens=1,
        child_max_tokens=size,
        parent_tokens=max(1024, 2 * size),
        overlap=overlap / size,
    )
