"""Tiers and audits over the running product, as an operator uses them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from infra.cli import build
from pipeline.index.store import WeaviateStore
from pipeline.operate import tiers
from pipeline.operate.audit import AuditReport, audit, mend_all
from pipeline.ports import ChunkWrite
from pipeline.settings import TierSettings
from schemas.documents import Chunk, Tier
from schemas.keys import DocumentRef
from tests.product import Product, until

WHOLE = (
    "orphan_chunks", "orphan_sections", "missing_chunks", "unsearchable_chunks", "prefilter_drift",
    "manifests_without_access", "access_without_manifest", "superseded_events", "tombstones_not_emptied",
    "recent_deletes", "store",
)  # fmt: skip
EVERYTHING = TierSettings(hot_days=0, credit_chunks=40)


def page(word: str, number: int, version: int = 0) -> str:
    return "\n\n".join(
        [
            f"# Page {number} of {word}",
            f"## Constant\n\nThe constant sentence of {word} page{number} never changes.",
            f"## Changing\n\nVersion v{version}v of page{number} in {word} says something new each time.",
        ]
    )


def written(product: Product, count: int) -> tuple[str, list[DocumentRef]]:
    """Pages of a word of their own, indexed."""
    word = f"up{uuid4().hex[:10]}"
    documents = [DocumentRef(tenant="acme", source="wiki", id=f"upkeep/{word}-{i}.md") for i in range(count)]
    for i, document in enumerate(documents):
        product.write(document.id, page(word, i))
    until(lambda: found_of(product, word) == count, 60)
    return word, documents


def found_of(product: Product, word: str) -> int:
    """Pages of the word that are found; those of other tests share its common words."""
    return sum(word in id_ for id_ in product.found("ann", f"constant {word}", mode="sparse", k=50))


@contextmanager
def asked(product: Product, word: str, documents: list[DocumentRef]) -> Iterator[Counter[str]]:
    """A query loop around the block: each document found exactly once, in one version, all the time."""
    seen: Counter[str] = Counter()
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            for i, document in enumerate(documents):
                hits = product.hits("ann", f"constant sentence page{i} {word}", k=20)
                mine = [h for h in hits if h["document_id"] == document.id]
                ids = [h["chunk_id"] for h in hits]
                seen["queries"] += 1
                seen["missed"] += not mine
                seen["doubled"] += len(ids) != len(set(ids))
                seen["mixed"] += len({h["version"] for h in mine}) > 1

    looping = threading.Thread(target=loop)
    looping.start()
    try:
        yield seen
    finally:
        stop.set()
        looping.join(60)


def store_of(product: Product) -> WeaviateStore:
    return WeaviateStore(product.settings)


def active(product: Product) -> str:
    store = store_of(product)
    try:
        name = store.active_generation()
        assert name is not None
        return name
    finally:
        store.close()


def report(product: Product, *names: str) -> AuditReport:
    return audit(product.settings, names or WHOLE, tenants=["acme"])


def command(product: Product, *arguments: str) -> tuple[int, Any]:
    """A command's exit status and its JSON."""
    answer = CliRunner().invoke(
        build(), [*arguments, "--json"], env=product.endpoints.environment() | {"COLUMNS": "140"}
    )  # fmt: skip
    assert answer.stdout, answer
    return answer.exit_code, json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.requirement("A6", "A9", "I2", "I3")
def test_everything_moves_to_cold_under_queries_and_edits_return_alone(product: Product) -> None:
    word, documents = written(product, 8)
    settings = product.settings.model_copy(update={"tiers": EVERYTHING})
    steps: list[tuple[int, int | None]] = []
    with asked(product, word, documents) as seen:
        (run,) = tiers.compact(
            settings, tenants=["acme"], progress=lambda step, done, total: steps.append((done, total))
        )
        assert run.whole and run.moved >= 8, run
        # an edit and a deletion in the middle of the waiting
        product.write(documents[0].id, page(word, 0, version=1))
        until(lambda: any("v1v" in h["text"] for h in product.hits("ann", f"v1v page0 {word}", mode="sparse")), 90)
        until(lambda: _counts(product)["hot"] <= 3, 90, "the moved originals are removed")
    assert seen["queries"] > 10
    assert (seen["missed"], seen["doubled"], seen["mixed"]) == (0, 0, 0), seen
    assert steps[-1] == (run.plan.documents, run.plan.documents)
    hot = _counts(product)["hot"]
    assert hot >= 1, "the changed chunk returned to hot"
    found = {h["tier"] for h in product.hits("ann", f"v1v page0 {word}", mode="sparse") if "v1v" in h["text"]}
    assert found == {"hot"}
    others = [
        h for h in product.hits("ann", f"constant {word}", mode="sparse", k=50) if h["document_id"] != documents[0].id
    ]
    assert len(others) >= 7 and {h["tier"] for h in others if h["document_id"].startswith("upkeep/")} == {"cold"}
    assert report(product).passed, [r for r in report(product).results if not r.passed]
    again = tiers.compact(settings, tenants=["acme"])[0]
    assert again.chunks_copied == hot
    until(lambda: _counts(product)["hot"] == 0, 90)


