"""A second generation beside the first, verified against it over the running product; then broken, and found out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from infra.commands.tokens import with_secret
from infra.endpoints import Endpoints
from pipeline.index.store import WeaviateStore
from pipeline.operate import control
from pipeline.operate.build import build
from pipeline.operate.verification import verify
from pipeline.settings import Settings
from schemas.documents import Manifest
from schemas.generation import ChunkingSpec
from schemas.verification import VerificationReport
from tests.product import Product, until

PAGES = {
    "birds.md": ("Herons", "The heron stands in shallow water and waits for small fish before dawn."),
    "rivers.md": ("Rivers", "A river carries gravel from the mountains and leaves it where the valley widens."),
    "bread.md": ("Bread", "Rye dough rests for eighteen hours and is baked in a falling oven."),
    "eng/deploy.md": ("Deploying", "Use the pelican script to roll back a release of the gateway."),
    "eng/alarm.md": ("Alarms", "An alarm of severity two wakes the engineer on call within five minutes."),
    "ops/racks.md": ("Racks", "Each rack has two power feeds and a label with its inventory number."),
}


@pytest.fixture(scope="module")
def product(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A product of this module's own, with a corpus that ann, bob and cleo see differently."""
    made = Product(services, f"v{uuid4().hex[:10]}", tmp_path_factory.mktemp("product"), cache_dir)
    made.groups(["ann", "bob", "cleo"], eng=["ann"], ops=["group:eng", "bob"])
    for folder, who in (("", "everyone"), ("eng", "group:eng"), ("ops", "group:ops")):
        made.access(folder, who)
    for path, (title, text) in PAGES.items():
        made.write(path, f"# {title}\n\n{text}\n\n## More of {title}\n\nWhat else is known of it stands here.\n")
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def settings(product: Product) -> Settings:
    """With a second generation, cut in another way, built beside the first."""
    # by name: a dense search always finds something
    until(lambda: set(PAGES) <= product.found("ann", "pelican", k=50), 90, "indexed")
    product.write("gone.md", "# Gone\n\nThis page about walruses will be deleted.\n")
    until(lambda: "gone.md" in product.found("ann", "walruses"), 60, "the page to delete is found")
    (product.folder / "gone.md").unlink()
    until(lambda: "gone.md" not in product.found("ann", "walruses"), 60, "the page is gone")
    made = with_secret(product.settings)
    chunking = ChunkingSpec(child_tokens=120, child_min_tokens=64, child_max_tokens=200, parent_tokens=512)
    control.send(made, "create", "second", requested_by="test", declaration={"chunking": chunking.model_dump()})
    assert build(made, "second").state == "ready"
    return made


@pytest.mark.requirement("A10", "I3", "I7", "C1")
@pytest.mark.timeout(900)
def test_a_second_generation_is_verified_against_the_active_one(settings: Settings) -> None:
    report = verify(settings, "second", requested_by="test")
    assert report.verdict.passed, report.verdict.failures
    assert report.against == settings.generation
    (line,) = [s for s in report.coverage.sources if s.source == "wiki"]
    assert (line.documents, line.matched, line.deleted, line.faults) == (len(PAGES), len(PAGES), 1, {})
    assert report.access is not None and report.access.difference_count == 0
    seen = {s.principal: (s.here, s.there) for s in report.access.principals}
    assert seen["user:ann"] == (6, 6) and seen["user:bob"] == (4, 4) and seen["user:cleo"] == (3, 3)
    assert report.retrieval is not None and report.retrieval.sets[0].queries == len(PAGES)
    assert report.retrieval.latency_there is not None
    folder = settings.state_dir / report.path
    assert VerificationReport.model_validate(json.loads((folder / "report.json").read_text())) == report
    stored = control.known(settings).one("second").report
    assert stored == report.summary()


@pytest.mark.requirement("A10", "I3", "I5")
@pytest.mark.timeout(900)
def test_changes_under_way_raise_no_false_alarm(product: Product, settings: Settings) -> None:
    ended, count = threading.Event(), 0

    def change() -> None:
        nonlocal count
        while not ended.is_set():
            count += 1
            product.write("rivers.md", f"# Rivers\n\nEdition {count} of the page about gravel and valleys.\n")
            product.access("ops", "group:ops" if count % 2 else "user:cleo")
            new = product.folder / f"new-{count % 3}.md"
            if new.exists():
                new.unlink()
            else:
                product.write(new.name, f"# New\n\nPage {count} about a xylophone.\n")
            ended.wait(0.5)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        report = verify(settings, "second", requested_by="test")
    finally:
        ended.set()
        thread.join()
        product.access("ops", "group:ops")
        for path in product.folder.glob("new-*.md"):
            path.unlink()
    assert count >= 5
    # the machine's other work may slow searches; everything else must hold while documents change
    assert [f for f in report.verdict.failures if "slower" not in f] == []


@pytest.mark.requirement("A10", "I2", "I4")
@pytest.mark.timeout(900)
def test_what_is_broken_in_the_store_is_found_and_control_is_told(product: Product, settings: Settings) -> None:
    until(lambda: not product.found("ann", "xylophone", mode="sparse"), 60, "the last change is indexed")
    with closing(WeaviateStore(settings)) as store:
        gone, hidden = _pages(store, "birds.md", "bread.md")
        store.delete_chunks("second", "acme", [c.chunk_id for c in gone.chunks])
        store.update_allow("second", "acme", [c.chunk_id for c in hidden.chunks], ["nobody"], ["nobody"])
    report = verify(settings, "second", requested_by="test")
    faults = {(f.fault, f.document.id if f.document else "") for f in report.coverage.findings}
    assert faults == {("chunk_missing", gone.document.id), ("chunk_other_readers", hidden.document.id)}
    assert report.access is not None
    assert {d.document_uid for d in report.access.differences} == {gone.document.uid, hidden.document.uid}
    assert {d.kind for d in report.access.differences} == {"unreached_here"}
    assert not report.verdict.passed
    summary = control.known(settings).one("second").report
    assert summary is not None and not summary.passed and summary.failures


def _pages(store: WeaviateStore, *paths: str) -> list[Manifest]:
    by_path = {m.path: m for m in store.walk_manifests("second", "acme")}
    return [by_path[path] for path in paths]


@pytest.mark.requirement("A10", "B1")
def test_the_shadow_is_closed_to_ordinary_tokens(product: Product) -> None:
    url = f"{product.query}/v1/operator/search"
    body = {"seen_as": "ann", "generation": product.settings.generation, "request": {"query": "pelican"}}

    def status(**claims: Any) -> int:
        headers = {"Authorization": f"Bearer {product.token('bob', **claims)}"}
        return product._client.post(url, json=body, headers=headers).status_code

    assert (status(), status(roles=["reader"]), status(roles=["operator"])) == (404, 404, 200)
