"""The use case behind ``/v1/answer``: evidence, a draft, a check of every sentence, and the way out.

    kept? ▸ question ▸ search with evidence ▸ refuse? ▸ contradictions ▸ writer ▸ sentence ▸ support ▸ admission ▸ out
                                                                           └────── again for the next ──────┘

A sentence leaves after two checks: that passages say it, and that these passages may be read at that moment in that
very version. What is kept of an answer goes through the second check again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.settings_query import AnswerSettings, GeneratorSettings
from query_service.answer import answerable, contradiction, question, wording
from query_service.answer.cached import KeptAnswers
from query_service.answer.extractive import ExtractiveWriter, Weighed
from query_service.answer.interface import Ask, Checker, Draft, Source, Verdict, Writer, Written
from query_service.answer.moment import of_its_time
from query_service.answer.release import Released, event_of
from query_service.answer.sentences import Reading
from query_service.answer.spending import BudgetExhausted
from query_service.answer.stale import stale
from query_service.generate.interface import Generator, GeneratorUnavailable
from query_service.querylog.entry import Entry
from query_service.querylog.service import LoggedService
from query_service.scope import FieldError, Scope
from query_service.service import DeadlineExceeded
from schemas.api import SearchRequest, SearchResponse
from schemas.api_answer import (
    AnswerRequest,
    AnswerResponse,
    AnswerUsage,
    Contradiction,
    Refused,
    SentenceEvent,
    Side,
    StepEvent,
)
from schemas.api_answer import Refusal as RefusalTold

Event = StepEvent | SentenceEvent | AnswerResponse
Emit = Callable[[StepEvent | SentenceEvent], Awaitable[None]]
WAITING = 16  # events that wait for a slow reader at most; then the work waits too
UNSAID = "nothing that the generator wrote is said by the sources"
DECLINED = "the generator found no answer in the sources"
TOKEN_CHARS = 16  # a token has no more on average; what is written beyond comes from a server that knows no limit


@dataclass(frozen=True)
class Parts:
    """What answers are made with. Without a generator they are taken from the sources."""

    checker: Checker
    extractive: ExtractiveWriter
    generated: Writer | None = None
    generator: Generator | None = None  # of questions within a conversation
    kept: KeptAnswers | None = None


class AnswerService:
    """One for the process."""

    def __init__(
        self, service: LoggedService, parts: Parts, settings: AnswerSettings, generator: GeneratorSettings,
        clock: Clock, metrics: Metrics,
    ) -> None:  # fmt: skip
        self._service = service
        self._parts = parts
        self._settings = settings
        self._generator = generator
        self._clock = clock
        self._metrics = metrics

    async def answer(self, scope: Scope, request: AnswerRequest) -> AnswerResponse:
        """The whole answer. Raises FieldError, NotReady, StoreUnavailable, EncoderUnavailable, DeadlineExceeded, and
        GeneratorUnavailable or BudgetExhausted where a generated one was demanded."""

        async def nobody(event: StepEvent | SentenceEvent) -> None:
            return None

        return await self._logged(scope, request, nobody)

    def over(self, service: LoggedService) -> AnswerService:
        """The same answering over another search service."""
        return AnswerService(
            service, self._parts, self._settings, self._generator, self._clock, self._metrics
        )  # fmt: skip

    async def stream(self, scope: Scope, request: AnswerRequest) -> AsyncIterator[Event]:
        """Events as they come, the whole answer last; it counts, also where a sentence that was sent is not in it any
        more. Raises as ``answer``; before the first event for what is wrong with the request. DeadlineExceeded also
        where nobody reads for as long as an answer may take."""
        events: asyncio.Queue[Event | None] = asyncio.Queue(WAITING)

        async def put(event: Event) -> None:
            try:
                async with asyncio.timeout(self._settings.deadline_s):
                    await events.put(event)
            except TimeoutError:
                while not events.empty():  # these were admitted too long ago
                    events.get_nowait()
                raise DeadlineExceeded from None

        async def work() -> None:
            try:
                await put(await self._logged(scope, request, put))
            finally:
                with suppress(asyncio.QueueFull):
                    events.put_nowait(None)

        task = asyncio.create_task(work())
        try:
            while True:
                getting = asyncio.ensure_future(events.get())
                await asyncio.wait({getting, task}, return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    getting.cancel()
                    while not events.empty():
                        if (left := events.get_nowait()) is not None:
                            yield left
                    break
                if (event := getting.result()) is None:
                    break
                yield event
            await task
        finally:
            if not task.done():  # nobody listens any more
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})

    async def _logged(self, scope: Scope, request: AnswerRequest, emit: Emit) -> AnswerResponse:
        with self._service.querylog.watching("answer", scope) as entry:
            entry.inquired(request)
            started = time.perf_counter()
            response = await _Run(self._service, self._parts, self._settings, self._generator, self._clock, scope,
                                  request, emit, entry).run()  # fmt: skip
            response = response.model_copy(update={"timings_ms": {**response.timings_ms, "total": _ms(started)}})
            entry.replied(response)
            self._measure(response, time.perf_counter() - started)
            return response

    def _measure(self, response: AnswerResponse, took: float) -> None:
        refused = response.refusal.reason if response.refusal is not None else "none"
        self._metrics.count(
            "headwater_answers_total", kind=response.kind, refused=refused, cached=response.cached,
            fallback=response.fallback or "none",
        )  # fmt: skip
        self._metrics.count("headwater_answer_sentences_total", len(response.sentences), outcome="released")
        self._metrics.count("headwater_answer_sentences_total", response.withheld, outcome="withheld")
        self._metrics.observe("headwater_answer_seconds", took, kind=response.kind)


class _Run:
    """One answer on its way."""

    def __init__(
        self, service: LoggedService, parts: Parts, settings: AnswerSettings, generator: GeneratorSettings,
        clock: Clock, scope: Scope, request: AnswerRequest, emit: Emit, entry: Entry,
    ) -> None:  # fmt: skip
        self._service = service
        self._parts = parts
        self._settings = settings
        self._price = generator
        self._clock = clock
        self._scope = scope
        self._request = request
        self._emit = emit
        self._entry = entry
        self._deadline = time.monotonic() + settings.deadline_s
        self._language = request.language
        self._ms: dict[str, float] = {}
        self._found: SearchResponse | None = None
        self._weighed: Weighed | None = None
        self._policy = request.unsupported or settings.unsupported

    async def run(self) -> AnswerResponse:
        """Raises as ``AnswerService.answer``."""
        writer = self._writer()
        if self._language is None:  # the first look loads a model
            self._language = await asyncio.to_thread(wording.language_of, self._request.question)
        await self._service.searchable(self._scope, self._search_of(self._request.question))
        kept = self._parts.kept
        if kept is not None and (found := await kept.find(self._scope, self._request)) is not None:
            for index in range(len(found.sentences)):
                await self._emit(event_of(index, found.sentences, found.citations))
            return found
        await self._emit(StepEvent(step="searching"))
        started = time.perf_counter()
        asked = await question.standalone(self._request, self._parts.generator, deadline=self._deadline)
        if self._request.history:
            self._lap("question", started)
        started = time.perf_counter()
        self._found = response = await self._service.searched(self._scope, self._search_of(asked.query))
        self._lap("search", started)
        sources = _sources(response)
        if self._request.filters.as_of is None:
            sources = of_its_time(self._request.question, sources)
        if (refusal := self._refused_before(response, sources)) is not None:
            return self._refusal(refusal)
        await self._emit(StepEvent(step="reading", passages=len(sources)))
        answer = await self._answered(writer, asked.query, sources)
        if kept is not None:
            await kept.keep(self._scope, self._request, answer, response)
        return answer

    # ------------------------------------------------------------ before anything is written

    def _writer(self) -> Writer:
        """Raises FieldError."""
        if self._request.style == "extractive":
            return self._parts.extractive
        if self._parts.generated is not None:
            return self._parts.generated
        if self._request.style == "generated":
            raise FieldError("style", "no generator is configured here (generator.url); ask for 'auto' or 'extractive'")
        return self._parts.extractive

    def _search_of(self, query: str) -> SearchRequest:
        r, s = self._request, self._settings
        return SearchRequest(
            query=query, k=r.context or s.context, mode=r.mode, filters=r.filters, rerank=r.rerank or s.rerank,
            expand=r.expand, cache=r.cache,
            evidence=r.evidence, token_budget=r.token_budget or s.token_budget, snippets=False, after=r.after,
            wait_ms=r.wait_ms,
        )  # fmt: skip

    def _refused_before(self, response: SearchResponse, sources: tuple[Source, ...]) -> Refused | None:
        if response.fresh is False or stale(self._request, response, sources, self._clock.now()):
            return "stale"
        if not sources:
            return "nothing_found"
        return None

    # ------------------------------------------------------------ writing and checking

    async def _answered(self, writer: Writer, query: str, sources: tuple[Source, ...]) -> AnswerResponse:
        released = Released(
            self._scope, self._service, sources, self._found, self._clock, filters=self._request.filters,
            explain=self._request.explain,
        )  # fmt: skip
        self._weighed = await self._parts.extractive.weighed(self._ask(query, sources))
        assert self._found is not None
        if answerable.too_weak(query, self._found, self._weighed, self._settings.least):
            return self._refusal("weak_evidence", released)
        await self._emit(StepEvent(step="writing", passages=len(sources)))
        disputes = await asyncio.to_thread(contradiction.contradictions, query, sources)
        essential = [d for d in disputes if d.essential]
        for dispute in essential:
            await self._release_checked(released, contradiction.stated(dispute), query)
        disputed = bool(released.sentences)
        if essential and not disputed:
            await released.recheck()
            return self._refusal("contradictory", released)
        fallback: str | None = None
        reading = Reading()
        try:
            await self._write(writer, query, sources, released, reading, essential)
        except GeneratorUnavailable as error:
            if self._request.style == "generated" and not released.sentences:
                raise
            fallback = "the budget is used up" if isinstance(error, BudgetExhausted) else "the generator failed"
            if not released.sentences or disputed:
                writer = self._parts.extractive
                await self._write(writer, query, sources, released, Reading(), essential)
            else:
                released.incomplete = True
        else:
            if self._replaced(writer, released, reading):
                fallback = DECLINED if reading.refused else UNSAID
                writer, released.incomplete = self._parts.extractive, False
                await self._write(writer, query, sources, released, Reading(), essential)
        started = time.perf_counter()
        await released.recheck()
        self._lap("admission", started)
        return self._told(released, writer, reading, essential, fallback)

    def _replaced(self, writer: Writer, released: Released, reading: Reading) -> bool:
        """Whether sentences of the sources stand in for a generator's, of which none is left. Where it
        refused only if its refusals are not heeded: it may have read that nothing answers, which the measures before it
        cannot."""
        if writer.kind == "extractive" or self._request.style == "generated" or self._policy == "refuse":
            return False
        if reading.refused and self._settings.heed_refusals:
            return False
        return not (released.sentences or released.withdrawn)

    def _ask(self, query: str, sources: tuple[Source, ...]) -> Ask:
        r = self._request
        most = min(r.max_tokens or self._settings.max_tokens, self._price.max_tokens)
        return Ask(r.question, r.history, sources, most, self._deadline, self._language, query=query)

    async def _write(
        self, writer: Writer, query: str, sources: tuple[Source, ...], released: Released, reading: Reading,
        essential: list[contradiction.Dispute],
    ) -> None:  # fmt: skip
        """Raises GeneratorUnavailable."""
        ask = self._ask(query, sources)
        most = ask.max_tokens
        extractive = writer.kind == "extractive"
        writing = self._parts.extractive.written(ask, self._weighed) if extractive else writer.write(ask)
        started, checking = time.perf_counter(), 0.0
        last, bounded, room = Written(""), writer.kind == "generated", most * TOKEN_CHARS
        async with aclosing(writing) as parts:  # type: ignore[type-var]
            async for part in parts:
                last = part
                begun = time.perf_counter()
                await self._take(reading.feed(part.text[:room] if bounded else part.text), released, query, essential)
                checking += time.perf_counter() - begun
                room -= len(part.text)
                if not bounded:
                    continue
                if room < 0:
                    last = replace(part, finish="length")
                    break
                if part.text and time.monotonic() > self._deadline:  # what came at once outruns every clock
                    raise GeneratorUnavailable("no time is left")
        begun = time.perf_counter()
        rest = reading.end()
        if last.finish == "length":
            released.incomplete = True
            rest = [d for d in rest if d.text.rstrip()[-1:] in '.!?。！？…"”»)']  # the last one is half a sentence
        await self._take(rest, released, query, essential)
        checking += time.perf_counter() - begun
        self._ms["write"] = self._ms.get("write", 0.0) + (time.perf_counter() - started - checking) * 1000
        self._ms["check"] = self._ms.get("check", 0.0) + checking * 1000

    async def _take(
        self, drafts: list[Draft], released: Released, query: str, essential: list[contradiction.Dispute]
    ) -> None:
        left = []
        for draft in drafts:
            if any(contradiction.one_sided([draft], dispute) for dispute in essential):
                continue  # both sides stand there already
            left.append(draft)
        if left:
            await self._release_checked(released, left, query)

    async def _release_checked(self, released: Released, drafts: list[Draft], query: str) -> None:
        verdicts = await self._parts.checker.check(query, drafts, released.sources, deadline=self._deadline)
        before = len(released.sentences)
        for draft, verdict in zip(drafts, verdicts, strict=True):
            released.judge(draft, self._lenient(verdict), qualified=verdict.doubtful and not verdict.supported)
        await released.admit()
        if self._policy != "refuse":  # else it is known at the end alone whether anything leaves
            for index in range(before, len(released.sentences)):
                await self._emit(released.event(index))

    def _lenient(self, verdict: Verdict) -> Verdict:
        """What is doubtful passes where the request has it marked as unsure."""
        if self._policy == "qualify" and verdict.doubtful and verdict.cited and not verdict.supported:
            return replace(verdict, supported=True)
        return verdict

    # ------------------------------------------------------------ replies

    def _told(
        self, released: Released, writer: Writer, reading: Reading, essential: list[contradiction.Dispute],
        fallback: str | None,
    ) -> AnswerResponse:  # fmt: skip
        if self._policy == "refuse" and released.unsupported:
            return self._refusal("unsupported", released)
        if not released.sentences:
            if released.withdrawn and not released.unsupported:
                return self._refusal("nothing_found", released)
            silent = reading.refused or (writer.kind == "extractive" and not released.unsupported)
            return self._refusal("weak_evidence" if silent else "unsupported", released)
        disputes = _contradictions(essential, released)
        evidence = self._found.evidence if self._found is not None else None
        phrases = wording.phrases(self._language)
        text = released.text(phrases.unsure)
        return self._reply(
            released,
            answered=True,
            kind=writer.kind,
            text=f"{phrases.disagree} {text}" if disputes else text,
            sentences=tuple(released.sentences),
            citations=tuple(released.citations),
            needs_review=bool(disputes),
            contradictions=disputes,
            support=min(s.support for s in released.sentences),
            complete_evidence=bool(evidence and evidence.mode == "all" and evidence.complete),
            model=writer.model,
            fallback=fallback,
            incomplete=released.incomplete,
        )

    def _refusal(self, reason: Refused, released: Released | None = None) -> AnswerResponse:
        suggestion = self._found.suggestion if self._found is not None and reason == "nothing_found" else None
        return self._reply(
            released,
            answered=False,
            kind="refusal",
            text=wording.refusal(self._language),
            refusal=RefusalTold(reason=reason, detail=wording.detail(reason, self._language)),
            suggestion=suggestion,
            needs_review=reason == "contradictory",
        )

    def _reply(self, released: Released | None, **fields: object) -> AnswerResponse:
        found, entry = self._found, self._entry
        assert found is not None
        used = entry.tokens
        told = {
            "query_id": entry.query_id,
            "complete_until": found.complete_until,
            "fresh": found.fresh,
            "generation": found.generation,
            "supplied": len(found.evidence.passages) if found.evidence is not None else 0,
            "withheld": released.withheld if released is not None else 0,
            "withheld_sentences": tuple(released.told) if released is not None and self._request.explain else (),
            "usage": AnswerUsage(
                prompt_tokens=used.get("read", 0), completion_tokens=used.get("written", 0), cost=entry.cost,
                currency=self._price.currency if entry.cost else None, estimated=entry.estimated,
            ),
            "judged_at": released.judged_at if released is not None else found.judged_at,
            "timings_ms": {name: round(ms, 3) for name, ms in self._ms.items()},
        }  # fmt: skip
        return AnswerResponse.model_validate({**told, **fields})

    def _lap(self, name: str, started: float) -> None:
        self._ms[name] = self._ms.get(name, 0.0) + (time.perf_counter() - started) * 1000


def _sources(response: SearchResponse) -> tuple[Source, ...]:
    """In the order of the evidence, numbered by it."""
    passages = response.evidence.passages if response.evidence is not None else ()
    return tuple(Source(number, passage) for number, passage in enumerate(passages, start=1))


def _contradictions(disputes: list[contradiction.Dispute], released: Released) -> tuple[Contradiction, ...]:
    """Those of which at least two sides stand in the answer."""
    found: list[Contradiction] = []
    for dispute in disputes:
        sides = [Side(citation=n, text=text) for number, text in dispute.sides if (n := released.number_of(number))]
        if len({side.citation for side in sides}) > 1:
            found.append(Contradiction(kind=dispute.kind, sides=tuple(sides)))
    return tuple(found)


def _ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
