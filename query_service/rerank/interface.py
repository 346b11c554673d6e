"""What ranks passages again, and what a request gets of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.errors import Retry

Logits = npt.NDArray[np.float32]


class RerankerUnavailable(Retry):
    """The reranker cannot score now; the fused order is served."""


class Reranker(Protocol):
    """A cross-encoder. Called from worker threads, several at once."""

    @property
    def name(self) -> str:
        """The model, for replies."""
        ...

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        """Shape (n,), larger is more relevant, in the order of the passages. Each pair is cut at the model's tokens.

        Raises RerankerUnavailable.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Reranked:
    """Scores of the first passages, as many as were scored; none where the fused order is to be served."""

    scores: tuple[float, ...]
    ms: float
    model: str | None = None
    late: bool = False
    reason: str | None = None


class Reranking(Protocol):
    """What the retrieval pipeline calls; used in the event loop."""

    async def rank(
        self, query: str, passages: Sequence[str], mode: Literal["fast", "full"], *, wanted: int | None, deadline: float
    ) -> Reranked:
        """Score the first passages of a list that is best first; never raises for what fails, and says it instead.

        ``fast``: as many as fit in the settings' time at the measured rate; ``full``: ``wanted``, else the settings'
        number. ``deadline`` is the request's own, by the monotonic clock.
        """
        ...
