"""How alike neighbouring sentences are: cosines of their vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from pipeline.chunk.atoms import Run
from pipeline.chunk.ruler import Ruler
from pipeline.ports import TokenCounter, Vectors

Similarity = Callable[[Sequence[str]], Vectors]
"""Vectors of sentences, one row each; the encoder's ``embed_documents`` is one."""

# Always as many at once, in reading order, so that a runtime rounds alike wherever it runs.
BATCH = 64
_DECIMALS = 3  # what differs beyond is the runtime's rounding, and must decide nothing


class Likeness:
    """Cosines of neighbouring atoms. ``most`` tokens of an atom are compared, special tokens included."""

    def __init__(self, similarity: Similarity, counter: TokenCounter, most: int) -> None:
        self._similarity = similarity
        self._counter = counter
        self._most = most
        self._special = counter.count("")

    def of(self, runs: Sequence[Run]) -> list[list[float]]:
        """For each run, the cosine of each atom and the next one."""
        texts = (self._fitting(atom.text) for run in runs for atom in run.atoms)
        vectors = self._vectors(texts)
        found: list[list[float]] = []
        for run in runs:
            previous = None
            values: list[float] = []
            for _ in run.atoms:
                vector = next(vectors)
                if previous is not None:
                    values.append(round(float(previous @ vector), _DECIMALS))
                previous = vector
            found.append(values)
        return found

    def _vectors(self, texts: Iterator[str]) -> Iterator[np.ndarray[tuple[int], np.dtype[np.float64]]]:
        while batch := list(islice(texts, BATCH)):
            rows = np.asarray(self._similarity(batch), dtype=np.float64)
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            yield from rows / np.where(norms == 0, 1.0, norms)

    def _fitting(self, text: str) -> str:
        while self._counter.count(text) > self._most:
            room = max(1, min(self._most - self._special, len(self._counter.offsets(text)) * 3 // 4))
            _, end = next(Ruler(self._counter, text).cut(0, len(text), room))
            if end >= len(text):
                break
            text = text[:end]
        return text


def threshold(values: Sequence[Sequence[float]], fixed: float, percentile: float | None) -> float:
    """The cosine below which a chunk begins: ``fixed``, or that percentile of the document's own values."""
    flat = [value for one in values for value in one]
    if percentile is None or not flat:
        return fixed
    return float(np.percentile(flat, percentile))
