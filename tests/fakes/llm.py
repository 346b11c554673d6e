"""A scripted OpenAI-compatible server: in memory behind the real SDK, or on loopback over real HTTP.

    model = ScriptedModel(Says("42"), Status(429, retry_after=0), Says("a", stream_breaks=True))
    model.client()            # httpx2.AsyncClient for unit tests, no socket
    async with model.serve() as url: ...

Replies are used in order; ``otherwise`` answers what comes after them. ``requests`` keeps what was asked.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import httpx2

KEY = "sk-test-0123456789-secret"


@dataclass(frozen=True)
class Says:
    """A reply with this text. ``stream_breaks`` cuts a stream after the first half; ``delay`` seconds come before."""

    text: str
    finish: str = "stop"
    usage: bool = True
    refusal: str | None = None
    stream_breaks: bool = False
    delay: float = 0.0


@dataclass(frozen=True)
class Waits:
    """A stream that says ``first``, waits until ``gate`` is set, and says ``then``. Over HTTP alone."""

    first: str
    then: str
    gate: threading.Event
    seconds: float = 30.0  # at most


@dataclass(frozen=True)
class Status:
    """An error status with the server's own words, which may repeat the key and the prompt."""

    code: int
    retry_after: float | None = None
    words: str = "the key {key} may not ask: {prompt}"


@dataclass(frozen=True)
class Garbage:
    """A 200 with a body that is no answer."""

    body: bytes = b"<html>it works</html>"
    kind: str = "text/html"


@dataclass(frozen=True)
class Hangs:
    """Never answers, until the client goes."""


@dataclass(frozen=True)
class Unreachable:
    """The connection is refused (in memory) or closed without an answer (over HTTP)."""


Reply = Says | Waits | Status | Garbage | Hangs | Unreachable
Answering = Callable[[dict[str, Any]], Reply]


