"""Connections to Weaviate with our own deadlines, and the one place where its errors become ours.

The client retries an unavailable server for up to a minute outside its own timeout, and has one timeout per
connection. Both are replaced underneath: the gRPC stub is wrapped, so that every call ends by the deadline of its
caller and an unavailable server is reported at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import httpx
import weaviate
from weaviate.classes.init import AdditionalConfig, Auth, Timeout
from weaviate.config import GrpcConfig
from weaviate.connect import ConnectionParams
from weaviate.exceptions import WeaviateBaseError

from pipeline.errors import ConfigError, StoreUnavailable
from pipeline.settings import WeaviateSettings

SCHEMA_TIMEOUT_S = 30.0  # creating a collection is a Raft command and may wait for the disk
_CALLS = ("Search", "BatchObjects", "BatchDelete", "Aggregate", "TenantsGet")
# After an outage the channel would otherwise wait up to two minutes before it looks again.
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    # It bounds each attempt to connect too: at 100 ms a busy machine never got through.
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class TenantMissing(StoreUnavailable):
    """The tenant has no shard in the collection: empty for reads; a write creates it and is sent again."""


def endpoint(settings: WeaviateSettings) -> tuple[str, int, bool]:
    """Host, port and whether TLS is used. Raises ConfigError for an address that is none."""
    parts = urlsplit(settings.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("weaviate.url", f"{settings.url!r} is no http address", "Write it as http://host:port.")
    secure = parts.scheme == "https"
    return parts.hostname, parts.port or (443 if secure else 80), secure


def client_arguments(settings: WeaviateSettings, key: str | None) -> dict[str, Any]:
    """Arguments of both clients."""
    host, port, secure = endpoint(settings)
    return {
        "connection_params": ConnectionParams.from_params(
            http_host=host,
            http_port=port,
            http_secure=secure,
            grpc_host=settings.grpc_host,
            grpc_port=settings.grpc_port,
            grpc_secure=secure,
        ),
        "auth_client_secret": Auth.api_key(key) if key else None,
        "additional_config": AdditionalConfig(
            timeout=Timeout(init=settings.timeout_s, query=settings.timeout_s, insert=SCHEMA_TIMEOUT_S),
            grpc_config=GrpcConfig(channel_options=_CHANNEL),
        ),
        "skip_init_checks": True,  # they would ask a package registry for news
    }


def unavailable(what: str, error: BaseException) -> StoreUnavailable:
    """The error that the runtime understands, in one line."""
    text = str(error)
    if isinstance(error, grpc.RpcError) and hasattr(error, "code"):
        text = f"{error.code().name}: {error.details()}"
    text = " ".join(text.split())[:500] or type(error).__name__
    if "tenant not found" in text:
        return TenantMissing(f"{what}: {text}")
    return StoreUnavailable(f"{what}: {text}")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what the client and its transports raise into StoreUnavailable."""
    try:
        yield
    except (WeaviateBaseError, grpc.RpcError, httpx.HTTPError, OSError) as error:
        raise unavailable(what, error) from error


class _SyncStub:
    """The gRPC stub with the caller's deadline and without retries."""

    def __init__(self, stub: Any, limit: ContextVar[float]) -> None:
        for name in _CALLS:
            setattr(self, name, self._bounded(name, getattr(stub, name), limit))

    @staticmethod
    def _bounded(name: str, method: Any, limit: ContextVar[float]) -> Any:
        def call(request: Any, *, metadata: Any = None, timeout: float | None = None) -> Any:
            try:
                return method(request, metadata=metadata, timeout=limit.get())
            except grpc.RpcError as error:
                raise unavailable(name, error) from error

        return call


class _AsyncStub:
    """The same for the asynchronous client."""

    def __init__(self, stub: Any, seconds: float) -> None:
        for name in _CALLS:
            setattr(self, name, self._bounded(name, getattr(stub, name), seconds))

    @staticmethod
    def _bounded(name: str, method: Any, seconds: float) -> Any:
        async def call(request: Any, *, metadata: Any = None, timeout: float | None = None) -> Any:
            try:
                return await method(request, metadata=metadata, timeout=seconds)
            except grpc.RpcError as error:
                raise unavailable(name, error) from error

        return call


class SyncConnection:
    """One synchronous client and one REST session for the life of the process, opened at first use."""

    def __init__(self, settings: WeaviateSettings) -> None:
        self.timeout_s = settings.timeout_s
        key = settings.api_key.get_secret_value() if settings.api_key else None
        host, port, secure = endpoint(settings)
        self._arguments = client_arguments(settings, key)
        self._base_url = f"{'https' if secure else 'http'}://{host}:{port}/v1"
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client: weaviate.WeaviateClient | None = None
        self._rest: httpx.Client | None = None
        self._lock = threading.Lock()
        self._limit: ContextVar[float] = ContextVar("weaviate_limit", default=settings.timeout_s)

    def client(self) -> weaviate.WeaviateClient:
        """The connected client. Raises StoreUnavailable while nothing answers."""
        with self._lock:
            if self._client is None:
                client = weaviate.WeaviateClient(**self._arguments)
                try:
                    with translated("connect"):
                        client.connect()
                except BaseException:
                    client.close()
                    raise
                client._connection._grpc_stub = _SyncStub(client._connection._grpc_stub, self._limit)  # type: ignore[assignment]
                self._client = client
            return self._client

    def rest(self) -> httpx.Client:
        """Session for calls that have no gRPC form; safe to use from several threads."""
        with self._lock:
            if self._rest is None:
                self._rest = httpx.Client(base_url=self._base_url, headers=self._headers, trust_env=False)
            return self._rest

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """gRPC calls of this thread inside the block end within ``seconds`` each."""
        token = self._limit.set(seconds)
        try:
            yield
        finally:
            self._limit.reset(token)

    def close(self) -> None:
        """Close what was opened."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
            if self._rest is not None:
                self._rest.close()
                self._rest = None


class AsyncConnection:
    """One asynchronous client for the life of the event loop, opened at first use."""

    def __init__(self, settings: WeaviateSettings) -> None:
        secret = settings.read_api_key or settings.api_key
        self._arguments = client_arguments(settings, secret.get_secret_value() if secret else None)
        self._seconds = settings.timeout_s
        self._client: weaviate.WeaviateAsyncClient | None = None
        self._lock = asyncio.Lock()

    async def client(self) -> weaviate.WeaviateAsyncClient:
        """The connected client. Raises StoreUnavailable while nothing answers."""
        if self._client is not None:
            return self._client
        async with self._lock:
            if self._client is None:
                client = weaviate.WeaviateAsyncClient(**self._arguments)
                try:
                    with translated("connect"):
                        await client.connect()
                except BaseException:
                    await client.close()
                    raise
                client._connection._grpc_stub = _AsyncStub(client._connection._grpc_stub, self._seconds)  # type: ignore[assignment]
                self._client = client
            return self._client

    async def search(self, request: Any) -> Any:
        """Reply to a SearchRequest, past the client's own retries. Raises StoreUnavailable or TenantMissing."""
        connection = (await self.client())._connection
        return await connection._grpc_stub.Search(request, metadata=connection.grpc_headers())  # type: ignore[union-attr]

    async def close(self) -> None:
        """Close what was opened."""
        if self._client is not None:
            await self._client.close()
            self._client = None
