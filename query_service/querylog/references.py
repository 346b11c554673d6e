"""How persons and sets of principals are named in the query log: keyed hashes, useless without the key."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.settings import Settings
from query_service.scope import Scope
from schemas.access import Closure

MIN_KEY_BYTES = 16


class References:
    """Names persons by one key. ``key_id`` tells which, without telling the key."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(key).digest()
        self.key_id = hashlib.blake2b(b"which key", key=self._key, digest_size=4).hexdigest()

    def person(self, tenant: str, subject: str) -> str:
        """The reference of a person of a tenant: 32 hex digits."""
        return self._hash(b"person", f"{tenant}\n{subject}".encode())

    def scope(self, scope: Scope) -> str:
        """The reference of a caller."""
        return self.person(scope.tenant, scope.subject)

    def principals(self, closure: Closure) -> str:
        """Equal for equal sets of principals, of whichever caller."""
        joined = "\n".join(sorted(closure.principals)) + ("\n+" if closure.complete else "\n?")
        return self._hash(b"principals", joined.encode())

    def resolve(self, tenant: str, reference: str, subjects: Iterable[str]) -> str | None:
        """The subject behind a reference, where it is among ``subjects``."""
        return next((s for s in subjects if secrets.compare_digest(self.person(tenant, s), reference)), None)

    def _hash(self, what: bytes, value: bytes) -> str:
        return hashlib.blake2b(value, key=self._key, digest_size=16, person=what).hexdigest()


def references(settings: Settings, folder: Path) -> References:
    """By ``querylog.key``, else by one derived from a secret of ``auth``, else by a key file in ``folder``.

    A public key is known to many, so nothing is derived from it. Raises ConfigError for a key that is too short or a
    file that cannot be read or made.
    """
    key = settings.querylog.key
    if key is not None:
        raw = key.get_secret_value().encode()
        if len(raw) < MIN_KEY_BYTES:
            raise ConfigError("querylog.key", "shorter than 16 bytes", "Use 32 random bytes (openssl rand -hex 32).")
        return References(b"setting\n" + raw)
    secret = settings.auth.jwt_secret or settings.auth.service_secret
    if secret is not None:
        return References(b"query log\n" + secret.get_secret_value().encode())
    return References(b"file\n" + _file_key(folder / "querylog.key"))


def _file_key(path: Path) -> bytes:
    """The key of the file, made once with rights for its owner alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            try:
                fresh.touch(mode=0o600)
                fresh.write_text(secrets.token_hex(32))
                os.link(fresh, path)  # whole or not at all, whoever starts at the same moment
            finally:
                fresh.unlink(missing_ok=True)
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            "querylog.key", f"the key file {path} cannot be used: {error.strerror}", "Set querylog.key."
        ) from error
    if len(key) < MIN_KEY_BYTES:  # cut short by a full disk or a copy: everybody could name persons with it
        raise ConfigError("querylog.key", f"the key file {path} is cut short", "Restore it, remove it, or set a key.")
    return key
