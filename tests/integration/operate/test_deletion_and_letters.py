"""Proofs of deletions and replays of dead letters on real Kafka and Weaviate, with two generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from pipeline.operate.letters import depth, read
from pipeline.operate.places import at_once
from pipeline.operate.replay import discard, look, replay, select
from pipeline.ports import ChunkWrite, SourceDeletion, Vectors
from query_service.deletion import Proofs
from query_service.wiring import proofs_factory
from schemas.deletion import DeletionPlace, DeletionResponse
from schemas.documents import Chunk
from schemas.keys import DocumentRef
from tests.integration.bus.conftest import Lane, lane, wait_until  # noqa: F401 (a fixture)
from tests.integration.operate.plant import NAMES, Plant
from tests.unit.query.world import ref

LONG = "\n\n".join(f"paragraph {n} about the pelican release plan and its costs" for n in range(5))


@pytest.fixture
def plant(lane: Lane) -> Iterator[Plant]:  # noqa: F811
    lane.consumer()
    made = Plant(lane)
    made.ready()
    yield made
    made.close()


def doc(name: str, tenant: str = "acme") -> DocumentRef:
    return ref(name, source="kb", tenant=tenant)


@pytest.fixture
def proofs(plant: Plant) -> Iterator[Proofs]:
    """As the query service opens them: with the read-only key."""
    assert plant.settings.weaviate.read_api_key is not None
    opened = proofs_factory(plant.settings, plant.clock)(
        lambda generation, text: plant.encoders[generation.name].embed_query(text), [lambda document, at: _none(plant)]
    )
    yield opened
    opened.close()


def _none(plant: Plant) -> DeletionPlace:
    return at_once("caches of the query service", "records kept in memory", 0, plant.clock.now())


def unclean(found: DeletionResponse) -> dict[str, int]:
    return {p.place: p.found for p in found.places if not p.clean and not p.empties_itself}


@pytest.mark.requirement("A8", "F01")
def test_a_deleted_document_is_gone_from_two_generations_and_what_is_left_behind_is_named(
    plant: Plant, proofs: Proofs
) -> None:
    secret, other = doc("plans/secret"), doc("plans/other")
    plant.say("acme", plant.page(secret, LONG), plant.page(other, LONG + " other"))
    plant.indexed(secret, lambda name: plant.texts(name, secret) == 5 and plant.texts(name, other) == 5)
    kept = {n: plant.store.read_manifests(n, "acme", [secret.uid])[secret.uid] for n in NAMES}
    vectors = plant.store.read_vectors("g2", "acme", [c.chunk_id for c in kept["g2"].chunks])
    plant.say("acme", plant.page(secret, LONG.replace("costs", "price")))
    assert plant.bodies.of_document(secret)
    plant.say("acme", SourceDeletion(secret))
    assert plant.bodies.of_document(secret) == []  # at once, with the superseded ones
    plant.indexed(secret, lambda name: plant.texts(name, secret) == -1)

    found = proofs.prover.prove("acme", secret.uid, thorough=True)
    assert unclean(found) == {}
    assert {p.place for p in found.places} >= {f"{n}/{part}" for n in NAMES for part in ("hot", "cold", "sections")}
    log = next(p for p in found.places if p.place == "log/content")
    assert log.found == 2 and log.clean_by is not None and log.clean_by > plant.clock.now()
    assert found.standing == "bounded" and found.clean_by is not None

    stray(plant, secret, kept["g2"].chunks[0].chunk_id, vectors)
    body = plant.bodies.put(secret, 17, b"left over")[0]
    named = unclean(proofs.prover.prove("acme", secret.uid))
    assert named == {"g2/cold": 1, "claim checks": 1}
    methods = [p.method for p in proofs.prover.prove("acme", secret.uid).places if p.place == "g2/cold" and p.found]
    assert methods == ["by id", "by keyword", "by vector"]
    plant.bodies.delete(body)
    plant.store.delete_chunks("g2", "acme", [kept["g2"].chunks[0].chunk_id])
    assert unclean(proofs.prover.prove("acme", secret.uid, thorough=True)) == {}
    assert all(plant.texts(name, other) == 5 for name in NAMES)


def stray(plant: Plant, document: DocumentRef, chunk_id: str, vectors: Mapping[str, Vectors]) -> None:
    """A chunk that nothing lists."""
    text = "paragraph 0 about the pelican release plan"
    chunk = Chunk(
        chunk_id=chunk_id, section_ordinal=0, ordinal=0, heading_path=(), text=text, embed_text=text,
        embed_hash="0" * 32, lexical="plan secret pelican releas plan", tokens=8,
    )  # fmt: skip
    write = ChunkWrite(
        document=document, chunk=chunk, section_id=document.uid, vector=next(iter(vectors.values())),
        content_type="text/plain", allow=("user:ann",), allow2=(),
    )  # fmt: skip
    plant.store.insert_chunks("g2", "cold", "acme", [write])


@pytest.mark.requirement("I8", "F20")
def test_a_letter_is_replayed_once_its_cause_is_mended_and_counts_no_longer(plant: Plant) -> None:
    bad, good = doc("bad"), doc("good")
    plant.say("acme", plant.page(bad, "poison in the text"), plant.page(good, "a good text"))
    plant.indexed(good, lambda name: plant.texts(name, good) == 1)
    wait_until(lambda: depth(plant.settings, plant.store).total == 2)  # one in each generation
    now = depth(plant.settings, plant.store)
    assert now.by_kind() == {"acme/kb: embed/refused": 2}
    letters = read(plant.settings, plant.store)
    seen = look(plant.settings, letters[0], body=True)
    assert seen is not None and "poison" in str(seen.body) and "poison" not in str(seen.head)

    again = replay(plant.settings, letters, requested_by="test", timeout_s=30)
    assert [r.result for r in again] == ["failed", "failed"]
    letters = read(plant.settings, plant.store)
    assert [letter.attempts for letter in letters] == [6, 6] and len(letters) == 2

    plant.encoders["g1"].refused = ""
    mended = select(letters, generation="g1")
    assert [r.result for r in replay(plant.settings, mended, requested_by="test", timeout_s=30)] == ["processed"]
    assert plant.texts("g1", bad) == 1
    (left,) = read(plant.settings, plant.store)
    assert left.newest.generation == "g2"
    discard(plant.settings, [left], by="test", reason="not needed in g2")
    assert depth(plant.settings, plant.store).total == 0

    plant.say("acme", plant.page(bad, "poison again"))
    wait_until(lambda: depth(plant.settings, plant.store).total == 1)
    plant.say("acme", plant.page(bad, "a text that works"))  # a newer event settles it by itself
    plant.indexed(bad, lambda name: plant.texts(name, bad) == 1)
    wait_until(lambda: depth(plant.settings, plant.store).total == 0)
