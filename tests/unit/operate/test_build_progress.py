"""Progress of a build by partition, and what its receipts are counted as."""

from __future__ import annotations

import pytest

from pipeline.bus.interface import Slot
from pipeline.clock import ManualClock
from pipeline.operate import build, control
from pipeline.operate.build import Counts, bar
from pipeline.operate.control import Refused, Unanswered
from pipeline.operate.progress import WINDOW_S, BuildProgress, PartitionProgress, ProgressWatch
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.keys import DocumentRef
from schemas.receipts import Progress, Receipt


class Store:
    """Progress records of one generation."""

    def __init__(self) -> None:
        self.applied: dict[tuple[str, int], int] = {}

    def read_progress(self, lane: str, generation: str, topic: str) -> dict[int, Progress]:
        assert (lane, generation) == ("index", "two")
        return {
            n: Progress(lane="index", generation=generation, topic=t, partition=n, offset=offset)
            for (t, n), offset in self.applied.items()
            if t == topic
        }


class Log:
    """Beginnings and ends."""

    def __init__(self, first: dict[Slot, int], end: dict[Slot, int]) -> None:
        self.first, self.end = first, end

    def positions(self) -> dict[Slot, int]:
        return self.first

    def ends(self) -> dict[Slot, int]:
        return dict(self.end)


A, B = Slot("content", 0), Slot("content", 1)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.mark.requirement("A10")
def test_the_target_is_the_end_at_the_start_and_the_log_may_go_on(store: Store) -> None:
    clock, log = ManualClock(), Log({A: 10, B: 0}, {A: 110, B: 0})
    watch = ProgressWatch("two", store, log, clock=clock)
    now = watch.look()
    assert (now.total, now.applied, now.left, now.rate, now.eta_s) == (100, 0, 100, None, None)
    store.applied[("content", 0)] = 60
    log.end = {A: 500, B: 40}
    clock.advance(10)
    now = watch.look()
    assert (now.applied, now.left, now.behind) == (50, 50, 480) and not now.reached
    assert now.partitions[0] == PartitionProgress("content", 0, 10, 60, 110, 500, 6.0)
    assert now.rate == 6.0 and now.eta_s == pytest.approx(50 / 6)
    store.applied[("content", 0)] = 130
    clock.advance(10)
    now = watch.look()
    assert now.reached and now.eta_s == 0.0 and now.applied == now.total == 100


@pytest.mark.requirement("A10")
def test_the_rate_is_that_of_the_last_window(store: Store) -> None:
    clock, log = ManualClock(), Log({A: 0}, {A: 100_000})
    watch = ProgressWatch("two", store, log, clock=clock)
    for second in range(100):
        store.applied[("content", 0)] = 10 * second if second < 50 else 500 + (second - 50)
        rate = watch.look().rate
        clock.advance(1)
    assert rate == pytest.approx(1.0), f"the first {100 - WINDOW_S:.0f} s were faster and count no more"


@pytest.mark.requirement("I11")
def test_a_store_that_fell_back_shows_no_negative_rate(store: Store) -> None:
    clock, log = ManualClock(), Log({A: 0}, {A: 100})
    watch = ProgressWatch("two", store, log, clock=clock)
    store.applied[("content", 0)] = 80
    watch.look()
    clock.advance(1)
    store.applied.clear()
    now = watch.look()
    assert now.rate == 0 and now.left == 100 and now.eta_s is None


def test_the_bar_says_rate_and_rest() -> None:
    shown: list[tuple[str, int, int | None]] = []
    now = BuildProgress("two", 1, (PartitionProgress("content", 0, 0, 25, 100, 100, 5.0),))
    bar(lambda step, done, total: shown.append((step, done, total)))(now)
    assert shown == [("building two, 5/s, 15 s left", 25, 100)]


@pytest.mark.requirement("A10", "I8")
def test_ready_is_asked_again_while_it_is_refused_or_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | None] = [Refused("ready two", "it lags"), Unanswered("ready two", 1.0), None]
    asked: list[tuple[str, str]] = []

    def send(settings: Settings, type: str, generation: str, **more: object) -> None:
        asked.append((type, generation))
        answer = answers[len(asked) - 1]
        if answer is not None:
            raise answer

    monkeypatch.setattr(control, "send", send)
    ready = build._Ready(Settings(), "two", "test")
    assert not ready.asked() and not ready.asked() and len(asked) == 1, "not at every look"
    monkeypatch.setattr(build, "ASK_AGAIN_S", 0.0)
    ready = build._Ready(Settings(), "two", "test")
    assert [ready.asked(), ready.asked()] == [False, True] and set(asked) == {("ready", "two")}


def receipt(**more: object) -> Record:
    document = DocumentRef(tenant="acme", source="wiki", id="1")
    values: dict[str, object] = {
        "lane": "index", "generation": "two", "tenant": "acme", "document": document, "document_uid": document.uid,
        "event_type": "content.upserted", "version": 1, "outcome": "indexed", "chunks_written": 3, "chunks_embedded": 2,
        "tokens": 50, **more,
    }  # fmt: skip
    return Record("receipts", 0, 0, 0, None, Receipt.model_validate(values).model_dump_json().encode())


def test_only_receipts_of_the_generation_count_and_a_document_once() -> None:
    counts = Counts("two")
    for record in (
        receipt(), receipt(outcome="unchanged", chunks_written=0, chunks_embedded=0, tokens=0),
        receipt(document_uid="other"), receipt(generation="one"), receipt(lane="access", generation=None),
        receipt(outcome="dead_letter", chunks_written=0, chunks_embedded=0, tokens=0, document_uid="bad"),
        Record("receipts", 0, 0, 0, None, b'{"generation":"two"}'), Record("receipts", 0, 0, 0, None, None),
    ):  # fmt: skip
        counts.add(record)
    assert counts.documents == {DocumentRef(tenant="acme", source="wiki", id="1").uid, "other"}
    assert (counts.chunks_written, counts.chunks_embedded, counts.tokens, counts.dead_letters) == (6, 4, 100, 1)
