"""Logistic regression over the measures, with weights that may not be negative: each measure speaks for support.

A set of weights for each set of models that answered: a missing model is never replaced by a guess. The weights are in
``weights.json``, made from the labelled sentences of samples/support by ``python -m infra.bench.support --fit``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from query_service.support.measures import COSINE, FEATURES, LOGIT

PATH = Path(__file__).with_name("weights.json")
SETS: Mapping[str, tuple[str, ...]] = {
    "measures": FEATURES,
    "measures+cosine": (*FEATURES, COSINE),
    "measures+logit": (*FEATURES, LOGIT),
    "measures+cosine+logit": (*FEATURES, COSINE, LOGIT),
}
Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """Of one set of features: ``names``, weights of the same length, and the bias."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    bias: float

    def probability(self, features: Mapping[str, float]) -> float:
        """Of support, 0 to 1: 1 / (1 + exp(−(w·x + b)))."""
        z = self.bias + sum(w * features[name] for name, w in zip(self.names, self.weights, strict=True))
        return float(1 / (1 + np.exp(-np.clip(z, -30, 30))))


def of(features: Mapping[str, float]) -> Weights:
    """The weights for what was measured."""
    key = "measures" + ("+cosine" if COSINE in features else "") + ("+logit" if LOGIT in features else "")
    return packaged()[key]


@cache
def packaged() -> dict[str, Weights]:
    """The weights beside the code, by the name of their set."""
    found = json.loads(PATH.read_text(encoding="utf-8"))
    return {
        key: Weights(tuple(one["weights"]), tuple(one["weights"].values()), one["bias"])
        for key, one in found["sets"].items()
    }


def fit(
    names: Sequence[str], rows: Rows, labels: Rows, *, ridge: float = 0.005, accepts: float = 6.0, steps: int = 20_000
) -> Weights:
    """Weights of least mean log loss plus ``ridge`` · |w|² / 2, by projected gradient descent on w ≥ 0. An unsupported
    sentence counts ``accepts`` times: to release one is worse than to withhold a supported one, and the vetoes leave
    few of them.

    ``rows`` has shape (n, len(names)), ``labels`` (n,) of 0 and 1. The same input gives the same weights.
    """
    counts = np.where(labels > 0, 1.0, accepts)
    counts /= counts.mean()
    w, b = np.ones(len(names)), 0.0
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(rows @ w + b)))
        error = (p - labels) * counts
        w = np.maximum(0.0, w - 0.5 * (rows.T @ error / len(labels) + ridge * w))
        b -= 0.5 * float(error.mean())
    return Weights(tuple(names), tuple(round(float(x), 4) for x in w), round(b, 4))


def stored(sets: Mapping[str, Weights], origin: str) -> str:
    """The text of ``weights.json``."""
    plain = {
        key: {"bias": one.bias, "weights": dict(zip(one.names, one.weights, strict=True))} for key, one in sets.items()
    }
    return json.dumps({"made_by": origin, "sets": plain}, indent=2) + "\n"
