"""Proof of a deletion: every place that could hold something of a document is looked at, at the moment of asking.

Places that are emptied at once (collections of every generation, claim checks, caches) must be empty; places that
empty by a retention time (log, dead letters, backups) say by when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from pipeline import analysis
from pipeline.clock import Clock, SystemClock
from pipeline.errors import HeadwaterError
from pipeline.operate.deletion_log import KafkaLog, Log, OnLog
from pipeline.operate.places import DAY_US, at_once, backups, bounded, micros_of, query_log
from pipeline.ports import IndexStore, Vectors
from pipeline.settings import Settings
from schemas.deletion import DeletionPlace, DeletionResponse, standing
from schemas.documents import AccessRecord, Manifest
from schemas.generation import Generation
from schemas.keys import DocumentRef
from schemas.topics import Topic

CLEANER_US = 60_000_000  # the broker looks for what is due every few seconds; a busy one needs longer

Embed = Callable[[Generation, str], Vectors | None]
Place = Callable[[DocumentRef, int], DeletionPlace]  # document and when it was hidden


class Absent(HeadwaterError):
    """No document of this id was ever seen in the tenant."""


class NotDeleted(HeadwaterError):
    """The document is not deleted. ``reason`` says what it is instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Bodies(Protocol):
    """The store of claim checks."""

    def of_document(self, document: DocumentRef) -> list[str]:
        """Raises BusUnavailable."""
        ...


