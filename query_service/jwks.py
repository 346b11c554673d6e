"""The identity provider's key set (JWKS): keys by ``kid``, each with one algorithm, read again in the background.

The last set that was read counts for ``auth.jwks_stale_s`` while its server does not answer. After that nothing can be
told of a token: that is 503, and not the 401 of a token that is wrong. A key counts until it leaves the set.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt

from pipeline.errors import ConfigError
from pipeline.settings_auth import AuthSettings
from query_service.scope import KeysUnavailable, UnknownKey

log = logging.getLogger("headwater.query.auth")

# HS… is missing on purpose: whoever reads the set could sign with such a key. 'none' is no algorithm.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 16_384  # with a longer key, each token would cost a noticeable time
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
Fetch = Callable[[], Awaitable[bytes]]
Keys = dict[str, tuple[Any, str]]


def usable_keys(document: bytes) -> Keys:
    """Public signing keys by ``kid``, each with its algorithm. Others are left out; a ``kid`` that is there twice too.

    An empty set is one: it withdraws all keys. Raises ValueError for what is no key set.
    """
    try:
        listed = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is no JSON object with 'keys'") from error
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError(f"'keys' is no list of at most {MAX_KEYS}")
    found: Keys = {}
    twice: set[str] = set()
    for entry in listed:
        read = _usable(entry)
        if read is None:
            continue
        kid, key, algorithm = read
        if kid in found:
            twice.add(kid)
        found[kid] = key, algorithm
    return {kid: pair for kid, pair in found.items() if kid not in twice}


def _usable(entry: object) -> tuple[str, Any, str] | None:
    if not isinstance(entry, dict):
        return None
    kid, operations = entry.get("kid"), entry.get("key_ops")
    if not isinstance(kid, str) or not kid or entry.get("use", "sig") != "sig":
        return None
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    named = entry.get("alg", "RS256")
    if not isinstance(named, str) or named not in ALGORITHMS:
        return None
    if "d" in entry or "k" in entry:
        return None  # a private or a shared key: somebody published what they should not have
    try:
        key = jwt.PyJWK(entry)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if key.algorithm_name not in ALGORITHMS:
        return None
    if key.key_type == "RSA" and not MIN_RSA_BITS <= key.key.key_size <= MAX_RSA_BITS:
        return None
    curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}.get(key.algorithm_name)
    if curve is not None and entry.get("crv") != curve:
        return None
    if key.algorithm_name == "EdDSA" and entry.get("crv") != "Ed25519":
        return None
    return kid, key.key, key.algorithm_name


class KeySet:
    """The set as it was last read. ``run`` keeps it new; nothing is read before ``run`` or ``looked_again``.

    Raises ConfigError for an address that is not safe, or for two places.
    """

    def __init__(
        self, settings: AuthSettings, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._clock = settings, clock
        self._fetch = fetch or _fetcher(settings)
        self._keys: Keys = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._failed = False
        self._turn = asyncio.Lock()

    def key(self, kid: str) -> tuple[Any, str]:
        """The key of this id and its algorithm. Raises UnknownKey or KeysUnavailable."""
        if not self.current():
            raise self._unknown(self._failed or self._read_at is not None)
        found = self._keys.get(kid)
        if found is None:
            raise self._unknown(self._failed)  # perhaps a new key, which we could not read
        return found

    def current(self) -> bool:
        """Whether the last reading is new enough to count."""
        return self._read_at is not None and self._clock() - self._read_at <= self._settings.jwks_stale_s

    async def looked_again(self) -> bool:
        """Read the set for an unknown key, at most once in ``jwks_cooldown_s`` whatever comes; whether it was read.

        All who ask meanwhile wait for the one reading. Raises KeysUnavailable where it failed.
        """
        seen = self._read_at
        async with self._turn:
            if self._read_at != seen:
                return True  # somebody else has just done it
            if not self._may_try():
                if self._failed:
                    raise self._unavailable()
                return False
            await self._read()
        if self._failed:
            raise self._unavailable()
        return True

    async def run(self) -> None:
        """Read the set every ``jwks_refresh_s``, after a failure every ``jwks_cooldown_s``, until cancelled."""
        while True:
            async with self._turn:
                await self._read()
            await asyncio.sleep(self._settings.jwks_cooldown_s if self._failed else self._settings.jwks_refresh_s)

    def _unknown(self, untold: bool) -> UnknownKey | KeysUnavailable:
        """UnknownKey has the set read again; where that is not allowed yet, the last failure is the answer."""
        if self._turn.locked() or self._may_try() or not untold:
            return UnknownKey("the token is not valid here")
        return self._unavailable()

    def _may_try(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= self._settings.jwks_cooldown_s

    async def _read(self) -> None:
        self._tried_at = self._clock()
        try:
            async with asyncio.timeout(self._settings.jwks_timeout_s):
                keys = usable_keys(await self._fetch())
        except Exception as error:  # whatever a server or a file does, the last set stays
            self._failed = True
            fields = {"error": type(error).__name__, "reason": str(error)[:200]}
            log.warning("key set not read", extra={"fields": fields})
            return
        if set(keys) != set(self._keys) or self._read_at is None:
            log.info("key set read", extra={"fields": {"keys": len(keys)}})
        self._keys, self._read_at, self._failed = keys, self._clock(), False

    def _unavailable(self) -> KeysUnavailable:
        return KeysUnavailable("the keys of the identity provider cannot be read at the moment")


def _fetcher(settings: AuthSettings) -> Fetch:
    if settings.jwks_file is not None:
        if settings.jwks_url is not None:
            raise ConfigError("auth", "both jwks_url and jwks_file are set", "Keep one of them.")
        return _file(settings.jwks_file)
    url = settings.jwks_url or ""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ConfigError("auth.jwks_url", "is neither https nor http on loopback", "Give the set's https address.")
    return _web(url, settings.jwks_timeout_s)


def _file(path: Path) -> Fetch:
    def read() -> bytes:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        return content

    return lambda: asyncio.to_thread(read)


def _web(url: str, timeout_s: float) -> Fetch:
    async def read() -> bytes:
        import httpx

        # No redirects: whoever can send one would choose the keys.
        async with (
            httpx.AsyncClient(timeout=timeout_s, follow_redirects=False) as client,
            # Not compressed: it could unfold to any size before it is counted.
            client.stream("GET", url, headers={"Accept": "application/json", "Accept-Encoding": "identity"}) as reply,
        ):
            if reply.status_code != 200:
                raise ValueError(f"the server answers {reply.status_code}")
            content = b""
            async for part in reply.aiter_raw():
                content += part
                if len(content) > MAX_BYTES:
                    raise ValueError(f"it has more than {MAX_BYTES} bytes")
            return content

    return read
