"""Receipts in SQLite: trace, lag, completeness; rebuilt from the log whenever it does not fit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from query_service import freshness, lag
from query_service.receipts import RETENTION_US, ReceiptStore, opened
from schemas.api import FreshnessResponse, TraceResponse
from schemas.events import DocumentState, MembershipSet, SourceCursor
from schemas.keys import DocumentRef, cursor_key
from schemas.receipts import Receipt, StageTimes
from schemas.topics import Topic
from tests.unit.query.world import GENERATION, TENANT, World, ref

T0 = 1_700_000_000_000_000
MS = 1000


def receipt(document: DocumentRef, version: int, lane: str = "index", **changes: Any) -> Receipt:
    times = StageTimes(
        source_updated_at=max(0, version - 20 * MS), observed_at=version, appended_at=version + 5 * MS,
        received_at=version + 6 * MS, started_at=version + 8 * MS, extracted_at=version + 10 * MS,
        embedded_at=version + 30 * MS, visible_at=version + 40 * MS,
    )  # fmt: skip
    if lane == "access":
        times = StageTimes(observed_at=version, appended_at=version + 5 * MS, visible_at=version + 12 * MS)
    fields: dict[str, Any] = {
        "lane": lane, "generation": GENERATION if lane == "index" else None, "tenant": document.tenant,
        "source": document.source, "document": document, "document_uid": document.uid,
        "event_type": "content.upserted" if lane == "index" else "rule", "version": version,
        "outcome": "indexed" if lane == "index" else "applied", "times": times, "chunks_total": 3, "chunks_embedded": 1,
    }  # fmt: skip
    return Receipt(**{**fields, **changes})


def state(document: DocumentRef, content: int, access: int) -> DocumentState:
    return DocumentState(document=document, content_version=content, access_version=access)


def cursor(polled_at: int, source: str = "wiki", stream: str = "changes", pending: bool = False) -> SourceCursor:
    return SourceCursor(
        tenant=TENANT, source=source, stream=stream, last_version=polled_at, polled_at=polled_at, pending=pending
    )


def put(world: World, *models: BaseModel, at: int | None = None) -> None:
    when = world.clock.now() if at is None else at
    for model in models:
        value = model.model_dump_json().encode()
        if isinstance(model, Receipt):
            world.log.append(Topic.RECEIPTS, model.document.key if model.document else "x", value, at=when)
        elif isinstance(model, DocumentState):
            world.log.append(
                Topic.CURSORS, model.document.state_key(), value, partition_key=model.document.key, at=when
            )
        elif isinstance(model, SourceCursor):
            world.log.append(Topic.CURSORS, cursor_key(TENANT, model.source, model.stream), value, at=when)


# ---------------------------------------------------------------- lag


@pytest.mark.requirement("A11", "I10")
def test_stages_in_milliseconds_and_visible_is_the_later_of_both_lanes() -> None:
    row: dict[str, object] = dict(receipt(ref("a"), T0).times.model_dump())
    assert lag.stages(row) == {
        "source": 60.0, "observe": 20.0, "append": 5.0, "receive": 1.0, "wait": 2.0, "extract": 2.0, "embed": 20.0,
        "write": 10.0, "total": 40.0,
    }  # fmt: skip
    row["access_visible_at"] = T0 + 70 * MS
    assert lag.stages(row)["total"] == 70.0 and lag.stages(row)["write"] == 10.0
    row["access_visible_at"] = T0 + 1 * MS
    assert lag.stages(row)["total"] == 40.0


@pytest.mark.requirement("A11")
def test_clocks_that_disagree_count_as_zero_and_missing_times_not_at_all() -> None:
    assert lag.stages({"observed_at": T0 + 5, "appended_at": T0}) == {"append": 0.0}
    assert lag.stages({}) == {}


@pytest.mark.requirement("A11")
def test_percentiles_are_measured_values() -> None:
    assert lag.percentiles([]).model_dump() == {"count": 0, "p50": None, "p95": None, "p99": None}
    assert lag.percentiles([7.0]).model_dump() == {"count": 1, "p50": 7.0, "p95": 7.0, "p99": 7.0}
    hundred = lag.percentiles([float(i) for i in range(100, 0, -1)])
    assert (hundred.p50, hundred.p95, hundred.p99) == (50.0, 95.0, 99.0)
    assert lag.percentiles([1.0, 2.0, 3.0]).p50 == 2.0


# ---------------------------------------------------------------- the file


def fill(store: ReceiptStore, world: World) -> None:
    tail = world.log.open(("receipts", "cursors"), _start(store))
    store.apply(tail.poll(), {(t, p): o for (t, p), o in tail.positions().items()})


def _start(store: ReceiptStore) -> Any:
    from query_service.tail import Start

    return Start(offsets=store.positions())


@pytest.fixture
def store(tmp_path: Path) -> ReceiptStore:
    return ReceiptStore(tmp_path / "deep" / "receipts.sqlite", "headwater")


@pytest.mark.requirement("A11", "A6")
def test_a_replayed_receipt_is_one_row(world: World, store: ReceiptStore) -> None:
    put(world, receipt(ref("a"), T0))
    records = world.log.open(("receipts",), _start(store)).poll()
    store.apply(records, {})
    store.apply(records, {})
    assert len(store.trace(TENANT, ref("a").uid)) == 1


@pytest.mark.requirement("A11")
def test_pending_is_what_a_lane_has_not_settled(world: World, store: ReceiptStore) -> None:
    a, now = ref("a"), world.clock.now()

    def pending() -> int | None:
        fill(store, world)
        found = store.pending(GENERATION, now).get(a.uid)
        assert store.pending(GENERATION, now, [a.uid, ref("b").uid]).get(a.uid) == found
        return found.version if found is not None else None

    put(world, state(a, content=10, access=9))
    assert pending() == 9
    put(world, receipt(a, 9, "access"))
    assert pending() == 10
    put(world, receipt(a, 11, event_type="access.rule", outcome="refreshed"))
    assert pending() == 10, "the index lane's work on a rule settles no content"
    put(world, receipt(a, 10, generation="g2"))
    assert pending() == 10, "another generation"
    put(world, receipt(a, 10, outcome="parked"))
    assert pending() == 10, "parked is not there"
    put(world, receipt(a, 10, outcome="dead_letter"))
    assert pending() is None, "a dead letter is not waited for"
    put(world, state(a, content=12, access=9))
    assert pending() == 12
    put(world, receipt(a, 13, outcome="superseded"))
    assert pending() is None


@pytest.mark.requirement("A11")
def test_a_receipt_may_come_before_its_state(world: World, store: ReceiptStore) -> None:
    a = ref("a")
    put(world, receipt(a, 10), receipt(a, 9, "access"))
    fill(store, world)
    put(world, state(a, content=10, access=9))
    fill(store, world)
    assert store.pending(GENERATION, world.clock.now()) == {}


@pytest.mark.requirement("A11")
def test_states_older_than_the_receipts_count_as_settled(world: World, store: ReceiptStore) -> None:
    old = world.clock.now() - RETENTION_US - 1
    put(world, state(ref("a"), content=10, access=9), at=old)
    put(world, receipt(ref("b"), 10), at=old)
    fill(store, world)
    assert store.pending(GENERATION, world.clock.now()) == {}
    assert store.prune(world.clock.now()) == 1
    assert store.trace(TENANT, ref("b").uid) == []


@pytest.mark.requirement("A11")
def test_many_documents_at_once(world: World, store: ReceiptStore) -> None:
    documents = [ref(f"d{i}") for i in range(1200)]
    put(world, *(state(d, content=10, access=9) for d in documents))
    fill(store, world)
    assert len(store.pending(GENERATION, world.clock.now(), [d.uid for d in documents])) == 1200


@pytest.mark.requirement("A11")
def test_looks_of_all_streams_count_and_pending_ones_do_not(world: World, store: ReceiptStore) -> None:
    put(world, cursor(100), cursor(90, stream="groups"), cursor(120, pending=True), cursor(50, source="tickets"))
    put(world, cursor(5, source="new", pending=True))
    fill(store, world)
    assert store.polled() == {(TENANT, "wiki"): 90, (TENANT, "tickets"): 50, (TENANT, "new"): None}


@pytest.mark.requirement("A11", "I12")
def test_what_cannot_be_read_is_skipped(world: World, store: ReceiptStore) -> None:
    for topic in (Topic.RECEIPTS, Topic.CURSORS):
        for value in (b"", b"\xff", b"{}", b"[]", None):
            world.log.append(topic, "x", value)
    put(world, receipt(ref("a"), T0))
    fill(store, world)
    assert len(store.trace(TENANT, ref("a").uid)) == 1


@pytest.mark.requirement("A11")
def test_the_file_is_kept_and_emptied_when_it_is_of_another_log(world: World, tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    first = ReceiptStore(path, "one")
    put(world, receipt(ref("a"), T0))
    fill(first, world)
    first.close()
    again = ReceiptStore(path, "one")
    assert len(again.trace(TENANT, ref("a").uid)) == 1 and sum(again.positions().values()) == 1
    again.close()
    other = ReceiptStore(path, "two")
    assert other.trace(TENANT, ref("a").uid) == [] and other.positions() == {}
    other.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---------------------------------------------------------------- through the application


async def complete(run: Any, source: str = "wiki") -> int | None:
    found: dict[str, int | None] = run.parts.freshness.complete_until(TENANT)
    return found.get(source)


@pytest.mark.anyio
@pytest.mark.requirement("A11", "I10")
async def test_complete_until(world: World) -> None:
    world.principal("user:ann")
    m = world.document("a", "plan")
    t = world.clock.now()
    async with world.running() as run:
        assert (await run.search("plan"))["complete_until"] == {}
        put(world, cursor(t))
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t})
        put(world, state(m.document, content=t + 50, access=t + 40), cursor(t + 100))
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t + 40})
        put(world, receipt(m.document, t + 40, "access"))
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t + 50})
        put(world, receipt(m.document, t + 50))
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t + 100})
        reply = await run.search("plan")
        assert reply["complete_until"] == {"wiki": t + 100}
        assert (await run.search("plan", filters={"sources": ["none"]}))["complete_until"] == {"none": None}
        assert (await run.search("plan", "stranger"))["complete_until"] == {}, "nobody learns of no source"
        assert run.parts.freshness.complete_until("other") == {}
        document = await run.get(f"/v1/documents/{m.document.uid}")
        assert document.json()["complete_until"] == t + 100


@pytest.mark.anyio
@pytest.mark.requirement("A11", "D4", "D5")
async def test_freshness_endpoint(world: World) -> None:
    world.principal("user:ann")
    m = world.document("a", "plan")
    now = world.clock.now()
    put(world, cursor(now - 2_000_000), state(ref("p"), content=now, access=1), receipt(ref("p"), 2, "access"))
    for i in range(20):
        put(world, receipt(m.document, now - 1_000_000 + i), receipt(m.document, now - 1_000_000 + i, "access"))
    put(world, receipt(m.document, now, priority="bulk"), receipt(ref("x"), now, outcome="dead_letter"))
    put(world, receipt(ref("t", tenant="other"), now))
    put(world, receipt(ref("old"), now - 9 * 3600 * 10**6), at=now - 9 * 3600 * 10**6)
    async with world.running() as run:
        await run.until(lambda: run.parts.freshness.complete_until(TENANT).get("wiki") is not None)
        reply = await run.get("/v1/freshness?window_s=7200")
        assert reply.status_code == 200
        FreshnessResponse.model_validate(reply.json())
        body = reply.json()
        assert (body["tenant"], body["generation"], body["window_s"], body["now"]) == (TENANT, GENERATION, 7200, now)
        (source,) = body["sources"].values()
        assert source["complete_until"] == now - 2_000_000 and source["complete_age_s"] == 2.0
        assert source["pending"] == 1 and source["failed"] == 1
        assert source["lag_ms"]["total"] == {"count": 20, "p50": 40.0, "p95": 40.0, "p99": 40.0}
        assert list(source["lag_ms"]) == list(lag.STAGES)
        assert source["revocation_ms"]["p99"] == 7.0
        stranger = await run.get("/v1/freshness", "ghost")
        assert stranger.json()["sources"] == {}
        for window in ("0", "-1", "x", "99999999"):
            assert (await run.get(f"/v1/freshness?window_s={window}")).status_code == 422


@pytest.mark.anyio
@pytest.mark.requirement("A11")
async def test_trace_of_a_document(world: World) -> None:
    world.principal("user:ann")
    m = world.document("a", "plan")
    put(world, receipt(m.document, T0 + 5), receipt(m.document, T0, "access"), receipt(ref("b"), T0))
    async with world.running() as run:
        await run.until(lambda: len(run.parts.freshness.trace(TENANT, m.document.uid)) == 2)
        reply = await run.get(f"/v1/trace/{m.document.uid}")
        body = TraceResponse.model_validate(reply.json())
    assert [(s.lane, s.version, s.outcome, s.generation) for s in body.steps] == [
        ("access", T0, "applied", None),
        ("index", T0 + 5, "indexed", GENERATION),
    ]
    assert body.steps[1].times == {k: v for k, v in receipt(m.document, T0 + 5).times.model_dump().items() if v}
    assert (body.steps[1].chunks_total, body.steps[1].chunks_embedded) == (3, 1)


@pytest.mark.anyio
@pytest.mark.requirement("A11")
async def test_lag_histograms_of_what_ends_now(world: World) -> None:
    now = world.clock.now()
    put(world, receipt(ref("a"), now), receipt(ref("old"), now - 3600 * 10**6))
    async with world.running() as run:
        await run.until(lambda: len(run.parts.freshness.trace(TENANT, ref("old").uid)) == 1)
        text = (await run.client.get("/metrics")).text
    assert 'headwater_source_lag_seconds_count{lane="index",source="wiki"} 1.0' in text


@pytest.mark.anyio
@pytest.mark.requirement("A11")
async def test_a_log_made_anew_is_noticed_and_the_file_built_again(world: World, tmp_path: Path) -> None:
    world.principal("user:ann")
    m = world.document("a", "plan")
    old = ReceiptStore(world.settings.query.receipts_path, world.settings.namespace)
    put(world, *(receipt(m.document, T0 + i) for i in range(5)))
    fill(old, world)
    old.close()
    world.log.records.clear()
    put(world, receipt(m.document, T0 + 100))
    async with world.running() as run:
        await run.until(lambda: [r["version"] for r in run.parts.freshness.trace(TENANT, m.document.uid)] == [T0 + 100])


@pytest.mark.anyio
@pytest.mark.requirement("I8", "A11")
async def test_it_goes_on_after_the_log_was_away(world: World) -> None:
    t = world.clock.now()
    async with world.running() as run:
        put(world, cursor(t))
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t})
        world.log.down = True
        put(world, cursor(t + 5))
        world.log.down = False
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t + 5})


@pytest.mark.anyio
@pytest.mark.requirement("A11", "A6")
async def test_another_generation_is_not_said_to_be_complete(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    world.generation("g2")
    world.document("b", "plan", generation="g2")
    t = world.clock.now()
    async with world.running() as run:
        put(world, cursor(t))
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t})
        said = {}
        for name in ("g1", "g2"):
            body = {"seen_as": "ann", "generation": name, "request": {"query": "plan"}}
            headers = run.headers("olga", roles=["operator"])
            reply = await run.client.post("/v1/operator/search", json=body, headers=headers)
            said[name] = reply.json()["complete_until"]
    assert said == {"g1": {"wiki": t}, "g2": {"wiki": None}}


@pytest.mark.anyio
@pytest.mark.requirement("A8", "B9", "I12")
async def test_who_is_removed_during_a_search_learns_of_no_source(world: World) -> None:
    world.principal("user:ann")
    world.document("a", "plan")
    t = world.clock.now()
    async with world.running() as run:
        put(world, cursor(t))
        await run.until(lambda: run.parts.freshness.complete_until(TENANT) == {"wiki": t})
        reader = run.parts.reader
        real = reader.manifests

        async def then_removed(*given: Any) -> Any:
            found = await real(*given)
            world.principal("user:ann", removed=True)
            world.log.stalled = True
            world.log.event(
                MembershipSet(
                    tenant=TENANT, principal="user:ann", removed=True, version=world.version(),
                    observed_at=world.clock.now(), source="wiki",
                )
            )  # fmt: skip
            return found

        reader.manifests = then_removed
        reply = await run.search("plan")
        fresh = await run.get("/v1/freshness")
        world.log.stalled = False
    assert reply["hits"] == [] and reply["complete_until"] == {}
    assert fresh.status_code == 200 and fresh.json()["sources"] == {}


@pytest.mark.requirement("A11")
@pytest.mark.parametrize("content", [b"no database, but long enough to be looked at " * 100, b"\x00" * 4096])
def test_a_damaged_file_is_filled_again(tmp_path: Path, world: World, content: bytes) -> None:
    path = tmp_path / "receipts.sqlite"
    path.write_bytes(content)
    store = opened(path, "headwater")
    world.log.append(Topic.RECEIPTS, "k", receipt(ref("a"), T0).model_dump_json().encode())
    fill(store, world)
    assert store.window(TENANT, 0) and path.stat().st_mode & 0o077 == 0
    store.close()


@pytest.mark.requirement("A11")
@pytest.mark.anyio
async def test_a_file_that_breaks_while_it_is_written_is_filled_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "PAUSE_S", 0.01)
    world.principal("user:ann")
    async with world.running() as run:
        await run.until(lambda: run.parts.freshness._store is not None)
        first = run.parts.freshness._store
        monkeypatch.setattr(first, "apply", _broken)
        world.log.append(Topic.RECEIPTS, "k", b"{}")
        await run.until(lambda: run.parts.freshness._store not in (None, first))
        assert (await run.get("/v1/freshness")).status_code == 200
        second = run.parts.freshness._store
        await run.until(lambda: any(second.positions().values()))


def _broken(*given: object) -> None:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    raise error
