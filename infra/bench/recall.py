"""``search_recall``: what the graph finds of what exact search finds within a person's scope, by ``ef``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from infra.bench.corpora import prepare
from infra.bench.report import Result, at_least, rounded
from infra.bench.seeding import chunk_ids
from infra.bench.session import Session
from infra.bench.synthetic import SCOPES, TENANT, Corpus, Matrix, person, recall, scope
from infra.bench.world import World
from infra.errors import InfraError
from pipeline.index.schema import TIERS, VECTOR, Collections
from pipeline.ports import SearchFilter, Vectors
from schemas.access import EVERYONE
from schemas.documents import Tier
from schemas.generation import Generation

TARGET = 0.95
K = 10
EFS = (32, 64, 96, 128, 256, 512)
DEFAULT = "as configured"


@dataclass(frozen=True)
class Part:
    """The chunks of one tier: ids, documents, vectors (shape (n, dimension)), and which documents each scope reads."""

    ids: list[str]
    documents: list[str]
    vectors: Matrix
    readable: dict[int, np.ndarray[Any, np.dtype[np.bool_]]]

    def exact(self, query: Vectors, principals: int) -> list[str]:
        """Ids of the K nearest readable chunks."""
        near = self.vectors @ query.reshape(-1)
        near[~self.readable[principals]] = -np.inf
        order = np.argsort(-near, kind="stable")[:K]
        return [self.ids[i] for i in order if np.isfinite(near[i])]


def search_recall(session: Session) -> Iterable[Result]:
    """recall@10 of each tier's dense search in each scope, as configured and with other values of ef."""
    ready = prepare(session, "large", session.sizes.large_corpus)
    world, corpus, generation = ready.world, ready.corpus, ready.world.generation()
    encoder = session.encoder(world)
    asked = [encoder.embed_query(corpus.question(4_000_000 + n)) for n in range(session.sizes.recall_queries)]
    session.report.step("search_recall", "exact neighbours")
    parts = {tier: part(corpus, tier) for tier in TIERS}
    table: dict[str, dict[str, dict[str, float | None]]] = {tier: {} for tier in TIERS}
    for tier in TIERS:
        for ef in (None, *EFS):
            session.report.step("search_recall", f"{tier}, ef {ef or DEFAULT}")
            with configured(world, generation, tier, ef):
                found = asyncio.run(_found(world, generation, tier, parts[tier], corpus.seed, asked, _limit(world, ef)))
            table[tier][str(ef or DEFAULT)] = {
                f"{n} principals": rounded(recall(found[n], [parts[tier].exact(query, n) for query in asked]))
                for n in SCOPES
            }
    session.report.finish("search_recall")
    yield recall_result(table, corpus.chunks, len(asked))


def recall_result(table: dict[str, dict[str, dict[str, float | None]]], chunks: int, queries: int) -> Result:
    """The lowest recall of any tier and scope as configured."""
    values = [value for efs in table.values() for value in efs[DEFAULT].values() if value is not None]
    lowest = min(values, default=None)
    extra = {"vectors": "synthetic", "chunks": chunks, "n": queries, "table": table}
    return Result("search_recall", lowest, "recall@10", TARGET, lowest, at_least(lowest, TARGET), extra)


def part(corpus: Corpus, tier: Tier) -> Part:
    """One tier of the corpus, made again."""
    scopes = {count: frozenset(scope(count, corpus.seed)) for count in SCOPES}
    ids: list[str] = []
    documents: list[str] = []
    rows: list[Matrix] = []
    readable: dict[int, list[bool]] = {count: [] for count in SCOPES}
    for number in range(corpus.documents):
        made = corpus.made(number)
        if made.tier != tier:
            continue
        ids += chunk_ids(made)
        documents += [made.document.uid] * len(made.texts)
        rows.append(made.vectors)
        for count, principals in scopes.items():
            readable[count] += [not principals.isdisjoint(made.readers)] * len(made.texts)
    vectors = np.concatenate(rows) if rows else np.zeros((0, corpus.vectors.shape[1]), dtype=np.float32)
    return Part(ids, documents, vectors, {count: np.array(mask, dtype=bool) for count, mask in readable.items()})


def _limit(world: World, ef: int | None) -> int:
    """As configured the product's own depth; for the table no more than counts: a limit above ef would raise it."""
    return world.settings.query.candidates if ef is None else K


async def _found(
    world: World, generation: Generation, tier: Tier, tiers: Part, seed: int, asked: Sequence[Vectors], limit: int
) -> dict[int, list[list[str]]]:
    """Ids that the store finds first in each scope; above the product's bound unfiltered, then admitted."""
    from pipeline.index.reader import WeaviateReader

    reader = WeaviateReader(world.settings)
    found: dict[int, list[list[str]]] = {}
    readable = {
        count: {uid for uid, may in zip(tiers.ids, mask, strict=True) if may} for count, mask in tiers.readable.items()
    }
    try:
        for count in SCOPES:
            filtered = count + 2 <= world.settings.query.filter_principals
            principals = (EVERYONE, f"user:{person(count)}", *scope(count, seed))
            where = SearchFilter(allow=principals if filtered else None)
            depth = limit if filtered else 2 * max(limit, world.settings.query.candidates)
            found[count] = []
            for query in asked:
                hits = await reader.dense(generation.name, tier, TENANT, query, where, depth)
                found[count].append([h.chunk_id for h in hits if h.chunk_id in readable[count]][:K])
    finally:
        await reader.close()
    return found


@contextmanager
def configured(world: World, generation: Generation, tier: Tier, ef: int | None) -> Iterator[None]:
    """The tier's collection with another ef for the block. Raises InfraError."""
    if ef is None:
        yield
        return
    name = Collections(world.settings.namespace).tier(tier, generation.name)
    before = _set_ef(world, name, ef)
    try:
        yield
    finally:
        _set_ef(world, name, before)


def _set_ef(world: World, name: str, ef: int) -> int:
    """Set it; the value that stood there."""
    key = world.settings.weaviate.api_key
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    base = f"{world.settings.weaviate.url}/v1"
    try:
        with httpx.Client(base_url=base, headers=headers, timeout=30, trust_env=False) as client:
            said = client.get(f"/schema/{name}").raise_for_status().json()
            index = said["vectorConfig"][VECTOR]["vectorIndexConfig"]
            before, index["ef"] = int(index["ef"]), ef
            client.put(f"/schema/{name}", json=said).raise_for_status()
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise InfraError(f"ef of {name} could not be set: {error}.", "Run it again.") from error
    return before
