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
    weights_file: Literal["model.safetensors", "model.onnx"] = Field(
        default="model.safetensors", description="The file that weights_sha256 pins."
    )
    weights_sha256: str = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    tokenizer_sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="Of tokenizer.json; '' leaves it to the model's folder, and to an estimate for an endpoint.",
    )
    dimension: int = Field(default=384, ge=1)
    max_tokens: int = Field(default=256, ge=16)
    normalize: bool = True
    pooling: Literal["mean", "cls"] = "mean"
    query_instruction: str = ""
    document_instruction: str = ""
    provider: Literal["local", "openai", "tei"] = Field(
        default="local", description="In this process, or behind an OpenAI-compatible or TEI-style endpoint."
    )
    endpoint: str = Field(
        default="", max_length=63, description="Name of the configured endpoint (settings.endpoints); '' for local."
    )

    @model_validator(mode="after")
    def _placed(self) -> EncoderSpec:
        if (self.provider == "local") == bool(self.endpoint):
            raise ValueError("'endpoint' is named for provider openai or tei, and only there")
        return self


class BackendChoice(ClosedModel):
    """The runtime chosen once by trial: its name and its agreement with fp32 on the reference texts."""

    name: Literal["torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16", "endpoint", "stub"]
    agreement: float = Field(ge=-1, le=1.000001, description="Lowest cosine to fp32 over the reference texts.")
    chunks_per_second: float = Field(default=0.0, ge=0)
    reference_sha256: str = ""


class ReferenceVectors(ClosedModel):
    """What the encoder made of fixed texts when the generation was created: every host compares its own with them."""

    texts_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    dimension: int = Field(ge=1)
    vectors: str = Field(description="Base64 of little-endian float32, row after row, one row a reference text.")


Strategy = Literal["hierarchical", "fixed", "recursive", "semantic", "document_aware"]

# What extraction and chunking make of the same bytes: raised whenever that changes, by our code or by a library's
# upgrade (tests/snapshots notices). A generation keeps the revision that it was created with.
CHUNKING_REVISION = 3


class ChunkingSpec(ClosedModel):
    """How documents are cut. Sizes in the encoder's own tokens, heading path and special tokens included.

    ``hierarchical``: small children that are searched inside parents that are read. ``fixed``: equal pieces of
    ``child_max_tokens`` whatever stands there. ``recursive``: the whole is cut at headings, then paragraphs, lines,
    sentences, words, until pieces fit. ``semantic``: a new chunk where neighbouring sentences are less alike than
    ``semantic_threshold``, or below the ``semantic_percentile`` of the document's own likenesses. ``document_aware``:
    headings, tables and code are never cut while they fit the encoder. ``by_type`` names another strategy for media
    types or prefixes of them ("text/", "application/pdf").
    """

    revision: int = Field(default=CHUNKING_REVISION, ge=1)
    strategy: Strategy = "hierarchical"
    by_type: dict[str, Strategy] = Field(default_factory=dict)
    semantic_threshold: float = Field(default=0.75, ge=-1, le=1, description="Cosine.")
    semantic_percentile: float | None = Field(default=None, gt=0, lt=100)
    summary: bool = Field(default=False, description="One more chunk a document that sums it up.")
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

    def for_type(self, media_type: str) -> Strategy:
        """The strategy for documents of a media type: the longest prefix in ``by_type``, else ``strategy``."""
        named = [prefix for prefix in self.by_type if media_type.startswith(prefix)]
        return self.by_type[max(named, key=len)] if named else self.strategy


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


class VerificationSummary(ClosedModel):
    """What a verification found, as the control consumer needs it; the whole report lies at ``path``."""

    report_id: str
    passed: bool
    against: str | None = Field(default=None, description="Generation that it was compared with; None for a first one.")
    finished_at: Micros
    failures: tuple[str, ...] = Field(default=(), description="What did not pass, one sentence each.")
    path: str = Field(default="", description="Folder of report.json and report.html, relative to the state folder.")


class Freed(ClosedModel):
    """What dropping a generation's collections gave back."""

    documents: int = Field(ge=0)
    chunks: int = Field(ge=0)
    bytes: int = Field(ge=0, description="Disk, as measured or estimated.")


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
    reference: ReferenceVectors | None = None
    vectors_from: str | None = Field(
        default=None, description="Generation of the same encoder whose vectors are taken over while it is built."
    )
    state_since: Micros | None = None
    requested_by: str | None = Field(default=None, description="Who asked for the last transition.")
    report: VerificationSummary | None = Field(default=None, description="The newest verification.")
    override: str | None = Field(default=None, description="Why it was activated without what is demanded.")
    drop_after: Micros | None = Field(default=None, description="When a retired generation's collections may go.")
    dropped_at: Micros | None = None
    freed: Freed | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_before(cls, value: object) -> object:
        """Records from before chunking had revisions are of the first."""
        if isinstance(value, dict) and isinstance(chunking := value.get("chunking"), dict):
            return {**value, "chunking": {"revision": 1, **chunking}}
        return value

    @model_validator(mode="after")
    def _fits(self) -> Generation:
        if self.chunking.child_max_tokens > self.encoder.max_tokens:
            raise ValueError("chunking.child_max_tokens exceeds encoder.max_tokens: chunks would be cut when embedded")
        return self