@dataclass
class ScriptedModel:
    """The script, and what was asked. A wrong key is answered by 401, whatever the script says."""

    replies: list[Reply] = field(default_factory=list)
    otherwise: Reply | Answering = field(default_factory=lambda: Says("STOP"))
    key: str | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(*replies: Reply, **options: Any) -> ScriptedModel:
        """A script of these replies."""
        return ScriptedModel(list(replies), **options)

    @property
    def prompts(self) -> list[str]:
        """All messages of each request as one text."""
        return ["\n".join(m["content"] for m in request["messages"]) for request in self.requests]

    def answer(self, body: dict[str, Any], authorization: str) -> Reply:
        """The next reply."""
        with self._lock:
            self.requests.append(body)
            if self.key is not None and authorization != f"Bearer {self.key}":
                return Status(401)
            if self.replies:
                return self.replies.pop(0)
        return self.otherwise(body) if callable(self.otherwise) else self.otherwise

    def client(self) -> httpx2.AsyncClient:
        """A client whose requests end here."""
        return httpx2.AsyncClient(transport=_InMemory(self), base_url="http://llm.test/v1")

    @contextmanager
    def served(self) -> Iterator[str]:
        """As ``serve``, in a thread of its own, for tests that block."""
        started: Queue[str] = Queue()
        loop = asyncio.new_event_loop()
        done = asyncio.Event()

        async def run() -> None:
            async with self.serve() as url:
                started.put(url)
                await done.wait()

        thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
        thread.start()
        try:
            yield started.get(timeout=10)
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join(timeout=10)
            loop.close()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen on loopback; yields the base address."""
        server = await asyncio.start_server(lambda r, w: _connection(self, r, w), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.close()


# ---------------------------------------------------------------- what goes over the wire


def _usage(body: dict[str, Any], says: Says) -> dict[str, int]:
    read = sum(len(m["content"].split()) for m in body["messages"])
    wrote = len(says.text.split())
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _whole(body: dict[str, Any], says: Says) -> bytes:
    message = {"role": "assistant", "content": None if says.refusal else says.text, "refusal": says.refusal}
    answer: dict[str, Any] = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": says.finish, "logprobs": None}],
    }  # fmt: skip
    if says.usage:
        answer["usage"] = _usage(body, says)
    return json.dumps(answer).encode()


def _events(body: dict[str, Any], says: Says) -> list[bytes]:
    """Server-sent events: a piece a word, the end, the usage where it was asked for."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    words = says.text.split(" ")
    pieces = [word if at == 0 else f" {word}" for at, word in enumerate(words)]
    if says.stream_breaks:
        pieces = pieces[: max(1, len(pieces) // 2)]
    lines: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in pieces
    ]
    if not says.stream_breaks:
        lines.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": says.finish}]})
        if says.usage and body.get("stream_options", {}).get("include_usage"):
            lines.append({**base, "choices": [], "usage": _usage(body, says)})
    found = [f"data: {json.dumps(line)}\n\n".encode() for line in lines]
    return found if says.stream_breaks else [*found, b"data: [DONE]\n\n"]


def _error(status: Status, body: dict[str, Any], authorization: str) -> bytes:
    prompt = " ".join(m["content"] for m in body.get("messages", []))
    words = status.words.format(key=authorization, prompt=prompt)
    return json.dumps({"error": {"message": words, "type": "error", "code": status.code}}).encode()


class _InMemory(httpx2.AsyncBaseTransport):
    """The script as a transport of the HTTP library that the SDK uses."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(await request.aread())
        authorization = request.headers.get("authorization", "")
        reply = self._model.answer(body, authorization)
        if isinstance(reply, Unreachable):
            raise httpx2.ConnectError("refused", request=request)
        if isinstance(reply, Hangs):
            await asyncio.Event().wait()
        if isinstance(reply, Garbage):
            return httpx2.Response(200, content=reply.body, headers={"content-type": reply.kind}, request=request)
        if isinstance(reply, Status):
            headers = {"content-type": "application/json"}
            if reply.retry_after is not None:
                headers["retry-after"] = f"{reply.retry_after:g}"
            content = _error(reply, body, authorization)
            return httpx2.Response(reply.code, content=content, headers=headers, request=request)
        assert isinstance(reply, Says)
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if body.get("stream"):
            headers = {"content-type": "text/event-stream"}
            return httpx2.Response(200, stream=_Stream(body, reply), headers=headers, request=request)
        headers = {"content-type": "application/json"}
        return httpx2.Response(200, content=_whole(body, reply), headers=headers, request=request)


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, body: dict[str, Any], says: Says) -> None:
        self._body = body
        self._says = says

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in _events(self._body, self._says):
            yield event
        if self._says.stream_breaks:
            raise httpx2.ReadError("the connection broke")


async def _connection(model: ScriptedModel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request over HTTP/1.1; the connection ends with it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])
            if name
        }
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
        authorization = headers.get("authorization", "")
        reply = model.answer(body, authorization)
        if isinstance(reply, Unreachable):
            return
        if isinstance(reply, Hangs):
            await reader.read()  # until the client has gone
            return
        if isinstance(reply, Garbage):
            _write(writer, 200, reply.kind, reply.body)
        elif isinstance(reply, Status):
            wait = () if reply.retry_after is None else (f"retry-after: {reply.retry_after:g}",)
            _write(writer, reply.code, "application/json", _error(reply, body, authorization), wait)
        elif isinstance(reply, Waits):
            await _write_waiting(writer, body, reply)
        else:
            await asyncio.sleep(reply.delay)
            if body.get("stream"):
                await _write_stream(writer, _events(body, reply), broken=reply.stream_breaks)
            else:
                _write(writer, 200, "application/json", _whole(body, reply))
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _write(writer: asyncio.StreamWriter, status: int, kind: str, content: bytes, more: tuple[str, ...] = ()) -> None:
    lines = (f"HTTP/1.1 {status} -", f"content-type: {kind}", f"content-length: {len(content)}", "connection: close")
    writer.write("\r\n".join((*lines, *more, "", "")).encode("latin-1") + content)


async def _write_waiting(writer: asyncio.StreamWriter, body: dict[str, Any], reply: Waits) -> None:
    whole = Says(f"{reply.first} {reply.then}")
    events = _events(body, whole)
    before = len(_events({**body, "stream_options": {}}, Says(reply.first, usage=False))) - 2  # its end does not count
    lines = ("HTTP/1.1 200 -", "content-type: text/event-stream", "transfer-encoding: chunked", "connection: close")
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
    for at, event in enumerate(events):
        if at == before:
            await asyncio.to_thread(reply.gate.wait, reply.seconds)
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def _write_stream(writer: asyncio.StreamWriter, events: list[bytes], *, broken: bool) -> None:
    lines = ("HTTP/1.1 200 -", "content-type: text/event-stream", "transfer-encoding: chunked", "connection: close")
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
    for event in events:
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        await writer.drain()
    if not broken:
        writer.write(b"0\r\n\r\n")
