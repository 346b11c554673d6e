"""A cross-encoder by sentence-transformers: any model of that kind, also on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.errors import ConfigError
from query_service.rerank.interface import Logits, RerankerUnavailable
from query_service.rerank.pairs import Pair, PairTokenizer, Shape


class CrossEncoderReranker:
    """PairReranker. ``folder`` is a model folder with tokenizer.json; calls are served one after another.

    torch has one number of threads a process: an encoder that runs in torch here shares it.
    """

    def __init__(self, folder: Path, name: str, *, max_tokens: int, threads: int, batch: int) -> None:
        """Loads the model. Raises ConfigError when it cannot be used."""
        try:
            import torch
            from sentence_transformers import CrossEncoder
            from transformers.utils.logging import disable_progress_bar
        except ImportError as error:
            raise ConfigError(
                "rerank.backend",
                f"{error.name} is not installed",
                "Install the extra 'rerankers', or set it to 'onnx'.",
            ) from error
        disable_progress_bar()  # type: ignore[no-untyped-call]
        self.name = name
        self.shape = Shape(batch=batch)
        self._batch = batch
        self._lock = threading.Lock()
        self._tokenizer = PairTokenizer(folder, max_tokens)
        try:
            self._model = CrossEncoder(
                str(folder), max_length=max_tokens, local_files_only=True, activation_fn=torch.nn.Identity()
            )
        except Exception as error:  # of several libraries; their texts may hold addresses
            raise ConfigError(
                "rerank.weights",
                f"{folder} is no cross-encoder that loads: {type(error).__name__}",
                "Name a complete folder of a cross-encoder.",
            ) from error
        if self._model.num_labels != 1:
            raise ConfigError(
                "rerank.weights",
                f"the model has {self._model.num_labels} outputs",
                "Use a cross-encoder with one output a pair.",
            )
        if self._model.device.type == "cpu":
            torch.set_num_threads(threads)

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        """See Reranker."""
        return self.score_pairs(self.pairs(query, passages))

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        """See PairReranker."""
        return self._tokenizer.pairs(query, passages)

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        """See PairReranker. The library sorts by length and pads each call."""
        if not pairs:
            return np.zeros(0, dtype=np.float32)
        texts = [(pair.query, pair.passage) for pair in pairs]
        try:
            with self._lock:
                found = self._model.predict(texts, batch_size=self._batch, show_progress_bar=False)
        except Exception as error:  # torch's own classes
            raise RerankerUnavailable(f"torch: {type(error).__name__}") from error
        logits: Logits = np.asarray(found, dtype=np.float32).reshape(-1)
        return logits

    def close(self) -> None:
        """Nothing is held that the collector would not release."""
