"""The one settings module: environment variables (``HEADWATER_…``, nested by ``__``) over one TOML file over defaults.

The file is named by ``HEADWATER_CONFIG`` (default ``headwater.toml`` in the working directory, optional). Secrets are
masked in every print. Reading happens in ``load()``, never at import.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from pipeline.errors import ConfigError
from pipeline.settings_auth import AuthSettings as AuthSettings
from pipeline.settings_query import (
    AnswerSettings,
    CacheSettings,
    ExpansionSettings,
    GeneratorSettings,
    InferenceSettings,
    LimitSettings,
    QueryLogSettings,
    RankingSettings,
    RerankSettings,
    SupportSettings,
)
from pipeline.settings_sources import Part, Person, SourceSettings, UserPath
from schemas.keys import SourceName, TenantName


class KafkaSettings(Part):
    """Where Kafka is and how lanes use it. Times in seconds unless named otherwise."""

    bootstrap: str = "127.0.0.1:9092"
    partitions: int = Field(default=12, ge=1, le=1000, description="For the log's life; equal for all lanes.")
    replication: int = Field(default=1, ge=1)
    access_session_s: float = Field(default=6.0, ge=1, description="Session of access consumers: their lease.")
    index_session_s: float = Field(default=10.0, ge=1, description="Session of index consumers: their lease.")
    heartbeat_s: float = Field(default=1.0, gt=0)
    transaction_timeout_s: float = Field(default=3.0, gt=0)
    transaction_events: int = Field(default=200, ge=1, le=1000)
    transaction_open_ms: int = Field(default=50, ge=1)
    request_timeout_s: float = Field(default=15.0, gt=0)
    safety_window: int = Field(default=1000, ge=0, description="Records rewound after an unclean stop or restore.")


class WeaviateSettings(Part):
    """Where Weaviate is."""

    url: str = "http://127.0.0.1:8080"
    grpc_host: str = "127.0.0.1"
    grpc_port: int = Field(default=50051, ge=1, le=65535)
    api_key: SecretStr | None = None
    read_api_key: SecretStr | None = None
    timeout_s: float = Field(default=5.0, gt=0, description="Deadline of one write or read.")
    data: UserPath | None = Field(default=None, description="Data folder of a server on this machine: audits watch it.")


class BodySettings(Part):
    """Bodies: inline up to a limit, else a claim check in a store that fsspec can open."""

    inline_limit: int = Field(default=65_536, ge=0, le=900_000, description="Bytes.")
    store: str = "file://.state/bodies"
    max_bytes: int = Field(default=50_000_000, ge=1)


class ExtractionSettings(Part):
    """Limits of the child processes that read documents. What exceeds one becomes a dead letter."""

    light: int = Field(default=2, ge=1, le=64, description="Processes for text, HTML, Markdown and other markup.")
    heavy: int = Field(default=1, ge=1, le=64, description="Processes for PDF, office files, mail and images.")
    cpu_s: float = Field(default=20.0, gt=0, description="CPU seconds of one document of markup.")
    heavy_cpu_s: float = Field(default=600.0, gt=0, description="CPU seconds of one PDF, office file, mail or image.")
    memory_mb: int = Field(default=2048, ge=128, description="Address space of a process above what it starts with.")
    output_mb: int = Field(default=64, ge=1, description="Extracted text of one document.")
    nesting: int = Field(default=4, ge=1, le=20, description="Containers inside one another: archives, mails in mails.")
    unpacked_mb: int = Field(default=512, ge=1, description="A container's contents together, unpacked.")
    pages: int = Field(default=2000, ge=1, description="Pages of one document.")
    ocr: bool = Field(default=True, description="Scans and images are read by Tesseract.")
    ocr_languages: str = Field(
        default="eng", pattern=r"^[A-Za-z_]+(\+[A-Za-z_]+)*$", description="Tesseract's, by '+'."
    )
    ocr_pages: int = Field(default=200, ge=0, description="Pages of one document that are read by OCR.")


class IndexSettings(Part):
    """The index consumer."""

    window_records: int = Field(default=400, ge=1, description="Records read ahead per partition.")
    window_bytes: int = Field(default=16_000_000, ge=1)
    slice_chunks: int = Field(default=4, ge=1, description="Chunks embedded in one slice (≤ 100 ms).")
    slice_ms: int = Field(default=100, ge=1)
    staged_above: int = Field(default=500, ge=1, description="Chunks above which a manifest is paged.")
    query_deadline_s: float = Field(default=5.0, ge=0, description="Removal of replaced chunks waits this long.")
    attempts: int = Field(default=3, ge=1)
    park_window: int = Field(default=100, ge=1)
    park_minimum: int = Field(default=20, ge=1)
    park_share: float = Field(default=0.5, gt=0, le=1)
    stop_sources: int = Field(default=3, ge=2, description="Sources parked with one error kind that stop the process.")


class EncoderSettings(Part):
    """The encoder's runtime."""

    backend: Literal["auto", "torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16"] = "auto"
    weights: UserPath | None = Field(
        default=None, description="Folder of a downloaded model, or of several in folders named like the models."
    )
    threads: int = Field(default=2, ge=1)
    query_threads: int = Field(default=1, ge=1)


