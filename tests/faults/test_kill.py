"""kill -9 at each step of the commit order, then convergence (invariants 1, 2, 8, 11)."""

from __future__ import annotations

import signal
import time
from uuid import uuid4

import pytest
from kafka import KafkaProducer

from schemas.topics import Topic
from tests.faults.conftest import Dying
from tests.product import Product, until

OLD, NEW = "oldword", "newword"


def page(name: str, word: str) -> str:
    return "\n\n".join([f"# Page {name}", f"## One\n\nFirst {word} {name}.", f"## Two\n\nSecond {word} {name}."])


def seen(product: Product, name: str) -> set[str]:
    """Which versions of the page a reader meets: never both, never half of one."""
    hits = [h for h in product.hits("ann", name, mode="sparse") if h["path"] == f"{name}.md"]
    words = {w for w in (OLD, NEW) for h in hits if w in h["text"]}
    assert len(words) <= 1, "old and new text in one answer"
    if hits:
        assert len(hits) == hits[0]["chunk_total"], "a version is whole"
    return words


@pytest.mark.requirement("I1", "I2", "I11", "F21")
@pytest.mark.parametrize("point", ["sections", "chunks", "manifest", "removed", "write"])
def test_kill_at_a_step_leaves_old_or_new_and_the_next_owner_finishes(
    product: Product, dying: Dying, point: str
) -> None:
    name = f"k{uuid4().hex[:8]}"
    product.start("index")
    product.write(f"{name}.md", page(name, OLD))
    until(lambda: seen(product, name) == {OLD}, 20)
    product.signal("index", signal.SIGTERM)
    until(lambda: not product.supervisor.managed("index").alive(), 15)
    process = dying("index", "kill", point)
    process.opened()
    process.arm()
    product.write(f"{name}.md", page(name, NEW))
    until(lambda: process.process.poll() is not None, 20, f"killed at {point}")
    assert seen(product, name) <= {OLD, NEW} and seen(product, name)
    product.start("index")
    until(lambda: seen(product, name) == {NEW}, 30, "the next owner finishes")
    time.sleep(1.5)
    assert seen(product, name) == {NEW}


@pytest.mark.requirement("I1", "I3", "I11")
def test_an_index_consumer_stopped_between_check_and_send_does_no_harm_when_it_wakes(
    product: Product, dying: Dying
) -> None:
    name = f"s{uuid4().hex[:8]}"
    product.start("index")
    product.write(f"{name}.md", page(name, OLD))
    until(lambda: seen(product, name) == {OLD}, 20)
    product.signal("index", signal.SIGTERM)
    until(lambda: not product.supervisor.managed("index").alive(), 15)
    zombie = dying("index", "stop", "write")
    zombie.opened()
    zombie.arm()
    product.write(f"{name}.md", page(name, f"{OLD} {OLD}"))
    until(zombie.acted, 20, "stopped between check and send")
    product.start("index")
    product.write(f"{name}.md", page(name, NEW))
    until(lambda: seen(product, name) == {NEW}, 40, "the new owner waits one lease and goes on")
    zombie.process.send_signal(signal.SIGCONT)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert seen(product, name) in ({NEW}, set())
        time.sleep(0.2)
    until(lambda: seen(product, name) == {NEW}, 20, "what the late write overwrote is restored")
    assert "recheck" in zombie.log.read_text() or "lease" in zombie.log.read_text()


@pytest.mark.requirement("I1", "I3", "I4", "A8")
def test_an_access_consumer_stopped_between_check_and_send_undoes_no_revocation(product: Product, dying: Dying) -> None:
    name = f"a{uuid4().hex[:8]}"
    product.start("index")
    product.access(name, "user:bob")
    product.write(f"{name}/p.md", f"# Page\n\nThe word {name}.\n")
    until(lambda: f"{name}/p.md" in product.found("bob", name), 20)
    product.signal("access", signal.SIGTERM)
    until(lambda: not product.supervisor.managed("access").alive(), 15)
    zombie = dying("access", "stop", "write")
    zombie.opened()
    zombie.arm()
    # a grant to others that the zombie has read and holds in its hand, then a revocation that it never reads
    product.access(name, "user:bob", "user:ann")
    until(zombie.acted, 20, "stopped between check and send")
    product.start("access")
    product.access(name, "user:nobody-here")
    people = ("ann", "bob")
    until(lambda: not any(product.found(u, name, mode="sparse") for u in people), 30, "revoked by the new owner")
    zombie.process.send_signal(signal.SIGCONT)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert not product.found("bob", name, mode="sparse") and not product.found("ann", name, mode="sparse")
        time.sleep(0.1)


@pytest.mark.requirement("I8", "I11")
def test_killed_owner_gateway_and_query_service_come_back_and_miss_nothing(product: Product) -> None:
    name = f"o{uuid4().hex[:8]}"
    product.start("index")
    product.start("access")
    for victim in ("owner", "query"):
        product.kill(victim)
    product.write(f"{name}.md", page(name, NEW))
    (product.folder / "index.md").write_text(f"# Start\n\nChanged while nobody looked: {name}.\n")
    for victim in ("owner", "query"):
        product.start(victim)
    product.ready()
    until(lambda: seen(product, name) == {NEW}, 30)
    until(lambda: "index.md" in {h["path"] for h in product.hits("ann", name, mode="sparse")}, 30)


@pytest.mark.requirement("I9", "A8", "D5")
def test_a_source_that_dies_inside_its_transaction_holds_up_no_revocation(product: Product) -> None:
    name = f"t{uuid4().hex[:8]}"
    member = {"type": "membership", "tenant": "acme", "principal": "user:bob", "parents": []}
    page_ = {
        "type": "upsert", "tenant": "acme", "id": name, "title": name, "text": f"The word {name}.",
        "access": {"allow": ["user:bob"]},
    }  # fmt: skip
    token = product.change(member, page_).json()["token"]
    assert product.ask("bob", name, after=token, wait_ms=10_000).json()["hits"]
    kafka = product.settings.kafka
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=f"dying-{name}", transaction_timeout_ms=30_000
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(kafka.partitions):
            for topic in (Topic.ACCESS, Topic.CONTENT, Topic.MEMBERSHIP):
                producer.send(topic.physical(product.settings.namespace), b"{}", b"unfinished", partition=partition)
        producer.flush()  # and now its process hangs: neither commit nor abort
        started = time.monotonic()
        rule = {"type": "access", "tenant": "acme", "id": name, "access": {"allow": ["user:ann"]}}
        assert product.change(rule, wait="applied").status_code == 200
        assert time.monotonic() - started < 3
        assert not product.found("bob", name, mode="sparse")
    finally:
        producer.abort_transaction()
        producer.close()
