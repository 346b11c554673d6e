"""What an answer may take: text of a generator that knows no limit, time, and a reader who does not read."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from pipeline import analysis
from pipeline.errors import StoreUnavailable
from pipeline.settings_query import AnswerSettings
from query_service.answer import question as conversation
from query_service.answer.interface import Verdict
from query_service.answer.question import usable
from query_service.answer.service import TOKEN_CHARS, AnswerService
from query_service.scope import Scope
from query_service.service import DeadlineExceeded
from schemas.api_answer import AnswerRequest, Turn
from tests.fakes.llm import Says
from tests.unit.answer.test_service import CHECKS, QUESTION, Asking, asking, world
from tests.unit.query.world import World

__all__ = ["world"]
pytestmark = pytest.mark.anyio


def service_of(run: Asking, **settings: Any) -> AnswerService:
    """As the application has it, with other settings."""
    made: AnswerService = run.parts.answers
    return AnswerService(
        made._service, made._parts, AnswerSettings(**settings), made._generator, run.world.clock, run.world.metrics
    )  # fmt: skip


def called(run: Asking) -> bool:
    """A generator was called, and nothing is set aside for it any more."""
    days = run.parts.answers._parts.generated._generator._spending._days.values()
    return bool(run.model.requests) and all(day.tokens > 0 == day.set_aside_tokens for day in days)


@pytest.mark.requirement("B7", "C2")
async def test_a_generator_that_knows_no_limit_is_read_to_the_limit(world: World) -> None:
    flood = f"{CHECKS}[^1] " + " ".join(f"Sentence {n} speaks of nothing at all." for n in range(100_000))
    async with asking(world, otherwise=Says(flood)) as run:
        found = await asyncio.wait_for(run.ask(max_tokens=64), 30)
        assert called(run)
    assert [s["text"] for s in found["sentences"]] == [CHECKS] and found["incomplete"]
    assert 0 < found["withheld"] <= 64 * TOKEN_CHARS / 30


@pytest.mark.requirement("B7")
async def test_text_that_comes_faster_than_it_is_checked_ends_with_the_time(world: World) -> None:
    text = f"{CHECKS}[^1] " + " ".join(f"Sentence {n} speaks of nothing at all." for n in range(300))
    async with asking(world, otherwise=Says(text)) as run:
        service = service_of(run, deadline_s=60.0)
        checks = 0
        real = service._parts.checker.check

        async def slow(*given: Any, **named: Any) -> Any:
            nonlocal checks
            checks += 1
            if checks == 2:
                await asyncio.sleep(2.0)
            return await real(*given, **named)

        service._parts.checker.check = slow  # type: ignore[method-assign]
        service._settings = AnswerSettings(deadline_s=1.9)
        found = await service.answer(Scope("acme", "ann"), AnswerRequest(question=QUESTION, cache=False))
    assert [s.text for s in found.sentences] == [CHECKS] and found.incomplete and checks < 10


@pytest.mark.requirement("B7", "B9")
async def test_a_reader_who_does_not_read_holds_no_generator_and_gets_nothing_old(world: World) -> None:
    says = Says(" ".join(f"Status check {n} is over within minutes.[^1]" for n in range(60)))
    async with asking(world, otherwise=says) as run:
        service = service_of(run, deadline_s=2.0)

        async def agrees(question: str, drafts: Any, sources: Any, *, deadline: float) -> list[Verdict]:
            return [Verdict(True, 0.9, (1,), {1: sources[0].text}) for _ in drafts]

        service._parts.checker.check = agrees  # type: ignore[method-assign]
        events = service.stream(Scope("acme", "ann"), AnswerRequest(question=QUESTION, cache=False))
        await anext(events)
        await asyncio.sleep(5.0)
        assert called(run), "the call of the generator is over"
        with pytest.raises(DeadlineExceeded):
            async for event in events:
                raise AssertionError(f"admitted long ago: {event}")


@pytest.mark.requirement("B7")
async def test_a_failure_in_the_middle_ends_the_call_at_once(world: World) -> None:
    async with asking(world, otherwise=Says(f"{CHECKS}[^1] {CHECKS} " * 20)) as run:
        real = run.parts.reader.access

        async def access(*given: Any, **named: Any) -> Any:
            if run.model.requests:
                raise StoreUnavailable("away")
            return await real(*given, **named)

        run.parts.reader.access = access
        service = service_of(run)
        gc.disable()
        try:
            with pytest.raises(StoreUnavailable):
                await service.answer(Scope("acme", "ann"), AnswerRequest(question=QUESTION, cache=False))
            assert called(run)
        finally:
            gc.enable()


@pytest.mark.requirement("B7", "C2")
def test_of_a_long_conversation_only_what_the_generator_was_shown_is_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = 0
    real = analysis.tokens

    def tokens(text: str) -> list[str]:
        nonlocal read
        read += len(text)
        return real(text)

    monkeypatch.setattr(analysis, "tokens", tokens)
    long = "How long does a transfer take in Germany? " * 700
    history = tuple(Turn(role="user", content=long) for _ in range(40))
    assert usable("how long does a transfer take in Germany", "and there?", history) is not None
    assert usable("how long does a transfer with E17 take", "and there?", history) is None
    assert 0 < read < 3 * conversation.TURNS * conversation.TURN_CHARS


@pytest.mark.requirement("B8")
async def test_a_question_that_nobody_sees_is_none(world: World) -> None:
    async with asking(world, otherwise=Says(CHECKS)) as run:
        for seen in ("\u200b", "\u200b \u200d\ufeff", "\u2060\x00", " \n"):
            reply = await run.post(seen)
            assert reply.status_code == 422 and reply.json()["errors"][0]["field"] == "question", reply.text
            body = {"model": "headwater", "messages": [{"role": "user", "content": seen}]}
            headers = {"Authorization": f"Bearer {world.token()}"}
            chat = await run.client.post("/v1/chat/completions", json=body, headers=headers)
            assert chat.status_code in (400, 422), chat.text
        assert (await run.post(f"\u200b{QUESTION}\u200d")).status_code == 200
    assert len(run.model.requests) == 1
