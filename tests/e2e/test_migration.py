"""An encoder of equal dimension replaced under changes and queries, each answer judged against what was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.bench.migration.run import NEW, OLD, PROCESSES, migrate
from infra.bench.world import World
from infra.endpoints import Endpoints
from infra.progress import Quiet


@pytest.mark.timeout(900)
@pytest.mark.requirement("A10", "A8", "B9", "I2", "I3", "I5", "I7", "F18")
def test_every_answer_is_right_while_an_encoder_is_replaced(services: Endpoints, tmp_path: Path) -> None:
    world = World(services, tmp_path / "world", PROCESSES)
    world.open(Quiet())
    try:
        found = migrate(world, documents=24, soak_s=3.0, per_s=3.0, say=print)
        left = world.store.read_generations()
    finally:
        world.close()
    line = found.line()
    print(line)
    assert found.verdict.right, found.verdict.examples
    assert found.stage.refused == []
    assert found.verdict.queries > 150 and len(found.stage.history.content) > 80, line
    assert {q.generation for q in found.stage.history.queries} == {OLD, NEW}
    assert left[NEW].state == "active" and left[OLD].state == "retired"
    freed = left[OLD].freed
    assert freed is not None and freed.documents >= 18 and freed.chunks >= 18
    assert left[OLD].encoder.dimension == left[NEW].encoder.dimension and left[OLD].encoder != left[NEW].encoder
