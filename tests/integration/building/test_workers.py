"""Bulk workers on real Kafka and Weaviate: priority, retirement, expired offsets, a dead parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from consumers.index import group_of
from consumers.priority import LOW
from infra.ports import free_port
from pipeline.bus.groups import delete_group, group_members
from pipeline.clock import SystemClock
from pipeline.operate.build import WorkerPool, progress
from pipeline.operate.workers import environment
from tests.integration.building.conftest import World
from tests.product import until

PAGES = range(12)


@pytest.fixture
def busy() -> Iterator[None]:
    """More processes that compute without end than there are processors."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range((os.cpu_count() or 1) + 1)]
    yield
    for process in started:
        process.kill()
        process.wait()


def health(port: int) -> dict[str, Any]:
    """A consumer's page; {} while it does not answer."""
    try:
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=10).json()
    except httpx.HTTPError:
        return {}
    return found


def applied(world: World, generation: str) -> bool:
    return progress(world.settings, generation).reached


@pytest.mark.requirement("D4", "I13", "A10")
def test_a_bulk_worker_works_at_low_priority_and_keeps_its_heartbeats(world: World) -> None:
    world.write(PAGES)
    world.generation("two", "building")
    worker = world.process("index", "--generation", "two", "--bulk")
    until(lambda: applied(world, "two"), 180, "the log is applied")
    world.assert_whole("two", PAGES)
    nice = [os.getpriority(os.PRIO_PROCESS, int(tid)) for tid in os.listdir(f"/proc/{worker.pid}/task")]
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == 0, "the thread that polls keeps its priority"
    assert sum(n == LOW for n in nice) >= 4, "workers, finisher and encoder are lowered"
    worker.terminate()
    assert worker.wait(10) == 0


@pytest.mark.requirement("I1", "I13", "D4")
def test_a_bulk_worker_on_a_machine_that_others_use_up_keeps_its_lease(world: World, busy: None) -> None:
    world.write(range(60))
    world.generation("two", "building")
    port = free_port()
    settings = world.settings.kafka.model_copy(update={"index_session_s": 10.0, "heartbeat_s": 1.0})
    world.process(
        "index", "--generation", "two", "--bulk", HEADWATER_KAFKA=settings.model_dump_json(),
        HEADWATER_HEALTH_PORT=str(port),
    )  # fmt: skip
    until(lambda: health(port).get("state") == "running", 180)
    leases: list[float] = []
    until(lambda: leases.append(health(port)["lease_s"]) or applied(world, "two"), 240)  # type: ignore[func-returns-value]
    assert min(leases) > 2, f"of 9 s, over {len(leases)} looks"
    metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert "headwater_rebalances_total{" not in metrics and "headwater_late_writes_total{" not in metrics


@pytest.mark.requirement("A10")
def test_a_consumer_whose_generation_is_retired_leaves_in_order(world: World) -> None:
    world.write(PAGES)
    world.generation("two", "building")
    worker = world.process("index", "--generation", "two", "--bulk")
    until(lambda: applied(world, "two"), 180)
    world.set_state("two", "retired")
    began = time.monotonic()
    assert worker.wait(10) == 0
    assert time.monotonic() - began < 8
    assert "left in order" in world.log_of(worker)
    assert group_members(world.settings, group_of("two")) == 0
    again = world.process("index", "--generation", "two", "--bulk")
    assert again.wait(120) == 2, "a retired generation is refused"


@pytest.mark.requirement("F18", "I7")
def test_a_consumer_stops_when_its_generation_becomes_another_one(world: World) -> None:
    made = world.generation("two", "building")
    worker = world.process("index", "--generation", "two", "--bulk")
    until(lambda: "opened" in world.log_of(worker), 180)
    other = made.encoder.model_copy(update={"model": "another/model", "revision": "1"})
    world.store.write_generation(made.model_copy(update={"encoder": other, "version": 2}))
    assert worker.wait(15) == 1
    assert "another encoder" in world.log_of(worker)


