"""The query log on real Kafka: records on the topic, the view behind the routes, retention, a broker that is away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pipeline.bus.topics import describe_topics, ensure_topics
from pipeline.settings import Settings
from query_service.app import Dependencies
from query_service.querylog.sender import Outlet, Sender, outgoing
from schemas.access import AccessRule
from schemas.querylog import QueryRecord
from schemas.topics import Topic
from tests.integration.query.real import RealWorld
from tests.unit.query.logged import EVALUATOR, listed, say
from tests.unit.query.test_querylog_parts import query, until
from tests.unit.query.world import TENANT, Running, anyone

pytestmark = pytest.mark.anyio
DAY_MS = 86_400_000


@pytest.fixture
def known(world: RealWorld) -> Iterator[RealWorld]:
    """Two people and two documents."""
    world.principal("user:ann", "group:wiki/eng")
    world.principal("user:omar")
    world.principal("group:wiki/eng")
    world.document("eng", "the plan of engineering", rule=anyone("group:wiki/eng"))
    world.document("all", "the plan for everyone", rule=AccessRule.any_of("everyone"))
    yield world


async def view_of(run: Running, count: int, **params: Any) -> list[dict[str, Any]]:
    import asyncio
    import time

    deadline = time.monotonic() + 15
    while True:
        reply = await run.client.get("/v1/queries", params=params, headers=run.headers("eva", **EVALUATOR))
        found: list[dict[str, Any]] = reply.json()["queries"] if reply.status_code == 200 else []
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, reply.text
        await asyncio.sleep(0.02)


def kept_ms(settings: Settings) -> str:
    described = {d.topic: d for d in describe_topics(settings)}
    return described[Topic.QUERIES].configuration["retention.ms"]


@pytest.mark.requirement("C5")
async def test_queries_feedback_and_a_purge_go_through_the_log(known: RealWorld) -> None:
    async with known.running() as run:
        found = await run.search("plan", "ann")
        await run.search("plan", "omar")
        assert (await run.get("/v1/documents/not-a-document", "omar")).status_code == 404
        said = {"query_id": found["query_id"], "verdict": "helpful", "comment": "thanks, ann@x.example"}
        assert (await say(run, said)).status_code == 200
        everything = await view_of(run, 3)
        assert [(q["kind"], q["outcome"]) for q in everything] == [
            ("document", "refused"), ("search", "answered"), ("search", "answered"),
        ]  # fmt: skip
        ann = (await view_of(run, 1, any_feedback=True))[0]
        assert ann["query_id"] == found["query_id"] and ann["feedback"][0]["comment"] == "thanks, [mail]"
        assert [h["chunk_id"] for h in ann["hits"]] == [h["chunk_id"] for h in found["hits"]]
        who = await run.get(f"/v1/queries/who/{ann['scope']}", "eva", **EVALUATOR)
        assert who.json()["user"] == "user:ann"
        now = known.clock.now()
        purge = await run.client.post(
            "/v1/queries/purge", json={"before": now, "user": "ann"}, headers=run.headers("eva", **EVALUATOR)
        )
        assert purge.status_code == 200 and purge.json()["here"] == 2
        await _gone(run, ann["query_id"])
    async with known.running() as again:  # from the file, and what the log has besides
        assert [q["kind"] for q in await view_of(again, 3)] == ["who", "document", "search"]
        assert (await listed(again, user="ann"))["queries"] == []


async def _gone(run: Running, query_id: str) -> None:
    import asyncio
    import time

    deadline = time.monotonic() + 15
    while (await run.get(f"/v1/queries/{query_id}", "eva", **EVALUATOR)).status_code != 404:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.requirement("C5")
async def test_the_view_is_built_again_from_the_log(known: RealWorld) -> None:
    async with known.running() as run:
        await run.search("plan", "ann")
        (first,) = await view_of(run, 1)
    folder = known.settings.query.receipts_path.parent
    for file in folder.glob("queries.sqlite*"):
        file.unlink()
    async with known.running() as run:
        assert await view_of(run, 1) == [first]


@pytest.mark.requirement("C5")
def test_the_topic_is_kept_for_as_long_as_the_settings_say(world: RealWorld) -> None:
    assert kept_ms(world.settings) == str(30 * DAY_MS)
    kept = world.settings.querylog.model_copy(update={"retention_days": 3})
    shorter = world.settings.model_copy(update={"querylog": kept})
    assert ensure_topics(shorter) == []
    assert kept_ms(shorter) == str(3 * DAY_MS)


@pytest.mark.requirement("C5")
async def test_a_broker_that_is_away_slows_no_search(known: RealWorld) -> None:
    from pipeline.bus.producer import KafkaPublisher

    away = known.settings.model_copy(
        update={"kafka": known.settings.kafka.model_copy(update={"bootstrap": "127.0.0.1:9", "request_timeout_s": 1.0})}
    )
    plain = known.dependencies

    def dependencies() -> Dependencies:
        return replace(plain(), open_publisher=lambda: KafkaPublisher(away, "query-log"))

    known.dependencies = dependencies  # type: ignore[method-assign]
    async with known.running() as run:
        for _ in range(3):
            assert len((await run.search("plan", "ann"))["hits"]) == 2
        found = await run.search("plan", "ann")
        reply = await say(run, {"query_id": found["query_id"], "verdict": "helpful"})
        assert reply.status_code == 503 and "cannot be stored" in reply.text
    assert known.metrics.value("headwater_query_log_total", result="lost") == 4


@pytest.mark.requirement("C5")
def test_what_waits_is_sent_once_the_broker_is_there(world: RealWorld) -> None:
    """The sender's own path to Kafka: many records, one partition a tenant, in order."""
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.tail import read_compacted

    opened = 0

    def open_publisher() -> KafkaPublisher:
        nonlocal opened
        opened += 1
        if opened < 3:
            from pipeline.errors import BusUnavailable

            raise BusUnavailable("not yet")
        return KafkaPublisher(world.settings, "query-log")

    sender = Sender(Outlet(open_publisher), world.metrics, 1000)
    sender.start()
    for i in range(700):
        sender.put(partial(outgoing, TENANT, query(i, tenant=TENANT).model_dump_json().encode()))
    until(lambda: world.metrics.value("headwater_query_log_total", result="sent") == 700)
    assert sender.stop() == 0
    records = list(read_compacted(world.settings, Topic.QUERIES))
    assert len({r.partition for r in records}) == 1
    assert [int(QueryRecord.model_validate_json(r.value or b"").query_id) for r in records] == list(range(700))
