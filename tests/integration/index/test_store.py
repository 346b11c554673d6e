"""What only the real store has: collection settings, keys, races of creation, errors inside a batch."""

from __future__ import annotations

import asyncio
import logging
import threading
from uuid import uuid4

import pytest
from weaviate.classes.data import DataObject
from weaviate.collections.classes.config import Tokenization

from pipeline.errors import ConfigError, StoreUnavailable
from pipeline.index import chunk_store, frequency
from pipeline.index.objects import chunk_object
from pipeline.index.reader import WeaviateReader
from pipeline.index.schema import VECTOR, Collections
from pipeline.index.store import WeaviateStore
from pipeline.settings import Settings, WeaviateSettings
from tests.contract.index.helpers import GENERATION, access, chunk, document, generation, unit
from tests.integration.index.conftest import Server

TENANT = "acme"


def config(store: WeaviateStore, collection: str) -> dict[str, object]:
    """A collection's configuration as the server holds it."""
    found: dict[str, object] = store._connection.client().collections.export_config(collection).to_dict()
    return found


@pytest.mark.requirement("A5", "A9")
def test_tiers_are_created_as_specified(store: WeaviateStore) -> None:
    for tier, m, ef_construction, ef, compressed in (("hot", 16, 64, 96, False), ("cold", 32, 128, 128, True)):
        found = config(store, store._names.tier(tier, GENERATION))  # type: ignore[arg-type]
        index = found["vectorConfig"][VECTOR]["vectorIndexConfig"]  # type: ignore[index]
        assert (index["maxConnections"], index["efConstruction"], index["ef"]) == (m, ef_construction, ef)
        assert index["distanceMetric"] == "cosine"
        assert index["flatSearchCutoff"] == 20_000
        assert ("rq" in index and index["rq"]["bits"] == 8) is compressed
        assert not index["skip"]
        assert found["multiTenancyConfig"] == {
            "enabled": True, "autoTenantCreation": False, "autoTenantActivation": True,
        }  # fmt: skip
        inverted = found["invertedIndexConfig"]
        assert inverted["bm25"] == {"b": 0.75, "k1": 1.2}  # type: ignore[index]
        assert inverted["stopwords"] == {"preset": "none"}  # type: ignore[index]


@pytest.mark.requirement("B1")
def test_properties_are_indexed_as_specified(store: WeaviateStore) -> None:
    found = config(store, store._names.tier("hot", GENERATION))
    properties = {p["name"]: p for p in found["properties"]}  # type: ignore[attr-defined]
    filterable = {n for n, p in properties.items() if p["indexFilterable"]}
    assert {n for n, p in properties.items() if p["indexSearchable"]} == {"lexical"}
    assert {n for n, p in properties.items() if p["indexRangeFilters"]} == {"effective_from", "effective_until"}
    assert properties["lexical"]["tokenization"] == Tokenization.WHITESPACE.value
    assert properties.keys() - filterable == {"text", "heading_path", "effective_from", "effective_until"}
    for name in ("allow", "allow2", "document", "section", "identifiers", "product", "language"):
        assert properties[name]["tokenization"] == Tokenization.FIELD.value


def test_records_have_no_vector_index_and_are_found_by_id_or_document_alone(store: WeaviateStore) -> None:
    names = store._names
    for collection, tenants in (
        (names.access, True), (names.principals, True), (names.records(GENERATION), True),
        (names.progress, False), (names.generations, False),
    ):  # fmt: skip
        found = config(store, collection)
        assert found["vectorConfig"][VECTOR]["vectorIndexConfig"]["skip"]  # type: ignore[index]
        assert found["multiTenancyConfig"]["enabled"] is tenants  # type: ignore[index]
        for p in found["properties"]:  # type: ignore[attr-defined]
            assert not (p["indexSearchable"] or p["indexRangeFilters"])
            # sections are looked up by their document when it is proved that nothing of it is left
            assert p["indexFilterable"] is (p["name"] == "document")


def test_creation_is_idempotent_and_may_be_raced(server: Server) -> None:
    stores = [WeaviateStore(server.settings("race-of.creation")) for _ in range(3)]
    failures: list[BaseException] = []

    def create(store: WeaviateStore) -> None:
        try:
            for _ in range(2):
                store.ensure_base()
                store.ensure_generation(generation())
                store.write_access(TENANT, [access(document(TENANT))])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=create, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert Collections("race-of.creation").access == "Race_of_creation_Access"
    assert stores[0].read_access(TENANT, [document(TENANT).uid])
    for store in stores:
        store.drop_generation(GENERATION)
        store.close()


@pytest.mark.requirement("I8")
def test_one_error_in_a_batch_means_none_of_it_is_acknowledged(
    store: WeaviateStore, caplog: pytest.LogCaptureFixture
) -> None:
    good = chunk_object(chunk(document(TENANT), "secret words"))
    bad = DataObject(
        properties={**good.properties, "surprise": "x"}, uuid=str(uuid4()), vector={VECTOR: unit(1.0).tolist()}
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreUnavailable, match="surprise") as caught:
        store._upsert(store._names.tier("hot", GENERATION), TENANT, [good, bad], None)
    assert "secret" not in str(caught.value)
    assert "secret" not in caplog.text, "no text of a document in a log"


