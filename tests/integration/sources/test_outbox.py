"""The outbox on a real PostgreSQL: nothing lost, nothing doubled, nothing that was rolled back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

from infra.servers.postgres import PostgresServer, available  # noqa: E402
from pipeline.clock import SystemClock  # noqa: E402
from pipeline.ports import SourceAccess, SourceDeletion, SourceDocument, SourceMembership  # noqa: E402
from pipeline.settings_sources import OutboxSettings  # noqa: E402
from pipeline.sources.connector import Look, Mark, Seen  # noqa: E402
from pipeline.sources.outbox.ddl import ddl  # noqa: E402
from pipeline.sources.outbox.source import Outbox  # noqa: E402
from pipeline.sources.states import Known  # noqa: E402
from schemas.keys import DocumentRef  # noqa: E402

TABLE = "public.headwater_outbox"
Mode = Literal["logical", "poll"]
both = pytest.mark.parametrize("mode", ["logical", "poll"])


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if not available():
        pytest.skip("PostgreSQL is not installed: install the package postgresql")
    running = PostgresServer({"max_wal_size": "64MB"})
    running.start()
    with psycopg.connect(running.dsn(), autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '256MB'")
        admin.execute("SELECT pg_reload_conf()")
    yield running
    running.stop()


def upsert(id_: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "upsert", "id": id_, "title": id_, "text": text, "access": {"allow": ["everyone"]}} | more


@dataclass
class Base:
    """One database with an outbox, and what the log would know."""

    dsn: str
    slot: str
    log: dict[DocumentRef, Known] = field(default_factory=dict)
    sources: list[Outbox] = field(default_factory=list)

    def connect(self) -> Any:
        return psycopg.connect(self.dsn, autocommit=True)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            found = [connection.execute(statement) for statement in statements]
            return found[-1].fetchall() if found[-1].description else []

    def write(self, *payloads: Any, connection: Any = None) -> None:
        with self.connect() as own:
            for payload in payloads:
                (connection or own).execute(f"INSERT INTO {TABLE} (payload) VALUES (%s)", (json.dumps(payload),))

    def source(self, mode: Mode, position: str = "") -> Outbox:
        settings = OutboxSettings.model_validate(
            {"type": "outbox", "name": "app", "dsn": self.dsn, "mode": mode, "slot": self.slot, "poll_s": 0.02}
        )
        made = Outbox(settings, SystemClock(), max_bytes=1_000_000, known=self.log.get)
        made.restore((), position)
        made.watch()
        self.sources.append(made)
        return made


@dataclass
class Follower:
    """Takes what a source hands over, as an owner does."""

    base: Base
    source: Outbox
    commit: bool = True
    seen: list[Seen] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    position: str = ""
    complete_until: int = 0

    def step(self, timeout: float = 0.05) -> Look | None:
        look = self.source.changes(timeout)
        if look is None:
            return None
        self.looks.append(look)
        for one in look.seen:
            if isinstance(one, Mark):
                continue
            self.seen.append(one)
            if isinstance(one, SourceDocument):
                self.base.log[one.document] = Known(content_version=1)
        if look.position is not None:
            self.position = look.position
            if self.commit:
                self.source.committed(look.position)
        if look.whole and look.complete:
            self.complete_until = max(self.complete_until, look.began)
        return look

    def settle(self, seconds: float = 20) -> None:
        """Until everything that is committed by now was handed over."""
        now = SystemClock().now()
        self.until(lambda: self.complete_until > now, seconds)

    def until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {[look.problems for look in self.looks[-3:]]}"
            self.step()

    def texts(self) -> list[str]:
        return [s.body.decode() for s in self.seen if isinstance(s, SourceDocument)]

    def problems(self) -> list[str]:
        return [p for look in self.looks for p in look.problems]

    def alarms(self) -> list[str]:
        return [a for look in self.looks for a in look.alarms]


@pytest.fixture
def base(server: PostgresServer) -> Iterator[Base]:
    name = f"b{uuid4().hex[:10]}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    made = Base(server.dsn(name), f"slot_{name}")
    made.run(*[s for s in ddl(TABLE, "headwater", made.slot).split(";\n") if s.strip()])
    yield made
    for source in made.sources:
        source.close()
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (made.slot,)
        )
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.requirement("A7", "A1")
@both
def test_every_kind_of_change_in_one_order(base: Base, mode: Mode) -> None:
    follower = Follower(base, base.source(mode))
    for change in (
        upsert("a", "one"),
        [{"type": "access", "id": "a", "access": {"allow": ["user:ann"]}}, upsert("b", "zwei ñ 漢")],
        {"type": "membership", "principal": "user:ann", "parents": ["group:app/staff"]},
        {"type": "delete", "id": "a"},
    ):
        base.write(change)
        follower.settle()
    kinds = [type(s) for s in follower.seen]
    assert kinds == [SourceDocument, SourceAccess, SourceDocument, SourceMembership, SourceDeletion]
    first = follower.seen[0]
    assert isinstance(first, SourceDocument)
    assert first.document == DocumentRef(tenant="acme", source="app", kind="page", id="a")
    assert follower.texts() == ["one", "zwei ñ 漢"]
    assert follower.problems() == follower.alarms() == []


@pytest.mark.requirement("A7")
@both
def test_what_is_rolled_back_is_never_seen(base: Base, mode: Mode) -> None:
    follower = Follower(base, base.source(mode))
    with base.connect() as connection:
        with pytest.raises(RuntimeError), connection.transaction():
            base.write(upsert("a", "never"), connection=connection)
            raise RuntimeError
        with connection.transaction():
            base.write(upsert("b", "kept"), connection=connection)
            with pytest.raises(RuntimeError), connection.transaction():  # a savepoint
                base.write(upsert("c", "never"), connection=connection)
                raise RuntimeError
        connection.execute("BEGIN")
        base.write(upsert("d", "open"), connection=connection)
        base.write(upsert("e", "kept"))
        for _ in range(5):
            follower.step()
        connection.execute("ROLLBACK")
    follower.settle()
    assert sorted(follower.texts()) == ["kept", "kept"]


@pytest.mark.requirement("A7", "F05")
@both
def test_the_lower_id_that_is_committed_last_is_not_lost(base: Base, mode: Mode) -> None:
    follower = Follower(base, base.source(mode))
    follower.settle()
    reached = follower.complete_until
    with base.connect() as early:
        early.execute("BEGIN")
        base.write(upsert("a", "early"), connection=early)
        base.write(upsert("b", "late"))
        if mode == "logical":
            follower.until(lambda: follower.texts() == ["late"])  # does not wait for the older transaction
        else:
            for _ in range(10):
                follower.step()
            assert follower.texts() == []
            assert not any(look.whole for look in follower.looks[-5:])
            assert follower.complete_until >= reached
        early.execute("COMMIT")
    follower.settle()
    assert sorted(follower.texts()) == ["early", "late"]


@pytest.mark.requirement("A7", "A6")
@both
def test_four_writers_lose_and_double_nothing_while_connections_are_killed(base: Base, mode: Mode) -> None:
    follower = Follower(base, base.source(mode))

    def write(number: int) -> None:
        with base.connect() as connection:
            for n in range(125):
                with connection.transaction():
                    base_id = f"{number}-{n}"
                    for part in ("x", "y"):
                        connection.execute(
                            f"INSERT INTO {TABLE} (payload) VALUES (%s)",
                            (json.dumps(upsert(base_id + part, base_id + part)),),
                        )
                    if n % 10 == 0:
                        time.sleep(0.01)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    kills = steps = 0
    while any(writer.is_alive() for writer in writers):
        follower.step(0.01)
        steps += 1
        if steps % 8 == 0 and kills < 3:
            kills += len(
                base.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headwater'"
                         " AND datname = current_database()")
            )  # fmt: skip
        if steps % 11 == 0:  # an owner that begins anew, from the cursor on the log
            follower.source.close()
            follower.source = base.source(mode, follower.position)
    for writer in writers:
        writer.join()
    follower.settle()
    expected = [f"{w}-{n}{p}" for w in range(4) for n in range(125) for p in "xy"]
    assert kills >= 1
    assert sorted(follower.texts()) == sorted(expected)


@pytest.mark.requirement("I9", "A7")
def test_the_slot_moves_only_after_the_cursor_is_on_the_log(base: Base) -> None:
    def confirmed() -> Any:
        return base.run(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{base.slot}'")[0][0]

    follower = Follower(base, base.source("logical"), commit=False)
    follower.settle()
    before, start = confirmed(), follower.position
    base.write(upsert("a", "one"))
    follower.settle()
    follower.settle()  # the slot says it again: it is known by its place
    assert follower.texts() == ["one"]
    assert confirmed() == before
    again = Follower(base, base.source("logical", start))  # it crashed before the cursor was on the log
    again.settle()
    assert again.texts() == ["one"]
    assert confirmed() != before
    last = Follower(base, base.source("logical", again.position))
    last.settle()
    assert last.texts() == []


@pytest.mark.requirement("A7")
def test_a_slot_that_nobody_needs_lets_the_log_go(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.sources.outbox.reader.IDLE_S", 0.0)
    follower = Follower(base, base.source("logical"))
    follower.settle()
    before = follower.position
    base.run("CREATE TABLE other (x int)", "INSERT INTO other SELECT generate_series(1, 1000)")
    follower.settle()
    assert follower.position != before
    restarted = Follower(base, base.source("logical", follower.position))
    base.write(upsert("a", "one"))
    restarted.settle()
    assert restarted.texts() == ["one"]
    assert restarted.alarms() == []


@pytest.mark.requirement("A7", "A6")
def test_a_lost_slot_is_told_and_no_row_is_lost(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(base, base.source("logical"))
    base.write(upsert("a", "one"))
    follower.settle()
    base.run(f"SELECT pg_drop_replication_slot('{base.slot}')")
    base.write(upsert("b", "two"))
    follower.settle()
    assert follower.texts() == ["one", "two"]
    assert any(base.slot in a and "pg_create_logical_replication_slot" in a for a in follower.alarms())
    assert len(follower.alarms()) == 1
    assert follower.source.degraded is not None
    with base.connect() as early:
        early.execute("BEGIN")
        base.write(upsert("c", "three"), connection=early)
        base.write(upsert("d", "four"))
        early.execute("COMMIT")
    base.run(f"SELECT pg_create_logical_replication_slot('{base.slot}', 'pgoutput')")
    base.write(upsert("e", "five"))
    follower.settle()
    base.write(upsert("f", "six"))
    follower.settle()
    assert sorted(follower.texts()) == sorted(["one", "two", "three", "four", "five", "six"])
    assert follower.source.degraded is None


@pytest.mark.requirement("A7")
def test_a_slot_invalidated_by_its_bound_is_told(base: Base) -> None:
    follower = Follower(base, base.source("logical"))
    base.write(upsert("a", "one"))
    follower.settle()
    base.run("CREATE TABLE noise (x text)")
    base.run("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    base.run("SELECT pg_reload_conf()")
    for _ in range(4):
        base.run("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 5000)", "SELECT pg_switch_wal()")
    base.run("CHECKPOINT")
    base.write(upsert("b", "two"))
    base.run("ALTER SYSTEM SET max_slot_wal_keep_size = '256MB'")
    base.run("SELECT pg_reload_conf()")
    status = base.run(f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{base.slot}'")[0][0]
    assert status == "lost"
    follower.settle()
    assert "two" in follower.texts()
    assert any("invalidated" in alarm for alarm in follower.alarms())


@pytest.mark.requirement("A7")
def test_rows_from_before_the_slot_come_first_and_once(base: Base) -> None:
    base.run(f"SELECT pg_drop_replication_slot('{base.slot}')")
    base.write(upsert("b", "before"))
    base.run(f"SELECT pg_create_logical_replication_slot('{base.slot}', 'pgoutput')")
    base.write(upsert("a", "after"))
    follower = Follower(base, base.source("logical"))
    follower.settle()
    assert follower.texts() == ["before", "after"]


@pytest.mark.requirement("A7")
def test_rows_that_are_deleted_as_they_are_written_are_seen_by_the_slot(base: Base) -> None:
    follower = Follower(base, base.source("logical"))
    follower.settle()
    with base.connect() as connection, connection.transaction():
        base.write(upsert("a", "short"), connection=connection)
        connection.execute(f"DELETE FROM {TABLE}")
    base.write(upsert("b", "x"))
    base.run(f"UPDATE {TABLE} SET payload = '{{}}'", f"DELETE FROM {TABLE}", f"TRUNCATE {TABLE}")
    follower.settle()
    assert follower.texts() == ["short", "x"]
    assert follower.problems() == []


@pytest.mark.requirement("F06", "F20", "I12")
@both
def test_a_bad_row_stops_nobody(base: Base, mode: Mode) -> None:
    follower = Follower(base, base.source(mode))
    base.write(
        upsert("a", "one"),
        {"type": "upsert", "id": "bad", "text": "no title"},
        [upsert("b", "two"), {"type": "delete"}, upsert("c", "three")],
        upsert("d", "other", tenant="else"),
        "a string",
        upsert("e", "four"),
    )
    follower.settle()
    assert follower.texts() == ["one", "two", "three", "four"]
    told = follower.problems() + follower.alarms()
    assert any(t.startswith(f"row 2 of {TABLE}, field title:") for t in told)
    assert any(t.startswith(f"row 3 of {TABLE}, change 2, field id:") for t in told)
    assert any(t.startswith(f"row 4 of {TABLE}, field tenant:") for t in told)
    assert any(t.startswith(f"row 5 of {TABLE}:") for t in told)


@pytest.mark.requirement("F22")
@both
def test_a_row_that_is_too_large_is_told_and_passed_by(base: Base, mode: Mode) -> None:
    follower = Follower(base, base.source(mode))
    base.write(upsert("a", "one"), upsert("big", "x" * 2_100_000), upsert("b", "two"))
    follower.settle()
    assert follower.texts() == ["one", "two"]
    assert any(a.startswith(f"row 2 of {TABLE}, field payload:") for a in follower.alarms())


@pytest.mark.requirement("A7", "I9")
@both
def test_many_rows_are_read_in_bounded_looks(base: Base, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.sources.outbox.reader.ROWS", 100)
    with base.connect() as connection:
        for n in range(350):
            connection.execute(f"INSERT INTO {TABLE} (payload) VALUES (%s)", (json.dumps(upsert(f"{n}", f"{n}")),))
    follower = Follower(base, base.source(mode))
    follower.settle()
    assert follower.texts() == [str(n) for n in range(350)]
    counts = [look.expected for look in follower.looks if look.expected]
    assert max(counts) <= 100
    assert follower.looks[0].bulk
    assert not follower.looks[-1].bulk


@pytest.mark.requirement("A8")
@both
def test_reading_again_never_brings_back_readers(base: Base, mode: Mode) -> None:
    follower = Follower(base, base.source(mode))
    began = SystemClock().now() - 1_000_000
    base.write(upsert("a", "one"), upsert("a", "two"), upsert("b", "gone"))
    follower.settle()
    base.write({"type": "delete", "id": "b"}, {"type": "access", "id": "a", "access": {"allow": ["user:ann"]}})
    follower.settle()
    base.write(upsert("c", "not handed over yet"))
    again = [s for s in follower.source.updated(began, SystemClock().now()).seen if not isinstance(s, Mark)]
    assert [(s.document.id, s.body, s.rule) for s in again if isinstance(s, SourceDocument)] == [("a", b"two", None)]
    one = follower.source.read(DocumentRef(tenant="acme", source="app", id="a"))
    assert isinstance(one, SourceDocument)
    assert (one.body, one.rule) == (b"two", None)
    assert isinstance(follower.source.read(DocumentRef(tenant="acme", source="app", id="b")), SourceDeletion)
    assert follower.source.read(DocumentRef(tenant="acme", source="app", id="c")) is None
    earlier = follower.source.updated(0, began)
    assert list(earlier.seen) == []


@pytest.mark.requirement("A7")
def test_an_outage_is_told_and_survived(base: Base, server: PostgresServer) -> None:
    follower = Follower(base, base.source("logical"))
    base.write(upsert("a", "one"))
    follower.settle()
    server.restart()  # without a clean stop
    look = follower.source.changes(1.0)
    while look is None or look.complete:
        look = follower.source.changes(1.0)
    assert look.problems
    assert follower.source.degraded is not None
    assert not follower.source.listing().complete
    base.write(upsert("b", "two"))
    follower.settle()
    assert follower.texts() == ["one", "two"]
    assert follower.source.degraded is None
    reach = follower.source.reach()
    assert reach is not None
    assert reach.failures >= 1


@pytest.mark.requirement("A7")
def test_a_restored_database_is_noticed(base: Base) -> None:
    base.write(upsert("a", "one"))
    for mode in ("logical", "poll"):
        ahead = '{"after":[99999999,5],"lsn":"FFFF/0","floor":[0,0]}'
        follower = Follower(base, base.source(mode, ahead))
        follower.settle()
        assert follower.texts() == ["one"]
        assert any("restored or replaced" in alarm for alarm in follower.alarms())


@pytest.mark.requirement("A7")
def test_the_check_names_what_is_lacking(base: Base, server: PostgresServer) -> None:
    assert [f for f in base.source("logical").check() if not f.good] == []
    base.run(
        f"SELECT pg_drop_replication_slot('{base.slot}')", "DROP PUBLICATION headwater", "DROP ROLE IF EXISTS poor"
    )
    base.run("CREATE ROLE poor LOGIN", f"DROP INDEX {TABLE}_order")
    poor = Base(base.dsn.replace("headwater@", "poor@"), base.slot)
    found = poor.source("logical").check()
    bad = {f.what: f.remedy for f in found if not f.good}
    poor.sources[0].close()
    assert any("GRANT SELECT" in str(r) for r in bad.values())
    assert any("REPLICATION" in str(r) for r in bad.values())
    assert any("CREATE PUBLICATION" in str(r) for r in bad.values())
    assert any("pg_create_logical_replication_slot" in str(r) for r in bad.values())
    assert any("CREATE INDEX" in str(r) for r in bad.values())
    base.run(f"ALTER TABLE {TABLE} DROP COLUMN xact CASCADE")
    assert any("xact" in f.what for f in base.source("poll").check() if not f.good)
    assert all("postgresql://" not in f.what for f in found)
