"""Retrieval of one request: search, merge the tiers, admit, refill or repair, rank, fuse, and admit once more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.admission import Refusal
from pipeline.clock import Clock
from pipeline.ports import IndexReader, TermStatistics
from query_service import bm25, expand, fold, fuse, phrases
from query_service.admit import admit_chunk
from query_service.legs import Candidate, Plan, Pool, search, search_filter
from query_service.outcome import Limits, Outcome, Place, Ranked, Stopwatch, Twin
from query_service.overlay import Overlay
from query_service.scope import Narrowing
from schemas.access import Closure
from schemas.documents import AccessRecord, Manifest, Tier

__all__ = ["Limits", "Outcome", "Place", "Ranked", "Retriever", "Stopwatch", "Twin"]

MAX_LIMIT = 1000
GROWTH = 4
SPARE = 4  # of an unfiltered search so much of what is wanted is judged besides, 1/4
LEAST_STEP = 16
SUMMARISED = 20  # passages looked for in the documents whose summaries were found


@dataclass
class _State:
    """Manifests and records of one request, and where each listed chunk stands in its document."""

    manifests: dict[str, Manifest | None] = field(default_factory=dict)
    records: dict[str, AccessRecord | None] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    verdicts: dict[str, Refusal | None] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)  # BM25 of what words found, admitted or not: never told

    def admits(self, chunk_id: str) -> bool:
        """Whether the chunk was judged and admitted."""
        return chunk_id in self.verdicts and self.verdicts[chunk_id] is None


class Retriever:
    """One for the process; each call serves one request from one generation."""

    def __init__(self, reader: IndexReader, overlay: Overlay, clock: Clock) -> None:
        self._reader = reader
        self._overlay = overlay
        self._clock = clock

    async def retrieve(
        self, plan: Plan, narrowing: Narrowing, closure: Closure, k: int, limits: Limits, watch: Stopwatch
    ) -> Outcome:
        """All admitted candidates, best first. Raises StoreUnavailable.

        Nobody and an empty scope find nothing without a search.
        """
        outcome = Outcome(fold=limits.fold)
        if not closure.principals or narrowing.empty:
            return outcome
        statistics = self._statistics(plan)
        try:
            await self._retrieve(plan, narrowing, closure, k, limits, watch, outcome, statistics)
        finally:
            if statistics is not None:
                statistics.cancel()
        return outcome

    def _statistics(self, plan: Plan) -> asyncio.Future[TermStatistics] | None:
        """Begin to ask for them: they need the words alone, and the dense list still waits for the query's vector."""
        if plan.mode == "dense" or not plan.terms:
            return None
        asked = asyncio.ensure_future(self._reader.statistics(plan.generation, plan.tenant, plan.terms))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # a search that failed awaits none
        return asked

    async def _retrieve(
        self, plan: Plan, narrowing: Narrowing, closure: Closure, k: int, limits: Limits, watch: Stopwatch,
        outcome: Outcome, statistics: asyncio.Future[TermStatistics] | None,
    ) -> None:  # fmt: skip
        pool, state = Pool(), _State()
        depth = max(k, limits.candidates)
        filtered = len(closure.principals) <= limits.filter_principals
        limit = min(MAX_LIMIT, depth if filtered else 2 * depth)
        want = max(k, limits.candidates // 2)
        while True:
            where = search_filter(narrowing, closure if filtered else None)
            await search(self._reader, plan, where, limit, pool)
            watch.lap("search")
            await self._score(plan, pool.by_words(), state, statistics)
            watch.lap("fuse")
            await self._admit_best(plan, pool, narrowing, closure, state, depth, fold=limits.fold, filtered=filtered)
            watch.lap("admit")
            if not self._short_legs(pool, state, want):
                break
            if time.monotonic() >= limits.deadline or (filtered and limit >= MAX_LIMIT):
                break
            if filtered:
                limit = min(MAX_LIMIT, limit * GROWTH)
            filtered = True
            outcome.refills += 1
        outcome.repaired = await self._repair(plan, pool, narrowing, closure, state, limit)
        await self._open_summaries(plan, pool, narrowing, closure, state)
        watch.lap("repair")
        admitted = {c: x for c, x in pool.found.items() if state.admits(c)}
        outcome.starved = bool(pool.saturated) and len(admitted) < k
        outcome.ranked = await self._rank(
            plan, admitted, state, limits, depth, outcome, bool(pool.saturated), statistics
        )
        watch.lap("fuse")
        self._count(pool, state, outcome)

    async def again(
        self, plan: Plan, narrowing: Narrowing, closure: Closure, kept: Sequence[Candidate], limits: Limits,
        taken: Callable[[str], bool],
    ) -> dict[str, Ranked]:  # fmt: skip
        """Passages that an earlier page ranked, by their ids; who may not read one now does not find it.

        For a passage whose document moved on meanwhile stands the document's best one that is not ``taken``. The tier
        of ``kept`` is looked up. Raises StoreUnavailable.
        """
        if not kept or not closure.principals or narrowing.empty:
            return {}
        state = _State()
        await self._admit(plan, kept, narrowing, closure, state)
        found: dict[str, Ranked] = {}
        for c in kept:
            manifest = state.manifests[c.document_uid]
            if state.admits(c.chunk_id) and manifest is not None:
                c.tier = manifest.tier
                found[c.chunk_id] = Ranked(c, manifest, state.places[c.chunk_id], fused=0.0)
        changed = [c for c in kept if state.verdicts[c.chunk_id] is Refusal.NOT_LISTED]
        if changed:
            documents = sorted({c.document_uid for c in changed})
            inside, limit = Pool(), min(MAX_LIMIT, SUMMARISED * len(documents))
            await search(self._reader, plan, search_filter(narrowing, None, documents=documents), limit, inside)
            await self._admit(plan, inside.found.values(), narrowing, closure, state)
            admitted = {i: c for i, c in inside.found.items() if state.admits(i)}
            ranked = await self._rank(plan, admitted, state, limits, MAX_LIMIT, Outcome())
            used = set(found)
            for c in changed:
                own = (r for r in ranked if r.candidate.document_uid == c.document_uid)
                best = next((r for r in own if not (r.candidate.chunk_id in used or taken(r.candidate.chunk_id))), None)
                if best is not None:
                    used.add(best.candidate.chunk_id)
                    found[c.chunk_id] = best
        return found

    # ------------------------------------------------------------ admission

    async def _admit_best(
        self, plan: Plan, pool: Pool, narrowing: Narrowing, closure: Closure, state: _State, depth: int, *, fold: bool,
        filtered: bool,
    ) -> None:  # fmt: skip
        """Judge the nearest and the best by words, each until more than ``depth`` different passages are admitted.

        Nothing is cut before admission: farther candidates are judged as soon as nearer ones were refused. One more
        than is ranked tells whether there is more, without a word about what was not admitted.
        """
        words = pool.by_words()
        found = fuse.order({c.chunk_id: s for c in words if not c.exact and (s := state.scores[c.chunk_id]) > 0.0})
        lists = [pool.by_distance(), [pool.found[chunk_id] for chunk_id in found]]
        batch = [c for c in words if c.exact]  # they stand in front wherever they are in a list
        wanted, judged, rounds = depth + 1, [0, 0], 0
        while True:
            for i, ranked in enumerate(lists):
                lacking = wanted - self._passages(ranked[: judged[i]], state, fold)
                if lacking > 0 and judged[i] < len(ranked):
                    # Of an unfiltered search some are refused. Later rounds grow: many refusals cost few of them.
                    first = wanted if filtered else wanted + wanted // SPARE
                    step = max(LEAST_STEP, 2 * lacking) << (rounds - 1) if rounds else first
                    batch += ranked[judged[i] : judged[i] + step]
                    judged[i] += step
            if not batch:
                return
            await self._admit(plan, batch, narrowing, closure, state)
            batch, rounds = [], rounds + 1

    @staticmethod
    def _passages(judged: Sequence[Candidate], state: _State, fold: bool) -> int:
        """How many of them are admitted, equal ones counted once where they are folded."""
        admitted = [c.chunk_id for c in judged if state.admits(c.chunk_id)]
        return len({state.places[c].entry.embed_hash or c for c in admitted}) if fold else len(admitted)

    async def _admit(
        self,
        plan: Plan,
        candidates: Iterable[Candidate],
        narrowing: Narrowing,
        closure: Closure,
        state: _State,
    ) -> None:
        """Give every new candidate a verdict; records and manifests are read once a request."""
        new = list({c.chunk_id: c for c in candidates if c.chunk_id not in state.verdicts}.values())
        uids = sorted({c.document_uid for c in new} - state.manifests.keys())
        if uids:
            manifests, records = await asyncio.gather(
                self._reader.manifests(plan.generation, plan.tenant, uids),
                self._reader.access(plan.tenant, uids),
            )
            for uid in uids:
                manifest = manifests.get(uid)
                state.manifests[uid] = manifest if manifest is not None and manifest.document.uid == uid else None
                state.records[uid] = self._overlay.access(uid, records.get(uid))
        await self._find_places(plan, new, state)
        self._judge(new, narrowing, closure, state)
        behind = sorted({c.document_uid for c in new if state.verdicts[c.chunk_id] is Refusal.ACCESS_BEHIND})
        if behind:
            # Record and manifest were read at once, and the record a moment before its lane wrote it.
            records = await self._reader.access(plan.tenant, behind)
            for uid in behind:
                state.records[uid] = self._overlay.access(uid, records.get(uid))
            self._judge(new, narrowing, closure, state)
        if plan.phrases:
            await self._check_phrases(plan, [c for c in new if state.admits(c.chunk_id)], state)

    async def _check_phrases(self, plan: Plan, admitted: Sequence[Candidate], state: _State) -> None:
        """Refuse what holds a quoted phrase's words, but not next to each other; only admitted texts are looked at."""
        if not admitted:
            return
        texts = await self._lexical(plan, admitted)
        for c in admitted:
            if not phrases.holds(texts.get(c.chunk_id, ""), plan.phrases):
                state.verdicts[c.chunk_id] = Refusal.FILTER

    def _judge(self, candidates: Sequence[Candidate], narrowing: Narrowing, closure: Closure, state: _State) -> None:
        now = self._clock.now()
        for c in candidates:
            manifest, record = state.manifests[c.document_uid], state.records[c.document_uid]
            listed = c.chunk_id in state.places
            state.verdicts[c.chunk_id] = admit_chunk(listed, manifest, record, closure, narrowing, now)

    async def _find_places(self, plan: Plan, candidates: Sequence[Candidate], state: _State) -> None:
        by_document: dict[str, list[str]] = {}
        for c in candidates:
            by_document.setdefault(c.document_uid, []).append(c.chunk_id)
        paged: list[tuple[Manifest, list[str]]] = []
        for uid, chunk_ids in by_document.items():
            manifest = state.manifests[uid]
            if manifest is None:
                continue
            if manifest.pages:
                paged.append((manifest, chunk_ids))
                continue
            wanted = set(chunk_ids)
            for ordinal, entry in enumerate(manifest.chunks):
                if entry.chunk_id in wanted:
                    state.places[entry.chunk_id] = Place(ordinal, entry)
        found = await asyncio.gather(
            *(self._reader.page_entries(plan.generation, manifest, ids) for manifest, ids in paged)
        )
        for entries in found:
            state.places.update({c: Place(entry.ordinal, entry) for c, entry in entries.items()})

    @staticmethod
    def _short_legs(pool: Pool, state: _State, want: int) -> set[str]:
        """Legs that may have had more and of which too few different passages were admitted."""
        admitted: dict[str, set[str]] = {"dense": set(), "sparse": set(), "exact": set()}
        for c in pool.found.values():
            if state.admits(c.chunk_id):
                passage = state.places[c.chunk_id].entry.embed_hash or c.chunk_id
                for leg, found in (("dense", c.distance is not None), ("sparse", c.sparse), ("exact", c.exact)):
                    if found:
                        admitted[leg].add(passage)
        return {leg for leg in pool.saturated if len(admitted[leg]) < want}

    async def _repair(
        self, plan: Plan, pool: Pool, narrowing: Narrowing, closure: Closure, state: _State, limit: int
    ) -> int:
        """Search once more, by document id, the documents of which only the manifest moved on; how many they were.

        Their old chunks were found and not the new ones, which the manifest that was read since lists: they stand in
        the store for the longest deadline after a newer one. So that manifest decides; reading it again would let the
        document move on once more.
        """
        moved = sorted(
            {c.document_uid for c in pool.found.values() if state.verdicts.get(c.chunk_id) is Refusal.NOT_LISTED}
        )
        if not moved:
            return 0
        saturated = set(pool.saturated)
        again = Pool()
        # Unfiltered by principals: the pre-filter may be stale while a document changes, and admission decides anyway.
        where = search_filter(narrowing, None, documents=moved)
        await search(self._reader, plan, where, min(limit, MAX_LIMIT), again)
        for candidate in again.found.values():
            pool.found.setdefault(candidate.chunk_id, candidate)
        await self._admit(plan, again.found.values(), narrowing, closure, state)
        pool.saturated = saturated
        return len(moved)

    async def _open_summaries(
        self, plan: Plan, pool: Pool, narrowing: Narrowing, closure: Closure, state: _State
    ) -> None:
        """Search the documents whose summaries were found once more, for the passages that stand in their place."""
        summaries = [
            c for c in pool.found.values() if state.admits(c.chunk_id) and state.places[c.chunk_id].entry.summary
        ]
        if not summaries:
            return
        summaries.sort(key=lambda c: (not c.exact, c.distance if c.distance is not None else 3.0, c.chunk_id))
        documents = list(dict.fromkeys(c.document_uid for c in summaries))[: expand.DOCUMENTS]
        saturated = set(pool.saturated)
        inside = Pool()
        await search(self._reader, plan, search_filter(narrowing, None, documents=documents), SUMMARISED, inside)
        for candidate in inside.found.values():
            pool.found.setdefault(candidate.chunk_id, candidate)
        await self._admit(plan, inside.found.values(), narrowing, closure, state)
        pool.saturated = saturated

    # ------------------------------------------------------------ ranks

    async def _rank(
        self,
        plan: Plan,
        admitted: dict[str, Candidate],
        state: _State,
        limits: Limits,
        depth: int,
        outcome: Outcome,
        saturated: bool = False,
        statistics: asyncio.Future[TermStatistics] | None = None,
    ) -> list[Ranked]:
        """Ranks among the admitted, one-based, ``depth`` a list; holders of all identifiers first, then by fusion."""
        distances = {c: x.distance for c, x in admitted.items() if x.distance is not None}
        await self._score(plan, [x for x in admitted.values() if x.sparse], state, statistics)
        scores = {c: s for c, x in admitted.items() if x.sparse and (s := state.scores[c]) > 0.0}
        exact = [c for c, x in admitted.items() if x.exact]
        if limits.fold:
            hashes = {c: state.places[c].entry.embed_hash for c in admitted}
            equal = fold.groups(admitted, hashes, frozenset(exact), scores, distances)
        else:
            equal = {c: [] for c in admitted}
        distances = {c: d for c, d in distances.items() if c in equal}
        scores = {c: s for c, s in scores.items() if c in equal}
        exact = [c for c in exact if c in equal]
        dense = sorted(distances, key=lambda c: (distances[c], c))[:depth]
        sparse = fuse.order(scores)[:depth]
        listed = list(dict.fromkeys([*exact, *dense, *sparse]))
        outcome.more = saturated or len(distances) > len(dense) or len(scores) > len(sparse)
        outcome.admitted.update(dense=len(dense), sparse=len(sparse), exact=len(exact), admitted=len(listed))
        if limits.fusion == "convex":
            nearness, words = {c: -distances[c] for c in dense}, {c: scores[c] for c in sparse}
            fused = fuse.convex(nearness, words, limits.dense_share)
        else:
            fused = fuse.rrf([dense, sparse])
        fused = {c: fused.get(c, 0.0) for c in listed}
        dense_rank = {c: r for r, c in enumerate(dense, start=1)}
        sparse_rank = {c: r for r, c in enumerate(sparse, start=1)}
        ranked: list[Ranked] = []
        for chunk_id in sorted(listed, key=lambda c: (not admitted[c].exact, -fused[c], c)):
            uid = admitted[chunk_id].document_uid
            manifest, record = state.manifests[uid], state.records[uid]
            if manifest is None or record is None:
                continue
            ranked.append(
                Ranked(
                    candidate=admitted[chunk_id],
                    manifest=manifest,
                    place=state.places[chunk_id],
                    fused=fused[chunk_id],
                    dense_rank=dense_rank.get(chunk_id),
                    sparse_rank=sparse_rank.get(chunk_id),
                    sparse_score=scores.get(chunk_id),
                    twins=tuple(
                        Twin(admitted[c], twin, state.places[c])
                        for c in equal[chunk_id]
                        if (twin := state.manifests[admitted[c].document_uid]) is not None
                    ),
                )
            )
        return expand.expanded(ranked)

    async def _score(
        self, plan: Plan, found: Iterable[Candidate], state: _State, asked: asyncio.Future[TermStatistics] | None
    ) -> None:
        """Give what words found its BM25 from statistics over both tiers, once; 0 without words or a text."""
        new = [c for c in found if c.chunk_id not in state.scores]
        if not new:
            return
        if not plan.terms:
            state.scores.update((c.chunk_id, 0.0) for c in new)
            return
        statistics, texts = await asyncio.gather(
            asked if asked is not None else self._reader.statistics(plan.generation, plan.tenant, plan.terms),
            self._lexical(plan, new),
        )
        score = bm25.scorer(plan.terms, statistics)
        state.scores.update((c.chunk_id, score(texts.get(c.chunk_id, ""))) for c in new)

    async def _lexical(self, plan: Plan, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Analysed texts by chunk id: those that came with the hits, the others are read."""
        texts = {c.chunk_id: c.lexical for c in candidates if c.lexical is not None}
        lacking = [c for c in candidates if c.lexical is None]
        if lacking:
            texts.update(await self._reader.lexical(plan.generation, plan.tenant, _by_tier(lacking)))
        return texts

    @staticmethod
    def _count(pool: Pool, state: _State, outcome: Outcome) -> None:
        for c in pool.found.values():
            outcome.raw["dense"] += c.distance is not None
            outcome.raw["sparse"] += c.sparse
            outcome.raw["exact"] += c.exact
            verdict = state.verdicts.get(c.chunk_id)
            if verdict is not None:
                outcome.refused[verdict.value] += 1


def _by_tier(candidates: Iterable[Candidate]) -> dict[Tier, list[str]]:
    found: dict[Tier, list[str]] = {}
    for candidate in candidates:
        found.setdefault(candidate.tier, []).append(candidate.chunk_id)
    return found
