"""Feedback: only on one's own answers, last word counts, nothing of a comment that the settings keep out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from schemas.api_feedback import FeedbackResponse
from schemas.querylog import FeedbackRecord
from tests.unit.query.logged import OPERATOR, LoggedWorld, listed, say, seen
from tests.unit.query.test_app import problem
from tests.unit.query.world import GENERATION, ref

pytestmark = pytest.mark.anyio


@pytest.fixture
def logged(tmp_path: Path) -> LoggedWorld:
    made = LoggedWorld(tmp_path)
    made.principal("user:ann")
    made.document("all", "the plan for everyone")
    made.document("more", "another plan")
    return made


def feedback(world: LoggedWorld) -> list[FeedbackRecord]:
    return [r for r in world.logged() if isinstance(r, FeedbackRecord)]


@pytest.mark.requirement("C5")
async def test_feedback_stands_with_its_query_and_the_last_word_on_a_target_counts(logged: LoggedWorld) -> None:
    async with logged.running() as run:
        found = await run.search("plan")
        hit = found["hits"][0]
        body = {"query_id": found["query_id"], "chunk_id": hit["chunk_id"], "verdict": "helpful"}
        reply = await say(run, {**body, "comment": "ask ann@example.org, room 12345"})
        stored = FeedbackResponse.model_validate_json(reply.content)
        assert (stored.verdict, stored.comment_kept) == ("helpful", "redacted")
        logged.clock.advance(1)
        assert (await say(run, {**body, "verdict": "outdated", "comment": "  "})).status_code == 200
        whole = {"query_id": found["query_id"], "verdict": "not_helpful"}
        assert (await say(run, whole)).status_code == 200
        document = {"query_id": found["query_id"], "document_uid": hit["document_uid"], "verdict": "wrong"}
        assert (await say(run, document)).status_code == 200
        await seen(run, 5)
        (query,) = (await listed(run, any_feedback=True))["queries"]
        assert {(f["chunk_id"], f["document_uid"], f["verdict"], f["comment"]) for f in query["feedback"]} == {
            (hit["chunk_id"], None, "outdated", None),
            (None, hit["document_uid"], "wrong", None),
            (None, None, "not_helpful", None),
        }
        assert (await listed(run, feedback="helpful"))["queries"] == []
        assert len((await listed(run, feedback="outdated"))["queries"]) == 1
    assert feedback(logged)[0].comment == "ask [mail], room [number]"
    assert logged.metrics.value("headwater_feedback_total", verdict="outdated") == 1


@pytest.mark.requirement("C5", "B1")
async def test_a_query_of_somebody_else_is_as_one_that_never_was(logged: LoggedWorld) -> None:
    logged.principal("user:omar")
    async with logged.running() as run:
        found = await run.search("plan")
        theirs = {"query_id": found["query_id"], "verdict": "helpful", "chunk_id": found["hits"][0]["chunk_id"]}
        absent = await say(run, {**theirs, "query_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12})
        assert absent.status_code == 404
        tenant = await run.client.post("/v1/feedback", json=theirs, headers=run.headers("ann", tenant="other"))
        for reply in (await say(run, theirs, "omar"), tenant):
            assert (reply.status_code, reply.content) == (404, absent.content)
        # an operator's look as ann is not ann's query
        body = {"seen_as": "ann", "generation": GENERATION, "request": {"query": "plan"}}
        act = await run.client.post("/v1/operator/search", json=body, headers=run.headers("olga", **OPERATOR))
        assert (await say(run, {"query_id": act.json()["query_id"], "verdict": "wrong"})).status_code == 404
        assert (await say(run, {"query_id": act.json()["query_id"], "verdict": "wrong"}, "olga")).status_code == 200
    assert len(feedback(logged)) == 1


@pytest.mark.requirement("C5")
async def test_another_process_knows_the_query_from_the_log(logged: LoggedWorld) -> None:
    async with logged.running() as run:
        found = await run.search("plan")
        await run.until(lambda: len(logged.queries()) == 1)
    async with logged.running() as other:
        await seen(other, 1)
        body = {"query_id": found["query_id"], "verdict": "helpful", "document_uid": found["hits"][0]["document_uid"]}
        assert (await say(other, body)).status_code == 200
        assert (await say(other, body, "omar")).status_code == 404
        assert [e.field for e in problem(await say(other, {**body, "document_uid": ref("x").uid}), 422).errors] == [
            "document_uid"
        ]


@pytest.mark.requirement("C5")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"query_id": "x"}, "query_id"), ({"verdict": "fine"}, "verdict"), ({"verdict": None}, "verdict"),
        ({"comment": "x" * 2001}, "comment"), ({"chunk_id": "no"}, "chunk_id"), ({"stars": 5}, "stars"),
        ({"chunk_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12}, "chunk_id"),
        ({"chunk_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12, "document_uid": ref("all").uid}, "body"),
    ],
)  # fmt: skip
async def test_the_field_is_named(logged: LoggedWorld, change: dict[str, Any], field: str) -> None:
    async with logged.running() as run:
        found = await run.search("plan")
        reply = await say(run, {"query_id": found["query_id"], "verdict": "helpful", **change})
        assert [e.field for e in problem(reply, 422).errors] == [field]
    assert feedback(logged) == []


@pytest.mark.requirement("C5", "B1")
async def test_what_should_not_be_seen_alarms(logged: LoggedWorld, caplog: pytest.LogCaptureFixture) -> None:
    async with logged.running() as run:
        found = await run.search("plan")
        uid = found["hits"][0]["document_uid"]
        body = {"query_id": found["query_id"], "document_uid": uid, "verdict": "forbidden", "comment": "secret salary"}
        with caplog.at_level(logging.ERROR, logger="headwater.query.feedback"):
            assert (await say(run, body)).status_code == 200
    assert logged.metrics.value("headwater_forbidden_reports_total") == 1
    (line,) = [r.fields for r in caplog.records if r.name == "headwater.query.feedback"]  # type: ignore[attr-defined]
    assert line["document_uid"] == uid and "salary" not in str(line) and "ann" not in str(line)


@pytest.mark.requirement("C5")
async def test_a_repetition_with_a_key_is_stored_once_and_a_log_that_is_away_is_told(logged: LoggedWorld) -> None:
    async with logged.running() as run:
        found = await run.search("plan")
        body = {"query_id": found["query_id"], "verdict": "helpful"}
        await run.until(lambda: len(logged.queries()) == 1)
        logged.log.down = True
        reply = await say(run, body, **{"Idempotency-Key": "k1"})
        problem(reply, 503)
        logged.log.down = False
        for _ in range(2):
            assert (await say(run, body, **{"Idempotency-Key": "k1"})).status_code == 200
    assert len(feedback(logged)) == 1


@pytest.mark.requirement("C5")
async def test_without_texts_no_comment_is_kept(tmp_path: Path) -> None:
    world = LoggedWorld(tmp_path, text="none")
    world.principal("user:ann")
    world.document("all", "the plan for everyone")
    async with world.running() as run:
        found = await run.search("plan", filters={"kinds": ["page"]})
        reply = await say(run, {"query_id": found["query_id"], "verdict": "wrong", "comment": "private"})
        assert reply.json()["comment_kept"] == "none"
        await run.until(lambda: len(world.queries()) == 1)
    assert feedback(world)[0].comment is None
    assert world.queries()[0].text is None and world.queries()[0].request["filters"] == {"kinds": 1}
