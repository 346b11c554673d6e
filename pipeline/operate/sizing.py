"""How much memory and disk an index needs: arithmetic alone.

Exact where the data decides (vectors, quantised copies), an upper bound for the graph (as if every node had all its
links), estimates for texts, postings and records. Sizes are in bytes, per node of the store, for one replica.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.generation import IndexSpec, TierSpec

FLOAT32 = 4
RQ8_EXTRA = 16  # scale, offset and norms beside one byte a dimension
NODE = 150  # a node of the graph beside its links: structure, lock, slices
HOT_LIMIT = 50_000  # chunks of a tenant's hot tier
# Of an average chunk of 200 tokens, as our own chunker cuts them: distinct terms, and text with properties.
TERMS = 90
POSTING = 8  # id and frequency for ranking, id for filtering, compressed
TEXT = 2_400
CHUNKS_PER_DOCUMENT = 6
RECORDS = 1_500 + 700  # manifest, sections' heads and access record of a document, beside its sections' text
SECTION_TEXT = 1_200  # a chunk's share of its section
# The process, fitted to four measurements of its private memory, which it meets within a fifth: an empty server 50 MB;
# 8,000 chunks just written 164; 100,000 chunks after a restart, 80,000 of them quantised, 356; the same without
# quantisation 734 (the last two are resident memory less 105 MB of program pages). It is a fit and no law: memory
# follows what was written since the last collection.
SERVER = 50_000_000
SHARD = 400_000  # buffers, filters and files of each loaded shard
BUFFER, BUFFERS = 25_000, 100_000_000  # of a chunk while it is in the write buffers, and of all of them
HEAP = 2.5  # what is live, and the garbage beside it


@dataclass(frozen=True)
class Line:
    """One part of an estimate."""

    name: str
    memory: int
    disk: int
    note: str = ""


@dataclass(frozen=True)
class Estimate:
    """What an index needs. ``vectors`` are the raw vectors of one generation."""

    chunks: int
    dimension: int
    bytes_per_value: int
    generations: int
    vectors: int
    lines: tuple[Line, ...]

    @property
    def memory(self) -> int:
        """Live bytes in memory, all generations."""
        return self.generations * sum(line.memory for line in self.lines)

    @property
    def disk(self) -> int:
        """Bytes on disk, all generations."""
        return self.generations * sum(line.disk for line in self.lines)


def vector_bytes(chunks: int, dimension: int, bytes_per_value: int = FLOAT32) -> int:
    """Raw vectors: 2,000,000 x 1536 float32 are 12,288,000,000 bytes."""
    return chunks * dimension * bytes_per_value


def quantised_bytes(chunks: int, dimension: int) -> int:
    """The copy by rotational quantisation (8 bits) that searches use instead of the raw vectors."""
    return chunks * (dimension + RQ8_EXTRA)


def link_bytes(ids: int) -> int:
    """Bytes of one link: the store packs ids in the fewest of 2, 3, 4, 5 or 8 bytes that hold the highest."""
    for width in (2, 3, 4, 5):
        if ids <= 1 << 8 * width:
            return width
    return 8


def graph_bytes(chunks: int, max_connections: int) -> int:
    """The HNSW graph: 2 M links a node on the bottom layer, M on each layer above, which one in M reaches."""
    if chunks == 0:
        return 0
    above = chunks / (max_connections - 1)  # 1/M + 1/M^2 + …
    links = chunks * 2 * max_connections + round(above * max_connections)
    return links * link_bytes(chunks) + chunks * NODE


def postings_bytes(chunks: int, terms: int = TERMS) -> int:
    """The inverted index over the terms of all chunks."""
    return chunks * terms * POSTING


def record_bytes(chunks: int, chunks_per_document: int = CHUNKS_PER_DOCUMENT) -> int:
    """Manifests, access records and sections."""
    documents = -(-chunks // chunks_per_document)
    return documents * RECORDS + chunks * SECTION_TEXT


def estimate(
    chunks: int,
    dimension: int,
    *,
    bytes_per_value: int = FLOAT32,
    index: IndexSpec | None = None,
    hot: int | None = None,
    generations: int = 1,
) -> Estimate:
    """What a corpus of so many chunks needs.

    Args:
        chunks: live chunks of all tenants, both tiers together.
        dimension: of the vectors.
        bytes_per_value: of a raw vector's values.
        index: settings of the tiers; the defaults where None.
        hot: how many of the chunks lie in the hot tier; at most 50,000, the limit of one tenant, where None.
        generations: kept side by side (active and standby are two).
    """
    spec = index if index is not None else IndexSpec()
    warm = min(chunks, HOT_LIMIT) if hot is None else min(hot, chunks)
    tiers = ((spec.hot, warm), (spec.cold, chunks - warm))
    quantised = sum(quantised_bytes(count, dimension) for tier, count in tiers if _quantised(tier))
    kept = sum(vector_bytes(count, dimension, bytes_per_value) for tier, count in tiers if not _quantised(tier))
    graph = sum(graph_bytes(count, tier.max_connections) for tier, count in tiers)
    raw = vector_bytes(chunks, dimension, bytes_per_value)
    return Estimate(
        chunks=chunks,
        dimension=dimension,
        bytes_per_value=bytes_per_value,
        generations=generations,
        vectors=raw,
        lines=(
            Line(
                "raw vectors", kept, raw, f"{chunks} x {dimension} x {bytes_per_value}; in memory where not quantised"
            ),
            Line("quantised copy", quantised, quantised, f"one byte a dimension and {RQ8_EXTRA}"),
            Line(
                "graph", graph, graph, f"M {spec.hot.max_connections} hot, {spec.cold.max_connections} cold, links full"
            ),
            Line("postings", 0, postings_bytes(chunks), f"about {TERMS} terms a chunk; cached by the system"),
            Line("texts", 0, chunks * TEXT, "texts and properties of chunks"),
            Line("records", 0, record_bytes(chunks), "manifests, sections, access"),
        ),
    )


def _quantised(tier: TierSpec) -> bool:
    return tier.quantizer != "none"


def process_bytes(live: int, shards: int, chunks: int) -> int:
    """Expected private memory of the server's process: ``live`` bytes of index over all chunks and shards it holds."""
    return round(SERVER + shards * SHARD + min(BUFFERS, chunks * BUFFER) + live * HEAP)


def retrieval_share(retrieval_ms: float, answer_s: float) -> float:
    """Share of an answer's time that retrieval takes: 40 ms of 3.04 s are 0.013."""
    return retrieval_ms / 1000 / answer_s
