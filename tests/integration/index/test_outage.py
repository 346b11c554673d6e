"""A dead, hanging or half-writing store: said within the deadline, nothing acknowledged lost, the rest repaired."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from uuid import uuid4

import numpy as np
import pytest

from pipeline.errors import LeaseLost, StoreUnavailable
from pipeline.index.objects import chunk_object
from pipeline.index.reader import WeaviateReader
from pipeline.index.schema import TIERS
from pipeline.index.store import WeaviateStore
from pipeline.ports import ChunkWrite, SearchFilter
from schemas.documents import AccessRecord, Section
from schemas.receipts import Progress
from tests.contract.index.helpers import DIMENSION, GENERATION, access, chunk, document, generation, manifest, unit
from tests.integration.index.conftest import TIMEOUT_S, Server

TENANT = "acme"


class Lease:
    """A deadline that a test sets."""

    def __init__(self, remaining: float, *, ended: bool = False) -> None:
        self._remaining = remaining
        self._ended = ended
        self.checked = 0

    def remaining(self) -> float:
        if self._remaining <= 0:
            raise LeaseLost("nothing left")
        return self._remaining

    def check_ended(self) -> None:
        self.checked += 1
        if self._ended:
            raise LeaseLost("ended late")


def many(count: int, words: int = 3) -> list[ChunkWrite]:
    rng = np.random.default_rng()
    vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    owner = document(TENANT, str(uuid4()))
    return [chunk(owner, " ".join(f"w{i}x{j}" for j in range(words)), v) for i, v in enumerate(vectors)]


def calls(store: WeaviateStore, server: Server) -> dict[str, Callable[[], object]]:
    """One call of each kind, of writers and readers."""
    owner, some = document(TENANT), [str(uuid4())]
    section = Section(section_id=str(uuid4()), ordinal=0, heading_path=(), text="t")
    where = SearchFilter()
    reader = WeaviateReader(server.settings(store._names.namespace))

    async def read(name: str, *args: object) -> object:
        try:
            return await getattr(reader, name)(*args)
        finally:
            await reader.close()

    return {
        "insert": lambda: store.insert_chunks(GENERATION, "hot", TENANT, [chunk(owner, "a")]),
        "write_access": lambda: store.write_access(TENANT, [access(owner)]),
        "write_manifest": lambda: store.write_manifest(GENERATION, manifest(owner)),
        "write_sections": lambda: store.write_sections(GENERATION, owner, [section]),
        "write_progress": lambda: store.write_progress([Progress(lane="index", topic="c", partition=0, offset=1)]),
        "read": lambda: store.read_manifests(GENERATION, TENANT, some),
        "delete": lambda: store.delete_chunks(GENERATION, TENANT, some),
        "update_allow": lambda: store.update_allow(GENERATION, TENANT, some, ["a"], ["a"]),
        "count": lambda: store.count_chunks(GENERATION, TENANT),
        "list": lambda: store.chunk_ids_of(GENERATION, owner),
        "copy": lambda: store.copy_chunks(GENERATION, TENANT, some, source="hot", target="cold"),
        "ensure_generation": lambda: store.ensure_generation(generation("other")),
        "active": store.active_generation,
        "dense": lambda: asyncio.run(read("dense", GENERATION, "hot", TENANT, unit(1.0), where, 5)),
        "sparse": lambda: asyncio.run(read("sparse", GENERATION, "hot", TENANT, "a", where, 5)),
        "statistics": lambda: asyncio.run(read("statistics", GENERATION, TENANT, ["a"])),
        "access": lambda: asyncio.run(read("access", TENANT, some)),
    }


def timed_failures(todo: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds until each call said that the store is unavailable."""
    took: dict[str, float] = {}
    for name, call in todo.items():
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            call()
        took[name] = time.monotonic() - start
    return took


@pytest.mark.requirement("I8")
def test_dead_store_is_said_at_once_and_the_same_clients_go_on_after_it(server: Server, store: WeaviateStore) -> None:
    todo = calls(store, server)
    todo["insert"]()
    server.process.kill()
    took = timed_failures(todo)
    # The client's own retries would take 3 to 63 seconds a call.
    assert max(took.values()) < 1.0, took
    server.up()
    settled(lambda: store.write_access(TENANT, [access(document(TENANT), version=5)]))
    for call in calls(store, server).values():
        call()


