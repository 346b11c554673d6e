"""The writers' common ground: collections and tenants created once, bounded writes, reads and deletes by id."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weaviate.classes.query import Filter
from weaviate.classes.tenants import Tenant
from weaviate.exceptions import UnexpectedStatusCodeError

from pipeline.errors import StoreUnavailable
from pipeline.index.connection import SyncConnection, TenantMissing, translated, unavailable
from pipeline.index.objects import Object, batches, pages_of
from pipeline.index.schema import Collections, base_collections, generation_collections
from pipeline.ports import Deadline
from pipeline.settings import Settings
from schemas.generation import Generation

MAX_HANDLES = 4096


class StoreCore:
    """Connection, creation and the calls that everything else is made of. Safe to use from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._names = Collections(settings.namespace)
        self._partitions = settings.kafka.partitions
        self._connection = SyncConnection(settings.weaviate)
        self._lock = threading.Lock()
        self._tenants: set[tuple[str, str]] = set()
        self._handles: dict[tuple[str, str | None], Any] = {}
        self._dimensions: dict[str, int] = {}
        # The client would log whole objects, text included, when one of a batch fails.
        logging.getLogger("weaviate-client").setLevel(logging.CRITICAL)

    # ------------------------------------------------------------ creation

    def ensure_base(self) -> None:
        """Create the collections that all generations share. Raises StoreUnavailable."""
        for definition in base_collections(self._names):
            self._create(definition)

    def ensure_generation(self, generation: Generation) -> None:
        """Create the collections of a generation. Raises StoreUnavailable."""
        for definition in generation_collections(self._names, generation):
            self._create(definition)
        self._dimensions[generation.name] = generation.encoder.dimension

    def drop_generation(self, name: str) -> None:
        """Drop the collections of a generation; those that are not there are no error. Raises StoreUnavailable."""
        for collection in self._names.of_generation(name):
            with translated(f"drop {collection}"):
                self._connection.client().collections.delete(collection)
            with self._lock:
                self._tenants = {known for known in self._tenants if known[0] != collection}
        self._dimensions.pop(name, None)

    def _create(self, definition: dict[str, Any]) -> None:
        name = definition["name"]
        with translated(f"create {name}"):
            collections = self._connection.client().collections
            if collections.exists(name):
                return
            try:
                collections.create(**definition)
            except UnexpectedStatusCodeError as error:
                # Another process was faster.
                if error.status_code != 422 or "already exists" not in str(error):
                    raise

    def _ensure_tenant(self, collection: str, tenant: str) -> None:
        if (collection, tenant) in self._tenants:
            return
        with translated(f"create tenant {tenant} of {collection}"):
            self._connection.client().collections.use(collection).tenants.create([Tenant(name=tenant)])
        with self._lock:
            self._tenants.add((collection, tenant))

    # ------------------------------------------------------------ calls

    def _handle(self, collection: str, tenant: str | None) -> Any:
        client = self._connection.client()
        handle = self._handles.get((collection, tenant))
        if handle is None:
            handle = client.collections.use(collection)
            if tenant is not None:
                handle = handle.with_tenant(tenant)
            with self._lock:
                if len(self._handles) >= MAX_HANDLES:
                    self._handles.clear()
                self._handles[(collection, tenant)] = handle
        return handle

    def _seconds(self, deadline: Deadline | None) -> float:
        timeout = self._connection.timeout_s
        return timeout if deadline is None else min(timeout, deadline.remaining())

    @contextmanager
    def _writing(self, what: str, deadline: Deadline | None) -> Iterator[None]:
        """One write within the lease. A write that ended too late is told even when it failed."""
        seconds = self._seconds(deadline)
        try:
            with self._connection.limited(seconds), translated(what):
                yield
        finally:
            if deadline is not None:
                deadline.check_ended()

    def _upsert(
        self, collection: str, tenant: str | None, objects: Sequence[Object], deadline: Deadline | None
    ) -> None:
        """Write objects whole, in batches; one error means the batch is not acknowledged."""
        for batch in batches(objects):
            handle = self._handle(collection, tenant)
            if tenant is not None:
                self._ensure_tenant(collection, tenant)
            try:
                with self._writing(f"write {collection}", deadline):
                    result = handle.data.insert_many(batch)
                    if result.has_errors:
                        first = next(iter(result.errors.values()))
                        raise unavailable(f"write {collection}", RuntimeError(first.message))
            except TenantMissing:
                with self._lock:
                    self._tenants.discard((collection, tenant or ""))
                raise

    def _read(
        self,
        collection: str,
        tenant: str | None,
        ids: Sequence[str],
        properties: Sequence[str] | None,
        *,
        vectors: bool = False,
    ) -> dict[str, Any]:
        """Objects by id. ``properties`` None means all of them."""
        found: dict[str, Any] = {}
        for page in pages_of(ids):
            handle = self._handle(collection, tenant)
            try:
                with translated(f"read {collection}"):
                    reply = handle.query.fetch_objects(
                        filters=Filter.by_id().contains_any(page),
                        limit=len(page),
                        return_properties=None if properties is None else list(properties),
                        include_vector=vectors,
                    )
            except TenantMissing:
                return {}
            found.update((str(item.uuid), item) for item in reply.objects)
        return found

    def _read_records(self, collection: str, tenant: str | None, ids: Sequence[str]) -> dict[str, str]:
        objects = self._read(collection, tenant, ids, ["record"])
        return {uid: str(item.properties["record"]) for uid, item in objects.items()}

    def _delete(self, collection: str, tenant: str, ids: Sequence[str], deadline: Deadline | None) -> None:
        """Delete explicit ids; absent ones and a missing tenant are no error."""
        for page in pages_of(ids):
            handle = self._handle(collection, tenant)
            try:
                with self._writing(f"delete from {collection}", deadline):
                    result = handle.data.delete_many(where=Filter.by_id().contains_any(page))
                    if result.failed:
                        raise StoreUnavailable(f"delete from {collection}: {result.failed} objects failed")
            except TenantMissing:
                return

    def close(self) -> None:
        """Close the connections."""
        self._handles.clear()
        self._connection.close()
