"""Several admitted lists into one: reciprocal ranks, the original query's identifiers first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from query_service.fuse import RRF_K
from query_service.outcome import Outcome, Ranked


def merged(original: Outcome, more: Sequence[tuple[Outcome, float]]) -> Outcome:
    """One outcome: each list gives a passage weight / (60 + rank), the original's weight is 1.

    Passages that hold every identifier of the original query stay first. What only a further query found carries no
    distance and no scores of its own: they would say how near it is to another question. A passage that stands for an
    equal one in an earlier list keeps doing so.
    """
    if not more:
        return original
    entries: dict[str, Ranked] = {}
    alias: dict[str, str] = {}
    scores: dict[str, float] = {}
    for number, (outcome, weight) in enumerate([(original, 1.0), *more]):
        counted: set[str] = set()
        for rank, ranked in enumerate(outcome.ranked, start=1):
            own = ranked.candidate.chunk_id
            key = alias.setdefault(own, own)
            for twin in ranked.twins:
                alias.setdefault(twin.candidate.chunk_id, key)
            if key in counted:
                continue
            counted.add(key)
            scores[key] = scores.get(key, 0.0) + weight / (RRF_K + rank)
            if key not in entries:
                entries[key] = ranked if number == 0 else _bare(ranked)
    order = sorted(entries, key=lambda c: (not entries[c].candidate.exact, -scores[c], c))
    outcomes = [original, *(o for o, _ in more)]
    return replace(
        original,
        ranked=[replace(entries[c], fused=scores[c]) for c in order],
        raw=sum((o.raw for o in outcomes), Counter()),
        refused=sum((o.refused for o in outcomes), Counter()),
        admitted=_admitted(outcomes, len(order)),
        starved=any(o.starved for o in outcomes),
        refills=sum(o.refills for o in outcomes),
        repaired=sum(o.repaired for o in outcomes),
    )


def best_of_documents(outcomes: Sequence[Outcome]) -> Outcome | None:
    """One list of several: the best-placed passage of each document. None of no list."""
    if not outcomes:
        return None
    best: dict[str, tuple[int, int, Ranked]] = {}
    for number, outcome in enumerate(outcomes):
        for rank, ranked in enumerate(outcome.ranked):
            uid = ranked.candidate.document_uid
            if uid not in best or (rank, number) < best[uid][:2]:
                best[uid] = (rank, number, ranked)
    listed = sorted(best.values(), key=lambda b: (b[0], b[1], b[2].candidate.chunk_id))
    together = merged(outcomes[0], [(o, 1.0) for o in outcomes[1:]])
    return replace(together, ranked=[ranked for _, _, ranked in listed])


def _bare(ranked: Ranked) -> Ranked:
    candidate = replace(ranked.candidate, distance=None, exact=False)
    return replace(ranked, candidate=candidate, dense_rank=None, sparse_rank=None, sparse_score=None)


def _admitted(outcomes: Sequence[Outcome], ranked: int) -> Counter[str]:
    """Different passages by leg, over all lists."""
    legs: dict[str, set[str]] = {"dense": set(), "sparse": set(), "exact": set()}
    for outcome in outcomes:
        for r in outcome.ranked:
            name = r.candidate.chunk_id
            if r.dense_rank is not None:
                legs["dense"].add(name)
            if r.sparse_rank is not None:
                legs["sparse"].add(name)
            if r.candidate.exact:
                legs["exact"].add(name)
    return Counter({"admitted": ranked, **{leg: len(found) for leg, found in legs.items()}})
