"""The one settings module: environment variables (``HEADWATER_…``, nested by ``__``) over one TOML file over defaults.

The file is named by ``HEADWATER_CONFIG`` (default ``headwater.toml`` in the working directory, optional). Secrets are
masked in every print. Reading happens in ``load()``, never at import.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from pipeline.errors import ConfigError
from schemas.keys import SourceName, TenantName


def _expand(path: Path) -> Path:
    return path.expanduser()


UserPath = Annotated[Path, AfterValidator(_expand)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class KafkaSettings(_Part):
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


class WeaviateSettings(_Part):
    """Where Weaviate is."""

    url: str = "http://127.0.0.1:8080"
    grpc_host: str = "127.0.0.1"
    grpc_port: int = Field(default=50051, ge=1, le=65535)
    api_key: SecretStr | None = None
    read_api_key: SecretStr | None = None
    timeout_s: float = Field(default=5.0, gt=0, description="Deadline of one write or read.")


class BodySettings(_Part):
    """Bodies: inline up to a limit, else a claim check in a store that fsspec can open."""

    inline_limit: int = Field(default=65_536, ge=0, le=900_000, description="Bytes.")
    store: str = "file://.state/bodies"
    max_bytes: int = Field(default=50_000_000, ge=1)


class IndexSettings(_Part):
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


class EncoderSettings(_Part):
    """The encoder's runtime."""

    backend: Literal["auto", "torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16"] = "auto"
    weights: UserPath | None = Field(default=None, description="Folder of a downloaded model.")
    threads: int = Field(default=2, ge=1)
    query_threads: int = Field(default=1, ge=1)


class AuthSettings(_Part):
    """Tokens of the query API and signatures of the gateway."""

    jwt_secret: SecretStr | None = None
    jwt_public_key: str | None = None
    audience: str = "headwater"
    issuer: str | None = None
    trusted_group_issuers: tuple[str, ...] = ()


class GatewaySettings(_Part):
    """The change gateway."""

    host: str = "127.0.0.1"
    port: int = Field(default=8701, ge=1, le=65535)
    secret: SecretStr | None = None
    source: SourceName = "gateway"
    max_bytes: int = Field(default=10_000_000, ge=1)
    tolerance_s: int = Field(default=300, ge=1)


class QuerySettings(_Part):
    """The query service."""

    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=1, le=65535)
    deadline_s: float = Field(default=5.0, gt=0)
    candidates: int = Field(default=50, ge=1, le=1000)
    filter_principals: int = Field(default=300, ge=1, description="Above it a search goes unfiltered and wider.")
    fusion: Literal["rrf", "convex"] = "rrf"
    dense_share: float = Field(default=0.5, ge=0, le=1, description="Weight of the dense list in convex fusion.")
    tail_minutes: int = Field(default=15, ge=1)
    ready_age_s: float = Field(default=30.0, gt=0, description="Oldest lane progress with which the service is ready.")
    receipts_path: UserPath = Path(".state/receipts.sqlite")


class SourceSettings(_Part):
    """One source instance of a tenant."""

    name: SourceName
    tenant: TenantName = "acme"
    type: Literal["folder"] = "folder"
    path: UserPath
    url_base: str | None = None
    walk_s: float = Field(default=30.0, gt=0, description="Periodic walk, the safety net below the watch.")
    erasable: bool = False


class CanarySettings(_Part):
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
    index: IndexSettings = IndexSettings()
    encoder: EncoderSettings = EncoderSettings()
    auth: AuthSettings = AuthSettings()
    gateway: GatewaySettings = GatewaySettings()
    query: QuerySettings = QuerySettings()
    canary: CanarySettings = CanarySettings()
    sources: tuple[SourceSettings, ...] = ()

    @model_validator(mode="after")
    def _sources_distinct(self) -> Settings:
        names = [(s.tenant, s.name) for s in self.sources]
        doubled = {n for n in names if names.count(n) > 1}
        if doubled:
            raise ValueError(f"sources: {sorted(doubled)} named twice; give each source instance its own name")
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
    """The first problem with its remedy, and how many more there are."""
    found = error.errors(include_url=False)
    first = found[0]
    parts = [str(p) for p in first["loc"]]
    field = ".".join(parts) or "settings"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    variable = "HEADWATER_" + "__".join(part.upper() for part in parts)
    if first["type"] == "extra_forbidden":
        return ConfigError(
            field, f"there is no such setting{more}", f"Remove it from {config_path()} or unset {variable}."
        )
    # a list has one variable, which holds it whole as JSON
    whole = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts))
    variable = "HEADWATER_" + "__".join(part.upper() for part in parts[:whole])
    how = "by" if whole == len(parts) else "as JSON in"
    return ConfigError(field, f"{first['msg']}{more}", f"Set it in {config_path()} or {how} {variable}.")
