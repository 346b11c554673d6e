"""Sending, viewing and naming: the parts of the query log on their own."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.errors import ConfigError, Reject
from pipeline.observe import Metrics
from pipeline.ports import Appended, Outgoing, Record
from pipeline.settings import AuthSettings, Settings
from pipeline.settings_query import QueryLogSettings
from query_service.querylog.references import references
from query_service.querylog.sender import Outlet, Sender, outgoing
from query_service.querylog.view import DAY_US, QueryView, Wanted
from schemas.access import Closure
from schemas.querylog import FeedbackRecord, PurgeRecord, QueryRecord
from schemas.topics import Topic
from tests.unit.query.logged import FakePublisher
from tests.unit.query.world import FakeLog

NOW = 1_700_000_000_000_000
ANN, BOB = "a" * 32, "b" * 32


def query(number: int, at: int = NOW, scope: str = ANN, tenant: str = "acme", **fields: Any) -> QueryRecord:
    return QueryRecord(
        query_id=f"{number:036d}", at=at, tenant=tenant, kind="search", outcome="answered", status=200, scope=scope,
        **{"text": f"call ann {number}@x.example", "text_mode": "full", **fields},
    )  # fmt: skip


def record(model: Any, offset: int = 0, key: str | None = None) -> Record:
    value = model if isinstance(model, bytes) else model.model_dump_json().encode()
    return Record(Topic.QUERIES.value, 0, offset, NOW, key if key is not None else "acme", value)


def view(path: Path, **settings: Any) -> QueryView:
    return QueryView(path / "q.sqlite", "log", QueryLogSettings(**settings))


def texts(of: QueryView, tenant: str = "acme", now: int = NOW) -> list[str | None]:
    return [q.text for q in of.queries(tenant, Wanted(), 100, now)]


# ------------------------------------------------------------ sending


class Bus:
    """A publisher that can be down, slow or picky."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.publisher = FakePublisher(self.log, lambda: NOW)
        self.metrics = Metrics()

    def sender(self, limit: int = 100) -> Sender:
        made = Sender(Outlet(lambda: self.publisher), self.metrics, limit)
        made.start()
        return made

    def count(self, result: str) -> float:
        return self.metrics.value("headwater_query_log_total", result=result)

    def sent(self) -> list[bytes | None]:
        return [r.value for line in self.log.records.values() for r in line]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def make(value: bytes) -> Callable[[], Outgoing]:
    return lambda: outgoing("acme", value)


@pytest.mark.requirement("C5")
def test_a_full_queue_drops_and_counts_and_never_waits() -> None:
    bus = Bus()
    bus.publisher.blocked = threading.Event()
    sender = bus.sender(limit=3)
    assert sender.put(make(b"0"))
    until(lambda: bus.publisher.calls == 1)
    started = time.perf_counter()
    taken = [sender.put(make(b"%d" % i)) for i in range(1, 6)]
    assert time.perf_counter() - started < 0.1
    assert taken == [True, True, False, False, False] and bus.count("dropped") == 3
    bus.publisher.blocked.set()
    assert sender.stop() == 0
    assert bus.sent() == [b"0", b"1", b"2"] and bus.count("sent") == 3 and bus.publisher.closed


@pytest.mark.requirement("C5")
def test_the_queue_is_bounded_in_bytes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("query_service.querylog.sender.MAX_BYTES", 10)
    bus = Bus()
    bus.log.down = True
    sender = bus.sender()
    assert sender.put(make(b"0123456789"))
    until(lambda: bus.publisher.calls >= 1)
    assert not sender.put(make(b"1")) and bus.count("dropped") == 1
    bus.log.down = False
    until(lambda: bus.count("sent") == 1)
    assert sender.put(make(b"2")) and sender.stop() == 0
    assert bus.sent() == [b"0123456789", b"2"]