@pytest.mark.requirement("I8")
def test_async_client_survives_the_outage(server: Server, store: WeaviateStore) -> None:
    store.write_access(TENANT, [access(document(TENANT))])

    async def scenario() -> None:
        reader = WeaviateReader(server.settings(store._names.namespace))
        assert await reader.access(TENANT, [document(TENANT).uid])
        server.process.kill()
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await reader.access(TENANT, [document(TENANT).uid])
        assert time.monotonic() - start < 1.0
        server.up()
        end = time.monotonic() + 20  # a channel that failed waits before it tries again
        while True:
            try:
                assert await reader.access(TENANT, [document(TENANT).uid])
                break
            except StoreUnavailable:
                assert time.monotonic() < end
                await asyncio.sleep(0.05)
        await reader.close()

    asyncio.run(scenario())


@pytest.mark.requirement("I1", "I8")
def test_hanging_store_is_given_up_by_the_deadline(server: Server, store: WeaviateStore) -> None:
    todo = calls(store, server)
    for call in todo.values():
        call()
    owner = document(TENANT)
    written = chunk(owner, "a")
    store.insert_chunks(GENERATION, "hot", TENANT, [written])
    ids = [written.chunk.chunk_id]
    server.process.send(signal.SIGSTOP)
    try:
        short = Lease(0.3)
        leased: dict[str, Callable[[], object]] = {
            "write_access": lambda: store.write_access(TENANT, [access(owner)], short),
            "insert": lambda: store.insert_chunks(GENERATION, "hot", TENANT, [chunk(owner, "b")], deadline=short),
            "delete": lambda: store.delete_chunks(GENERATION, TENANT, ids, tiers=("hot",), deadline=short),
        }
        took = timed_failures(leased)
        assert max(took.values()) < 0.6, took
        assert short.checked == 3, "a failed write may have ended late as well"
        free: dict[str, Callable[[], object]] = {
            name: todo[name] for name in ("write_manifest", "read", "count", "dense")
        }
        took = timed_failures(free)
        assert max(took.values()) < TIMEOUT_S * 2 + 1, took
    finally:
        server.process.send(signal.SIGCONT)


@pytest.mark.requirement("I1")
def test_nothing_is_sent_without_a_lease_and_a_late_end_is_told(store: WeaviateStore) -> None:
    owner = document(TENANT)
    writes: list[Callable[[Lease], None]] = [
        lambda lease: store.write_access(TENANT, [access(owner)], lease),
        lambda lease: store.write_manifest(GENERATION, manifest(owner), lease),
        lambda lease: store.insert_chunks(GENERATION, "hot", TENANT, many(3), deadline=lease),
        lambda lease: store.insert_chunks(GENERATION, "hot", TENANT, many(3), ambiguous=True, deadline=lease),
        lambda lease: store.write_progress([Progress(lane="index", topic="c", partition=0, offset=1)], lease),
    ]
    for write in writes:
        with pytest.raises(LeaseLost, match="nothing left"):
            write(Lease(0))
    assert store.read_access(TENANT, [owner.uid]) == {}
    assert store.read_manifests(GENERATION, TENANT, [owner.uid]) == {}
    assert store.count_chunks(GENERATION, TENANT) == {"hot": 0, "cold": 0}

    with pytest.raises(LeaseLost, match="ended late"):
        store.write_access(TENANT, [access(owner)], Lease(5, ended=True))
    assert store.read_access(TENANT, [owner.uid]) != {}
    chunks = many(2)
    store.insert_chunks(GENERATION, "hot", TENANT, chunks)
    ids = [w.chunk.chunk_id for w in chunks]
    with pytest.raises(LeaseLost, match="nothing left"):
        store.update_allow(GENERATION, TENANT, ids, ["user:ada"], ["user:ada"], Lease(0))
    with pytest.raises(LeaseLost, match="ended late"):
        store.update_allow(GENERATION, TENANT, ids, ["user:ada"], ["user:ada"], Lease(5, ended=True))
    with pytest.raises(LeaseLost, match="nothing left"):
        store.delete_chunks(GENERATION, TENANT, ids, deadline=Lease(0))
    assert store.count_chunks(GENERATION, TENANT)["hot"] == 2


