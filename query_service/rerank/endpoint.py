"""A reranker behind its own server: TEI's POST /rerank, or the form that Cohere made common.

    tei     {"query", "texts", "truncate", "raw_scores"}   ▸ [{"index", "score"}]
    cohere  {"model", "query", "documents", "top_n"}       ▸ {"results": [{"index", "relevance_score"}]}

An answer counts only whole: as many results as passages, each index once, finite numbers. Failures in a row open a
circuit breaker. Nothing of keys, queries or passages reaches errors and logs.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import numpy as np

from pipeline.calls import Calls
from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.settings_query import InferenceSettings, RerankSettings
from query_service.inference.breaker import Breaker, CircuitOpen
from query_service.rerank.interface import Logits, RerankerUnavailable
from query_service.rerank.pairs import Pair, Shape, estimated

ATTEMPTS = 2
WAIT_S = 0.05
CONNECTIONS = 8
MOST_BYTES = 1_000_000
MOST_SCORE = 1e30
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})


class Refused(RerankerUnavailable):
    """The server does not take this request; it may take others."""


class _Passing(Exception):
    """A failure that another attempt may mend. ``seconds`` the server asks to wait, None where it does not say."""

    def __init__(self, problem: str, seconds: float | None = None) -> None:
        super().__init__(problem)
        self.seconds = seconds


class EndpointReranker:
    """PairReranker over HTTP; calls run side by side on pooled connections."""

    def __init__(self, settings: RerankSettings, inference: InferenceSettings, metrics: Metrics) -> None:
        """Connects to nothing yet. Raises ConfigError without an address that can be used."""
        self.name = settings.model
        self.shape = Shape(part=inference.batch, workers=CONNECTIONS)
        self._style = settings.style
        self._timeout_s = settings.timeout_s
        self._max_tokens = settings.max_tokens
        self._breaker = Breaker("reranker", inference.failures, inference.cool_s, metrics, spared=(Refused,))
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        self._url = _address(settings.url)
        self._calls = Calls("rerank-endpoint")
        self._client = httpx.AsyncClient(
            # Not compressed: a few kilobytes could unfold to gigabytes before anybody counts them.
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=settings.timeout_s,
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
        )

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        """See Reranker."""
        pairs, most = self.pairs(query, passages), self.shape.part
        parts = [self.score_pairs(pairs[i : i + most]) for i in range(0, len(pairs), most)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        """See PairReranker; tokens are estimated, the server cuts."""
        return [estimated(query, passage, self._max_tokens) for passage in passages]

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        """See PairReranker: one request, repeated once where that may help, within ``timeout_s`` altogether."""
        if not pairs:
            return np.zeros(0, dtype=np.float32)
        body = self._body(pairs[0].query, [pair.passage for pair in pairs])
        try:
            with self._breaker.call():
                return self._asked(body, len(pairs), time.monotonic() + self._timeout_s)
        except CircuitOpen as error:
            raise RerankerUnavailable(str(error)) from None

    def close(self) -> None:
        """Close connections."""
        self._calls.close(self._client.aclose)

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self._style == "tei":
            return {"query": query, "texts": texts, "truncate": True, "raw_scores": True}
        return {"model": self.name, "query": query, "documents": texts, "top_n": len(texts)}

    def _asked(self, body: Mapping[str, Any], count: int, until: float) -> Logits:
        problem = "no attempt was made"
        for attempt in range(ATTEMPTS):
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                return _logits(self._style, self._sent(body, left), count)
            except _Passing as error:
                problem = str(error)
                wait = WAIT_S * random.uniform(1.0, 2.0) if error.seconds is None else error.seconds
            if attempt + 1 < ATTEMPTS:
                if time.monotonic() + wait >= until:
                    break
                time.sleep(wait)
        raise RerankerUnavailable(f"the reranker's server: {problem}")

    def _sent(self, body: Mapping[str, Any], timeout_s: float) -> Any:
        async def read() -> bytearray:
            async with self._client.stream("POST", self._url, json=body, timeout=timeout_s) as answer:
                _judged(answer)
                held = bytearray()
                async for block in answer.aiter_raw():
                    held += block
                    if len(held) > MOST_BYTES:
                        raise RerankerUnavailable(f"the reranker's server: an answer of over {MOST_BYTES} bytes")
                return held

        try:
            held = self._calls.run(read, timeout_s)
        except TimeoutError:
            raise _Passing("no answer in time") from None
        except httpx.HTTPError as error:
            raise _Passing(f"no answer ({type(error).__name__})") from None
        try:
            return json.loads(held)
        except (ValueError, RecursionError):
            raise _Passing("the answer is not JSON") from None


def _address(url: str | None) -> str:
    parts = httpx.URL(url or "")
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ConfigError(
            "rerank.url",
            "the backend 'endpoint' needs the address of a server",
            "Set it, for instance to http://host:8080, or rerank.backend to 'onnx'.",
        )
    whole = str(parts).rstrip("/")
    return whole if whole.endswith("/rerank") else f"{whole}/rerank"


def _judged(answer: httpx.Response) -> None:
    status = answer.status_code
    if status == 200:
        return
    if status in _AGAIN:
        seconds = answer.headers.get("retry-after", "")
        raise _Passing(f"status {status}", float(seconds) if seconds.isdecimal() else None)
    if status in _REFUSED:
        raise Refused(f"the reranker's server refuses the request: status {status}")
    raise RerankerUnavailable(f"the reranker's server: status {status}; check rerank.url, its key and its model")


def _logits(style: str, answer: Any, count: int) -> Logits:
    """In the order of the passages. Raises _Passing for an answer that is not whole."""
    results, field = answer, "score"
    if style == "cohere":
        results, field = answer.get("results") if isinstance(answer, dict) else None, "relevance_score"
    if not isinstance(results, list) or len(results) != count:
        raise _Passing(f"the answer is not a list of {count} results")
    out: Logits = np.full(count, np.nan, dtype=np.float32)  # an index twice leaves another one without a score
    for result in results:
        given: Mapping[str, Any] = result if isinstance(result, dict) else {}
        index, score = given.get("index"), given.get(field)
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
            raise _Passing("a result has no index of a passage")
        if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < MOST_SCORE:
            raise _Passing("a result has no finite score")
        out[index] = score
    if not np.isfinite(out).all():
        raise _Passing("a passage has no score")
    return out
