"""A real embedding server on loopback: MiniLM's vectors in both wire formats, and misbehaviour on demand."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pipeline.ports import Embedder

POISON = "\x07poison"
KEY = "sk-not-to-be-logged-5f1c"


@dataclass
class Behaviour:
    """What the server does; ``next`` is taken from for each embedding request, ``always`` holds when it is empty."""

    next: deque[str] = field(default_factory=deque)
    always: str = "well"
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    revision: str | None = None
    max_input_length: int = 256
    max_batch: int = 32
    requests: list[list[str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


class EmbeddingServer:
    """POST /v1/embeddings, POST /embed, GET /info."""

    def __init__(self, encoder: Embedder) -> None:
        self.encoder = encoder
        self.behaviour = Behaviour()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[EmbeddingServer]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

            def do_GET(self) -> None:
                told = outer.behaviour
                self.reply(
                    200,
                    {
                        "model_id": told.model,
                        "model_sha": told.revision,
                        "max_input_length": told.max_input_length,
                    },
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers.get("Authorization") != f"Bearer {KEY}":
                    self.reply(401, {"error": {"message": f"wrong key {self.headers.get('Authorization')}"}})
                    return
                told = outer.behaviour
                tei = self.path == "/embed"
                texts: list[str] = body["inputs"] if tei else body["input"]
                if tei and body["truncate"] is not False:
                    self.reply(400, {"error": "the client asked for truncation"})
                    return
                told.requests.append(texts)
                told.times.append(time.monotonic())
                how = told.next.popleft() if told.next else told.always
                if how == "307":  # to where it would be answered well
                    self.reply(307, {}, {"Location": f"{outer.url}{self.path}"})
                    return
                if how.isdecimal():
                    self.reply(int(how), {"error": "overloaded"}, {"Retry-After": "1"} if how == "429" else {})
                    return
                if how == "slow":
                    time.sleep(3)
                if len(texts) > told.max_batch:
                    self.reply(422, {"error": f"batch size {len(texts)} > maximum allowed {told.max_batch}"})
                    return
                if any(POISON in text for text in texts):
                    self.reply(400, {"error": {"message": f"cannot tokenise {texts[0]}"}})
                    return
                rows = outer.encoder.embed_documents(texts).tolist()
                if how == "half":
                    rows = rows[: len(rows) // 2]
                elif how == "dimension":
                    rows = [row[:-1] for row in rows]
                elif how == "long":
                    rows = [[3.0 * value for value in row] for row in rows]
                elif how == "nan":
                    rows[-1][7] = None
                elif how == "notjson":
                    self.reply(200, None)
                    return
                if tei:
                    self.reply(200, rows, {"x-compute-tokens": str(7 * len(texts))})
                    return
                data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
                if how == "index":
                    data = [{**item, "index": 0} for item in data]
                usage = {"prompt_tokens": 7 * len(texts), "total_tokens": 7 * len(texts)}
                data.reverse()  # the order of the list says nothing, the index does
                self.reply(200, {"object": "list", "data": data, "model": told.model, "usage": usage})

            def reply(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
                raw = b"<html>" if value is None else json.dumps(value).encode()
                try:
                    self.send_response(status)
                    for name, text in (headers or {}).items():
                        self.send_header(name, text)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except OSError:  # the client had waited long enough
                    self.close_connection = True

        return Handler