class GatewaySettings(Part):
    """The change gateway."""

    host: str = "127.0.0.1"
    port: int = Field(default=8701, ge=1, le=65535)
    secret: SecretStr | None = None
    source: SourceName = "gateway"
    max_bytes: int = Field(default=10_000_000, ge=1)
    tolerance_s: int = Field(default=300, ge=1)


class QuerySettings(Part):
    """The query service."""

    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=1, le=65535)
    hosts: tuple[str, ...] = Field(
        default=(), description="Names (search.example) under which /mcp may be asked for, besides loopback."
    )
    deadline_s: float = Field(default=5.0, gt=0)
    candidates: int = Field(default=50, ge=1, le=1000)
    filter_principals: int = Field(default=1000, ge=1, description="Above it a search goes unfiltered and wider.")
    fusion: Literal["rrf", "convex"] = "convex"
    dense_share: float = Field(default=0.5, ge=0, le=1, description="Weight of the dense list in convex fusion.")
    diversity: float = Field(
        default=0.9, ge=0, le=1, description="λ of maximal marginal relevance: 1 ranks by relevance alone."
    )
    near_duplicate: float = Field(default=0.97, gt=0, le=1, description="Cosine from which passages may be copies.")
    show_policy: bool = Field(
        default=True, description="Replies name a document's readers to whoever may read it; else to operators only."
    )
    snippet_chars: int = Field(default=320, ge=40, le=4000)
    evidence_tokens: int = Field(default=3000, ge=64, description="Budget of evidence where a request names none.")
    evidence_max_tokens: int = Field(default=32_000, ge=64, description="The largest budget that a request may name.")
    tail_minutes: int = Field(default=15, ge=1)
    ready_age_s: float = Field(default=30.0, gt=0, description="Oldest lane progress with which the service is ready.")
    receipts_path: UserPath = Path(".state/receipts.sqlite")

    @property
    def address(self) -> str:
        """Base URL; a service that listens everywhere is asked here."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class EndpointSettings(Part):
    """An embedding endpoint that generations name: OpenAI-compatible or TEI-style."""

    url: str = Field(description="Base address, for instance https://host/v1 or http://host:8080.")
    api_key: SecretStr | None = None
    batch: int = Field(default=32, ge=1, le=2048, description="Texts in one request.")
    batch_tokens: int = Field(default=8192, ge=16, description="Tokens in one request at most.")
    timeout_s: float = Field(default=30.0, gt=0, description="Of one request.")
    query_timeout_s: float = Field(default=2.0, gt=0, description="Of one live query, repetitions included.")
    attempts: int = Field(default=4, ge=1)
    tokenizer: UserPath | None = Field(default=None, description="The model's tokenizer.json; else it is looked for.")
    price_per_million_tokens: float = Field(default=0.0, ge=0)
    currency: str = "EUR"


class GenerationSettings(Part):
    """Transitions of generations."""

    report_max_age_s: float = Field(default=3600.0, gt=0, description="A verification older than this is not fresh.")
    standby_days: float = Field(default=7.0, ge=0, description="How long the former active one should be kept up.")
    retention_days: float = Field(default=1.0, ge=0, description="Collections of a retired one stay this long.")
    behind_records: int = Field(default=1000, ge=0, description="Records that a generation may lag when activated.")
    workers: int = Field(default=1, ge=1, le=64, description="Bulk workers that a build starts.")
    golden: UserPath | None = Field(
        default=None,
        description="File of golden questions that a verification asks, as in samples/golden.",
    )


class TierSettings(Part):
    """Hot and cold."""

    hot_days: float = Field(default=30.0, ge=0, description="Documents unchanged for longer move to cold.")
    hot_chunks: int = Field(default=50_000, ge=1, description="Chunks a tenant keeps in hot at most.")
    run_chunks: int = Field(default=50_000, ge=1, description="Chunks that one run moves at most.")
    credit_chunks: int = Field(default=400, ge=1, description="Chunks whose move is asked for and not yet answered.")


class ReconcileSettings(Part):
    """Full listings against what is indexed."""

    every_h: float = Field(default=24.0, gt=0)
    quarantine_days: float = Field(default=7.0, ge=0, description="Hidden documents are purged after this time.")
    missing_share: float = Field(default=0.10, ge=0, le=1, description="Above it *and* missing_count: hidden only.")
    missing_count: int = Field(default=20, ge=0)


class RetentionSettings(Part):
    """How long things stay that are not Headwater's to remove."""

    backup_days: float = Field(
        default=0.0, ge=0, lt=90, description="Age of the oldest backup that may be restored; tombstones outlive it."
    )