@pytest.mark.requirement("C5")
def test_a_broker_that_is_away_is_waited_for_and_what_is_left_at_the_end_is_counted_as_lost() -> None:
    bus = Bus()
    bus.log.down = True
    sender = bus.sender()
    sender.put(make(b"0"))
    until(lambda: bus.publisher.calls >= 1)
    sender.put(make(b"1"))
    bus.log.down = False
    until(lambda: bus.count("sent") == 2)
    assert bus.sent() == [b"0", b"1"]
    bus.log.down = True
    sender.put(make(b"2"))
    assert sender.stop(seconds=0.2) == 1 and bus.count("lost") == 1


@pytest.mark.requirement("C5")
def test_one_bad_record_does_not_hold_up_the_others() -> None:
    bus = Bus()
    plain = bus.publisher.publish

    def picky(records: Any) -> list[Appended]:
        if any(r.value == b"huge" for r in records):
            raise Reject("too large", stage="append", kind="too_large")
        return plain(records)

    bus.publisher.publish = picky  # type: ignore[method-assign]

    def broken() -> Outgoing:
        raise ValueError("cannot be made")

    sender = bus.sender()
    for one in (make(b"0"), make(b"huge"), broken, make(b"1")):
        sender.put(one)
    assert sender.stop() == 0
    assert bus.sent() == [b"0", b"1"] and bus.count("refused") == 2 and bus.count("sent") == 2


# ------------------------------------------------------------ the view


@pytest.mark.requirement("C5")
def test_stricter_settings_hold_for_what_was_logged_before_and_nothing_stays_in_the_file(tmp_path: Path) -> None:
    said = FeedbackRecord(
        query_id=query(1).query_id, at=NOW, tenant="acme", scope=ANN, verdict="wrong", comment="ask falcon 4711",
        text_mode="full",
    )  # fmt: skip
    first = view(tmp_path, text="full")
    first.apply([record(query(1)), record(said)], {})
    assert texts(first) == ["call ann 1@x.example"]
    first.close()
    second = view(tmp_path, text="redacted")
    assert texts(second) == ["call ann [mail]"]
    assert second.feedback("acme", [said.query_id])[said.query_id][0].comment == "ask falcon [number]"
    second.close()
    third = view(tmp_path, redact_words=("ann", "falcon"))
    assert texts(third) == ["call [word] [mail]"]
    third.apply([record(query(2))], {})
    assert texts(third) == ["call [word] [mail]"] * 2
    third.close()
    assert texts(view(tmp_path, text="full")) == ["call [word] [mail]"] * 2
    fourth = view(tmp_path, text="none")
    assert texts(fourth) == [None, None]
    fourth.apply([record(query(3))], {})
    assert texts(fourth) == [None] * 3
    fourth.close()
    for file in tmp_path.iterdir():
        assert b"falcon" not in file.read_bytes() and b"x.example" not in file.read_bytes(), file


@pytest.mark.requirement("C5")
def test_the_view_is_built_again_from_another_log_and_twice_the_same_is_once(tmp_path: Path) -> None:
    one = view(tmp_path)
    one.apply([record(query(1)), record(query(1))], {(Topic.QUERIES.value, 0): 2})
    assert len(texts(one)) == 1 and one.positions() == {(Topic.QUERIES.value, 0): 2}
    one.close()
    other = QueryView(tmp_path / "q.sqlite", "another log", QueryLogSettings())
    assert texts(other) == [] and other.positions() == {}


@pytest.mark.requirement("C5")
def test_what_is_older_than_the_retention_is_neither_shown_nor_kept(tmp_path: Path) -> None:
    one = view(tmp_path, retention_days=2)
    one.apply([record(query(1, at=NOW)), record(query(2, at=NOW + DAY_US))], {})
    later = NOW + 2 * DAY_US + 1
    assert len(texts(one, now=later)) == 1 and one.query("acme", query(1).query_id, later) is None
    one.prune(later)
    with sqlite3.connect(tmp_path / "q.sqlite") as db:
        assert db.execute("SELECT count(*) FROM queries").fetchone() == (1,)


