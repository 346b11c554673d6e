"""Choosing the backend once, when a generation is created: the fastest that agrees with fp32."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import numpy as np

from pipeline.embed.encoder import load_encoder
from pipeline.errors import ConfigError, EncoderUnavailable
from pipeline.ports import Embedder, Vectors
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec

MIN_AGREEMENT = 0.999
CANDIDATES = ("torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16")
ROUNDS = 2

_SENTENCES = (
    "Meals are refunded against receipts up to sixty euros a day, unless the contract of the project says otherwise.",
    "To rotate an access key, open Settings, choose Security and press Rotate; the old key works for one more hour.",
    "The gateway answered 504 because the upstream pool had no healthy member between 02:10 and 02:25 UTC.",
    "kubectl -n billing rollout restart deployment/ledger && kubectl -n billing rollout status deployment/ledger",
    "Die Kündigungsfrist beträgt drei Monate zum Quartalsende, außer in der Probezeit.",
    "| Plan | Seats | Price | \n| Team | 25 | 149 EUR | \n| Site | 400 | 1,990 EUR |",
    "Прошивка X-500-G2 не читает карты больше 32 ГБ; обновите её до версии 2.4.18.",
    "def area(width: float, height: float) -> float:\n    return width * height  # square metres",
    "障害が発生した場合は、当番の担当者に連絡し、記録を残してください。",
    "She asked whether the cold room in Trondheim was booked for the whole of Thursday, and nobody knew.",
    "ERR_CONNECTION_TIMED_OUT is shown when no answer came within thirty seconds; check the proxy first.",
    "Receipts older than 45 days are refused; leave is granted by the team lead, above ten days by the director.",
)


def reference_texts() -> tuple[str, ...]:
    """Fixed texts from a few tokens to about a full chunk: prose, tables, code, several scripts."""
    short = _SENTENCES
    long = tuple(
        "\n\n".join(_SENTENCES[(start + step) % len(_SENTENCES)] for step in range(5))
        for start in range(len(_SENTENCES))
    )
    return short + long


def reference_sha256() -> str:
    """Names the reference texts in the generation's record."""
    return hashlib.sha256("\x00".join(reference_texts()).encode("utf-8")).hexdigest()


def choose_backend(spec: EncoderSpec, settings: Settings) -> BackendChoice:
    """Trial of all backends, or of the configured one alone, on the reference texts.

    Agreement is the lowest cosine to torch fp32. The fastest with an agreement of at least MIN_AGREEMENT wins; a
    backend that cannot run is passed over. Takes some seconds (longer when a model must be converted). Raises
    ConfigError when no backend qualifies.
    """
    texts = _fitting(spec, settings)
    reference_encoder = _load(spec, "torch-fp32", settings)
    reference = reference_encoder.embed_documents(texts)
    wanted = settings.encoder.backend
    names = CANDIDATES if wanted == "auto" else (wanted,)
    results: list[BackendChoice] = []
    problems: list[str] = []
    for name in names:
        try:
            encoder = reference_encoder if name == "torch-fp32" else _load(spec, name, settings)
            choice = _measure(encoder, name, texts, reference)
        except (ConfigError, EncoderUnavailable) as error:
            problems.append(f"{name}: {error}")
            continue
        if choice.agreement < MIN_AGREEMENT:
            problems.append(f"{name}: agreement {choice.agreement:.5f} is below {MIN_AGREEMENT}")
            continue
        results.append(choice)
    if not results:
        raise ConfigError(
            "encoder.backend", "no backend qualifies: " + "; ".join(problems), "Choose torch-fp32 or auto."
        )
    return max(results, key=lambda choice: choice.chunks_per_second)


def _load(spec: EncoderSpec, name: str, settings: Settings) -> Embedder:
    return load_encoder(spec, BackendChoice.model_validate({"name": name, "agreement": 1.0}), settings)


def _fitting(spec: EncoderSpec, settings: Settings) -> list[str]:
    from pipeline.embed.tokens import token_counter

    counter = token_counter(spec, settings)
    return [text for text in reference_texts() if counter.count(spec.document_instruction + text) <= spec.max_tokens]


def _measure(encoder: Embedder, name: str, texts: Sequence[str], reference: Vectors) -> BackendChoice:
    vectors = encoder.embed_documents(texts)
    agreement = float(np.einsum("ij,ij->i", vectors, reference).min())
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        encoder.embed_documents(texts)
        best = min(best, time.perf_counter() - started)
    return BackendChoice.model_validate(
        {
            "name": name,
            "agreement": min(agreement, 1.0),
            "chunks_per_second": len(texts) / best,
            "reference_sha256": reference_sha256(),
        }
    )
