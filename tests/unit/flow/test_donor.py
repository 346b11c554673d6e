"""A generation that is rebuilt takes the vectors of another one of the same encoder."""

from __future__ import annotations

import pytest

from pipeline.flow import DocumentFlow
from schemas.generation import Generation
from tests.fakes.store import FakeStore
from tests.unit.flow.flow_world import DOCUMENT, GENERATION, Paragraphs, World, texts


class Rebuilt(World):
    """Another generation on the same store."""

    made = GENERATION.model_copy(update={"name": "g2", "state": "building", "vectors_from": "g1"})

    def __init__(self, store: FakeStore, generation: Generation | None = None, staged_above: int = 500) -> None:
        self.generation = generation or self.made
        store.ensure_generation(self.generation)
        super().__init__(store, staged_above=staged_above)

    def _flow(self) -> DocumentFlow:
        parts = Paragraphs()
        return DocumentFlow(
            store=self.store, extractor=parts, chunker=parts, bodies=self.bodies, generation=self.generation,
            clock=self.clock, staged_above=self.staged_above,
        )  # fmt: skip

    def vectors(self, generation: str) -> dict[str, list[float]]:
        """By chunk id, of both tiers."""
        held = self.store.tier(generation, "hot", "acme") | self.store.tier(generation, "cold", "acme")
        return {uid: item.vector.tolist() for uid, item in held.items() if item.vector is not None}


@pytest.mark.requirement("A6", "A9", "I7")
@pytest.mark.parametrize("staged_above", [500, 2])
def test_a_rebuild_embeds_nothing_that_the_other_generation_has(staged_above: int) -> None:
    old = World(staged_above=staged_above)
    event = old.content(10, texts("a", "b", "c", "d"))
    old.apply(event, old.rule(9, "group:eng"))
    old.flow.move(DOCUMENT, "cold", None)
    old.settle()
    new = Rebuilt(old.store, staged_above=staged_above)
    new.apply(event, new.rule(9, "group:eng"))
    assert new.embedded == [] and new.vectors("g2") == new.vectors("g1") and len(new.vectors("g2")) == 4


@pytest.mark.requirement("A6")
def test_what_the_other_generation_lacks_is_embedded() -> None:
    old = World()
    old.apply(old.content(10, texts("a", "b")))
    new = Rebuilt(old.store)
    new.apply(new.content(20, texts("b", "c"), title="renamed"))
    assert new.embedded == ["c"]


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("fault", ["never seen", "dropped", "pages lost"])
def test_a_donor_that_cannot_give_costs_time_only(fault: str) -> None:
    old = World(staged_above=1)
    if fault != "never seen":
        old.apply(old.content(10, texts("a", "b")))
    new = Rebuilt(old.store)
    if fault == "dropped":
        old.store.drop_generation("g1")
    if fault == "pages lost":
        old.store.delete_manifest_pages("g1", DOCUMENT, 10, 2)
        old.store.delete_manifest_pages("g1", DOCUMENT, 10, 1)
    new.apply(new.content(10, texts("a", "b")))
    assert sorted(new.embedded) == ["a", "b"] and len(new.vectors("g2")) == 2


@pytest.mark.requirement("I6")
def test_once_it_is_built_nobody_is_asked() -> None:
    old = World()
    old.apply(old.content(10, texts("a")))
    new = Rebuilt(old.store, Rebuilt.made.model_copy(update={"state": "active"}))
    new.apply(new.content(10, texts("a")))
    assert new.embedded == ["a"]
    assert not [c for c in old.store.trace if c.op == "read_vectors" and c.generation == "g1"]
