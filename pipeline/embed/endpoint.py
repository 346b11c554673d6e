"""Texts to unit vectors by an embedding endpoint.

    texts ▸ too long? ▸ batches (count, tokens) ▸ request ▸ checks ▸ rows in the order of the texts
                                                  │
                                                  ├ no answer, 408, 424, 425, 429, 5xx: again, then EncoderUnavailable
                                                  ├ 400, 413, 422: halves, until one text is to blame
                                                  └ everything else: ConfigError

A text that is refused alone, while the endpoint takes a plain one, is a DocumentError with its number.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from pipeline.embed.tokens import token_counter
from pipeline.embed.wire import Answer, Failed, Wire, wire_of
from pipeline.errors import ConfigError, DocumentError, EncoderUnavailable, QueryRefused
from pipeline.observe import Metrics, metrics
from pipeline.ports import TokenCounter, Vectors
from pipeline.settings import EndpointSettings, Settings
from schemas.generation import BackendChoice, EncoderSpec

log = logging.getLogger(__name__)

NORM_TOLERANCE = 1e-2  # servers that compute or answer in half precision
CONFIRM_EVERY_S = 60.0
FIRST_WAIT_S = 0.5
MOST_WAIT_S = 8.0
LONGEST_RETRY_AFTER_S = 60.0
PLAIN = "ready"
_AGAIN = frozenset({408, 424, 425, 429})
_REFUSED = frozenset({400, 413, 422})


@dataclass(frozen=True)
class Usage:
    """What an encoder object asked of its endpoint so far. ``cost`` is in ``currency``."""

    requests: int = 0
    repeated: int = 0
    texts: int = 0
    tokens: int = 0
    cost: float = 0.0
    currency: str = "EUR"


class _Refused(Exception):
    """The endpoint answered that it cannot take this request, or made no finite vector of it."""


class EndpointEncoder:
    """ports.Embedder over HTTP. Calls from several threads run side by side.

    ``usage`` counts requests, tokens and money.
    """

    def __init__(
        self,
        spec: EncoderSpec,
        endpoint: EndpointSettings,
        wire: Wire,
        counter: TokenCounter,
        *,
        meter: Metrics | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.spec = spec
        self.backend = BackendChoice(name="endpoint", agreement=1.0)
        self._endpoint = endpoint
        self._wire = wire
        self._counter = counter
        self._meter = meter if meter is not None else metrics()
        self._sleep = sleep
        self._special = counter.count("")
        self._lock = threading.Lock()
        self._usage = Usage(currency=endpoint.currency)
        self._confirmed_at: float | None = None

    @property
    def usage(self) -> Usage:
        """What was asked so far."""
        with self._lock:
            return self._usage

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimension), rows in the order of the texts.

        Raises DocumentError (stage 'embed') for a text that is too long or that the endpoint cannot take,
        EncoderUnavailable when it does not answer, ConfigError when it answers with what cannot be of this encoder.
        """
        whole = [self.spec.document_instruction + text for text in texts]
        counts = [self._counter.count(text) for text in whole]
        for number, count in enumerate(counts):
            if count > self.spec.max_tokens:
                raise DocumentError(
                    f"text {number} has {count} tokens, the encoder reads {self.spec.max_tokens}; "
                    "chunking must use this encoder's token counter",
                    stage="embed",
                    kind="too-long",
                )
        out = np.zeros((len(whole), self.spec.dimension), dtype=np.float32)
        for start, end in self._batches(counts):
            out[start:end] = self._rows(whole[start:end], start, sum(counts[start:end]))
        return out

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension) within the endpoint's query timeout; a query longer than the encoder reads is cut."""
        return self.embed_queries([text])

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimension), rows in the order of the texts, all within one query timeout; longer ones are cut.

        Raises QueryRefused where the endpoint does not take one of them, EncoderUnavailable when it does not answer.
        """
        whole = [self._cut(self.spec.query_instruction + text) for text in texts]
        counts = [self._counter.count(text) for text in whole]
        until = time.monotonic() + self._endpoint.query_timeout_s
        try:
            rows = [self._request(whole[i:j], sum(counts[i:j]), until) for i, j in self._batches(counts)]
        except _Refused as error:
            raise QueryRefused(f"endpoint {self.spec.endpoint} cannot take this query: {error}") from None
        return np.concatenate(rows)

    def _cut(self, text: str) -> str:
        if self._counter.count(text) <= self.spec.max_tokens:
            return text
        spans = self._counter.offsets(text)[: self.spec.max_tokens - self._special]
        return text[: spans[-1][1]]

    def close(self) -> None:
        """Close connections."""
        self._wire.close()

    def _batches(self, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
        start = tokens = 0
        for number, count in enumerate(counts):
            full = number - start >= self._endpoint.batch or tokens + count > self._endpoint.batch_tokens
            if number > start and full:
                yield start, number
                start, tokens = number, 0
            tokens += count
        if counts:
            yield start, len(counts)

    def _rows(self, texts: Sequence[str], first: int, tokens: int) -> Vectors:
        """One batch. A refused one is halved: either it was too large, or one text in it is to blame."""
        try:
            return self._request(texts, tokens)
        except _Refused as error:
            if len(texts) == 1:
                raise self._blamed(first, error) from None
        half = len(texts) // 2
        left = self._rows(texts[:half], first, tokens // 2)
        return np.concatenate([left, self._rows(texts[half:], first + half, tokens - tokens // 2)])

    def _blamed(self, number: int, error: _Refused) -> DocumentError | ConfigError:
        """A single refused text is to blame only if the endpoint takes a plain one."""
        try:
            self._request([PLAIN], self._counter.count(PLAIN))
        except _Refused:
            return ConfigError(
                f"endpoints.{self.spec.endpoint}",
                f"it refuses every text: {error}",
                "Check the endpoint's address and the model that it serves.",
            )
        status = re.match(r"status \d+", str(error))  # the server's words may hold the text
        reason = f"the endpoint refuses it ({status.group()})" if status else str(error)
        return DocumentError(f"text {number}: {reason}", stage="embed", kind="refused")

    def _request(self, texts: Sequence[str], tokens: int, until: float | None = None) -> Vectors:
        """Ask until an answer comes or attempts or time are used up. ``until`` is by the monotonic clock."""
        problem = "no attempt was made"
        attempts = self._endpoint.attempts
        for attempt in range(attempts):
            left = self._endpoint.timeout_s if until is None else until - time.monotonic()
            if left <= 0:
                break
            try:
                self._confirm(min(left, self._endpoint.timeout_s))
                answer = self._wire.embed(texts, min(left, self._endpoint.timeout_s))
                self._count(len(texts), tokens if answer.tokens is None else answer.tokens)
                return self._checked(answer, again=attempt == 0 and attempts > 1)
            except Failed as error:
                problem = str(error)
                self._confirmed_at = None  # whoever answers next may be another server
                wait = self._wait(error, attempt)
            if attempt + 1 == attempts or (until is not None and time.monotonic() + wait >= until):
                break
            self._repeated(problem)
            self._sleep(wait)
        raise EncoderUnavailable(f"endpoint {self.spec.endpoint}: {problem}")

    def _wait(self, error: Failed, attempt: int) -> float:
        """Seconds until the next attempt. Raises what no repetition mends."""
        if error.status in _REFUSED:
            raise _Refused(str(error)) from None
        if error.status is not None and error.status < 500 and error.status not in _AGAIN:
            raise ConfigError(
                f"endpoints.{self.spec.endpoint}",
                f"the endpoint does not serve requests: {error}",
                "Check its address, its key and its model.",
            ) from None
        if error.retry_after is not None:
            if error.retry_after > LONGEST_RETRY_AFTER_S:
                raise EncoderUnavailable(f"endpoint {self.spec.endpoint}: {error}") from None
            return error.retry_after
        # spread, so that several consumers do not come back at the same moment
        return min(MOST_WAIT_S, FIRST_WAIT_S * 2.0**attempt) * random.uniform(0.5, 1.0)

    def _confirm(self, timeout_s: float) -> None:
        now = time.monotonic()
        if self._confirmed_at is None or now - self._confirmed_at > CONFIRM_EVERY_S:
            self._wire.confirm(timeout_s)
            self._confirmed_at = now

    def _checked(self, answer: Answer, *, again: bool) -> Vectors:
        """Unit rows. Raises ConfigError for another dimension or length, Failed or _Refused for what is not finite."""
        dimensions = {len(row) if isinstance(row, list) else -1 for row in answer.rows}
        if dimensions != {self.spec.dimension}:
            raise ConfigError(
                "encoder.dimension",
                f"the endpoint {self.spec.endpoint} answers with dimension {', '.join(map(str, sorted(dimensions)))}, "
                f"the generation says {self.spec.dimension}",
                "Correct the generation's encoder, or serve the model that it names.",
            )
        try:
            vectors: Vectors = np.asarray(answer.rows, dtype=np.float32)
        except (TypeError, ValueError):
            raise Failed("the answer holds what is not a number") from None
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or (norms == 0).any():
            problem = "the endpoint made a vector without a finite, positive norm"
            raise Failed(problem) if again else _Refused(problem)
        if not self.spec.normalize:
            return vectors
        if np.abs(norms - 1).max() > NORM_TOLERANCE:
            raise ConfigError(
                "encoder.normalize",
                f"the endpoint {self.spec.endpoint} answers with vectors of length {float(norms.max()):.3g}, "
                "the generation says unit length",
                "Let the server normalise, or declare a generation without normalisation.",
            )
        unit: Vectors = vectors / norms
        return unit

    def _repeated(self, problem: str) -> None:
        kind = re.match(r"status \d+|no answer", problem)
        self._meter.count(
            "headwater_embed_retries_total", endpoint=self.spec.endpoint, kind=kind.group() if kind else "answer"
        )
        log.warning("endpoint %s is asked again: %s", self.spec.endpoint, problem)
        with self._lock:
            self._usage = replace(self._usage, repeated=self._usage.repeated + 1)

    def _count(self, texts: int, tokens: int) -> None:
        """Answered requests cost money even where the answer is then refused."""
        cost = tokens * self._endpoint.price_per_million_tokens / 1e6
        name, currency = self.spec.endpoint, self._endpoint.currency
        self._meter.count("headwater_embed_tokens_total", tokens, endpoint=name)
        self._meter.count("headwater_embed_cost_total", cost, endpoint=name, currency=currency)
        with self._lock:
            now = self._usage
            self._usage = replace(
                now,
                requests=now.requests + 1,
                texts=now.texts + texts,
                tokens=now.tokens + tokens,
                cost=now.cost + cost,
            )


def load_endpoint(spec: EncoderSpec, settings: Settings) -> EndpointEncoder:
    """The encoder behind a configured endpoint, after it said what it serves and embedded a text.

    Raises ConfigError when it is not configured, refuses or serves another model, EncoderUnavailable when it does not
    answer.
    """
    endpoint = settings.endpoints.get(spec.endpoint)
    if endpoint is None:
        raise ConfigError(
            f"endpoints.{spec.endpoint}",
            "the generation's encoder names an endpoint that is not configured here",
            f"Set HEADWATER_ENDPOINTS__{spec.endpoint.upper()}__URL, or name it in the settings file.",
        )
    encoder = EndpointEncoder(spec, endpoint, wire_of(spec, endpoint), token_counter(spec, settings))
    try:
        encoder.embed_documents([PLAIN])
    except BaseException:
        encoder.close()
        raise
    return encoder


def try_endpoint(spec: EncoderSpec, settings: Settings) -> BackendChoice:
    """The outcome that a trial has for an endpoint: its speed, and whether it answers the same twice.

    ``agreement`` is the lowest cosine between two answers for the same texts. Raises like ``load_endpoint``, and
    ConfigError when the answers differ.
    """
    from pipeline.embed.reference import MIN_COSINE, record_texts
    from pipeline.embed.trial import reference_sha256

    texts = record_texts(spec, settings)
    with closing(load_endpoint(spec, settings)) as encoder:
        first = encoder.embed_documents(texts)
        started = time.perf_counter()
        # other batches: a server whose vectors depend on their neighbours is found out
        turned = texts[::-1]
        second = np.concatenate([encoder.embed_documents(turned[:3]), encoder.embed_documents(turned[3:])])[::-1]
        took = time.perf_counter() - started
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    agreement = float((np.einsum("ij,ij->i", first, second) / norms).min())
    if agreement < MIN_COSINE:
        raise ConfigError(
            f"endpoints.{spec.endpoint}",
            f"it answers the same text with different vectors: cosine {agreement:.4f}",
            "Serve the model in float or bf16, not with activations rounded per batch.",
        )
    return BackendChoice(
        name="endpoint",
        agreement=min(agreement, 1.0),
        chunks_per_second=len(texts) / took,
        reference_sha256=reference_sha256(),
    )
