"""A deterministic encoder without a model, for tests and benches of everything around the encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from pipeline.errors import DocumentError
from pipeline.ports import TokenCounter, Vectors
from schemas.generation import BackendChoice, EncoderSpec


class StubEncoder:
    """Unit vectors drawn from a generator seeded by the text: equal texts meet, others are nearly orthogonal."""

    def __init__(self, spec: EncoderSpec, counter: TokenCounter | None = None, *, seed: int = 0) -> None:
        self.spec = spec
        self.backend = BackendChoice(name="stub", agreement=1.0)
        self._counter = counter
        self._seed = seed

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimension). With a counter, raises DocumentError for a text over ``spec.max_tokens``."""
        if self._counter is not None:
            for number, text in enumerate(texts):
                tokens = self._counter.count(text)
                if tokens > self.spec.max_tokens:
                    raise DocumentError(
                        f"text {number} has {tokens} tokens, the encoder reads {self.spec.max_tokens}",
                        stage="embed",
                        kind="too-long",
                    )
        if not texts:
            return np.zeros((0, self.spec.dimension), dtype=np.float32)
        return np.stack([self._vector(self.spec.document_instruction + text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension)."""
        return self._vector(self.spec.query_instruction + text)[None, :]

    def _vector(self, text: str) -> Vectors:
        digest = hashlib.sha256(f"{self._seed}\x00{text}".encode("utf-8", "replace")).digest()
        vector = np.random.default_rng(int.from_bytes(digest[:16], "big")).standard_normal(self.spec.dimension)
        unit: Vectors = (vector / np.linalg.norm(vector)).astype(np.float32)
        return unit
