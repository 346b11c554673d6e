"""The writers' common ground: collections and tenants created once, bounded writes, reads and deletes by id.

A server that dies in the middle of a write can leave a torn object: it stands in the object store but not in the
index of ids, so neither a filtered read nor a filtered delete meets it, and no later write of the same id repairs
it. Only a delete by id over REST removes it. Hence records are read back the first time, and what a filtered
delete did not match is deleted once more by id.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import httpx
from weaviate.classes.config import Property
from weaviate.classes.query import Filter
from weaviate.classes.tenants import Tenant
from weaviate.exceptions import UnexpectedStatusCodeError

from pipeline.errors import StoreUnavailable
from pipeline.index.connection import SyncConnection, TenantMissing, translated, unavailable
from pipeline.index.objects import BATCH_OBJECTS, Object, batches, pages_of
from pipeline.index.schema import Collections, base_collections, generation_collections
from pipeline.ports import Deadline
from pipeline.settings import Settings
from schemas.generation import Generation

MAX_HANDLES = 4096
MAX_VISIBLE = 50_000
REST_THREADS = 8
SLOW_BATCH_S = 1.0
READ_BACK = (0.0, 0.02, 0.1)  # seconds before each look; a replica may be a moment behind
Key = tuple[str, str | None, str]  # collection, tenant, id


class Pace:
    """How many objects a batch may hold: a busy server must not need a whole deadline, or lease, for one of them."""

    def __init__(self) -> None:
        self._count = BATCH_OBJECTS // 2

    def count(self) -> int:
        """Objects of the next batch."""
        return self._count

    @contextmanager
    def measured(self, objects: int) -> Iterator[None]:
        """Halves the size after a batch that was slow (or failed for it), raises it after quick full ones."""
        start = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - start
            if took > SLOW_BATCH_S:
                self._count = max(1, min(self._count, objects) // 2)
            elif took < SLOW_BATCH_S / 4 and objects >= self._count:
                self._count = min(BATCH_OBJECTS, self._count * 2)


class StoreCore:
    """Connection, creation and the calls that everything else is made of. Safe to use from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._names = Collections(settings.namespace)
        self._partitions = settings.kafka.partitions
        self._data = settings.weaviate.data
        self._connection = SyncConnection(settings.weaviate)
        self._lock = threading.Lock()
        self._tenants: set[tuple[str, str]] = set()
        self._handles: dict[tuple[str, str | None], Any] = {}
        self._dimensions: dict[str, int] = {}
        self._pace = Pace()
        self._visible: OrderedDict[Key, None] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
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
                self._visible.clear()
        self._dimensions.pop(name, None)

    def _create(self, definition: dict[str, Any]) -> None:
        name = definition["name"]
        with translated(f"create {name}"):
            collections = self._connection.client().collections
            if collections.exists(name):
                self._complete(name, definition["properties"])
                return
            try:
                collections.create(**definition)
            except UnexpectedStatusCodeError as error:
                # Another process was faster.
                if error.status_code != 422 or "already exists" not in str(error):
                    raise

    def _complete(self, name: str, properties: Sequence[Property]) -> None:
        """Add the properties that a collection made by an earlier release lacks."""
        config = self._connection.client().collections.use(name).config
        known = {found.name for found in config.get().properties}
        for missing in properties:
            if missing.name not in known:
                config.add_property(missing)

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
        for batch in batches(objects, self._pace.count):
            handle = self._handle(collection, tenant)
            if tenant is not None:
                self._ensure_tenant(collection, tenant)
            try:
                with self._writing(f"write {collection}", deadline), self._pace.measured(len(batch)):
                    result = handle.data.insert_many(batch)
                    if result.has_errors:
                        first = next(iter(result.errors.values()))
                        raise unavailable(f"write {collection}", RuntimeError(first.message))
            except TenantMissing:
                with self._lock:
                    self._tenants.discard((collection, tenant or ""))
                    self._visible.clear()
                raise

    def _upsert_records(
        self, collection: str, tenant: str | None, objects: Sequence[Object], deadline: Deadline | None
    ) -> None:
        """Upsert objects that are found by id alone, and see to it that they are."""
        self._upsert(collection, tenant, objects, deadline)
        unseen = [item for item in objects if (collection, tenant, str(item.uuid)) not in self._visible]
        if not unseen:
            return
        torn = self._not_found(collection, tenant, unseen)
        if torn:
            self._erase(collection, tenant, [str(item.uuid) for item in torn], deadline)
            self._upsert(collection, tenant, torn, deadline)
            if self._not_found(collection, tenant, torn):
                raise StoreUnavailable(f"write {collection}: records are not found after they were written")

    def _not_found(self, collection: str, tenant: str | None, objects: Sequence[Object]) -> list[Object]:
        missing = list(objects)
        for seconds in READ_BACK:
            time.sleep(seconds)
            found = self._read(collection, tenant, [str(item.uuid) for item in missing], [])
            self._saw(collection, tenant, found)
            missing = [item for item in missing if str(item.uuid) not in found]
            if not missing:
                break
        return missing

    def _saw(self, collection: str, tenant: str | None, ids: Iterable[str]) -> None:
        with self._lock:
            self._visible.update(((collection, tenant, uid), None) for uid in ids)
            while len(self._visible) > MAX_VISIBLE:
                self._visible.popitem(last=False)

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

    def _count(self, collection: str, tenant: str | None) -> int:
        """Objects of one tenant; none where it is missing."""
        try:
            with translated(f"count {collection}"):
                reply = self._handle(collection, tenant).aggregate.over_all(total_count=True)
        except TenantMissing:
            return 0
        return int(reply.total_count or 0)

    def _read_records(self, collection: str, tenant: str | None, ids: Sequence[str]) -> dict[str, str]:
        objects = self._read(collection, tenant, ids, ["record"])
        self._saw(collection, tenant, objects)
        return {uid: str(item.properties["record"]) for uid, item in objects.items()}

    def _delete(self, collection: str, tenant: str, ids: Sequence[str], deadline: Deadline | None) -> set[str]:
        """Delete explicit ids by filter; absent ones and a missing tenant are no error. The ids that were matched."""
        matched: set[str] = set()
        for page in pages_of(ids):
            handle = self._handle(collection, tenant)
            try:
                with self._writing(f"delete from {collection}", deadline):
                    result = handle.data.delete_many(where=Filter.by_id().contains_any(page), verbose=True)
                    if result.failed:
                        raise StoreUnavailable(f"delete from {collection}: {result.failed} objects failed")
            except TenantMissing:
                break
            matched.update(str(item.uuid) for item in result.objects)
        with self._lock:
            for uid in ids:
                self._visible.pop((collection, tenant, uid), None)
        return matched

    def _delete_surely(self, collection: str, tenant: str, ids: Sequence[str], deadline: Deadline | None) -> None:
        """Delete explicit ids, torn ones included."""
        matched = self._delete(collection, tenant, ids, deadline)
        self._erase(collection, tenant, [uid for uid in ids if uid not in matched], deadline)

    def _erase(self, collection: str, tenant: str | None, ids: Sequence[str], deadline: Deadline | None) -> None:
        """Delete each id over REST, which does not ask the index of ids. Absent ones are no error."""
        with self._lock:
            for uid in ids:
                self._visible.pop((collection, tenant, uid), None)
        self._in_threads([self._eraser(collection, tenant, uid, deadline) for uid in ids], deadline)

    def _eraser(
        self, collection: str, tenant: str | None, uid: str, deadline: Deadline | None
    ) -> Callable[[], None]:  # fmt: skip
        def erase() -> None:
            parameters = {} if tenant is None else {"tenant": tenant}
            self._rest("DELETE", collection, uid, deadline, params=parameters)

        return erase

    def _rest(self, method: str, collection: str, uid: str, deadline: Deadline | None, **arguments: Any) -> None:
        """A call on one object that has no gRPC form; an absent object or tenant is no error."""
        seconds = self._seconds(deadline)
        with translated(f"{method} {collection}"):
            reply = self._connection.rest().request(
                method, f"/objects/{collection}/{uid}", timeout=httpx.Timeout(seconds), **arguments
            )
        if reply.status_code in (200, 204, 404) or "tenant not found" in reply.text:
            return
        raise StoreUnavailable(f"{method} {collection}: {reply.status_code} {reply.text[:300]}")

    def _in_threads(self, calls: Sequence[Callable[[], None]], deadline: Deadline | None) -> None:
        """Run calls side by side. All have ended when this returns: a straggler must not overwrite what comes next."""
        if not calls:
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(REST_THREADS, thread_name_prefix="store-rest")
            futures = [self._pool.submit(call) for call in calls]
        wait(futures)
        if deadline is not None:
            deadline.check_ended()
        for future in futures:
            future.result()

    def close(self) -> None:
        """Close the connections and the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._handles.clear()
        self._connection.close()
