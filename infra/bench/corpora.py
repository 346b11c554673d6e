"""The synthetic corpora: passages embedded once, collections written once, both kept between runs while they fit."""

from __future__ import annotations

import hashlib
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import pipeline.index.schema
import schemas.documents
from infra.bench import pages, synthetic
from infra.bench.alone import texts_of
from infra.bench.seeding import seed
from infra.bench.session import SEARCH, Session
from infra.bench.synthetic import CHUNKS, TENANT, Corpus
from infra.bench.world import World
from infra.files import write_atomic
from infra.golden_world import erase
from pipeline.clock import SystemClock
from schemas.generation import Generation

PAGES = 350  # documents that the passages are cut from


@dataclass(frozen=True)
class Prepared:
    """A corpus that is ready to be searched."""

    world: World
    corpus: Corpus
    setup_s: float
    cached: bool


def prepare(session: Session, name: str, chunks: int) -> Prepared:
    """The corpus of this name in its own kept namespace, written now unless it stands there as it would be written.

    Raises InfraError or StoreUnavailable.
    """
    begun = time.monotonic()
    world = session.world(name, lambda: _world(session, name))
    generation = world.generation()
    passages, vectors = embedded(session, world, generation)
    corpus = Corpus(passages, vectors, documents=max(1, chunks // CHUNKS))
    wanted = fingerprint(corpus, generation)
    if _stands(world, generation, corpus, _mark(session, name), wanted):
        return Prepared(world, corpus, time.monotonic() - begun, True)
    spoil(session, name)
    if _holds_something(world, generation):
        session.close_world()
        erase(world.settings)
        world = session.world(name, lambda: _world(session, name))
        generation = world.generation()
    step = f"corpus {name}"
    seed(world.store, generation, SystemClock(), corpus, lambda done, all_: session.progress(step, done, all_))
    session.report.finish(step, f"{corpus.chunks} chunks")
    write_atomic(_mark(session, name), json.dumps({"fingerprint": wanted}).encode())
    return Prepared(world, corpus, time.monotonic() - begun, False)


def spoil(session: Session, name: str) -> None:
    """The corpus is about to be changed: the next run writes it anew."""
    _mark(session, name).unlink(missing_ok=True)


def _mark(session: Session, name: str) -> Path:
    return session.folder / f"corpus-{name}.json"


def _world(session: Session, name: str) -> World:
    """The index consumer starts only where a benchmark asks for it."""
    processes = (*SEARCH, "index") if name == "small" else SEARCH
    return World(
        session.endpoints, session.folder / "kept" / name, processes, namespace=f"bench-{name}",
        idle=("index",) if name == "small" else (),
    )  # fmt: skip


def fingerprint(corpus: Corpus, generation: Generation) -> str:
    """Of everything that decides what is written and how."""
    digest = hashlib.sha256()
    for module in (pipeline.index.schema, schemas.documents, synthetic):
        digest.update(Path(str(module.__file__)).read_bytes())
    parts = [
        synthetic.REVISION, corpus.documents, corpus.seed, generation.encoder.model_dump_json(),
        generation.index.model_dump_json(), generation.backend.name,
    ]  # fmt: skip
    digest.update(json.dumps(parts).encode())
    digest.update(corpus.vectors.tobytes())
    digest.update("\x00".join(corpus.passages).encode())
    return digest.hexdigest()


def _stands(world: World, generation: Generation, corpus: Corpus, mark: Path, wanted: str) -> bool:
    try:
        said = json.loads(mark.read_text(encoding="utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return said == wanted and sum(world.store.count_chunks(generation.name, TENANT).values()) == corpus.chunks


def _holds_something(world: World, generation: Generation) -> bool:
    return any(world.store.count_chunks(generation.name, TENANT).values())


def embedded(session: Session, world: World, generation: Generation) -> tuple[list[str], synthetic.Matrix]:
    """Passages of real pages as the chunker cuts them, with their vectors; embedded once and remembered."""
    encoder = f"{generation.encoder.model_dump_json()} {generation.backend.name}"
    if encoder not in session.passages:
        session.passages[encoder] = _embed(session, world, generation, encoder)
    return session.passages[encoder]


def _embed(session: Session, world: World, generation: Generation, encoder: str) -> tuple[list[str], synthetic.Matrix]:
    from pipeline.bootstrap import build_flow
    from pipeline.extract import BlockExtractor

    session.report.step("passages", "cutting")
    flow = build_flow(world.settings, generation, world.store, SystemClock(), BlockExtractor())
    lines = [json.dumps(asdict(page)) for page in pages.documents(min(PAGES, session.sizes.passages))]
    found = sorted(set(texts_of(lines, flow.extractor, flow.chunker)))
    random.Random(47).shuffle(found)
    texts = found[: session.sizes.passages]
    name = hashlib.sha256(json.dumps([encoder, *texts]).encode()).hexdigest()[:16]
    file = session.folder / f"passages-{name}.npy"
    if file.is_file():
        vectors = np.load(file)
    else:
        session.report.step("passages", "embedding")
        vectors = session.encoder(world).embed_documents(texts)
        for old in session.folder.glob("passages-*.npy"):
            old.unlink()
        np.save(file, vectors)
    session.report.finish("passages", f"{len(texts)}")
    return texts, vectors
