"""One encoder in one index: another one is refused when the lane is made, its vectors before they are written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from consumers.index import IndexLane
from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.ports import Vectors
from tests.unit.index_consumer.worker_world import SlowStub, WorkerWorld


@pytest.fixture
def world() -> Iterator[WorkerWorld]:
    made = WorkerWorld()
    yield made
    made.close()


@pytest.mark.requirement("F18", "I7")
@pytest.mark.parametrize(
    "change",
    [
        {"model": "another/model"}, {"revision": "1"}, {"weights_sha256": "0" * 64}, {"pooling": "cls"},
        {"document_instruction": "passage: "}, {"dimension": 9},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_another_encoder_of_the_same_dimension_is_refused_before_anything_is_read(
    world: WorkerWorld, change: dict[str, object]
) -> None:
    other = SlowStub()
    other.spec = other.spec.model_copy(update=change)
    with pytest.raises(ConfigError, match="g1 is written with"):
        IndexLane(
            settings=world.settings, flow=world.lane.workers.flow, embedder=other, publisher=world.log,
            rechecks=world.rechecks, fetch=lambda partition, offset: None, clock=world.clock, metrics=Metrics(),
        )  # fmt: skip


@pytest.mark.requirement("F18")
def test_a_vector_of_another_dimension_is_a_dead_letter_that_says_so_and_nothing_is_written(world: WorkerWorld) -> None:
    right = world.encoder.embed_documents

    def longer(texts: list[str]) -> Vectors:
        rows = np.ones((len(texts), world.encoder.spec.dimension + 1), dtype=np.float32)
        unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    world.encoder.embed_documents = longer  # type: ignore[assignment,method-assign]
    world.page("a", 10, "one\n\ntwo")
    world.settle()
    (letter,) = world.log.letters()
    assert (letter.stage, letter.error_kind) == ("index", "vector_dimension")
    assert "shape (9,)" in letter.reason and "dimension 8" in letter.reason
    assert world.store.tier("g1", "hot", "acme") == {} and world.manifest("a") is None
    world.encoder.embed_documents = right  # type: ignore[method-assign]
    world.page("a", 20, "one\n\ntwo")
    world.settle()
    assert world.texts("a") == {"one", "two"}
