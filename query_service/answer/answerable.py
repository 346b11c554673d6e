"""Whether the passages answer the question: by the search's strength and by the best of their sentences. Pure.

A logistic combination, fitted by ``headwater bench extractive`` (docs/abstention.md). Where the models that it needs
did not speak, the search's own ``weak`` decides.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from query_service.answer.extractive import Weighed
from query_service.answer.insisted import SIGNALS
from query_service.answer.strength import logistic, strength
from schemas.api import SearchResponse

NAMES = ("single", "joint", "names", "reranker", "cross", *SIGNALS)


def signals(query: str, response: SearchResponse, weighed: Weighed | None) -> dict[str, float] | None:
    """Each between 0 and about 1: those of the search, ``cross``: what the reranker says of the best
    sentences, and what ``About.signals`` says of them. None where a model did not speak."""
    if weighed is None or weighed.cross is None:
        return None
    found = dict(strength(query, response).signals)
    if "reranker" not in found:
        return None
    found.update(weighed.signals, cross=logistic(weighed.cross / 2))
    return found


def score(found: dict[str, float]) -> float:
    """Estimated probability that an answer stands in the passages."""
    model = weights()
    return logistic(model["intercept"] + sum(model[name] * found[name] for name in NAMES))


def too_weak(query: str, response: SearchResponse, weighed: Weighed | None, threshold: float) -> bool:
    """Whether to refuse; never at threshold 0."""
    if threshold <= 0:
        return False
    found = signals(query, response, weighed)
    return response.weak if found is None else score(found) < threshold


@cache
def weights() -> dict[str, float]:
    """Those that are packaged, by name, with ``intercept``."""
    loaded: dict[str, float] = json.loads(Path(__file__).with_name("strength.json").read_text("utf-8"))["answer"]
    return loaded
