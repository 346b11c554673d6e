"""Servers on loopback that do what none should: our clients of them keep their secrets, their memory and their time."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.embed.wire import Failed, wire_of
from pipeline.observe import Metrics
from pipeline.settings import EndpointSettings
from pipeline.settings_auth import AuthSettings
from pipeline.settings_query import GeneratorSettings, InferenceSettings, RerankSettings
from query_service.client import AsyncHeadwaterClient, HeadwaterClient, reading
from query_service.client.errors import HeadwaterError, Unavailable, UnexpectedReply
from query_service.generate import openai_server
from query_service.generate.interface import GeneratorUnavailable, Message
from query_service.generate.openai_server import OpenAiGenerator
from query_service.jwks import KeySet
from query_service.rerank.endpoint import EndpointReranker
from query_service.rerank.interface import RerankerUnavailable
from query_service.scope import KeysUnavailable
from schemas.generation import EncoderSpec

pytestmark = pytest.mark.anyio
Answer = Callable[[BaseHTTPRequestHandler], None]
SECRET = "credential-6b1f"


class Hostile:
    """A server that answers as it is told, and keeps what it was sent."""

    def __init__(self, answer: Answer) -> None:
        self.seen: list[str] = []
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.seen.append(f"{self.headers} {body!r}")
                with suppress(BrokenPipeError, ConnectionResetError):  # the client has had enough
                    answer(self)
                self.close_connection = True

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[Hostile]:
        """Until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.over.set()
            self._server.shutdown()
            self._server.server_close()


def says(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            to.send_header(name.replace("_", "-"), value)
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)

    return answer


def drips(to: BaseHTTPRequestHandler) -> None:
    """A byte every now and then, so that no single read takes long."""
    to.send_response(200)
    to.send_header("Content-Length", "100000")
    to.end_headers()
    for _ in range(200):
        to.wfile.write(b" ")
        to.wfile.flush()
        time.sleep(0.02)  # the server's pace


def drips_headers(to: BaseHTTPRequestHandler) -> None:
    """The same before its reply has begun."""
    to.send_response(200)
    to.flush_headers()
    to.wfile.write(b"X-Slow: ")
    for _ in range(400):
        to.wfile.write(b"y")
        to.wfile.flush()
        time.sleep(0.02)


def reranker(url: str) -> EndpointReranker:
    settings = RerankSettings(backend="endpoint", url=url, api_key=SecretStr(SECRET), timeout_s=1.0)
    return EndpointReranker(settings, InferenceSettings(), Metrics())


async def generated(url: str) -> str:
    settings = GeneratorSettings(url=f"{url}/v1", model="tiny", api_key=SecretStr(SECRET), attempts=1)
    made = OpenAiGenerator(settings, InferenceSettings(), Metrics())
    try:
        return (await made.complete([Message("user", "a passage")], max_tokens=10, timeout_s=3)).text
    finally:
        await made.close()


def completion(text: str, **usage: Any) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    found = {"id": "1", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [choice]}
    return json.dumps({**found, **({"usage": usage} if usage else {})}).encode()


@pytest.mark.requirement("A8", "B12")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_neither_credentials_nor_texts_follow_a_redirect(status: int) -> None:
    with Hostile(says(b"{}")).running() as other:
        with Hostile(says(b"", status, Location=f"{other.url}/v1/search")).running() as first:
            with HeadwaterClient(first.url, token=SECRET) as client, pytest.raises(UnexpectedReply):
                await asyncio.to_thread(client.search, "my query")
            with pytest.raises(GeneratorUnavailable):
                await generated(first.url)
            with pytest.raises(RerankerUnavailable):
                await asyncio.to_thread(reranker(first.url).score, "my query", ["a passage"])
            assert len(first.seen) == 3
        assert other.seen == []


@pytest.mark.requirement("B12")
@pytest.mark.parametrize("squeezed", [False, True])
async def test_replies_without_end_are_not_read_to_their_end(monkeypatch: pytest.MonkeyPatch, squeezed: bool) -> None:
    monkeypatch.setattr(reading, "MAX_REPLY", 100_000)
    monkeypatch.setattr(openai_server, "MOST_BYTES", 100_000)
    body = completion(" " * 3_000_000 + "x")
    answer = says(gzip.compress(body), Content_Encoding="gzip") if squeezed else says(body)
    with Hostile(answer).running() as server:
        with HeadwaterClient(server.url, token=SECRET) as client, pytest.raises(UnexpectedReply, match="bytes"):
            await asyncio.to_thread(client.search, "q")
        async with AsyncHeadwaterClient(server.url, token=SECRET) as awaited:
            with pytest.raises(UnexpectedReply, match="bytes"):
                await awaited.search("q")
        with pytest.raises(GeneratorUnavailable):
            await generated(server.url)
        with pytest.raises(RerankerUnavailable):
            await asyncio.to_thread(reranker(server.url).score, "q", ["a"])
        assert any("accept-encoding: identity" in sent.lower() for sent in server.seen)


