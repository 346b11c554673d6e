"""The scheduler: live before bulk, order per document, fair shares, bounded windows (invariant 13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.scheduler import DocumentScheduler, Job, Priority, Work
from pipeline.clock import ManualClock
from pipeline.ports import Record
from schemas.keys import DocumentRef


def work(
    name: str, priority: Priority = Priority.BULK, *, source: str = "wiki", partition: int = 0, offset: int = 0
) -> Work:
    record = Record("content", partition, offset, 0, None, b"x" * 10)
    return Work("content", DocumentRef(tenant="acme", source=source, id=name), partition, priority, record)


def take_all(scheduler: DocumentScheduler) -> list[Job]:
    jobs = []
    while (job := scheduler.take()) is not None:
        jobs.append(job)
        scheduler.finish(job)
    return jobs


@pytest.mark.requirement("I13")
def test_live_goes_before_bulk_and_access_before_live() -> None:
    scheduler = DocumentScheduler(ManualClock())
    scheduler.add(work("a"))
    scheduler.add(work("b", Priority.LIVE))
    scheduler.add(work("c", Priority.ACCESS))
    scheduler.add(work("d"))
    assert [j.document.id for j in take_all(scheduler)] == ["c", "b", "a", "d"]


@pytest.mark.requirement("I13")
def test_a_live_event_lifts_the_documents_bulk_work_with_it_in_order() -> None:
    scheduler = DocumentScheduler(ManualClock())
    scheduler.add(work("other"))
    scheduler.add(work("a", offset=1))
    scheduler.add(work("a", Priority.LIVE, offset=2))
    job = scheduler.take()
    assert job is not None and job.document.id == "a" and job.priority == Priority.LIVE
    assert [w.record.offset for w in job.works if w.record] == [1, 2]


@pytest.mark.requirement("I1", "I13")
def test_a_document_is_in_one_job_at_a_time() -> None:
    scheduler = DocumentScheduler(ManualClock())
    scheduler.add(work("a", offset=1))
    first = scheduler.take()
    scheduler.add(work("a", Priority.LIVE, offset=2))
    assert scheduler.take() is None
    assert first is not None
    scheduler.finish(first)
    second = scheduler.take()
    assert second is not None and [w.record.offset for w in second.works if w.record] == [2]


@pytest.mark.requirement("I13")
def test_sources_share_the_turns() -> None:
    scheduler = DocumentScheduler(ManualClock())
    for i in range(50):
        scheduler.add(work(f"big{i}", source="big"))
    scheduler.add(work("small", source="small"))
    assert "small" in [j.document.id for j in take_all(scheduler)][:2]


@pytest.mark.requirement("I8")
def test_put_back_waits_and_keeps_the_order() -> None:
    clock = ManualClock()
    scheduler = DocumentScheduler(clock)
    scheduler.add(work("a", offset=1))
    job = scheduler.take()
    assert job is not None
    scheduler.add(work("a", offset=2))
    scheduler.put_back(job, delay=5, infrastructure=True)
    assert scheduler.take() is None
    clock.advance(5.1)
    again = scheduler.take()
    assert again is not None and [w.record.offset for w in again.works if w.record] == [1, 2]
    assert (again.attempts, again.infra_attempts) == (0, 1)


@pytest.mark.requirement("I8")
def test_failed_attempts_are_counted_apart_from_infrastructure() -> None:
    scheduler = DocumentScheduler(ManualClock())
    scheduler.add(work("a"))
    for expected in range(3):
        job = scheduler.take()
        assert job is not None and job.attempts == expected
        scheduler.put_back(job, delay=0, infrastructure=False)


@pytest.mark.requirement("I1")
def test_revoked_partitions_are_forgotten_and_running_jobs_marked() -> None:
    scheduler = DocumentScheduler(ManualClock())
    scheduler.add(work("running", partition=1))
    job = scheduler.take()
    scheduler.add(work("queued", partition=1))
    scheduler.add(work("kept", partition=2))
    scheduler.drop([1])
    assert job is not None and job.dropped
    assert scheduler.held("content", 1) == (1, 10)
    scheduler.put_back(job, delay=0, infrastructure=True)
    assert [j.document.id for j in take_all(scheduler)] == ["kept"]
    assert scheduler.held("content", 1) == (0, 0)
    assert scheduler.total() == 0


@pytest.mark.requirement("I13")
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(list(Priority)), st.sampled_from(["s", "t"])), max_size=40
    ),
    st.randoms(use_true_random=False),
)
def test_every_work_is_given_out_once_in_order_of_its_document(
    items: list[tuple[str, Priority, str]], random: object
) -> None:
    import random as random_module

    assert isinstance(random, random_module.Random)
    scheduler = DocumentScheduler(ManualClock())
    pending = [work(name, p, source=s, offset=i) for i, (name, p, s) in enumerate(items)]
    seen: dict[str, list[int]] = {}
    expected: dict[str, list[int]] = {}
    for w in pending:
        assert w.record is not None
        expected.setdefault(w.document.uid, []).append(w.record.offset)
    running: list[Job] = []
    while pending or running or scheduler.total():
        choice = random.random()
        if pending and choice < 0.5:
            scheduler.add(pending.pop(0))
        elif running and choice < 0.7:
            job = running.pop(random.randrange(len(running)))
            if random.random() < 0.3:
                scheduler.put_back(job, delay=0, infrastructure=True)
            else:
                seen.setdefault(job.document.uid, []).extend(w.record.offset for w in job.works if w.record)
                scheduler.finish(job)
        elif (taken := scheduler.take()) is not None:
            running.append(taken)
    assert seen == expected
    assert scheduler.total() == 0
