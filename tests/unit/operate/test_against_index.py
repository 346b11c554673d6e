"""An owner's memory against the index: extra, missing, wrongly readable and wrongly hidden documents."""

from __future__ import annotations

import pytest

from pipeline.clock import ManualClock
from pipeline.operate.against_index import Comparison
from pipeline.operate.owned import held, remembered, summed
from pipeline.ports import Record
from pipeline.settings import Settings
from pipeline.settings_sources import FolderSettings
from pipeline.sources.changes import cursor_record, ended_cursor_record, state_record
from schemas.access import AccessRule
from schemas.documents import AccessRecord, Manifest
from schemas.events import REQUESTS_STREAM, DocumentState, Quarantine, SourceCursor
from schemas.generation import BackendChoice, Generation
from schemas.keys import DocumentRef, cursor_key
from schemas.reconciliation import OpenRequest, OwnerStatus, RequestsPosition
from tests.fakes.store import FakeStore

ANN, BOTH = AccessRule.any_of("user:ann"), AccessRule.any_of("user:ann", "user:bob")


def ref(id_: str, source: str = "wiki") -> DocumentRef:
    return DocumentRef(tenant="acme", source=source, id=id_)


class World:
    """Cursors and a store with one active generation and one in standby."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.store = FakeStore()
        self.store.ensure_base()
        for name, state in (("minilm", "active"), ("old", "standby"), ("gone", "retired")):
            generation = Generation(
                name=name, state=state, backend=BackendChoice(name="stub", agreement=1.0), created_at=1
            )
            self.store.ensure_generation(generation)
            self.store.write_generation(generation)
        self.store.set_active_generation("minilm")

    def owner(self, id_: str, *, rule: AccessRule = ANN, source: str = "wiki", **more: object) -> None:
        state = DocumentState.model_validate(
            {"document": ref(id_, source), "content_version": 20, "access_version": 10, "rule": rule, **more}
        )
        record = state_record(state)
        self.records.append(Record("cursors", 0, len(self.records), 0, record.key, record.value))

    def cursor(self, stream: str, position: str = "", source: str = "wiki") -> None:
        record = cursor_record(
            SourceCursor(
                tenant="acme",
                source=source,
                stream=stream,
                position=position,
                last_version=99,
                polled_at=5,
                pending=True,
            )
        )
        self.records.append(Record("cursors", 0, len(self.records), 0, record.key, record.value))

    def index(self, id_: str, *, rule: AccessRule = ANN, source: str = "wiki", **more: object) -> None:
        """Access record and manifest; ``access`` and ``manifest`` override fields, None leaves the record out."""
        access, manifest = more.get("access", {}), more.get("manifest", {})
        document = ref(id_, source)
        if isinstance(access, dict):
            self.store.write_access(
                "acme", [AccessRecord(document=document, **{"version": 10, "rule": rule, **access})]
            )
        if isinstance(manifest, dict):
            name = manifest.pop("generation", "minilm")
            fields = {"content_version": 20, "rule": rule, "seen_rule": rule, **manifest}
            self.store.write_manifest(name, Manifest(document=document, **fields))

    def compare(self, **given_up: int) -> dict[str, set[str]]:
        ledger = remembered("acme", "wiki", self.records, ManualClock())
        letters = {ref(id_).uid: version for id_, version in given_up.items()}
        comparison = Comparison(self.store, ledger, "minilm", letters)
        walked = comparison.walk(lambda step, done, total: None)
        looked = comparison.look(walked.documents())
        assert looked.found == walked.found, "a look by id judges as the walk does"
        return {name: {d.id for d in found.values()} for name, found in walked.found.items()}


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.requirement("F02", "A8")
def test_what_stands_as_the_owner_says_is_no_difference(world: World) -> None:
    world.owner("a")
    world.index("a")
    world.owner("gone", deleted=True)
    world.index("gone", access={"tombstone": True, "version": 11}, manifest={"deleted": True, "content_version": 21})
    world.index("b", source="other")  # another source's
    world.owner("rule alone", content_version=0)
    world.index("rule alone", manifest=None)
    world.index("newer", manifest=None, access={"tombstone": True})  # its memory has ended, its tombstone stays
    assert world.compare() == {}


@pytest.mark.requirement("F01", "F02", "A8")
def test_what_the_owner_does_not_know_or_has_deleted_is_extra(world: World) -> None:
    world.index("ghost")
    world.index("stray", access=None)
    world.index("old stray", access=None, manifest={"generation": "old"})
    world.index("dropped", access=None, manifest={"generation": "gone"})  # of a retired one: nobody feeds it
    world.owner("deleted", deleted=True, content_version=30, access_version=30)
    world.index("deleted")
    assert world.compare() == {"extra": {"ghost", "stray", "old stray", "deleted"}}


@pytest.mark.requirement("A8", "F03")
def test_what_the_index_lacks_is_missing_but_for_dead_letters(world: World) -> None:
    for id_ in ("absent", "older", "dead", "replaced", "unread"):
        world.owner(id_)
    world.index("absent", manifest=None)
    world.index("older", manifest={"content_version": 19})
    world.index("dead", manifest=None)
    world.index("replaced", manifest=None)
    world.index("unread", access=None)
    found = world.compare(dead=20, replaced=19)
    assert found == {
        "missing": {"absent", "older", "replaced"},
        "unprocessable": {"dead"},
        "wrongly_hidden": {"unread"},
    }


@pytest.mark.requirement("A8", "I3", "I12")
def test_whoever_may_read_more_or_less_than_the_owner_says_is_told_apart(world: World) -> None:
    world.owner("wider")
    world.index("wider", rule=BOTH, access={"version": 9})
    world.owner("narrower", rule=BOTH)
    world.index("narrower", rule=ANN, access={"version": 9})
    world.owner("held", holds=("quarantine",))
    world.index("held")
    world.owner("redacted", not_before=15)
    world.index("redacted")
    world.owner("buried")
    world.index("buried", access={"version": 9, "tombstone": True})
    world.owner("late")  # an older record with the same rule lets in whom it should
    world.index("late", access={"version": 9})
    assert world.compare() == {
        "wrongly_readable": {"wider", "held", "redacted"},
        "wrongly_hidden": {"narrower", "buried"},
    }


def test_sources_are_summed_from_what_owners_wrote(world: World) -> None:
    world.owner("a")
    world.owner("b", holds=("quarantine",))
    world.owner("c", deleted=True)
    world.owner("d", quarantine=Quarantine(since=1, by="r", absent=True, overruled=True))
    world.cursor("changes")
    note = OpenRequest(offset=3, request_id="r", type="backfill", state="begun", done=4, expected=9)
    world.cursor(REQUESTS_STREAM, RequestsPosition(next=3, open=(note,)).model_dump_json())
    world.owner("x", source="old", deleted=True)
    world.cursor("changes", source="old")
    ended = ended_cursor_record("acme", "old")
    world.records.append(Record("cursors", 0, 99, 0, ended.key, None))
    settings = Settings(sources=(FolderSettings(name="new", path="/nowhere"),))
    found = {s.source: s for s in summed(settings, world.records)}
    assert set(found) == {"wiki", "new"}  # nothing is left of the removed one
    wiki = found["wiki"]
    assert (wiki.documents, wiki.held, wiki.kept, wiki.pending, wiki.polled_at) == (3, 1, 1, True, 5)
    assert wiki.requests == (note,) and not wiki.configured and found["new"].configured


SECOND = 1_000_000


@pytest.mark.requirement("A11")
@pytest.mark.parametrize(
    ("said", "age", "pending", "state"),
    [
        (RequestsPosition(status=OwnerStatus(state="starved", since=1)), 19, False, "starved"),
        (RequestsPosition(status=OwnerStatus(state="starved", since=1)), 21, False, "dead"),
        (RequestsPosition(status=OwnerStatus(state="waiting", since=1), paused=True), 1, False, "paused"),
        (RequestsPosition(status=OwnerStatus(state="paused", since=1)), 1, True, "working"),
        (RequestsPosition(paused=True), 21, False, "dead"),
        (RequestsPosition(), 1, True, "working"),
        (RequestsPosition(), 1, False, "waiting"),
    ],
)
def test_the_state_of_a_source_is_what_its_owner_said_while_it_lives(
    world: World, said: RequestsPosition, age: int, pending: bool, state: str
) -> None:
    cursor = SourceCursor(tenant="acme", source="wiki", last_version=9, polled_at=5, pending=pending)
    asked = cursor.model_copy(update={"stream": REQUESTS_STREAM, "position": said.model_dump_json()})
    records = [
        Record("cursors", 0, n, at, cursor_key("acme", "wiki", c.stream), c.model_dump_json().encode())
        for n, (at, c) in enumerate([(100 * SECOND, cursor), (90 * SECOND, asked)])
    ]
    settings = Settings(sources=(FolderSettings(name="wiki", path="/nowhere"),))
    (found,) = summed(settings, records)
    assert found.state((100 + age) * SECOND) == state and found.told == said.status
    assert found.lag_s(3 * SECOND + 5) == 3.0
    (other,) = summed(Settings(), records)
    assert other.state(101 * SECOND) == "gateway"


def test_holds_tell_why_and_until_when(world: World) -> None:
    day = 86_400_000_000
    for id_, cause, holds in (
        ("missing", Quarantine(since=5, by="r1", absent=True), ("quarantine",)),
        ("unreadable", Quarantine(since=6, by="w1"), ("quarantine",)),
        ("kept", Quarantine(since=7, by="r1", absent=True, overruled=True), ()),
        ("fine", None, ()),
    ):
        world.owner(id_, quarantine=cause, holds=holds)
    found = {h.document_id: (h.reason, h.by, h.purge_at) for h in held(remembered("acme", "wiki", world.records), 7)}
    assert found == {
        "missing": ("missing", "r1", 5 + 7 * day),
        "unreadable": ("unreadable", "w1", None),
        "kept": ("kept visible", "r1", None),
    }
