"""How much each benchmark measures: in full, or a little of everything to see that it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Counts. ``corpus`` maps the name of a synthetic corpus to its chunks."""

    documents: int = 500  # ingested by ingest_ratio
    lags: int = 100
    folder_lags: int = 50
    bulk_documents: int = 450  # the backlog of lag_bulk
    removals: int = 200  # deletions, and revocations
    flood: int = 10_000  # the backlog of revoke_lag_backlog
    again: int = 100  # documents of reingest
    big_chunks: int = 100  # of the large document of reingest
    passages: int = 2_000  # really embedded, of the synthetic corpora
    small_corpus: int = 10_000  # chunks
    large_corpus: int = 100_000
    queries: int = 150  # by number of principals and number of clients
    recall_queries: int = 100
    backfill_documents: int = 400
    split_questions: int = 300  # of each set, at most
    split_articles: int = 600
    events: int = 1_100  # of the handbook, at most
    memory_first: int = 1_000
    memory_middle: int = 20_000
    memory_last: int = 100_000
    migration_documents: int = 200
    migration_soak_s: float = 30.0  # under traffic, between two steps


FULL = Sizes()
QUICK = Sizes(
    documents=12,
    lags=6,
    folder_lags=3,
    bulk_documents=10,
    removals=6,
    flood=200,
    again=4,
    big_chunks=12,
    passages=40,
    small_corpus=200,
    large_corpus=400,
    queries=4,
    recall_queries=4,
    backfill_documents=8,
    split_questions=6,
    split_articles=12,
    events=25,
    memory_first=50,
    memory_middle=100,
    memory_last=200,
    migration_documents=24,
    migration_soak_s=4.0,
)
