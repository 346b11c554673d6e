"""The benchmarks by name, in the order in which they run: what shares a world stands together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from infra.bench import expansion, extractive, history, ingest, lag, memory, recall, search, strength, tier_split
from infra.bench.answering import context
from infra.bench.migration.run import migration
from infra.bench.ranking import ablation, latency
from infra.bench.report import Result
from infra.bench.session import Session
from infra.errors import InfraError

Run = Callable[[Session], Iterable[Result]]


@dataclass(frozen=True)
class Bench:
    """One benchmark. ``requirement`` names the figure; ``extra`` ones run only when asked for."""

    name: str
    run: Run
    requirement: str
    summary: str
    extra: bool = False


BENCHES: tuple[Bench, ...] = (
    Bench("lag_idle", lag.lag_idle, "D4", "change API to searchable, one short document at a time"),
    Bench("lag_folder", lag.lag_folder, "D4", "watched file to searchable"),
    Bench("delete_lag", lag.delete_lag, "D5", "deletion on the log to hidden"),
    Bench("revoke_lag", lag.revoke_lag, "D5", "revocation on the log to applied: rules and memberships"),
    Bench("ingest_ratio", ingest.ingest_ratio, "D3", "ingest against the encoder alone, by CPU and by the clock"),
    Bench("reingest", ingest.reingest, "D6", "the same again, newer versions of the same text, one changed paragraph"),
    Bench("handbook_replay", history.handbook_replay, "D6", "all events of a wiki's life, and what is left of them"),
    Bench("lag_bulk", lag.lag_bulk, "D4", "change API to searchable during a full reindex"),
    Bench("revoke_lag_backlog", lag.revoke_lag_backlog, "D5", "revocation behind 10,000 bulk documents"),
    Bench("search_10k", search.search_10k, "D1", "retrieval over 10,000 chunks, 1 to 1,000 principals"),
    Bench("search_under_backfill", search.search_under_backfill, "D1", "the same while a backfill writes"),
    Bench("search_100k", search.search_100k, "D1", "retrieval over 100,000 chunks"),
    Bench("search_recall", recall.search_recall, "D1", "recall@10 of each tier, by ef", extra=True),
    Bench("tier_split", tier_split.tier_split, "A9", "nDCG@10 at any split between hot and cold", extra=True),
    Bench(
        "migration", migration, "A10", "an encoder replaced under changes and queries, each answer judged", extra=True
    ),
    Bench(
        "expansion", expansion.expansion, "B11", "golden questions by query expansion without a generator", extra=True
    ),
    Bench("extractive", extractive.extractive, "B8", "answers made of the sources' sentences, judged", extra=True),
    Bench("ranking_quality", ablation.ranking_quality, "B4", "nDCG@10 by each part of the ranking", extra=True),
    Bench("ranking_10k", latency.ranking_10k, "D2", "each stage's time, 50 clients, under a backfill", extra=True),
    Bench("ranking_100k", latency.ranking_100k, "D2", "the same over 100,000 chunks, without backfill", extra=True),
    Bench("context", context.context, "C7", "answers by number of passages and position of the right one", extra=True),
    Bench("strength", strength.strength_bench, "B8", "weak evidence noticed, answers refused wrongly", extra=True),
    Bench("memory", memory.memory, "D7", "memory, ingest and searches up to 100,000 documents", extra=True),
)


def chosen(names: Sequence[str], *, long: bool) -> list[Bench]:
    """The named benchmarks, else all (``long``: the extra ones too), in their order. Raises InfraError."""
    known = {bench.name for bench in BENCHES}
    unknown = [name for name in names if name not in known]
    if unknown:
        every = ", ".join(bench.name for bench in BENCHES)
        raise InfraError(f"There is no benchmark {', '.join(unknown)}.", f"Known: {every}.")
    if names:
        return [bench for bench in BENCHES if bench.name in names]
    return [bench for bench in BENCHES if long or not bench.extra]
