"""Scope comes from a verified token alone: tenant, principals, applicable date, products. Requests only narrow it."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jwt
from pydantic import TypeAdapter, ValidationError

from pipeline.errors import ConfigError
from pipeline.settings_auth import AuthSettings
from pipeline.tokens import EVALUATOR, OPERATOR
from schemas.access import Principal
from schemas.api import SearchFilters
from schemas.base import MAX_SAFE_INTEGER
from schemas.keys import TenantName

if TYPE_CHECKING:
    from query_service.jwks import KeySet

log = logging.getLogger("headwater.query.auth")

MIN_SECRET_BYTES = 32
MAX_GROUPS = 1000
_PRINCIPAL: TypeAdapter[str] = TypeAdapter(Principal)
_TENANT: TypeAdapter[str] = TypeAdapter(TenantName)


class Unauthorized(Exception):
    """The token or key is missing, expired or invalid. ``reason`` is safe to show: it says which, not why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnknownKey(Unauthorized):
    """The token names a key that the identity provider's set did not hold when it was last read."""


class KeysUnavailable(Exception):
    """Whether a token is valid cannot be told at the moment. ``reason`` is safe to show."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FieldError(Exception):
    """A request's field that cannot be used with this token. Names the field and the remedy."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True)
class Scope:
    """What a verified token allows. ``as_of`` bounds are inclusive microseconds; both None means any date."""

    tenant: str
    subject: str
    groups: tuple[str, ...] = ()
    as_of_from: int | None = None
    as_of_until: int | None = None
    products: frozenset[str] | None = None
    operator: bool = False  # may look at the index as a whole: shadow searches, deletion proofs
    evaluator: bool = False  # may read the tenant's query log and resolve its references
    key_id: str | None = None  # the API key that was sent instead of a token

    @property
    def user(self) -> str:
        """The caller's own principal."""
        return f"user:{self.subject}"

    @property
    def dated(self) -> bool:
        """Whether the token limits the applicable date."""
        return self.as_of_from is not None or self.as_of_until is not None


