"""How an outbox decides, on a database in memory: what is complete, what is told, what comes first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipeline.clock import ManualClock
from pipeline.ports import SourceAccess, SourceDeletion, SourceDocument
from pipeline.settings_sources import OutboxSettings
from pipeline.sources.connector import Look, Mark, SourceHidden, SourceUnavailable
from pipeline.sources.outbox.database import Moment, Newest, Row, Slot
from pipeline.sources.outbox.ddl import ddl
from pipeline.sources.outbox.pgoutput import Transaction
from pipeline.sources.outbox.position import Place, Position
from pipeline.sources.outbox.source import Outbox
from pipeline.sources.states import Known
from schemas.access import AccessRule
from schemas.keys import DocumentRef


@dataclass
class FakeTables:
    """A database whose every moment the test sets."""

    xmin: int = 100
    xmax: int = 100
    withheld: bool = False
    inserted: int = 5000
    flushed: int = 5000
    slot: Slot = field(default_factory=lambda: Slot(1000))
    table: list[Row] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    more: bool = False
    down: bool = False
    advanced: list[int] = field(default_factory=list)
    peeks: int = 0

    def add(self, xact: int, id_: int, payload: Any, end: int | None = None) -> None:
        """A row of the table, and of the slot where it has an ``end``."""
        self.table.append(Row(Place(xact, id_), json.dumps(payload)))
        if end is not None:
            row: dict[str, str | None] = {"id": str(id_), "xact": str(xact), "payload": json.dumps(payload)}
            self.transactions.append(Transaction(end, [row]))

    def _answer(self) -> None:
        if self.down:
            raise SourceUnavailable("PostgreSQL: the connection is lost")

    def moment(self, after: Place, *, slot: bool) -> Moment:
        self._answer()
        pending = any(row.place > after for row in self.table)
        ends = (self.inserted, self.flushed) if slot else (0, 0)
        return Moment(self.xmin, self.xmax, pending, self.withheld, *ends, self.slot if slot else None)

    def rows(self, after: Place, before: int, limit: int, most: int, size: int) -> tuple[list[Row], bool]:
        found = [row for row in sorted(self.table, key=lambda r: r.place) if after < row.place < Place(before, 0)]
        return found[:limit], len(found) > limit

    def decoded(self, limit: int, most: int) -> tuple[list[Transaction], bool]:
        self._answer()
        self.peeks += 1
        return list(self.transactions), self.more

    def advance(self, lsn: int) -> None:
        self._answer()
        self.advanced.append(lsn)

    def newest(
        self, tenant: str, source: str, *, since: int = 0, until: int | None = None, only: tuple[str, str] | None = None
    ) -> list[Newest]:
        found: dict[str, Newest] = {}
        for row in sorted(self.table, key=lambda r: r.place):
            change = json.loads(row.payload or "{}")
            if change.get("type") in ("upsert", "delete") and (only is None or change["id"] == only[1]):
                found[change["id"]] = Newest("page", change["id"], change["type"], row.place)
        return list(found.values())

    def payloads(self, ids: Sequence[int], size: int) -> dict[int, str]:
        self._answer()
        return {row.place.id: row.payload for row in self.table if row.place.id in ids and row.payload is not None}

    def version(self) -> str:
        self._answer()
        return "15"

    def close(self) -> None: ...


def upsert(id_: str, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "upsert", "id": id_, "title": id_, "text": text, "access": {"allow": ["user:ann"]}} | more


class World:
    def __init__(self, position: Position | None = None, mode: str = "logical") -> None:
        self.clock = ManualClock()
        self.tables = FakeTables()
        self.known: dict[DocumentRef, Known] = {}
        settings = OutboxSettings.model_validate({"type": "outbox", "name": "app", "dsn": "x", "mode": mode})
        self.source = Outbox(settings, self.clock, max_bytes=1000, known=self.known.get, tables=self.tables)
        self.source.restore((), position.text() if position is not None else "")

    def look(self, seconds: float = 0.3) -> Look:
        self.clock.advance(seconds)
        look = self.source.changes(0.0)
        assert look is not None
        return look

    def seen(self, seconds: float = 0.3) -> list[Any]:
        return [one for one in self.look(seconds).seen if not isinstance(one, Mark)]


FOLLOWING = Position(Place(100, 0), 1000)


@pytest.mark.requirement("A7", "A11")
def test_what_is_not_on_disk_yet_may_be_missing() -> None:
    world = World(FOLLOWING)
    world.tables.inserted, world.tables.flushed = 6000, 5000  # a commit that did not wait for the disk
    world.tables.xmin = 110
    first = world.clock.now()
    assert not world.look().whole
    world.tables.inserted, world.tables.flushed, world.tables.xmin = 9000, 6000, 120
    world.tables.add(105, 1, upsert("a"), end=5500)
    look = world.look()
    assert look.whole
    assert first <= look.began < world.clock.now()  # of the first question, not of this one
    assert len([s for s in look.seen if isinstance(s, SourceDocument)]) == 1


@pytest.mark.requirement("A7")
def test_a_row_of_a_finished_transaction_that_is_not_on_disk_is_not_taken_for_read() -> None:
    world = World(FOLLOWING)
    world.tables.inserted, world.tables.flushed, world.tables.xmin = 6000, 5000, 110
    world.look()
    world.tables.slot = Slot(fault="the slot is gone")
    world.tables.add(105, 1, upsert("a"))
    assert [s.document.id for s in world.seen()] == ["a"]


@pytest.mark.requirement("A11")
def test_the_header_of_an_empty_page_is_no_missing_record() -> None:
    world = World(FOLLOWING)
    world.tables.flushed, world.tables.inserted = 8192, 8192 + 24
    assert world.look().whole
    other = World(FOLLOWING)
    other.tables.flushed, other.tables.inserted = 8200, 8224
    assert not other.look().whole


@pytest.mark.requirement("A7")
def test_the_slot_is_not_read_again_while_the_table_shows_nothing_new() -> None:
    world = World(FOLLOWING)
    world.look()
    peeks = world.tables.peeks
    world.clock.advance(0.3)
    assert world.source.changes(0.0) is None
    assert world.tables.peeks == peeks
    assert world.look(1.0).whole  # now and then all the same: rows may be deleted as they are written
    assert world.tables.peeks == peeks + 1


@pytest.mark.requirement("A7", "I9")
def test_a_slot_that_moved_without_us_is_made_up_for_from_the_table() -> None:
    world = World(FOLLOWING)
    world.tables.slot = Slot(4000)  # somebody else read it
    world.tables.xmin, world.tables.xmax = 150, 152
    world.tables.add(120, 1, upsert("a"))
    world.tables.add(151, 2, upsert("b"), end=4500)
    look = world.look()
    assert [s.document.id for s in look.seen if isinstance(s, SourceDocument)] == ["a"]
    assert look.position is not None
    assert Position.read(look.position).lsn is None  # 150 and 151 may have ended before the slot's place
    world.tables.xmin = world.tables.xmax = 153
    assert [s.document.id for s in world.seen()] == ["b"]
    world.tables.add(160, 3, upsert("c"), end=4800)
    world.tables.xmin = world.tables.xmax = 161
    assert [s.document.id for s in world.seen()] == ["c"]  # b comes from the slot as well, and only once


@pytest.mark.requirement("A7")
def test_the_slot_moves_on_now_and_then_where_nothing_concerns_us() -> None:
    world = World(FOLLOWING)
    world.tables.transactions = [Transaction(3000)]  # before version 15 it tells of other tables
    first = world.look(1.0)
    assert first.position is not None or world.look(11.0).position is not None
    world.tables.flushed = world.tables.inserted = 7000
    assert world.look(2.0).position is None
    late = world.look(11.0)
    assert late.position is not None
    assert Position.read(late.position).lsn == 7000
    world.source.committed(late.position)
    assert world.tables.advanced[-1] == 7000


@pytest.mark.requirement("A11", "A7")
def test_rows_that_wait_for_an_older_transaction_are_told() -> None:
    world = World(mode="poll")
    world.tables.withheld = True
    assert not world.look().whole
    assert world.source.degraded is None
    world.look(6.0)
    assert "older transaction" in str(world.source.degraded)
    world.tables.withheld = False
    assert world.look().whole
    assert world.source.degraded is None


@pytest.mark.requirement("I9")
def test_nothing_is_read_before_what_was_read_is_handed_over() -> None:
    world = World(mode="poll")
    world.tables.add(50, 1, upsert("a", "one"))
    look = world.look()
    world.tables.add(60, 2, upsert("a", "two"))
    world.known[DocumentRef(tenant="acme", source="app", id="a")] = Known(content_version=1)
    world.clock.advance(1)
    assert world.source.changes(0.0) is None
    assert world.source.read(DocumentRef(tenant="acme", source="app", id="a")) is None
    again = world.source.updated(0, 2**50)
    assert next(again.seen) is Mark.WAIT
    assert [s.body for s in look.seen if isinstance(s, SourceDocument)] == [b"one"]


@pytest.mark.requirement("A8")
def test_a_backfill_tells_nothing_that_was_handed_over_since() -> None:
    world = World(mode="poll")
    for n, id_ in enumerate(("a", "b"), 1):
        world.tables.add(50 + n, n, upsert(id_, "old"))
        world.known[DocumentRef(tenant="acme", source="app", id=id_)] = Known(content_version=1)
    world.seen()
    again = world.source.updated(0, 2**50).seen
    first = next(again)
    assert isinstance(first, SourceDocument)
    assert first.document.id == "a"
    world.tables.add(120, 9, upsert("b", "new"))
    world.tables.xmin = world.tables.xmax = 130
    assert [s.body for s in world.seen()] == [b"new"]
    assert list(again) == []


@pytest.mark.requirement("A8")
def test_readers_are_not_taken_from_an_older_row() -> None:
    world = World(mode="poll")
    ann = DocumentRef(tenant="acme", source="app", id="a")
    world.tables.add(50, 1, upsert("a"))
    world.known[ann] = Known(content_version=1)
    world.seen()
    found = world.source.read(ann)
    assert isinstance(found, SourceDocument)
    assert found.rule is None
    world.known[ann] = Known(deleted=True)
    assert world.source.read(ann) is None
    assert world.source.read(DocumentRef(tenant="acme", source="app", id="unknown")) is None


@pytest.mark.requirement("I12", "A8")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"type": "access", "id": "a", "access": {"permit": []}}, SourceAccess),
        ({"type": "access", "id": "a"}, SourceAccess),
        ({"type": "delete", "id": "a", "reasons": "typo"}, SourceHidden),
        ({"type": "remove", "id": "a"}, SourceHidden),
        ({"type": "upsert", "id": "a", "title": "t", "access": {"allow": ["user:bob"]}}, SourceAccess),
        ({"type": "upsert", "id": "a", "title": "t", "text": "x", "access": {"allow": ["bob"]}}, SourceAccess),
        ({"type": "upsert", "id": "a", "title": "t"}, None),
        ({"type": "delete"}, None),
        ({"type": "membership", "principal": "user:ann", "parents": ["nobody"]}, None),
        ({"type": "delete", "id": "a", "source": "other"}, None),
    ],
)
def test_what_cannot_be_read_takes_away_what_it_may_have_taken(change: dict[str, Any], expected: type | None) -> None:
    world = World(mode="poll")
    world.tables.add(50, 1, upsert("before"))
    world.tables.add(51, 2, change)
    world.tables.add(52, 3, upsert("after"))
    look = world.look()
    seen = list(look.seen)
    assert [type(s) for s in seen] == [SourceDocument, *([expected] if expected else []), SourceDocument]
    told = look.problems + look.alarms
    readers = [s.rule.prefilter()[0] for s in seen if isinstance(s, SourceAccess) and isinstance(s.rule, AccessRule)]
    assert readers in ([], [["nobody"]], [["user:bob"]])
    assert (readers == [["user:bob"]]) == (change.get("access") == {"allow": ["user:bob"]})
    assert len(told) == 1
    assert told[0].startswith("row 2 of public.headwater_outbox, field ")
    assert "bob" not in told[0]


@pytest.mark.requirement("I13", "A8")
def test_in_a_backlog_only_documents_wait_for_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.sources.outbox.reader.ROWS", 4)
    world = World(mode="poll")
    payloads = [upsert("a"), {"type": "delete", "id": "x"}, {"type": "delete", "id": "y"}, upsert("c"), upsert("d")]
    for n, payload in enumerate(payloads, 1):
        world.tables.add(50 + n, n, payload)
    look = world.look()
    assert look.bulk
    assert not look.free
    assert isinstance(next(look.seen), SourceDocument)
    assert look.free
    assert isinstance(next(look.seen), SourceDeletion)
    assert isinstance(next(look.seen), SourceDeletion)
    assert next(look.seen) is Mark.PAUSE
    assert not look.free
    assert not look.whole
    assert len(list(look.seen)) == 1
    assert world.look(0.0).whole  # at once


@pytest.mark.requirement("I8")
def test_an_outage_is_told_waited_out_and_forgotten() -> None:
    world = World(FOLLOWING)
    world.tables.down = True
    look = world.look()
    assert not look.complete
    assert look.position is None
    assert "PostgreSQL" in look.problems[0]
    assert world.source.changes(0.0) is None  # it is given time
    assert not world.source.listing().complete
    world.source.committed(FOLLOWING.text())  # no slot can be moved now; that stops nobody
    world.tables.down = False
    assert world.look(60.0).complete
    assert world.source.degraded is None
    assert world.tables.advanced == [1000]
    assert world.source.listing().complete
    assert list(world.source.listing().seen) == []


@pytest.mark.requirement("I9")
def test_a_cursor_that_cannot_be_read_is_told() -> None:
    world = World(mode="poll")
    world.source.restore((), "[]")
    world.tables.add(50, 1, upsert("a"))
    look = world.look()
    assert any("cursor" in alarm for alarm in look.alarms)
    assert len(list(look.seen)) == 1


@pytest.mark.requirement("A7")
def test_the_statements_name_what_the_settings_name() -> None:
    text = ddl("app.box", "pub", "slot_1")
    for part in (
        "CREATE TABLE app.box (",
        "box_order ON app.box (xact, id)",
        "PUBLICATION pub FOR TABLE app.box",
        "'slot_1'",
    ):
        assert part in text
