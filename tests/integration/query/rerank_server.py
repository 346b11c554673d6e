"""A real reranking server on loopback: any reranker in both wire formats, and misbehaviour on demand."""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from query_service.rerank.interface import Reranker

KEY = "key-not-to-be-logged-7d20"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is what some tests are about."""


class RerankServer:
    """POST /rerank (TEI) and POST /v1/rerank (Cohere). ``faults`` are taken one a request, then it serves well."""

    def __init__(self, reranker: Reranker) -> None:
        self.reranker = reranker
        self.faults: deque[str] = deque()
        self.always = ""
        self.requests: list[dict[str, Any]] = []
        self.connections: set[tuple[str, int]] = set()
        self.release = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def reset(self) -> None:
        """Forget faults and requests."""
        self.faults.clear()
        self.always = ""
        self.requests.clear()
        self.connections.clear()
        self.release.clear()

    @contextmanager
    def running(self) -> Iterator[RerankServer]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.release.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def results(self, path: str, body: dict[str, Any]) -> Any:
        """What a good server answers."""
        tei = path == "/rerank"
        texts = body["texts"] if tei else body["documents"]
        scores = self.reranker.score(body["query"], texts).tolist()
        if not (tei and body.get("raw_scores")):
            scores = [1 / (1 + math.exp(-score)) for score in scores]
        found = sorted(enumerate(scores), key=lambda one: -one[1])
        if tei:
            return [{"index": index, "score": score} for index, score in found]
        return {"results": [{"index": index, "relevance_score": score} for index, score in found]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append({**body, "authorization": self.headers.get("Authorization")})
                outer.connections.add(self.client_address)
                fault = outer.faults.popleft() if outer.faults else outer.always
                if fault == "hang":
                    outer.release.wait(20)
                elif fault.isdecimal():
                    self._send(int(fault), json.dumps({"error": f"{body['query']} {KEY}"}).encode())
                elif fault == "garbage":
                    self._send(200, b"<html>")
                elif fault == "huge":
                    self._send(200, b"[" + b" " * 2_000_000 + b"]")
                else:
                    self._send(200, json.dumps(_spoilt(fault, outer.results(self.path, body))).encode())

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except (BrokenPipeError, ConnectionResetError):  # the client has seen enough
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler


def _spoilt(fault: str, answer: Any) -> Any:
    """The answer with one thing wrong; TEI's form."""
    if fault == "missing":
        return answer[:-1]
    if fault == "twice":
        return [answer[0], *answer[:-1]]
    if fault == "beyond":
        return [{**answer[0], "index": 99}, *answer[1:]]
    if fault == "nan":
        return [{**answer[0], "score": float("nan")}, *answer[1:]]
    if fault == "vast":
        return [{**answer[0], "score": 1e300}, *answer[1:]]
    if fault == "words":
        return [{**answer[0], "score": "high"}, *answer[1:]]
    if fault == "object":
        return {"scores": answer}
    return answer