def found_by_vector(store: WeaviateStore, writes: list[ChunkWrite]) -> int:
    """How many of the chunks a vector search narrowed to their ids finds."""
    collection = store._names.tier("hot", GENERATION)
    return len(writes) - len(store._without_vector(collection, TENANT, [chunk_object(w) for w in writes]))


def interrupt(server: Server, write: Callable[[int], None], seconds: float) -> None:
    """Run ``write`` in three threads, kill the server meanwhile, start it again."""
    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    server.process.kill()
    for thread in threads:
        thread.join()
    server.up()


@pytest.mark.requirement("I6", "I8")
@pytest.mark.parametrize("same_process", [True, False])
def test_kill_in_the_middle_of_inserts(server: Server, store: WeaviateStore, same_process: bool) -> None:
    acknowledged: list[ChunkWrite] = []
    refused: list[list[ChunkWrite]] = []
    batches = [[many(60, words=60) for _ in range(60)] for _ in range(3)]

    def write(number: int) -> None:
        for batch in batches[number]:
            try:
                store.insert_chunks(GENERATION, "hot", TENANT, batch)
                acknowledged.extend(batch)
            except StoreUnavailable:
                refused.append(batch)
                return

    store.insert_chunks(GENERATION, "hot", TENANT, many(1))
    interrupt(server, write, 0.8)
    assert refused, "the server died too late to interrupt an insert"

    # A store of its own, as a new process has it; its channel may still hold the dead connection.
    writer = store if same_process else WeaviateStore(server.settings(store._names.namespace))
    settled(lambda: writer.count_chunks(GENERATION, TENANT))
    assert found_by_vector(writer, acknowledged) == len(acknowledged), "acknowledged is durable"
    for batch in refused[1:]:
        # In the process that saw the failure the repair happens by itself.
        writer.insert_chunks(GENERATION, "hot", TENANT, batch, ambiguous=not same_process)
        assert found_by_vector(writer, batch) == len(batch)
        assert writer.chunk_ids_of(GENERATION, batch[0].document)["hot"] == {w.chunk.chunk_id for w in batch}
    # What is never written again can be deleted, also what only the object store knows.
    writer.delete_chunks(GENERATION, TENANT, [w.chunk.chunk_id for w in refused[0]])
    remaining = ids_in_object_store(writer)
    assert not remaining & {w.chunk.chunk_id for w in refused[0]}
    assert remaining >= {w.chunk.chunk_id for batch in refused[1:] for w in batch}
    writer.close()


def settled(call: Callable[[], object]) -> None:
    """Repeat until the store answers."""
    end = time.monotonic() + 20  # a channel that failed waits before it tries again
    while True:
        try:
            call()
            return
        except StoreUnavailable:
            assert time.monotonic() < end, "the channel does not come back"
            time.sleep(0.05)


def ids_in_object_store(store: WeaviateStore) -> set[str]:
    """All chunk ids of the hot tier, read without any index."""
    handle = store._handle(store._names.tier("hot", GENERATION), TENANT)
    return {str(item.uuid) for item in handle.iterator(return_properties=[])}


@pytest.mark.requirement("I2", "I8")
def test_the_last_acknowledged_insert_survives_a_kill(server: Server, store: WeaviateStore) -> None:
    """The server's own acknowledgement is not enough for that: see ChunkStore._insert."""
    for count in (1, 3, 60):
        last = many(count)
        store.insert_chunks(GENERATION, "hot", TENANT, last)
        store.copy_chunks(GENERATION, TENANT, [w.chunk.chunk_id for w in last], source="hot", target="cold")
        server.process.kill()
        server.up()
        settled(lambda: store.count_chunks(GENERATION, TENANT))
        assert found_by_vector(store, last) == count
        objects = [chunk_object(w) for w in last]
        assert store._without_vector(store._names.tier("cold", GENERATION), TENANT, objects) == []


