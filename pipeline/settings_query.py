"""Settings of the read side beyond the query service's address: rerankers, generators, limits, the query log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from pipeline.settings_sources import Part, UserPath


class RerankSettings(Part):
    """The reranker. ``fast`` scores as many of the first candidates as fit in ``fast_ms`` at the measured rate."""

    backend: Literal["onnx", "cross-encoder", "endpoint", "off"] = "onnx"
    model: str = Field(default="cross-encoder/ms-marco-MiniLM-L-12-v2", description="Name, for replies and endpoints.")
    weights: UserPath | None = Field(default=None, description="Folder of a downloaded model.")
    url: str | None = Field(default=None, description="Of an endpoint: the address that takes POST /rerank.")
    style: Literal["tei", "cohere"] = Field(default="tei", description="What the endpoint speaks.")
    api_key: SecretStr | None = None
    timeout_s: float = Field(default=2.0, gt=0, description="Of one request to an endpoint.")
    default: Literal["off", "fast", "full"] = Field(default="fast", description="Where a request does not say.")
    fast_ms: float = Field(default=120.0, gt=0)
    fast_candidates: int = Field(default=10, ge=1, le=50)
    full_ms: float = Field(default=3000.0, gt=0, description="Deadline of 'full'.")
    full_candidates: int = Field(default=10, ge=1, le=50)
    share: float = Field(
        default=0.7, ge=0, le=1, description="Weight of the reranker's score; the rest is the first stage's."
    )
    max_tokens: int = Field(default=256, ge=16, le=512, description="Of a pair of query and passage.")
    threads: int | None = Field(
        default=None, ge=1, description="Without a number: the cores that encoder.threads and query_threads leave."
    )


class InferenceSettings(Part):
    """Model calls of the query service: batching across requests, and what happens when a server fails."""

    window_ms: float = Field(default=2.0, ge=0, description="How long a call waits for others to share its batch.")
    batch: int = Field(default=32, ge=1, description="Items in one batch.")
    queue: int = Field(default=256, ge=1, description="Items that wait at most; more are refused.")
    failures: int = Field(default=3, ge=1, description="In a row, after which a server is left alone.")
    cool_s: float = Field(default=10.0, gt=0, description="For so long.")


class GeneratorSettings(Part):
    """An OpenAI-compatible server. Without ``url`` nothing is generated."""

    url: str | None = Field(default=None, description="Base address, for instance http://host:8080/v1.")
    model: str = "default"
    api_key: SecretStr | None = None
    timeout_s: float = Field(default=30.0, gt=0, description="Of one call, its repetitions included.")
    attempts: int = Field(default=2, ge=1, le=5, description="Of one call, where repeating may help.")
    max_tokens: int = Field(default=512, ge=1, description="Of one answer.")
    context_tokens: int = Field(default=8192, ge=256, description="What the model reads and writes together.")
    prompt_price: float = Field(default=0.0, ge=0, description="Per million tokens read.")
    completion_price: float = Field(default=0.0, ge=0, description="Per million tokens written.")
    currency: str = "EUR"


class ExpansionSettings(Part):
    """Query expansion of one request: budgets."""

    queries: int = Field(default=4, ge=1, le=10, description="Queries besides the original one.")
    rounds: int = Field(default=3, ge=1, le=6, description="Of iterative retrieval.")
    tokens: int = Field(default=4000, ge=1, description="That its generator may use.")
    budget_s: float = Field(default=10.0, gt=0, description="Its own time besides the search deadline.")


class AnswerSettings(Part):
    """Answers: what they rest on, and when none is given."""

    context: int = Field(default=5, ge=1, le=50, description="Passages to answer from.")
    rerank: Literal["off", "fast", "full"] = Field(default="full", description="Where a request does not say.")
    token_budget: int = Field(default=3000, ge=64, description="Of them, in tokens of the encoder.")
    history_tokens: int = Field(default=1000, ge=0, description="Room for earlier messages of a conversation.")
    max_tokens: int = Field(default=512, ge=16, description="Of one answer.")
    deadline_s: float = Field(default=60.0, gt=0, description="Of one answer, its search included.")
    heed_refusals: bool = Field(default=True, description="A generator's own refusal stays one in style 'auto'.")
    least: float = Field(
        default=0.45, ge=0, le=1, description="Smallest probability that the passages answer; below it is refused."
    )
    sentences: int = Field(default=5, ge=1, le=50, description="Of an answer that is taken from the sources.")
    unsupported: Literal["withhold", "qualify", "refuse"] = "withhold"
    weak: float = Field(
        default=0.5, ge=0, le=1, description="Strength of what was found below which a search says so; 0 is never."
    )


class SupportSettings(Part):
    """The check of each sentence of an answer against the passages that it rests on."""

    backend: Literal["measures", "nli", "generator"] = Field(
        default="measures", description="What decides: calibrated measures, an NLI model, or the generator."
    )
    threshold: float = Field(default=0.5, ge=0, le=1, description="Smallest probability that is released.")
    weights: UserPath | None = Field(default=None, description="Folder of an NLI cross-encoder.")


class CacheSettings(Part):
    """Answers and retrieval results that are kept. Every one is checked against permissions and versions when used."""

    answers: int = Field(default=1000, ge=0, description="Kept at most; 0 keeps none.")
    searches: int = Field(default=1000, ge=0, description="Results of searches kept at most; 0 keeps none.")
    bytes: int = Field(default=64_000_000, ge=0, description="Of all of them together.")
    ttl_s: float = Field(default=60.0, gt=0, le=60, description="For so long at most.")
    semantic: bool = Field(default=True, description="A question that means the same may get the same answer.")
    semantic_threshold: float = Field(default=0.95, ge=0, le=1, description="Cosine from which it may.")


class RankingSettings(Part):
    """Of one tenant."""

    recency_share: float = Field(default=0.0, ge=0, le=1, description="Weight of newness in the first stage's score.")
    half_life_days: float = Field(default=90.0, gt=0)
    source_weights: dict[str, float] = Field(default_factory=dict, description="By source; 1 where absent, 0 to 10.")


class LimitSettings(Part):
    """What one caller may use. 0 switches a limit off. No tenant takes more than what is left of ``total``."""

    requests_per_minute: int = Field(default=3000, ge=0, description="Of one person or API key.")
    burst: int = Field(default=300, ge=1, description="Of them in one go.")
    concurrent: int = Field(default=16, ge=0, description="Requests of one caller that run at once.")
    total: int = Field(default=256, ge=0, description="Requests that run at once in this process.")
    searches: int | None = Field(
        default=None, ge=0, description="Of them searches that are worked on; without a number two a core."
    )
    searches_wait_s: float = Field(default=10.0, gt=0, description="A search waits so long for its turn, then 429.")
    refused_per_minute: int = Field(
        default=120, ge=0, description="Requests without a valid token that one address may send; more get 429."
    )
    connections: int = Field(default=1024, ge=1, description="Open connections; more are closed at once.")
    header_s: float = Field(default=10.0, gt=0, description="A request's line and headers must arrive within it.")
    body_s: float = Field(default=10.0, gt=0, description="A request's body must arrive within it.")
    idempotent_replies: int = Field(default=10_000, ge=1, description="Replies kept for Idempotency-Key.")
    idempotent_h: float = Field(default=24.0, gt=0, le=168, description="For so long.")
    daily_cost: float = Field(default=0.0, ge=0, description="Of generators, by tenant and day (UTC).")
    daily_tokens: int = Field(default=0, ge=0, description="Read and written by generators, by tenant and day (UTC).")
    request_cost: float = Field(default=0.0, ge=0, description="Of generators, for one request.")
    request_tokens: int = Field(default=0, ge=0, description="Read and written by generators for one request.")


class QueryLogSettings(Part):
    """The query log."""

    enabled: bool = True
    text: Literal["none", "redacted", "full"] = Field(
        default="redacted",
        description="The query's words: not at all; without mail addresses, numbers and secrets; or as they were.",
    )
    redact_words: tuple[str, ...] = Field(
        default=(), max_length=1000, description="Words that 'redacted' leaves out besides: names, code words."
    )
    retention_days: int = Field(default=30, ge=1, le=365, description="On the log and in the local file.")
    queue: int = Field(default=10_000, ge=100, description="Records that wait for the log; more are dropped, counted.")
    key: SecretStr | None = Field(
        default=None,
        description="Makes the references to persons. Without it derived from auth.jwt_secret, else from a key file in "
        "the state folder. Several query services need the same.",
    )
    path: UserPath | None = Field(default=None, description="Local file; in the state folder without it.")
