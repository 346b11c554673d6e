"""``Checker``: one verdict a draft, from measures, models where they are loaded, and vetoes that no model overrules.

    draft ▸ forbidden? ▸ windows of all sources, measured ▸ models read the best ▸ probability and vetoes
          ▸ as a whole, else part by part ▸ the cited sources that say it, else better ones ▸ verdict

A draft's own citations are never trusted. One that cites nothing, or numbers that were not supplied, needs a source
that says it plainly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.observe import Metrics
from pipeline.ports import Vectors
from query_service.answer.interface import Draft, Reason, Source, Verdict
from query_service.rerank.interface import Reranking
from query_service.support import model
from query_service.support.candidates import Case, Claim, Read, case
from query_service.support.forbidden import forbidden
from query_service.support.measures import COSINE, LOGIT, Measured
from query_service.support.rows import told_row
from query_service.support.text import read

log = logging.getLogger("headwater.query.support")

Embed = Callable[[str], Awaitable[Vectors | None]]

IDENTICAL = 0.99
VETOED = 0.1  # largest score of what something speaks against
DOUBTFUL = 0.4  # of the threshold
LATE = 0.9  # share of the way from threshold to 1 that is added where time for models ran out
UNCITED = 0.5  # the same for a draft without a valid citation
_JOINED = 400  # characters between two quotes of one source that are given as one
TOLD = 0.2  # roughly how much a window has to be about the same before what speaks against is told
BETTER = 0.1  # of coverage
_AT_ONCE = 4
_LOGIT_SCALE = 11.0


class Judge(Protocol):
    """A model that says of a sentence and passages whether they say it; it overrules no veto."""

    async def judge(
        self, question: str, cases: Sequence[Case], sources: Sequence[Source], *, deadline: float
    ) -> list[Mapping[int, float] | None]:
        """For each case the probability of support by source number; None where it has no opinion. Never raises for
        what fails."""
        ...


@dataclass(frozen=True)
class _Support:
    """A window's share in a verdict."""

    measured: Measured
    score: float

    @property
    def number(self) -> int:
        return self.measured.window.number


