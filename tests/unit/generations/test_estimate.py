"""What a generation will take, before it is made (E6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.generations import Declaration, declared
from pipeline.operate import sizing
from pipeline.operate.estimate import Held, freed, held, planned
from pipeline.settings import EndpointSettings, Settings
from schemas.generation import BackendChoice
from tests.unit.generations.support import generation
from tests.unit.query.world import World

BACKEND = BackendChoice(name="torch-fp32", agreement=1.0, chunks_per_second=20.0)
ACTIVE = generation("g1", "active")


@pytest.mark.requirement("E6")
def test_minutes_come_from_the_measured_speed_and_chunks_from_what_serves() -> None:
    found = Held(tenants=2, documents=300, hot=200, cold=1000)
    expected = planned(Settings(), Declaration(), BACKEND, active=ACTIVE, found=found, logged=900)
    assert (expected.documents, expected.chunks, expected.basis) == (300, 1200, "counted in g1")
    assert expected.minutes == 1.0 and expected.tokens == 1200 * 200
    assert (expected.money, expected.currency) == (0.0, "EUR")
    assert expected.open_files == 66
    needed = sizing.estimate(1200, 384)
    assert (expected.index_memory_bytes, expected.index_disk_bytes) == (needed.memory, needed.disk)


@pytest.mark.requirement("E6")
def test_smaller_chunks_are_more_and_larger_vectors_take_more() -> None:
    found = Held(tenants=1, documents=300, hot=0, cold=1200)
    wanted = declared(
        {
            "encoder": {"dimension": 768},
            "chunking": {"child_tokens": 100, "child_min_tokens": 64, "child_max_tokens": 128},
        }
    )
    expected = planned(Settings(), wanted, BACKEND, active=ACTIVE, found=found, logged=0)
    assert expected.chunks == 2400 and expected.tokens == 240_000 and expected.minutes == 2.0
    assert expected.index_disk_bytes == sizing.estimate(2400, 768).disk


@pytest.mark.requirement("E6")
def test_an_endpoint_costs_money() -> None:
    wanted = declared({"encoder": {"provider": "openai", "endpoint": "corp", "weights_sha256": "", "dimension": 1536}})
    prices = EndpointSettings(url="https://host/v1", price_per_million_tokens=0.5, currency="USD")
    expected = planned(
        Settings(endpoints={"corp": prices}), wanted, BACKEND, active=ACTIVE,
        found=Held(1, 10_000, 0, 100_000), logged=0,
    )  # fmt: skip
    assert (expected.money, expected.currency) == (10.0, "USD")  # 20 million tokens


@pytest.mark.requirement("E6")
def test_without_an_index_the_log_is_the_bound() -> None:
    slow = BackendChoice(name="stub", agreement=1.0)
    for active, found in ((None, None), (ACTIVE, Held(0, 0, 0, 0))):
        expected = planned(Settings(), Declaration(), slow, active=active, found=found, logged=50)
        assert (expected.documents, expected.chunks) == (50, 50 * sizing.CHUNKS_PER_DOCUMENT)
        assert expected.minutes is None and "log" in expected.basis


@pytest.mark.requirement("E6")
def test_what_stands_is_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.document("a", "one", "two")
    world.document("b", "three", tier="cold")
    world.document("gone", deleted=True)
    assert held(world.store, "g1") == Held(tenants=1, documents=2, hot=2, cold=1)
    found = freed(world.store, world.store.read_generations()["g1"])
    index = world.store.read_generations()["g1"].index
    assert (found.documents, found.chunks) == (2, 3)
    assert found.bytes == sizing.estimate(3, world.spec.dimension, index=index, hot=2).disk > 0
