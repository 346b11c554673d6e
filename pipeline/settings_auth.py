"""Settings of who may ask: tokens, keys of an identity provider, API keys, origins of browsers."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator, model_validator

from pipeline.settings_sources import Part, UserPath


class AuthSettings(Part):
    """Tokens of the query API and signatures of the gateway. One of the first four says how tokens are verified."""

    jwt_secret: SecretStr | None = Field(default=None, description="HS256; at least 32 bytes.")
    jwt_public_key: str | None = Field(default=None, description="PEM of one RSA (2048 bits or more) or P-256 key.")
    jwks_url: str | None = Field(default=None, description="Of the identity provider's key set: https, or loopback.")
    jwks_file: UserPath | None = Field(default=None, description="The key set as a file instead.")
    jwks_refresh_s: float = Field(default=300.0, gt=0, description="The key set is read again this often.")
    jwks_cooldown_s: float = Field(
        default=15.0, gt=0, description="An unknown key id has the set read again at most once in this time."
    )
    jwks_stale_s: float = Field(
        default=3600.0, gt=0, description="The last set counts for so long where its server does not answer."
    )
    jwks_timeout_s: float = Field(default=5.0, gt=0, description="Of one reading.")
    audience: str | tuple[str, ...] = Field(default="headwater", description="A token must name one of them.")
    issuer: str | None = Field(default=None, description="A token must name it, where it is set.")
    required_claims: tuple[str, ...] = Field(default=(), description="Besides exp, aud, sub and tenant.")
    leeway_s: float = Field(default=0.0, ge=0, le=300, description="Difference of clocks for exp, nbf and iat.")
    max_token_chars: int = Field(default=8192, ge=256, le=65_536)
    trusted_group_issuers: tuple[str, ...] = ()
    operator_tokens: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="By tenant: tokens with the role operator, where an identity provider signs and not we.",
    )
    service_secret: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Cursors and the query log's references are keyed with it where there is no jwt_secret.",
    )
    keys_file: UserPath | None = Field(default=None, description="API keys; else api-keys.json of the state folder.")
    cors_origins: tuple[str, ...] = Field(
        default=(), description="Origins (https://app.example) whose pages may ask from a browser."
    )

    @field_validator("audience")
    @classmethod
    def _named(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not value or not all(value):
            raise ValueError("name at least one audience, none of them empty")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            scheme, _, host = origin.partition("://")
            if scheme not in ("http", "https") or not host or set(host) & set("/*?# @"):
                raise ValueError(f"{origin!r} is no origin; write scheme and host alone, as in https://app.example")
        return value

    @model_validator(mode="after")
    def _sets_last(self) -> AuthSettings:
        if self.jwks_stale_s < self.jwks_refresh_s + self.jwks_timeout_s:
            raise ValueError("auth.jwks_stale_s: the key set would run out between two readings; raise it")
        return self

    @property
    def first_audience(self) -> str:
        """The audience that tokens signed here name."""
        return self.audience if isinstance(self.audience, str) else self.audience[0]

    @property
    def verifies_foreign(self) -> bool:
        """Whether an identity provider signs the tokens, so that none can be signed here."""
        return self.jwt_public_key is not None or self.jwks_url is not None or self.jwks_file is not None