@pytest.mark.requirement("I11")
@pytest.mark.parametrize("how", ["in order", "killed"])
def test_a_group_whose_offsets_expired_goes_on_from_the_store(world: World, how: str) -> None:
    world.write(PAGES)
    world.generation("two", "building")
    worker = world.process("index", "--generation", "two", "--member", "m")
    until(lambda: applied(world, "two"), 180)
    before = world.assert_whole("two", PAGES)
    if how == "in order":
        worker.terminate()
    else:
        worker.kill()
    worker.wait(10)
    until(lambda: delete_group(world.settings, group_of("two")), 20, "the group is empty and forgotten")
    moment = SystemClock().now()
    world.write([100], "later")
    second = world.process("index", "--generation", "two", "--member", "m")
    until(lambda: applied(world, "two"), 180)
    after = world.assert_whole("two", [*PAGES, 100])
    assert {n: after[n] for n in PAGES} == before
    new = [r for r in world.receipts("two") if r.times.visible_at is not None and r.times.visible_at > moment]
    again = [r for r in new if r.document is not None and r.document.id != "page-100"]
    assert all(r.outcome == "unchanged" and r.chunks_embedded == 0 for r in again)
    window = world.settings.kafka.safety_window * world.settings.kafka.partitions
    assert len(again) <= (0 if how == "in order" else window), "it went on, and did not begin again"
    assert '"why": "left in order"' in world.log_of(second) or how == "killed"


@pytest.mark.requirement("I11")
def test_a_building_group_without_offsets_and_progress_begins_at_the_beginning(world: World) -> None:
    world.write(PAGES)
    world.generation("two", "building")
    assert delete_group(world.settings, group_of("two"))
    world.process("index", "--generation", "two", "--bulk")
    until(lambda: applied(world, "two"), 180)
    world.assert_whole("two", PAGES)


@pytest.mark.requirement("I8")
def test_workers_leave_when_the_process_that_started_them_is_killed(world: World, tmp_path: Path) -> None:
    world.generation("two", "building")
    script = (
        "import sys, time\nfrom pipeline.settings import load\nfrom pipeline.operate.workers import WorkerPool\n"
        "pool = WorkerPool(load(), 'two'); pool.start(1); print(pool.pids()[0], flush=True); time.sleep(600)\n"
    )
    builder = subprocess.Popen([sys.executable, "-c", script], env=environment(world.settings), stdout=subprocess.PIPE)
    assert builder.stdout is not None
    pid = int(builder.stdout.readline())
    log = world.settings.state_dir / "logs" / "build-two-0.log"
    until(lambda: "opened" in log.read_text(), 180)
    builder.kill()
    builder.wait()
    until(lambda: not Path(f"/proc/{pid}").exists(), 15, "the worker leaves")
    assert "left in order" in log.read_text()


@pytest.mark.requirement("A10", "I11")
def test_a_pool_scales_restarts_what_was_killed_and_stops_in_order(world: World) -> None:
    world.write(PAGES)
    world.generation("two", "building")
    with WorkerPool(world.settings, "two") as pool:
        pool.scale(2)
        until(lambda: group_members(world.settings, group_of("two")) == 2, 180)
        os.kill(pool.pids()[0], 9)
        until(lambda: pool.alive() == 1, 5)
        until(lambda: pool.keep() or pool.alive() == 2, 20, "it is started again")  # type: ignore[func-returns-value]
        assert pool.restarts == 1
        until(lambda: applied(world, "two"), 180)
        pool.scale(1)
        assert pool.alive() == 1
        until(lambda: group_members(world.settings, group_of("two")) == 1, 20)
        assert pool.stop(), "nobody had to be killed"
    # The broker answers a departure before it has taken the member off its list.
    until(lambda: group_members(world.settings, group_of("two")) == 0, 20)
    world.assert_whole("two", PAGES)
