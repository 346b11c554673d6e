"""Documents that are read elsewhere for a while: nobody waits for them, nothing of theirs is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from consumers.scheduler import DocumentScheduler, Priority, Work
from pipeline.clock import ManualClock
from pipeline.errors import DocumentError, StillExtracting
from schemas.documents import ExtractedDocument
from tests.unit.flow.flow_world import Paragraphs
from tests.unit.index_consumer.worker_world import WorkerWorld, doc

ELSEWHERE = "application/pdf"


class Elsewhere:
    """Reads text at once; a PDF when told to."""

    def __init__(self) -> None:
        self.parts = Paragraphs()
        self.lock = threading.Lock()
        self.waiting: list[Callable[[], None]] = []
        self.asked = 0
        self.over = False
        self.fault: DocumentError | None = None

    def extract(self, body: bytes, content_type: str, *, path: str | None = None) -> ExtractedDocument:
        if content_type != ELSEWHERE:
            return self.parts.extract(body, content_type, path=path)
        with self.lock:
            self.asked += 1
            if not self.over:
                raise StillExtracting("being read", self._register)
        if self.fault is not None:
            raise self.fault
        return self.parts.extract(body, "text/plain", path=path)

    def _register(self, callback: Callable[[], None]) -> None:
        with self.lock:
            over = self.over
            if not over:
                self.waiting.append(callback)
        if over:
            callback()

    def end(self) -> None:
        with self.lock:
            self.over, callbacks, self.waiting = True, self.waiting, []
        for callback in callbacks:
            callback()


@pytest.fixture
def reader() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def world(reader: Elsewhere) -> Iterator[WorkerWorld]:
    made = WorkerWorld(extractor=reader)
    yield made
    made.close()


@pytest.mark.requirement("A2", "I13")
def test_others_go_on_while_a_document_is_read_elsewhere(world: WorkerWorld, reader: Elsewhere) -> None:
    world.page("scan", 10, "one page", content_type=ELSEWHERE)
    world.page("next", 10, "text")
    world.until(lambda: world.texts("next") == {"text"})
    assert reader.asked == 1 and not world.done(), "it waits without being asked again, and its record stays unread"
    reader.end()
    world.settle()
    assert world.texts("scan") == {"one page"} and reader.asked == 2
    assert world.outcomes("scan") == ["indexed"]


@pytest.mark.requirement("A2", "A8")
def test_a_deletion_does_not_wait_for_the_reading(world: WorkerWorld, reader: Elsewhere) -> None:
    world.page("scan", 10, "one page", content_type=ELSEWHERE)
    world.until(lambda: bool(reader.waiting))
    world.gone("scan", 11)
    world.settle()
    manifest = world.manifest("scan")
    assert manifest is not None and manifest.deleted and reader.asked == 1
    reader.end()  # whoever is called back too late does nothing
    world.page("scan", 12, "again", content_type=ELSEWHERE)
    world.settle()
    assert world.texts("scan") == {"again"}


@pytest.mark.requirement("A2", "A6")
def test_a_newer_version_replaces_the_one_that_is_being_read(world: WorkerWorld, reader: Elsewhere) -> None:
    world.page("scan", 10, "old", content_type=ELSEWHERE)
    world.until(lambda: bool(reader.waiting))
    world.page("scan", 11, "new", content_type=ELSEWHERE)
    world.until(lambda: reader.asked == 2)
    reader.end()
    world.settle()
    assert world.texts("scan") == {"new"}
    assert sorted(world.outcomes("scan")) == ["indexed", "superseded"]


@pytest.mark.requirement("I8")
def test_a_final_fault_is_not_tried_again(world: WorkerWorld, reader: Elsewhere) -> None:
    reader.fault = DocumentError("too much", stage="extract", kind="time-limit")
    reader.fault.final = True
    reader.over = True
    world.page("scan", 10, "one page", content_type=ELSEWHERE)
    world.settle()
    (letter,) = world.log.letters()
    assert (letter.error_kind, letter.attempts, reader.asked) == ("time-limit", 1, 1)


@pytest.mark.requirement("I13", "I1")
def test_a_job_that_was_set_aside_waits_for_its_call_or_for_newer_work() -> None:
    scheduler = DocumentScheduler(ManualClock())

    def work(offset: int) -> Work:
        return Work("content", doc("a"), 0, Priority.BULK, received_at=offset)

    scheduler.add(work(1))
    job = scheduler.take()
    assert job is not None
    scheduler.set_aside(job)
    assert scheduler.take() is None and scheduler.total() == 0
    scheduler.resume(doc("a"))
    again = scheduler.take()
    assert again is not None and (again.attempts, again.infra_attempts) == (0, 0)
    scheduler.set_aside(again)
    scheduler.add(work(2))
    merged = scheduler.take()
    assert merged is not None and [w.received_at for w in merged.works] == [1, 2]
    scheduler.add(work(3))  # came while it was worked on
    scheduler.set_aside(merged)
    last = scheduler.take()
    assert last is not None and [w.received_at for w in last.works] == [1, 2, 3]
    scheduler.set_aside(last)
    scheduler.drop([0])
    scheduler.resume(doc("a"))
    assert scheduler.take() is None