@pytest.mark.requirement("B12")
async def test_a_reply_that_drips_costs_the_attempt_its_time_and_no_more() -> None:
    with Hostile(drips).running() as server:
        with HeadwaterClient(server.url, token=SECRET, timeout_s=0.3) as client:
            began = time.monotonic()
            with pytest.raises(Unavailable):
                await asyncio.to_thread(client.search, "q")
            assert time.monotonic() - began < 2
        async with AsyncHeadwaterClient(server.url, token=SECRET, timeout_s=0.3) as awaited:
            with pytest.raises(Unavailable):
                await awaited.search("q")
        assert len(server.seen) == 2, "it is not asked again: that would cost the service its work twice"


@pytest.mark.requirement("B12")
@pytest.mark.parametrize("answer", [drips, drips_headers])
async def test_no_server_that_drips_outlasts_the_time_of_a_call(answer: Answer) -> None:
    endpoint = EndpointSettings(url="http://127.0.0.1:9", timeout_s=0.5)

    def embed(url: str, provider: str) -> None:
        spec = EncoderSpec.model_validate({"model": "tiny", "provider": provider, "endpoint": "e"})
        wire = wire_of(spec, endpoint.model_copy(update={"url": url}))
        try:
            wire.embed(["a passage"], 0.5)
        finally:
            wire.close()

    def rerank(url: str) -> None:
        made = reranker(url)
        try:
            made.score("q", ["a"])
        finally:
            made.close()

    async def keys(url: str) -> None:
        await KeySet(AuthSettings(jwks_url=f"{url}/keys", jwks_timeout_s=0.5)).looked_again()

    with Hostile(answer).running() as server:
        asked: dict[str, tuple[type[Exception], Awaitable[Any]]] = {
            "reranker": (RerankerUnavailable, asyncio.to_thread(rerank, server.url)),
            "tei": (Failed, asyncio.to_thread(embed, server.url, "tei")),
            "openai": (Failed, asyncio.to_thread(embed, f"{server.url}/v1", "openai")),
            "generator": (GeneratorUnavailable, generated(server.url)),
            "keys": (KeysUnavailable, keys(server.url)),
        }
        for name, (error, call) in asked.items():
            began = time.monotonic()
            with pytest.raises(error):
                await call
            assert time.monotonic() - began < 5, name  # the server takes eight seconds
        assert len(server.seen) >= len(asked)


@pytest.mark.requirement("B12")
async def test_a_year_is_not_waited_for() -> None:
    with Hostile(says(b"{}", 429, Retry_After="31536000")).running() as server:
        began = time.monotonic()
        with HeadwaterClient(server.url, token=SECRET) as client, pytest.raises(HeadwaterError) as caught:
            await asyncio.to_thread(client.search, "q")
        assert time.monotonic() - began < 2 and caught.value.retry_after == 31_536_000  # type: ignore[attr-defined]
        assert len(server.seen) == 1 and SECRET not in str(caught.value)


@pytest.mark.requirement("B12")
@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe", b"1e999", b'"\\ud800"'])
async def test_json_that_breaks_parsers_is_an_answer_like_any_other_bad_one(body: bytes) -> None:
    with Hostile(says(body)).running() as server:
        with pytest.raises(RerankerUnavailable):
            await asyncio.to_thread(reranker(server.url).score, "q", ["a"])
        with HeadwaterClient(server.url, token=SECRET) as client, pytest.raises(UnexpectedReply):
            await asyncio.to_thread(client.search, "q")
        with pytest.raises(GeneratorUnavailable):
            await generated(server.url)


@pytest.mark.requirement("B12")
async def test_half_characters_and_absurd_counts_of_a_generator_do_no_harm() -> None:
    answer = says(completion("fine \ud800", prompt_tokens=10**400, completion_tokens=1, total_tokens=1))
    with Hostile(answer).running() as server:
        assert await generated(server.url) == "fine ?"
