"""Query encodings: shared calls, errors of their own, endpoints that are left alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest

from pipeline.clock import ManualClock
from pipeline.errors import EncoderUnavailable, QueryRefused
from pipeline.observe import Metrics
from pipeline.ports import Vectors
from pipeline.settings_query import InferenceSettings
from query_service.encoders import Encoders
from schemas.generation import BackendChoice, EncoderSpec, Generation

pytestmark = pytest.mark.anyio
BOUND_S = 5.0


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


class Encoder:
    """A text's vector is its length; every call of several waits until it is let go."""

    def __init__(self, spec: EncoderSpec) -> None:
        self.spec = spec
        self.backend = BackendChoice(name="stub", agreement=1.0)
        self.calls: list[list[str]] = []
        self.go: threading.Event | None = None
        self.begun = threading.Event()
        self.down = False
        self.closed = False

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self.embed_queries(texts)

    def embed_query(self, text: str) -> Vectors:
        return self.embed_queries([text])

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        self.begun.set()
        if self.go is not None:
            assert self.go.wait(BOUND_S)
        if self.down:
            raise EncoderUnavailable("endpoint e: no answer")
        if any("refused" in text for text in texts):
            raise QueryRefused("endpoint e cannot take this query")
        if any("broken" in text for text in texts):
            raise ValueError("broken")
        return np.asarray([[len(text)] for text in texts], dtype=np.float32)

    def close(self) -> None:
        self.closed = True


def generation(spec: EncoderSpec) -> Generation:
    backend = BackendChoice(name="stub" if spec.provider == "local" else "endpoint", agreement=1.0)
    return Generation(name="g1", state="active", encoder=spec, backend=backend, created_at=ManualClock().now())


LOCAL = generation(EncoderSpec())
REMOTE = generation(EncoderSpec(provider="tei", endpoint="e", weights_sha256="", revision=""))


@asynccontextmanager
async def loaded(one: Generation, **settings: float) -> AsyncIterator[tuple[Encoders, Encoder, Metrics]]:
    encoder, metrics = Encoder(one.encoder), Metrics()
    encoders = Encoders(lambda generation: encoder, InferenceSettings.model_validate(settings), metrics)
    await encoders.prepare(one)
    encoder.calls.clear()
    encoder.begun.clear()
    try:
        yield encoders, encoder, metrics
    finally:
        if encoder.go is not None:
            encoder.go.set()
        await asyncio.to_thread(encoders.close)


@pytest.mark.requirement("D1")
async def test_queries_that_wait_together_share_a_call() -> None:
    async with loaded(LOCAL) as (encoders, encoder, _):
        encoder.go = threading.Event()
        first = asyncio.create_task(encoders.embed(LOCAL, "x"))
        await asyncio.to_thread(encoder.begun.wait, BOUND_S)
        rest = [asyncio.create_task(encoders.embed(LOCAL, "y" * n)) for n in range(2, 9)]
        for _ in range(3):
            await asyncio.sleep(0)
        encoder.go.set()
        found = await asyncio.gather(first, *rest)
        assert [vector.tolist() for vector in found] == [[[n]] for n in range(1, 9)]
        assert [len(call) for call in encoder.calls] == [1, 7]
        assert (await encoders.embed(LOCAL, "y" * 5)).tolist() == [[5]] and len(encoder.calls) == 2  # remembered


@pytest.mark.requirement("D1", "B12")
@pytest.mark.parametrize("bad", ["broken", "refused"])
async def test_a_query_that_fails_does_so_alone(bad: str) -> None:
    async with loaded(LOCAL) as (encoders, encoder, _):
        encoder.go = threading.Event()
        first = asyncio.create_task(encoders.embed(LOCAL, "x"))
        await asyncio.to_thread(encoder.begun.wait, BOUND_S)
        others = [asyncio.create_task(encoders.embed(LOCAL, text)) for text in ("aa", bad, "bbb")]
        for _ in range(3):
            await asyncio.sleep(0)
        encoder.go.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        assert isinstance(found[2], EncoderUnavailable)
        assert [one.tolist() for one in (found[0], found[1], found[3]) if isinstance(one, np.ndarray)] == [
            [[1]], [[2]], [[3]],
        ]  # fmt: skip


@pytest.mark.requirement("D1")
async def test_more_queries_than_the_queue_takes_are_refused_for_a_while() -> None:
    async with loaded(LOCAL, queue=2) as (encoders, encoder, metrics):
        encoder.go = threading.Event()
        first = asyncio.create_task(encoders.embed(LOCAL, "x"))
        await asyncio.to_thread(encoder.begun.wait, BOUND_S)
        waiting = [asyncio.create_task(encoders.embed(LOCAL, text)) for text in ("aa", "bbb")]
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(EncoderUnavailable, match="too many queries wait"):
            await encoders.embed(LOCAL, "cccc")
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        fourth = asyncio.create_task(encoders.embed(LOCAL, "dddd"))
        for _ in range(3):
            await asyncio.sleep(0)
        encoder.go.set()
        assert [v.tolist() for v in await asyncio.gather(first, waiting[1], fourth)] == [[[1]], [[3]], [[4]]]
        assert [text for call in encoder.calls for text in call] == ["x", "bbb", "dddd"], (
            "who went away reaches no model"
        )
        assert metrics.value("headwater_inference_refused_total", lane="encoder", reason="full") == 1


@pytest.mark.requirement("B12")
async def test_an_endpoint_that_fails_is_left_alone_and_queries_are_told_at_once() -> None:
    async with loaded(REMOTE, failures=2, cool_s=60.0) as (encoders, encoder, metrics):
        encoder.down = True
        for text in ("a", "b"):
            with pytest.raises(EncoderUnavailable, match="no answer"):
                await encoders.embed(REMOTE, text)
        with pytest.raises(EncoderUnavailable, match="left alone"):
            await encoders.embed(REMOTE, "c")
        assert encoder.calls == [["a"], ["b"]]
        assert metrics.value("headwater_circuit_open", server="encoder:e") == 1


@pytest.mark.requirement("B12")
async def test_queries_that_the_endpoint_refuses_shut_it_for_nobody() -> None:
    async with loaded(REMOTE, failures=1, cool_s=60.0) as (encoders, _, _metrics):
        for number in range(3):
            with pytest.raises(QueryRefused):
                await encoders.embed(REMOTE, f"refused {number}")
        assert (await encoders.embed(REMOTE, "ab")).tolist() == [[2]]


async def test_released_encoders_are_closed_and_asked_no_more() -> None:
    async with loaded(LOCAL) as (encoders, encoder, _):
        encoders.keep([])
        assert not encoders.warm(LOCAL) and encoders.embed_if_warm(LOCAL, "a") is None
        async with asyncio.timeout(BOUND_S):
            while not encoder.closed:
                await asyncio.sleep(0.002)


async def test_from_another_thread_too() -> None:
    async with loaded(LOCAL) as (encoders, _, _metrics):
        found = await asyncio.to_thread(encoders.embed_if_warm, LOCAL, "abc")
        assert found is not None and found.tolist() == [[3]]
        with pytest.raises(EncoderUnavailable, match="the encoder failed: ValueError"):
            await asyncio.to_thread(encoders.embed_if_warm, LOCAL, "broken")
