"""kill -9 at each step of a move between the tiers: a reader meets the whole document all the time (A9)."""

from __future__ import annotations

import signal
import time
from uuid import uuid4

import pytest

from pipeline.bus.producer import KafkaPublisher
from pipeline.index.store import WeaviateStore
from pipeline.ports import Outgoing
from schemas.documents import Manifest
from schemas.events import MaintenanceCommand
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.faults.conftest import Dying
from tests.faults.test_kill import OLD, page, seen
from tests.product import Product, until


@pytest.mark.requirement("A9", "I1", "I2", "I11")
@pytest.mark.parametrize("point", ["copied", "manifest", "removed"])
def test_a_move_killed_at_a_step_is_finished_by_the_next_owner(product: Product, dying: Dying, point: str) -> None:
    name = f"m{uuid4().hex[:8]}"
    document = DocumentRef(tenant="acme", source="wiki", id=f"{name}.md")
    product.start("index")
    product.write(f"{name}.md", page(name, OLD))
    until(lambda: seen(product, name) == {OLD}, 40)
    product.signal("index", signal.SIGTERM)
    until(lambda: not product.supervisor.managed("index").alive(), 30)
    process = dying("index", "kill", point)
    process.opened()
    process.arm()
    command = MaintenanceCommand(
        type="move", document=document, tier="cold", requested_at=time.time_ns() // 1000, priority="live"
    )
    publisher = KafkaPublisher(product.settings, "test")
    publisher.publish([Outgoing(str(Topic.MAINTENANCE), document.key, command.model_dump_json().encode())])
    publisher.close()

    def killed() -> bool:
        assert seen(product, name) == {OLD}
        return process.process.poll() is not None

    until(killed, 40, f"killed at {point}")
    assert seen(product, name) == {OLD}
    product.start("index")
    store = WeaviateStore(product.settings)
    generation = store.active_generation()
    assert generation is not None

    def stands() -> tuple[Manifest, set[str], set[str]]:
        ids = store.chunk_ids_of(generation, document)
        return store.read_manifests(generation, "acme", [document.uid])[document.uid], ids["hot"], ids["cold"]

    def finished() -> bool:
        assert seen(product, name) == {OLD}
        manifest, hot, cold = stands()
        return not hot and manifest.moving is None and cold == {c.chunk_id for c in manifest.chunks}

    until(finished, 60, "the move is finished")
    store.close()
