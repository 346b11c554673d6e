"""``ranking_quality``: what each part of the ranking brings, on the golden questions and on questions about articles.

Every variant answers the same questions over the same index, through the query service on the real store. Differences
are paired by question, with a seeded bootstrap interval of 95 %.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from infra import corpus
from infra.bench.ranking.plain import PLAIN_TENANT, copy_without_paths
from infra.bench.ranking.questions import (
    ARTICLES,
    GOLDEN,
    MEASURES,
    Figures,
    Item,
    article_items,
    golden_items,
)
from infra.bench.ranking.services import Variants
from infra.bench.ranking.sizes import sizes_of
from infra.bench.ranking.variants import FUSED, VARIANTS, State, Variant, judged
from infra.bench.report import Result, rounded, skipped
from infra.bench.session import Session
from infra.bench.tier_split import ARTICLE_TENANT, articles_of, await_emptied, indexed, move_to_cold
from infra.bench.world import FOLDER_TENANT, World
from infra.golden_run import checkout, questions_of
from pipeline import quality
from schemas.api import SearchRequest
from schemas.keys import DocumentRef

NAME = "ranking_quality"
PROCESSES = ("control", "access", "index", "owner")
SHARES: dict[State, float] = {"all hot": 0.0, "20 % hot": 0.8, "all cold": 1.0}  # of the documents in cold
TOGETHER = 4  # questions at once, where no time is measured
SEED = 20
OLDEST_DAYS = 730
K = 10


@dataclass(frozen=True)
class Answers:
    """One variant's figures in the order of the questions it was asked, and passages scored a question."""

    items: Sequence[Item]
    figures: Sequence[Figures]
    scored: float

    def mean(self, measure: str, of: str | None = None) -> float | None:
        """Over one set or all; None where it has no question."""
        found = [getattr(f, measure) for i, f in zip(self.items, self.figures, strict=True) if of in (None, i.of)]
        return sum(found) / len(found) if found else None


def ranking_quality(session: Session) -> Iterable[Result]:
    """A line for each variant, then two verdicts: ``full`` beats the fused order, and ``fast`` is not worse."""
    try:
        import ir_measures  # noqa: F401
    except ImportError:
        yield skipped(NAME, "needs the extra quality: pip install 'headwater[quality]'")
        return
    paths = checkout()
    session.close_world()
    world = World(session.endpoints, session.folder / "worlds" / NAME, PROCESSES)
    shutil.copytree(paths.wiki, world.wiki, dirs_exist_ok=True)
    _aged(world.wiki)
    made = session.world(NAME, lambda: world)
    most = sizes_of(session).questions
    articles = articles_of(session, made)
    items = [*golden_items(questions_of(paths)[0], FOLDER_TENANT, most), *article_items(articles, most)]
    documents = _documents(session, made, with_articles=bool(articles))
    found: dict[str, Answers] = {}
    known: dict[tuple[object, ...], Answers] = {}
    moved = 0
    with asyncio.Runner() as runner:
        services = Variants(made)
        try:
            for state, group in groupby(VARIANTS, key=lambda v: v.state):
                upto = round(SHARES[state] * len(documents))
                _to_cold(session, made, documents[moved:upto])
                moved = upto
                for variant in group:
                    key = variant.measured(made.settings)
                    if key not in known:
                        known[key] = runner.run(_ask(session, made, services, variant, items))
                    found[variant.name] = known[key]
        finally:
            runner.run(services.__aexit__())
    yield from lines(found, len(documents), made.store.count_chunks(made.generation().name, FOLDER_TENANT))
    yield from verdicts(found, *judged(made.settings))
    session.close_world()


# ---------------------------------------------------------------- documents


def _aged(wiki: Path) -> None:
    """Dates of last update that have nothing to do with the questions: what a preference for newer documents costs
    those who did not ask for the newest. A checkout's own dates are all alike."""
    drawn, now = random.Random(SEED), time.time()
    for page in sorted(path for path in wiki.rglob("*") if path.is_file()):
        at = now - drawn.uniform(0, OLDEST_DAYS) * 86_400
        os.utime(page, (at, at))


def _documents(session: Session, world: World, *, with_articles: bool) -> list[DocumentRef]:
    generation = world.generation().name
    every = indexed(session, world, generation, FOLDER_TENANT, sum(1 for _ in corpus.pages(world.wiki)))
    if with_articles:
        every += indexed(session, world, generation, ARTICLE_TENANT, session.sizes.split_articles)
    random.Random(SEED).shuffle(every)
    return every


