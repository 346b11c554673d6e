"""``expansion``: the golden questions with and without query expansion, as far as it needs no generator.

Each question is asked as its own person, on its own day. What is compared is the first stage: a reranker would hide
what expansion brings and what it costs. Questions of several hops are the point; all others say what it does to them.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import time as clock_time

from infra import corpus
from infra.asking import QueryApi
from infra.bench.report import Result, rounded, skipped
from infra.bench.session import Session
from infra.bench.world import FOLDER_TENANT, World
from infra.errors import InfraError
from infra.golden_run import answer, checkout, questions_of
from pipeline import quality
from pipeline.golden import Question
from schemas.api import SearchFilters
from schemas.api_ranking import Expansion

PROCESSES = ("control", "access", "index", "query", "owner")
KINDS: tuple[Expansion, ...] = ("none", "decompose", "iterative")
HOPS = "multi_hop"
K = 10
WAIT_S = 1800.0


@dataclass(frozen=True)
class Scored:
    """One question under one kind of expansion."""

    question: Question
    ndcg: float
    recall: float  # of all labels
    whole: bool  # every label among the hits
    ms: float


def expansion(session: Session) -> Iterable[Result]:
    """Gain of nDCG@10 by decomposition and by rounds, over the questions of several hops."""
    try:
        import ir_measures  # noqa: F401
    except ImportError:
        yield skipped("expansion", "needs the extra quality: pip install 'headwater[quality]'")
        return
    paths = checkout()
    session.close_world()
    world = World(session.endpoints, session.folder / "worlds" / "expansion", PROCESSES)
    shutil.copytree(paths.wiki, world.wiki, dirs_exist_ok=True)
    made = session.world("expansion", lambda: world)
    asked = [q.model_copy(update={"tenant": FOLDER_TENANT}) for q in questions_of(paths)[0] if q.answerable]
    asked = [q for q in asked if q.kind == HOPS] + [q for q in asked if q.kind != HOPS][: session.sizes.split_questions]
    await_pages(session, made, sum(1 for _ in corpus.pages(made.wiki)))
    scores = {kind: _ask(session, made, asked, kind) for kind in KINDS}
    for kind in KINDS[1:]:
        yield _compared(kind, scores["none"], scores[kind])
    session.close_world()


def await_pages(session: Session, world: World, wanted: int) -> None:
    """Until so many pages of the folder are indexed. Raises InfraError."""
    generation, end, had = world.generation().name, time.monotonic() + WAIT_S, 0
    while had < wanted:
        if time.monotonic() > end:
            raise InfraError(f"{wanted - had} of {wanted} pages were not indexed.", f"Read {world.folder / 'logs'}.")
        found = world.store.walk_manifests(generation, FOLDER_TENANT)
        had = sum(1 for m in found if not m.deleted and m.chunk_total)
        session.progress("indexing", had, wanted)
        time.sleep(0.5)


def _ask(session: Session, world: World, questions: Sequence[Question], kind: Expansion) -> list[Scored]:
    found: list[Scored] = []
    with QueryApi(world.settings) as api:
        for question in questions:
            moment = None
            if question.as_of is not None:
                moment = int(datetime.combine(question.as_of, clock_time(), UTC).timestamp()) * 1_000_000
            response = api.search(
                question.user, question.tenant, question.question, k=K, filters=SearchFilters(as_of=moment),
                expand=kind, rerank="off",
            )  # fmt: skip
            made = answer(question, response, "hybrid")
            ranking = quality.rank(question, made.retrieved.hits)
            whole = ranking.recall[K] >= 1.0
            found.append(Scored(question, ranking.ndcg[K], ranking.recall[K], whole, made.ms or 0.0))
            session.progress(f"asking: {kind}", len(found), len(questions))
    return found


def _compared(kind: Expansion, before: Sequence[Scored], after: Sequence[Scored]) -> Result:
    hops = [n for n, s in enumerate(before) if s.question.kind == HOPS]
    others = [n for n in range(len(before)) if n not in set(hops)]
    gains = [after[n].ndcg - before[n].ndcg for n in hops]
    interval = quality.bootstrap(gains)
    return Result(
        "expansion", statistics.fmean(gains), f"gain of nDCG@10 by {kind}",
        extra={
            "kind": kind,
            "multi_hop": {
                "questions": len(hops), "interval": [rounded(interval.low), rounded(interval.high)],
                "better": sum(g > 0 for g in gains), "worse": sum(g < 0 for g in gains),
                "none": _figures([before[n] for n in hops]), kind: _figures([after[n] for n in hops]),
                "by_question": {before[n].question.id: rounded(after[n].ndcg - before[n].ndcg) for n in hops},
            },
            "others": {
                "questions": len(others), "none": _figures([before[n] for n in others]),
                kind: _figures([after[n] for n in others]),
            },
        },
    )  # fmt: skip


def _figures(scored: Sequence[Scored]) -> dict[str, object]:
    if not scored:
        return {}
    return {
        "ndcg10": rounded(statistics.fmean(s.ndcg for s in scored)),
        "recall10": rounded(statistics.fmean(s.recall for s in scored)),
        "all_labels_found": sum(s.whole for s in scored),
        "ms": rounded(statistics.median(s.ms for s in scored), 1),
    }