def _counts(product: Product) -> dict[Tier, int]:
    store = store_of(product)
    try:
        return store.count_chunks(active(product), "acme")
    finally:
        store.close()


@pytest.mark.requirement("A9")
def test_the_command_shows_plans_and_moves(product: Product) -> None:
    word, documents = written(product, 3)
    code, shown = command(product, "tiers", "--dry-run", "--tenant", "acme")
    assert code == 0 and shown["runs"] == [] and shown["plans"][0]["tenants"][0]["tenant"] == "acme"
    code, done = command(product, "tiers", "--now", "--tenant", "acme")
    assert code == 0 and done["runs"][0]["whole"]
    assert found_of(product, word) == len(documents)


@pytest.mark.requirement("A6", "A8", "F10", "I1", "I2")
def test_a_damaged_index_is_found_and_mended_by_its_owners(product: Product) -> None:
    word, documents = written(product, 6)
    (product.folder / documents[5].id).unlink()
    until(lambda: found_of(product, word) == 5, 120, "the deletion")
    until(lambda: report(product).passed, 120, "it is whole before it is damaged")
    name, store = active(product), store_of(product)
    manifests = store.read_manifests(name, "acme", [document.uid for document in documents])
    ids = {document.id: [c.chunk_id for c in manifests[document.uid].chunks] for document in documents}
    lost = ids[documents[0].id][0]
    store.delete_chunks(name, "acme", [lost])
    store.update_allow(name, "acme", ids[documents[1].id], ["user:nobody-knows"], ["user:nobody-knows"])
    store.delete_sections(name, "acme", manifests[documents[2].uid].sections)
    dimension = store.read_generations()[name].encoder.dimension
    zombie, stray = stray_chunk(documents[5], dimension), stray_chunk(documents[3], dimension)
    store.insert_chunks(name, "hot", "acme", [zombie, stray])

    found = {r.name: r for r in report(product).results if not r.passed}
    assert set(found) == {
        "missing_chunks", "prefilter_drift", "tombstones_not_emptied", "recent_deletes", "orphan_chunks"
    }, found  # fmt: skip
    assert found["missing_chunks"].count == 2 and found["prefilter_drift"].count == 1
    code, shown = command(product, "audit", "orphan_chunks", "prefilter_drift", "--tenant", "acme")
    assert code == 1 and not shown["passed"]
    code, shown = command(product, "audit", *found, "--mend", "--tenant", "acme")
    assert (code, shown["passed"]) == (0, True), shown
    assert sum(one["failed"] + one["left"] for one in shown["mended"]) == 0
    assert report(product).passed
    assert product.found("ann", f"constant sentence page1 {word}", mode="sparse"), "the pre-filter is open again"
    assert store.searchable(name, "hot", "acme", [lost]) == {lost}
    standing = {c.chunk_id for c in store.walk_chunks(name, "hot", "acme")}
    assert not standing & {zombie.chunk.chunk_id, stray.chunk.chunk_id}
    assert mend_all(product.settings, report(product)) == []
    store.close()


def stray_chunk(document: DocumentRef, dimension: int) -> ChunkWrite:
    """A chunk that no manifest lists."""
    import numpy as np

    vector = np.zeros(dimension, dtype=np.float32)
    vector[0] = 1.0
    text = "stray"
    return ChunkWrite(
        document=document,
        chunk=Chunk(
            chunk_id=str(uuid4()), section_ordinal=0, ordinal=0, heading_path=(), text=text, embed_text=text,
            embed_hash="0" * 32, lexical=text, tokens=1,
        ),
        section_id=str(uuid4()), vector=vector, content_type="text/markdown", allow=("everyone",), allow2=("everyone",),
    )  # fmt: skip
