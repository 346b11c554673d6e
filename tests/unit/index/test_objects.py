"""Cutting of batches, pages of a manifest, and the fake's injected failures."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import StoreUnavailable
from pipeline.index import core, objects
from pipeline.index.objects import batches, chunk_object, pages_of, size_of
from pipeline.ports import SearchFilter
from schemas.documents import page_of
from tests.contract.index.helpers import GENERATION, access, chunk, document, generation, unit
from tests.fakes.store import FakeStore

TENANT = "acme"


@given(st.lists(st.integers(0, 3000), max_size=40))
def test_batches_keep_order_and_stay_below_both_limits(sizes: list[int]) -> None:
    items = [chunk_object(chunk(document(TENANT), "x" * size)) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "BATCH_OBJECTS", 7)
        patch.setattr(objects, "BATCH_BYTES", 8000)
        cut = list(batches(items))
    assert [item.uuid for batch in cut for item in batch] == [item.uuid for item in items]
    for batch in cut:
        assert 1 <= len(batch) <= 7
        assert len(batch) == 1 or sum(map(size_of, batch)) <= 8000


def test_ids_are_asked_once_each_in_pages() -> None:
    ids = [str(uuid4()) for _ in range(450)]
    found = list(pages_of(ids + ids[:10]))
    assert [len(page) for page in found] == [200, 200, 50]
    assert [uid for page in found for uid in page] == ids
    assert list(pages_of([])) == []


def test_page_of_a_chunk_is_a_function_of_its_id() -> None:
    assert [page_of(f"{n:04x}0000-0000-5000-8000-000000000000", 7) for n in (0, 6, 7, 0xFFFF)] == [0, 6, 0, 0xFFFF % 7]


def fake() -> FakeStore:
    store = FakeStore()
    store.ensure_base()
    store.ensure_generation(generation())
    return store


def test_fake_fails_before_or_after_and_traces() -> None:
    store, owner = fake(), document(TENANT)
    store.fail_next("write_access")
    with pytest.raises(StoreUnavailable):
        store.write_access(TENANT, [access(owner)])
    assert store.read_access(TENANT, [owner.uid]) == {}
    store.fail_next("write_access", 2, after=True)
    for version in (2, 3):
        with pytest.raises(StoreUnavailable):
            store.write_access(TENANT, [access(owner, version=version)])
        assert store.read_access(TENANT, [owner.uid])[owner.uid].version == version
    store.write_access(TENANT, [access(owner, version=4)])
    store.fail_next("*", skip=1)
    store.count_chunks(GENERATION, TENANT)
    with pytest.raises(StoreUnavailable):
        store.count_chunks(GENERATION, TENANT)
    assert store.ops()[-3:] == ["write_access", "count_chunks", "count_chunks"]


@pytest.mark.requirement("I6")
def test_fake_torn_insert_is_repaired_by_an_ambiguous_one_alone() -> None:
    store, write = fake(), chunk(document(TENANT), "word")
    uid = write.chunk.chunk_id
    store.fail_next("insert_chunks", torn=True)
    with pytest.raises(StoreUnavailable):
        store.insert_chunks(GENERATION, "hot", TENANT, [write])
    assert store.count_chunks(GENERATION, TENANT)["hot"] == 1
    store.insert_chunks(GENERATION, "hot", TENANT, [write])
    assert store.read_vectors(GENERATION, TENANT, [uid]) == {}
    store.insert_chunks(GENERATION, "hot", TENANT, [write], ambiguous=True)
    assert set(store.read_vectors(GENERATION, TENANT, [uid])) == {uid}


def test_fake_snapshot_tells_stores_apart() -> None:
    first, second, write = fake(), fake(), chunk(document(TENANT), "word", unit(1.0, 1.0))
    first.insert_chunks(GENERATION, "hot", TENANT, [write])
    assert first.snapshot() != second.snapshot()
    second.insert_chunks(GENERATION, "hot", TENANT, [write])
    assert first.snapshot() == second.snapshot()
    assert SearchFilter() == SearchFilter(allow=None)


def test_batch_size_follows_the_pace_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("pipeline.index.core.time.monotonic", lambda: now[0])
    pace = core.Pace()
    first = pace.count()

    def batch(seconds: float, count: int | None = None) -> int:
        with pace.measured(count or pace.count()):
            now[0] += seconds
        return pace.count()

    assert batch(2.0) == first // 2
    with pytest.raises(StoreUnavailable), pace.measured(pace.count()):
        now[0] += 5.0
        raise StoreUnavailable("deadline")
    assert pace.count() == first // 4
    assert batch(0.1, count=1) == first // 4, "a small batch proves nothing"
    assert batch(0.5) == first // 4
    for _ in range(10):
        batch(0.1)
    assert pace.count() == objects.BATCH_OBJECTS
    for _ in range(20):
        batch(9.0)
    assert pace.count() == 1
    assert [len(b) for b in batches([chunk_object(chunk(document(TENANT), "a")) for _ in range(3)], pace.count)] == [
        1
    ] * 3
