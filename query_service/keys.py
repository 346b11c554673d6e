"""API keys ``hw_<id>_<secret>``: for programs that no identity provider gives a token.

A file holds, of each key, what it may and a salted hash of its secret. The secret has 256 random bits, so that a fast
hash is enough: nothing shorter can be guessed, and each request is checked. The file is looked at for every key that is
sent, so a key that is revoked there opens nothing from the next request on.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from pipeline.settings import Settings
from pipeline.tokens import EVALUATOR, OPERATOR
from query_service.scope import KeysUnavailable, Scope, Unauthorized
from schemas.access import Principal
from schemas.base import ClosedModel, Micros
from schemas.keys import TenantName

log = logging.getLogger("headwater.query.auth")

PREFIX = "hw_"
ID_BYTES, SECRET_BYTES, SALT_BYTES = 6, 32, 16
MAX_LENGTH = 128
FILE_NAME = "api-keys.json"
_PRINCIPAL: TypeAdapter[str] = TypeAdapter(Principal)
_INVALID = "the key is not valid here"


class ApiKey(ClosedModel):
    """What one key may, and how its secret is known. ``as_of`` bounds and times are microseconds since the epoch."""

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
    salt: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    tenant: TenantName
    subject: str = Field(min_length=1, description="The person as whom it searches: ann, as in user:ann.")
    roles: tuple[Literal["operator", "evaluator"], ...] = ()
    products: tuple[str, ...] | None = None
    as_of_from: Micros | None = None
    as_of_until: Micros | None = None
    note: str = Field(default="", max_length=200)
    created_at: Micros
    expires_at: Micros | None = None
    revoked_at: Micros | None = None

    @model_validator(mode="after")
    def _usable(self) -> ApiKey:
        _PRINCIPAL.validate_python(f"user:{self.subject}")
        if self.subject != self.subject.strip():
            raise ValueError("subject begins or ends with a blank")
        if self.as_of_from is not None and self.as_of_until is not None and self.as_of_from > self.as_of_until:
            raise ValueError("as_of_from is later than as_of_until")
        return self

    def scope(self) -> Scope:
        """What a request with this key may."""
        return Scope(
            tenant=self.tenant,
            subject=self.subject,
            as_of_from=self.as_of_from,
            as_of_until=self.as_of_until,
            products=None if self.products is None else frozenset(self.products),
            operator=OPERATOR in self.roles,
            evaluator=EVALUATOR in self.roles,
            key_id=self.id,
        )


class KeyFile(ClosedModel):
    """All keys."""

    keys: tuple[ApiKey, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> KeyFile:
        if len({key.id for key in self.keys}) != len(self.keys):
            raise ValueError("two keys have the same id")
        return self


def new_secret() -> tuple[str, str, str, str]:
    """Id, secret, salt and hash of a new key; the caller shows ``whole(id, secret)`` once."""
    secret, salt = secrets.token_urlsafe(SECRET_BYTES), secrets.token_hex(SALT_BYTES)
    return secrets.token_hex(ID_BYTES), secret, salt, hashed(salt, secret)


def whole(key_id: str, secret: str) -> str:
    """The key as it is sent."""
    return f"{PREFIX}{key_id}_{secret}"


def hashed(salt: str, secret: str) -> str:
    """Hex hash of a secret."""
    return hashlib.sha256(bytes.fromhex(salt) + secret.encode("utf-8", "surrogatepass")).hexdigest()


def place(settings: Settings) -> Path:
    """The file of these settings."""
    return settings.auth.keys_file or settings.state_dir / FILE_NAME


class ApiKeys:
    """Checks keys against the file as it stands."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._keys: dict[str, ApiKey] = {}
        self._seen: tuple[int, int, int] | None = None
        self._damaged = False

    def verify(self, key: str) -> Scope:
        """The scope of a key. Raises Unauthorized, or KeysUnavailable where the file cannot be read."""
        self._look()
        if self._damaged:
            raise KeysUnavailable("the keys cannot be read at the moment")
        key_id, _, secret = key.removeprefix(PREFIX).partition("_")
        found = self._keys.get(key_id) if len(key) <= MAX_LENGTH else None
        # An unknown id costs what a known one does.
        salt, right = (found.salt, found.sha256) if found is not None else ("00" * SALT_BYTES, "0" * 64)
        equal = hmac.compare_digest(hashed(salt, secret[:MAX_LENGTH]), right)
        if found is None or not equal or found.revoked_at is not None:
            raise Unauthorized(_INVALID)
        if found.expires_at is not None and found.expires_at <= self._clock() * 1e6:
            raise Unauthorized("the key has expired")
        return found.scope()

    def _look(self) -> None:
        try:
            stat = self._path.stat()
            seen = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if seen == self._seen:
                return
            keys = {key.id: key for key in read(self._path).keys}
        except FileNotFoundError:
            self._keys, self._seen, self._damaged = {}, None, False
        except (OSError, ValueError) as error:
            if not self._damaged:  # its content is in no message: a validation error would repeat it
                log.error("API keys not read: none is accepted", extra={"fields": {"error": type(error).__name__}})
            self._keys, self._seen, self._damaged = {}, None, True
        else:
            self._keys, self._seen, self._damaged = keys, seen, False


def read(path: Path) -> KeyFile:
    """The file's keys. Raises FileNotFoundError, OSError, or ValueError that repeats nothing of the file."""
    try:
        return KeyFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"{'.'.join(str(p) for p in first['loc']) or 'the file'}: {first['msg']}") from None
