"""``ranking_10k``, ``ranking_100k``: what each stage costs by way of reranking, D1 and D2, and many clients at once."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping

from infra.bench.corpora import Prepared, prepare
from infra.bench.ranking.flood import Flooded, flood
from infra.bench.ranking.sizes import sizes_of
from infra.bench.report import Result, at_most, percentile, quotient, rounded
from infra.bench.search import Asked, Table, begin_backfill, through_http, worst
from infra.bench.session import Session
from infra.bench.synthetic import TENANT
from infra.golden_world import erase
from schemas.api_ranking import RerankMode

WAYS: tuple[RerankMode, ...] = ("off", "fast", "full")
BUSY_SCOPES = (10, 1_000)
BUSY_FACTOR = 2.0
TARGETS: Mapping[tuple[str, RerankMode, int], float] = {
    ("D1", "off", 1): 50.0,
    ("D1", "off", 4): 120.0,
    ("D1", "fast", 1): 200.0,
    ("D1", "full", 1): 1000.0,
    ("D2", "off", 1): 50.0,
    ("D2", "fast", 1): 150.0,
}
"""Largest p95 of the whole search in milliseconds, by requirement, way of reranking and number of clients."""


def ranking_10k(session: Session) -> Iterable[Result]:
    """The small corpus, calm and under a backfill."""
    bench, sizes = "ranking_10k", sizes_of(session)
    ready = prepare(session, "small", session.sizes.small_corpus)
    calm = yield from _calm(session, bench, ready)
    documents = begin_backfill(session, ready, sizes.backfill_documents)
    busy = through_http(
        ready.world, ready.corpus, sizes.off, session, clients=(1,), scopes=BUSY_SCOPES, first=6_000_000
    )
    before = {key: asked for key, asked in calm.items() if key[1] in BUSY_SCOPES}
    crowd = _flooded(session, ready, first=7_000_000)
    left = documents - ready.world.receipts.count(TENANT, "index.content")
    session.close_world()
    erase(ready.world.settings)  # a corpus with half a backfill in it is of no use
    during, ratio = worst(busy, 1), quotient(worst(busy, 1), worst(before, 1))
    yield Result(
        bench, during, "ms", BUSY_FACTOR, ratio, at_most(ratio, BUSY_FACTOR) and left > 0,
        extra={"verdict": "D1", "rerank": "off", "under": "backfill", "left_at_end": left, **_facts(ready)},
    )  # fmt: skip
    yield flood_result(bench, crowd, ready, under="backfill", left=left)


def ranking_100k(session: Session) -> Iterable[Result]:
    """The large corpus."""
    ready = prepare(session, "large", session.sizes.large_corpus)
    yield from _calm(session, "ranking_100k", ready)


def _calm(session: Session, bench: str, ready: Prepared) -> Generator[Result, None, Table]:
    """Every cell, the verdicts, and many clients; returns the table without reranking."""
    tables: dict[RerankMode, Table] = {}
    for number, way in enumerate(WAYS):
        session.report.step(bench, f"rerank {way}")
        count = sizes_of(session).searches(way)
        tables[way] = through_http(
            ready.world, ready.corpus, count, session, first=1_000_000 * (number + 1), rerank=way
        )
        for (clients, principals), asked in tables[way].items():
            yield cell(bench, way, clients, principals, asked, ready)
    session.report.finish(bench)
    yield from verdicts(bench, tables, ready)
    yield flood_result(bench, _flooded(session, ready, first=5_000_000), ready)
    return tables["off"]


def _flooded(session: Session, ready: Prepared, first: int) -> Flooded:
    sizes = sizes_of(session)
    session.report.step("flood", f"{sizes.flood_clients} clients")
    found = flood(ready.world.settings, ready.corpus, sizes.flood_clients, sizes.flood_s, first)
    session.report.finish("flood", f"{len(found.ms)} answers, {found.errors} errors")
    return found


# ---------------------------------------------------------------- what is said of it


def cell(bench: str, way: RerankMode, clients: int, principals: int, asked: Asked, ready: Prepared) -> Result:
    """One line: the whole search from outside, and each stage inside the service."""
    return Result(
        bench, percentile(asked.outside, 0.95), "ms p95",
        extra={
            "rerank": way, "clients": clients, "principals": principals, "n": len(asked.outside),
            "p50": rounded(percentile(asked.outside, 0.5), 1), "p95": rounded(percentile(asked.outside, 0.95), 1),
            "stages": {stage: [rounded(percentile(ms, share), 1) for share in (0.5, 0.95)]
                       for stage, ms in asked.stages.items()},
            "scored": rounded(quotient(sum(asked.scored), len(asked.scored)), 1),
            "per_s": rounded(quotient(len(asked.outside), asked.seconds), 1), **_facts(ready),
        },
    )  # fmt: skip


def verdicts(bench: str, tables: Mapping[RerankMode, Table], ready: Prepared) -> Iterator[Result]:
    """D1 and D2: the worst p95 of all scopes against its target."""
    for (requirement, way, clients), target in TARGETS.items():
        found = worst(tables.get(way, {}), clients)
        yield Result(
            bench, found, "ms", target, quotient(found, target), at_most(found, target),
            extra={"verdict": requirement, "rerank": way, "clients": clients, **_facts(ready)},
        )  # fmt: skip


def flood_result(
    bench: str, found: Flooded, ready: Prepared, *, under: str = "nothing", left: int | None = None
) -> Result:
    """Passes where every request was answered; being told to wait (429) counts by itself."""
    ok = found.errors == 0 and bool(found.ms) and (left is None or left > 0)
    return Result(
        bench, percentile(found.ms, 0.95), "ms p95", ok=ok,
        extra={
            "verdict": "many clients", "clients": found.clients, "seconds": rounded(found.seconds, 1),
            "answers": len(found.ms), "errors": found.errors, "kinds": dict(found.kinds), "refused_429": found.refused,
            "p50": rounded(percentile(found.ms, 0.5), 1), "per_s": rounded(quotient(len(found.ms), found.seconds), 1),
            "rerank": "default", "scored": rounded(quotient(found.scored, len(found.ms)), 1), "under": under,
            **({} if left is None else {"left_at_end": left}), **_facts(ready),
        },
    )  # fmt: skip


def _facts(ready: Prepared) -> dict[str, object]:
    return {"chunks": ready.corpus.chunks, "vectors": "synthetic", "load1": round(os.getloadavg()[0], 2)}
