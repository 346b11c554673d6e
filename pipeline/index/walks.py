"""Walks over whole collections by cursor, and what the store holds altogether.

A cursor reads the object store itself, in the order of the ids: it meets torn objects too, which no filter does
(``core``), and everything that stands from the first page to the last. Pages are held, never a whole tenant.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from pipeline.errors import Reject, StoreUnavailable
from pipeline.index.connection import TenantMissing, translated
from pipeline.index.core import StoreCore
from pipeline.index.objects import parse
from pipeline.ports import StandingChunk, StoreFootprint
from schemas.documents import AccessRecord, Manifest, PrincipalRecord, Tier

PAGE = 500
SLOW_S = 30.0  # of calls that ask every shard

M = TypeVar("M", bound=BaseModel)
_log = logging.getLogger(__name__)


class Walks(StoreCore):
    """Reads that go through everything. Raises StoreUnavailable, also in the middle of a walk."""

    def tenants(self, generation: str | None) -> set[str]:
        """Tenants of a generation's collections, of the shared ones where None."""
        found: set[str] = set()
        for collection in self._tenanted(generation):
            with translated(f"tenants of {collection}"):
                found.update(self._connection.client().collections.use(collection).tenants.get())
        return found

    def _tenanted(self, generation: str | None) -> list[str]:
        names = self._names
        return [names.access, names.principals] if generation is None else names.of_generation(generation)

    def walk_manifests(self, generation: str, tenant: str) -> Iterator[Manifest]:
        """Heads of manifests; one that cannot be read is logged and left out."""
        objects = self._walk(self._names.records(generation), tenant, ["type", "record"])
        return _parsed(Manifest, objects, "manifest")

    def walk_access(self, tenant: str) -> Iterator[AccessRecord]:
        """Access records; one that cannot be read is logged and left out."""
        return _parsed(AccessRecord, self._walk(self._names.access, tenant, ["type", "record"]), "access")

    def walk_principals(self, tenant: str) -> Iterator[PrincipalRecord]:
        """Membership records; one that cannot be read is logged and left out."""
        return _parsed(PrincipalRecord, self._walk(self._names.principals, tenant, ["type", "record"]), "principal")

    def walk_chunks(self, generation: str, tier: Tier, tenant: str) -> Iterator[StandingChunk]:
        """Chunk objects of a tier, without text and vector."""
        for item in self._walk(self._names.tier(tier, generation), tenant, ["document", "allow", "allow2"]):
            yield StandingChunk(
                chunk_id=str(item.uuid),
                document_uid=str(item.properties["document"]),
                allow=tuple(item.properties.get("allow") or ()),
                allow2=tuple(item.properties.get("allow2") or ()),
            )

    def walk_sections(self, generation: str, tenant: str) -> Iterator[tuple[str, str]]:
        """(section id, document uid) of section records."""
        for item in self._walk(self._names.records(generation), tenant, ["type", "document"]):
            if item.properties["type"] == "section":
                yield str(item.uuid), str(item.properties.get("document") or "")

    def _walk(self, collection: str, tenant: str, properties: list[str]) -> Iterator[Any]:
        after = None
        while True:
            handle = self._handle(collection, tenant)
            try:
                with translated(f"walk {collection}"):
                    reply = handle.query.fetch_objects(limit=PAGE, after=after, return_properties=properties)
            except TenantMissing:
                return
            if not reply.objects:
                return
            yield from reply.objects
            after = reply.objects[-1].uuid

    # ------------------------------------------------------------ removal of a tenant, and the whole

    def drop_tenant(self, generation: str | None, tenant: str) -> None:
        """Remove a tenant with all its objects from a generation's collections, from the shared ones where None."""
        for collection in self._tenanted(generation):
            with translated(f"drop tenant {tenant} of {collection}"):
                self._connection.client().collections.use(collection).tenants.remove([tenant])
            self._forget_tenant(collection, tenant)

    def _forget_tenant(self, collection: str, tenant: str) -> None:
        with self._lock:
            self._tenants.discard((collection, tenant))
            self._visible.clear()

    def healthy(self) -> bool:
        """Whether every node of the store is up. Raises StoreUnavailable where none answers."""
        return all(node["status"] == "HEALTHY" for node in self._nodes("minimal", self._connection.timeout_s))

    def footprint(self) -> StoreFootprint:
        """Objects (counted, not estimated) of our collections, disk and state of the store."""
        ours = self._names.pattern()
        shards = self._shards()
        objects: dict[str, int] = {}
        with translated("list collections"):
            known = sorted(self._connection.client().collections.list_all())
        for collection in known:
            if ours.fullmatch(collection):
                objects[collection] = sum(self._count(collection, tenant) for tenant in self._tenants_of(collection))
        refusing = {s["class"] for _, s in shards if s.get("vectorIndexingStatus") == "READONLY"}
        data = self._local_data()
        return StoreFootprint(
            objects=objects,
            written={} if data is None else {name: _written(data, name) for name in objects},
            read_only=tuple(sorted(name for name in refusing if ours.fullmatch(name))),
            disk_bytes=None if data is None else _size(data),
            disk_used=None if data is None else _used(data),
            nodes=len({node for node, _ in shards}) or 1,
        )

    def _shards(self) -> list[tuple[str, dict[str, Any]]]:
        """Every shard with the node that holds it."""
        nodes = self._nodes("verbose", SLOW_S)
        return [(node["name"], shard) for node in nodes for shard in node.get("shards") or []]

    def _nodes(self, output: str, seconds: float) -> list[dict[str, Any]]:
        with translated("nodes"):
            reply = self._connection.rest().get("/nodes", params={"output": output}, timeout=seconds)
        if reply.status_code != 200:
            raise StoreUnavailable(f"nodes: {reply.status_code} {reply.text[:300]}")
        return list(reply.json()["nodes"])

    def _tenants_of(self, collection: str) -> Sequence[str | None]:
        if collection in (self._names.progress, self._names.generations):
            return [None]
        with translated(f"tenants of {collection}"):
            return sorted(self._connection.client().collections.use(collection).tenants.get())

    def _local_data(self) -> Path | None:
        """Folder of the server's data, where it is said to lie on this machine and does."""
        return self._data if self._data is not None and self._data.is_dir() else None


def _parsed(model: type[M], objects: Iterator[Any], kind: str) -> Iterator[M]:
    for item in objects:
        if item.properties["type"] != kind:
            continue
        try:
            yield parse(model, str(item.properties["record"]), f"{kind} {item.uuid}")
        except Reject as error:
            _log.error("left out of a walk: %s", error.reason)


def _written(data: Path, collection: str) -> int:
    """Ids that the server has ever given out in a collection: what the vector index keeps room for, used or not."""
    counters = data.joinpath(collection.lower()).glob("*/indexcount")
    total = 0
    for counter in counters:
        with contextlib.suppress(OSError):
            total += int.from_bytes(counter.read_bytes()[:8], "little")
    return total


def _size(folder: Path) -> int:
    """Bytes of all files; one that goes meanwhile counts nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _used(folder: Path) -> float:
    """Used share of the disk, as the server reckons it before it refuses writes."""
    usage = shutil.disk_usage(folder)
    return 1 - usage.free / usage.total
