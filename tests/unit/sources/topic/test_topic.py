"""Topics of another program: rows as Debezium tells them and messages of its outbox router, in constructed records."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipeline.clock import ManualClock
from pipeline.errors import BusUnavailable, ConfigError
from pipeline.ports import Record, SourceAccess, SourceDocument, SourceMembership
from pipeline.settings_sources import TopicSettings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.connector import Look, Mark, Seen, SourceHidden
from pipeline.sources.ledger import Ledger
from pipeline.sources.topic.rows import PLACEHOLDER
from pipeline.sources.topic.source import Offsets, TopicSource
from schemas.access import AccessRule
from schemas.keys import DocumentRef

TOPIC = "app.public.pages"
EVENTS = "outbox.event.page"


@dataclass
class FakeRecords:
    """One partition of each topic, in memory."""

    log: dict[str, list[Record]] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    down: bool = False
    alarms: list[str] = field(default_factory=list)
    starts: list[Offsets] = field(default_factory=list)
    most: int = 500

    def add(self, topic: str, key: Any, value: Any, headers: dict[str, bytes] | None = None) -> None:
        """As the JSON converter writes it; bytes as they are."""
        records = self.log.setdefault(topic, [])
        raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        text = key if isinstance(key, str) or key is None else json.dumps(key)
        records.append(Record(topic, 0, len(records), 1, text, raw, tuple((headers or {}).items())))

    def _answer(self) -> None:
        if self.down:
            raise BusUnavailable("no broker answers")

    def start(self, positions: Offsets, back: int) -> tuple[Offsets, list[str], list[str]]:
        self._answer()
        self.starts.append({topic: dict(offsets) for topic, offsets in positions.items()})
        counted = {topic: {0: positions.get(topic, {}).get(0, 0)} for topic in self.log}
        self.at = {topic: max(0, offsets[0] - back) for topic, offsets in counted.items()}
        return counted, [], self.alarms

    def poll(self, timeout_s: float) -> list[Record]:
        self._answer()
        found = []
        for topic, records in self.log.items():
            at = self.at.get(topic, 0)
            found += records[at : at + self.most]
            self.at[topic] = min(len(records), at + self.most)
        return found

    def positions(self) -> Offsets:
        return {topic: {0: at} for topic, at in self.at.items()}

    def ends(self) -> Offsets:
        self._answer()
        return {topic: {0: len(records)} for topic, records in self.log.items()}

    def partitions(self) -> dict[str, list[int]]:
        self._answer()
        return {TOPIC: [0] if TOPIC in self.log else []}

    def close(self) -> None: ...


class Owner:
    """Takes looks into a real ledger, as an owner does, and remembers what came."""

    def __init__(self, records: FakeRecords, **settings: Any) -> None:
        self.clock = ManualClock()
        self.records = records
        self.settings = TopicSettings.model_validate(
            {"type": "topic", "name": "app", "topics": (TOPIC,), "format": "debezium", "allow": ("everyone",)}
            | settings
        )
        self.ledger = Ledger("acme", "app", self.clock, BodyPlacer(None))
        self.position = ""
        self.looks: list[Look] = []
        self.seen: list[Seen] = []
        self.written: list[str] = []
        self.begin()

    def begin(self) -> None:
        """A new connector, from the cursor on the log."""
        self.source = TopicSource(self.settings, self.clock, records=self.records, known=self.ledger.state)
        self.source.restore(self.ledger.states(), self.position)

    def take(self) -> Look | None:
        """One look to its end."""
        self.clock.advance(2)
        look = self.source.changes(0.0)
        if look is None:
            return None
        self.looks.append(look)
        for one in look.seen:
            if isinstance(one, Mark):
                continue
            self.seen.append(one)
            changes = (
                self.ledger.hold(one.document, active=True, reason=one.reason)
                if isinstance(one, SourceHidden)
                else self.ledger.observe(one)
            )
            self.written += [type(e).__name__ for c in changes for e in (*c.access, *c.content, *c.membership)]
        if look.position is not None:
            self.position = look.position
        return look

    def told(self) -> list[str]:
        return [t for look in self.looks for t in (*look.problems, *look.alarms)]

    def texts(self) -> list[str]:
        return [s.body.decode() for s in self.seen if isinstance(s, SourceDocument)]

    def rule(self, id_: str, kind: str = "pages") -> AccessRule | None:
        state = self.ledger.state(DocumentRef(tenant="acme", source="app", kind=kind, id=id_))
        return state.rule if state is not None and not state.deleted else None

    def live(self) -> set[str]:
        return {d.id for d, s in self.ledger.states() if not s.deleted}


def row(
    op: str, lsn: int, after: Any = None, before: Any = None, *, table: str = "pages", **source: Any
) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": {"connector": "postgresql", "lsn": lsn, "table": table, "ts_ms": 1_700_000_000_000 + lsn} | source,
        "op": op,
        "ts_ms": 1_700_000_000_000,
    }


def page(id_: Any, text: Any = "text", **more: Any) -> dict[str, Any]:
    return {"id": id_, "title": f"Page {id_}", "text": text} | more


@pytest.fixture
def records() -> FakeRecords:
    return FakeRecords({TOPIC: [], EVENTS: []})


# ---------------------------------------------------------------- rows


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("wrapped", [False, True])
def test_every_operation_with_and_without_the_schema(records: FakeRecords, wrapped: bool) -> None:
    def add(key: Any, value: Any) -> None:
        if wrapped:
            key, value = {"schema": {}, "payload": key}, {"schema": {}, "payload": value}
        records.add(TOPIC, key, value)

    add({"id": 1}, row("r", 10, page(1, "one"), snapshot="true"))
    add({"id": 2}, row("c", 20, page(2, "two")))
    add({"id": 1}, row("u", 30, page(1, "uno"), page(1, "one")))
    add({"id": 2}, row("d", 40, None, page(2, None)))
    records.add(TOPIC, {"id": 2}, None)
    add(None, row("m", 50) | {"message": {"prefix": "x"}})
    owner = Owner(records)
    look = owner.take()
    assert look is not None
    assert owner.texts() == ["one", "two", "uno"]
    assert owner.live() == {"1"}
    assert owner.told() == []
    first, second = (s for s in owner.seen[:2] if isinstance(s, SourceDocument))
    assert (first.document.kind, first.title, first.revision, first.updated_at) == ("pages", "Page 1", "10", None)
    assert second.updated_at == (1_700_000_000_000 + 20) * 1000
    assert owner.written.count("ContentDeleted") == 1  # the empty record after the deletion says nothing more


@pytest.mark.requirement("A1", "F03")
def test_a_deletion_of_which_compaction_left_only_the_empty_record(records: FakeRecords) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1)))
    records.add(TOPIC, {"id": 2}, row("c", 11, page(2)))
    records.add(TOPIC, {"id": 1}, None)
    owner = Owner(records)
    owner.take()
    assert owner.live() == {"2"}


@pytest.mark.requirement("A1", "F07")
def test_a_changed_key_is_a_deletion_and_a_creation(records: FakeRecords) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1)))
    records.add(TOPIC, {"id": 1}, row("d", 20, None, {"id": 1, "title": None, "text": None}))
    records.add(TOPIC, {"id": 1}, None)
    records.add(TOPIC, {"id": 9}, row("c", 20, page(9)))
    records.add(TOPIC, {"pk": 5}, row("c", 30, page("x")))
    records.add(TOPIC, {"pk": 5}, row("u", 40, page("y"), page("x")))  # the id is no key of the table
    owner = Owner(records)
    owner.take()
    assert owner.live() == {"9", "y"}


@pytest.mark.requirement("A6", "I5")
def test_repetitions_after_a_crash_bring_nothing_back(records: FakeRecords) -> None:
    created, updated = row("c", 10, page(1, "one")), row("u", 20, page(1, "two"))
    deleted, again = row("d", 30, None, page(1)), row("c", 40, page(1, "three"))
    events = [created, updated, deleted, None]
    for event in events + events:
        records.add(TOPIC, {"id": 1}, event)
    owner = Owner(records)
    owner.take()
    assert owner.texts() == ["one", "two"]
    assert owner.live() == set()
    owner.begin()  # it forgets what it saw deleted, and the log still knows
    records.add(TOPIC, {"id": 1}, created)
    records.add(TOPIC, {"id": 1}, updated)
    owner.take()
    assert owner.texts() == ["one", "two"]
    records.add(TOPIC, {"id": 1}, again)
    for event in (deleted, None):
        records.add(TOPIC, {"id": 1}, event)
    owner.take()
    assert owner.texts() == ["one", "two", "three"]
    assert owner.live() == {"1"}
    assert any("source.lsn" in t for t in owner.told())


@pytest.mark.requirement("A6", "I5")
def test_rows_of_a_new_snapshot_that_are_older_than_what_is_held(records: FakeRecords) -> None:
    records.add(TOPIC, {"id": 1}, row("u", 50, page(1, "new")))
    records.add(TOPIC, {"id": 1}, row("r", 40, page(1, "old"), snapshot="true"))
    records.add(TOPIC, {"id": 1}, row("r", 60, page(1, "new"), snapshot="true"))
    owner = Owner(records)
    owner.take()
    assert owner.texts() == ["new", "new"]
    assert owner.written.count("ContentUpserted") == 1


@pytest.mark.requirement("A1", "A8")
def test_the_placeholder_is_never_indexed(records: FakeRecords) -> None:
    owner = Owner(records, readers="readers", url="url")

    def put(lsn: int, text: Any, readers: Any = '["user:ann"]', **more: Any) -> None:
        records.add(TOPIC, {"id": 1}, row("u", lsn, page(1, text, url="u", readers=readers) | more))
        owner.take()

    put(10, PLACEHOLDER)  # never seen: nothing to fall back on
    assert owner.seen == []
    put(20, "long text")
    put(30, PLACEHOLDER, title="New title")  # the text is still held
    assert owner.texts() == ["long text", "long text"]
    assert owner.ledger.state(DocumentRef(tenant="acme", source="app", kind="pages", id="1")) is not None
    owner.begin()  # and now it is not
    told = len(owner.told())
    put(40, PLACEHOLDER, title="New title", views=7)  # only a column changed that is not indexed
    assert len(owner.told()) == told
    put(50, PLACEHOLDER, '["user:bob"]', title="New title")  # readers follow without the text
    assert isinstance(owner.seen[-1], SourceAccess)
    assert owner.rule("1") == AccessRule.any_of("user:bob")
    told = len(owner.told())
    put(60, PLACEHOLDER, PLACEHOLDER, title="Newest title")  # left as it is, and told
    assert len(owner.told()) == told + 1
    assert owner.rule("1") == AccessRule.any_of("user:bob")
    assert "REPLICA IDENTITY FULL" in owner.told()[-1]
    put(70, "short", title=PLACEHOLDER)
    assert "field title" in owner.told()[-1]
    put(80, "short", url=PLACEHOLDER)
    assert "field url" in owner.told()[-1]
    put(90, [PLACEHOLDER])
    assert owner.texts() == ["long text", "long text"]
    for one in owner.seen:
        assert PLACEHOLDER not in repr(one)


@pytest.mark.requirement("A8")
def test_a_truncated_table_deletes_nothing_and_is_told(records: FakeRecords) -> None:
    for n in range(30):
        records.add(TOPIC, {"id": n}, row("c", n, page(n)))
    records.add(TOPIC, None, row("t", 99))
    owner = Owner(records)
    owner.take()
    assert len(owner.live()) == 30
    assert any("pages was truncated" in a for look in owner.looks for a in look.alarms)


@pytest.mark.requirement("A1", "F09")
def test_several_tables_are_several_kinds(records: FakeRecords) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1, "a page")))
    records.add("app.public.notes", {"id": 1}, row("c", 11, page(1, "a note"), table="notes"))
    owner = Owner(records)
    owner.take()
    kinds = {s.document.kind: s.body for s in owner.seen if isinstance(s, SourceDocument)}
    assert kinds == {"pages": b"a page", "notes": b"a note"}


@pytest.mark.requirement("F09")
def test_two_tables_of_one_name_are_two_sources(records: FakeRecords) -> None:
    with pytest.raises(ConfigError, match="two tables have one name"):
        Owner(records, topics=("a.public.pages", "a.hr.pages"))


@pytest.mark.requirement("A7")
def test_an_aggregate_type_may_hold_dots(records: FakeRecords) -> None:
    records.add("x.outbox.event.kb.article", "1", upsert("one"))
    records.add("articles", "1", upsert("two"))
    owner = Owner(records, format="outbox", topics=(EVENTS,))
    owner.take()
    assert [s.document.kind for s in owner.seen if isinstance(s, SourceDocument)] == ["kb.article", "articles"]


@pytest.mark.requirement("I12", "A8")
@pytest.mark.parametrize(
    ("readers", "expected"),
    [
        ('["user:ann", "group:app/x"]', ("user:ann", "group:app/x")),
        (["user:ann"], ("user:ann",)),
        (None, ("everyone",)),
        ("[]", ("nobody",)),
        ("ann", ("nobody",)),
        ('["ann"]', ("nobody",)),
        ('{"a": 1}', ("nobody",)),
    ],
)
def test_readers_of_a_row(records: FakeRecords, readers: Any, expected: tuple[str, ...]) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1, readers=readers)))
    owner = Owner(records, readers="readers")
    owner.take()
    rule = owner.rule("1")
    assert rule is not None
    assert tuple(g.principal for c in rule.clauses for g in c.any_of) == expected


@pytest.mark.requirement("I12")
def test_without_readers_and_settings_nobody_may_read(records: FakeRecords) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1)))
    owner = Owner(records, allow=())
    owner.take()
    rule = owner.rule("1")
    assert rule is not None
    assert rule.clauses[0].any_of[0].principal == "nobody"


@pytest.mark.requirement("F20", "F06")
def test_what_cannot_be_read_is_told_with_its_place(records: FakeRecords) -> None:
    bad: list[Any] = [
        b"\xff\xfe\x00garbage",
        b"[" * 100_000,
        ["no object"],
        page(1),  # an unwrapped row
        row("c", 1),
        row("c", 1, page(None)),
        row("c", 1, page(True)),
        row("c", 1, page("nul\x00")),
        row("c", 1, {"id": 5, "text": "no title"}),
        row("c", 1, page(6, {"a": 1})),
        row("c", 1, page(6, "\ud800")),
        row("c", 1, page(6) | {"title": "\ud800"}),
        row("z", 1, page(7)),
        row("d", 1, None, {"title": "x"}),
    ]
    records.add(TOPIC, {"id": 1}, row("c", 10, page("first")))
    for value in bad:
        records.add(TOPIC, {}, value)
    records.add(TOPIC, {"id": 2}, row("c", 11, page("last")))
    owner = Owner(records)
    look = owner.take()
    assert look is not None
    assert owner.live() == {"first", "last"}
    told = owner.told()
    for offset in range(1, len(bad) + 1):
        assert any(t.startswith(f"{TOPIC}[0] at {offset}, ") for t in told), offset
    assert json.loads(owner.position)[TOPIC] == {"0": len(bad) + 2}


@pytest.mark.requirement("F20")
def test_faults_without_end_fill_no_memory(records: FakeRecords) -> None:
    for _ in range(400):
        records.add(TOPIC, {}, b"\xff")
    owner = Owner(records)
    owner.take()
    assert 0 < len(owner.told()) <= 22


@pytest.mark.requirement("A3")
@pytest.mark.parametrize(
    ("given", "micros"),
    [
        ("2026-01-02T03:04:05Z", 1_767_323_045_000_000),
        ("2026-01-02T03:04:05+02:00", 1_767_315_845_000_000),
        (1_767_323_045_000, 1_767_323_045_000_000),
        (1_767_323_045_000_000, 1_767_323_045_000_000),
        (1_767_323_045_000_000_000, 1_767_323_045_000_000),
        ("tomorrow", None),
        (20_455, None),
    ],
)
def test_times_of_rows(records: FakeRecords, given: Any, micros: int | None) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1, changed=given)))
    owner = Owner(records, updated_at="changed")
    owner.take()
    assert [s.updated_at for s in owner.seen if isinstance(s, SourceDocument)] == [micros]


# ---------------------------------------------------------------- the outbox router


def upsert(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "upsert", "title": "t", "text": text, "access": {"allow": ["user:ann"]}} | more


@pytest.mark.requirement("A7", "F23")
def test_payloads_once_and_twice_encoded_with_and_without_schema(records: FakeRecords) -> None:
    records.add(EVENTS, "kb-1", upsert("plain"), {"id": b"1"})
    records.add(EVENTS, '"kb-2"', json.dumps(upsert("string")), {"id": b"2"})
    records.add(EVENTS, {"schema": {}, "payload": "kb-3"}, {"schema": {}, "payload": json.dumps(upsert("both"))})
    records.add(
        EVENTS, "17", [upsert("array"), {"type": "membership", "principal": "user:ann", "parents": ["group:app/x"]}]
    )
    owner = Owner(records, format="outbox", topics=(EVENTS,))
    owner.take()
    assert owner.texts() == ["plain", "string", "both", "array"]
    assert owner.live() == {"kb-1", "kb-2", "kb-3", "17"}
    assert {s.document.kind for s in owner.seen if isinstance(s, SourceDocument)} == {"page"}
    assert isinstance(owner.seen[-1], SourceMembership)
    assert owner.told() == []


@pytest.mark.requirement("F23", "A8")
@pytest.mark.parametrize("option", [False, True])
@pytest.mark.parametrize("empty", [None, b"", b"null", b'""', {"schema": None, "payload": None}])
def test_an_empty_payload_means_what_the_settings_say(records: FakeRecords, option: bool, empty: Any) -> None:
    records.add(EVENTS, "kb-1", upsert("one"), {"id": b"1"})
    records.add(EVENTS, "kb-1", empty, {"id": b"2"})
    owner = Owner(records, format="outbox", topics=(EVENTS,), empty_is_deletion=option)
    owner.take()
    assert owner.live() == (set() if option else {"kb-1"})
    assert owner.told() == []


@pytest.mark.requirement("A6", "A7")
def test_a_message_that_comes_twice_counts_once_also_after_a_restart(records: FakeRecords) -> None:
    records.add(EVENTS, "kb-1", upsert("one"), {"id": b"1"})
    records.add(EVENTS, "kb-1", upsert("two"), {"id": b"2"})
    owner = Owner(records, format="outbox", topics=(EVENTS,))
    owner.take()
    owner.begin()
    owner.take()
    records.add(EVENTS, "kb-1", upsert("one"), {"id": b"1"})
    records.add(EVENTS, "kb-1", upsert("two"), {"id": b"2"})
    records.add(EVENTS, "kb-1", upsert("three"), {"id": b"3"})
    owner.take()
    assert owner.texts() == ["two", "three"]  # of what is read at once, the last state


@pytest.mark.requirement("F20", "I12", "A8")
def test_a_bad_message_stops_nobody_and_hides_what_it_may_have_taken_away(records: FakeRecords) -> None:
    records.add(EVENTS, "a", upsert("one"))
    records.add(EVENTS, "b", upsert("two"))
    records.add(EVENTS, "c", upsert("three"))
    records.add(EVENTS, "a", b"{not json")
    records.add(EVENTS, "a", {"type": "access", "access": {"permit": ["user:bob"]}})
    records.add(EVENTS, "b", {"type": "upsert", "text": "no title", "access": {"allow": ["user:bob"]}})
    records.add(EVENTS, "c", {"type": "upsert", "text": "no title"})
    records.add(EVENTS, "d", upsert("four"))
    owner = Owner(records, format="outbox", topics=(EVENTS,))
    owner.take()
    assert sorted(owner.texts()) == ["four", "one", "three", "two"]
    states = {d.id: s for d, s in owner.ledger.states()}
    assert states["a"].rule is not None
    assert states["a"].rule.prefilter()[0] == ["nobody"]
    assert states["b"].rule == AccessRule.any_of("user:bob")
    assert states["c"].rule == AccessRule.any_of("user:ann")
    assert [t.split(",")[0] for t in owner.told()].count(f"{EVENTS}[0] at 6") == 1
    assert len(owner.told()) == 4


@pytest.mark.requirement("I12")
def test_readers_of_the_settings_are_for_new_documents_only(records: FakeRecords) -> None:
    owner = Owner(records, format="outbox", topics=(EVENTS,))
    for change in (
        {"type": "upsert", "title": "t", "text": "one"},
        {"type": "access", "access": {"allow": ["user:bob"]}},
        {"type": "upsert", "title": "t", "text": "two"},
    ):
        records.add(EVENTS, "a", change)
        owner.take()
    assert owner.rule("a", "page") == AccessRule.any_of("user:bob")
    first = owner.seen[0]
    assert isinstance(first, SourceDocument)
    assert first.rule == AccessRule.any_of("everyone")


# ---------------------------------------------------------------- the cursor, outages, order


@pytest.mark.requirement("I9")
def test_the_cursor_is_the_next_offset_of_each_partition(records: FakeRecords) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1)))
    owner = Owner(records)
    look = owner.take()
    assert look is not None
    assert look.whole
    assert json.loads(owner.position)[TOPIC] == {"0": 1}
    owner.begin()
    records.add(TOPIC, {"id": 2}, row("c", 20, page(2)))
    owner.take()
    assert [s.document.id for s in owner.seen if isinstance(s, SourceDocument)] == ["1", "2"]
    assert records.starts[-1][TOPIC] == {0: 1}


@pytest.mark.requirement("I9")
def test_nothing_is_read_before_what_was_read_is_handed_over(records: FakeRecords) -> None:
    owner = Owner(records)
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1, "one")))
    owner.clock.advance(2)
    look = owner.source.changes(0.0)
    assert look is not None
    records.add(TOPIC, {"id": 1}, row("u", 20, page(1, "two")))
    owner.clock.advance(2)
    assert owner.source.changes(0.0) is None
    assert len(list(look.seen)) == 1
    assert owner.take() is not None
    assert owner.texts() == ["two"]


@pytest.mark.requirement("I8")
def test_an_outage_is_told_and_reading_goes_on_where_it_was(records: FakeRecords) -> None:
    owner = Owner(records)
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1)))
    owner.take()
    records.down = True
    look = owner.take()
    assert look is not None
    assert not look.complete
    assert look.position is None
    assert owner.source.degraded is not None
    assert not owner.source.listing().complete
    assert [f.good for f in owner.source.check()] == [False]
    records.down = False
    records.add(TOPIC, {"id": 2}, row("c", 20, page(2)))
    owner.clock.advance(60)
    owner.take()
    assert owner.live() == {"1", "2"}
    assert owner.source.degraded is None
    assert owner.source.listing().complete
    assert not owner.source.updated(0, 1).complete


@pytest.mark.requirement("I13", "A8")
def test_in_a_backlog_only_documents_wait_for_credit(records: FakeRecords) -> None:
    records.most = 20
    for n in range(10):
        records.add(TOPIC, {"id": n}, row("c", n, page(n)))
    for n in range(5):
        records.add(TOPIC, {"id": n}, row("d", 100 + n, None, page(n)))
    for n in range(300, 600):
        records.add(TOPIC, {"id": n}, row("c", n, page(n)))
    owner = Owner(records)
    owner.clock.advance(2)
    look = owner.source.changes(0.0)
    assert look is not None
    assert look.bulk
    order: list[str] = []
    assert not look.free
    for one in look.seen:
        order.append("pause" if isinstance(one, Mark) else type(one).__name__)
        if len(order) == 10:
            assert look.free  # deletions come next
    assert order == ["SourceDocument"] * 10 + ["SourceDeletion"] * 5 + ["pause"] + ["SourceDocument"] * 5


@pytest.mark.requirement("I9")
def test_a_cursor_that_cannot_be_read_is_told(records: FakeRecords) -> None:
    records.add(TOPIC, {"id": 1}, row("c", 10, page(1)))
    owner = Owner(records)
    owner.position = "[1]"
    owner.begin()
    owner.take()
    assert owner.live() == {"1"}
    assert any("cursor" in t for t in owner.told())
