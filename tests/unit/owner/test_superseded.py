"""Bodies that no event needs any more: removed once every generation has read past what replaced them."""

from __future__ import annotations

import pytest

from consumers.owner_writer import OwnerWriter
from consumers.superseded import LOOK_S, PassedByAll, SupersededBodies
from pipeline.clock import ManualClock
from pipeline.observe import Metrics
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Limits
from pipeline.sources.ledger import Ledger
from schemas.keys import DocumentRef
from schemas.receipts import Progress
from tests.fakes.store import FakeStore
from tests.unit.flow.flow_world import GENERATION
from tests.unit.owner.support import MemoryBodies, MemoryLog, MemoryOwnerLog
from tests.unit.sources.support import doc, gone


class Tree(MemoryBodies):
    """Also says what lies there."""

    def of_document(self, document: DocumentRef) -> list[str]:
        return [path for path in self.bodies if f"/{document.uid}/" in path]

    def of_source(self, tenant: str, source: str) -> list[str]:
        return [path for path in self.bodies if path.startswith(f"{tenant}/{source}/")]


class Owner:
    """A ledger whose bodies all go to the store."""

    def __init__(self) -> None:
        self.clock, self.tree = ManualClock(), Tree()
        self.passed: dict[int, int] | None = {}
        log = MemoryOwnerLog(MemoryLog(), self.clock)
        placer = BodyPlacer(self.tree, 0, 1_000_000, self.tree)
        self.ledger = Ledger("acme", "kb", self.clock, placer)
        self.writer = OwnerWriter(self.ledger, log.appender, log.publisher, placer, self.clock, Metrics(), Limits())
        self.sweep = SupersededBodies(
            self.ledger, self.tree, lambda: {0: 10, 1: 0}, lambda: self.passed, self.clock, Metrics()
        )

    def say(self, seen: object) -> None:
        changes = self.ledger.observe(seen)  # type: ignore[arg-type]
        self.writer.write(changes, lambda: self.ledger.cursor(polled_at=self.clock.now(), pending=False))

    def steps(self) -> None:
        for _ in range(3):
            self.clock.advance(LOOK_S + 1)
            self.sweep.step()


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.mark.requirement("A8", "I5")
def test_a_superseded_body_goes_when_every_generation_has_passed_it(owner: Owner) -> None:
    owner.say(doc("first"))
    owner.say(doc("second"))
    owner.say(doc("other", id_="b"))
    owner.tree.bodies["acme/kb/someone/5.abc.part"] = b"broke off"
    owner.tree.bodies["acme/elsewhere/x/1"] = b"not ours"
    for behind in (None, {}, {0: 9, 1: 5}):
        owner.passed = behind
        owner.steps()
        assert len(owner.tree.bodies) == 5
    owner.passed = {0: 10, 1: 0}
    owner.steps()
    assert sorted(owner.tree.bodies.values()) == [b"not ours", b"other", b"second"]


@pytest.mark.requirement("A8")
def test_a_deleted_documents_bodies_go_at_once_with_those_of_older_versions(owner: Owner) -> None:
    owner.say(doc("first"))
    owner.say(doc("second"))
    owner.say(doc("other", id_="b"))
    owner.say(gone())
    assert list(owner.tree.bodies.values()) == [b"other"]


@pytest.mark.requirement("I8")
def test_a_body_store_that_is_away_is_asked_again(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.errors import BusUnavailable

    owner.say(doc("first"))
    owner.say(doc("second"))
    owner.passed = {0: 10, 1: 0}

    def down(path: str) -> None:
        raise BusUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(owner.tree, "delete", down)
        owner.steps()
    assert len(owner.tree.bodies) == 2
    owner.steps()
    assert list(owner.tree.bodies.values()) == [b"second"]


@pytest.mark.requirement("I5")
def test_passed_by_all_is_the_slowest_generation_that_is_not_retired() -> None:
    store = FakeStore()
    store.ensure_base()
    passed = PassedByAll(store)
    assert passed() is None
    for name, state, offsets in (("g1", "active", (7, 5)), ("g2", "building", (4,)), ("old", "retired", (0, 0))):
        store.write_generation(GENERATION.model_copy(update={"name": name, "state": state}))
        store.write_progress(
            [Progress(lane="index", generation=name, topic="content", partition=p, offset=o) for p, o in
             enumerate(offsets)]
        )  # fmt: skip
    assert passed() == {0: 4}  # g2 has not begun partition 1
    store.fail_next("read_generations")
    assert passed() is None