class AuditSettings(Part):
    """Checks of what is indexed against what should be."""

    lag_target_ms: float = Field(default=1000.0, gt=0, description="p95 of live changes, observed to visible.")
    lag_window_s: float = Field(default=3600.0, gt=0)
    dead_letters: int = Field(default=0, ge=0, description="Unsettled dead letters that are still all right.")
    settle_s: float = Field(default=15.0, ge=0, description="How long a check waits for consumers to catch up.")
    overdue_s: float = Field(default=120.0, gt=0, description="A removal later than this is overdue.")
    recent_deletes_s: float = Field(default=3600.0, gt=0, description="Deletes verified after a restart of the store.")
    disk_used: float = Field(default=0.9, gt=0, le=1, description="Used share of the store's disk that is too much.")
    churn: float = Field(default=8.0, gt=1, description="Chunks written per chunk that stands, from which to rebuild.")
    churn_chunks: int = Field(default=200_000, ge=1, description="Chunks written below which churn does not matter.")


class DagsterSettings(Part):
    """Dagster's web server and daemon, as ``headwater up`` starts them."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(default=8703, ge=1, le=65535)
    postgres_url: SecretStr | None = Field(default=None, description="Storage; SQLite in the state folder without it.")


class CanarySettings(Part):
    """The canary that checks the lag from outside."""

    enabled: bool = True
    tenant: TenantName = "headwater-canary"
    every_s: float = Field(default=60.0, gt=0)


class Settings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(env_prefix="HEADWATER_", env_nested_delimiter="__", extra="forbid")

    namespace: str = Field(default="headwater", pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
    state_dir: UserPath = Path(".state")
    cache_dir: UserPath = Path("~/.cache/headwater").expanduser()
    generation: str = Field(default="minilm", pattern=r"^[a-z][a-z0-9_]{0,31}$")
    kafka: KafkaSettings = KafkaSettings()
    weaviate: WeaviateSettings = WeaviateSettings()
    bodies: BodySettings = BodySettings()
    extraction: ExtractionSettings = ExtractionSettings()
    index: IndexSettings = IndexSettings()
    encoder: EncoderSettings = EncoderSettings()
    auth: AuthSettings = AuthSettings()
    gateway: GatewaySettings = GatewaySettings()
    query: QuerySettings = QuerySettings()
    rerank: RerankSettings = RerankSettings()
    inference: InferenceSettings = InferenceSettings()
    generator: GeneratorSettings = GeneratorSettings()
    expansion: ExpansionSettings = ExpansionSettings()
    answer: AnswerSettings = AnswerSettings()
    support: SupportSettings = SupportSettings()
    cache: CacheSettings = CacheSettings()
    ranking: dict[str, RankingSettings] = Field(default_factory=dict, description="By tenant; '*' for all others.")
    limits: LimitSettings = LimitSettings()
    querylog: QueryLogSettings = QueryLogSettings()
    canary: CanarySettings = CanarySettings()
    endpoints: dict[str, EndpointSettings] = Field(default_factory=dict)
    generations: GenerationSettings = GenerationSettings()
    tiers: TierSettings = TierSettings()
    audit: AuditSettings = AuditSettings()
    reconcile: ReconcileSettings = ReconcileSettings()
    retention: RetentionSettings = RetentionSettings()
    dagster: DagsterSettings = DagsterSettings()
    sources: tuple[SourceSettings, ...] = ()
    people: tuple[Person, ...] = Field(default=(), description="Directory, for joining accounts by address.")

    @model_validator(mode="after")
    def _sources_distinct(self) -> Settings:
        seen: set[tuple[str, str]] = set()
        for index, source in enumerate(self.sources):
            if source.name == self.gateway.source:
                raise ValueError(
                    f"sources.{index}.name: {source.name!r} is the change gateway's own source; choose another name, "
                    "or set gateway.source to another one"
                )
            if (source.tenant, source.name) in seen:
                raise ValueError(
                    f"sources.{index}.name: {source.name!r} is named twice in tenant {source.tenant}; "
                    "give each source instance its own name"
                )
            seen.add((source.tenant, source.name))
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment, then the TOML file."""
        toml = TomlConfigSettingsSource(settings_cls, toml_file=config_path())
        return init_settings, env_settings, toml


