"""Weaviate or Kafka away for a while, or restored from an older copy: nothing lost, nothing shown (I8, I11)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from infra.launcher import Services
from pipeline.errors import StoreUnavailable
from pipeline.index.store import WeaviateStore
from schemas.documents import Manifest
from schemas.keys import DocumentRef
from tests.e2e.test_upkeep import stray_chunk
from tests.product import Product, until


@pytest.fixture(scope="module")
def own(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services of this module's own: they are taken away."""
    launcher = Services(tmp_path_factory.mktemp("outage-services"), cache_dir=cache_dir, mode="native")
    try:
        launcher.up()
        yield launcher
    finally:
        launcher.down()


@pytest.fixture(scope="module")
def product(own: Services, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A product on them, with short waits."""
    extra = {
        "kafka": {"index_session_s": 6.0, "access_session_s": 6.0},
        "index": {"query_deadline_s": 1.0},
        "weaviate": {"timeout_s": 2.0},
        "query": {"ready_age_s": 3.0},
    }
    made = Product(own.endpoints(), f"o{uuid4().hex[:10]}", tmp_path_factory.mktemp("outage"), cache_dir, extra)
    try:
        made.groups(["ann", "bob"], eng=["ann", "bob"])
        made.access("", "everyone")
        made.write("index.md", "# Start\n\nThe lobby has a yellow heron statue.\n")
        made.up()
        yield made
    finally:
        made.down()


def texts(product: Product, user: str, query: str) -> set[str] | None:
    """Documents found, or None while the service says that it cannot answer."""
    answer = product.ask(user, query, mode="sparse")
    if answer.status_code == 503:
        return None
    assert answer.status_code == 200, answer.text
    return {hit["document_id"] for hit in answer.json()["hits"]}


def word() -> str:
    return f"w{uuid4().hex[:10]}"


@pytest.mark.requirement("I8", "I11")
def test_a_store_that_is_away_loses_nothing_and_the_service_says_that_it_is_not_ready(
    product: Product, own: Services
) -> None:
    during = word()
    own.kill("weaviate")
    product.write("during.md", f"# During\n\nWritten while the store was away: {during}.\n")
    answer = product.ask("ann", "heron")
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert "retry-after" in answer.headers
    until(lambda: product.get("/readyz", "ann").status_code == 503, 15, "it says that it is not ready")
    time.sleep(3)
    own.start("weaviate")
    product.ready(60)
    until(lambda: texts(product, "ann", during), 60, "what was written meanwhile is found")


@pytest.mark.requirement("I8")
def test_a_broker_that_is_away_loses_nothing(product: Product, own: Services) -> None:
    during = word()
    own.kill("kafka")
    product.write("broker.md", f"# Broker\n\nWritten while the log was away: {during}.\n")
    time.sleep(4)
    own.start("kafka")
    until(lambda: texts(product, "ann", during), 90, "what was written meanwhile is found")
    product.ready(60)


@pytest.mark.requirement("I11", "A8", "F19")
def test_a_store_restored_from_yesterdays_copy_catches_up_before_it_answers(
    product: Product, own: Services, tmp_path: Path
) -> None:
    secret, gone, later = word(), word(), word()
    product.access("secret", "group:eng")
    product.write("secret/page.md", f"# Secret\n\nThe word {secret} is for engineers.\n")
    product.write("gone.md", f"# Gone\n\nThe word {gone} will be deleted.\n")
    until(lambda: texts(product, "bob", secret) and texts(product, "bob", gone), 30)
    own.snapshot(tmp_path / "yesterday")
    product.ready(60)
    product.access("secret", "user:ann")
    (product.folder / "gone.md").unlink()
    product.write("later.md", f"# Later\n\nThe word {later} came after the copy.\n")
    until(lambda: texts(product, "bob", later), 40)
    until(lambda: texts(product, "bob", secret) == set() and texts(product, "bob", gone) == set(), 40)
    shown: list[str] = []
    own.restore(tmp_path / "yesterday")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answers = [product.ask("bob", query, mode="sparse") for query in (secret, gone)]
        ready = product.get("/readyz", "bob").status_code == 200
        for answer in answers:
            if answer.status_code == 200:
                shown += [h["text"] for h in answer.json()["hits"] if secret in h["text"] or gone in h["text"]]
        if ready and product.ask("bob", later, mode="sparse").json().get("hits"):
            break
        time.sleep(0.1)
    assert shown == [], "a revoked or deleted page was shown from yesterday's copy"
    assert texts(product, "bob", later), "what came after the copy is back"
    assert texts(product, "bob", secret) == set() and texts(product, "bob", gone) == set()
    assert texts(product, "ann", secret)


@pytest.mark.requirement("A8", "F19", "I1")
def test_deleted_objects_that_are_back_with_the_store_are_removed_without_being_asked_for(
    product: Product, own: Services
) -> None:
    """The store is given what a faulty one would bring back; the restart alone makes the product look."""
    gone = [f"gone-{word()}.md" for _ in range(4)]
    for name in gone:
        product.write(name, f"# Gone\n\nThe word {name[5:-3]} will be deleted.\n")
    until(lambda: all(texts(product, "ann", name[5:-3]) for name in gone), 60)
    for name in gone:
        (product.folder / name).unlink()
    until(lambda: all(texts(product, "ann", name[5:-3]) == set() for name in gone), 60)
    documents = [DocumentRef(tenant="acme", source="wiki", id=name) for name in gone]
    store = WeaviateStore(product.settings)
    generation = store.active_generation()
    assert generation is not None
    until(lambda: all(m.deleted for m in _manifests(store, generation, documents)), 60)
    dimension = store.read_generations()[generation].encoder.dimension
    back = [stray_chunk(document, dimension) for document in documents]
    store.insert_chunks(generation, "hot", "acme", back)
    ids = {write.chunk.chunk_id for write in back}
    time.sleep(3)  # nothing looks by itself before the store was away
    assert ids <= {chunk.chunk_id for chunk in store.walk_chunks(generation, "hot", "acme")}
    own.kill("weaviate")
    time.sleep(1)
    own.start("weaviate")
    product.ready(60)

    def removed() -> bool:
        try:
            return not ids & {chunk.chunk_id for chunk in store.walk_chunks(generation, "hot", "acme")}
        except StoreUnavailable:
            return False

    until(removed, 120, "what was back is removed")
    store.close()


def _manifests(store: WeaviateStore, generation: str, documents: list[DocumentRef]) -> list[Manifest]:
    return list(store.read_manifests(generation, "acme", [document.uid for document in documents]).values())
