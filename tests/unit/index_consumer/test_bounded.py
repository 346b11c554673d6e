"""What a consumer remembers does not grow with what it has seen."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from consumers.access_records import Newest
from consumers.index_worker import NewestContent
from consumers.scheduler import DocumentScheduler, Priority, Work
from pipeline.clock import ManualClock
from pipeline.manifests import ManifestCache
from pipeline.ports import Record
from schemas.access import AccessRule
from schemas.documents import AccessRecord, Manifest
from schemas.keys import DocumentRef
from tests.fakes.store import FakeStore
from tests.unit.flow.flow_world import GENERATION


def document(number: int) -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", id=f"d{number}")


@pytest.mark.requirement("D7", "F10")
def test_the_manifest_cache_keeps_its_limit() -> None:
    store = FakeStore()
    store.ensure_base()
    store.ensure_generation(GENERATION)
    cache = ManifestCache(store, "g1", 100, ManualClock())
    closed = AccessRule.nobody("test")
    for number in range(300):
        cache.put(Manifest(document=document(number), rule=closed, seen_rule=closed), None, None)
        cache.get(document(number + 100_000))
    assert len(cache._known) == 100
    found = cache.get(document(3))
    assert found is not None and found.document == document(3), "what was dropped is read again"


@pytest.mark.requirement("D7")
def test_the_newest_events_known_keep_their_limit() -> None:
    newest = NewestContent(limit=50)
    for number in range(500):
        newest.note(f"u{number}", number, number)
    assert newest.get("u499") == (499, 499) and newest.get("u0") is None
    assert len(newest._known) == 50
    records: Newest[DocumentRef, AccessRecord] = Newest(limit=50)
    for number in range(500):
        rule = AccessRule.any_of("everyone")
        records.put(document(number), AccessRecord(document=document(number), version=number + 1, rule=rule))
    assert records.get(document(499)) is not None and records.get(document(0)) is None
    assert len(records._records) == 50


@pytest.mark.requirement("D7", "F10")
def test_the_scheduler_forgets_what_is_done() -> None:
    scheduler = DocumentScheduler(ManualClock())

    def round_of(count: int) -> None:
        for number in range(count):
            record = Record("content", 0, number, 0, None, b"x")
            scheduler.add(Work("content", document(number), 0, Priority.BULK, record))
            if number % 3 == 0:
                scheduler.add(Work("content", document(number), 0, Priority.LIVE, record))
        while (job := scheduler.take()) is not None:
            scheduler.finish(job)

    round_of(400)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5):
        round_of(400)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert scheduler.total() == 0 and scheduler.held("content", 0) == (0, 0)
    assert grown < 50_000, f"{grown} bytes were kept of 2,000 finished records"
