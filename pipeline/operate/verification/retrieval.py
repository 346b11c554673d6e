"""The same queries in the shadow against both generations: ranking, overlap, latency, and that nothing is exposed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

import numpy as np

from pipeline.closures import closure_among
from pipeline.errors import ConfigError
from pipeline.golden import Hit
from pipeline.operate.verification.coverage import Side
from pipeline.operate.verification.heads import read_heads
from pipeline.operate.verification.means import Means
from pipeline.operate.verification.queries import Query
from pipeline.operate.verification.visibility import ROUND_S, People, Seen, level
from pipeline.quality import bootstrap, rank
from schemas.api import Mode, SearchRequest, SearchResponse
from schemas.verification import (
    AccessDifference,
    Latency,
    MeanChange,
    QueryOutcome,
    QuerySet,
)

K = 10
DEEP = 100
"""Hits among which a known item must be, by words or by meaning, where the other generation found it at once."""


SLOW_MS = 100.0
"""Nobody notices a search that takes less: latency is not judged below it."""
PATIENCE = 2
ROUNDS = 3
"""Looks at what seems wrong, before it counts."""


@dataclass(frozen=True)
class Reply:
    """What one generation answered: distinct documents in order, passages for golden labels, milliseconds."""

    documents: tuple[str, ...]
    hits: tuple[Hit, ...]
    ms: float

    @staticmethod
    def of(response: SearchResponse) -> Reply:
        """The response's first K hits."""
        hits = response.hits[:K]
        return Reply(
            documents=tuple(dict.fromkeys(h.document_uid for h in hits)),
            hits=tuple(Hit(h.path or h.document_id, h.text, h.heading_path) for h in hits),
            ms=response.timings_ms.get("total", 0.0),
        )


@dataclass
class Asked:
    """Outcomes of all tenants, by kind of query, and what searches showed or hid wrongly."""

    outcomes: dict[Literal["golden", "known_item"], list[QueryOutcome]] = field(default_factory=dict)
    left_out: int = 0
    differences: list[AccessDifference] = field(default_factory=list)
    searches: int = 0

    def sets(self) -> tuple[QuerySet, ...]:
        """The report's query sets."""
        found = []
        for name, outcomes in self.outcomes.items():
            overlaps = [o.overlap for o in outcomes if o.overlap is not None]
            found.append(
                QuerySet(
                    name=name,
                    queries=len(outcomes),
                    left_out=self.left_out if name == "golden" else 0,
                    ndcg=_change([(o.ndcg_here, o.ndcg_there) for o in outcomes]),
                    recall=_change([(o.recall_here, o.recall_there) for o in outcomes]),
                    overlap=fmean(overlaps) if overlaps else None,
                    reordered=sum(o.overlap == 1.0 and o.same_order is False for o in outcomes),
                    outcomes=tuple(outcomes),
                )
            )
        return tuple(found)

    def latency(self, *, here: bool) -> Latency | None:
        """Of all ranked queries of one generation."""
        all_ = [o.ms_here if here else o.ms_there for outcomes in self.outcomes.values() for o in outcomes]
        ms = [one for one in all_ if one is not None]
        if not ms:
            return None
        p50, p95 = np.quantile(np.asarray(ms), [0.5, 0.95])
        return Latency(count=len(ms), p50=round(float(p50), 3), p95=round(float(p95), 3))


