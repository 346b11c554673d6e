"""A cross-encoder by onnxruntime, on the processor.

Weights rounded to 8 bits round the activations of each call too, by their largest value. So a pair's score depends on
what else is in the call, by up to 0.3: pairs of such a model are called alone, each in one thread, several threads side
by side. That costs nothing here, scores do not depend on who else asks, and what nobody waits for any more is dropped
pair by pair. Pairs of a float model share calls, sorted by length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import ConfigError
from query_service.rerank.interface import Logits, RerankerUnavailable
from query_service.rerank.pairs import Pair, PairTokenizer, Shape

BATCH_TOKENS = 2048  # padded tokens in one call; larger calls are no faster and hold more memory
SAME = 1e-3
_PLACES = ("model.onnx", "onnx/model.onnx")
_ALONE = ("how is the pump reset", "Hold the button of the pump for seven seconds.")
_BESIDE = ("who approves leave", "Above ten days it is for the director; 8829 $$$ !!! zebra. " * 4)


class OnnxReranker:
    """PairReranker. ``folder`` holds model.onnx (or onnx/model.onnx) and tokenizer.json."""

    def __init__(self, folder: Path, name: str, *, max_tokens: int, threads: int, batch: int) -> None:
        """Loads the model. Raises ConfigError when it cannot be used."""
        self.name = name
        path = next((folder / place for place in _PLACES if (folder / place).is_file()), None)
        if path is None:
            raise ConfigError("rerank.weights", f"{folder} lacks {_PLACES[0]}", "Name a folder of an ONNX model.")
        self._tokenizer = PairTokenizer(folder, max_tokens)
        self._session = _session(path, 1)
        self._inputs = {given.name for given in self._session.get_inputs()}
        self._together = False
        self.shape = Shape(workers=threads)
        try:
            self._together = self._pairs_are_independent()
        except RerankerUnavailable as error:
            raise ConfigError(
                "rerank.weights",
                f"the model does not score a pair: {error}",
                "Use a cross-encoder with one output a pair that reads rerank.max_tokens tokens.",
            ) from error
        if self._together:
            self.shape = Shape(batch=batch)
            if threads > 1:
                self._session = _session(path, threads)

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        """See Reranker."""
        return self.score_pairs(self.pairs(query, passages))

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        """See PairReranker."""
        return self._tokenizer.pairs(query, passages)

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        """See PairReranker."""
        out: Logits = np.zeros(len(pairs), dtype=np.float32)
        for rows in self._calls(pairs):
            out[rows] = self._call([pairs[row] for row in rows])
        return out

    def close(self) -> None:
        """Nothing is held that the collector would not release."""

    def _calls(self, pairs: Sequence[Pair]) -> Iterator[list[int]]:
        """Row numbers of each call: alone, or pairs of similar length of at most BATCH_TOKENS padded tokens."""
        rows: list[int] = []
        for row in sorted(range(len(pairs)), key=lambda row: (pairs[row].tokens, row)):
            # ascending: the newest row is the longest, so it decides the padding
            if rows and (not self._together or (len(rows) + 1) * pairs[row].tokens > BATCH_TOKENS):
                yield rows
                rows = []
            rows.append(row)
        if rows:
            yield rows

    def _call(self, pairs: Sequence[Pair]) -> Logits:
        shape = (len(pairs), max(pair.tokens for pair in pairs))
        ids = np.full(shape, self._tokenizer.pad, dtype=np.int64)
        mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, pair in enumerate(pairs):
            ids[row, : pair.tokens] = pair.ids
            types[row, : pair.tokens] = pair.types
            mask[row, : pair.tokens] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        try:
            found = np.asarray(self._session.run(None, {k: v for k, v in feed.items() if k in self._inputs})[0])
        except Exception as error:  # the library's own classes; their texts name nodes, not words of the passages
            raise RerankerUnavailable(f"onnxruntime: {type(error).__name__}") from error
        if found.size != len(pairs):
            raise RerankerUnavailable(f"the model answers with {found.size} values for {len(pairs)} pairs")
        logits: Logits = found.reshape(-1).astype(np.float32)
        return logits

    def _pairs_are_independent(self) -> bool:
        pair, other = (self.pairs(query, [passage])[0] for query, passage in (_ALONE, _BESIDE))
        return abs(float(self._call([pair])[0]) - float(self._call([pair, other])[0])) < SAME


def _session(path: Path, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(
            "rerank.backend", "onnxruntime is not installed", "Install the extra 'query', or set it to 'off'."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised as well
    # waiting threads would burn the cores that retrieval needs
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises its own classes for a broken file
        raise ConfigError(
            "rerank.weights", f"{path} cannot be loaded: {type(error).__name__}", "Use a complete ONNX model."
        ) from error