@dataclass(frozen=True)
class Narrowing:
    """Scope and request filters together, as checked on the manifest at admission. None means not narrowed."""

    tenant: str
    sources: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    content_types: frozenset[str] | None = None
    languages: frozenset[str] | None = None
    products: frozenset[str] | None = None
    updated_after: int | None = None
    updated_before: int | None = None
    as_of: int | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing at all can pass (token and request have no product in common)."""
        return self.products is not None and not self.products


def narrow(scope: Scope, filters: SearchFilters, now: int) -> Narrowing:
    """The request inside the scope. Raises FieldError for an applicable date that the token does not allow."""

    def names(value: tuple[str, ...] | None) -> frozenset[str] | None:
        return None if value is None else frozenset(value)

    types = filters.content_types
    products = names(filters.products)
    if scope.products is not None:
        products = scope.products if products is None else products & scope.products
    return Narrowing(
        tenant=scope.tenant,
        sources=names(filters.sources),
        kinds=names(filters.kinds),
        content_types=None if types is None else frozenset(t.partition(";")[0].strip().lower() for t in types),
        languages=names(filters.languages),
        products=products,
        updated_after=filters.updated_after,
        updated_before=filters.updated_before,
        as_of=_applicable(scope, filters.as_of, now),
    )


def _applicable(scope: Scope, requested: int | None, now: int) -> int | None:
    low = scope.as_of_from if scope.as_of_from is not None else 0
    high = scope.as_of_until if scope.as_of_until is not None else MAX_SAFE_INTEGER
    if requested is not None:
        if not low <= requested <= high:
            raise FieldError("filters.as_of", "the token does not allow this date; leave it out or stay within")
        return requested
    return min(max(now, low), high) if scope.dated else None


class TokenVerifier:
    """Verifies tokens. Each key has one algorithm: HS256 for the secret, RS256 or ES256 for the public key, its own for
    each key of a set.

    Raises ConfigError when the settings give no usable key, or keys of two kinds.
    """

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self.keyset: KeySet | None = _keyset(settings)
        self._key: Any = None
        self._algorithm = ""
        if self.keyset is None:
            self._key, self._algorithm = _key(settings)
        self._base = _base(settings)
        self._options: Any = {"require": sorted({"exp", "aud", "sub", *settings.required_claims})}

    def log_key(self) -> bytes:
        """Key of the hashes that stand for callers in the query log: derived from ours, of use for nothing else."""
        return hashlib.sha256(b"query log\n" + self._base).digest()

    def derived_key(self, purpose: str) -> bytes:
        """A key of 32 bytes for one purpose ("cursor"), which tells nothing of the keys for others."""
        return hmac.digest(self._base, b"headwater " + purpose.encode(), "sha256")

    async def accept(self, token: str) -> Scope:
        """As ``verify``; where the token names a key that is not known, the key set is read again first."""
        try:
            return self.verify(token)
        except UnknownKey:
            if self.keyset is None or not await self.keyset.looked_again():
                raise
            return self.verify(token)

    def verify(self, token: str) -> Scope:
        """The scope of a token. Claims that widen or cannot be read are never repaired.

        Raises Unauthorized, UnknownKey (an Unauthorized) or KeysUnavailable.
        """
        if len(token) > self._settings.max_token_chars:
            raise Unauthorized("the token is not valid here")
        key, algorithm = self._key_of(token)
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway_s,
                options=self._options,
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthorized("the token has expired") from error
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unauthorized("the token is not valid here") from error
        return self._scope(claims)

    def _key_of(self, token: str) -> tuple[Any, str]:
        if self.keyset is None:
            return self._key, self._algorithm
        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise Unauthorized("the token is not valid here") from error
        if not isinstance(kid, str):
            raise Unauthorized("the token is not valid here")
        return self.keyset.key(kid)

    def _scope(self, claims: Mapping[str, Any]) -> Scope:
        try:
            tenant = _TENANT.validate_python(claims.get("tenant"), strict=True)
            subject = claims.get("sub")
            if not isinstance(subject, str) or not subject:
                raise ValueError("sub")
            _PRINCIPAL.validate_python(f"user:{subject}")
            if subject != subject.strip():
                raise ValueError("sub")
            low, high = _date_bounds(claims.get("as_of"))
            roles = _roles(claims.get("roles"))
            return Scope(
                tenant=tenant,
                subject=subject,
                groups=self._groups(claims),
                as_of_from=low,
                as_of_until=high,
                products=_products(claims.get("products")),
                operator=OPERATOR in roles,
                evaluator=EVALUATOR in roles,
            )
        except (ValidationError, ValueError) as error:
            raise Unauthorized("the token is not valid here") from error

    def _groups(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """Claimed groups count only for a configured issuer; anything but group principals is refused."""
        issuer = claims.get("iss")
        if not isinstance(issuer, str) or issuer not in self._settings.trusted_group_issuers:
            return ()
        claimed = claims.get("groups", [])
        if not isinstance(claimed, list) or len(claimed) > MAX_GROUPS:
            raise ValueError("groups")
        for group in claimed:
            if not isinstance(group, str) or not group.startswith("group:"):
                raise ValueError("groups")
            _PRINCIPAL.validate_python(group)
        return tuple(sorted(set(claimed)))


def _date_bounds(claim: object) -> tuple[int | None, int | None]:
    """``as_of`` is a moment (pinned) or a pair [from, until] with null for an open end."""
    if claim is None:
        return None, None
    pair: list[object] = claim if isinstance(claim, list) else [claim, claim]
    if len(pair) != 2 or all(p is None for p in pair):
        raise ValueError("as_of")
    low, high = _moment(pair[0]), _moment(pair[1])
    if low is not None and high is not None and low > high:
        raise ValueError("as_of")
    return low, high


def _moment(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= MAX_SAFE_INTEGER:
        raise ValueError("as_of")
    return value


def _products(claim: object) -> frozenset[str] | None:
    if claim is None:
        return None
    if not isinstance(claim, list) or not all(isinstance(p, str) and p for p in claim):
        raise ValueError("products")
    return frozenset(claim)


def _roles(claim: object) -> frozenset[str]:
    if claim is None:
        return frozenset()
    if not isinstance(claim, list) or not all(isinstance(r, str) for r in claim):
        raise ValueError("roles")
    return frozenset(claim)


def _base(settings: AuthSettings) -> bytes:
    """What keys of our own are derived from. A public key is none: everybody knows it."""
    secret = settings.jwt_secret or settings.service_secret
    if secret is not None:
        return secret.get_secret_value().encode("utf-8")
    log.warning("auth.service_secret is not set: cursors hold until this process ends only")
    return secrets.token_bytes(32)


def _keyset(settings: AuthSettings) -> KeySet | None:
    if settings.jwks_url is None and settings.jwks_file is None:
        return None
    from query_service.jwks import KeySet

    if settings.jwt_secret is not None or settings.jwt_public_key is not None:
        raise ConfigError(
            "auth", "a key set and jwt_secret or jwt_public_key are set together", "Keep the one that your tokens use."
        )
    return KeySet(settings)


def _key(settings: AuthSettings) -> tuple[Any, str]:
    secret, public = settings.jwt_secret, settings.jwt_public_key
    if secret is not None and public is not None:
        raise ConfigError("auth", "both jwt_secret and jwt_public_key are set", "Keep one of them.")
    if secret is not None:
        raw = secret.get_secret_value().encode("utf-8")
        if len(raw) < MIN_SECRET_BYTES:
            raise ConfigError(
                "auth.jwt_secret", "shorter than 32 bytes", "Use at least 32 random bytes (openssl rand -hex 32)."
            )
        return raw, "HS256"
    if public is not None:
        return _public_key(public)
    raise ConfigError(
        "auth", "no key to verify tokens with", "Set auth.jwt_secret, auth.jwt_public_key, auth.jwks_url or jwks_file."
    )


def _public_key(pem: str) -> tuple[Any, str]:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem.encode("utf-8"))
    except ValueError as error:
        raise ConfigError("auth.jwt_public_key", "not a PEM public key", "Paste the whole PEM text.") from error
    if isinstance(key, RSAPublicKey) and key.key_size >= 2048:
        return key, "RS256"
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key, "ES256"
    raise ConfigError(
        "auth.jwt_public_key", "neither RSA of 2048 bits or more nor P-256", "Use a key for RS256 or ES256."
    )
