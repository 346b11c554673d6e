"""Builds on real services: killed, cancelled, resumed, always with the same end; documents processed again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from functools import partial

import psutil
import pytest

from consumers.index import group_of
from pipeline.bus.groups import group_members
from pipeline.errors import ConfigError
from pipeline.operate.build import BuildProgress, build
from pipeline.operate.reprocess import Selection, reprocess
from pipeline.operate.workers import environment
from schemas.topics import Topic
from tests.integration.building.conftest import World
from tests.product import until

PAGES = range(120)


def workers(of: int | None = None) -> list[psutil.Process]:
    """Bulk workers below a process."""
    found = psutil.Process(of).children(recursive=True)
    return [p for p in found if p.status() != psutil.STATUS_ZOMBIE and "--bulk" in p.cmdline()]


def halfway(now: BuildProgress) -> bool:
    """Whether some documents are embedded and some are not. Their permissions alone are applied long before."""
    content = [p for p in now.partitions if p.topic == Topic.CONTENT.value]
    return any(p.applied > p.first for p in content) and sum(p.left for p in content) > 20


@pytest.fixture
def built(world: World) -> World:
    """A log, a generation that serves, one to be built, and the control consumer."""
    world.write(PAGES)
    world.generation("one", "active")
    world.generation("two", "building")
    world.process("control")
    return world


@pytest.mark.requirement("A10", "I11", "F21")
def test_a_build_whose_workers_are_killed_and_whose_log_goes_on_ends_ready_and_whole(built: World) -> None:
    killed: list[int] = []

    def disturb(now: BuildProgress) -> None:
        if halfway(now) and not killed:
            built.write([3, 4], "second")
            built.delete(5)
            for process in workers():
                process.kill()
                killed.append(process.pid)

    result = build(built.settings, "two", workers=2, on_progress=disturb)
    assert len(killed) == 2, "it was too fast to be disturbed"
    assert result.state == "ready" and not result.stopped and result.restarts == 2 and result.progress.reached
    assert result.documents > 0 and result.chunks_embedded >= result.documents and result.dead_letters == 0
    assert not workers() and group_members(built.settings, group_of("two")) == 0
    built.process("index", "--generation", "two")
    until(lambda: built.manifests("two", [5])[5].deleted, 180, "what came while it was built is applied as well")
    until(lambda: all(m.digest for m in built.manifests("two", [3, 4]).values()), 20)
    until(lambda: len(built.store.chunk_ids_of("two", built.document(3))["hot"])
          == built.manifests("two", [3])[3].chunk_total, 20, "replaced chunks are removed")  # fmt: skip
    built.assert_whole("two", PAGES)


@pytest.mark.requirement("A10", "I11")
def test_a_build_that_is_cancelled_leaves_in_order_and_the_next_one_goes_on_where_it_was(built: World) -> None:
    stop = threading.Event()
    first = build(
        built.settings, "two", workers=1, stop=stop, on_progress=lambda now: stop.set() if halfway(now) else None
    )
    assert first.stopped and first.state == "building" and not first.progress.reached
    assert not workers() and group_members(built.settings, group_of("two")) == 0
    second = build(built.settings, "two", workers=1)
    assert second.state == "ready" and not second.stopped
    built.assert_whole("two", PAGES)
    found = built.receipts("two")
    indexed = Counter(r.document_uid for r in found if r.event_type == "content.upserted" and r.outcome == "indexed")
    assert len(indexed) == len(PAGES) and set(indexed.values()) == {1}, "nothing was done twice"
    assert first.chunks_embedded + second.chunks_embedded == sum(r.chunks_embedded for r in found)
    assert 0 < first.chunks_embedded < second.chunks_embedded + first.chunks_embedded
    third = build(built.settings, "two")
    assert third.state == "ready" and third.documents == 0 and third.seconds < 10, "there is nothing left to build"


@pytest.mark.requirement("A10", "I1", "I11", "F21")
def test_a_builder_that_is_killed_with_its_workers_is_followed_by_one_that_ends_the_same(built: World) -> None:
    script = (
        "from pipeline.settings import load\nfrom pipeline.operate.build import build\n"
        "build(load(), 'two', workers=1, on_progress=lambda now: print(now.applied, now.left, flush=True))\n"
    )
    builder = subprocess.Popen(
        [sys.executable, "-c", script], env=environment(built.settings), stdout=subprocess.PIPE, text=True
    )
    assert builder.stdout is not None
    for line in builder.stdout:
        applied, left = map(int, line.split())
        if applied and left > 20:
            break
    for process in workers(builder.pid):
        os.kill(process.pid, 9)
    builder.kill()
    builder.wait()
    assert built.store.read_generations()["two"].state == "building"
    result = build(built.settings, "two", workers=2)
    assert result.state == "ready"
    built.assert_whole("two", PAGES)


@pytest.mark.requirement("A10")
def test_a_generation_that_does_not_exist_or_is_retired_is_not_built(world: World) -> None:
    with pytest.raises(ConfigError, match="no generation nowhere"):
        build(world.settings, "nowhere")
    world.generation("two", "retired")
    with pytest.raises(ConfigError, match="retired"):
        build(world.settings, "two")


@pytest.mark.requirement("I13", "A10")
def test_documents_of_a_source_are_processed_again_with_bounded_credit(world: World) -> None:
    world.write(range(10))
    world.write(range(10, 40), source="notes")
    world.write(range(10, 12), "second", source="notes")
    world.generation("one", "active")
    world.generation("two", "standby")
    world.generation("three", "building")
    for name in ("one", "two"):
        world.process("index", "--generation", name)
    documents = [world.document(n, "notes") for n in range(10, 40)]
    uids = [d.uid for d in documents]
    for name in ("one", "two"):
        until(partial(lambda g: len(world.store.read_manifests(g, "acme", uids)) == 30, name), 180)
    torn = world.store.read_manifests("one", "acme", uids)[documents[7].uid]
    world.store.delete_chunks("one", "acme", [entry.chunk_id for entry in torn.chunks])
    seen: list[tuple[int, int | None]] = []
    result = reprocess(
        world.settings,
        Selection(source="notes"),
        credit=4,
        progress=lambda step, done, total: seen.append((done, total)),
    )
    assert (result.documents, result.failed, result.unanswered, result.stopped) == (30, 0, 0, False)
    assert set(result.generations) == {"one", "two"} and result.outcomes == {"done": 60}
    assert seen[-1] == (60, 60)
    assert world.store.chunk_ids_of("one", documents[7])["hot"] == {e.chunk_id for e in torn.chunks}, "mended"
    again = [r for r in world.receipts("one") if r.event_type == "maintenance.reprocess"]
    assert {r.document.source for r in again if r.document is not None} == {"notes"}
    one = reprocess(world.settings, Selection(document=documents[0]), generations=["two"])
    assert (one.documents, one.outcomes) == (1, {"done": 1})
    asked: list[int] = []
    halted = reprocess(
        world.settings, Selection(tenant="acme"), generations=["one"], credit=2, stop=lambda: len(asked) > 3,
        progress=lambda step, done, total: asked.append(done),
    )  # fmt: skip
    assert halted.stopped and sum(halted.outcomes.values()) < 40
    with pytest.raises(ConfigError, match="nowhere is unknown"):
        reprocess(world.settings, Selection(tenant="acme"), generations=["nowhere"])