@pytest.mark.requirement("C5", "I12")
def test_records_that_cannot_be_read_or_lie_under_another_tenants_key_are_counted(tmp_path: Path) -> None:
    one = view(tmp_path)
    bad = [record(b"{"), record(b'{"type": "novel"}'), record(query(1), key="other"), record(query(2, tenant="other"))]
    assert one.apply([*bad, record(query(3))], {}) == 4
    assert len(texts(one)) == 1 and texts(one, "other") == []


@pytest.mark.requirement("C5")
def test_a_purge_concerns_one_person_or_all_up_to_its_moment(tmp_path: Path) -> None:
    one = view(tmp_path)
    lines = [query(1, NOW), query(2, NOW, BOB), query(3, NOW + 10), query(4, NOW, tenant="other")]
    one.apply([record(q, key=q.tenant) for q in lines], {})
    purge = PurgeRecord(at=NOW + 20, tenant="acme", before=NOW + 5, scope=ANN, by=BOB)
    assert one.count(purge) == 1
    one.apply([record(purge)], {})

    def left() -> list[int]:
        return sorted(int(q.query_id) for q in one.queries("acme", Wanted(), 9, NOW + 20))

    assert left() == [2, 3]
    one.apply([record(query(5, NOW)), record(query(6, NOW, BOB))], {})  # late, from a service that had waited
    assert left() == [2, 3, 6]
    one.apply([record(purge.model_copy(update={"scope": None}))], {})
    assert left() == [3]
    assert len(texts(one, "other")) == 1


# ------------------------------------------------------------ references


def settings(path: Path, key: str | None = None, **auth: Any) -> Settings:
    return Settings(auth=AuthSettings(**auth), querylog=QueryLogSettings(key=None if key is None else SecretStr(key)))


@pytest.mark.requirement("C5")
def test_references_need_the_key_and_keys_are_never_made_from_public_ones(tmp_path: Path) -> None:
    secret = SecretStr("0123456789abcdef0123456789abcdef")
    by_secret = references(settings(tmp_path, jwt_secret=secret), tmp_path)
    assert by_secret.person("acme", "ann") == references(settings(tmp_path, jwt_secret=secret), tmp_path).person(
        "acme", "ann"
    )
    by_setting = references(settings(tmp_path, "x" * 32, jwt_secret=secret), tmp_path)
    assert not list(tmp_path.iterdir())
    by_file = references(settings(tmp_path, jwt_public_key="-----BEGIN PUBLIC KEY-----"), tmp_path)
    again = references(settings(tmp_path, jwt_public_key="another"), tmp_path)
    assert (tmp_path / "querylog.key").stat().st_mode & 0o777 == 0o600
    assert by_file.person("acme", "ann") == again.person("acme", "ann")
    made = [r.person("acme", "ann") for r in (by_secret, by_setting, by_file)]
    assert len(set(made)) == 3 and len({r.key_id for r in (by_secret, by_setting, by_file)}) == 3
    assert by_file.person("other", "ann") not in made
    with pytest.raises(ConfigError) as refused:
        references(settings(tmp_path, "short"), tmp_path)
    assert refused.value.field == "querylog.key"


@pytest.mark.requirement("C5")
def test_sets_of_principals_are_compared_without_being_told() -> None:
    key = references(Settings(auth=AuthSettings(jwt_secret=SecretStr("k" * 32))), Path("unused"))
    one, two = Closure(principals=frozenset("ab")), Closure(principals=frozenset("ba"))
    assert key.principals(one) == key.principals(two) != key.principals(Closure(principals=frozenset("abc")))
    assert key.principals(one) != key.principals(one.model_copy(update={"complete": False}))
    assert key.resolve("acme", key.person("acme", "ann"), ["bob", "ann"]) == "ann"
    assert key.resolve("acme", key.person("other", "ann"), ["bob", "ann"]) is None
