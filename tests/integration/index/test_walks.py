"""Walks, health and footprint of a node that is killed, half written or read-only."""

from __future__ import annotations

from itertools import islice

import httpx
import pytest

from pipeline.errors import StoreUnavailable
from pipeline.index.store import WeaviateStore
from pipeline.index.walks import PAGE
from schemas.documents import Section
from tests.contract.index.helpers import GENERATION, access, chunk, document, manifest
from tests.integration.index.conftest import Server
from tests.integration.index.test_outage import TENANT, interrupt, many, settled


@pytest.mark.requirement("A9", "I8")
def test_an_outage_in_the_middle_of_a_walk_is_said(server: Server, store: WeaviateStore) -> None:
    store.write_access(TENANT, [access(document(TENANT, str(n))) for n in range(PAGE + 10)])
    walk = store.walk_access(TENANT)
    assert len(list(islice(walk, PAGE))) == PAGE
    assert store.healthy()
    server.process.kill()
    with pytest.raises(StoreUnavailable):
        list(walk)
    with pytest.raises(StoreUnavailable):
        store.healthy()
    server.up()
    settled(store.healthy)
    settled(lambda: next(store.walk_access(TENANT)))  # gRPC answers a moment after REST does
    assert store.healthy() and len(list(store.walk_access(TENANT))) == PAGE + 10


@pytest.mark.requirement("A8", "F19", "I8")
def test_a_walk_meets_objects_that_no_filter_meets(server: Server, store: WeaviateStore) -> None:
    sent: set[str] = set()

    def write(number: int) -> None:
        for _ in range(60):
            batch = many(60, words=60)
            sent.update(w.chunk.chunk_id for w in batch)
            try:
                store.insert_chunks(GENERATION, "hot", TENANT, batch)
            except StoreUnavailable:
                return

    store.insert_chunks(GENERATION, "hot", TENANT, many(1))
    interrupt(server, write, 0.8)
    settled(lambda: store.count_chunks(GENERATION, TENANT))
    handle = store._handle(store._names.tier("hot", GENERATION), TENANT)
    standing = {str(item.uuid) for item in handle.iterator(return_properties=[])}
    walked = {c.chunk_id for c in store.walk_chunks(GENERATION, "hot", TENANT)}
    assert walked == standing and walked & sent
    filtered = set(store._read(store._names.tier("hot", GENERATION), TENANT, sorted(walked), []))
    torn = walked - filtered
    # Whether this kill tore any is chance; what is torn can be removed by the ids that the walk gave.
    store.delete_chunks(GENERATION, TENANT, sorted(torn | set(sorted(filtered)[:10])))
    left = {c.chunk_id for c in store.walk_chunks(GENERATION, "hot", TENANT)}
    assert left == filtered - set(sorted(filtered)[:10])


@pytest.mark.requirement("F10", "I8")
def test_the_footprint_tells_disk_churn_and_read_only_shards(server: Server, store: WeaviateStore) -> None:
    local = WeaviateStore(server.settings(store._names.namespace, data=server.env["PERSISTENCE_DATA_PATH"]))
    owner = document(TENANT)
    writes = [chunk(owner, f"w{n}") for n in range(40)]
    local.insert_chunks(GENERATION, "hot", TENANT, writes)
    local.write_manifest(GENERATION, manifest(owner))
    local.delete_chunks(GENERATION, TENANT, [w.chunk.chunk_id for w in writes[:30]])
    hot, records = local._names.tier("hot", GENERATION), local._names.records(GENERATION)
    found = local.footprint()
    assert (found.objects[hot], found.written[hot]) == (10, 40)
    assert found.objects[records] == 1 and found.read_only == ()
    assert found.disk_bytes is not None and found.disk_bytes > 10_000
    assert found.disk_used is not None and 0 < found.disk_used < 1
    assert store.footprint().written == {} and store.footprint().disk_bytes is None

    def status(name: str) -> None:
        key = server.weaviate.api_key
        url = f"{server.weaviate.url}/v1/schema/{hot}/shards/{TENANT}"
        headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        httpx.put(url, json={"status": name}, headers=headers, trust_env=False).raise_for_status()

    status("READONLY")
    try:
        assert local.footprint().read_only == (hot,)
    finally:
        status("READY")
    assert local.footprint().read_only == ()
    local.close()


@pytest.mark.requirement("A8")
def test_collections_of_an_earlier_release_get_what_they_lack(server: Server, store: WeaviateStore) -> None:
    from pipeline.index.schema import record_collection

    older = WeaviateStore(server.settings())
    name = older._names.records(GENERATION)
    definition = record_collection(name)
    definition["properties"] = [p for p in definition["properties"] if p.name != "document"]
    older._connection.client().collections.create(**definition)
    made = document(TENANT)
    from tests.contract.index.helpers import generation

    older.ensure_base()
    older.ensure_generation(generation())
    section = Section(section_id="7b0f5f0e-0000-4000-8000-000000000001", ordinal=0, heading_path=(), text="t")
    older.write_sections(GENERATION, made, [section])
    assert older.section_ids_of(GENERATION, made) == {section.section_id}
    assert list(older.walk_sections(GENERATION, TENANT)) == [(section.section_id, made.uid)]
    older.close()
