"""An owner over an outbox on a real PostgreSQL: the cursor goes with its events, whatever fails between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

from psycopg.types.json import Jsonb  # noqa: E402

from consumers.owner_engine import OwnerEngine  # noqa: E402
from consumers.owner_jobs import Pace  # noqa: E402
from infra.servers.postgres import PostgresServer, available  # noqa: E402
from pipeline.clock import SystemClock  # noqa: E402
from pipeline.errors import Retry  # noqa: E402
from pipeline.observe import Metrics  # noqa: E402
from pipeline.settings_sources import OutboxSettings  # noqa: E402
from pipeline.sources.bodies import BodyPlacer  # noqa: E402
from pipeline.sources.ledger import Ledger  # noqa: E402
from pipeline.sources.outbox.ddl import ddl  # noqa: E402
from pipeline.sources.outbox.source import Outbox  # noqa: E402
from schemas.events import ContentDeleted, ContentUpserted  # noqa: E402
from schemas.topics import Topic  # noqa: E402
from tests.unit.owner.support import MemoryLog, MemoryOwnerLog  # noqa: E402

TABLE = "public.headwater_outbox"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if not available():
        pytest.skip("PostgreSQL is not installed: install the package postgresql")
    running = PostgresServer()
    running.start()
    yield running
    running.stop()


class App:
    """An application with an outbox, and the owner that follows it."""

    def __init__(self, server: PostgresServer, mode: str) -> None:
        name = f"b{uuid4().hex[:10]}"
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}")
        self.dsn, self.log, self.clock, self.starts = server.dsn(name), MemoryLog(), SystemClock(), 0
        with self.connect() as connection:
            for statement in ddl(TABLE, "headwater", name).split(";\n"):
                if statement.strip():
                    connection.execute(statement)
        self.settings = OutboxSettings.model_validate(
            {"type": "outbox", "name": "app", "dsn": self.dsn, "mode": mode, "slot": name, "poll_s": 0.02}
        )
        self.begin()

    def connect(self) -> Any:
        return psycopg.connect(self.dsn, autocommit=True)

    def write(self, connection: Any, *changes: dict[str, Any]) -> None:
        with connection.transaction():
            for change in changes:
                connection.execute(f"INSERT INTO {TABLE} (payload) VALUES (%s)", (Jsonb(change),))

    def begin(self) -> None:
        """A new owner, from the log."""
        self.starts += 1

        def source(ledger: Ledger) -> Outbox:
            return Outbox(self.settings, self.clock, max_bytes=1_000_000, known=ledger.state)

        self.engine = OwnerEngine(
            MemoryOwnerLog(self.log, self.clock), source, tenant="acme", source="app", clock=self.clock,
            bodies=BodyPlacer(None), observed=Metrics(), pace=Pace(idle_s=0.02, walk_s=2.0),
        )  # fmt: skip
        self.engine.start()

    def step(self) -> None:
        try:
            self.engine.step()
        except Retry:
            self.again()

    def again(self) -> None:
        """As an owner's process does it: until one begins."""
        while True:
            self.engine.close()
            try:
                self.begin()
            except Retry:
                continue
            return

    def settle(self, seconds: float = 30) -> None:
        """Until the owner says that everything from before now is on the log."""
        now, end = self.clock.now(), time.monotonic() + seconds
        while self.engine.busy or self.engine._polled_at <= now:
            assert time.monotonic() < end, self.engine.problems
            self.step()
        self.engine._write_cursor()


@pytest.mark.requirement("A7", "I9", "A6")
@pytest.mark.parametrize("mode", ["logical", "poll"])
def test_a_log_that_fails_loses_and_doubles_nothing(server: PostgresServer, mode: str) -> None:
    app = App(server, mode)
    app.settle()

    def write(writer: int) -> None:
        with app.connect() as connection:
            for n in range(60):
                change = {"type": "upsert", "id": f"{writer}-{n}", "title": "t", "text": f"text {writer} {n}"}
                gone = {"type": "delete", "id": f"{writer}-{n}"}
                app.write(connection, change, *([gone] if n % 6 == 0 else []))

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    steps = 0
    while any(writer.is_alive() for writer in writers) or steps < 30:
        steps += 1
        app.log.fail_next = 1 if steps % 5 == 0 else app.log.fail_next
        app.log.lose_next = steps % 4 == 0
        app.step()
    app.log.fail_next, app.log.lose_next = 0, False
    for writer in writers:
        writer.join()
    app.settle()
    content = app.log.content()
    written = sorted(e.document.id for e in content if isinstance(e, ContentUpserted))
    deleted = sorted(e.document.id for e in content if isinstance(e, ContentDeleted))
    assert app.starts > 1  # it failed, and began anew
    # What is deleted in the transaction that made it never comes to the log, and nothing comes back.
    assert written == sorted(f"{w}-{n}" for w in range(4) for n in range(60) if n % 6)
    assert deleted == sorted(f"{w}-{n}" for w in range(4) for n in range(60) if n % 6 == 0)
    cursor = app.log.cursor()
    assert cursor.position
    assert not cursor.pending
    before = len(app.log.topic(Topic.CONTENT))
    app.engine.close()
    app.begin()
    app.settle()
    assert len(app.log.topic(Topic.CONTENT)) == before
    app.engine.close()


@pytest.mark.requirement("A7", "I8")
def test_an_outage_of_the_database_stops_no_owner(server: PostgresServer) -> None:
    app = App(server, "logical")
    app.settle()
    server.restart()
    for _ in range(10):
        app.step()
    assert app.starts == 1
    with app.connect() as connection:
        app.write(connection, {"type": "upsert", "id": "a", "title": "t", "text": "x"})
    app.settle()
    assert [e.document.id for e in app.log.content() if isinstance(e, ContentUpserted)] == ["a"]
    deadline = time.monotonic() + 10
    while app.engine.problems:  # over with the next walk
        assert time.monotonic() < deadline, app.engine.problems
        app.step()
    app.engine.close()
