"""What is left of a tenant: counted in every collection, the body store and the log, at the moment of asking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipeline.clock import Clock, SystemClock
from pipeline.operate.places import at_once, backups, bounded, micros_of
from pipeline.operate.tenants import parts_of
from pipeline.ports import IndexStore, Record
from pipeline.settings import Settings
from schemas.deletion import DeletionPlace, TenantErasure, standing
from schemas.topics import Topic

ENDED = (Topic.CONTENT, Topic.ACCESS, Topic.MEMBERSHIP, Topic.CURSORS)  # cursors last: they say what is left to do
TRAILING = (Topic.MAINTENANCE, Topic.REQUESTS, Topic.RECEIPTS, Topic.DEAD_LETTER, Topic.QUERIES)


def collections_of(store: IndexStore) -> list[str | None]:
    """Generations whose collections stand, and None for the shared ones, which go last. Raises StoreUnavailable."""
    return [*sorted(name for name, g in store.read_generations().items() if g.dropped_at is None), None]


class ErasureProof:
    """Looks at every place."""

    def __init__(self, settings: Settings, store: IndexStore, tenant: str, clock: Clock | None = None) -> None:
        from pipeline.bus.bodies import FsspecBodyStore

        self._settings, self._store, self.tenant = settings, store, tenant
        self._clock = clock if clock is not None else SystemClock()
        self._bodies = FsspecBodyStore.of(settings)

    def prove(self) -> TenantErasure:
        """Count what is left of the tenant, now. Raises BusUnavailable or StoreUnavailable."""
        from pipeline.bus.topics import describe_topics

        configured = {found.topic: found.configuration for found in describe_topics(self._settings)}
        places = list(self._in_store())
        bodies = len(self._bodies.of_tenant(self.tenant))
        places.append(at_once("claim checks", "files below the tenant's folder", bodies, self._clock.now()))
        ended = 0
        for topic in ENDED:
            place, newest = self._on_log(topic, configured.get(topic, {}))
            places.append(place)
            ended = max(ended, newest)
        places += [self._trailing(topic, configured.get(topic, {})) for topic in TRAILING]
        places.append(backups(ended, self._settings.retention.backup_days, self._clock.now()))
        stands, clean_by = standing(tuple(places))
        return TenantErasure(
            tenant=self.tenant,
            checked_at=self._clock.now(),
            standing=stands,
            clean_by=clean_by,
            places=tuple(places),
        )

    def _in_store(self) -> Iterable[DeletionPlace]:
        for place in collections_of(self._store):
            there = self.tenant in self._store.tenants(place)
            if place is None:
                yield self._count("access", sum(1 for _ in self._store.walk_access(self.tenant)) if there else 0)
                principals = sum(1 for _ in self._store.walk_principals(self.tenant)) if there else 0
                yield self._count("principals", principals)
            else:
                chunks = self._store.count_chunks(place, self.tenant) if there else {}
                yield self._count(f"{place}/hot", chunks.get("hot", 0))
                yield self._count(f"{place}/cold", chunks.get("cold", 0))
                manifests = sum(1 for _ in self._store.walk_manifests(place, self.tenant)) if there else 0
                yield self._count(f"{place}/manifests", manifests)
                sections = sum(1 for _ in self._store.walk_sections(place, self.tenant)) if there else 0
                yield self._count(f"{place}/sections", sections)
            name = place if place is not None else "shared collections"
            yield at_once(f"{name}/shards", "the tenant exists", int(there), self._clock.now())

    def _count(self, place: str, found: int) -> DeletionPlace:
        return at_once(place, "objects of the tenant", found, self._clock.now())

    def _on_log(self, topic: Topic, configuration: Mapping[str, str]) -> tuple[DeletionPlace, int]:
        """Records that compaction still has to remove. A key that has not ended is left for ever."""
        found, newest, keys = 0, 0, {}
        for record in self._records(topic):
            found += record.value is not None
            newest = max(newest, record.timestamp)
            keys[record.key] = record.value is None
        now, method = self._clock.now(), "records with a payload"
        if not all(keys.values()):
            return at_once(f"log/{topic}", "keys that have not ended", sum(not e for e in keys.values()), now), newest
        lag, segment = (micros_of(configuration.get(name)) for name in ("max.compaction.lag.ms", "segment.ms"))
        by = newest + lag + segment if lag is not None and segment is not None else None
        return bounded(f"log/{topic}", method, found, now, by, "removed by compaction"), newest

    def _trailing(self, topic: Topic, configuration: Mapping[str, str]) -> DeletionPlace:
        found = newest = 0
        for record in self._trail(topic):
            found += 1
            newest = max(newest, record.timestamp)
        keep, segment = (micros_of(configuration.get(name)) for name in ("retention.ms", "segment.ms"))
        by = newest + keep + segment if keep is not None and segment is not None else None
        note = "ids, versions and times; no text"
        if topic is Topic.QUERIES:
            note = "queries with the words that querylog.text allows; the views of query services have dropped them"
        return bounded(f"log/{topic}", "records that name the tenant", found, self._clock.now(), by, note)

    def _trail(self, topic: Topic) -> Iterator[Record]:
        from pipeline.bus.tail import read_compacted

        quoted = f'"tenant":"{self.tenant}"'.encode()
        for record in read_compacted(self._settings, topic):
            if parts_of(record.key)[:1] == [self.tenant] or quoted in (record.value or b"").replace(b'": "', b'":"'):
                yield record

    def _records(self, topic: Topic) -> Iterator[Record]:
        from pipeline.bus.tail import read_compacted

        return read_compacted(self._settings, topic, wanted=lambda key: parts_of(key)[:1] == [self.tenant])