def test_tenant_removed_behind_our_back_is_created_again_by_the_retry(store: WeaviateStore) -> None:
    store.write_access(TENANT, [access(document(TENANT))])
    store._connection.client().collections.use(store._names.access).tenants.remove([TENANT])
    with pytest.raises(StoreUnavailable, match="tenant not found"):
        store.write_access(TENANT, [access(document(TENANT))])
    store.write_access(TENANT, [access(document(TENANT))])
    assert store.read_access(TENANT, [document(TENANT).uid])


def test_document_of_more_chunks_than_a_query_returns_is_listed_whole(
    store: WeaviateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = document(TENANT)
    writes = [chunk(owner, f"w{i}") for i in range(120)]
    for write in writes:
        object.__setattr__(write, "section_id", str(uuid4()))
    store.insert_chunks(GENERATION, "cold", TENANT, writes)
    monkeypatch.setattr(chunk_store, "MAX_RESULTS", 40)
    assert store.chunk_ids_of(GENERATION, owner) == {"hot": set(), "cold": {w.chunk.chunk_id for w in writes}}


def test_probe_sees_a_chunk_without_its_vector(store: WeaviateStore) -> None:
    whole, torn = (chunk_object(chunk(document(TENANT), w)) for w in ("whole", "torn"))
    collection = store._names.tier("hot", GENERATION)
    store._upsert(collection, TENANT, [whole, DataObject(properties=torn.properties, uuid=torn.uuid)], None)
    assert [item.uuid for item in store._without_vector(collection, TENANT, [whole, torn])] == [torn.uuid]
    assert store.copy_chunks(GENERATION, TENANT, [str(whole.uuid), str(torn.uuid)], source="hot", target="cold") == 1
    assert set(store.read_vectors(GENERATION, TENANT, [str(whole.uuid), str(torn.uuid)])) == {str(whole.uuid)}


def test_copy_repairs_what_an_interrupted_copy_left_without_vector(store: WeaviateStore) -> None:
    write = chunk(document(TENANT), "word")
    item = chunk_object(write)
    store.insert_chunks(GENERATION, "hot", TENANT, [write])
    target = store._names.tier("cold", GENERATION)
    store._upsert(target, TENANT, [DataObject(properties=item.properties, uuid=item.uuid)], None)
    assert store.copy_chunks(GENERATION, TENANT, [str(item.uuid)], source="hot", target="cold") == 1
    assert store._without_vector(target, TENANT, [item]) == []


@pytest.mark.requirement("B1")
def test_reader_needs_no_more_than_the_key_that_cannot_write(server: Server, store: WeaviateStore) -> None:
    key = server.weaviate.read_api_key
    assert key is not None
    store.write_access(TENANT, [access(document(TENANT))])
    settings = server.settings(store._names.namespace, api_key=None)

    async def read() -> None:
        reader = WeaviateReader(settings)
        assert await reader.access(TENANT, [document(TENANT).uid])
        assert await reader.progress() == []
        await reader.close()

    asyncio.run(read())
    intruder = WeaviateStore(server.settings(store._names.namespace, api_key=key.get_secret_value()))
    with pytest.raises(StoreUnavailable, match=r"(?i)forbidden|permission"):
        intruder.write_access(TENANT, [access(document(TENANT), version=2)])
    intruder.close()
    assert store.read_access(TENANT, [document(TENANT).uid])[document(TENANT).uid].version == 1


def test_address_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"weaviate\.url.*http://host:port"):
        WeaviateStore(Settings(weaviate=WeaviateSettings(url="localhost:8080")))


@pytest.mark.requirement("D1")
def test_document_frequency_is_told_without_reading_the_objects(
    server: Server, store: WeaviateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = document(TENANT)
    writes = [chunk(owner, "common rare" if i == 0 else "common") for i in range(30)]
    store.insert_chunks(GENERATION, "cold", TENANT, writes)
    store.delete_chunks(GENERATION, TENANT, [w.chunk.chunk_id for w in writes[25:]])
    words = ["common", "rare", "absent", "naïve", "\u6771\u4eac"]

    async def ask(monkeypatch: pytest.MonkeyPatch) -> None:
        reader = WeaviateReader(server.settings(store._names.namespace))
        collection = store._names.tier("cold", GENERATION)
        expected = {"common": 25, "rare": 1, "absent": 0, "naïve": 0, "\u6771\u4eac": 0}
        # Without a profile each is counted, and the two ways agree.
        with monkeypatch.context() as silent:
            silent.setattr(frequency, "_told", lambda reply: {})
            assert await frequency.counts(reader._connection, collection, TENANT, words) == expected

        async def refused(*_: object) -> int:
            raise AssertionError("the objects were counted one by one")

        with monkeypatch.context() as strict:
            strict.setattr(frequency, "_counted", refused)
            assert await frequency.counts(reader._connection, collection, TENANT, words) == expected
            assert await frequency.counts(reader._connection, collection, TENANT, ["absent"]) == {"absent": 0}
        await reader.close()

    asyncio.run(ask(monkeypatch))
