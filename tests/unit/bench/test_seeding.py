"""The corpus through the real flow, on the store in memory: what stands there is what was made."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from infra.bench import seeding
from infra.bench.recall import Part, part
from infra.bench.seeding import chunk_ids, seed
from infra.bench.synthetic import CHUNKS, SCOPES, TENANT, Corpus, person, principal, scope, unit
from pipeline.clock import ManualClock
from pipeline.errors import StoreUnavailable
from pipeline.ports import SearchFilter
from schemas.access import EVERYONE
from schemas.documents import Tier
from schemas.generation import BackendChoice, EncoderSpec, Generation
from tests.fakes.store import FakeStore

DIMENSION = 16
GENERATION = Generation(
    name="g1", state="active", encoder=EncoderSpec(dimension=DIMENSION), created_at=1,
    backend=BackendChoice(name="stub", agreement=1.0),
)  # fmt: skip
DOCUMENTS = 130


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """More documents than are written together."""
    drawn = np.random.default_rng(5)
    vectors = unit(drawn.standard_normal((20, DIMENSION)).astype(np.float32))
    passages = [" ".join(f"w{int(n)}" for n in drawn.integers(300, size=40)) for _ in range(20)]
    return Corpus(passages, vectors, documents=DOCUMENTS)


@pytest.fixture(scope="module")
def store(corpus: Corpus) -> FakeStore:
    """The corpus written once."""
    made = FakeStore()
    made.ensure_base()
    made.ensure_generation(GENERATION)
    said: list[tuple[int, int]] = []
    seed(made, GENERATION, ManualClock(), corpus, lambda done, total: said.append((done, total)))
    assert said[-1] == (DOCUMENTS, DOCUMENTS)
    return made


@pytest.mark.requirement("D1")
def test_every_chunk_stands_in_its_tier_with_its_own_vector(corpus: Corpus, store: FakeStore) -> None:
    counted = store.count_chunks("g1", TENANT)
    assert counted == {"hot": DOCUMENTS // 5 * CHUNKS, "cold": DOCUMENTS // 5 * 4 * CHUNKS}
    for number in (0, 1, DOCUMENTS - 1):
        made = corpus.made(number)
        ids = chunk_ids(made)
        manifest = store.read_manifests("g1", TENANT, [made.document.uid])[made.document.uid]
        assert [entry.chunk_id for entry in manifest.chunks] == ids
        assert manifest.tier == made.tier
        assert store.chunk_ids_of("g1", made.document)[made.tier] == set(ids)
        stored = store.read_vectors("g1", TENANT, ids)
        assert np.allclose([stored[i] for i in ids], made.vectors, atol=1e-6)


@pytest.mark.requirement("D1")
def test_readers_admit_and_filter(corpus: Corpus, store: FakeStore) -> None:
    made = corpus.made(7)
    record = store.read_access(TENANT, [made.document.uid])[made.document.uid]
    manifest = store.read_manifests("g1", TENANT, [made.document.uid])[made.document.uid]
    assert record.rule == manifest.rule
    assert set(manifest.allow) == set(made.readers)
    assert record.version >= manifest.access_version
    assert manifest.content_version >= record.content_version


def test_people_are_members_of_their_scope(corpus: Corpus, store: FakeStore) -> None:
    found = store.read_principals(TENANT, [f"user:{person(count)}" for count in SCOPES] + [principal(17)])
    for count in SCOPES:
        assert set(found[f"user:{person(count)}"].parents) == set(scope(count, corpus.seed))
    assert not found[principal(17)].removed


def test_writing_again_changes_nothing(corpus: Corpus, store: FakeStore) -> None:
    before = store.count_chunks("g1", TENANT)
    seed(store, GENERATION, ManualClock(), corpus, lambda done, total: None)
    assert store.count_chunks("g1", TENANT) == before


@pytest.mark.requirement("D1")
def test_what_the_store_did_not_acknowledge_is_written_again_with_its_vectors(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeding, "PAUSE_S", 0.0)
    store = FakeStore()
    store.ensure_base()
    store.ensure_generation(GENERATION)
    store.fail_next("insert_chunks", torn=True, skip=2)
    seeding.Seeder(store, GENERATION, ManualClock()).write([corpus.made(number) for number in range(6)])
    for number in range(6):
        ids = chunk_ids(corpus.made(number))
        assert set(store.read_vectors("g1", TENANT, ids)) == set(ids)
    store.fail_next("write_access", n=9)
    with pytest.raises(StoreUnavailable):
        seeding.Seeder(store, GENERATION, ManualClock()).write([corpus.made(7)])


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("count", [100, 1_000])
def test_exact_neighbours_are_those_of_an_exact_search_in_scope(corpus: Corpus, store: FakeStore, count: int) -> None:
    tiers: tuple[Tier, Tier] = ("hot", "cold")
    query = unit(np.random.default_rng(9).standard_normal((1, DIMENSION)).astype(np.float32))
    allow = (EVERYONE, f"user:{person(count)}", *scope(count, corpus.seed))
    for tier in tiers:
        found = asyncio.run(store.reader().dense("g1", tier, TENANT, query, SearchFilter(allow=allow), 10))
        assert [hit.chunk_id for hit in found] == part(corpus, tier).exact(query, count)


def test_nobody_finds_nothing() -> None:
    nothing = Part(["a"], ["d"], np.ones((1, DIMENSION), dtype=np.float32), {1: np.array([False])})
    assert nothing.exact(np.ones((1, DIMENSION), dtype=np.float32), 1) == []