class Asker:
    """Asks one tenant's queries of both sides; ``there`` None asks the one alone."""

    def __init__(
        self, means: Means, people: People, here: Side, there: Side | None, seen: Seen, skipped: set[str]
    ) -> None:
        self._means = means
        self._people = people
        self._sides = [here] if there is None else [here, there]
        self._seen = seen
        self._skipped = skipped

    def run(self, queries: Sequence[Query], asked: Asked, tick: Callable[[], None]) -> None:
        """Ask them in turn, now the one generation first, now the other. Raises Retry, ConfigError, StoreUnavailable.

        The first query of each generation is asked twice: the encoder is loaded by then.
        """
        if queries:
            for side in self._sides:
                self._ask(queries[0], side, asked)
        for number, query in enumerate(queries):
            order = self._sides if number % 2 == 0 else self._sides[::-1]
            replies = {side.generation: self._ask(query, side, asked) for side in order}
            self._judge_exposure(query, replies, asked)
            replies = self._patient(query, replies, asked)
            if query.question is not None or query.wanted is not None:
                asked.outcomes.setdefault("golden" if query.question else "known_item", []).append(
                    self._outcome(query, replies)
                )
            if query.wanted is not None:
                self._judge_reach(query, replies, asked)
            tick()

    def _ask(self, query: Query, side: Side, asked: Asked, mode: Mode = "hybrid", k: int = K) -> Reply:
        asked.searches += 1
        request = SearchRequest(
            query=query.text, k=k, mode=mode, filters=query.filters, duplicates="keep", rerank="off"
        )
        response = self._means.shadow.search(query.tenant, query.seen_as, side.generation, request)
        reply = Reply.of(response)
        if k == K:
            return reply
        return Reply(tuple(dict.fromkeys(h.document_uid for h in response.hits)), reply.hits, reply.ms)

    def _patient(self, query: Query, replies: dict[str, Reply], asked: Asked) -> dict[str, Reply]:
        """A slow answer is asked for again: what is slow by itself stays slow, what was in its way has passed."""
        best = replies
        for number in range(1, PATIENCE + 1):
            if all(reply.ms <= SLOW_MS for reply in best.values()):
                break
            # a blank more, so that the query's vector is not the one remembered
            again = replace(query, text=query.text + " " * number)
            timed = {side.generation: self._ask(again, side, asked).ms for side in self._sides}
            best = {name: replace(reply, ms=min(reply.ms, timed[name])) for name, reply in best.items()}
        return best

    # ------------------------------------------------------------ ranking

    def _outcome(self, query: Query, replies: dict[str, Reply]) -> QueryOutcome:
        here = replies[self._sides[0].generation]
        there = replies[self._sides[1].generation] if len(self._sides) > 1 else None
        ndcg_here, recall_here = _figures(query, here)
        ndcg_there, recall_there = _figures(query, there) if there is not None else (None, None)
        return QueryOutcome(
            query=query.name,
            tenant=query.tenant,
            seen_as=query.seen_as,
            hits_here=len(here.hits),
            hits_there=len(there.hits) if there is not None else None,
            overlap=_overlap(here.documents, there.documents) if there is not None else None,
            same_order=here.documents == there.documents if there is not None else None,
            ndcg_here=ndcg_here,
            ndcg_there=ndcg_there,
            recall_here=recall_here,
            recall_there=recall_there,
            ms_here=here.ms,
            ms_there=there.ms if there is not None else None,
        )

    # ------------------------------------------------------------ permissions, through searches

    def _judge_exposure(self, query: Query, replies: dict[str, Reply], asked: Asked) -> None:
        """A hit is wrong if the asker might read its document neither before the search nor after it.

        The reading before is as old as this run, and permissions may have come and gone since: what is in doubt is
        asked for again between two fresh readings. What is wrong stays wrong.
        """
        for number, side in enumerate(self._sides):
            closure = self._seen.closure_of(query.seen_as, self._people)
            shown = replies[side.generation].documents
            doubted = {u for u in shown if not self._people.decide(side.heads.get(u), closure, side.tenant)}
            doubted -= self._allowed_now(query, side, doubted)
            for _ in range(ROUNDS):
                if not doubted:
                    break
                allowed = self._allowed_now(query, side, doubted)
                doubted &= set(self._ask(query, side, asked).documents)
                doubted -= allowed | self._allowed_now(query, side, doubted)
            kind: Literal["exposed_here", "exposed_there"] = "exposed_there" if number else "exposed_here"
            asked.differences += [_difference(kind, query, uid, side, query.name) for uid in sorted(doubted)]

    def _allowed_now(self, query: Query, side: Side, uids: set[str]) -> set[str]:
        """Those that the asker may read, by records read just now."""
        if not uids:
            return set()
        name = f"user:{query.seen_as}"
        now = People.fresh(self._means, side.tenant, [name], uids)
        heads = read_heads(self._means.store, side.generation, side.tenant, uids)
        closure = closure_among(name, now.principals, now.now)
        return {uid for uid in uids if now.decide(heads.get(uid), closure, side.tenant)}

    def _judge_reach(self, query: Query, replies: dict[str, Reply], asked: Asked) -> None:
        """What one generation finds at once for somebody, the other must find at all: a stale pre-filter hides it.

        Documents go on changing: it counts when it stays, the two being asked again one after the other.
        """
        wanted = query.wanted
        if wanted is None or len(self._sides) < 2 or wanted in self._skipped:
            return
        found = {side.generation: wanted in replies[side.generation].documents for side in self._sides}
        for number in range(ROUNDS):
            missing = self._unreached(query, wanted, found, asked)
            if missing is None:
                return
            self._means.sleep(ROUND_S if number + 1 < ROUNDS else 0)
            found = {side.generation: wanted in self._ask(query, side, asked).documents for side in self._sides}
        if (missing := self._unreached(query, wanted, found, asked)) is not None and self._level(wanted):
            kind: Literal["unreached_here", "unreached_there"] = (
                "unreached_here" if missing is self._sides[0] else "unreached_there"
            )
            asked.differences.append(_difference(kind, query, wanted, missing, query.name))

    def _level(self, uid: str) -> bool:
        """Whether both have the document at the same version now: else one of them is still on its way."""
        tenant = self._sides[0].tenant
        heads = [read_heads(self._means.store, side.generation, tenant, {uid}).get(uid) for side in self._sides]
        return level(*heads)

    def _unreached(self, query: Query, wanted: str, found: dict[str, bool], asked: Asked) -> Side | None:
        """The side that does not find, however deep, what the other found."""
        if len(set(found.values())) == 1:
            return None
        side = next(side for side in self._sides if not found[side.generation])
        modes: tuple[Mode, Mode] = ("sparse", "dense")
        reached = any(wanted in self._ask(query, side, asked, mode, DEEP).documents for mode in modes)
        return None if reached else side


