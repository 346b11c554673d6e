"""``memory`` and ``scale`` (long): what grows with the number of events, and what must not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import httpx

from infra.bench import pages
from infra.bench.feeding import Feeder
from infra.bench.ingest import observed
from infra.bench.pages import Page
from infra.bench.report import Result, at_most, growth_exponent, percentile, quotient, rounded
from infra.bench.session import Session
from infra.bench.world import World
from infra.commands.tokens import issue
from infra.errors import InfraError
from pipeline.ports import SourceMembership
from schemas.generation import BackendChoice

WATCHED = ("access", "index", "query")
GROWTH, ALLOWANCE_MIB = 1.05, 50.0
EXPONENT, QUERY_FACTOR = 1.05, 3.0
TENANT, READER = "grow", "reader"
QUERIES = 100
SETTLE_S = 3600.0
MIB = 1024 * 1024


@dataclass(frozen=True)
class Stage:
    """So many documents later: seconds of ingest so far, MiB of each process, p95 of searches in ms."""

    documents: int
    seconds: float
    mib: dict[str, float]
    query_p95: float | None


def memory(session: Session) -> Iterable[Result]:
    """Short documents, one chunk each, with the stub encoder: everything but the model is at work."""
    sizes = session.sizes
    world = session.world(
        "memory",
        lambda: World(
            session.endpoints, session.folder / "worlds" / "memory", ("control", "access", "index", "query"),
            idle=("index", "query"),
        ),
    )  # fmt: skip
    generation = world.generation()
    stub = generation.model_copy(
        update={"backend": BackendChoice(name="stub", agreement=1.0), "version": generation.version + 1}
    )
    world.store.write_generation(stub)
    world.start("index")
    world.start("query")
    world.receipts.only_count(TENANT)
    feeder = world.feeder(TENANT, "owned")
    feeder.write([SourceMembership(TENANT, f"user:{READER}", ())])
    stages: list[Stage] = []
    seconds = 0.0
    for wanted in (sizes.memory_first, sizes.memory_middle, sizes.memory_last):
        begun = time.monotonic()
        _grow(session, world, feeder, stages[-1].documents if stages else 0, wanted)
        seconds += time.monotonic() - begun
        mib = {name: world.process(name).memory_info().rss / MIB for name in WATCHED}
        stages.append(Stage(wanted, seconds, mib, _query_p95(world)))
    session.report.finish("memory", f"{sizes.memory_last} documents in {seconds:.0f} s")
    session.close_world()
    yield from memory_results(*stages)


def memory_results(first: Stage, middle: Stage, last: Stage) -> list[Result]:
    """Memory between the middle and the last stage; time and searches between the first and the last."""
    allowed = {name: middle.mib[name] * GROWTH + ALLOWANCE_MIB for name in last.mib}
    ratio = max(last.mib[name] / allowed[name] for name in last.mib)
    growth = max(last.mib[name] - middle.mib[name] for name in last.mib)
    extra: dict[str, object] = {
        "events": last.documents,
        "mib": {str(stage.documents): {n: round(v) for n, v in stage.mib.items()} for stage in (first, middle, last)},
    }
    exponent = growth_exponent(first.documents, first.seconds, last.documents, last.seconds)
    queries = quotient(last.query_p95, first.query_p95)
    scale: dict[str, object] = {
        "seconds": {str(stage.documents): rounded(stage.seconds, 1) for stage in (first, middle, last)},
        "query_p95": {str(stage.documents): rounded(stage.query_p95, 1) for stage in (first, middle, last)},
        "query_ratio": rounded(queries),
        "query_target": QUERY_FACTOR,
    }
    steady = at_most(exponent, EXPONENT) and at_most(queries, QUERY_FACTOR)
    return [
        Result("memory", growth, "MiB more at the end than in the middle", 1.0, ratio, ratio <= 1.0, extra),
        Result("scale", exponent, "exponent of ingest time", EXPONENT, exponent, steady, scale),
    ]


def _grow(session: Session, world: World, feeder: Feeder, have: int, wanted: int) -> None:
    """Append in portions that the index consumer keeps up with, then wait for the last."""
    pool = pages.sentences(page.text for page in pages.wiki_pages(pages.WIKI))
    end = time.monotonic() + SETTLE_S
    for start in range(have, wanted, 1000):
        numbers = range(start, min(start + 1000, wanted))
        made = (Page(f"e{n}", f"Entry {n}", _entry(pool, n), "text/plain") for n in numbers)
        feeder.write((observed(TENANT, page) for page in made), priority="bulk")
        _await(session, world, start + len(numbers) - 2000, end)
    _await(session, world, wanted, end)


def _entry(pool: Sequence[str], number: int) -> str:
    return f"Entry {number}. {pool[number % len(pool)]} {pool[number * 7 % len(pool)]}"


def _await(session: Session, world: World, count: int, end: float) -> None:
    while (done := world.receipts.count(TENANT, "index.content")) < count:
        if time.monotonic() > end:
            raise InfraError(f"{count - done} documents were not indexed in time.", "Run it on a less busy machine.")
        session.progress("memory", done, session.sizes.memory_last)
        time.sleep(0.05)


def _query_p95(world: World) -> float | None:
    """Searches by one reader, one after the other."""
    token = issue(world.settings, READER, TENANT, 3600)[0]
    pool = pages.sentences(page.text for page in pages.wiki_pages(pages.WIKI))
    taken: list[float] = []
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=world.settings.query.address, headers=headers, timeout=30, trust_env=False) as client:
        end = time.monotonic() + 60
        while client.get("/readyz").status_code != 200 and time.monotonic() < end:
            time.sleep(0.2)
        for number in range(QUERIES + 10):
            query = " ".join(pool[number % len(pool)].split()[:8])
            begun = time.perf_counter()
            body = {"query": f"{query} {number}", "k": 10, "rerank": "off", "cache": False}
            answer = client.post("/v1/search", json=body)
            taken.append((time.perf_counter() - begun) * 1000)
            if not answer.is_success:
                raise InfraError(f"A search was answered by {answer.status_code}: {answer.text[:300]}", "Run it again.")
    return percentile(taken[10:], 0.95)