class Prover:
    """Looks at every place. ``embed`` gives the vector of a text in a generation, where an encoder is at hand;
    ``more`` are places that only the caller knows, such as its caches."""

    def __init__(
        self,
        settings: Settings,
        store: IndexStore,
        *,
        log: Log | None = None,
        bodies: Bodies | None = None,
        clock: Clock | None = None,
        embed: Embed | None = None,
        more: Sequence[Place] = (),
    ) -> None:
        from pipeline.bus.bodies import FsspecBodyStore

        self._settings, self._store = settings, store
        self._log: Log = log if log is not None else KafkaLog(settings)
        self._bodies: Bodies = bodies if bodies is not None else FsspecBodyStore.of(settings)
        self._clock = clock if clock is not None else SystemClock()
        self._embed, self._more = embed, more

    def prove(self, tenant: str, uid: str, *, thorough: bool = False) -> DeletionResponse:
        """Look now. ``thorough`` also walks over every chunk of the tenant, which meets objects that no index names.

        Raises Absent, NotDeleted, StoreUnavailable or BusUnavailable.
        """
        record = self._store.read_access(tenant, [uid]).get(uid)
        if record is None:
            raise Absent(f"no document {uid} is known in {tenant}")
        if not record.tombstone:
            raise NotDeleted(_instead(record))
        document = record.document
        seen, configured = self._log.of(document), self._log.configuration()
        places = [
            *(place for g in self._generations() for place in self._generation(g, document, seen, thorough)),
            self._claim_checks(document),
            *(place(document, record.written_at) for place in self._more),
            query_log(self._settings.state_dir / "logs" / "query.log", document, record.written_at, self._clock.now()),
            self._content(seen, configured.get(Topic.CONTENT, {})),
            self._letters(seen, configured.get(Topic.DEAD_LETTER, {})),
            backups(record.version, self._settings.retention.backup_days, self._clock.now()),
        ]
        stands, clean_by = standing(tuple(places))
        kept = micros_of(configured.get(Topic.ACCESS, {}).get("delete.retention.ms")) or 90 * DAY_US
        return DeletionResponse(
            document_uid=uid,
            document_id=document.id,
            source=document.source,
            kind=document.kind,
            tenant=tenant,
            deleted_at=record.version,
            hidden_at=record.written_at,
            version=record.version,
            checked_at=self._clock.now(),
            standing=stands,
            clean_by=clean_by,
            tombstone_until=record.version + kept,
            places=tuple(places),
        )

    def _generations(self) -> list[Generation]:
        """All whose collections stand: building, standby and retired ones too."""
        return [g for _, g in sorted(self._store.read_generations().items()) if g.dropped_at is None]

    # ------------------------------------------------------------ the store

    def _generation(
        self, generation: Generation, document: DocumentRef, seen: OnLog, thorough: bool
    ) -> Iterable[DeletionPlace]:
        name, store = generation.name, self._store
        words = _words(document, seen)
        vector, near = self._vector(generation, words)
        by_id = store.chunk_ids_of(name, document)
        by_keyword = store.keyword_matches(name, document, analysis.tokens(words))
        by_vector = store.vector_matches(name, document, vector)
        for tier in ("hot", "cold"):
            where = f"{name}/{tier}"
            yield self._at_once(where, "by id", len(by_id.get(tier, ())))
            yield self._at_once(where, "by keyword", len(by_keyword.get(tier, ())), note=_source(seen))
            yield self._at_once(where, "by vector", len(by_vector.get(tier, ())), note=near)
            if thorough:
                met = sum(c.document_uid == document.uid for c in store.walk_chunks(name, tier, document.tenant))
                yield self._at_once(where, "every object read", met)
        yield self._at_once(f"{name}/sections", "by document", len(store.section_ids_of(name, document)))
        if thorough:
            met = sum(uid == document.uid for _, uid in store.walk_sections(name, document.tenant))
            yield self._at_once(f"{name}/sections", "every object read", met)
        manifest = store.read_manifests(name, document.tenant, [document.uid]).get(document.uid)
        yield self._at_once(f"{name}/manifest", "title, address and ids that it lists", _listed(manifest))

    def _vector(self, generation: Generation, words: str) -> tuple[Vectors, str]:
        vector = self._embed(generation, words) if self._embed is not None else None
        if vector is not None:
            return vector, "near the vector of its own words"
        direction = np.zeros(generation.encoder.dimension, dtype=np.float32)
        direction[0] = 1.0
        return direction, "any direction: no encoder is loaded here"

    def _claim_checks(self, document: DocumentRef) -> DeletionPlace:
        found = self._bodies.of_document(document)
        return self._at_once("claim checks", "files below the document's folder", len(found))

    def _at_once(self, place: str, method: str, found: int, *, note: str | None = None) -> DeletionPlace:
        return at_once(place, method, found, self._clock.now(), note=note)

    # ------------------------------------------------------------ the log

    def _content(self, seen: OnLog, configuration: Mapping[str, str]) -> DeletionPlace:
        """Compaction removes what a later event of the key replaced, once its segment is closed."""
        lag, segment = (micros_of(configuration.get(name)) for name in ("max.compaction.lag.ms", "segment.ms"))
        by = None
        if lag is not None and segment is not None and seen.ended_at is not None:
            by = seen.ended_at + lag + segment + CLEANER_US
        note = "removed by compaction; segments close when the partition is written to, as the canary does"
        if by is None:
            note = "max.compaction.lag.ms or segment.ms is not bounded on the broker: set them"
        return bounded("log/content", "events that still carry it", len(seen.copies), self._clock.now(), by, note)

    def _letters(self, seen: OnLog, configuration: Mapping[str, str]) -> DeletionPlace:
        keep, segment = (micros_of(configuration.get(name)) for name in ("retention.ms", "segment.ms"))
        by = max(seen.letters) + keep + segment if seen.letters and keep is not None and segment is not None else None
        note = "coordinates and reasons, never a body"
        method = "records that name the document"
        return bounded("dead letters", method, len(seen.letters), self._clock.now(), by, note)


def _words(document: DocumentRef, seen: OnLog) -> str:
    """What a search for the document would say: its own text as far as the log still holds it, else its name."""
    newest = seen.copies[-1] if seen.copies else None
    parts = [document.id, newest.title if newest else "", (newest.text or "")[:4000] if newest else ""]
    return " ".join(part for part in parts if part)


def _source(seen: OnLog) -> str:
    known = any(copy.text for copy in seen.copies)
    return "words of its text, which the log still holds" if known else "words of its name: its text is gone"


def _listed(manifest: Manifest | None) -> int:
    if manifest is None:
        return 0
    ids = sum(len(r.chunk_ids) + len(r.section_ids) for r in manifest.retiring)
    facts = sum(value not in (None, "") for value in (manifest.title, manifest.url, manifest.path))
    return ids + manifest.chunk_total + len(manifest.sections) + facts + (not manifest.deleted)


def _instead(record: AccessRecord) -> str:
    if record.holds:
        return f"it is hidden by a hold ({', '.join(sorted(record.holds))}), not deleted: a hold can be lifted"
    return "it is not deleted"