def _difference(
    kind: Literal["exposed_here", "exposed_there", "unreached_here", "unreached_there"],
    query: Query,
    uid: str,
    side: Side,
    detail: str,
) -> AccessDifference:
    head = side.heads.get(uid)
    return AccessDifference(
        kind=kind, tenant=query.tenant, principal=f"user:{query.seen_as}", document_uid=uid,
        document=head.manifest.document if head is not None else None, detail=detail,
    )  # fmt: skip


def _figures(query: Query, reply: Reply) -> tuple[float | None, float | None]:
    """nDCG@10 and recall@10. Of a known item there is one right document, wherever it stands among the documents."""
    if query.wanted is not None:
        if query.wanted not in reply.documents:
            return 0.0, 0.0
        return 1.0 / math.log2(2 + reply.documents.index(query.wanted)), 1.0
    if query.question is None or not query.question.answerable:
        return None, None
    try:
        ranking = rank(query.question, reply.hits)
    except ImportError as error:
        raise ConfigError(
            "generations.golden", f"golden questions cannot be scored ({error})",
            "Install the extra `quality`: pip install 'headwater[quality]', or leave the setting out.",
        ) from error  # fmt: skip
    return ranking.ndcg[K], ranking.recall[K]


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    """Documents in common as a share of the longer list; two empty lists are equal."""
    longest = max(len(one), len(other))
    return len(set(one) & set(other)) / longest if longest else 1.0


def _change(pairs: Sequence[tuple[float | None, float | None]]) -> MeanChange | None:
    """Means of both, and the bootstrap interval of the paired difference."""
    here = [a for a, _ in pairs if a is not None]
    if not here:
        return None
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not both:
        return MeanChange(here=fmean(here))
    change = bootstrap([a - b for a, b in both])
    return MeanChange(
        here=fmean(a for a, _ in both),
        there=fmean(b for _, b in both),
        change=change.mean,
        low=change.low,
        high=change.high,
    )
