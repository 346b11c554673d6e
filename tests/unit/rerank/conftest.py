"""Fixtures of the rerankers' unit tests: models whose time and answers the test decides."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from query_service.rerank.interface import Logits
from query_service.rerank.pairs import Pair, Shape


class Clock:
    """Seconds that pass when the test or a model says so."""

    def __init__(self) -> None:
        self.at = 1000.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            return self.at

    def pass_by(self, seconds: float) -> None:
        with self._lock:
            self.at += seconds


class Model:
    """Scores a passage by its length; a call takes ``call_ms`` and each token ``token_ms`` on the test's clock."""

    name = "length"

    def __init__(
        self, clock: Clock, *, call_ms: float = 0.0, token_ms: float = 1.0, shape: Shape | None = None
    ) -> None:
        self.clock = clock
        self.call_ms, self.token_ms = call_ms, token_ms
        self.shape = shape if shape is not None else Shape()
        self.calls: list[list[str]] = []
        self.error: Exception | None = None
        self.answer: Logits | None = None
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.closed = False

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        return [Pair(query, passage, len(passage)) for passage in passages]

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        return self.score_pairs(self.pairs(query, passages))

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        self.calls.append([pair.passage for pair in pairs])
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(5.0)
        if self.error is not None:
            raise self.error
        self.clock.pass_by((self.call_ms + self.token_ms * sum(pair.tokens for pair in pairs)) / 1000)
        if self.answer is not None:
            return self.answer
        return np.asarray([pair.tokens for pair in pairs], dtype=np.float32)

    def seen(self) -> list[str]:
        return [passage for call in self.calls for passage in call]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    return Clock()
