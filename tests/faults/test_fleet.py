"""The fleet of index consumers: its death, its children's, and the consumers of generations that come and go."""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest

from consumers.priority import LOW
from infra.state import Store
from pipeline.index.store import WeaviateStore
from pipeline.operate.build import build
from pipeline.operate.control import send
from tests.product import Product, until


def page(product: Product) -> dict[str, Any]:
    """The fleet's health page; {} while it does not answer."""
    port = Store(product.supervisor.state_dir).state().ports["health_index"]
    try:
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).json()
    except httpx.HTTPError:
        return {}
    return found


def consumer(product: Product, generation: str) -> int | None:
    """Pid of a generation's consumer that answers, and is not being replaced."""
    told = page(product).get("consumers", {}).get(generation)
    well = told is not None and told["page"] is not None and told["replaced_by"] is None
    return int(told["pid"]) if told is not None and well else None


def served_first(product: Product, generation: str) -> bool:
    """Whether every thread of the generation's consumer has normal priority."""
    pid = consumer(product, generation)
    return pid is not None and {
        os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")
    } == {0}


def found(product: Product, word: str) -> bool:
    return bool(product.found("ann", word, mode="sparse"))


def write(product: Product) -> str:
    """A new page; the word that finds it."""
    word = f"w{uuid4().hex[:10]}"
    product.write(f"{word}.md", f"# Page\n\nThe word {word}.\n")
    return word


@pytest.mark.requirement("I8", "I11", "F21")
def test_a_killed_fleet_leaves_no_consumer_behind_and_a_new_one_takes_over(product: Product) -> None:
    name = product.settings.generation
    before = until(lambda: consumer(product, name), 120)
    product.kill("index")
    until(lambda: not psutil.pid_exists(before), 15, "the consumer leaves without its fleet")
    word = write(product)
    product.start("index")
    until(lambda: found(product, word), 120, "the new fleet's consumer goes on")
    assert consumer(product, name) not in (None, before)


@pytest.mark.requirement("I8", "I11", "F21")
def test_a_killed_consumer_is_replaced_by_its_fleet(product: Product) -> None:
    name = product.settings.generation
    before = until(lambda: consumer(product, name), 120)
    os.kill(before, 9)
    word = write(product)
    until(lambda: consumer(product, name) not in (None, before), 180)
    until(lambda: found(product, word), 120)
    told = page(product)["consumers"][name]
    assert told["last_end"] == "signal 9" and told["starts"] >= 2


@pytest.mark.requirement("A10", "I7", "D4")
def test_a_second_generation_is_built_kept_up_served_and_retired_under_changes(product: Product) -> None:
    first, second = product.settings.generation, "second"
    word = write(product)
    until(lambda: found(product, word), 120)
    send(product.settings, "create", second, requested_by="test")
    assert consumer(product, second) is None, "a building generation is its build's affair"
    assert build(product.settings, second, workers=1).state == "ready"
    low = until(lambda: consumer(product, second), 180, "the fleet keeps it up")
    assert {os.getpriority(os.PRIO_PROCESS, int(t)) for t in os.listdir(f"/proc/{low}/task")} == {LOW}
    send(product.settings, "activate", second, requested_by="test", override="a test of the fleet")
    until(lambda: served_first(product, second), 180, "its consumer is raised, or one of normal priority replaces it")
    normal = consumer(product, second)
    if normal != low:  # raising was not permitted
        until(lambda: not psutil.pid_exists(low), 60)
    word = write(product)
    until(lambda: found(product, word), 120, "changes go to the generation that serves now")
    store = WeaviateStore(product.settings)
    try:
        until(lambda: behind(store, first) == behind(store, second) == 0, 120, "and to the one that stands by")
        old = until(lambda: consumer(product, first), 120)
        send(product.settings, "retire", first, requested_by="test")
        began = time.monotonic()
        until(lambda: not psutil.pid_exists(old), 20, "the retired generation's consumer leaves")
        assert time.monotonic() - began < 15
        assert page(product)["state"] == "running" and set(page(product)["consumers"]) == {second}
    finally:
        store.close()
    word = write(product)
    until(lambda: found(product, word), 120)


def behind(store: WeaviateStore, generation: str) -> int:
    """Records that the generation has not applied, as its consumer saw the log."""
    return sum(
        max(0, p.end_offset - p.offset)
        for topic in ("content", "access")
        for p in store.read_progress("index", generation, topic).values()
    )
