"""The generator through the real SDK, answered by a script in memory: text, streams, usage, and every way to fail."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.errors import ConfigError, Retry
from pipeline.observe import Metrics
from pipeline.settings_query import GeneratorSettings, InferenceSettings
from query_service.generate import openai_server
from query_service.generate.interface import Completion, GeneratorUnavailable, Message, Piece
from query_service.generate.openai_server import OpenAiGenerator
from tests.fakes.llm import KEY, Garbage, Hangs, Reply, Says, ScriptedModel, Status, Unreachable

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("B12")]
PROMPT = [Message("system", "answer shortly"), Message("user", "a question with a secret-word in it")]


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_server, "FIRST_WAIT_S", 0.001)


class Made:
    """A generator on a script."""

    def __init__(self, *replies: Reply, failures: int = 3, key: str | None = KEY, **settings: Any) -> None:
        self.now = 0.0
        self.model = ScriptedModel.of(*replies, key=key)
        self.metrics = Metrics()
        given = {"url": "http://llm.test/v1", "model": "tiny", "api_key": SecretStr(KEY), **settings}
        self.generator = OpenAiGenerator(
            GeneratorSettings(**given), InferenceSettings(failures=failures, cool_s=10.0), self.metrics,
            http_client=self.model.client(), now=lambda: self.now,
        )  # fmt: skip

    @property
    def left_alone(self) -> bool:
        return self.metrics.value("headwater_circuit_open", server="generator") == 1

    async def complete(self, **options: Any) -> Completion:
        return await self.generator.complete(PROMPT, **{"max_tokens": 50, "timeout_s": 5.0, **options})

    async def stream(self, **options: Any) -> list[Piece]:
        return [p async for p in self.generator.stream(PROMPT, **{"max_tokens": 50, "timeout_s": 5.0, **options})]

    def requests(self, outcome: str) -> float:
        return self.metrics.value("headwater_generator_requests_total", model="tiny", outcome=outcome)


async def test_a_whole_reply_with_usage_and_price() -> None:
    made = Made(Says("one two three"), prompt_price=1e6, completion_price=2e6)
    found = await made.complete(temperature=0.5)
    read = sum(len(m.content.split()) for m in PROMPT)
    assert (found.text, found.finish, found.model) == ("one two three", "stop", "tiny")
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.estimated) == (read, 3, False)
    assert found.usage.cost == pytest.approx(read + 6)
    assert made.model.requests[0]["temperature"] == 0.5 and made.model.requests[0]["max_tokens"] == 50
    assert made.metrics.value("headwater_generator_cost_total", model="tiny", currency="EUR") == pytest.approx(read + 6)
    assert made.metrics.value("headwater_generator_tokens_total", model="tiny", kind="written") == 3


async def test_usage_is_estimated_where_the_server_is_silent() -> None:
    found = await Made(Says("word " * 40, usage=False)).complete()
    assert found.usage.estimated and 25 <= found.usage.completion_tokens <= 80 and found.usage.prompt_tokens > 8


async def test_a_stream_ends_with_its_usage() -> None:
    made = Made(Says("one two three"))
    pieces = await made.stream()
    assert "".join(p.text for p in pieces) == "one two three" and len(pieces) == 4
    last = pieces[-1]
    assert last.finish == "stop" and last.usage is not None and last.usage.completion_tokens == 3
    assert made.model.requests[0]["stream_options"] == {"include_usage": True}
    silent = (await Made(Says("one two three", usage=False)).stream())[-1].usage
    assert silent is not None and silent.estimated and silent.completion_tokens >= 3


async def test_a_stream_that_breaks_says_so_and_is_paid_for() -> None:
    made = Made(Says("one two three four", stream_breaks=True))
    seen: list[str] = []
    with pytest.raises(GeneratorUnavailable):
        async for piece in made.generator.stream(PROMPT, max_tokens=50, timeout_s=5.0):
            seen.append(piece.text)
    assert "".join(seen) == "one two"
    assert made.metrics.value("headwater_generator_tokens_total", model="tiny", kind="written") > 0
    assert len(made.model.requests) == 1, "pieces were served: no repetition"


@pytest.mark.parametrize(
    "reply",
    [
        Garbage(), Garbage(b'{"choices": []}', "application/json"), Garbage(b"[1, 2]", "application/json"),
        Garbage(b'{"choices": [{"message": null}]}', "application/json"), Garbage(b"", "application/json"),
        Garbage(b'{"choices": [{"message": {"content": ["a"]}}]}', "application/json"),
        Says(""), Says(" \n"), Says("", refusal="I will not"), Says("part", finish="content_filter"),
        Status(400), Status(401), Status(404),
    ],
)  # fmt: skip
async def test_what_cannot_be_used_is_unavailable_without_repetition(reply: Reply) -> None:
    made = Made(reply)
    with pytest.raises(GeneratorUnavailable) as caught:
        await made.complete()
    assert isinstance(caught.value, Retry) and len(made.model.requests) == 1
    assert made.requests("failed") == 1
    made = Made(reply)
    with pytest.raises(GeneratorUnavailable):
        await made.stream()


@pytest.mark.parametrize("reply", [Status(429), Status(429, retry_after=0.001), Status(503), Unreachable()])
async def test_what_passes_is_asked_again_a_bounded_number_of_times(reply: Reply) -> None:
    made = Made(reply, Says("there"))
    assert (await made.complete()).text == "there"
    assert (made.requests("repeated"), made.requests("answered")) == (1, 1)
    made = Made(reply, reply, reply, Says("late"), attempts=3, failures=9)
    with pytest.raises(GeneratorUnavailable):
        await made.complete()
    assert len(made.model.requests) == 3
    made = Made(reply, Says("one two"))
    assert (await made.stream())[0].text == "one", "a stream is opened again as well"


async def test_a_long_wait_that_the_server_asks_for_is_not_waited_for() -> None:
    made = Made(Status(429, retry_after=60), Says("late"))
    started = time.monotonic()
    with pytest.raises(GeneratorUnavailable, match="status 429"):
        await made.complete()
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("how", ["complete", "stream"])
async def test_one_deadline_for_everything(how: str) -> None:
    made = Made(Hangs(), attempts=5)
    started = time.monotonic()
    with pytest.raises(GeneratorUnavailable, match="in time"):
        await getattr(made, how)(timeout_s=0.05)
    assert time.monotonic() - started < 2
    capped = Made(Hangs(), timeout_s=0.05)
    with pytest.raises(GeneratorUnavailable):
        await capped.complete(timeout_s=100.0)


async def test_cancelling_frees_the_call() -> None:
    made = Made(Hangs())
    task = asyncio.create_task(made.complete())
    while not made.model.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not made.left_alone


async def test_a_server_that_fails_is_left_alone_and_tried_by_one() -> None:
    made = Made(*[Unreachable()] * 4, Says("back"), attempts=1, failures=2)
    for _ in range(5):
        with pytest.raises(GeneratorUnavailable):
            await made.complete()
    assert len(made.model.requests) == 2, "the circuit is open"
    made.now = 11
    with pytest.raises(GeneratorUnavailable):
        await made.complete()
    assert len(made.model.requests) == 3, "one request tried"
    made.now = 22
    made.model.replies = [Says("back")]
    assert (await made.complete()).text == "back"
    assert not made.left_alone


async def test_a_refused_prompt_says_nothing_against_the_server() -> None:
    made = Made(*[Status(400)] * 5, Says("fine"), failures=2)
    for _ in range(5):
        with pytest.raises(GeneratorUnavailable, match="status 400"):
            await made.complete()
    assert (await made.complete()).text == "fine"


async def test_tokens_are_bounded_by_settings_and_context() -> None:
    made = Made(Says("a"), max_tokens=20)
    await made.complete(max_tokens=500)
    assert made.model.requests[0]["max_tokens"] == 20
    made = Made(Says("a"), context_tokens=256)
    with pytest.raises(GeneratorUnavailable, match="longer than the model reads"):
        await made.generator.complete([Message("user", "word " * 2000)], max_tokens=10, timeout_s=1)
    assert not made.model.requests


@pytest.mark.requirement("I12")
async def test_neither_key_nor_prompt_nor_words_of_the_server_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told: list[str] = []
    for reply in (Status(500), Status(429, retry_after=99), Status(400), Unreachable(), Garbage(), Says("")):
        made = Made(reply, attempts=1)
        with pytest.raises(GeneratorUnavailable) as caught:
            await made.complete()
        told += [str(caught.value), repr(caught.value.__cause__), made.metrics.render().decode(), repr(vars(caught))]
    wrong = Made(Says("never"), key="another")
    with pytest.raises(GeneratorUnavailable, match="status 401"):
        await wrong.complete()
    told += [caplog.text, *(str(vars(record)) for record in caplog.records if record.name.startswith("headwater"))]
    assert caplog.records
    for word in (KEY, "secret-word", "may not ask"):
        assert word not in "\n".join(told)


async def test_no_address_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"generator\.url"):
        OpenAiGenerator(GeneratorSettings(), InferenceSettings(), Metrics())


async def test_callers_without_time_shut_a_slow_server_for_nobody() -> None:
    made = Made(*[Hangs()] * 4, Says("42"), failures=3)
    for _ in range(4):
        with pytest.raises(GeneratorUnavailable):
            await made.complete(timeout_s=0.02)
    assert not made.left_alone
    assert (await made.complete()).text == "42"
    patient = Made(*[Hangs()] * 3, failures=3, timeout_s=0.02)
    for _ in range(3):
        with pytest.raises(GeneratorUnavailable):
            await patient.complete()
    assert patient.left_alone, "it had all the time that the settings give"