def _to_cold(session: Session, world: World, documents: Sequence[DocumentRef]) -> None:
    if documents:
        generation = world.generation().name
        move_to_cold(session, world, generation, documents)
        await_emptied(world, generation, set(documents))


# ---------------------------------------------------------------- asking


async def _ask(session: Session, world: World, services: Variants, variant: Variant, items: Sequence[Item]) -> Answers:
    if variant.plain:
        await asyncio.to_thread(copy_without_paths, session, world)
        items = [_elsewhere(item) for item in items if item.of == GOLDEN]
    service = await services.of(variant)
    figures: dict[int, Figures] = {}
    scored = 0
    gate = asyncio.Semaphore(1 if variant.fields()["rerank"] == "fast" else TOGETHER)

    async def one(number: int, item: Item) -> None:
        nonlocal scored
        async with gate:
            request = SearchRequest(query=item.text, k=K, filters=item.filters, snippets=False, **variant.fields())
            response = await service.search(item.scope, request)
        figures[number] = item.score(response)
        scored += response.counts.reranked
        session.progress(f"asking: {variant.name}", len(figures), len(items))

    await asyncio.gather(*(one(number, item) for number, item in enumerate(items)))
    answers = Answers(items, [figures[number] for number in range(len(items))], scored / max(1, len(items)))
    session.report.finish(f"asking: {variant.name}", f"nDCG@10 {answers.mean('ndcg'):.4f}")
    return answers


def _elsewhere(item: Item) -> Item:
    return Item(item.of, item.text, replace(item.scope, tenant=PLAIN_TENANT), item.filters, item.golden)


# ---------------------------------------------------------------- what is said of it


def difference(
    answers: Answers, base: Answers, of: str | None = None, measure: str = "ndcg"
) -> quality.Interval | None:
    """Paired by question, over those that both were asked; None without any."""
    known = {i.name: f for i, f in zip(base.items, base.figures, strict=True)}
    pairs = [
        getattr(f, measure) - getattr(known[i.name], measure)
        for i, f in zip(answers.items, answers.figures, strict=True)
        if of in (None, i.of) and i.name in known
    ]
    return quality.bootstrap(pairs) if pairs else None


def shown(interval: quality.Interval | None) -> list[float | None] | None:
    """Mean, low, high."""
    return (
        None if interval is None else [rounded(interval.mean, 4), rounded(interval.low, 4), rounded(interval.high, 4)]
    )


def lines(found: dict[str, Answers], documents: int, chunks: object) -> Iterator[Result]:
    """A line for each variant that was asked."""
    for variant in VARIANTS:
        answers = found.get(variant.name)
        if answers is None:
            continue
        base = found[variant.against]
        sets = {
            of: {
                "questions": sum(1 for i in answers.items if of in (None, i.of)),
                **{m: rounded(answers.mean(m, of), 4) for m in MEASURES},
                "difference": shown(difference(answers, base, of)),
            }
            for of in (GOLDEN, ARTICLES)
        }
        yield Result(
            NAME, answers.mean("ndcg"), "nDCG@10",
            extra={
                "variant": variant.name, "group": variant.group, "against": variant.against,
                "questions": len(answers.items), **{m: rounded(answers.mean(m), 4) for m in MEASURES},
                "difference": shown(difference(answers, base)), "sets": sets,
                "scored": rounded(answers.scored, 1), "documents": documents, "chunks": chunks,
                "load1": round(os.getloadavg()[0], 2),
            },
        )  # fmt: skip


def verdicts(found: dict[str, Answers], full: str, fast: str) -> Iterator[Result]:
    """``full`` has to beat the fused order with its whole interval; ``fast`` must not be worse with its whole one."""
    for name, better in ((full, True), (fast, False)):
        if name not in found or FUSED not in found:
            continue
        change = difference(found[name], found[FUSED])
        if change is None:
            continue
        yield Result(
            NAME, change.mean, f"difference of nDCG@10: {name}", 0.0,
            ok=change.low > 0 if better else change.high >= 0,
            extra={
                "verdict": name, "must_be": f"{'better' if better else 'not worse'} than the fused order",
                "difference": shown(change), "scored": rounded(found[name].scored, 1),
                "load1": round(os.getloadavg()[0], 2),
            },
        )  # fmt: skip
