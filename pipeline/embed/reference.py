"""Reference vectors: what a generation's encoder made of fixed texts, and whether this host makes the same of them.

Dimension and model name do not tell two encoders apart, nor a damaged model from a sound one. The vectors do: every
process that embeds for a generation compares its own with those of the record before it serves.
"""

from __future__ import annotations

import base64
import hashlib

import numpy as np

from pipeline.embed.encoder import load_encoder
from pipeline.embed.runtime import lacks
from pipeline.embed.stub import StubEncoder
from pipeline.embed.tokens import token_counter
from pipeline.embed.trial import CANDIDATES, SENTENCES, candidates
from pipeline.errors import ConfigError
from pipeline.ports import Embedder, Vectors
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec, ReferenceVectors

# Not a setting: two sound backends differ by less than 0.0005 (bf16 against fp32), other weights, another pooling or
# another instruction by far more, and whoever lowered it would mix vectors of two encoders in one index.
MIN_COSINE = 0.999


def record_texts(spec: EncoderSpec, settings: Settings) -> list[str]:
    """The texts behind a record's vectors: short and of several sentences, those that the encoder reads whole.

    Records name them by their hash, so they never change.
    """
    texts = [*SENTENCES[:8], "\n\n".join(SENTENCES[:3]), "\n\n".join((SENTENCES[3], *SENTENCES[9:11]))]
    counter = token_counter(spec, settings)
    return [text for text in texts if counter.count(spec.document_instruction + text) <= spec.max_tokens]


def reference_vectors(spec: EncoderSpec, backend: BackendChoice, settings: Settings) -> ReferenceVectors:
    """For the record of a new generation, made with its backend in a process of its own (seconds).

    Raises ConfigError when the backend cannot run here, EncoderUnavailable when an endpoint does not answer.
    """
    if spec.provider == "local" and backend.name != "stub":
        from pipeline.embed.remembered import vectors_apart

        return vectors_apart(spec, backend, settings)
    encoder = load_encoder(spec, backend, settings)
    try:
        return vectors_of(encoder, settings)
    finally:
        _close(encoder)


def vectors_of(encoder: Embedder, settings: Settings) -> ReferenceVectors:
    """The encoder's vectors of the record's texts."""
    texts = _texts(encoder, settings)
    vectors = encoder.embed_documents(texts).astype("<f4")
    return ReferenceVectors(
        texts_sha256=_hash(texts),
        dimension=encoder.spec.dimension,
        vectors=base64.b64encode(vectors.tobytes()).decode("ascii"),
    )


def load_faithful(
    spec: EncoderSpec,
    backend: BackendChoice,
    record: ReferenceVectors | None,
    settings: Settings,
    *,
    for_queries: bool = False,
) -> Embedder:
    """The generation's encoder on this host, proven to make the vectors of the record.

    The host's ``encoder.backend`` goes first where it is set, else the generation's own. One that this host lacks is
    replaced by another that makes the same vectors. Raises ConfigError naming the backend when its vectors are others
    or when none can be loaded, EncoderUnavailable when an endpoint does not answer.
    """
    if record is None:
        return load_encoder(spec, backend, settings, for_queries=for_queries)
    missing: list[str] = []
    for choice in _choices(spec, backend, settings):
        lacking = lacks(choice.name)
        if lacking is not None:
            missing.append(f"{choice.name}: {lacking}")
            continue
        try:
            encoder = load_encoder(spec, choice, settings, for_queries=for_queries)
        except ConfigError as error:
            if error.field != "encoder.backend" or choice.name == "endpoint":
                raise
            missing.append(f"{choice.name}: {error.problem}")
            continue
        try:
            check(encoder, record, settings)
        except BaseException:
            _close(encoder)
            raise
        return encoder
    raise ConfigError(
        "encoder.backend",
        f"this host can run no backend of the generation's encoder: {'; '.join(missing)}",
        "Install the extra 'encoder'.",
    )


def check(encoder: Embedder, record: ReferenceVectors, settings: Settings) -> float:
    """Lowest cosine between the encoder's vectors and the record's. Raises ConfigError below MIN_COSINE."""
    texts = _texts(encoder, settings)
    expected = _decoded(record)
    name = encoder.backend.name
    if record.texts_sha256 != _hash(texts) or expected.shape != (len(texts), encoder.spec.dimension):
        raise ConfigError(
            "generation.reference",
            f"the record's vectors are of other texts or of another dimension than {name} makes here",
            "Use the version that created the generation, or create a new generation with this one.",
        )
    own = encoder.embed_documents(texts)
    norms = np.linalg.norm(own, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = np.einsum("ij,ij->i", own, expected) / np.maximum(norms, 1e-12)
    lowest = float(cosines.min())
    if not lowest >= MIN_COSINE:  # also refuses what is not a number
        remedy = (
            f"Check what the endpoint {encoder.spec.endpoint} serves: it must be the model that made the generation."
            if encoder.spec.provider != "local"
            else "Choose another backend for this host by HEADWATER_ENCODER__BACKEND (torch-fp32 runs everywhere), "
            "or delete its converted models from the cache folder."
        )
        raise ConfigError(
            "encoder.backend",
            f"on this host {name} does not make the vectors of the generation's record: lowest cosine {lowest:.4f}, "
            f"needed {MIN_COSINE}",
            remedy,
        )
    return lowest


def _choices(spec: EncoderSpec, backend: BackendChoice, settings: Settings) -> list[BackendChoice]:
    if spec.provider != "local" or backend.name == "stub":
        return [backend]
    wanted = settings.encoder.backend
    names = candidates(settings) if wanted != "auto" else (backend.name, *(n for n in CANDIDATES if n != backend.name))
    return [
        backend if name == backend.name else BackendChoice.model_validate({"name": name, "agreement": 1.0})
        for name in names
    ]


def _close(encoder: Embedder) -> None:
    close = getattr(encoder, "close", None)  # endpoints hold connections
    if close is not None:
        close()


def _texts(encoder: Embedder, settings: Settings) -> list[str]:
    if isinstance(encoder, StubEncoder):
        return list(SENTENCES[:8])
    return record_texts(encoder.spec, settings)


def _hash(texts: list[str]) -> str:
    return hashlib.sha256("\x00".join(texts).encode("utf-8")).hexdigest()


def _decoded(record: ReferenceVectors) -> Vectors:
    try:
        flat = np.frombuffer(base64.b64decode(record.vectors, validate=True), dtype="<f4")
        vectors: Vectors = flat.reshape(-1, record.dimension).astype(np.float32)
    except ValueError as error:
        raise ConfigError(
            "generation.reference", f"the record's vectors cannot be read: {error}", "Create a new generation."
        ) from error
    return vectors