@pytest.mark.requirement("I2", "I4", "I8")
def test_kill_in_the_middle_of_record_writes(server: Server, store: WeaviateStore) -> None:
    acknowledged: list[AccessRecord] = []
    refused: list[list[AccessRecord]] = []

    def write(number: int) -> None:
        for turn in range(1000):
            records = [access(document(TENANT, f"{number}/{turn}/{i}")) for i in range(100)]
            try:
                store.write_access(TENANT, records)
                acknowledged.extend(records)
            except StoreUnavailable:
                refused.append(records)
                return

    interrupt(server, write, 1.0)
    assert refused and acknowledged
    # Another process: it does not know what was interrupted.
    writer = WeaviateStore(server.settings(store._names.namespace))
    settled(lambda: writer.read_access(TENANT, [str(uuid4())]))
    uids = [r.document.uid for r in acknowledged]
    assert writer.read_access(TENANT, uids).keys() == set(uids)
    for records in refused:
        newer = [r.model_copy(update={"version": 2}) for r in records]
        writer.write_access(TENANT, newer)
        assert writer.read_access(TENANT, [r.document.uid for r in newer]) == {r.document.uid: r for r in newer}
    writer.close()


@pytest.mark.requirement("I6")
def test_after_an_unacknowledged_insert_the_next_one_deletes_first(
    server: Server, store: WeaviateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = many(4)
    deleted: list[str] = []
    original = store._erase

    def spy(collection: str, tenant: str, ids: list[str], deadline: object) -> None:
        deleted.extend(ids)
        original(collection, tenant, ids, None)

    monkeypatch.setattr(store, "_erase", spy)
    store.insert_chunks(GENERATION, "hot", TENANT, batch[:1])
    server.process.send(signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            store.insert_chunks(GENERATION, "hot", TENANT, batch)
    finally:
        server.process.send(signal.SIGCONT)
    assert deleted == []
    store.insert_chunks(GENERATION, "hot", TENANT, batch)
    assert set(deleted) == {w.chunk.chunk_id for w in batch}
    assert found_by_vector(store, batch) == 4
    deleted.clear()
    store.insert_chunks(GENERATION, "hot", TENANT, batch)
    assert deleted == [], "trusted again"


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_restart_keeps_acknowledged_writes(server: Server, store: WeaviateStore, how: str) -> None:
    owner = document(TENANT, f"kept-{how}")
    batch = [chunk(owner, f"kept word{i} E{i}7", unit(1.0, i)) for i in range(20)]
    gone = batch[15:]
    store.insert_chunks(GENERATION, "hot", TENANT, batch)
    store.write_access(TENANT, [access(owner, version=9)])
    store.write_manifest(GENERATION, manifest(owner, content_version=9))
    store.update_allow(GENERATION, TENANT, [w.chunk.chunk_id for w in batch], ["user:ada"], ["user:ada"])
    store.copy_chunks(GENERATION, TENANT, [w.chunk.chunk_id for w in batch], source="hot", target="cold")
    store.delete_chunks(GENERATION, TENANT, [w.chunk.chunk_id for w in gone])
    (server.process.kill if how == "kill" else server.process.stop)()
    server.up()

    kept = {w.chunk.chunk_id for w in batch[:15]}
    where = SearchFilter(allow=("user:ada",))

    async def check() -> None:
        reader = WeaviateReader(server.settings(store._names.namespace))
        for tier in TIERS:
            near = await reader.dense(GENERATION, tier, TENANT, unit(1.0), where, 50)
            assert {h.chunk_id for h in near} == kept
            words = await reader.sparse(GENERATION, tier, TENANT, "kept", where, 50)
            assert {h.chunk_id for h in words} == kept
        assert (await reader.access(TENANT, [owner.uid]))[owner.uid].version == 9
        assert (await reader.manifests(GENERATION, TENANT, [owner.uid]))[owner.uid].content_version == 9
        found = await reader.statistics(GENERATION, TENANT, ["kept", "word3"])
        assert (found.chunks, found.document_frequency) == (30, {"kept": 30, "word3": 2})
        await reader.close()

    asyncio.run(check())
