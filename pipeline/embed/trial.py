"""Choosing the backend once, when a generation is created: the fastest that agrees with fp32."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.embed.encoder import load_encoder
from pipeline.embed.runtime import lacks
from pipeline.errors import ConfigError, EncoderUnavailable
from pipeline.ports import Embedder, Vectors
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec

MIN_AGREEMENT = 0.999
CANDIDATES = ("torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16")
ROUNDS = 2

# Hashes of these texts are in the records of generations: they never change.
SENTENCES = (
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
    short = SENTENCES
    long = tuple(
        "\n\n".join(SENTENCES[(start + step) % len(SENTENCES)] for step in range(5)) for start in range(len(SENTENCES))
    )
    return short + long


def reference_sha256() -> str:
    """Names the reference texts in the generation's record."""
    return hashlib.sha256("\x00".join(reference_texts()).encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class Tried:
    """What a backend showed. ``agreement`` is the lowest cosine to torch fp32; chunks are the reference texts."""

    name: str
    agreement: float = 0.0
    chunks_per_second: float = 0.0
    chunks_per_cpu_second: float = 0.0
    problem: str | None = None


def choose_backend(spec: EncoderSpec, settings: Settings) -> BackendChoice:
    """Trial of all backends, or of the configured one alone, on the reference texts.

    Agreement is the lowest cosine to torch fp32 over the same weights. The fastest with an agreement of at least
    MIN_AGREEMENT wins; a backend that cannot run is passed over. Takes some seconds (longer when a model must be
    converted). Raises ConfigError when no backend qualifies.
    """
    results = list(trial(spec, settings, candidates(settings)))
    fit = [one for one in results if one.problem is None]
    if not fit:
        problems = "; ".join(f"{one.name}: {one.problem}" for one in results)
        raise ConfigError("encoder.backend", f"no backend qualifies: {problems}", "Choose torch-fp32 or auto.")
    best = max(fit, key=lambda one: one.chunks_per_second)
    return BackendChoice.model_validate(
        {
            "name": best.name,
            "agreement": min(best.agreement, 1.0),
            "chunks_per_second": best.chunks_per_second,
            "reference_sha256": reference_sha256(),
        }
    )


def candidates(settings: Settings) -> tuple[str, ...]:
    """The backends that come into question on this host: all, or the configured one."""
    wanted = settings.encoder.backend
    return CANDIDATES if wanted == "auto" else (wanted,)


def trial(spec: EncoderSpec, settings: Settings, names: Sequence[str]) -> Iterator[Tried]:
    """Each backend's result as it comes, those that do not qualify with the problem.

    Raises ConfigError when the reference (torch fp32) itself cannot run.
    """
    texts = _fitting(spec, settings)
    reference_encoder = _load(spec, "torch-fp32", settings)
    reference = reference_encoder.embed_documents(texts)
    for name in names:
        lacking = lacks(name)
        if lacking is not None:
            yield Tried(name, problem=lacking)
            continue
        try:
            encoder = reference_encoder if name == "torch-fp32" else _load(spec, name, settings)
            yield _measure(encoder, name, texts, reference)
        except (ConfigError, EncoderUnavailable) as error:
            yield Tried(name, problem=str(error))


def _load(spec: EncoderSpec, name: str, settings: Settings) -> Embedder:
    return load_encoder(spec, BackendChoice.model_validate({"name": name, "agreement": 1.0}), settings)


def _fitting(spec: EncoderSpec, settings: Settings) -> list[str]:
    from pipeline.embed.tokens import token_counter

    counter = token_counter(spec, settings)
    return [text for text in reference_texts() if counter.count(spec.document_instruction + text) <= spec.max_tokens]


def _measure(encoder: Embedder, name: str, texts: Sequence[str], reference: Vectors) -> Tried:
    vectors = encoder.embed_documents(texts)
    agreement = float(np.einsum("ij,ij->i", vectors, reference).min())
    clock = cpu = float("inf")
    for _ in range(ROUNDS):
        started, used = time.perf_counter(), time.process_time()
        encoder.embed_documents(texts)
        clock = min(clock, time.perf_counter() - started)
        cpu = min(cpu, time.process_time() - used)
    low = f"agreement {agreement:.5f} is below {MIN_AGREEMENT}" if agreement < MIN_AGREEMENT else None
    return Tried(name, agreement, len(texts) / clock, len(texts) / max(cpu, 1e-9), low)
