"""A query loop during edits and moves between the tiers: no miss, no double, no mixture (invariants 2, 3, 6)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from uuid import uuid4

import pytest

from pipeline.bus.producer import KafkaPublisher
from pipeline.ports import Outgoing
from schemas.events import MaintenanceCommand
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.product import Product, until

ROUNDS = 24


def page(number: int, version: int, word: str) -> str:
    """Four sections; the second changes with every version."""
    return "\n\n".join(
        [
            f"# Page {number} of {word}",
            f"## Constant\n\nThe constant sentence of {word} page{number} never changes.",
            f"## Changing\n\nVersion v{version}v of page{number} in {word} says something new each time.",
            f"## Other\n\nAnother part of {word} page{number} about the weather in the north.",
        ]
    )


@pytest.mark.requirement("A9", "I2", "I3", "I6")
def test_a_query_loop_during_edits_and_tier_moves_never_misses(product: Product) -> None:
    word = f"nm{uuid4().hex[:10]}"
    documents = [DocumentRef(tenant="acme", source="wiki", id=f"loop/{word}-{i}.md") for i in range(3)]
    for i, document in enumerate(documents):
        product.write(document.id, page(i, 0, word))
    until(lambda: len(product.found("ann", f"constant {word}", mode="sparse")) == 3, 30)
    faults: list[str] = []
    counts: Counter[str] = Counter()
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            for i, document in enumerate(documents):
                hits = product.hits("ann", f"constant sentence page{i} {word}", k=20)
                mine = [h for h in hits if h["document_id"] == document.id]
                counts["queries"] += 1
                if not mine:
                    faults.append(f"missed {document.id}")
                ids = [h["chunk_id"] for h in hits]
                if len(ids) != len(set(ids)):
                    faults.append(f"doubled in {document.id}")
                versions = {t for h in mine for t in h["text"].split() if t.startswith("v") and t.endswith("v")}
                if len(versions) > 1 or len({h["version"] for h in mine}) > 1:
                    faults.append(f"mixed {versions} of {document.id}")

    publisher = KafkaPublisher(product.settings, "test")
    looping = threading.Thread(target=loop)
    looping.start()
    try:
        for step in range(ROUNDS):
            i = step % 3
            if step % 2:
                product.write(documents[i].id, page(i, step, word))
            command = MaintenanceCommand(
                type="move", document=documents[(step + 1) % 3], tier="cold" if step % 4 < 2 else "hot",
                requested_at=time.time_ns() // 1000, priority="live",
            )  # fmt: skip
            key = command.document.key
            publisher.publish([Outgoing(str(Topic.MAINTENANCE), key, command.model_dump_json().encode())])
            time.sleep(0.25)
        time.sleep(6)  # past the longest query deadline: the last removals happen inside the loop
    finally:
        stop.set()
        looping.join(30)
        publisher.close()
    assert faults == [], Counter(faults).most_common(5)
    assert counts["queries"] > 50
    tiers = {h["tier"] for i in range(3) for h in product.hits("ann", f"constant sentence page{i} {word}")}
    assert "cold" in tiers or "hot" in tiers
