"""``search_10k``, ``search_100k`` and ``search_under_backfill``: retrieval without rerank, from outside and inside."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

from infra.bench import pages
from infra.bench.corpora import Prepared, prepare, spoil
from infra.bench.ingest import observed
from infra.bench.report import Result, at_most, percentile, quotient, rounded
from infra.bench.session import Session
from infra.bench.synthetic import SCOPES, TENANT, Corpus, person
from infra.bench.world import World
from infra.commands.tokens import issue
from infra.errors import InfraError
from infra.golden_world import erase
from pipeline.settings import AuthSettings, Settings
from schemas.api import SearchRequest, SearchResponse
from schemas.api_ranking import RerankMode

ALONE_MS, TOGETHER_MS = 50.0, 120.0
CLIENTS = (1, 4)
BUSY_FACTOR = 2.0
WARM_UP = 10
K = 10
BUSY_SCOPES = (10, 1_000)


@dataclass
class Asked:
    """Searches of one kind: milliseconds from outside, milliseconds inside the service, and hits."""

    outside: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    seconds: float = 0.0
    stages: dict[str, list[float]] = field(default_factory=dict)  # milliseconds inside the service, by stage
    scored: list[int] = field(default_factory=list)  # passages that the reranker scored

    def note(self, ms: float, answer: SearchResponse) -> None:
        """One answer."""
        self.outside.append(ms)
        self.inside.append(answer.timings_ms["total"])
        self.hits.append(len(answer.hits))
        self.scored.append(answer.counts.reranked)
        for stage, spent in answer.timings_ms.items():
            self.stages.setdefault(stage, []).append(spent)

    def add(self, other: Asked) -> None:
        """What another client was answered at the same time."""
        for mine, theirs in (
            (self.outside, other.outside), (self.inside, other.inside), (self.hits, other.hits),
            (self.scored, other.scored),
        ):  # fmt: skip
            mine.extend(theirs)  # type: ignore[arg-type]
        for stage, spent in other.stages.items():
            self.stages.setdefault(stage, []).extend(spent)

    def shown(self) -> dict[str, object]:
        """What the line says of it."""
        return {
            "p50": rounded(percentile(self.outside, 0.5), 1),
            "p95": rounded(percentile(self.outside, 0.95), 1),
            "service_p95": rounded(percentile(self.inside, 0.95), 1),
            "per_s": rounded(quotient(len(self.outside), self.seconds), 1),
            "hits": rounded(quotient(sum(self.hits), len(self.hits)), 1),
        }


Table = dict[tuple[int, int], Asked]
"""By number of clients and number of principals."""


def search_10k(session: Session) -> Iterable[Result]:
    """The small corpus."""
    yield _search(session, "search_10k", "small", session.sizes.small_corpus)


def search_100k(session: Session) -> Iterable[Result]:
    """The large corpus."""
    yield _search(session, "search_100k", "large", session.sizes.large_corpus)


def _search(session: Session, bench: str, name: str, chunks: int) -> Result:
    ready = prepare(session, name, chunks)
    count = session.sizes.queries
    session.report.step(bench, "through the query API")
    outside = through_http(ready.world, ready.corpus, count, session)
    session.report.step(bench, "in this process")
    inside = in_process(ready.world, ready.corpus, count)
    session.report.finish(bench)
    return search_result(bench, outside, inside, ready)


def search_result(bench: str, outside: Table, inside: Table, ready: Prepared) -> Result:
    """Judged from outside: the worst p95 of all scopes with one client and with four."""
    alone, together = (worst(outside, clients) for clients in CLIENTS)
    extra: dict[str, object] = {
        "vectors": "synthetic",
        "chunks": ready.corpus.chunks,
        "setup_s": rounded(ready.setup_s, 1),
        "cached": ready.cached,
        "p95_4_clients": rounded(together, 1),
        "target_4_clients": TOGETHER_MS,
        "n": sum(len(asked.outside) for asked in outside.values()),
        "http": shown(outside),
        "in_process": shown(inside),
    }
    ok = at_most(alone, ALONE_MS) and at_most(together, TOGETHER_MS)
    return Result(bench, alone, "ms", ALONE_MS, quotient(alone, ALONE_MS), ok, extra)


def worst(table: Table, clients: int) -> float | None:
    """Largest p95 of the scopes with so many clients."""
    found = [percentile(asked.outside, 0.95) for (count, _), asked in table.items() if count == clients]
    return max((value for value in found if value is not None), default=None)


def shown(table: Table) -> dict[str, object]:
    """``"1 client": {"10 principals": {...}}`` and so on."""
    found: dict[str, dict[str, object]] = {}
    for (clients, principals), asked in table.items():
        group = found.setdefault(f"{clients} client{'s' if clients > 1 else ''}", {})
        group[f"{principals} principals"] = asked.shown()
    return dict(found)


class Questions:
    """Distinct questions: one asked twice would find its embedding remembered. Thread-safe."""

    def __init__(self, corpus: Corpus, first: int = 0) -> None:
        self._corpus = corpus
        self._next = first
        self._lock = threading.Lock()

    def take(self) -> str:
        """The next one."""
        with self._lock:
            number, self._next = self._next, self._next + 1
        return self._corpus.question(number)


# ---------------------------------------------------------------- from outside


def through_http(
    world: World, corpus: Corpus, count: int, session: Session, *, clients: Sequence[int] = CLIENTS,
    scopes: Sequence[int] = SCOPES, first: int = 0, rerank: RerankMode = "off",
) -> Table:  # fmt: skip
    """``count`` searches for each number of clients and principals, by people with tokens of their own."""
    questions, table = Questions(corpus, first), Table()
    tokens = {scope: issue(world.settings, person(scope), TENANT, 3600)[0] for scope in scopes}
    base = world.settings.query.address
    for scope in scopes:  # connections, closures and statistics before anything counts
        _ask(base, tokens[scope], questions, min(WARM_UP, count), Asked(), rerank)
    for number in clients:
        for scope in scopes:
            table[number, scope] = _by_clients(base, tokens[scope], questions, count, number, rerank)
            session.progress("searches", len(table), len(clients) * len(scopes))
    session.report.finish("searches")
    return table


def _by_clients(
    base: str, token: str, questions: Questions, count: int, clients: int, rerank: RerankMode
) -> Asked:  # fmt: skip
    parts = [Asked() for _ in range(clients)]
    share = -(-count // clients)
    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda part: _ask(base, token, questions, share, part, rerank), parts))
    together = Asked(seconds=time.perf_counter() - begun)
    for part in parts:
        together.add(part)
    return together


def _ask(base: str, token: str, questions: Questions, count: int, asked: Asked, rerank: RerankMode) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=base, headers=headers, timeout=30, trust_env=False) as client:
        for _ in range(count):
            body = {"query": questions.take(), "k": K, "mode": "hybrid", "rerank": rerank, "cache": False}
            begun = time.perf_counter()
            answer = client.post("/v1/search", json=body)
            ms = (time.perf_counter() - begun) * 1000
            if not answer.is_success:
                raise InfraError(f"A search was answered by {answer.status_code}: {answer.text[:300]}", "Run it again.")
            asked.note(ms, SearchResponse.model_validate_json(answer.content))


# ---------------------------------------------------------------- inside


def in_process(world: World, corpus: Corpus, count: int) -> Table:
    """The same service in this process, without HTTP."""
    query = world.settings.query.model_copy(update={"receipts_path": world.folder / "inside.sqlite"})
    return asyncio.run(_inside(world.settings.model_copy(update={"query": query}), corpus, count))


async def _inside(settings: Settings, corpus: Corpus, count: int) -> Table:
    from query_service.app import Parts, create_app
    from query_service.scope import Scope
    from query_service.wiring import dependencies

    if settings.auth.jwt_secret is None:
        secret = AuthSettings.model_validate({"jwt_secret": "x" * 48})  # no token is looked at here
        settings = settings.model_copy(update={"auth": secret})
    app = create_app(dependencies(settings))
    questions, table = Questions(corpus, 1_000_000), Table()
    async with app.router.lifespan_context(app):
        parts: Parts = app.state.parts
        end = time.monotonic() + 120
        while reasons := parts.state.reasons():
            if time.monotonic() > end:
                raise InfraError(f"The query service in this process is not ready: {', '.join(reasons)}.", "")
            await asyncio.sleep(0.1)

        async def ask(scope: int, number: int, asked: Asked) -> None:
            caller = Scope(tenant=TENANT, subject=person(scope))
            for _ in range(number):
                request = SearchRequest(query=questions.take(), k=K, rerank="off", cache=False)
                begun = time.perf_counter()
                answer = await parts.service.search(caller, request)
                asked.note((time.perf_counter() - begun) * 1000, answer)

        for scope in SCOPES:
            await ask(scope, min(WARM_UP, count), Asked())
        for clients in CLIENTS:
            for scope in SCOPES:
                asked = table.setdefault((clients, scope), Asked())
                begun = time.perf_counter()
                await asyncio.gather(*(ask(scope, -(-count // clients), asked) for _ in range(clients)))
                asked.seconds = time.perf_counter() - begun
    return table


# ---------------------------------------------------------------- under a backfill


def search_under_backfill(session: Session) -> Iterable[Result]:
    """The small corpus while the index consumer embeds and writes bulk documents at full speed."""
    bench, sizes = "search_under_backfill", session.sizes
    ready = prepare(session, "small", sizes.small_corpus)
    world = ready.world
    calm = through_http(world, ready.corpus, sizes.queries, session, clients=(1,), scopes=BUSY_SCOPES, first=2_000_000)
    documents = begin_backfill(session, ready, sizes.backfill_documents)
    busy = through_http(world, ready.corpus, sizes.queries, session, clients=(1,), scopes=BUSY_SCOPES, first=3_000_000)
    left = documents - world.receipts.count(TENANT, "index.content")
    session.report.finish(bench)
    session.close_world()
    erase(world.settings)  # a corpus with half a backfill in it is of no use
    yield backfill_result(calm, busy, left, documents)


def begin_backfill(session: Session, ready: Prepared, documents: int) -> int:
    """Start the index consumer of the small corpus and append so many bulk documents; returns their number when the
    first of them is indexed. The corpus is spoilt by it. Raises InfraError."""
    world = ready.world
    spoil(session, "small")
    session.report.step("backfill", "starting the index consumer")
    world.start("index")
    pool = pages.sentences(page.text for page in pages.wiki_pages(pages.WIKI))
    made = pages.shuffled(pool, documents, seed=43)
    mark = world.receipts.mark()
    world.feeder(TENANT, "backfill").write((observed(TENANT, p, source="backfill") for p in made), priority="bulk")
    world.receipts.first(lambda r: r.lane == "index" and r.event_type.startswith("content"), mark, 120)
    session.report.finish("backfill")
    return len(made)


def backfill_result(calm: Table, busy: Table, left: int, documents: int) -> Result:
    """Ratio of the worst p95 while the backfill runs to the worst one before it."""
    before, during = worst(calm, 1), worst(busy, 1)
    ratio = quotient(during, before)
    extra: dict[str, object] = {
        "vectors": "synthetic",
        "calm_p95": rounded(before, 1),
        "backfill_documents": documents,
        "left_at_end": left,
        "calm": shown(calm),
        "busy": shown(busy),
    }
    if left <= 0:
        extra["note"] = "the backfill ended before the searches did: make it larger"
    ok = at_most(ratio, BUSY_FACTOR) and left > 0
    return Result("search_under_backfill", during, "ms", BUSY_FACTOR, ratio, ok, extra)
