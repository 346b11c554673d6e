"""``python -m infra.bench.alone DOCUMENTS GENERATION``: the generation's encoder on the chunks of some documents.

In a process of its own, like the index consumer: CPU seconds are those of the encoder's calls alone. Prints one line
of JSON: all texts in one call, and some of them in calls of as many as a slice of the index consumer holds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from consumers.encoder_lane import MAX_SLICE
from pipeline.flow import facets_of
from pipeline.ports import Chunker, Embedder, Extractor
from schemas.events import ContentUpserted, InlineBody
from schemas.keys import DocumentRef

SHARE = 4  # a quarter says what slices cost


def main(arguments: Sequence[str]) -> int:
    """Measure; the exit status."""
    from pipeline.bootstrap import build_encoder, build_flow
    from pipeline.clock import SystemClock
    from pipeline.extract import BlockExtractor
    from pipeline.index.store import WeaviateStore
    from pipeline.settings import load

    path, name = arguments
    settings = load()
    store = WeaviateStore(settings)
    generation = store.read_generations()[name]
    flow = build_flow(settings, generation, store, SystemClock(), BlockExtractor())
    texts = texts_of(Path(path).read_text(encoding="utf-8").splitlines(), flow.extractor, flow.chunker)
    store.close()
    encoder = build_encoder(settings, generation)
    encoder.embed_documents(texts[:MAX_SLICE])  # kernels for the common shapes are made
    whole = measured(lambda: encoder.embed_documents(texts), len(texts))
    some = texts[: max(1, len(texts) // SHARE)]
    slices = measured(lambda: _in_slices(encoder, some), len(some))
    sys.stdout.write(json.dumps({"whole": whole, "slices": slices}) + "\n")
    return 0


def texts_of(lines: Sequence[str], extractor: Extractor, chunker: Chunker) -> list[str]:
    """Distinct embedded texts of each document, as the index consumer would embed them."""
    found: list[str] = []
    for line in lines:
        page = json.loads(line)
        event = ContentUpserted(
            document=DocumentRef(tenant="alone", source="alone", id=page["id"]), version=1, access_version=0,
            title=page["title"], content_type=page["content_type"], body=InlineBody(text=""), observed_at=0,
        )  # fmt: skip
        extracted = extractor.extract(page["text"].encode(), page["content_type"])
        facets = facets_of(event, extracted.media_type, extracted.language)
        chunked = chunker.chunk(event.document, extracted, title=page["title"], facets=facets)
        found += {chunk.embed_hash: chunk.embed_text for chunk in chunked.chunks}.values()
    return found


def _in_slices(encoder: Embedder, texts: Sequence[str]) -> None:
    for start in range(0, len(texts), MAX_SLICE):
        encoder.embed_documents(texts[start : start + MAX_SLICE])


def measured(work: Callable[[], object], chunks: int) -> dict[str, float]:
    """CPU seconds of this process (all threads) and seconds by the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    work()
    return {"chunks": chunks, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - clock}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
