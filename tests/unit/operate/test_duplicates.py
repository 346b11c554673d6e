"""What is indexed more than once."""

from __future__ import annotations

import pytest

from pipeline.operate.duplicates import find_duplicates
from schemas.access import AccessRule
from schemas.documents import ChunkEntry, Manifest
from schemas.generation import BackendChoice, Generation
from schemas.keys import DocumentRef
from tests.fakes.store import FakeStore

RULE = AccessRule.any_of("everyone")


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    made.ensure_base()
    made.ensure_generation(
        Generation(name="g1", state="active", backend=BackendChoice(name="stub", agreement=1.0), created_at=1)
    )
    return made


def put(store: FakeStore, name: str, *hashes: str, deleted: bool = False, summary: str = "") -> None:
    listed = (*hashes, summary) if summary else hashes
    store.write_manifest(
        "g1",
        Manifest(
            document=DocumentRef(tenant="acme", source="wiki", id=name), title=name.title(), rule=RULE, seen_rule=RULE,
            deleted=deleted, content_version=1, chunk_total=len(listed),
            chunks=tuple(
                ChunkEntry(chunk_id=f"{name}-{i}", section_ordinal=0, embed_hash=h, summary=h == summary)
                for i, h in enumerate(listed)
            ),
        ),
    )  # fmt: skip


@pytest.mark.requirement("A2")
def test_repeated_passages_and_copies_are_told_apart(store: FakeStore) -> None:
    for i in range(6):
        put(store, f"page{i}", f"own{i}", f"more{i}", "footer")
    put(store, "guide", "a", "b", "c", "d", "footer")
    put(store, "copy of guide", "a", "b", "c", "d", "footer")
    put(store, "gone", "a", "b", "c", "d", "footer", deleted=True)
    put(store, "half", "a", "b", "x", "y")
    report = find_duplicates(store, "g1", "acme")
    assert (report.documents, report.passages) == (9, 12 + 1 + 4 + 2)
    ((passage,), (pair,)) = (report.repeated, report.copies)
    assert (passage.embed_hash, passage.count) == ("footer", 8)
    assert passage.holders[0].document_id == "copy of guide" and passage.chunk_id == "copy of guide-4"
    assert (pair.first.document_id, pair.second.document_id, pair.share) == ("copy of guide", "guide", 1.0)
    assert {(p.first.document_id, p.share) for p in find_duplicates(store, "g1", "acme", least=0.25).copies} == {
        ("copy of guide", 1.0), ("copy of guide", 0.2857), ("guide", 0.2857),
    }  # fmt: skip


@pytest.mark.requirement("A2")
def test_a_template_of_many_pages_makes_no_pairs_and_summaries_do_not_count(store: FakeStore) -> None:
    for i in range(60):
        put(store, f"form{i:02}", "form", summary=f"s{i}")
    put(store, "one", "x", summary="same")
    put(store, "two", "y", summary="same")
    report = find_duplicates(store, "g1", "acme", repeated=2)
    assert report.copies == ()
    assert [(r.embed_hash, r.count, len(r.holders)) for r in report.repeated] == [("form", 60, 20)]
    assert find_duplicates(store, "g1", "nobody").documents == 0