# Variables that steer the launcher rather than the settings.
LAUNCHER_VARIABLES = frozenset({"HEADWATER_CONFIG", "HEADWATER_HEALTH_PORT", "HEADWATER_TEST_STATE"})


def config_path() -> Path:
    """The TOML file that ``load`` reads."""
    return Path(os.environ.get("HEADWATER_CONFIG", "headwater.toml"))


def load() -> Settings:
    """Read the settings. Raises ConfigError naming the field and the remedy."""
    named = os.environ.get("HEADWATER_CONFIG")
    if named and not Path(named).is_file():
        raise ConfigError("HEADWATER_CONFIG", f"no file {named}", "Name an existing TOML file or unset the variable.")
    try:
        return Settings()
    except ValidationError as error:
        raise _explained(error) from error
    except ValueError as error:
        raise ConfigError(str(config_path()), str(error), "Correct the TOML file.") from error


def _explained(error: ValidationError) -> ConfigError:
    """Every problem with its place; the first one's remedy. What is written and does not exist goes first: it is often
    what is missing elsewhere."""
    found = error.errors(include_url=False)
    found.sort(key=lambda one: one["type"] != "extra_forbidden")
    first = found[0]
    parts = _parts(first["loc"])
    field = ".".join(parts) or "settings"
    others = [f"{'.'.join(_parts(one['loc']))}: {_said(one)}" for one in found[1:]]
    more = (
        f" (also: {'; '.join(others[:5])}{f'; and {len(others) - 5} more' if len(others) > 5 else ''})"
        if others
        else ""
    )
    if first["type"] == "extra_forbidden":
        near = [f"Did you mean {name}? " for name in _near(parts[-1], found)]
        variable = "HEADWATER_" + "__".join(part.upper() for part in parts)
        return ConfigError(
            field,
            f"there is no such setting{more}",
            f"{''.join(near[:1])}Remove it from {config_path()} or unset {variable}.",
        )
    if not parts:  # a rule over several settings: its text names them
        place, colon, said = _said(first).partition(": ")
        return ConfigError(place if colon else field, said if colon else place, f"Correct it in {config_path()}.")
    if parts == ["sources"] and first["type"] == "tuple_type":
        return ConfigError("sources", "is one table, not a list of them", "Write [[sources]], in double brackets.")
    # a list has one variable, which holds it whole as JSON
    whole = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts))
    variable = "HEADWATER_" + "__".join(part.upper() for part in parts[:whole])
    how = "by" if whole == len(parts) else "as JSON in"
    what = "Set" if first["type"] == "missing" else "Correct"
    return ConfigError(field, f"{_said(first)}{more}", f"{what} it in {config_path()} or {how} {variable}.")


def _parts(loc: tuple[int | str, ...]) -> list[str]:
    """Place of a setting; without the type of a source, which only chose the model."""
    parts = [str(p) for p in loc]
    if parts[:1] == ["sources"] and len(parts) > 3:
        del parts[2]
    return parts


def _said(one: Any) -> str:
    return str(one["msg"]).removeprefix("Value error, ")


def _near(wrong: str, found: list[Any]) -> list[str]:
    """Names that are missing and nearly what was written."""
    return get_close_matches(wrong, [str(one["loc"][-1]) for one in found if one["type"] == "missing"], 1)
