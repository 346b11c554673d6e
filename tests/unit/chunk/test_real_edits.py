"""A real wiki's edits: what they cost in chunks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pipeline.extract import BlockExtractor
from tests.unit.chunk.support import REF, chunker

EVENTS = 250


@pytest.mark.requirement("A4", "A6")
def test_edits_of_one_block_rarely_touch_more_than_two_chunks(shared_data: Path) -> None:
    extractor, make = BlockExtractor(), chunker()
    known: dict[str, tuple[set[str], Counter[str]]] = {}
    fresh: list[int] = []
    with (shared_data / "handbook-history" / "events.jsonl").open(encoding="utf-8") as lines:
        events = [json.loads(line) for _, line in zip(range(EVENTS), lines, strict=False)]
    for event in events:
        if event["op"] == "delete":
            continue
        extracted = extractor.extract(event["text"].encode(), "text/markdown")
        result = make.chunk(REF, extracted, title=event.get("title") or "", facets="")
        ids = {chunk.embed_hash for chunk in result.chunks}
        blocks = Counter(block.text for block in extracted.blocks)
        before = known.get(str(event["page_id"]))
        if before is not None and (blocks - before[1]).total() == 1 and (before[1] - blocks).total() <= 1:
            fresh.append(len(ids - before[0]))
        known[str(event["page_id"])] = (ids, blocks)
    assert len(fresh) >= 40
    assert sum(count <= 2 for count in fresh) >= 0.95 * len(fresh), sorted(fresh)
