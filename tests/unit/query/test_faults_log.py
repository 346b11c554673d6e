"""The query log under faults: damaged and locked files, a broker that hangs, publishers that fail in new ways."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BusUnavailable, ConfigError, Reject
from pipeline.observe import Metrics
from pipeline.ports import Appended, Outgoing
from pipeline.settings_query import QueryLogSettings
from query_service.middleware import Watched
from query_service.problems import fault
from query_service.querylog import follow, log
from query_service.querylog.references import references
from query_service.querylog.view import QueryView, Wanted, opened
from schemas.querylog import QueryRecord
from tests.unit.query.logged import EVALUATOR, LoggedWorld, listed, say, seen
from tests.unit.query.test_querylog_parts import NOW, Bus, make, query, record, settings, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def logged(tmp_path: Path) -> LoggedWorld:
    made = LoggedWorld(tmp_path)
    made.principal("user:ann")
    made.document("all", "the plan for everyone")
    return made


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PAUSE_S", 0.01)
    monkeypatch.setattr(follow, "REOPEN_S", 0.01)


@pytest.mark.requirement("C5")
@pytest.mark.parametrize(
    "content", [b"this is no database at all, and long enough to be looked at" * 100, b"\x00" * 4096]
)
def test_a_file_that_is_no_database_is_built_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "q.sqlite"
    path.write_bytes(content)
    view = opened(path, "log", QueryLogSettings())
    assert view.apply([record(query(1))], {("queries", 0): 1}) == 0
    assert len(view.queries("acme", Wanted(), 10, NOW)) == 1
    view.close()


@pytest.mark.requirement("C5")
async def test_a_view_that_breaks_while_it_is_written_is_filled_again(
    logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logged.running() as run:
        await run.search("plan")
        await seen(run, 1)
        view = run.parts.querylog.view
        assert view is not None

        def breaks(*given: Any) -> int:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

        monkeypatch.setattr(view, "apply", breaks)
        await run.search("plan")
        await run.until(lambda: run.parts.querylog.view not in (None, view))
        await seen(run, 2)


@pytest.mark.requirement("C5")
async def test_a_view_that_cannot_be_read_is_unavailable_and_no_fault_of_ours(
    logged: LoggedWorld, tmp_path: Path
) -> None:
    async with logged.running() as run:
        found = await run.search("plan")
        await seen(run, 1)
        run.parts.querylog._recent.clear()
        view = run.parts.querylog.view
        assert view is not None
        view._path = tmp_path / "gone.sqlite"
        evaluator = run.headers("ann", **EVALUATOR)
        replies = [
            await run.client.get("/v1/queries", headers=evaluator),
            await run.client.get(f"/v1/queries/{found['query_id']}", headers=evaluator),
            await say(run, {"query_id": found["query_id"], "verdict": "helpful"}),
        ]
        assert [r.status_code for r in replies] == [503] * 3 and "sqlite" not in str([r.text for r in replies])


@pytest.mark.requirement("C5")
async def test_a_file_that_is_locked_at_the_start_is_opened_later(
    logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def locked(*given: Any) -> QueryView:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise sqlite3.OperationalError("database is locked")
        return opened(*given)

    monkeypatch.setattr(log, "opened", locked)
    async with logged.running() as run:
        await run.search("plan")
        await run.until(lambda: run.parts.querylog.view is not None)
        await seen(run, 1)
        assert len((await listed(run))["queries"]) == 1 and tries == 3


@pytest.mark.requirement("C5")
async def test_a_broker_that_hangs_holds_no_thread_that_others_need(
    logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAX_WRITES", 20)
    async with logged.running() as run:
        found = await run.search("plan")
        await seen(run, 1)
        logged.publisher.blocked = threading.Event()
        verdict = {"query_id": found["query_id"], "verdict": "helpful"}
        # More than the threads that asyncio.to_thread shares out, whatever machine this is.
        giving = [
            asyncio.ensure_future(run.parts.querylog._written(Outgoing("queries", "acme", b"x"))) for _ in range(20)
        ]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(int) for _ in range(40))), 2)
        assert (await say(run, verdict)).status_code == 503, "more than may wait is refused at once"
        logged.publisher.blocked.set()
        await asyncio.gather(*giving)
        logged.publisher.blocked = None
        assert (await say(run, verdict)).status_code == 200


@pytest.mark.requirement("C5")
def test_the_sender_outlives_whatever_a_publisher_raises() -> None:
    bus = Bus()
    plain, failures = bus.publisher.publish, [RuntimeError("new"), ValueError("odd")]

    def odd(records: Any) -> list[Appended]:
        if len(records) > 1:
            raise Reject("too large", stage="append", kind="too_large")
        if failures:
            raise failures.pop()
        return plain(records)

    bus.publisher.publish = odd  # type: ignore[method-assign]
    sender = bus.sender()
    for number in range(3):
        sender.put(make(b"%d" % number))
    until(lambda: bus.count("sent") == 3)
    assert sender.stop() == 0 and bus.sent() == [b"0", b"1", b"2"]


@pytest.mark.requirement("C5")
def test_a_key_file_that_was_cut_short_names_nobody(tmp_path: Path) -> None:
    made = references(settings(tmp_path), tmp_path)
    assert made.key_id == references(settings(tmp_path), tmp_path).key_id
    for left in (b"", b"\n", b"abc"):
        (tmp_path / "querylog.key").write_bytes(left)
        with pytest.raises(ConfigError, match="cut short"):
            references(settings(tmp_path), tmp_path)


@pytest.mark.requirement("C5")
async def test_what_is_remembered_of_answers_is_bounded_by_their_size(
    logged: LoggedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAX_TARGETS", 5)
    async with logged.running() as run:
        for _ in range(6):
            await run.search("plan")
        kept = run.parts.querylog
        assert 1 <= len(kept._recent) <= 5 and kept._targets == sum(len(s.targets) for s in kept._recent.values()) <= 5


@pytest.mark.requirement("A8")
async def test_the_text_of_an_unexpected_error_is_in_no_log(
    logged: LoggedWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries put what they worked on into it, as pydantic does with a field's value."""

    async def broken(*given: Any, **more: Any) -> Any:
        QueryRecord.model_validate({"query_id": "the secret passage"})

    with caplog.at_level(logging.DEBUG):
        async with logged.running() as run:
            monkeypatch.setattr(run.parts.service, "search", broken)
            reply = await run.post({"query": "plan"})
    assert reply.status_code == 500 and "secret" not in reply.text
    shown = "\n".join(f"{r.getMessage()} {r.__dict__.get('fields')} {r.exc_text} {r.exc_info}" for r in caplog.records)
    assert "ValidationError" in shown and "broken" in shown and "secret" not in shown


def test_a_chain_of_errors_is_named_without_its_words() -> None:
    try:
        try:
            raise KeyError("secret")
        except KeyError as error:
            raise BusUnavailable("secret too") from error
    except BusUnavailable as error:
        told = fault(error)
    assert told["error"] == "BusUnavailable < KeyError" and "secret" not in str(told)


@pytest.mark.requirement("A8")
async def test_a_reply_that_breaks_off_tells_the_server_nothing_of_the_error(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("the secret passage")

    async def nothing(*given: Any) -> Any:
        return None

    with pytest.raises(RuntimeError) as caught:
        await Watched(breaks, Metrics())({"type": "http", "path": "/", "headers": []}, nothing, nothing)
    printed = "".join(traceback.format_exception(caught.value))
    assert "secret" not in printed + caplog.text and "breaks" in str(caplog.records[-1].__dict__["fields"])
