"""Texts to unit vectors with a local model."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeline.embed.convert import converted_model, float_model
from pipeline.embed.runtime import Ids, OpenVinoRuntime, Runtime, States, TorchRuntime
from pipeline.embed.tokens import load_tokenizer
from pipeline.embed.weights import find_model, verify_weights
from pipeline.errors import ConfigError, DocumentError, EncoderUnavailable
from pipeline.ports import Embedder, Vectors
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH_TOKENS = 2048  # padded tokens in one call of the model; larger calls are no faster and hold more memory
NORM_TOLERANCE = 1e-3
LENGTH_STEP = 16
PADDING = ("[PAD]", "<pad>")  # positions of padding are counted from its id in some models, so it must be the right one


class LocalEncoder:
    """ports.Embedder over one loaded runtime. Calls from several threads are served one after another."""

    def __init__(self, spec: EncoderSpec, backend: BackendChoice, tokenizer: Tokenizer, runtime: Runtime) -> None:
        self.spec = spec
        self.backend = backend
        self._tokenizer = tokenizer
        self._runtime = runtime
        self._pad = next((i for i in map(tokenizer.token_to_id, PADDING) if i is not None), 0)
        self._lock = threading.Lock()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimension), rows in the order of the texts.

        Raises DocumentError (stage 'embed') if one would be truncated, EncoderUnavailable when the runtime fails.
        """
        ids = self._ids([self.spec.document_instruction + text for text in texts])
        for number, row in enumerate(ids):
            if len(row) > self.spec.max_tokens:
                raise DocumentError(
                    f"text {number} has {len(row)} tokens, the encoder reads {self.spec.max_tokens}; "
                    "chunking must use this encoder's token counter",
                    stage="embed",
                    kind="too-long",
                )
        return self._embed(ids)

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension); a query longer than the encoder reads is cut."""
        return self.embed_queries([text])

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimension), rows in the order of the texts; longer ones are cut."""
        limit = self.spec.max_tokens
        rows = self._ids([self.spec.query_instruction + text for text in texts])
        # The closing special token stays, as the model was trained with it.
        return self._embed([row if len(row) <= limit else [*row[: limit - 1], row[-1]] for row in rows])

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def _embed(self, ids: list[list[int]]) -> Vectors:
        out = np.zeros((len(ids), self.spec.dimension), dtype=np.float32)
        with self._lock:
            for rows in _batches([len(row) for row in ids]):
                out[rows] = self._batch([ids[row] for row in rows])
        return out

    def _batch(self, rows: list[list[int]]) -> Vectors:
        longest = max(len(row) for row in rows)
        # few distinct lengths: the first call of a new shape costs up to twice as much as the next
        shape = (len(rows), -(-longest // LENGTH_STEP) * LENGTH_STEP)
        ids: Ids = np.full(shape, self._pad, dtype=np.int64)
        mask: Ids = np.zeros(shape, dtype=np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        states = self._runtime.states(ids, mask)
        if states.shape != (*shape, self.spec.dimension):
            raise ConfigError(
                "encoder.dimension",
                f"the model answers with dimension {states.shape[-1]}, the generation says {self.spec.dimension}",
                "Correct the generation's encoder.",
            )
        return self._normalised(self._pooled(states, mask))

    def _pooled(self, states: States, mask: Ids) -> Vectors:
        if self.spec.pooling == "cls":
            first: Vectors = states[:, 0]
            return first
        weights = mask.astype(np.float32)
        sums: Vectors = np.einsum("btd,bt->bd", states, weights)
        mean: Vectors = sums / weights.sum(axis=1, keepdims=True)
        return mean

    def _normalised(self, vectors: Vectors) -> Vectors:
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or (norms == 0).any():
            raise EncoderUnavailable(f"backend {self.backend.name} produced a vector without a finite, positive norm")
        if not self.spec.normalize:
            return vectors
        unit: Vectors = vectors / norms
        if np.abs(np.linalg.norm(unit, axis=1) - 1).max() > NORM_TOLERANCE:
            raise EncoderUnavailable(f"backend {self.backend.name} produced a vector that is not of unit length")
        return unit


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Row numbers in batches of similar length, each at most BATCH_TOKENS padded tokens (but at least one row)."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        # Ascending order: the newest row is the longest, so it decides the padding.
        if batch and (len(batch) + 1) * lengths[row] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def load_encoder(
    spec: EncoderSpec,
    backend: BackendChoice,
    settings: Settings,
    *,
    threads: int | None = None,
    for_queries: bool = False,
) -> Embedder:
    """The generation's encoder, ready for use.

    ``threads`` defaults to the settings' ``query_threads`` with ``for_queries``, else to ``threads``. An OpenVINO
    backend starts from the cached conversion without importing torch. An endpoint is asked what it serves. Raises
    ConfigError when files are missing or are not the pinned ones, the backend cannot run, or the endpoint serves
    another model; EncoderUnavailable when the endpoint does not answer.
    """
    if backend.name == "stub":
        from pipeline.embed.stub import StubEncoder

        return StubEncoder(spec)
    if spec.provider != "local":
        from pipeline.embed.endpoint import load_endpoint

        return load_endpoint(spec, settings)
    if backend.name == "endpoint":
        raise ConfigError(
            "encoder.backend", "'endpoint' is no runtime for a local encoder", "Name provider and endpoint."
        )
    if threads is None:
        threads = settings.encoder.query_threads if for_queries else settings.encoder.threads
    folder = find_model(spec, settings)
    verify_weights(folder, spec)
    tokenizer = load_tokenizer(folder)
    bf16 = backend.name.endswith("bf16")
    runtime: Runtime
    try:
        if backend.name.startswith("openvino"):
            model = converted_model(folder, spec, settings)
            runtime = OpenVinoRuntime(model, bf16=bf16, threads=threads)
        else:
            runtime = TorchRuntime(float_model(folder, spec, settings), bf16=bf16, threads=threads)
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        raise ConfigError(
            "encoder.backend",
            f"{backend.name} cannot be loaded: {error}",
            "Install it or choose another backend.",
        ) from error
    encoder = LocalEncoder(spec, backend, tokenizer, runtime)
    encoder.embed_query("ready")  # first call compiles kernels, and checks dimension and norm
    return encoder
