"""What a generation is: encoder, chunking, index settings, collections and consumer group."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from schemas.base import ClosedModel, Micros

GenerationState = Literal["building", "ready", "active", "standby", "retired"]


class EncoderSpec(ClosedModel):
    """Everything that decides the vector of a text. Two generations mix only if all of it is equal."""

    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    revision: str = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
    weights_sha256: str = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    dimension: int = Field(default=384, ge=1)
    max_tokens: int = Field(default=256, ge=16)
    normalize: bool = True
    pooling: Literal["mean", "cls"] = "mean"
    query_instruction: str = ""
    document_instruction: str = ""


class BackendChoice(ClosedModel):
    """The runtime chosen once by trial: its name and its agreement with fp32 on the reference texts."""

    name: Literal["torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16", "stub"]
    agreement: float = Field(ge=-1, le=1.000001, description="Lowest cosine to fp32 over the reference texts.")
    chunks_per_second: float = Field(default=0.0, ge=0)
    reference_sha256: str = ""


class ChunkingSpec(ClosedModel):
    """Sizes in the encoder's own tokens, heading path and special tokens included."""

    strategy: Literal["hierarchical"] = "hierarchical"
    child_tokens: int = Field(default=200, ge=32)
    child_min_tokens: int = Field(default=128, ge=1)
    child_max_tokens: int = Field(default=256, ge=32)
    parent_tokens: int = Field(default=1024, ge=64)
    overlap: float = Field(default=0.15, ge=0, lt=0.5)
    max_chunks: int = Field(default=20_000, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> ChunkingSpec:
        if not self.child_min_tokens <= self.child_tokens <= self.child_max_tokens <= self.parent_tokens:
            raise ValueError("needs child_min_tokens <= child_tokens <= child_max_tokens <= parent_tokens")
        return self


class TierSpec(ClosedModel):
    """HNSW settings of one tier."""

    max_connections: int = Field(ge=4)
    ef_construction: int = Field(ge=8)
    ef: int = Field(ge=-1)
    quantizer: Literal["none", "rq8"] = "none"
    flat_search_cutoff: int = Field(default=20_000, ge=0)


class IndexSpec(ClosedModel):
    """Index settings of both tiers."""

    hot: TierSpec = TierSpec(max_connections=16, ef_construction=64, ef=96)
    cold: TierSpec = TierSpec(max_connections=32, ef_construction=128, ef=128, quantizer="rq8")


class Generation(ClosedModel):
    """The record of a generation, kept in the store and decided by the control consumer alone."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")
    state: GenerationState
    encoder: EncoderSpec = EncoderSpec()
    backend: BackendChoice
    chunking: ChunkingSpec = ChunkingSpec()
    index: IndexSpec = IndexSpec()
    created_at: Micros
    activated_at: Micros | None = None
    version: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Generation:
        if self.chunking.child_max_tokens > self.encoder.max_tokens:
            raise ValueError("chunking.child_max_tokens exceeds encoder.max_tokens: chunks would be cut when embedded")
        return self