class MeasuredChecker:
    """See ``interface.Checker``. Without ``embed`` and ``reranking`` the measures decide alone."""

    def __init__(
        self,
        threshold: float,
        *,
        embed: Embed | None = None,
        reranking: Reranking | None = None,
        judge: Judge | None = None,
        metrics: Metrics | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._threshold = threshold
        self._embed = embed
        self._reranking = reranking
        self._judge = judge
        self._metrics = metrics if metrics is not None else Metrics()
        self._now = now

    async def check(
        self, question: str, drafts: Sequence[Draft], sources: Sequence[Source], *, deadline: float
    ) -> list[Verdict]:
        """See ``interface.Checker``."""
        texts = [source.text for source in sources]
        by_number = {source.number: source for source in sources}
        cases = await asyncio.to_thread(_cases, question, drafts, sources)
        models = await self._models(question, cases, sources, deadline)
        late = models is None
        extra, opinions = models if models is not None else ({}, [None] * len(cases))
        found = []
        for one, opinion in zip(cases, opinions, strict=True):
            if forbidden(one.draft.text, texts):
                verdict = Verdict(False, 0.0, reason="forbidden")
            elif _asks(one.draft.text):
                verdict = Verdict(False, 0.0, reason="not_supported")
            else:
                row = told_row(one.draft, sources)
                verdict = row if row is not None else self._verdict(one, by_number, extra, opinion, late)
            self._metrics.count("headwater_support_total", outcome=_outcome(verdict))
            found.append(verdict)
        return found

    # ------------------------------------------------------------ models

    async def _models(
        self, question: str, cases: Sequence[Case], sources: Sequence[Source], deadline: float
    ) -> tuple[dict[int, dict[str, float]], list[Mapping[int, float] | None]] | None:
        """Features by ``id`` of what was measured, and opinions by case; None where the time was over before."""
        extra: dict[int, dict[str, float]] = {}
        none: list[Mapping[int, float] | None] = [None] * len(cases)
        if self._embed is None and self._reranking is None and self._judge is None:
            return extra, none
        left = deadline - self._now()
        if left <= 0:
            return None
        claims = [c for one in cases if not one.literal and not _plain(one) for c in (one.whole, *one.parts)]
        gate = asyncio.Semaphore(_AT_ONCE)
        work: list[Awaitable[object]] = [self._read_by_models(claim, extra, gate, deadline) for claim in claims]
        asked = self._judge.judge(question, cases, sources, deadline=deadline) if self._judge is not None else None
        try:
            async with asyncio.timeout(left):
                _, opinions = await asyncio.gather(asyncio.gather(*work), asked if asked is not None else _same(none))
        except TimeoutError:
            return None
        return extra, opinions

    async def _read_by_models(
        self, claim: Claim, extra: dict[int, dict[str, float]], gate: asyncio.Semaphore, deadline: float
    ) -> None:
        best = [one for one in claim.best() if one.veto is None]
        if best:
            async with gate:
                extra.update(await self.by_models(claim, best, deadline))

    async def by_models(self, claim: Claim, best: Sequence[Measured], deadline: float) -> dict[int, dict[str, float]]:
        """Features of the models that are there, by ``id`` of what was measured; fewer where one fails."""
        extra: dict[int, dict[str, float]] = {}
        try:
            for one, cosine in zip(best, await self._cosines(claim, best), strict=True):
                if cosine is not None:
                    extra.setdefault(id(one), {})[COSINE] = cosine
            for one, logit in zip(best, await self._logits(claim, best, deadline), strict=False):
                extra.setdefault(id(one), {})[LOGIT] = logit
        except Exception as error:  # whatever a model's library raises; its text may hold passages
            log.warning("a model of the support check failed", extra={"fields": {"error": type(error).__name__}})
        return extra

    async def _cosines(self, claim: Claim, best: Sequence[Measured]) -> list[float | None]:
        if self._embed is None:
            return [None] * len(best)
        mine = await self._embed(claim.unit.raw)
        rows = [await self._embed(one.window.text) for one in best] if mine is not None else [None] * len(best)
        return [None if row is None or mine is None else max(0.0, float(np.vdot(mine, row))) for row in rows]

    async def _logits(self, claim: Claim, best: Sequence[Measured], deadline: float) -> list[float]:
        """Scaled to 0 to 1, as many as were scored."""
        if self._reranking is None:
            return []
        texts = [one.window.text for one in best]
        found = await self._reranking.rank(claim.unit.raw, texts, "full", wanted=len(texts), deadline=deadline)
        return [min(1.0, max(0.0, 0.5 + score / (2 * _LOGIT_SCALE))) for score in found.scores]

    # ------------------------------------------------------------ verdicts

    def _verdict(
        self,
        one: Case,
        sources: Mapping[int, Source],
        extra: Mapping[int, Mapping[str, float]],
        opinion: Mapping[int, float] | None,
        late: bool,
    ) -> Verdict:
        valid = tuple(dict.fromkeys(number for number in one.draft.cited if number in sources))
        needed = self._threshold
        if late:
            needed += (1 - needed) * LATE
        if not valid:
            needed = max(needed, self._threshold + (1 - self._threshold) * UNCITED)
        whole = self._supports(one.whole, extra, one.literal, opinion)
        chosen = _chosen(whole, valid, needed)
        if chosen and _better_against(one.whole, chosen):
            chosen = []
        if chosen:
            return _accepted(chosen, min(s.score for s in chosen), sources)
        if one.parts:
            by_part = [_chosen(self._supports(p, extra, False, None), valid, needed) for p in one.parts]
            by_part = [[] if _better_against(p, found) else found for p, found in zip(one.parts, by_part, strict=True)]
            flat = [support for part in by_part for support in part]
            # A judge that denied the whole is only overruled where no single source could have said it.
            if all(by_part) and (opinion is None or len({support.number for support in flat}) > 1):
                return _accepted(flat, min(max(s.score for s in part) for part in by_part), sources)
        return self._refused(one, whole, valid, sources)

    def _supports(
        self, claim: Claim, extra: Mapping[int, Mapping[str, float]], literal: bool, opinion: Mapping[int, float] | None
    ) -> list[_Support]:
        """The best window of each source."""
        found = []
        for number, every in claim.found.items():
            scored = [_Support(one, _score(one, extra.get(id(one), {}), literal)) for one in every]
            best = max(scored, key=lambda s: (s.score, s.measured.rough), default=None)
            if best is None:
                continue
            if opinion is not None and not best.measured.identical and best.measured.veto is None and not literal:
                best = _Support(best.measured, opinion.get(number, 0.0))
            found.append(best)
        return found

    def _refused(
        self, one: Case, whole: Sequence[_Support], valid: Sequence[int], sources: Mapping[int, Source]
    ) -> Verdict:
        best = max(whole, key=lambda s: (s.measured.rough, s.score), default=None)
        if best is None:
            return Verdict(False, 0.0, reason="not_supported" if valid else _uncited(one.draft))
        # What speaks against it is told of the window that is most about the same.
        veto = best.measured.veto if best.measured.rough > TOLD else None
        reason: Reason = (veto or "not_supported") if valid else _uncited(one.draft)
        score = max(support.score for support in whole)
        free = max((s for s in whole if s.measured.veto is None), key=lambda s: s.score, default=None)
        if not valid or veto is not None or free is None or free.score < DOUBTFUL * self._threshold or one.literal:
            return Verdict(False, min(score, self._threshold), reason=reason)
        return Verdict(
            False, min(score, self._threshold), (free.number,), _quotes([free], sources), "not_supported", doubtful=True
        )


def _cases(question: str, drafts: Sequence[Draft], sources: Sequence[Source]) -> list[Case]:
    read_sources, asked = Read.of(sources), read(question)
    return [case(draft, read_sources, asked) for draft in drafts]


def _plain(one: Case) -> bool:
    """Whether a source that the draft cites has it word for word: no model is needed to see that."""
    said = [m.window.number for every in one.whole.found.values() for m in every if m.identical and m.veto is None]
    return any(number in one.draft.cited for number in said)


async def _same(value: list[Mapping[int, float] | None]) -> list[Mapping[int, float] | None]:
    return value


def _score(one: Measured, extra: Mapping[str, float], literal: bool) -> float:
    if one.identical:
        return IDENTICAL
    if literal:
        return 0.0
    features = {**one.features, **extra}
    score = model.of(features).probability(features)
    return score if one.veto is None else min(score, VETOED)


def _chosen(supports: Sequence[_Support], valid: Sequence[int], needed: float) -> list[_Support]:
    """The cited sources that say it; where none does, the one that says it best."""
    enough = [s for s in supports if s.score >= needed and s.measured.veto is None]
    cited = [s for s in enough if s.number in valid]
    if cited:
        return sorted(cited, key=lambda s: valid.index(s.number))
    return [max(enough, key=lambda s: s.score)] if enough else []


def _better_against(claim: Claim, chosen: Sequence[_Support]) -> bool:
    """Whether a window that is more about the same says otherwise: the row of another name has the number."""
    if not chosen or any(support.measured.identical for support in chosen):
        return False
    covered = max(support.measured.features["coverage"] for support in chosen)
    return any(
        one.veto in ("number", "negation") and one.features["coverage"] > covered + BETTER
        for every in claim.found.values()
        for one in every
    )


def _accepted(chosen: Sequence[_Support], score: float, sources: Mapping[int, Source]) -> Verdict:
    cited = tuple(dict.fromkeys(support.number for support in chosen))
    return Verdict(True, score, cited, _quotes(chosen, sources))


def _quotes(chosen: Sequence[_Support], sources: Mapping[int, Source]) -> dict[int, str]:
    spans: dict[int, tuple[int, int]] = {}
    for support in chosen:
        start, end = support.measured.window.span
        had = spans.get(support.number)
        if had is None:
            spans[support.number] = (start, end)
        elif max(start, had[0]) - min(end, had[1]) <= _JOINED:
            spans[support.number] = (min(start, had[0]), max(end, had[1]))
    return {number: sources[number].text[start:end] for number, (start, end) in spans.items()}


def _uncited(draft: Draft) -> Reason:
    return "wrong_citation" if draft.cited else "no_citation"


def _outcome(verdict: Verdict) -> str:
    return "supported" if verdict.supported else "doubtful" if verdict.doubtful else verdict.reason or "not_supported"


def _asks(text: str) -> bool:
    """Whether it is a question: it says nothing that a source could support, also where one asks the same."""
    return text.rstrip(" \t\n\"'”’»)*_").endswith(("?", "？", "؟"))
