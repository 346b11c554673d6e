"""What a generation holds, and what a planned one will take before it is made (E6)."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.generations import Declaration
from pipeline.operate import sizing
from pipeline.ports import IndexStore, ProgressBar
from pipeline.settings import Settings
from schemas.generation import BackendChoice, Freed, Generation

TENANT_COLLECTION_FILES = 11  # open files of one tenant in one collection, at most (measured: 21-44 in four)
GENERATION_COLLECTIONS = 3  # hot, cold, records


@dataclass(frozen=True)
class Held:
    """What stands in a generation's collections, all tenants. ``documents`` are those that are not deleted."""

    tenants: int
    documents: int
    hot: int
    cold: int

    @property
    def chunks(self) -> int:
        """In both tiers."""
        return self.hot + self.cold


@dataclass(frozen=True)
class BackfillEstimate:
    """What a planned generation will take. ``basis`` says where documents and chunks were counted.

    ``minutes`` are of one worker on an idle machine like this one; live work goes first, so it may take longer.
    """

    documents: int
    chunks: int
    tokens: int
    basis: str
    backend: str
    chunks_per_second: float
    minutes: float | None  # None where the encoder's speed is not known
    money: float
    currency: str
    open_files: int
    index_memory_bytes: int
    index_disk_bytes: int


def held(store: IndexStore, generation: str, progress: ProgressBar | None = None) -> Held:
    """Count what stands. Walks all manifests: about 10,000 a second. Raises StoreUnavailable."""
    documents = hot = cold = 0
    tenants = sorted(store.tenants(generation))
    for number, tenant in enumerate(tenants):
        if progress is not None:
            progress("counting", number, len(tenants))
        documents += sum(1 for manifest in store.walk_manifests(generation, tenant) if not manifest.deleted)
        counts = store.count_chunks(generation, tenant)
        hot, cold = hot + counts["hot"], cold + counts["cold"]
    return Held(len(tenants), documents, hot, cold)


def freed(store: IndexStore, generation: Generation) -> Freed:
    """What dropping the generation's collections will give back; the bytes by arithmetic. Raises StoreUnavailable."""
    found = held(store, generation.name)
    needed = sizing.estimate(found.chunks, generation.encoder.dimension, index=generation.index, hot=found.hot)
    return Freed(documents=found.documents, chunks=found.chunks, bytes=needed.disk)


def planned(
    settings: Settings,
    wanted: Declaration,
    backend: BackendChoice,
    *,
    active: Generation | None,
    found: Held | None,
    logged: int,
) -> BackfillEstimate:
    """Documents, chunks, minutes, money, memory and disk of a generation that is about to be made. Pure.

    Args:
        backend: the outcome of the encoder's trial, with its speed.
        active: the generation that serves, and ``found`` what it holds; None where there is none.
        logged: content records on the log, an upper bound of its documents.
    """
    if active is not None and found is not None and found.documents:
        documents = found.documents
        chunks = round(found.chunks * active.chunking.child_tokens / wanted.chunking.child_tokens)
        basis, tenants = f"counted in {active.name}", found.tenants
    else:
        documents, chunks, tenants = logged, logged * sizing.CHUNKS_PER_DOCUMENT, 1
        basis = "content records on the log, older versions included"
    tokens = chunks * wanted.chunking.child_tokens
    endpoint = settings.endpoints.get(wanted.encoder.endpoint)
    price = endpoint.price_per_million_tokens if endpoint is not None else 0.0
    needed = sizing.estimate(chunks, wanted.encoder.dimension, index=wanted.index)
    speed = backend.chunks_per_second
    return BackfillEstimate(
        documents=documents,
        chunks=chunks,
        tokens=tokens,
        basis=basis,
        backend=backend.name,
        chunks_per_second=round(speed, 1),
        minutes=round(chunks / speed / 60, 1) if speed > 0 else None,
        money=round(tokens / 1_000_000 * price, 2),
        currency=endpoint.currency if endpoint is not None else "EUR",
        open_files=tenants * GENERATION_COLLECTIONS * TENANT_COLLECTION_FILES,
        index_memory_bytes=needed.memory,
        index_disk_bytes=needed.disk,
    )


def estimate(
    settings: Settings, wanted: Declaration, *, progress: ProgressBar | None = None
) -> BackfillEstimate:  # fmt: skip
    """``planned`` on what the log and the active generation hold now.

    Tries the encoder's backends where this machine has not (seconds to minutes). Raises ConfigError,
    StoreUnavailable, BusUnavailable.
    """
    from pipeline.bootstrap import choose_backend
    from pipeline.bus.groups import log_ends
    from pipeline.index.store import WeaviateStore
    from schemas.topics import Topic

    if progress is not None:
        progress("encoder trial", 0, None)
    backend = choose_backend(settings, wanted.encoder)
    begin, end = log_ends(settings, [Topic.CONTENT])
    store = WeaviateStore(settings)
    try:
        name = store.active_generation()
        active = store.read_generations().get(name) if name is not None else None
        found = held(store, active.name, progress) if active is not None else None
    finally:
        store.close()
    logged = sum(end[slot] - begin[slot] for slot in end)
    return planned(settings, wanted, backend, active=active, found=found, logged=logged)
