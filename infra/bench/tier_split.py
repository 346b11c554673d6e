"""``tier_split``: the same questions at different splits between hot and cold, the first split being the measure.

Two sets are asked together: the golden questions on the sample wiki, each as its own person, and questions on
encyclopaedia articles where those lie beside the checkout. Documents move as they do in operation, by their owners.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra import corpus
from infra.asking import QueryApi
from infra.bench.report import Result, rounded, skipped
from infra.bench.session import Session
from infra.bench.world import FOLDER_TENANT, World
from infra.errors import InfraError
from infra.golden_run import ask, checkout, questions_of
from pipeline import quality
from pipeline.clock import SystemClock
from pipeline.golden import Question
from pipeline.operate.maintenance import opened
from pipeline.operate.tiers import Move, TenantTiers, TierPlan, carry_out
from pipeline.ports import SourceDocument, SourceMembership
from schemas.access import AccessRule
from schemas.documents import Manifest
from schemas.keys import DocumentRef

PROCESSES = ("control", "access", "index", "query", "owner")
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the documents in cold
SEED = 20
TARGET = 0.01
K = 10
ARTICLES = Path(__file__).parents[2] / ".." / "shared" / "data" / "squad2-articles"
ARTICLE_TENANT, ARTICLE_SOURCE, READER = "articles", "encyclopaedia", "user:reader"
WAIT_S = 1800.0


@dataclass(frozen=True)
class Article:
    """One question on the articles, with the only passage that answers it."""

    text: str
    wanted: str


def tier_split(session: Session) -> Iterable[Result]:
    """Largest paired difference of nDCG@10 between everything in hot and any other split."""
    try:
        import ir_measures  # noqa: F401
    except ImportError:
        yield skipped("tier_split", "needs the extra quality: pip install 'headwater[quality]'")
        return
    world = World(session.endpoints, session.folder / "worlds" / "tier_split", PROCESSES)
    paths = checkout()
    shutil.copytree(paths.wiki, world.wiki, dirs_exist_ok=True)
    golden = [q.model_copy(update={"tenant": FOLDER_TENANT}) for q in questions_of(paths)[0] if q.answerable]
    golden = [q for q in golden if q.relevant][: session.sizes.split_questions]
    session.close_world()
    made = session.world("tier_split", lambda: world)
    articles = articles_of(session, made)
    yield from _measured(session, made, golden, articles)
    session.close_world()


def _measured(
    session: Session, world: World, golden: Sequence[Question], articles: Sequence[Article]
) -> Iterator[Result]:
    generation = world.generation().name
    wanted = sum(1 for _ in corpus.pages(world.wiki))
    documents = {FOLDER_TENANT: indexed(session, world, generation, FOLDER_TENANT, wanted)}
    if articles:
        documents[ARTICLE_TENANT] = indexed(session, world, generation, ARTICLE_TENANT, session.sizes.split_articles)
    every = [document for of_tenant in documents.values() for document in of_tenant]
    random.Random(SEED).shuffle(every)
    first = _asked(session, world, golden, articles, 0.0)
    differences: dict[str, float] = {}
    splits: dict[str, object] = {"0": rounded(statistics.fmean(first))}
    moved = 0
    for share in SHARES:
        upto = round(share * len(every))
        move_to_cold(session, world, generation, every[moved:upto])
        moved = upto
        await_emptied(world, generation, set(every[:moved]))
        scores = _asked(session, world, golden, articles, share)
        name = f"{share:g}"
        differences[name] = statistics.fmean(scores) - statistics.fmean(first)
        splits[name] = rounded(statistics.fmean(scores))
    worst = max(differences.values(), key=abs)
    yield Result(
        "tier_split", abs(worst), "difference of nDCG@10", TARGET, ok=abs(worst) <= TARGET,
        extra={
            "ndcg10": splits,
            "differences": {name: rounded(value, 5) for name, value in differences.items()},
            "golden": len(golden), "articles": len(articles), "documents": len(every),
        },
    )  # fmt: skip


# ---------------------------------------------------------------- the two sets


def articles_of(session: Session, world: World) -> list[Article]:
    """Append the articles, everyone's to read, and give the questions; none where they are not at hand."""
    if not (ARTICLES / "corpus.jsonl").is_file():
        return []
    pages = [json.loads(line) for line in (ARTICLES / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    pages = pages[: session.sizes.split_articles]
    feeder = world.feeder(ARTICLE_TENANT, ARTICLE_SOURCE)
    feeder.write([SourceMembership(tenant=ARTICLE_TENANT, principal=READER, parents=())])
    feeder.write(
        (
            SourceDocument(
                document=DocumentRef(tenant=ARTICLE_TENANT, source=ARTICLE_SOURCE, id=page["_id"]),
                title=page["title"], body=page["text"].encode(), content_type="text/plain; charset=utf-8",
                rule=AccessRule.any_of("everyone"),
            )
            for page in pages
        ),
        priority="bulk",
    )  # fmt: skip
    known = {page["_id"] for page in pages}
    rows = [line.split("\t") for line in (ARTICLES / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    answers = {query: document for query, document, _ in rows if document in known}
    questions = [json.loads(line) for line in (ARTICLES / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [Article(q["text"], answers[q["_id"]]) for q in questions if q["_id"] in answers]
    return found[: session.sizes.split_questions]


def _asked(
    session: Session, world: World, golden: Sequence[Question], articles: Sequence[Article], share: float
) -> list[float]:
    """nDCG@10 of each question, golden ones first."""
    scores: list[float] = []
    step = f"asking with {100 * share:.0f} % in cold"
    total = len(golden) + len(articles)
    with QueryApi(world.settings) as api:
        for question in golden:
            scores.append(quality.rank(question, ask(api, question, "hybrid").retrieved.hits).ndcg[K])
            session.progress(step, len(scores), total)
        for article in articles:
            hits = api.search(READER.removeprefix("user:"), ARTICLE_TENANT, article.text, k=K, rerank="off").hits
            ids = [hit.document_id for hit in hits]
            # one passage is right: its gain by its rank is the whole measure
            scores.append(1 / math.log2(ids.index(article.wanted) + 2) if article.wanted in ids else 0.0)
            session.progress(step, len(scores), total)
    session.report.finish(step, f"nDCG@10 {statistics.fmean(scores):.4f}")
    return scores


# ---------------------------------------------------------------- moving


def indexed(session: Session, world: World, generation: str, tenant: str, wanted: int) -> list[DocumentRef]:
    """Documents of a tenant once as many are indexed as are wanted. Raises InfraError."""
    end = time.monotonic() + WAIT_S
    while True:
        found = [m.document for m in _manifests(world, generation, tenant)]
        session.progress(f"indexing {tenant}", len(found), wanted)
        if len(found) >= wanted:
            return sorted(found, key=lambda document: document.key)
        if time.monotonic() > end:
            raise InfraError(
                f"{wanted - len(found)} documents of {tenant} were not indexed within {WAIT_S:.0f} s.",
                f"Read {world.folder / 'logs' / 'index.log'}.",
            )
        time.sleep(0.5)


def _manifests(world: World, generation: str, tenant: str) -> Iterator[Manifest]:
    return (m for m in world.store.walk_manifests(generation, tenant) if not m.deleted and m.chunk_total)


def move_to_cold(session: Session, world: World, generation: str, documents: Sequence[DocumentRef]) -> None:
    now = SystemClock().now()
    moves = [Move(document=document, chunks=4, changed_at=now, why="size") for document in documents]
    tenant = TenantTiers(tenant=FOLDER_TENANT, hot=0, cold=0, hot_planned=0, hot_limit=1, moves=tuple(moves))
    plan = TierPlan(generation=generation, at=now, tenants=(tenant,))

    def progress(step: str, done: int, total: int | None) -> None:
        session.progress(step, done, total or 0)

    with opened(world.settings, "bench") as owners:
        run = carry_out(plan, owners, world.settings.tiers, now, progress=progress)
    if not run.whole:
        raise InfraError(f"Not every document was moved: {run.reasons}.", "Read the index consumer's log.")


def await_emptied(world: World, generation: str, moved: set[DocumentRef]) -> None:
    """Wait until nothing of the moved documents stands in hot. Raises InfraError."""
    uids = {document.uid for document in moved}
    end = time.monotonic() + 120
    for tenant in sorted({document.tenant for document in moved}):
        while any(c.document_uid in uids for c in world.store.walk_chunks(generation, "hot", tenant)):
            if time.monotonic() > end:
                raise InfraError("Moved chunks still stand in hot.", "Read the index consumer's log.")
            time.sleep(1.0)
